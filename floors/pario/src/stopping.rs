//! Ends one server: by an order, else, on this machine, by signals.
//!
//! Never: kills a server without reporting it; waits without a limit. Always: a server that does not answer gets SIGTERM, on
//! which it writes its data, and is killed only if all its threads were idle for [`IDLE_LIMIT`], or after [`STOP_LIMIT`].

use std::os::fd::OwnedFd;
use std::time::Duration;

use pario_core::{Clock, Code, Fault};
use pario_net::deadlines::Deadlines;
use pario_net::message::Request;
use pario_sys::clock::MonotonicClock;
use pario_sys::process::is_busy;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::orders::{is_refused, order};
use crate::partition::{RegistryEntry, ServerEntry, launch};
use crate::start::DownMode;

/// Time limit for a server to flush and end after an order or SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Time limit after SIGTERM without a thread that runs or waits for a disk.
const IDLE_LIMIT: Duration = Duration::from_secs(15);
/// Poll interval. A thread that wakes occasionally is rarely seen running.
const IDLE_POLL: Duration = Duration::from_millis(250);
/// Time limit for the kernel to end a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Result of ending a server.
pub(crate) enum StopResult {
    /// It flushed and ended.
    InOrder,
    /// It ended and could not write all its data.
    Failed(String),
    /// It did not answer, and ended in order on SIGTERM.
    Terminated(String),
    /// It did not answer, did not end on SIGTERM, and was killed.
    Killed(String),
    /// It was already dead.
    AlreadyDead,
    /// It may still be alive.
    Unreachable(String),
}

/// Ends one server.
pub(crate) fn stop(entry: &RegistryEntry, server: &ServerEntry, how: DownMode) -> StopResult {
    let here = entry.is_here(server);
    if here && !server.process().is_alive() {
        return StopResult::AlreadyDead;
    }
    let request = Request::Shutdown { destroy: how == DownMode::Destroy };
    let asked = order(entry, server, &request, Deadlines { answer: STOP_LIMIT, ..Deadlines::ORDER });
    match (asked, here) {
        (Ok(_), true) => match wait_exit(server, STOP_LIMIT) {
            true => StopResult::InOrder,
            false => by_signals(server, "it has flushed, and does not end"),
        },
        (Ok(_), false) => StopResult::InOrder,
        // It reports that it could not flush; it ends anyway.
        (Err(fault), true) if is_of_store(&fault) => {
            wait_exit(server, STOP_LIMIT);
            StopResult::Failed(fault.text)
        }
        // It answers other clients, or belongs to another user: no signals.
        (Err(fault), true) if matches!(fault.code, Code::WrongSecret | Code::Denied) => {
            StopResult::Unreachable(fault.text)
        }
        (Err(fault), true) => by_signals(server, &fault.text),
        (Err(_), false) if is_refused(server) => StopResult::AlreadyDead,
        (Err(fault), false) => StopResult::Unreachable(fault.text),
    }
}

fn is_of_store(fault: &Fault) -> bool {
    matches!(fault.code, Code::Io | Code::NotFound | Code::NoSpace | Code::ReadOnly)
}

/// Ends a server of this machine that ignored its order; `why` describes that.
fn by_signals(server: &ServerEntry, why: &str) -> StopResult {
    let Some(process) = open(server) else { return StopResult::AlreadyDead };
    let pid = server.pid;
    tracing::info!("server {}: {why}; it gets SIGTERM", server.index);
    // A stopped process sees SIGTERM after SIGCONT. If it has ended meanwhile, that is fine.
    for signal in [Signal::TERM, Signal::CONT] {
        let _ = rustix::process::pidfd_send_signal(&process, signal);
    }
    let told = MonotonicClock.now();
    if wait_written(server) {
        return StopResult::Terminated(format!(
            "server {} (process {pid}) answered no order and was ended by SIGTERM",
            server.index
        ));
    }
    let _ = rustix::process::pidfd_send_signal(&process, Signal::KILL);
    if wait_exit(server, KILL_LIMIT) {
        return StopResult::Killed(format!(
            "server {} (process {pid}) answered no order, did not end within {} s of SIGTERM, and was killed: what it had \
             not written to its store is lost",
            server.index,
            MonotonicClock.now().since(told).as_secs()
        ));
    }
    StopResult::Unreachable(format!("its process {pid} was killed and does not end: it waits for its disk"))
}

/// Waits for a server after SIGTERM while it seems to write its data; returns whether it has ended.
fn wait_written(server: &ServerEntry) -> bool {
    let began = MonotonicClock.now();
    let mut busy = began;
    while !wait_exit(server, IDLE_POLL) {
        let now = MonotonicClock.now();
        if is_busy(server.pid) {
            busy = now;
        }
        if STOP_LIMIT <= now.since(began) || IDLE_LIMIT <= now.since(busy) {
            return false;
        }
    }
    true
}

/// The server's process, verified not to be another one with its number.
fn open(server: &ServerEntry) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(server.pid).ok()?)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    server.process().is_alive().then_some(process)
}

/// Waits until the process has ended; polls often, since an orderly end takes milliseconds.
fn wait_exit(server: &ServerEntry, limit: Duration) -> bool {
    let began = MonotonicClock.now();
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    while server.process().is_alive() && MonotonicClock.now().since(began) < limit {
        launch::reap();
        // An empty `poll` sleeps.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
    !server.process().is_alive()
}
