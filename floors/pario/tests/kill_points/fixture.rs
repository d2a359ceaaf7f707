//! The fixture of a case: a partition of real servers, one armed process, and the proof that its point was reached.
//!
//! Always: the proof is both the mark that the process left and the kernel's state of it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pario::core::ServerIndex;
use pario::partition::Registry;
use pario_sys::kill_point::{Action, DIRECTORY, Point, VARIABLE};
use rustix::process::{Signal, kill_process};

use crate::common::stage::{NAME, Stage, pid, state_of, until};

/// Concurrent cases: most of their time is waiting.
const TOGETHER: usize = 4;
/// Longest duration of a case: none needs a quarter of it.
const CASE_LIMIT: Duration = Duration::from_secs(90);
/// Small blocks and small outboxes: every record lies on several servers, and rings wrap around.
const SETTINGS: &str = "stripe = \"16KiB\"\n[cache]\noutbox = \"256KiB\"";
pub const SERVERS: usize = 2;

/// One point and the event at it.
#[derive(Clone, Copy, Debug)]
pub struct KillCase {
    pub point: Point,
    pub action: Action,
}

/// Runs both cases of each point; fails with the list of failed cases.
#[track_caller]
pub fn each_of(points: &[Point], play: fn(KillCase)) {
    if !cfg!(debug_assertions) {
        eprintln!("SKIPPED: a release build has no kill points");
        return;
    }
    assert!(!points.is_empty());
    let wanted = std::env::var("PARIO_KILL_CASE").unwrap_or_default();
    let cases = points
        .iter()
        .flat_map(|point| [Action::Stop, Action::Kill].map(|action| KillCase { point: *point, action }));
    let cases: VecDeque<KillCase> = cases.filter(|case| case.name().contains(&wanted)).collect();
    let (cases, failed) = (Arc::new(Mutex::new(cases)), Arc::new(Mutex::new(Vec::new())));
    let players: Vec<_> = (0..TOGETHER)
        .map(|_| {
            let (cases, failed) = (Arc::clone(&cases), Arc::clone(&failed));
            std::thread::spawn(move || {
                loop {
                    let Some(case) = cases.lock().unwrap().pop_front() else { return };
                    if let Err(how) = play_watched(case, play) {
                        failed.lock().unwrap().push(format!("{} {how}", case.name()));
                    }
                }
            })
        })
        .collect();
    for player in players {
        player.join().unwrap();
    }
    let failed = failed.lock().unwrap();
    assert!(failed.is_empty(), "failed, each alone with PARIO_KILL_CASE: {failed:?}");
}

/// A case that hangs fails too.
fn play_watched(case: KillCase, play: fn(KillCase)) -> Result<(), &'static str> {
    let (done, over) = std::sync::mpsc::channel::<()>();
    let player = std::thread::Builder::new().name(case.name()).spawn(move || {
        let _done = done;
        play(case);
    });
    if over.recv_timeout(CASE_LIMIT) == Err(RecvTimeoutError::Timeout) {
        // Threads that wait for a server then get an error, and clean up the case.
        kill_servers(case);
        let _ = over.recv_timeout(CASE_LIMIT);
        return Err("hangs");
    }
    player.unwrap().join().map_err(|_| "fails")
}

/// Directory of the registries of cases under way.
static REGISTRIES: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

fn kill_servers(case: KillCase) {
    for (_, path) in REGISTRIES.lock().unwrap().iter().filter(|(name, _)| *name == case.name()) {
        let entry = Registry::open(path).get(NAME);
        for server in entry.ok().flatten().iter().flat_map(|entry| &entry.servers) {
            if server.process().is_alive() {
                let _ = kill_process(pid(server.pid), Signal::KILL);
            }
        }
    }
}

impl KillCase {
    pub fn name(self) -> String {
        format!("{}={}", self.point.name(), self.verb())
    }

    fn verb(self) -> &'static str {
        match self.action {
            Action::Kill => "kill",
            Action::Stop => "stop",
            Action::Hang => unreachable!("the cases kill and stop; tests of the command hang a server"),
        }
    }
}

/// See the module.
pub struct KillFixture {
    pub stage: Stage,
    pub case: KillCase,
    dir: PathBuf,
}

impl KillFixture {
    /// A partition with server `victim` armed at the `count`-th pass.
    pub fn with_server(case: KillCase, victim: usize, count: u64) -> Option<KillFixture> {
        let stand = KillFixture::prepare(case)?;
        let mut up = stand.stage.up_command();
        up.envs(stand.arming(Some(victim), count)).stdout(Stdio::null());
        assert!(up.status().unwrap().success(), "the partition comes up");
        Some(stand)
    }

    /// A healthy partition; the victim is a client.
    pub fn with_client(case: KillCase) -> Option<KillFixture> {
        let stand = KillFixture::prepare(case)?;
        stand.stage.up();
        Some(stand)
    }

    fn prepare(case: KillCase) -> Option<KillFixture> {
        let stage = Stage::prepare(SERVERS, SETTINGS)?;
        REGISTRIES.lock().unwrap().push((case.name(), stage.registry().path().to_owned()));
        let dir = stage.dir().join("kill");
        std::fs::create_dir(&dir).unwrap();
        Some(KillFixture { stage, case, dir })
    }

    /// The environment that arms a process.
    pub fn arming(&self, server: Option<usize>, count: u64) -> [(&'static str, OsString); 2] {
        let server = match self.case.point.role() {
            pario_sys::kill_point::PointRole::Server => {
                server.map(|server| format!("@{server}")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let text = format!("{}{server}:{count}={}", self.case.point.name(), self.case.verb());
        [(VARIABLE, text.into()), (DIRECTORY, self.dir.clone().into())]
    }

    /// From here on the point counts.
    pub fn go(&self) {
        self.note("go");
    }

    pub fn note(&self, name: &str) {
        std::fs::write(self.dir.join(name), "").unwrap();
    }

    /// Waits until the process is stopped or dead at its point.
    pub fn reached_by(&self, process: u32) {
        let mark = self.dir.join("reached");
        assert!(until(|| mark.exists()), "{} was never reached", self.case.name());
        let text = std::fs::read_to_string(mark).unwrap();
        assert_eq!(text, format!("{} {process}", self.case.point.name()));
        let there = match self.case.action {
            // A zombie is dead and waits for its parent.
            Action::Kill => until(|| matches!(state_of(process), None | Some('Z' | 'X'))),
            Action::Stop => until(|| state_of(process) == Some('T')),
            Action::Hang => unreachable!("the cases kill and stop; tests of the command hang a server"),
        };
        assert!(there, "process {process} is {:?}", state_of(process));
    }

    /// Resumes a stopped process.
    pub fn go_on(&self, process: u32) {
        kill_process(pid(process), Signal::CONT).unwrap();
        assert!(until(|| state_of(process) != Some('T')));
    }

    /// The holders that others wait for, from the manager's status.
    pub fn waited_for(&self) -> String {
        let manager = self.stage.mount();
        let status = manager.mount_handle().server_status(ServerIndex(0)).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status.pointer("/manager/waiting").unwrap().to_string()
    }

    /// No object is orphaned, missing or of another length: `pario doctor` finds no error, at the latest when interrupted removals have
    /// been resumed.
    pub fn is_healthy(&self) {
        let mut said = String::new();
        let healthy = until(|| {
            let output = self.stage.command(&["doctor", "stage", "--json"]).output().unwrap();
            said = String::from_utf8_lossy(&output.stdout).into_owned();
            said += &String::from_utf8_lossy(&output.stderr);
            output.status.success()
        });
        assert!(healthy, "{said}");
    }
}
