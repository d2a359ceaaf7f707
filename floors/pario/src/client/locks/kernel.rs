//! Locks around accesses to a plain file that its members read and write themselves: the kernel keeps them, without a message.
//!
//! ```text
//!  token of the club of all who lock so (kept; asked for once) ─► lock in the kernel ─► access ─► unlock
//!      └─ others, who lock at the manager: views, records            └─ in use for long: let go, and queue at the manager like those
//! ```
//! The kernel's locks are those of a memory file of the manager's, not of the plain file: what programs lock there, this process among
//! them, is their own affair, and any file system will do.
//!
//! Never: waits for long in the kernel, where nobody sees who waits for whom and nobody is in turn. Always: who locks here holds a token
//! that shuts out those who lock at the manager; each call under way has an open description of its own, so that threads shut each other
//! out too.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Fault, ServerIndex};
use pario_net::message::{LockMode, LockPatience, LockShape, LockSpace, Phase, PointerId, Reply, Request};
use pario_sys::file_lock::{LockFile, LockKind};

use super::super::lease::Access;
use super::super::loans::{Loan, Wish};
use super::super::mount::odd;
use super::access::{AccessLock, Kind};
use super::{Holder, OpenFile, Wished};

/// Those who lock in the kernel are no others to each other for the manager. No other club locks accesses.
const CLUB: u64 = 1;
/// The number of no opening: the memory that it names serves for locks only.
const NO_GROUP: u64 = 0;
/// Calls under way that lock in the kernel; more lock at the manager.
const CALLS_MAX: usize = 64;
/// Attempts between which the processor is given to others, before going to sleep.
const YIELDS: usize = 64;
/// Sleep between two attempts after that.
const PAUSE: Duration = Duration::from_micros(100);
/// From then on a lock is waited for at the manager.
const PATIENCE: Duration = Duration::from_millis(10);

/// What a process has of a file's locks in the kernel.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// The manager was asked, or the kernel refused.
    asked: bool,
    file: Option<Arc<LockFile>>,
    /// By lane.
    files: Vec<Arc<LockFile>>,
}

/// A range that is locked.
#[derive(Debug)]
pub(super) struct KernelLock {
    file: Arc<LockFile>,
    range: Range<u64>,
}

impl Drop for KernelLock {
    fn drop(&mut self) {
        // What is locked can be unlocked; if not, the next look at this description ends it.
        if let Err(error) = self.file.unlock(&self.range) {
            tracing::warn!(%error, "a lock in the kernel cannot be given back");
        }
    }
}

