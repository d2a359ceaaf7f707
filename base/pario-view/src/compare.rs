//! Several views together: are they disjoint, do they tile a range?
//!
//! Never: works longer than it may. Always: `Yes` and `No` are exact.

use std::ops::Range;

use crate::overlap::{Region, Work, overlap};
use crate::program::Placed;
use crate::view::{Direction, View};

/// Steps that are enough for thousands of regular views, or some irregular ones of a hundred thousand pieces.
pub const COMPARE_STEPS: u64 = 4_000_000;

/// What is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// Finding out would take more work than allowed.
    Unknown,
}

/// A range of a view's stream.
#[derive(Clone, Debug)]
pub struct Share<'v> {
    /// The view.
    pub view: &'v View,
    /// The range of its stream.
    pub stream: Range<u64>,
}

impl<'v> Share<'v> {
    /// All of a view, repeated for ever.
    #[must_use]
    pub fn whole(view: &'v View) -> Share<'v> {
        Share { view, stream: 0..view.stream_bytes() }
    }
}

/// Whether no byte of the file belongs to two of the shares, within `steps` of work.
#[must_use]
pub fn disjoint(shares: &[Share<'_>], steps: u64) -> Answer {
    let mut pieces = Vec::new();
    for (owner, share) in shares.iter().enumerate() {
        let (program, base) = share.view.program();
        let Some(root) = program.root else { continue };
        let end = share.stream.end.min(program.size());
        let mut regions = Vec::new();
        let root = Placed { at: base + root.at, ..root };
        Region::cut(&program.nodes, root, share.stream.start.min(end)..end, &mut regions);
        pieces.extend(regions.into_iter().map(|region| Piece { owner, region }));
    }
    let mut work = Work(steps);
    match meet(&mut pieces, &mut work) {
        Some(true) => Answer::No,
        Some(false) => Answer::Yes,
        None => Answer::Unknown,
    }
}

/// Whether every byte of a range of the file belongs to exactly one of the shares, within `steps` of work.
#[must_use]
pub fn tiles(shares: &[Share<'_>], file: Range<u64>, steps: u64) -> Answer {
    if shares.iter().any(|share| share.view.direction() == Direction::Mixed) {
        return Answer::Unknown;
    }
    let inside: Vec<Share<'_>> = shares.iter().map(|share| within(share, &file)).collect();
    let covered: u128 = inside.iter().map(|share| u128::from(share.stream.end - share.stream.start)).sum();
    if covered != u128::from(file.end.saturating_sub(file.start)) {
        return Answer::No;
    }
    disjoint(&inside, steps)
}

/// The part of a share in a range of the file: of an increasing view, one range of its stream.
fn within<'v>(share: &Share<'v>, file: &Range<u64>) -> Share<'v> {
    let end = share.stream.end.min(share.view.stream_bytes());
    let at = |offset: u64| {
        share.view.stream_at_or_after(offset).unwrap_or(end).clamp(share.stream.start.min(end), end)
    };
    Share { view: share.view, stream: at(file.start)..at(file.end.max(file.start)) }
}

/// A region of one of the shares.
#[derive(Clone, Copy)]
struct Piece<'p> {
    owner: usize,
    region: Region<'p>,
}

impl Piece<'_> {
    fn meets(&self, other: &Piece<'_>, work: &mut Work) -> Option<bool> {
        if self.owner == other.owner { Some(false) } else { overlap(&self.region, &other.region, work) }
    }
}

/// Whether any two pieces of different owners share a byte.
fn meet(pieces: &mut [Piece<'_>], work: &mut Work) -> Option<bool> {
    if let Some(stride) = common_cycle(pieces) {
        return meet_in_cycle(pieces, stride, work);
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
fn common_cycle(pieces: &[Piece<'_>]) -> Option<i64> {
    let stride = pieces.iter().filter_map(|piece| piece.region.stride()).max()?;
    let fits = |piece: &Piece<'_>| piece.region.length_on_circle(stride) <= stride;
    (0 < stride && pieces.iter().all(fits)).then_some(stride)
}

/// Pieces that meet also meet on the circle of remainders: sorted there, few pairs are left.
fn meet_in_cycle(pieces: &mut [Piece<'_>], stride: i64, work: &mut Work) -> Option<bool> {
    let remainder = |piece: &Piece<'_>| i128::from(piece.region.bounds().start.rem_euclid(stride));
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
