//! Several views together: are they disjoint, do they tile a range?
//!
//! Never: works longer than it may. Always: `Yes` and `No` are exact.

use std::ops::Range;

use crate::overlap::{Region, WorkLimit, overlap};
use crate::program::Placed;
use crate::view::{Direction, View};

/// Steps that are enough for thousands of regular views, or some irregular ones of a hundred thousand pieces.
pub const COMPARE_STEPS: u64 = 4_000_000;

/// Result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OverlapAnswer {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// A result would need more work than allowed.
    Unknown,
}

/// A range of a view's stream.
#[derive(Clone, Debug)]
pub struct ViewShare<'v> {
    /// The view.
    pub view: &'v View,
    /// The range of its stream.
    pub stream: Range<u64>,
}

impl<'v> ViewShare<'v> {
    /// All of a view, repeated for ever.
    #[must_use]
    pub fn whole(view: &'v View) -> ViewShare<'v> {
        ViewShare { view, stream: 0..view.stream_bytes() }
    }
}

/// Whether no byte of the file belongs to two of the shares, within `steps` of work.
#[must_use]
pub fn disjoint(shares: &[ViewShare<'_>], steps: u64) -> OverlapAnswer {
    let mut pieces = Vec::new();
    for (owner, share) in shares.iter().enumerate() {
        let (program, base) = share.view.program();
        let Some(root) = program.root else { continue };
        let end = share.stream.end.min(program.size());
        let mut regions = Vec::new();
        let root = Placed { at: base + root.at, ..root };
        Region::cut(&program.nodes, root, share.stream.start.min(end)..end, &mut regions);
        pieces.extend(regions.into_iter().map(|region| ComparedPiece { owner, region }));
    }
    let mut work = WorkLimit(steps);
    match pieces_overlap(&mut pieces, &mut work) {
        Some(true) => OverlapAnswer::No,
        Some(false) => OverlapAnswer::Yes,
        None => OverlapAnswer::Unknown,
    }
}

/// Whether every byte of a range of the file belongs to exactly one of the shares, within `steps` of work.
#[must_use]
pub fn tiles(shares: &[ViewShare<'_>], file: Range<u64>, steps: u64) -> OverlapAnswer {
    if shares.iter().any(|share| share.view.direction() == Direction::Mixed) {
        return OverlapAnswer::Unknown;
    }
    let inside: Vec<ViewShare<'_>> = shares.iter().map(|share| within(share, &file)).collect();
    let covered: u128 = inside.iter().map(|share| u128::from(share.stream.end - share.stream.start)).sum();
    if covered != u128::from(file.end.saturating_sub(file.start)) {
        return OverlapAnswer::No;
    }
    disjoint(&inside, steps)
}

/// The part of a share in a range of the file: of an increasing view, one range of its stream.
fn within<'v>(share: &ViewShare<'v>, file: &Range<u64>) -> ViewShare<'v> {
    let end = share.stream.end.min(share.view.stream_bytes());
    let at = |offset: u64| {
        share.view.stream_at_or_after(offset).unwrap_or(end).clamp(share.stream.start.min(end), end)
    };
    ViewShare { view: share.view, stream: at(file.start)..at(file.end.max(file.start)) }
}

/// A region of one of the shares.
#[derive(Clone, Copy)]
struct ComparedPiece<'p> {
    owner: usize,
    region: Region<'p>,
}

impl ComparedPiece<'_> {
    fn meets(&self, other: &ComparedPiece<'_>, work: &mut WorkLimit) -> Option<bool> {
        if self.owner == other.owner { Some(false) } else { overlap(&self.region, &other.region, work) }
    }
}

/// Whether any two pieces of different owners share a byte.
fn pieces_overlap(pieces: &mut [ComparedPiece<'_>], work: &mut WorkLimit) -> Option<bool> {
    if let Some(stride) = common_cycle(pieces) {
        return overlap_in_cycle(pieces, stride, work);
    }
    pieces.sort_by_key(|piece| piece.region.bounds().start);
    for (index, piece) in pieces.iter().enumerate() {
        let end = piece.region.bounds().end;
        for other in pieces[index + 1..].iter().take_while(|other| other.region.bounds().start < end) {
            if piece.meets(other, work)? {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// The longest stride, if every piece, or every round of it, fits in that.
fn common_cycle(pieces: &[ComparedPiece<'_>]) -> Option<i64> {
    let stride = pieces.iter().filter_map(|piece| piece.region.stride()).max()?;
    let fits = |piece: &ComparedPiece<'_>| piece.region.length_on_circle(stride) <= stride;
    (0 < stride && pieces.iter().all(fits)).then_some(stride)
}

/// Pieces that overlap also overlap modulo the period: sorted by remainder, few pairs are left.
fn overlap_in_cycle(pieces: &mut [ComparedPiece<'_>], stride: i64, work: &mut WorkLimit) -> Option<bool> {
    let remainder = |piece: &ComparedPiece<'_>| i128::from(piece.region.bounds().start.rem_euclid(stride));
    pieces.sort_by_key(remainder);
    for (index, piece) in pieces.iter().enumerate() {
        let end = remainder(piece) + i128::from(piece.region.length_on_circle(stride));
        let later = pieces[index + 1..].iter().take_while(|other| remainder(other) < end);
        let over_the_top =
            pieces[..index].iter().take_while(|other| remainder(other) < end - i128::from(stride));
        for other in later.chain(over_the_top) {
            if piece.meets(other, work)? {
                return Some(true);
            }
        }
    }
    Some(false)
}