impl OpenFile {
    /// Whether an access is made by this process alone, all of it: then nobody but those who access the file at the same time must be
    /// kept out, and nothing of it is left to be done if this process dies.
    pub(super) fn is_all_direct(
        &self,
        access: &Access<'_>,
        range: &Range<u64>,
        kind: Kind,
    ) -> Result<bool, Fault> {
        let lent_whole = self.mount.serves_plain_files() && self.placed.is_none();
        if !lent_whole || access.phase != (Phase::Mixed {}) || self.is_pending(range) {
            return Ok(false);
        }
        for server in self.layout.servers() {
            let wish = Wish { generation: access.generation, under: 0, write: kind == Kind::Write };
            let loan = self.loan(server, wish)?;
            if !matches!(loan, Loan::Descriptor(_)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps others from a range, by a lock in the kernel if it can be had soon. `None`: there are no such locks here.
    pub(super) fn lock_in_kernel(
        self: &Arc<Self>,
        range: &Range<u64>,
        kind: Kind,
    ) -> Result<Option<AccessLock>, Fault> {
        let mut lock = self.call_lock();
        let Some(file) = self.lock_file(lock.lane)? else { return Ok(None) };
        let holder = Holder { space: LockSpace::Access {}, lane: lock.lane as u64, club: CLUB };
        // Even to read: those who only read at the manager must not meet one who writes under such a token.
        let mode = LockMode::Exclusive {};
        let shape = LockShape::Bytes { start: range.start, end: range.end };
        let wished = Wished { holder, mode, shape, view: None };
        lock.held = Some(self.lock(&wished, (self.mount.number(), LockPatience::Wait {}))?);
        match self.try_kernel(&file, range, kind) {
            Ok(true) => {
                self.mount.counters.kernel_locks.fetch_add(1, Ordering::Relaxed);
                lock.kernel = Some(KernelLock { file, range: range.clone() });
                Ok(Some(lock))
            }
            Ok(false) => {
                drop(lock);
                // Who comes next finds the token of those who lock in the kernel again.
                let mut lock = self.lock_range(range, kind)?;
                lock.passing = true;
                Ok(Some(lock))
            }
            Err(error) => {
                tracing::info!(%error, file = self.describe(), "no locks in the kernel; the manager's are used");
                self.locks().kernel = Kernel { asked: true, ..Kernel::default() };
                Ok(None)
            }
        }
    }

    fn try_kernel(&self, file: &LockFile, range: &Range<u64>, kind: Kind) -> std::io::Result<bool> {
        let kind = match kind {
            Kind::Read => LockKind::Read,
            Kind::Write => LockKind::Write,
        };
        if file.try_lock(kind, range)? {
            return Ok(true);
        }
        self.mount.counters.kernel_lock_waits.fetch_add(1, Ordering::Relaxed);
        let _time = self.mount.timed(&self.mount.counters.lock_ns);
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if file.try_lock(kind, range)? {
                return Ok(true);
            }
        }
        let began = self.mount.clock.now();
        while self.mount.clock.now().since(began) < PATIENCE {
            // A thread of this process that unlocks wakes us; of another's we do not hear.
            let state = self.locks();
            drop(self.locks.unlocked.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner));
            if file.try_lock(kind, range)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The description by which a call locks; asks the manager the first time.
    fn lock_file(self: &Arc<Self>, lane: usize) -> Result<Option<Arc<LockFile>>, Fault> {
        if CALLS_MAX <= lane {
            return Ok(None);
        }
        {
            let Kernel { asked, file, files } = &self.locks().kernel;
            if let Some(file) = files.get(lane) {
                return Ok(Some(Arc::clone(file)));
            }
            if *asked && file.is_none() {
                return Ok(None);
            }
        }
        let base = self.base_file()?;
        let kernel = &mut self.locks().kernel;
        kernel.asked = true;
        let Some(base) = base else { return Ok(None) };
        while kernel.files.len() <= lane {
            match base.another() {
                Ok(file) => kernel.files.push(Arc::new(file)),
                Err(error) => {
                    tracing::info!(%error, file = self.describe(), "no more locks in the kernel");
                    return Ok(None);
                }
            }
        }
        kernel.file = Some(base);
        Ok(kernel.files.get(lane).map(Arc::clone))
    }

    fn base_file(self: &Arc<Self>) -> Result<Option<Arc<LockFile>>, Fault> {
        if let Some(file) = &self.locks().kernel.file {
            return Ok(Some(Arc::clone(file)));
        }
        self.mount.listen()?;
        let pointer = PointerId { inode: self.inode, group: NO_GROUP, epoch: 0 };
        let answer = self.mount.call(ServerIndex::MANAGER, &Request::SharePointer { pointer })?;
        match (answer.reply, answer.descriptors.into_iter().next()) {
            (Reply::Pointer {}, Some(descriptor)) => match LockFile::open_again(&descriptor) {
                Ok(file) => Ok(Some(Arc::new(file))),
                Err(error) => {
                    tracing::info!(%error, file = self.describe(), "no locks in the kernel; the manager's are used");
                    Ok(None)
                }
            },
            (Reply::NotLent {}, _) => Ok(None),
            (other, _) => Err(odd(&other)),
        }
    }
}
