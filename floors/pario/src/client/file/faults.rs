//! Errors of background work (asynchronous faults): kept per file, reported once to each handle. A file without handles leaves them to the
//! session, and the next call on the partition reports them.
//!
//! Never: holds its lock during a request. Always: keeps the newest 16.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::{Fault, ServerIndex};
use pario_net::message::{Reply, Request};
use pario_sys::mutex::lock;

use super::context::FileContext;
use crate::client::session::state::unexpected_reply;

/// Faults kept for handles that have not received them.
const KEPT: usize = 16;

/// See the module.
pub(in crate::client) struct Faults {
    context: Arc<FileContext>,
    kept: Mutex<BackgroundFaults>,
    /// The last handle is closed, and the close waits for a server: see `session/deferred.rs`.
    deferred: AtomicBool,
}

#[derive(Default)]
struct BackgroundFaults {
    kept: VecDeque<Fault>,
    /// Number of the oldest kept.
    first: u64,
}

impl Faults {
    pub(super) fn new(context: &Arc<FileContext>) -> Faults {
        Faults { context: Arc::clone(context), kept: Mutex::default(), deferred: AtomicBool::new(false) }
    }

    /// Keeps a fault for every handle.
    pub(in crate::client) fn keep(&self, fault: Fault) {
        if self.deferred.load(Ordering::Acquire) {
            return self.context.session.keep_fault(fault.at(self.context.describe()));
        }
        let mut faults = lock(&self.kept);
        faults.kept.push_back(fault);
        if KEPT < faults.kept.len() {
            faults.kept.pop_front();
            faults.first += 1;
        }
    }

    /// Whether faults go to the session: the file has no handles.
    pub(in crate::client) fn set_deferred(&self, deferred: bool) {
        self.deferred.store(deferred, Ordering::Release);
    }

    /// The number after the newest fault: a new handle starts there.
    pub(in crate::client) fn so_far(&self) -> u64 {
        let faults = lock(&self.kept);
        faults.first + faults.kept.len() as u64
    }

    /// Returns the oldest fault not yet reported to a handle, and marks all as reported.
    pub(in crate::client) fn report_once(&self, reported: &AtomicU64) -> Result<(), Fault> {
        let faults = lock(&self.kept);
        let end = faults.first + faults.kept.len() as u64;
        let from = reported.swap(end, Ordering::AcqRel).max(faults.first);
        let place = usize::try_from(from - faults.first).unwrap_or(usize::MAX);
        faults.kept.get(place).map_or(Ok(()), |fault| Err(fault.clone().at(self.context.describe())))
    }

    /// Fetches the faults that a server has counted.
    pub(super) fn fetch(&self, server: ServerIndex) {
        let request = Request::CollectErrors { inode: self.context.inode };
        match self.context.session.call(server, &request).map(|answer| answer.reply) {
            Ok(Reply::Errors { faults }) => faults.into_iter().for_each(|fault| self.keep(fault)),
            Ok(other) => self.keep(unexpected_reply(&other)),
            Err(fault) => self.keep(fault),
        }
    }
}
