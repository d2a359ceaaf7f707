//! Atomic mode: overlapping accesses of a group happen one after the other, whatever their views.
//!
//! Members whose views share no byte keep out of each other's way by themselves and take no lock; others take one around each access, of
//! exactly the bytes that it touches. Always: an access of this process and another of its threads exclude each other too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_view::{Answer, COMPARE_STEPS, Share, View, disjoint};

use super::file::{GroupFile, Inner};
use crate::client::{AccessLock, Guarded, Kind, Place};
use crate::error::Result;
use crate::group::Call;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Atomic {
    on: AtomicBool,
    /// Views are known to share no byte.
    apart: AtomicBool,
    /// Accesses of this process, where they need no lock against others.
    here: RwLock<()>,
}

/// Held while an access goes on.
pub(super) enum Guard<'a> {
    /// Atomic mode is off. A contiguous call through a tier, whose servers know no phases, keeps others out all the same.
    Off { _lock: Option<AccessLock> },
    /// Only this process can touch the same bytes.
    Read { _here: RwLockReadGuard<'a, ()> },
    /// The same, of a write.
    Write { _here: RwLockWriteGuard<'a, ()> },
    /// Others keep out.
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
    /// Whether overlapping accesses of the group happen one after the other: what is written at once is read at once. Collective.
    pub fn set_atomicity(&self, on: bool) -> Result<()> {
        // What was started before goes on as it was.
        self.line().run(|| Ok(()))?;
        self.inner.group.same_in(Call::SetAtomicity, "atomic mode", &[u8::from(on)])?;
        self.inner.atomic.on.store(on, Ordering::Release);
        self.inner.look_at_views()
    }

    /// Whether atomic mode is on.
    pub fn atomicity(&self) -> bool {
        self.inner.atomic.on.load(Ordering::Acquire)
    }
}

impl Inner {
    /// In atomic mode, finds out whether views share bytes; all members do so at the same time.
    pub(super) fn look_at_views(&self) -> Result<()> {
        if !self.atomic.on.load(Ordering::Acquire) {
            return Ok(());
        }
        let mine = std::sync::Arc::clone(self.state().view.view());
        let bytes = mine.encode().unwrap_or_default();
        let all = self.group.collect(Call::SetAtomicity, &bytes)?;
        let views: Option<Vec<View>> = all.iter().map(|bytes| View::decode(bytes).ok()).collect();
        let apart = views.is_some_and(|views| {
            let shares: Vec<Share<'_>> = views.iter().map(Share::whole).collect();
            disjoint(&shares, COMPARE_STEPS) == Answer::Yes
        });
        self.atomic.apart.store(apart, Ordering::Release);
        Ok(())
    }

    fn in_several_blocks(&self, place: &Place) -> bool {
        let block = self.file.layout().stripe_bytes();
        place.span().is_some_and(|span| span.start / block != (span.end - 1) / block)
    }

    /// Keeps others out of what an access touches, as atomic mode demands.
    pub(super) fn guard(&self, place: &Place, kind: Kind) -> Result<Guard<'_>> {
        if !self.atomic.on.load(Ordering::Acquire) {
            let several = self.is_tiered() && place.is_one_piece() && self.in_several_blocks(place);
            let lock = if several { self.file.lock_place(place, kind)? } else { None };
            return Ok(Guard::Off { _lock: lock });
        }
        if !self.atomic.apart.load(Ordering::Acquire) {
            return Ok(Guard::Locked { _lock: self.file.lock_place(place, kind)? });
        }
        let here = &self.atomic.here;
        Ok(match kind {
            Kind::Read => Guard::Read { _here: here.read().unwrap_or_else(PoisonError::into_inner) },
            Kind::Write => Guard::Write { _here: here.write().unwrap_or_else(PoisonError::into_inner) },
        })
    }
}
