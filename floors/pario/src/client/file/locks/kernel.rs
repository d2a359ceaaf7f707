//! Locks around accesses to a plain file that its clients read and write themselves: kernel locks, without a message.
//!
//! ```text
//!  token of the lock group of kernel locks (kept; acquired once) ─► lock in the kernel ─► access ─► unlock
//!      └─ other clients lock at the manager: views, records            └─ contended: release it, and queue at the manager too
//! ```
//! The kernel locks are on a memory file of the manager, not on the plain file: they do not interfere with locks of programs on that file,
//! and work with any file system.
//!
//! Never: waits longer than [`KERNEL_WAIT_MAX`] in the kernel, which has no fair queue and no deadlock detection across clients. Always: a kernel
//! lock is taken under a token that excludes locks at the manager; each call under way has its own open description, so that threads
//! exclude each other too.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Fault, ServerIndex};
use pario_net::message::{LockMode, LockShape, LockSpace, LockWaitLimit, Phase, PointerId, Reply, Request};
use pario_sys::file_lock::{LockFile, LockKind};

use super::access::{AccessKind, AccessLock};
use super::access::{call_lock, lock_range};
use super::cached::FileLocks;
use super::cached::WantedLock;
use super::table::CachedLockOwner;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::loans::{Loan, LoanRequest};
use crate::client::file::state::OpenFile;
use crate::client::session::state::unexpected_reply;

/// Holders of kernel locks do not exclude each other at the manager. No other lock group locks accesses.
const LOCK_GROUP: u64 = 1;
/// The number of no opening: the memory that it names is used for locks only.
const NO_GROUP: u64 = 0;
/// Calls under way with a kernel lock; further calls lock at the manager.
const CALLS_MAX: usize = 64;
/// Attempts with a yield in between, before sleeping.
const YIELDS: usize = 64;
/// Sleep between two attempts after that.
const PAUSE: Duration = Duration::from_micros(100);
/// After this time the lock is requested from the manager.
const KERNEL_WAIT_MAX: Duration = Duration::from_millis(10);

/// Kernel lock state of a file in this process.
#[derive(Debug, Default)]
pub(super) struct KernelLocks {
    /// The manager was asked, or the kernel refused.
    asked: bool,
    file: Option<Arc<LockFile>>,
    /// By owner slot.
    files: Vec<Arc<LockFile>>,
}

/// A locked range.
#[derive(Debug)]
pub(super) struct KernelLock {
    file: Arc<LockFile>,
    range: Range<u64>,
}

impl Drop for KernelLock {
    fn drop(&mut self) {
        // An unlock does not fail for a locked range; if it does, the next use of this description ends the lock.
        if let Err(error) = self.file.unlock(&self.range) {
            tracing::warn!(%error, "a kernel lock could not be released");
        }
    }
}

