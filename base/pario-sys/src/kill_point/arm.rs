//! Arming: the point at which this process kills or stops itself, from its environment.
//!
//! Never: arms a point that this process does not pass. Always: a variable that cannot be parsed completely is an error.

#![cfg_attr(
    debug_assertions,
    expect(unsafe_code, reason = "raising a signal in this very thread has no safe form")
)]

use std::path::PathBuf;

use super::point::{Point, PointRole};

/// The variable that arms a point: `NAME[@SERVER][:COUNT]=kill|stop|hang`.
pub const VARIABLE: &str = "PARIO_KILL_POINT";
/// Variable with the directory shared by a test and the process: a point counts once the file `go` exists, and a process that reaches it
/// creates `reached`.
pub const DIRECTORY: &str = "PARIO_KILL_POINT_DIR";

/// What this process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArmedProcess {
    /// It has mounted a partition.
    Client,
    /// It is the server of this number.
    Server(u16),
}

/// What happens at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// The thread goes no further; the process and its other threads go on.
    Hang,
}

/// Why no point was armed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArmError {
    /// The variable cannot be understood.
    #[error("{VARIABLE}={text}: {why}; it is NAME[@SERVER][:COUNT]=kill|stop|hang")]
    Form {
        /// The variable's value.
        text: String,
        /// The cause.
        why: &'static str,
    },
    /// There is no such point.
    #[error("{VARIABLE}: there is no point '{name}', but {}", names())]
    Unknown {
        /// The name given.
        name: String,
    },
    /// Release builds have no points.
    #[error("{VARIABLE} is set, and this build of Pario has no kill points: build it with debug assertions")]
    NotBuilt,
}

fn names() -> String {
    let names: Vec<&str> = Point::ALL.iter().map(|point| point.name()).collect();
    names.join(", ")
}

/// The point to act at, and the action.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ArmPlan {
    point: Point,
    server: Option<u16>,
    /// Occurrence of the point at which to act.
    count: u64,
    action: Action,
    dir: Option<PathBuf>,
}

/// Arms the point from the environment, if this process passes it. The first call decides; later ones only check.
pub fn arm(process: ArmedProcess) -> Result<(), ArmError> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(()) };
    if !cfg!(debug_assertions) {
        return Err(ArmError::NotBuilt);
    }
    let dir = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let plan = ArmPlan { dir, ..parse(&text.to_string_lossy())? };
    if plan.is_for(process) {
        #[cfg(debug_assertions)]
        live::set(plan);
    }
    Ok(())
}

impl ArmPlan {
    fn is_for(&self, process: ArmedProcess) -> bool {
        match (self.point.role(), process) {
            (PointRole::Client, ArmedProcess::Client) | (PointRole::Manager, ArmedProcess::Server(0)) => true,
            (PointRole::Server, ArmedProcess::Server(index)) => {
                self.server.is_none_or(|wanted| wanted == index)
            }
            (PointRole::Client | PointRole::Server | PointRole::Manager, _) => false,
        }
    }
}

fn parse(text: &str) -> Result<ArmPlan, ArmError> {
    let form = |why| ArmError::Form { text: text.to_owned(), why };
    let (place, action) = text.split_once('=').ok_or_else(|| form("it has no action"))?;
    let action = match action {
        "kill" => Action::Kill,
        "stop" => Action::Stop,
        "hang" => Action::Hang,
        _ => return Err(form("its action is none of kill, stop, hang")),
    };
    let (place, count) = match place.split_once(':') {
        Some((place, count)) => (place, count.parse().ok()),
        None => (place, Some(1)),
    };
    let count = count.filter(|count| *count != 0).ok_or_else(|| form("its count is no number from 1 on"))?;
    let (name, server) = match place.split_once('@') {
        Some((name, server)) => {
            (name, Some(server.parse().map_err(|_| form("its server is not the number of one"))?))
        }
        None => (place, None),
    };
    let point = Point::ALL.iter().find(|point| point.name() == name);
    let point = *point.ok_or_else(|| ArmError::Unknown { name: name.to_owned() })?;
    if server.is_some() && point.role() != PointRole::Server {
        return Err(form("only points of servers accept a server"));
    }
    Ok(ArmPlan { point, server, count, action, dir: None })
}

