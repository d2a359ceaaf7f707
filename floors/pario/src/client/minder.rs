//! The minding thread: while records are on their way it looks whether the servers that should take them still live, and makes memory for
//! the outbox before the next write needs it.
//!
//! Without it a writer would learn of a dead server only when its outbox is full or the file is closed.
//!
//! Never: touches file data. Always: ends a while after the last file is closed; starts again with the next record.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use pario_core::{Clock, Nanos, ServerIndex};

use super::mount::Mount;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks at memory that is kept for nobody in particular: a removed file is to give its memory back soon.
const LOOK_AT_WINDOWS: Duration = Duration::from_millis(50);
/// Looks without an open file before it ends.
const IDLE_LOOKS: u32 = 10;

impl Mount {
    /// Sees to it that the minding thread runs. Costs nothing when it does.
    pub(super) fn keep_minding(self: &Arc<Self>) {
        if self.minding.load(Ordering::Relaxed) || self.minding.swap(true, Ordering::AcqRel) {
            return;
        }
        let mount = Arc::downgrade(self);
        let started = std::thread::Builder::new().name("pario-minder".into()).spawn(move || run(&mount));
        match started {
            Ok(thread) => *self.minder() = Some(thread.thread().clone()),
            Err(error) => {
                self.minding.store(false, Ordering::Release);
                tracing::warn!(%error, "no thread to look after the servers; a dead one is noticed later");
            }
        }
    }

    /// Has memory made for what will be written next, if there is not enough.
    pub(super) fn want_memory(&self) {
        if self.outbox_if_made().is_some_and(|outbox| outbox.wants_memory())
            && let Some(thread) = &*self.minder()
        {
            thread.unpark();
        }
    }

    /// Windows may have become idle: they are looked at soon, so that what is removed is let go.
    pub(super) fn look_at_windows(&self) {
        if let Some(thread) = &*self.minder() {
            thread.unpark();
        }
    }

    fn minder(&self) -> MutexGuard<'_, Option<Thread>> {
        self.minder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections whose server has hung up are given up now, not when something is next wanted of them.
    pub(super) fn look_after_links(&self) {
        for server in self.server_indices() {
            if let Some(connection) = self.live_connection(server)
                && connection.has_ended()
            {
                self.lost(server, &connection);
            }
        }
    }

    /// Asks servers that have not moved their cursor since the last look for a sign of life.
    fn look_after_cursors(&self, seen: &mut HashMap<ServerIndex, u64>) {
        let Some(outbox) = self.outbox_if_made() else { return };
        for server in self.server_indices() {
            let Some(cursor) = outbox.cursor(server) else { continue };
            let taken = cursor.taken();
            let stalled = !outbox.is_taken(server, u64::MAX) && seen.insert(server, taken) == Some(taken);
            if stalled {
                cursor.wake();
                // The outcome is noted where it matters: a server that gives no sign is detached.
                let mut asked = Duration::ZERO;
                let _ = self.mind(server, LOOK * 2, &mut asked);
            }
        }
    }

    fn has_open_files(&self) -> bool {
        self.files().values().any(|file| 0 < file.strong_count())
    }
}

fn run(mount: &Weak<Mount>) {
    let (mut seen, mut idle, mut looked): (_, _, Option<Nanos>) = (HashMap::new(), 0, None);
    while let Some(mount) = mount.upgrade() {
        if let Some(outbox) = mount.outbox_if_made() {
            outbox.make_memory_ahead();
        }
        let now = mount.clock.now();
        let are_idle = mount.windows.forget_idle(now);
        if looked.is_none_or(|last| LOOK <= now.since(last)) {
            looked = Some(now);
            mount.look_after_links();
            mount.look_after_cursors(&mut seen);
            idle = if mount.has_open_files() { 0 } else { idle + 1 };
        }
        if IDLE_LOOKS <= idle {
            mount.minding.store(false, Ordering::Release);
            return;
        }
        drop(mount);
        std::thread::park_timeout(if are_idle { LOOK_AT_WINDOWS } else { LOOK });
    }
}