/// Whether this process makes the whole access directly: then only concurrent accesses must be excluded, and no part of it is left to
/// be done if this process dies.
pub(super) fn is_all_direct(
    file: &OpenFile,
    access: &LeasedAccess<'_>,
    range: &Range<u64>,
    kind: AccessKind,
) -> Result<bool, Fault> {
    let lent_whole = file.context.session.serves_plain_files() && file.context.backing.takes_records();
    if !lent_whole || access.phase != (Phase::Mixed {}) || file.data.unflushed.is_pending(range) {
        return Ok(false);
    }
    for server in file.context.layout.servers() {
        let wish = LoanRequest { generation: access.generation, under: 0, write: kind == AccessKind::Write };
        let loan = file.data.loans.loan(server, wish)?;
        if !matches!(loan, Loan::Descriptor(_)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks a range by a kernel lock if it is granted within [`KERNEL_WAIT_MAX`]. `None`: kernel locks are not available.
pub(super) fn lock_in_kernel(
    file: &Arc<OpenFile>,
    range: &Range<u64>,
    kind: AccessKind,
) -> Result<Option<AccessLock>, Fault> {
    let mut lock = call_lock(file);
    let Some(lock_file) = file.locks.lock_file(lock.owner_slot)? else { return Ok(None) };
    let holder = CachedLockOwner {
        space: LockSpace::Access {},
        owner_slot: lock.owner_slot as u64,
        lock_group: LOCK_GROUP,
    };
    // Also for reads: readers that lock at the manager must not run concurrently with a writer under such a token.
    let mode = LockMode::Exclusive {};
    let shape = LockShape::Bytes { start: range.start, end: range.end };
    let wished = WantedLock { holder, mode, shape, view: None };
    lock.held = Some(file.locks.lock(&wished, (file.context.session.number(), LockWaitLimit::Wait {}))?);
    match file.locks.try_kernel(&lock_file, range, kind) {
        Ok(true) => {
            file.context.session.counters.kernel_locks.fetch_add(1, Ordering::Relaxed);
            lock.kernel = Some(KernelLock { file: lock_file, range: range.clone() });
            Ok(Some(lock))
        }
        Ok(false) => {
            drop(lock);
            // The next call finds the token of the kernel lock group again.
            let mut lock = lock_range(file, range, kind)?;
            lock.passing = true;
            Ok(Some(lock))
        }
        Err(error) => {
            tracing::info!(%error, file = file.context.describe(), "kernel locks are not available; locks of the manager are used");
            file.locks.state().kernel = KernelLocks { asked: true, ..KernelLocks::default() };
            Ok(None)
        }
    }
}

impl FileLocks {
    fn try_kernel(&self, file: &LockFile, range: &Range<u64>, kind: AccessKind) -> std::io::Result<bool> {
        let kind = match kind {
            AccessKind::Read => LockKind::Read,
            AccessKind::Write => LockKind::Write,
        };
        if file.try_lock(kind, range)? {
            return Ok(true);
        }
        self.context.session.counters.kernel_lock_waits.fetch_add(1, Ordering::Relaxed);
        let _time = self.context.session.timed(&self.context.session.counters.lock_ns);
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if file.try_lock(kind, range)? {
                return Ok(true);
            }
        }
        let began = self.context.session.clock.now();
        while self.context.session.clock.now().since(began) < KERNEL_WAIT_MAX {
            // A thread of this process that unlocks wakes this one; an unlock in another process does not.
            let state = self.state();
            drop(self.unlocked.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner));
            if file.try_lock(kind, range)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The open description by which a call locks; asks the manager the first time.
    fn lock_file(&self, lane: usize) -> Result<Option<Arc<LockFile>>, Fault> {
        if CALLS_MAX <= lane {
            return Ok(None);
        }
        {
            let KernelLocks { asked, file, files } = &self.state().kernel;
            if let Some(file) = files.get(lane) {
                return Ok(Some(Arc::clone(file)));
            }
            if *asked && file.is_none() {
                return Ok(None);
            }
        }
        let base = self.base_file()?;
        let kernel = &mut self.state().kernel;
        kernel.asked = true;
        let Some(base) = base else { return Ok(None) };
        while kernel.files.len() <= lane {
            match base.another() {
                Ok(file) => kernel.files.push(Arc::new(file)),
                Err(error) => {
                    tracing::info!(%error, file = self.context.describe(), "no further kernel locks can be opened; locks of the manager are used");
                    return Ok(None);
                }
            }
        }
        kernel.file = Some(base);
        Ok(kernel.files.get(lane).map(Arc::clone))
    }

    fn base_file(&self) -> Result<Option<Arc<LockFile>>, Fault> {
        if let Some(file) = &self.state().kernel.file {
            return Ok(Some(Arc::clone(file)));
        }
        self.context.session.listen()?;
        let pointer = PointerId { inode: self.context.inode, group: NO_GROUP, epoch: 0 };
        let answer = self.context.session.call(ServerIndex::MANAGER, &Request::SharePointer { pointer })?;
        match (answer.reply, answer.descriptors.into_iter().next()) {
            (Reply::Pointer {}, Some(descriptor)) => match LockFile::open_again(&descriptor) {
                Ok(file) => Ok(Some(Arc::new(file))),
                Err(error) => {
                    tracing::info!(%error, file = self.context.describe(), "kernel locks are not available; locks of the manager are used");
                    Ok(None)
                }
            },
            (Reply::NotLent {}, _) => Ok(None),
            (other, _) => Err(unexpected_reply(&other)),
        }
    }
}