#[cfg(debug_assertions)]
pub(super) use live::reached;

/// The armed point and its action.
#[cfg(debug_assertions)]
mod live {
    use std::path::Path;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

    use super::{Action, ArmPlan};
    use crate::kill_point::Point;

    /// The number of the armed point, or 0.
    static ARMED: AtomicU16 = AtomicU16::new(0);
    static PLAN: OnceLock<ArmPlan> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn set(plan: ArmPlan) {
        let point = PLAN.get_or_init(|| plan).point;
        ARMED.store(point as u16, Ordering::Release);
    }

    #[inline(always)]
    pub(in crate::kill_point) fn reached(point: Point) {
        if ARMED.load(Ordering::Relaxed) == point as u16 {
            at_the_armed();
        }
    }

    #[cold]
    fn at_the_armed() {
        let Some(plan) = PLAN.get() else { return };
        if plan.dir.as_ref().is_some_and(|dir| !dir.join("go").exists()) {
            return;
        }
        if PASSED.fetch_add(1, Ordering::Relaxed) + 1 != plan.count {
            return;
        }
        if let Some(dir) = &plan.dir {
            leave_mark(dir, plan.point);
        }
        let number = match plan.action {
            Action::Kill => libc::SIGKILL,
            Action::Stop => libc::SIGSTOP,
            Action::Hang => loop {
                std::thread::park();
            },
        };
        // SAFETY: `raise` accepts any number. It is directed at the calling thread, which therefore does not pass this line.
        unsafe { libc::raise(number) };
    }

    /// A test without the mark fails, so errors are ignored here.
    fn leave_mark(dir: &Path, point: Point) {
        let (draft, mark) = (dir.join("reached.new"), dir.join("reached"));
        let text = format!("{} {}", point.name(), std::process::id());
        if std::fs::write(&draft, text).is_ok() {
            let _ = std::fs::rename(draft, mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_variable_says() {
        let plan = |point, server, count, action| ArmPlan { point, server, count, action, dir: None };
        let cases = [
            ("commit-tail=kill", plan(Point::CommitTail, None, 1, Action::Kill)),
            ("drain-written@1:3=stop", plan(Point::DrainWritten, Some(1), 3, Action::Stop)),
            ("log-written=hang", plan(Point::LogWritten, None, 1, Action::Hang)),
            ("log-written:20=kill", plan(Point::LogWritten, None, 20, Action::Kill)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else_and_says_why() {
        let cases = [
            ("commit-tail", "it has no action"),
            ("commit-tail=pause", "none of kill, stop, hang"),
            ("commit-tail:0=kill", "no number from 1 on"),
            ("commit-tail:x=kill", "no number from 1 on"),
            ("drain-heads@x=kill", "not the number of one"),
            ("commit-tail@1=kill", "only points of servers accept a server"),
            ("comit-tail=kill", "there is no point 'comit-tail', but commit-begun, "),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn each_process_arms_its_own_points_only() {
        let is_for = |text: &str, process| parse(text).unwrap().is_for(process);
        let processes = [ArmedProcess::Client, ArmedProcess::Server(0), ArmedProcess::Server(1)];
        let cases = [
            ("commit-tail=kill", [true, false, false]),
            ("log-written=kill", [false, true, false]),
            ("drain-heads=kill", [false, true, true]),
            ("drain-heads@1=kill", [false, false, true]),
        ];
        for (text, expected) in cases {
            assert_eq!(processes.map(|process| is_for(text, process)), expected, "{text}");
        }
    }
}
