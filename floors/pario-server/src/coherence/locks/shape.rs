//! Bytes that a lock covers: a range, or the part of a view that a range of its stream maps to.
//!
//! Never: does more than [`STEPS`] comparisons. Always: two shapes that share a byte are found to overlap.

use std::ops::Range;
use std::sync::Arc;

use pario_view::{OverlapAnswer, View, ViewShare, disjoint};

/// Limit of the work to compare two shapes; beyond, they count as overlapping.
const STEPS: u64 = 200_000;

/// See the module.
#[derive(Clone, Debug)]
pub enum LockedBytes {
    /// Bytes of the file.
    Bytes(Range<u64>),
    /// Bytes of the file that a range of a view's stream maps to.
    Stream {
        /// The view.
        view: Arc<View>,
        /// The range of its stream.
        stream: Range<u64>,
        /// The enclosing range in the file.
        hull: Range<u64>,
    },
}

impl LockedBytes {
    /// Bytes covered by a range of a view's stream.
    #[must_use]
    pub fn stream(view: Arc<View>, stream: Range<u64>) -> LockedBytes {
        // A stream range beyond its view has no known offset.
        let hull = view.span(stream.clone()).unwrap_or(0..u64::MAX);
        if hull.end.saturating_sub(hull.start) == stream.end.saturating_sub(stream.start) {
            return LockedBytes::Bytes(hull);
        }
        LockedBytes::Stream { view, stream, hull }
    }

    /// The enclosing range.
    #[must_use]
    pub fn hull(&self) -> Range<u64> {
        match self {
            LockedBytes::Bytes(bytes) => bytes.clone(),
            LockedBytes::Stream { hull, .. } => hull.clone(),
        }
    }

    /// Whether the two share a byte. Shapes that are too irregular to compare count as overlapping.
    #[must_use]
    pub fn overlaps(&self, other: &LockedBytes) -> bool {
        let (one, two) = (self.hull(), other.hull());
        let meeting = one.start.max(two.start)..one.end.min(two.end);
        if meeting.end <= meeting.start {
            return false;
        }
        if let (LockedBytes::Bytes(_), LockedBytes::Bytes(_)) = (self, other) {
            return true;
        }
        let whole = View::whole();
        let shares = [self.share(&whole), other.share(&whole)];
        disjoint(&shares, STEPS) != OverlapAnswer::Yes
    }

    fn share<'v>(&'v self, whole: &'v View) -> ViewShare<'v> {
        match self {
            LockedBytes::Bytes(bytes) => {
                ViewShare { view: whole, stream: bytes.start..bytes.end.min(whole.stream_bytes()) }
            }
            LockedBytes::Stream { view, stream, .. } => ViewShare { view, stream: stream.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use pario_view::{Datatype, ViewAccess};

    use super::*;

    fn every(stride: i64, from: i64) -> Arc<View> {
        let byte = Datatype::elementary(1).unwrap();
        Arc::new(View::new(from, &byte, &byte.resized(0, stride).unwrap(), ViewAccess::Write).unwrap())
    }

    #[test]
    fn interleaved_views_meet_only_where_they_share_a_byte() {
        let even = LockedBytes::stream(every(2, 0), 0..100);
        let odd = LockedBytes::stream(every(2, 1), 0..100);
        let thirds = LockedBytes::stream(every(3, 0), 0..50);
        assert!(!even.overlaps(&odd));
        assert!(even.overlaps(&thirds) && odd.overlaps(&thirds));
        assert!(even.overlaps(&LockedBytes::Bytes(4..5)));
        assert!(!even.overlaps(&LockedBytes::Bytes(5..6)));
        assert!(!even.overlaps(&LockedBytes::Bytes(199..400)));
        assert!(LockedBytes::Bytes(0..u64::MAX).overlaps(&odd));
    }

    #[test]
    fn large_pieces_in_turn_do_not_meet() {
        let piece = |from: i64| {
            let byte = Datatype::elementary(1).unwrap();
            let piece = Datatype::contiguous(1 << 20, &byte).unwrap().resized(0, 2 << 20).unwrap();
            Arc::new(View::new(from, &byte, &piece, ViewAccess::Write).unwrap())
        };
        let (one, two) =
            (LockedBytes::stream(piece(0), 0..64 << 20), LockedBytes::stream(piece(1 << 20), 0..64 << 20));
        assert!(!one.overlaps(&two) && !two.overlaps(&one));
        let later = LockedBytes::stream(piece(1 << 20), 3 << 20..67 << 20);
        assert!(!one.overlaps(&later) && two.overlaps(&later));
    }

    #[test]
    fn a_view_without_gaps_is_a_range() {
        let whole = LockedBytes::stream(Arc::new(View::whole()), 7..9);
        assert!(matches!(whole, LockedBytes::Bytes(bytes) if bytes == (7..9)));
    }

    #[test]
    fn nothing_meets_nothing() {
        assert!(!LockedBytes::Bytes(5..5).overlaps(&LockedBytes::Bytes(0..10)));
    }
}
