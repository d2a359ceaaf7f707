//! Locks around a single access, so that it happens at once for everybody else: atomic mode, and contiguous calls where the phase alone does
//! not see to it.

use std::ops::Range;
use std::sync::Arc;

use pario_core::Fault;
use pario_net::message::{LockMode, LockPatience, LockShape, LockSpace, Phase, Want};

use super::super::lease::Access;
use super::super::stream_write::Place;
use super::kernel::KernelLock;
use super::{HeldLock, Holder, OpenFile, Wished};

/// The club of those who access a file at one moment. Files that are locked in the kernel, by a club of their own, have no such accesses.
const TOGETHER: u64 = 2;

/// Whether an access is guarded by a lock of its caller's already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guarded {
    /// It takes a lock of its own where it needs one.
    No,
    /// The same; and it must be there as a whole or not at all, if its process dies.
    Whole,
    /// The caller holds a lock over all of it; also as a whole or not at all.
    Locked,
}

/// Held while an access goes on.
#[derive(Debug)]
pub(crate) struct AccessLock {
    file: Arc<OpenFile>,
    pub(super) lane: usize,
    pub(super) held: Option<HeldLock>,
    /// What the kernel keeps for it.
    pub(super) kernel: Option<KernelLock>,
    /// Its token is not kept.
    pub(super) passing: bool,
    /// It keeps out those who do not access the file at one moment, and nobody else.
    pub(in super::super) together: bool,
}

impl Drop for AccessLock {
    fn drop(&mut self) {
        if self.kernel.take().is_some() {
            self.file.locks.unlocked.notify_all();
        }
        if let Some(held) = self.held {
            // One that was lost with the manager is not ours to end; the access under it looked at that before each of its pieces.
            self.file.unlock(held);
            if self.passing {
                self.file.leave_holder(held.which.holder);
            }
        }
        self.file.free_lane(self.lane);
    }
}

