//! Sync and close: what they promise, they wait for.
//!
//! `sync`: on stable storage. `close`: every server's store has it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Request, Want};
use pario_net::outbox::Gathering;

use super::open_file::OpenFile;
use super::records::Unsynced;

/// When a sync asks the manager to put what it knows on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// In any case.
    Always,
    /// If this process wrote since the last time. For members of a group, whose first one asks in any case: it is the one that creates and
    /// cuts the group's files.
    IfWritten,
}

impl OpenFile {
    /// Puts what was written through any handle of this process on stable storage; with `names`, what the manager knows of the file too.
    pub(super) fn sync(
        self: &Arc<Self>,
        heard: &AtomicU64,
        names: Names,
        gathering: Option<&Gathering>,
    ) -> Result<(), Fault> {
        self.mount.check_process()?;
        // Taken before anything is waited for: what other threads write meanwhile is the next sync's.
        let unsynced = self.take_unsynced();
        if let Err(fault) = self.sync_objects(&unsynced, gathering) {
            self.put_back_unsynced(&unsynced);
            return Err(fault);
        }
        self.check_losses(&unsynced);
        let end = self.end_to_report();
        if names == Names::Always || !unsynced.is_empty() || end.is_some() {
            let request = Request::SyncNames { inode: Some(self.inode), end };
            self.mount.call(ServerIndex::MANAGER, &request).map_err(|fault| fault.at(self.describe()))?;
            self.end_reported(end);
        }
        self.tell_fault(heard)
    }

    fn sync_objects(
        self: &Arc<Self>,
        unsynced: &[Unsynced],
        gathering: Option<&Gathering>,
    ) -> Result<(), Fault> {
        let drained = self.drain_in(gathering);
        self.collect_errors();
        drained?;
        if unsynced.is_empty() {
            return Ok(());
        }
        let access = self.access(Want::Write {})?;
        let object = self.object(access.generation);
        let servers: Vec<ServerIndex> = unsynced.iter().map(|unsynced| unsynced.server).collect();
        self.on_all(&servers, &Request::SyncObject { object })
    }

    /// Every server's store has what was written so far; errors are told.
    pub(super) fn put_down(self: &Arc<Self>, heard: &AtomicU64) -> Result<(), Fault> {
        self.mount.check_process()?;
        let drained = self.drain();
        self.collect_errors();
        drained.and_then(|()| self.flush_caches())?;
        self.tell_fault(heard)
    }

    /// A handle is closed; the last one gives the file back.
    pub(super) fn close(
        self: &Arc<Self>,
        heard: &AtomicU64,
        gathering: Option<&Gathering>,
    ) -> Result<(), Fault> {
        let last = self.drop_handle();
        if !self.mount.is_own_process() {
            return Err(Fault::new(Code::Closed, "this handle is the parent process's"));
        }
        let drained = self.drain_in(gathering);
        self.collect_errors();
        let flushed = drained.and_then(|()| self.flush_caches());
        if last {
            let left = self.leave(flushed.is_ok());
            self.set_left();
            left?;
        }
        flushed?;
        self.tell_fault(heard)
    }

    /// Stores with a cache of their own put it down.
    fn flush_caches(self: &Arc<Self>) -> Result<(), Fault> {
        let mut servers = Vec::new();
        for Unsynced { server, .. } in self.unsynced() {
            let connection = self.mount.connection(server).map_err(|fault| fault.at(self.describe()))?;
            let welcome = connection.welcome();
            if welcome.volatile && (!welcome.lends || self.mount.serves_plain_files()) {
                servers.push(server);
            }
        }
        self.check_losses(&self.unsynced());
        if servers.is_empty() {
            return Ok(());
        }
        let access = self.access(Want::Write {})?;
        self.on_all(&servers, &Request::FlushObject { object: self.object(access.generation) })?;
        // Asking may have been what showed that a server is not the one that had our bytes.
        self.check_losses(&self.unsynced());
        Ok(())
    }

    /// Tells the manager that this process is done with the file.
    fn leave(&self, whole: bool) -> Result<(), Fault> {
        if !whole {
            // What could not be taken must not come back over what others write.
            self.abandon_records();
        }
        let leased = self.is_leased();
        if leased {
            self.release();
        } else {
            self.discard_ahead();
        }
        self.drop_locks();
        let end = self.end_to_report();
        let request = Request::Close { inode: self.inode, end };
        // Without a lease nothing is at stake: the manager need only know some time that this user is gone.
        let closed = if leased || end.is_some() {
            self.mount.call(ServerIndex::MANAGER, &request).map(|_| ())
        } else {
            self.mount.tell(ServerIndex::MANAGER, &request)
        };
        closed.map_err(|fault| fault.at(self.describe()))?;
        self.end_reported(end);
        Ok(())
    }

    /// Whether servers whose memory held our bytes were replaced by a new life meanwhile.
    fn check_losses(&self, unsynced: &[Unsynced]) {
        for Unsynced { server, losses } in unsynced {
            let now = self.mount.volatile_losses(*server);
            if *losses < now {
                let text = format!("server {server} went down with writes that were not synced");
                self.keep_fault(Fault::new(Code::Lost, text));
                // What its successor has of ours is not synced for that.
                self.note_losses(*server, now);
            }
        }
    }

    fn on_all(&self, servers: &[ServerIndex], request: &Request) -> Result<(), Fault> {
        let started: Vec<_> = servers.iter().map(|server| self.mount.start(*server, request, &[])).collect();
        let mut result = Ok(());
        for started in started {
            let answer = started.and_then(|started| self.mount.finish(started, None));
            result = result.and(answer.map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.describe()))
    }
}
