//! Atomic mode: overlapping accesses of a group are serialised, for any views.
//!
//! Members with views that share no byte do not conflict and take no lock; others lock exactly the bytes of each access.
//! Always: accesses by several threads of this process exclude each other too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_view::{COMPARE_STEPS, OverlapAnswer, View, ViewShare, disjoint};

use super::file::{GroupFile, GroupFileInner};
use crate::client::{AccessKind, AccessLock, Guarded, StreamRange};
use crate::error::Result;
use crate::group::CollectiveCall;

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Atomic {
    on: AtomicBool,
    /// The views are known to share no byte.
    views_disjoint: AtomicBool,
    /// Serialises accesses of this process where no lock against other processes is needed.
    local: RwLock<()>,
}

/// Held during an access.
pub(super) enum Guard<'a> {
    /// Atomic mode is off. A contiguous call through the node cache still locks if it covers several blocks: the servers of the
    /// node cache have no multi-block atomic access.
    Off { _lock: Option<AccessLock> },
    /// Only this process can access the same bytes.
    Read { _here: RwLockReadGuard<'a, ()> },
    /// The same, for a write.
    Write { _here: RwLockWriteGuard<'a, ()> },
    /// Other processes are locked out.
    Locked { _lock: Option<AccessLock> },
}

impl Guard<'_> {
    pub(super) fn guarded(&self) -> Guarded {
        match self {
            Guard::Off { .. } => Guarded::No,
            Guard::Read { .. } | Guard::Write { .. } => Guarded::Whole,
            Guard::Locked { .. } => Guarded::Locked,
        }
    }
}

impl GroupFile {
    /// Sets whether overlapping accesses of the group are serialised: a read sees all of a concurrent write or none of it.
    /// Collective.
    pub fn set_atomicity(&self, on: bool) -> Result<()> {
        // Accesses that were started before finish in the old mode.
        self.queue().run(|| Ok(()))?;
        self.inner.group.same_in(CollectiveCall::SetAtomicity, "atomic mode", &[u8::from(on)])?;
        self.inner.atomic.on.store(on, Ordering::Release);
        self.inner.compare_views()
    }

    /// Whether atomic mode is on.
    pub fn atomicity(&self) -> bool {
        self.inner.atomic.is_on()
    }
}

impl Atomic {
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }
}

impl GroupFileInner {
    /// In atomic mode, compares the views of all members for shared bytes; collective.
    pub(super) fn compare_views(&self) -> Result<()> {
        if !self.atomic.is_on() {
            return Ok(());
        }
        let mine = std::sync::Arc::clone(self.state().view.view());
        let bytes = mine.encode().unwrap_or_default();
        let all = self.group.collect(CollectiveCall::SetAtomicity, &bytes)?;
        let views: Option<Vec<View>> = all.iter().map(|bytes| View::decode(bytes).ok()).collect();
        let apart = views.is_some_and(|views| {
            let shares: Vec<ViewShare<'_>> = views.iter().map(ViewShare::whole).collect();
            disjoint(&shares, COMPARE_STEPS) == OverlapAnswer::Yes
        });
        self.atomic.views_disjoint.store(apart, Ordering::Release);
        Ok(())
    }

    fn in_several_blocks(&self, place: &StreamRange) -> bool {
        let block = self.file.layout().stripe_bytes();
        place.span().is_some_and(|span| span.start / block != (span.end - 1) / block)
    }

    /// Locks the bytes of an access as atomic mode requires.
    pub(super) fn guard(&self, place: &StreamRange, kind: AccessKind) -> Result<Guard<'_>> {
        if !self.atomic.is_on() {
            let several = self.independent.locks_several_blocks()
                && place.is_one_piece()
                && self.in_several_blocks(place);
            let lock = if several { self.file.lock_stream_range(place, kind)? } else { None };
            return Ok(Guard::Off { _lock: lock });
        }
        if !self.atomic.views_disjoint.load(Ordering::Acquire) {
            return Ok(Guard::Locked { _lock: self.file.lock_stream_range(place, kind)? });
        }
        let here = &self.atomic.local;
        Ok(match kind {
            AccessKind::Read => Guard::Read { _here: here.read().unwrap_or_else(PoisonError::into_inner) },
            AccessKind::Write => Guard::Write { _here: here.write().unwrap_or_else(PoisonError::into_inner) },
        })
    }
}
