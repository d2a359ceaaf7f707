//! The end of the process: undrained records for a server that is down are lost with the outbox. The process waits up to `EXIT_MS_MAX` for
//! the server; then one line on standard error names the lost records.
//!
//! Never: waits for a running server, which holds the outbox itself; acts in a forked child. Always: ends within `EXIT_MS_MAX` plus one
//! connection attempt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;

use pario_core::{Clock, ServerIndex};
use pario_sys::clock::MonotonicClock;
use pario_sys::process::{at_exit, fork_generation};

use crate::client::session::state::{Session, pause};

/// Longest wait of an ending process for servers that are down and have not drained its records.
const EXIT_MS_MAX: u64 = 5000;
/// Interval of attempts to reach them.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sessions of this process that wrote records.
static SESSIONS: Mutex<Vec<Weak<Session>>> = Mutex::new(Vec::new());
static REGISTERED: Once = Once::new();
/// The process that registered: a forked child inherits the list, but none of the sessions.
static FORK: AtomicU64 = AtomicU64::new(u64::MAX);

/// Registers a session: the end of the process waits for its records.
pub(in crate::client) fn watch(mount: &Arc<Session>) {
    let mut mounts = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    mounts.retain(|known| 0 < known.strong_count() && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(mount)));
    mounts.push(Arc::downgrade(mount));
    drop(mounts);
    FORK.store(fork_generation(), Ordering::Release);
    REGISTERED.call_once(|| at_exit(end));
}

fn end() {
    if FORK.load(Ordering::Acquire) != fork_generation() || sessions().is_empty() {
        return;
    }
    // On a new thread: logging may need thread-local memory, which the ending thread has freed.
    if let Ok(thread) = std::thread::Builder::new().name("pario-exit".into()).spawn(wait_and_report) {
        // A panic there has printed its own message.
        let _ = thread.join();
    }
}

/// The sessions that still exist.
fn sessions() -> Vec<Arc<Session>> {
    let mounts = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    mounts.iter().filter_map(Weak::upgrade).filter(|mount| mount.is_own_process()).collect()
}

fn wait_and_report() {
    let mounts = sessions();
    // Servers may have failed unnoticed.
    mounts.iter().for_each(|mount| mount.check_links());
    let until = MonotonicClock.now().plus_ms(EXIT_MS_MAX);
    for mount in mounts {
        // A partition inside this process cannot come back: there is no wait.
        while mount.spec.locate.is_some() && !mount.servers_with_records().is_empty() {
            mount.resume();
            if until <= MonotonicClock.now() {
                break;
            }
            pause(POLL_INTERVAL);
        }
        for server in mount.servers_with_records() {
            report_lost_records(&mount, server);
        }
    }
}

#[expect(clippy::print_stderr, reason = "the program may have no log, and the process is ending")]
fn report_lost_records(mount: &Session, server: ServerIndex) {
    let Some((files, bytes)) = mount.undrained(server) else { return };
    let text = format!(
        "server {server} did not drain up to {bytes} bytes of records of {} before this process ended: it is down, and they are lost",
        files.join(", ")
    );
    if tracing::dispatcher::has_been_set() {
        tracing::error!("{text}");
    } else if std::env::var_os("PARIO_LOG").is_none_or(|level| level != "off") {
        eprintln!("pario: {text}");
    }
}
