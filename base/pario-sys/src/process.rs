//! Processes: distinguishing a living process from a dead one with a reused number, descriptor limits, and detecting `fork`.

#![expect(unsafe_code, reason = "pthread_atfork and atexit take C callbacks")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};

use rustix::process::Resource;

/// Closes every descriptor from `first` on. For a process that has just started and owns none of them: inherited descriptors were opened
/// by its parent.
pub fn close_descriptors_from(first: u32) {
    // SAFETY: closing descriptors that no Rust value of this process owns breaks no promise; the caller has just started.
    let result = unsafe { libc::close_range(first, u32::MAX, 0) };
    // Kernels before 5.9 do not have the call; inherited descriptors are untidy, not wrong.
    let _ = result;
}

/// A sign of life of a session in this process: a named descriptor, which the kernel closes with its owner. Other processes check it with
/// [`has_sign`].
#[derive(Debug)]
pub struct Sign {
    _descriptor: std::os::fd::OwnedFd,
}

impl Sign {
    /// Shows `name`, up to 200 bytes, until it is dropped.
    pub fn show(name: &str) -> io::Result<Sign> {
        Ok(Sign { _descriptor: rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)? })
    }
}

/// Whether a process shows the sign; `None` if unknown.
#[must_use]
pub fn has_sign(pid: u32, name: &str) -> Option<bool> {
    let wanted = format!("/memfd:{name} (deleted)");
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let mut links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Some(links.any(|link| link.as_os_str() == wanted.as_str()))
}

/// This machine's name. A separate time namespace counts as another machine: start times of its processes mean nothing outside.
#[must_use]
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match crate::clock::time_namespace() {
        Some(namespace) => format!("{name}/time-{namespace}"),
        None => name,
    }
}

/// Start time of a process in clock ticks since boot: with its number, this identifies it uniquely. `None`: there is none.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    match stat_of(pid)? {
        // A zombie holds its number but runs no more.
        (b'Z' | b'X', _) => None,
        (_, ticks) => Some(ticks),
    }
}

/// Whether the process that started then still runs.
#[must_use]
pub fn is_alive(pid: u32, started_ticks: u64) -> bool {
    start_ticks(pid) == Some(started_ticks)
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// It runs, sleeps, or waits for a processor or a disk.
    Running,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Ended,
}

/// What the process that started then does now.
#[must_use]
pub fn activity(pid: u32, started_ticks: u64) -> Activity {
    match stat_of(pid) {
        Some((b'T' | b't', ticks)) if ticks == started_ticks => Activity::Stopped,
        Some((b'Z' | b'X', _)) | None => Activity::Ended,
        Some((_, ticks)) if ticks == started_ticks => Activity::Running,
        Some(_) => Activity::Ended,
    }
}

/// Whether a thread of the process runs, waits for a processor, or waits for a disk: what it was told to do may take its time.
#[must_use]
pub fn is_busy(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let state =
        |thread: std::fs::DirEntry| Some(parse_stat(&std::fs::read(thread.path().join("stat")).ok()?)?.0);
    threads.flatten().filter_map(state).any(|state| matches!(state, b'R' | b'D'))
}

fn stat_of(pid: u32) -> Option<(u8, u64)> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// State (field 3) and start time (field 22). The name, field 2, may hold spaces and parentheses: fields count from the last ')'.
fn parse_stat(stat: &[u8]) -> Option<(u8, u64)> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let ticks = fields.nth(18)?.parse().ok()?;
    Some((state, ticks))
}

/// Raises the number of descriptors this process may have as far as it is allowed; returns that number.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        rustix::process::setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current.unwrap_or(u64::MAX))
}

static AT_EXIT: OnceLock<fn()> = OnceLock::new();

/// Registers `run` to be called when this process ends by `exit` or by returning from `main`, or when the library that this code is part
/// of is unloaded. Only the first registered function is called.
pub fn at_exit(run: fn()) {
    if AT_EXIT.set(run).is_err() {
        return;
    }
    // SAFETY: `run_at_exit` is a function for as long as this library is loaded, and the C library calls it before it is unloaded.
    let result = unsafe { libc::atexit(run_at_exit) };
    // Without memory for one entry the process fails elsewhere; its end is not observed.
    let _ = result;
}

extern "C" fn run_at_exit() {
    if let Some(run) = AT_EXIT.get() {
        // A panic must not cross into C; it has been reported already.
        let _ = std::panic::catch_unwind(run);
    }
}

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCH_FORKS: Once = Once::new();

/// A number that differs in a forked child, so that handles created before the fork can detect it.
///
/// Counts from the first call on; `vfork` and a bare `clone` are not detected, since they run no handlers.
#[must_use]
pub fn fork_generation() -> u64 {
    WATCH_FORKS.call_once(|| {
        // SAFETY: `count_fork` is a function for the life of the process and does only what is safe after fork.
        let result = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        assert_eq!(result, 0, "no memory to register a fork handler");
    });
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_makes_its_process_busy() {
        assert!(is_busy(std::process::id()), "this thread runs");
        assert!(!is_busy(u32::MAX), "there is no such process");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        while is_busy(child.id()) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn reads_stat_with_a_hostile_name() {
        let line = b"42 (a) R 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(parse_stat(line), Some((b'S', 777)));
        assert_eq!(parse_stat(b"42 (a) S 1 2 3"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn tells_the_living_from_the_dead() {
        let me = std::process::id();
        let started = start_ticks(me).unwrap();
        assert!(is_alive(me, started));
        assert!(!is_alive(me, started + 1));
        assert!(!is_alive(u32::MAX, 0));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_ticks(child.id()).unwrap();
        assert!(is_alive(child.id(), started));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id(), started));
    }

    #[test]
    fn descriptor_limit_reaches_its_maximum() {
        let limit = raise_descriptor_limit().unwrap();
        let now = rustix::process::getrlimit(Resource::Nofile);
        assert_eq!(now.current.unwrap_or(u64::MAX), limit);
        assert_eq!(now.current, now.maximum);
    }

    #[test]
    fn generation_changes_in_a_forked_child_only() {
        let before = fork_generation();
        // SAFETY: the child calls nothing but atomics and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = if fork_generation() == before { 1 } else { 7 };
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid memory; the child is ours.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, libc::WEXITSTATUS(status)), (child, 7));
        assert_eq!(fork_generation(), before);
    }

    #[test]
    fn a_sign_is_seen_until_it_is_dropped() {
        let own = std::process::id();
        let sign = Sign::show("pario-test-sign").unwrap();
        assert_eq!(has_sign(own, "pario-test-sign"), Some(true));
        assert_eq!(has_sign(own, "pario-test-other"), Some(false));
        drop(sign);
        assert_eq!(has_sign(own, "pario-test-sign"), Some(false));
        assert_eq!(has_sign(u32::MAX, "pario-test-sign"), None);
    }
}
