//! Which bytes a lock covers: a range, or what a view shows of one.

use std::ops::Range;
use std::sync::Arc;

use pario_view::{Answer, Direction, Share, View, disjoint};

/// Work that comparing two shapes may cost; beyond, they count as overlapping.
const STEPS: u64 = 200_000;

/// See the module.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Bytes of the file.
    Bytes(Range<u64>),
    /// Bytes of the file that a range of a view's stream lies on.
    Stream {
        /// The view.
        view: Arc<View>,
        /// The range of its stream.
        stream: Range<u64>,
        /// Bytes of the file between which it lies.
        hull: Range<u64>,
    },
}

impl Shape {
    /// What a range of a view's stream covers.
    #[must_use]
    pub fn stream(view: Arc<View>, stream: Range<u64>) -> Shape {
        let first = view.file_offset(stream.start);
        let last = stream.end.checked_sub(1).and_then(|last| view.file_offset(last));
        let hull = match (view.direction(), first, last) {
            (Direction::Increasing, Some(first), Some(last)) => first..last + 1,
            // A view that goes back and forth may lie anywhere.
            _ => 0..u64::MAX,
        };
        if hull.end.saturating_sub(hull.start) == stream.end.saturating_sub(stream.start) {
            return Shape::Bytes(hull);
        }
        Shape::Stream { view, stream, hull }
    }

    /// The bytes between which it lies.
    #[must_use]
    pub fn hull(&self) -> Range<u64> {
        match self {
            Shape::Bytes(bytes) => bytes.clone(),
            Shape::Stream { hull, .. } => hull.clone(),
        }
    }

    /// Whether some byte is in both. Shapes that are too irregular to compare count as if one were.
    #[must_use]
    pub fn meets(&self, other: &Shape) -> bool {
        let (one, two) = (self.hull(), other.hull());
        let meeting = one.start.max(two.start)..one.end.min(two.end);
        if meeting.end <= meeting.start {
            return false;
        }
        if let (Shape::Bytes(_), Shape::Bytes(_)) = (self, other) {
            return true;
        }
        let whole = View::whole();
        let shares = [self.share(&whole), other.share(&whole)];
        disjoint(&shares, STEPS) != Answer::Yes
    }

    fn share<'v>(&'v self, whole: &'v View) -> Share<'v> {
        match self {
            Shape::Bytes(bytes) => {
                Share { view: whole, stream: bytes.start..bytes.end.min(whole.stream_bytes()) }
            }
            Shape::Stream { view, stream, .. } => Share { view, stream: stream.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use pario_view::{Access, Datatype};

    use super::*;

    fn every(stride: i64, from: i64) -> Arc<View> {
        let byte = Datatype::elementary(1).unwrap();
        Arc::new(View::new(from, &byte, &byte.resized(0, stride).unwrap(), Access::Write).unwrap())
    }

    #[test]
    fn interleaved_views_meet_only_where_they_share_a_byte() {
        let even = Shape::stream(every(2, 0), 0..100);
        let odd = Shape::stream(every(2, 1), 0..100);
        let thirds = Shape::stream(every(3, 0), 0..50);
        assert!(!even.meets(&odd));
        assert!(even.meets(&thirds) && odd.meets(&thirds));
        assert!(even.meets(&Shape::Bytes(4..5)));
        assert!(!even.meets(&Shape::Bytes(5..6)));
        assert!(!even.meets(&Shape::Bytes(199..400)));
        assert!(Shape::Bytes(0..u64::MAX).meets(&odd));
    }

    #[test]
    fn large_pieces_in_turn_do_not_meet() {
        let piece = |from: i64| {
            let byte = Datatype::elementary(1).unwrap();
            let piece = Datatype::contiguous(1 << 20, &byte).unwrap().resized(0, 2 << 20).unwrap();
            Arc::new(View::new(from, &byte, &piece, Access::Write).unwrap())
        };
        let (one, two) = (Shape::stream(piece(0), 0..64 << 20), Shape::stream(piece(1 << 20), 0..64 << 20));
        assert!(!one.meets(&two) && !two.meets(&one));
        let later = Shape::stream(piece(1 << 20), 3 << 20..67 << 20);
        assert!(!one.meets(&later) && two.meets(&later));
    }

    #[test]
    fn a_view_without_gaps_is_a_range() {
        let whole = Shape::stream(Arc::new(View::whole()), 7..9);
        assert!(matches!(whole, Shape::Bytes(bytes) if bytes == (7..9)));
    }

    #[test]
    fn nothing_meets_nothing() {
        assert!(!Shape::Bytes(5..5).meets(&Shape::Bytes(0..10)));
    }
}
