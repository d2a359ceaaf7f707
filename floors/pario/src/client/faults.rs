//! Faults that happened behind a caller's back: kept per file, told once to each handle.

use std::collections::VecDeque;
use std::sync::PoisonError;

use pario_core::{Fault, ServerIndex};
use pario_net::message::{Reply, Request};

use super::open_file::OpenFile;

/// Faults kept for handles that have not heard of them.
const KEPT: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Faults {
    kept: VecDeque<Fault>,
    /// Number of the oldest kept.
    first: u64,
}

impl OpenFile {
    pub(super) fn keep_fault(&self, fault: Fault) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.kept.push_back(fault);
        if KEPT < faults.kept.len() {
            faults.kept.pop_front();
            faults.first += 1;
        }
    }

    /// The number after the newest fault: a new handle starts there.
    pub(super) fn faults_so_far(&self) -> u64 {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.first + faults.kept.len() as u64
    }

    /// The oldest fault that a handle has not heard of; it has now heard of all.
    pub(super) fn tell_fault(&self, heard: &std::sync::atomic::AtomicU64) -> Result<(), Fault> {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let end = faults.first + faults.kept.len() as u64;
        let from = heard.swap(end, std::sync::atomic::Ordering::AcqRel).max(faults.first);
        let place = usize::try_from(from - faults.first).unwrap_or(usize::MAX);
        faults.kept.get(place).map_or(Ok(()), |fault| Err(fault.clone().at(self.describe())))
    }

    pub(super) fn fetch_errors(&self, server: ServerIndex) {
        match self.mount.call(server, &Request::TakeErrors { inode: self.inode }).map(|answer| answer.reply) {
            Ok(Reply::Errors { faults }) => faults.into_iter().for_each(|fault| self.keep_fault(fault)),
            Ok(other) => self.keep_fault(super::mount::odd(&other)),
            Err(fault) => self.keep_fault(fault),
        }
    }
}
