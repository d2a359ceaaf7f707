//! Locks around a single access, so that it is atomic for all other clients: atomic mode, and contiguous calls where the phase alone does
//! not guarantee it.

use std::ops::Range;
use std::sync::Arc;

use pario_core::Fault;
use pario_net::message::{LockMode, LockShape, LockSpace, LockWaitLimit, Phase, Want};

use super::cached::{HeldLock, WantedLock};
use super::kernel::KernelLock;
use super::kernel::{is_all_direct, lock_in_kernel};
use super::table::CachedLockOwner;
use crate::client::file::atomic_access::can_be_atomic;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::state::OpenFile;
use crate::client::file::write::stream::StreamRange;
use crate::client::session::views::NumberedView;

/// The lock group of atomic accesses. Files with kernel locks, which have their own lock group, have no such accesses.
const ATOMIC_GROUP: u64 = 2;

/// Whether the caller already holds a lock over an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guarded {
    /// The access takes a lock where it needs one.
    No,
    /// The same; and it must be written completely or not at all if its process dies.
    Whole,
    /// The caller holds a lock over all of it; also completely or not at all.
    Locked,
}

/// Held during an access.
#[derive(Debug)]
pub(crate) struct AccessLock {
    file: Arc<OpenFile>,
    pub(super) owner_slot: usize,
    pub(super) held: Option<HeldLock>,
    /// The kernel lock.
    pub(super) kernel: Option<KernelLock>,
    /// Its token is not kept.
    pub(super) passing: bool,
    /// It excludes only accesses that are not atomic accesses.
    pub(in crate::client) together: bool,
}

impl Drop for AccessLock {
    fn drop(&mut self) {
        if self.kernel.take().is_some() {
            self.file.locks.unlocked.notify_all();
        }
        if let Some(held) = self.held {
            // A lock lost with the manager is not ended here; the access checked it before each of its pieces.
            self.file.locks.unlock(held);
            if self.passing {
                self.file.locks.leave_holder(held.which.holder);
            }
        }
        self.file.locks.free_owner_slot(self.owner_slot);
    }
}

/// A read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessKind {
    Read,
    Write,
}

/// Locks the bytes that an access to a range of a stream touches.
pub(in crate::client) fn lock_stream_range(
    file: &Arc<OpenFile>,
    place: &StreamRange,
    kind: AccessKind,
) -> Result<Option<AccessLock>, Fault> {
    let Some(span) = place.span() else { return Ok(None) };
    let bytes = place.stream.end - place.stream.start;
    // Of a non-monotonic view, servers know parts only.
    let (shape, view) = if place.is_non_monotonic() || span.end - span.start == bytes {
        (LockShape::Bytes { start: span.start, end: span.end }, None)
    } else {
        let (view, moved) = (place.view.number(), place.view.displacement());
        let shape = LockShape::Stream { view, displacement: moved, offset: place.stream.start, bytes };
        (shape, Some(Arc::clone(&place.view)))
    };
    lock_access(file, kind, shape, view).map(Some)
}

/// Locks a range.
pub(in crate::client) fn lock_range(
    file: &Arc<OpenFile>,
    range: &Range<u64>,
    kind: AccessKind,
) -> Result<AccessLock, Fault> {
    lock_access(file, kind, LockShape::Bytes { start: range.start, end: range.end }, None)
}

/// Locks a part of a view, under a kept token for a larger part of it, or a new one kept for the next calls. Members of a group with
/// disjoint views hold theirs concurrently.
fn lock_ahead(
    file: &Arc<OpenFile>,
    place: &StreamRange,
    wide: &StreamRange,
    kind: AccessKind,
) -> Result<AccessLock, Fault> {
    let mut lock = call_lock(file);
    let holder =
        CachedLockOwner { space: LockSpace::Access {}, owner_slot: lock.owner_slot as u64, lock_group: 0 };
    let wished = |place: &StreamRange| WantedLock {
        holder,
        mode: mode(kind),
        shape: LockShape::Stream {
            view: place.view.number(),
            displacement: place.view.displacement(),
            offset: place.stream.start,
            bytes: place.stream.end - place.stream.start,
        },
        view: Some(Arc::clone(&place.view)),
    };
    lock.held = match file.locks.lock_cached(&wished(place)) {
        Some(held) => Some(held),
        None => {
            Some(file.locks.lock(&wished(wide), (file.context.session.number(), LockWaitLimit::Wait {}))?)
        }
    };
    Ok(lock)
}

fn lock_access(
    file: &Arc<OpenFile>,
    kind: AccessKind,
    shape: LockShape,
    view: Option<Arc<NumberedView>>,
) -> Result<AccessLock, Fault> {
    let mut lock = call_lock(file);
    let holder =
        CachedLockOwner { space: LockSpace::Access {}, owner_slot: lock.owner_slot as u64, lock_group: 0 };
    let wished = WantedLock { holder, mode: mode(kind), shape, view };
    lock.held = Some(file.locks.lock(&wished, (file.context.session.number(), LockWaitLimit::Wait {}))?);
    Ok(lock)
}

