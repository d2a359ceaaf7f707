//! Deferred closes: files without handles while a server that must drain their records, or the manager that must receive their length, is
//! down. The watchdog finishes them when the server is back.
//!
//! Never: for a partition that cannot come back (its servers are threads of this process), or for more than `DEFERRED_FILES_MAX` files.
//! Always: a deferred file keeps its lease and stays in the table of files, so that a recall finds it and its length is known to this
//! process; a loss is reported once, by the next call on the partition.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::Want;

use crate::client::file::state::OpenFile;
use crate::client::session::state::Session;

/// Maximum number of deferred closes; the records of one more file are dropped immediately, and its close returns the error.
const DEFERRED_FILES_MAX: usize = 1024;
/// Faults kept for the next call on the partition.
const FAULTS_KEPT: usize = 16;

/// See the module.
#[derive(Default)]
pub(in crate::client) struct Deferred {
    files: Mutex<Vec<Arc<OpenFile>>>,
    faults: Mutex<VecDeque<Fault>>,
    /// Whether there may be faults: without any, a call takes no lock.
    has_faults: AtomicBool,
}

impl Deferred {
    fn files(&self) -> MutexGuard<'_, Vec<Arc<OpenFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::client) fn is_empty(&self) -> bool {
        self.files().is_empty()
    }

    /// Removes a file from the list and calls `then` before another thread can look for it; false if it is not in the list.
    fn remove(&self, file: &Arc<OpenFile>, then: impl FnOnce()) -> bool {
        let mut files = self.files();
        let Some(at) = files.iter().position(|deferred| Arc::ptr_eq(deferred, file)) else { return false };
        files.swap_remove(at);
        then();
        true
    }
}

impl OpenFile {
    /// Leaves the close to the watchdog if the failed server may come back. False: the caller ends the use of the file now.
    pub(in crate::client) fn defer_close(self: &Arc<Self>, fault: &Fault, heard: &AtomicU64) -> bool {
        let deferred = &self.context.session.deferred;
        let may_return = fault.code == Code::Unreachable && self.context.session.spec.locate.is_some();
        if !may_return || !self.context.backing.has_leases() {
            return false;
        }
        let mut files = deferred.files();
        if DEFERRED_FILES_MAX <= files.len() {
            return false;
        }
        self.data.faults.set_deferred(true);
        files.push(Arc::clone(self));
        self.lease.set_closed(true);
        drop(files);
        // The close returns why it failed; faults not reported before are left to the next call.
        if let Err(unheard) = self.data.faults.report_once(heard) {
            self.context.session.keep_fault(unheard);
        }
        self.context.session.ensure_watchdog();
        true
    }

    /// A handle is opened while the close is deferred: the file stays in use. False: it is not deferred.
    pub(in crate::client) fn revive(self: &Arc<Self>) -> bool {
        self.context.session.deferred.remove(self, || {
            self.data.faults.set_deferred(false);
            self.lease.set_closed(false);
            self.context.set_first_handle();
        })
    }

    /// Ends the use of the file if its servers have drained all records. `Err`: it stays deferred.
    fn finish_close(self: &Arc<Self>) -> Result<(), Fault> {
        self.data.unflushed.collect_errors();
        self.flush_caches()?;
        if !self.lease.is_leased() && self.data.length.end_to_report().is_some() {
            // The manager measures the length of a file after its lease was lost. This client may report a length only under a new lease:
            // other clients may have truncated the file.
            self.lease.acquire_early(Want::Write {});
            if !self.lease.is_leased() {
                self.data.length.end_reported(self.data.length.end_to_report());
            }
        }
        self.report_close(true)
    }
}

impl Session {
    /// Keeps a fault of a file without handles for the next call.
    pub(in crate::client) fn keep_fault(&self, fault: Fault) {
        let mut faults = self.deferred.faults();
        self.deferred.has_faults.store(true, Ordering::Release);
        faults.push_back(fault);
        if FAULTS_KEPT < faults.len() {
            faults.pop_front();
        }
    }

    /// Returns the faults of files without handles once: the oldest fault stands for all. User calls begin with this.
    pub(in crate::client) fn report_once(&self) -> Result<(), Fault> {
        if !self.deferred.has_faults.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut faults = self.deferred.faults();
        self.deferred.has_faults.store(false, Ordering::Release);
        let oldest = faults.pop_front();
        faults.drain(..).for_each(|fault| tracing::warn!(%fault, "another fault of a closed file"));
        oldest.map_or(Ok(()), Err)
    }

    /// Lost servers with undrained records of this session.
    pub(in crate::client) fn servers_with_records(&self) -> Vec<ServerIndex> {
        let Some(outbox) = self.outbox_if_made() else { return Vec::new() };
        self.server_indices().filter(|server| outbox.stopped(*server).is_some()).collect()
    }

    /// Offers the outbox again to servers that are back, and finishes the closes that waited for them. Called by the watchdog.
    pub(in crate::client) fn resume(self: &Arc<Self>) {
        let servers = self.servers_with_records();
        if servers.is_empty() && self.deferred.is_empty() {
            return;
        }
        // The manager first: recovery offers the records again before the session announces itself.
        let reached = self.connection(ServerIndex::MANAGER).map(|_| ());
        let offered = reached.and_then(|()| {
            // A server that is still down does not delay the others; the first fault is returned.
            let offer = |server| self.cursor(server).map(|_| ());
            servers.into_iter().map(offer).fold(Ok(()), Result::and)
        });
        if let Err(fault) = offered {
            tracing::debug!(%fault, "records wait for a server that is down");
        }
        let files: Vec<Arc<OpenFile>> = self.deferred.files().clone();
        for file in files.into_iter().filter(|file| file.data.unflushed.nothing_pending()) {
            self.finish_deferred(&file);
        }
    }

    fn finish_deferred(&self, file: &Arc<OpenFile>) {
        // An open that finds the file from here on waits until its use has ended. An earlier open has revived it.
        if !self.deferred.remove(file, || file.lease.set_closed(false)) {
            return;
        }
        match file.finish_close() {
            Err(fault) if fault.code == Code::Unreachable => self.deferred.files().push(Arc::clone(file)),
            Ok(()) => {}
            // Removed meanwhile: no data is missed.
            Err(fault) if fault.code == Code::Stale => {}
            Err(fault) => self.keep_fault(fault),
        }
        file.lease.set_closed(true);
    }

    /// Files with records that `server` has not drained, and an upper bound of their bytes.
    pub(in crate::client) fn undrained(&self, server: ServerIndex) -> Option<(Vec<String>, u64)> {
        let pending = self.outbox_if_made()?.stopped(server)?;
        let files: Vec<Arc<OpenFile>> = self.files().values().filter_map(Weak::upgrade).collect();
        let names = files.iter().filter(|file| pending.start < file.data.unflushed.records_end(server));
        Some((names.map(|file| file.context.describe()).collect(), pending.end - pending.start))
    }
}
