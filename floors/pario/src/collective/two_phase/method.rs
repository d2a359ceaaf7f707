//! Two-phase as a method: collective accesses are exchanged with aggregators, all else is done by the method below.
//!
//! Never: exchanges an access in atomic mode: locks order it.

use std::ops::Range;
use std::sync::Arc;

use pario_view::View;

use super::TwoPhase;
use crate::client::{Guarded, StreamRange, WriteSource};
use crate::collective::method::{GroupAccess, MemberAccess, Method, MethodStats};
use crate::error::Result;

/// See the module head.
#[derive(Debug)]
pub(in crate::collective) struct TwoPhaseMethod {
    pub(in crate::collective) exchange: TwoPhase,
    pub(in crate::collective) below: Arc<dyn Method>,
}

/// A stream range in the form that the exchange needs.
fn view_and_range(place: &Result<StreamRange>) -> Result<(&View, Range<u64>)> {
    place.as_ref().map(|place| (&**place.view.view(), place.stream.clone())).map_err(Clone::clone)
}

impl Method for TwoPhaseMethod {
    fn write_all(&self, access: &MemberAccess<'_>, source: Result<WriteSource<'_>>) -> Result<()> {
        if access.is_atomic() {
            return access.write(&source?);
        }
        let place = source.as_ref().map_err(Clone::clone).and_then(|source| access.locate(source.len()));
        let bytes = source.as_ref().map(WriteSource::contiguous).unwrap_or_default();
        self.exchange.write(access.file(), view_and_range(&place), &bytes)
    }

    fn read_all(&self, access: &MemberAccess<'_>, target: &mut [u8]) -> Result<usize> {
        if access.is_atomic() {
            return access.read(target);
        }
        let place = access.locate(target.len());
        self.exchange.read(access.file(), view_and_range(&place), target)
    }

    fn stats(&self) -> MethodStats {
        MethodStats { two_phase: Some(self.exchange.counts()), ..self.below.stats() }
    }

    fn write(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
        guarded: Guarded,
    ) -> Result<()> {
        self.below.write(on, place, source, guarded)
    }

    fn read(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize> {
        self.below.read(on, place, target, guarded)
    }

    fn len(&self, on: GroupAccess<'_>) -> Result<u64> {
        self.below.len(on)
    }

    fn set_len(&self, on: GroupAccess<'_>, bytes: u64) -> Result<()> {
        self.below.set_len(on, bytes)
    }

    fn sync(&self, on: GroupAccess<'_>) -> Result<()> {
        self.below.sync(on)
    }

    fn close(&self, on: GroupAccess<'_>) -> Result<()> {
        self.below.close(on)
    }

    fn is_cached(&self) -> bool {
        self.below.is_cached()
    }

    fn locks_several_blocks(&self) -> bool {
        self.below.locks_several_blocks()
    }
}