/// A read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl OpenFile {
    /// Keeps others from what an access to a range of a stream touches.
    pub(in super::super) fn lock_place(
        self: &Arc<Self>,
        place: &Place,
        kind: Kind,
    ) -> Result<Option<AccessLock>, Fault> {
        let Some(span) = place.span() else { return Ok(None) };
        let bytes = place.stream.end - place.stream.start;
        let (shape, view) = if place.view.view().direction() != pario_view::Direction::Increasing {
            // One that goes back and forth may lie anywhere.
            (LockShape::Bytes { start: 0, end: u64::MAX }, None)
        } else if span.end - span.start == bytes {
            (LockShape::Bytes { start: span.start, end: span.end }, None)
        } else {
            let (view, moved) = (place.view.number(), place.view.moved());
            let shape = LockShape::Stream { view, moved, offset: place.stream.start, bytes };
            (shape, Some(Arc::clone(&place.view)))
        };
        self.lock_access(kind, shape, view).map(Some)
    }

    /// Keeps others from a range.
    pub(in super::super) fn lock_range(
        self: &Arc<Self>,
        range: &Range<u64>,
        kind: Kind,
    ) -> Result<AccessLock, Fault> {
        self.lock_access(kind, LockShape::Bytes { start: range.start, end: range.end }, None)
    }

    /// Keeps others from a part of a view, by a token for more of it that was kept, or is kept for the calls that come next. Members of a
    /// group whose views share no byte have theirs at the same time.
    fn lock_ahead(self: &Arc<Self>, place: &Place, wide: &Place, kind: Kind) -> Result<AccessLock, Fault> {
        let mut lock = self.call_lock();
        let holder = Holder { space: LockSpace::Access {}, lane: lock.lane as u64, club: 0 };
        let wished = |place: &Place| Wished {
            holder,
            mode: mode(kind),
            shape: LockShape::Stream {
                view: place.view.number(),
                moved: place.view.moved(),
                offset: place.stream.start,
                bytes: place.stream.end - place.stream.start,
            },
            view: Some(Arc::clone(&place.view)),
        };
        lock.held = match self.lock_here(&wished(place)) {
            Some(held) => Some(held),
            None => Some(self.lock(&wished(wide), (self.mount.number(), LockPatience::Wait {}))?),
        };
        Ok(lock)
    }

    fn lock_access(
        self: &Arc<Self>,
        kind: Kind,
        shape: LockShape,
        view: Option<Arc<super::NumberedView>>,
    ) -> Result<AccessLock, Fault> {
        let mut lock = self.call_lock();
        let holder = Holder { space: LockSpace::Access {}, lane: lock.lane as u64, club: 0 };
        let wished = Wished { holder, mode: mode(kind), shape, view };
        lock.held = Some(self.lock(&wished, (self.mount.number(), LockPatience::Wait {}))?);
        Ok(lock)
    }

    /// Keeps those from a range who do not access it at one moment: all who do are one to the manager, and their servers keep their order.
    fn lock_together(self: &Arc<Self>, range: &Range<u64>) -> Result<AccessLock, Fault> {
        let mut lock = self.call_lock();
        let holder = Holder { space: LockSpace::Access {}, lane: lock.lane as u64, club: TOGETHER };
        let shape = LockShape::Bytes { start: range.start, end: range.end };
        // Even to read: those who only read at the manager must not meet one who writes under such a token.
        let wished = Wished { holder, mode: LockMode::Exclusive {}, shape, view: None };
        lock.held = Some(self.lock(&wished, (self.mount.number(), LockPatience::Wait {}))?);
        lock.together = true;
        Ok(lock)
    }

    /// Keeps all others from a range, this once: those who access it at one moment find their tokens again.
    pub(in super::super) fn lock_passing(
        self: &Arc<Self>,
        range: &Range<u64>,
        kind: Kind,
    ) -> Result<AccessLock, Fault> {
        let mut lock = self.lock_range(range, kind)?;
        lock.passing = true;
        Ok(lock)
    }

    /// A lane for one more call; nothing is locked yet.
    pub(super) fn call_lock(self: &Arc<Self>) -> AccessLock {
        let (file, lane) = (Arc::clone(self), self.take_lane());
        AccessLock { file, lane, held: None, kernel: None, passing: false, together: false }
    }

    /// Begins an access to a range, with a lock around it where the phase needs one. Whoever waits for a lock holds up no lease. `place`
    /// is where it lies in a view, if that is known.
    pub(in super::super) fn access_range<'a>(
        self: &'a Arc<Self>,
        (range, place): (&Range<u64>, Option<&Place>),
        kind: Kind,
        guarded: Guarded,
    ) -> Result<(Option<AccessLock>, Access<'a>), Fault> {
        let want = match kind {
            Kind::Read => Want::Read {},
            Kind::Write => Want::Write {},
        };
        let access = self.access(want)?;
        if guarded == Guarded::Locked || !self.needs_lock(access.phase, range, kind)? {
            return Ok((None, access));
        }
        // What must be there as a whole goes by a record, and outlives this process.
        let by_itself = kind == Kind::Read || guarded == Guarded::No;
        let direct = by_itself && self.is_all_direct(&access, range, kind)?;
        drop(access);
        if direct && let Some(lock) = self.lock_in_kernel(range, kind)? {
            let access = self.access(want)?;
            // It may have been cut or given back meanwhile.
            if lock.kernel.is_none() || self.is_all_direct(&access, range, kind)? {
                return Ok((Some(lock), access));
            }
        }
        if self.can_be_at_once(range, kind)? {
            let lock = self.lock_together(range)?;
            return Ok((Some(lock), self.access(want)?));
        }
        let seen = place.and_then(Place::as_seen).and_then(|seen| Some((seen.with_next()?, seen)));
        let lock = match seen.filter(|_| !self.locks().recalled) {
            Some((wide, seen)) => self.lock_ahead(&seen, &wide, kind)?,
            None => self.lock_range(range, kind)?,
        };
        Ok((Some(lock), self.access(want)?))
    }

    /// Whether a contiguous access must keep others out by itself. Phases keep readers from writers unless they are mixed, and a
    /// server takes a record at once.
    fn needs_lock(&self, phase: Phase, range: &Range<u64>, kind: Kind) -> Result<bool, Fault> {
        if self.homeless.is_some() || range.is_empty() {
            return Ok(false);
        }
        Ok(match (phase, kind) {
            (Phase::Exclusive {} | Phase::Write {}, Kind::Write) if self.placed.is_some() => {
                // At its owner a block is written at once, and nothing larger.
                let block = self.placed.unwrap_or(1);
                let transfer = self.mount.transfer_bytes(self.layout.locate(0).0)? as u64;
                range.start / block != (range.end - 1) / block || transfer < range.end - range.start
            }
            (Phase::Exclusive {} | Phase::Read {}, _) | (Phase::Write {}, Kind::Read) => false,
            (Phase::Write {}, Kind::Write) => {
                let mut pieces = self.layout.pieces(range.clone());
                let Some(first) = pieces.next() else { return Ok(false) };
                let elsewhere = pieces.any(|piece| first.server != piece.server);
                elsewhere || (self.mount.at_once_bytes(first.server)? as u64) < range.end - range.start
            }
            // A word is copied at once by every machine.
            (Phase::Mixed {}, _) => 8 < range.end - range.start || range.start / 8 != (range.end - 1) / 8,
        })
    }

    fn take_lane(&self) -> usize {
        let mut state = self.locks();
        let free = state.lanes.iter().position(|taken| !taken);
        let lane = free.unwrap_or(state.lanes.len());
        if free.is_none() {
            state.lanes.push(true);
        }
        state.lanes[lane] = true;
        lane
    }

    fn free_lane(&self, lane: usize) {
        if let Some(taken) = self.locks().lanes.get_mut(lane) {
            *taken = false;
        }
    }
}

fn mode(kind: Kind) -> LockMode {
    match kind {
        Kind::Read => LockMode::Shared {},
        Kind::Write => LockMode::Exclusive {},
    }
}
