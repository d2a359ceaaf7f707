//! The watchdog thread. While records are undrained it checks that the servers are alive, offers the records again to restarted servers,
//! and allocates outbox memory before the next write needs it.
//!
//! Without it a writer would notice a dead server only when its outbox is full or the file is closed.
//!
//! Never: touches file data. Always: ends 5 s after the last file is closed; starts again with the next record.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use pario_core::{Clock, Nanos, ServerIndex};

use crate::client::session::state::Session;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the checks of idle mappings: a removed file must free its memory within this time.
const MAPPING_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Checks without an open file before the thread ends.
const IDLE_CHECKS: u32 = 10;

impl Session {
    /// Starts the watchdog thread if it is not running.
    pub(in crate::client) fn ensure_watchdog(self: &Arc<Self>) {
        if self.has_watchdog.load(Ordering::Relaxed) || self.has_watchdog.swap(true, Ordering::AcqRel) {
            return;
        }
        let mount = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("pario-minder".into()).spawn(move || run(&mount));
        match started {
            Ok(thread) => {
                *self.watchdog() = Some(thread.thread().clone());
                crate::client::session::exit::watch(self);
            }
            Err(error) => {
                self.has_watchdog.store(false, Ordering::Release);
                tracing::warn!(%error, "no watchdog thread could be started; a dead server is noticed at the next access");
            }
        }
    }

    /// Wakes the watchdog to allocate memory for the next writes, if there is not enough.
    pub(in crate::client) fn request_memory(&self) {
        if self.outbox_if_made().is_some_and(|outbox| outbox.needs_memory())
            && let Some(thread) = &*self.watchdog()
        {
            thread.unpark();
        }
    }

    /// Mappings may have become idle: wakes the watchdog, so that those of removed files are unmapped.
    pub(in crate::client) fn check_mappings(&self) {
        if let Some(thread) = &*self.watchdog() {
            thread.unpark();
        }
    }

    fn watchdog(&self) -> MutexGuard<'_, Option<Thread>> {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops connections that the server has closed now, not at the next request.
    pub(in crate::client) fn check_links(&self) {
        for server in self.server_indices() {
            if let Some(connection) = self.live_connection(server)
                && connection.has_ended()
            {
                self.connection_lost(server, &connection);
            }
        }
    }

    /// Pings servers with a cursor that has not advanced since the last check.
    fn check_cursors(&self, seen: &mut HashMap<ServerIndex, u64>) {
        let Some(outbox) = self.outbox_if_made() else { return };
        for server in self.server_indices() {
            let Some(cursor) = outbox.cursor(server) else { continue };
            let taken = cursor.drained();
            let stalled = !outbox.is_drained(server, u64::MAX) && seen.insert(server, taken) == Some(taken);
            if stalled {
                cursor.wake();
                // The result is used elsewhere: a server that does not reply is detached.
                let mut asked = Duration::ZERO;
                let _ = self.check_alive(server, CHECK_INTERVAL * 2, &mut asked);
            }
        }
    }

    fn has_open_files(&self) -> bool {
        self.files().values().any(|file| 0 < file.strong_count())
    }
}

fn run(mount: &Weak<Session>) {
    let (mut seen, mut idle, mut looked): (_, _, Option<Nanos>) = (HashMap::new(), 0, None);
    while let Some(mount) = mount.upgrade() {
        if let Some(outbox) = mount.outbox_if_made() {
            outbox.preallocate();
        }
        let now = mount.clock.now();
        let are_idle = mount.mappings.forget_idle(now);
        if looked.is_none_or(|last| CHECK_INTERVAL <= now.since(last)) {
            looked = Some(now);
            mount.check_links();
            mount.check_cursors(&mut seen);
            mount.resume();
            idle = if mount.has_open_files() { 0 } else { idle + 1 };
        }
        if IDLE_CHECKS <= idle {
            mount.has_watchdog.store(false, Ordering::Release);
            return;
        }
        drop(mount);
        std::thread::park_timeout(if are_idle { MAPPING_CHECK_INTERVAL } else { CHECK_INTERVAL });
    }
}