/// Excludes other accesses than atomic ones from a range: all atomic accesses are one holder to the manager, and their servers order
/// them.
fn lock_atomic_group(file: &Arc<OpenFile>, range: &Range<u64>) -> Result<AccessLock, Fault> {
    let mut lock = call_lock(file);
    let holder = CachedLockOwner {
        space: LockSpace::Access {},
        owner_slot: lock.owner_slot as u64,
        lock_group: ATOMIC_GROUP,
    };
    let shape = LockShape::Bytes { start: range.start, end: range.end };
    // Also for reads: readers that lock at the manager must not run concurrently with a writer under such a token.
    let wished = WantedLock { holder, mode: LockMode::Exclusive {}, shape, view: None };
    lock.held = Some(file.locks.lock(&wished, (file.context.session.number(), LockWaitLimit::Wait {}))?);
    lock.together = true;
    Ok(lock)
}

/// Locks a range for one access only: atomic accesses find their tokens again.
pub(in crate::client) fn lock_once(
    file: &Arc<OpenFile>,
    range: &Range<u64>,
    kind: AccessKind,
) -> Result<AccessLock, Fault> {
    let mut lock = lock_range(file, range, kind)?;
    lock.passing = true;
    Ok(lock)
}

/// An owner slot for one more call; no byte is locked yet.
pub(super) fn call_lock(file: &Arc<OpenFile>) -> AccessLock {
    let (file, lane) = (Arc::clone(file), file.locks.take_owner_slot());
    AccessLock { file, owner_slot: lane, held: None, kernel: None, passing: false, together: false }
}

/// Begins an access to a range, with a lock around it where the phase needs one. No lease is held during a wait for a lock. `place` is
/// the range in a view, if known.
pub(in crate::client) fn access_range<'a>(
    file: &'a Arc<OpenFile>,
    (range, place): (&Range<u64>, Option<&StreamRange>),
    kind: AccessKind,
    guarded: Guarded,
) -> Result<(Option<AccessLock>, LeasedAccess<'a>), Fault> {
    let want = match kind {
        AccessKind::Read => Want::Read {},
        AccessKind::Write => Want::Write {},
    };
    let access = file.lease.access(want)?;
    if guarded == Guarded::Locked || !needs_lock(file, access.phase, range, kind)? {
        return Ok((None, access));
    }
    // An access that must be complete is a record, and outlives this process.
    let by_itself = kind == AccessKind::Read || guarded == Guarded::No;
    let direct = by_itself && is_all_direct(file, &access, range, kind)?;
    drop(access);
    if direct && let Some(lock) = lock_in_kernel(file, range, kind)? {
        let access = file.lease.access(want)?;
        // The file may have been truncated or the lease returned meanwhile.
        if lock.kernel.is_none() || is_all_direct(file, &access, range, kind)? {
            return Ok((Some(lock), access));
        }
    }
    if can_be_atomic(file, range, kind)? {
        let lock = lock_atomic_group(file, range)?;
        return Ok((Some(lock), file.lease.access(want)?));
    }
    let seen = place.and_then(StreamRange::in_program_view).and_then(|seen| Some((seen.with_next()?, seen)));
    let lock = match seen.filter(|_| !file.locks.state().recalled) {
        Some((wide, seen)) => lock_ahead(file, &seen, &wide, kind)?,
        None => lock_range(file, range, kind)?,
    };
    Ok((Some(lock), file.lease.access(want)?))
}

/// Whether a contiguous access must exclude others itself. Phases separate readers from writers unless they are mixed, and a server
/// drains a record atomically.
fn needs_lock(file: &OpenFile, phase: Phase, range: &Range<u64>, kind: AccessKind) -> Result<bool, Fault> {
    if !file.context.backing.has_leases() || range.is_empty() {
        return Ok(false);
    }
    let proxied_write = file.context.backing.proxied().filter(|_| kind == AccessKind::Write);
    if let (Phase::Exclusive {} | Phase::Write {}, Some(proxied)) = (phase, proxied_write) {
        // At its owner a block is written atomically, larger ranges are not.
        let block = proxied.block_bytes;
        let transfer = file.context.session.transfer_bytes(file.context.layout.locate(0).0)? as u64;
        return Ok(range.start / block != (range.end - 1) / block || transfer < range.end - range.start);
    }
    Ok(match (phase, kind) {
        (Phase::Exclusive {} | Phase::Read {}, _) | (Phase::Write {}, AccessKind::Read) => false,
        (Phase::Write {}, AccessKind::Write) => {
            let mut pieces = file.context.layout.pieces(range.clone());
            let Some(first) = pieces.next() else { return Ok(false) };
            let elsewhere = pieces.any(|piece| first.server != piece.server);
            elsewhere || (file.context.session.atomic_bytes(first.server)? as u64) < range.end - range.start
        }
        // An aligned 8-byte word is copied atomically by every machine.
        (Phase::Mixed {}, _) => 8 < range.end - range.start || range.start / 8 != (range.end - 1) / 8,
    })
}

fn mode(kind: AccessKind) -> LockMode {
    match kind {
        AccessKind::Read => LockMode::Shared {},
        AccessKind::Write => LockMode::Exclusive {},
    }
}
