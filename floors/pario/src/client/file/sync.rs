//! Sync and close, and what each waits for.
//!
//! `sync`: the data is on stable storage. `close`: every server's store has the data.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Request, Want};
use pario_net::outbox::CollectiveWait;

use crate::client::file::state::OpenFile;
use crate::client::file::unflushed::UnsyncedServer;

/// When a sync requests the manager to put its metadata on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameSync {
    /// In any case.
    Always,
    /// If this process wrote since the last sync. For members of a group: the first member, which creates and truncates the group's files,
    /// requests it in any case.
    IfWritten,
}

impl OpenFile {
    /// Puts the writes of all handles of this process on stable storage; with `names`, also the manager's metadata of the file.
    pub(in crate::client) fn sync(
        self: &Arc<Self>,
        heard: &AtomicU64,
        names: NameSync,
        gathering: Option<&CollectiveWait>,
    ) -> Result<(), Fault> {
        self.context.session.check_process()?;
        // Read before any wait: concurrent writes of other threads belong to the next sync.
        let unsynced = self.data.unflushed.take_unsynced();
        if let Err(fault) = self.sync_objects(&unsynced, gathering) {
            self.data.unflushed.put_back_unsynced(&unsynced);
            return Err(fault);
        }
        self.check_losses(&unsynced);
        let report = self.data.length.begin_report();
        let end = self.data.length.end_to_report();
        // Without an end to report, the return of a lease need not wait for stable storage.
        let _report = end.is_some().then_some(report);
        if names == NameSync::Always || !unsynced.is_empty() || end.is_some() {
            let request = Request::SyncNames { inode: Some(self.context.inode), end };
            self.context
                .session
                .call(ServerIndex::MANAGER, &request)
                .map_err(|fault| fault.at(self.context.describe()))?;
            self.data.length.end_reported(end);
        }
        self.data.faults.report_once(heard)
    }

    fn sync_objects(
        self: &Arc<Self>,
        unsynced: &[UnsyncedServer],
        gathering: Option<&CollectiveWait>,
    ) -> Result<(), Fault> {
        let drained = self.data.unflushed.drain_in(gathering);
        self.data.unflushed.collect_errors();
        drained?;
        if unsynced.is_empty() {
            return Ok(());
        }
        let access = self.lease.access(Want::Write {})?;
        let object = self.context.object(access.generation);
        let servers: Vec<ServerIndex> = unsynced.iter().map(|unsynced| unsynced.server).collect();
        self.on_all(&servers, &Request::SyncObject { object })
    }

    /// Waits until every server's store has all writes so far; returns their errors.
    pub(in crate::client) fn flush(self: &Arc<Self>, heard: &AtomicU64) -> Result<(), Fault> {
        self.context.session.check_process()?;
        let drained = self.data.unflushed.drain();
        self.data.unflushed.collect_errors();
        drained.and_then(|()| self.flush_caches())?;
        self.data.faults.report_once(heard)
    }

    /// Tells the manager the end of this process's writes, if it does not know it.
    pub(in crate::client) fn report_end(&self) -> Result<(), Fault> {
        let _report = self.data.length.begin_report();
        if let Some(end) = self.data.length.end_to_report() {
            let request = Request::Extend { inode: self.context.inode, end };
            self.context.session.call(ServerIndex::MANAGER, &request)?;
            self.data.length.end_reported(Some(end));
        }
        Ok(())
    }

    /// A handle is closed; the last one ends the use of the file.
    pub(in crate::client) fn close(
        self: &Arc<Self>,
        heard: &AtomicU64,
        gathering: Option<&CollectiveWait>,
    ) -> Result<(), Fault> {
        let last = self.context.drop_handle();
        if !self.context.session.is_own_process() {
            return Err(Fault::new(
                Code::Closed,
                "this handle belongs to the parent process: open the file again after fork",
            ));
        }
        let drained = self.data.unflushed.drain_in(gathering);
        self.data.unflushed.collect_errors();
        let flushed = drained.and_then(|()| self.flush_caches());
        if last {
            self.end_use(&flushed, heard)?;
        }
        flushed?;
        self.data.faults.report_once(heard)
    }

    /// The last handle is closed. If a server is down that may come back, the watchdog ends the use of the file later.
    fn end_use(self: &Arc<Self>, flushed: &Result<(), Fault>, heard: &AtomicU64) -> Result<(), Fault> {
        if flushed.as_ref().is_err_and(|fault| self.defer_close(fault, heard)) {
            return Ok(());
        }
        let left = self.report_close(flushed.is_ok());
        let unreported = self.data.length.end_to_report().is_some();
        if !unreported || !left.as_ref().is_err_and(|fault| self.defer_close(fault, heard)) {
            self.lease.set_closed(true);
        }
        left
    }

    /// Stores with a write-back cache flush it.
    pub(in crate::client) fn flush_caches(self: &Arc<Self>) -> Result<(), Fault> {
        let mut servers = Vec::new();
        for UnsyncedServer { server, .. } in self.data.unflushed.unsynced() {
            let connection =
                self.context.session.connection(server).map_err(|fault| fault.at(self.context.describe()))?;
            let welcome = connection.welcome();
            if welcome.volatile && (!welcome.lends || self.context.session.serves_plain_files()) {
                servers.push(server);
            }
        }
        self.check_losses(&self.data.unflushed.unsynced());
        if servers.is_empty() {
            return Ok(());
        }
        let access = self.lease.access(Want::Write {})?;
        self.on_all(&servers, &Request::FlushObject { object: self.context.object(access.generation) })?;
        // The request may have shown that a server with unsynced bytes was replaced.
        self.check_losses(&self.data.unflushed.unsynced());
        Ok(())
    }

    /// Reports to the manager that this process has closed the file.
    pub(in crate::client) fn report_close(&self, whole: bool) -> Result<(), Fault> {
        if !whole {
            // Undrained records must not overwrite later writes of other clients.
            self.data.unflushed.abandon_records();
        }
        let leased = self.lease.is_leased();
        if leased {
            self.lease.release();
        } else {
            self.data.read_ahead.discard();
        }
        self.locks.drop_locks();
        let _report = self.data.length.begin_report();
        let end = self.data.length.end_to_report();
        let request = Request::Close { inode: self.context.inode, end };
        // Without a lease the close is not urgent: the manager may receive it later.
        let closed = if leased || end.is_some() {
            self.context.session.call(ServerIndex::MANAGER, &request).map(|_| ())
        } else {
            self.context.session.send_unawaited(ServerIndex::MANAGER, &request)
        };
        closed.map_err(|fault| fault.at(self.context.describe()))?;
        self.data.length.end_reported(end);
        Ok(())
    }

    /// Notes a fault for each server that held unsynced bytes in memory and was restarted.
    fn check_losses(&self, unsynced: &[UnsyncedServer]) {
        for UnsyncedServer { server, losses } in unsynced {
            let now = self.context.session.volatile_losses(*server);
            if *losses < now {
                let text = format!("server {server} went down with unsynced writes");
                self.data.faults.keep(Fault::new(Code::Lost, text));
                // The loss is noted: later writes to its successor are unsynced on their own account.
                self.data.unflushed.note_losses(*server, now);
            }
        }
    }

    fn on_all(&self, servers: &[ServerIndex], request: &Request) -> Result<(), Fault> {
        let started: Vec<_> =
            servers.iter().map(|server| self.context.session.start(*server, request, &[])).collect();
        let mut result = Ok(());
        for started in started {
            let answer = started.and_then(|started| self.context.session.finish(started, None));
            result = result.and(answer.map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.context.describe()))
    }
}
