//! Effect of a write on an object's checksums, computed before its first byte is written.
//!
//! Never: writes; trusts the remaining bytes of a granule without a check. Always: a partly overwritten granule keeps the state of the
//! rest: damaged stays damaged, unknown stays unknown.

use std::ops::Range;

use pario_sys::MemoryPiece;

use super::table::{GRANULE, GRANULE_BYTES, GranuleSum, granule_crc};
use crate::error::StoreError;

/// Bytes for an offset of the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObjectPart<'a> {
    pub(super) at: u64,
    pub(super) piece: MemoryPiece<'a>,
}

impl ObjectPart<'_> {
    fn end(&self) -> u64 {
        self.at + self.piece.len() as u64
    }
}

/// Granules that a range touches.
pub(super) fn granules(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / GRANULE_BYTES..range.end.div_ceil(GRANULE_BYTES)
}

/// The touched granules, ascending, with their new checksums. `parts` ascend and do not overlap; `read` fills a granule's present bytes;
/// `sum` is their recorded checksum.
pub(super) fn of_parts(
    parts: &[ObjectPart<'_>],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<Old, StoreError>,
    sum: impl Fn(u64) -> GranuleSum,
) -> Result<Vec<(u64, GranuleSum)>, StoreError> {
    let mut changed = Vec::new();
    let mut buffer = vec![0; GRANULE];
    let (mut first, mut next) = (0, 0);
    while let Some(part) = parts.get(first) {
        let granule = next.max(part.at / GRANULE_BYTES);
        let range = granule * GRANULE_BYTES..(granule + 1) * GRANULE_BYTES;
        let touching = parts[first..].iter().take_while(|part| part.at < range.end).count();
        let parts_here = &parts[first..first + touching];
        let covered: usize = parts_here.iter().map(|part| overlap(part, &range).2).sum();
        let rest = if covered == GRANULE {
            RestState::Replaced
        } else {
            let old = read(granule, &mut buffer)?;
            RestState::of(sum(granule), old, &buffer)
        };
        if covered != 0 {
            changed.push((granule, rest.with(parts_here, &range, &mut buffer)));
        }
        next = granule + 1;
        first += parts_here.iter().take_while(|part| part.end() <= range.end).count();
    }
    Ok(changed)
}

/// Result of reading a granule's old bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Old {
    Read,
    /// Some are lost.
    Lost,
}

/// State of the remaining bytes of a partly overwritten granule.
enum RestState {
    /// No bytes remain.
    Replaced,
    Right,
    Unknown,
    Damaged,
}

impl RestState {
    fn of(sum: GranuleSum, old: Old, bytes: &[u8]) -> RestState {
        match (old, sum) {
            (Old::Lost, _) | (_, GranuleSum::Damaged) => RestState::Damaged,
            (Old::Read, GranuleSum::Known(_)) if sum.allows(bytes) => RestState::Right,
            (Old::Read, GranuleSum::Known(_)) => RestState::Damaged,
            // Bytes without an entry belong to a writer that died before it made one.
            (Old::Read, GranuleSum::None) if bytes.iter().all(|byte| *byte == 0) => RestState::Right,
            (Old::Read, GranuleSum::None | GranuleSum::Unknown) => RestState::Unknown,
        }
    }

    fn with(self, parts: &[ObjectPart<'_>], range: &Range<u64>, buffer: &mut [u8]) -> GranuleSum {
        match self {
            RestState::Unknown => return GranuleSum::Unknown,
            RestState::Damaged => return GranuleSum::Damaged,
            RestState::Replaced | RestState::Right => {}
        }
        for part in parts {
            let (from, to, bytes) = overlap(part, range);
            part.piece.part(from, bytes).copy_to(&mut buffer[to..to + bytes]);
        }
        GranuleSum::Known(granule_crc(buffer))
    }
}

/// The overlap of a part with a granule: offset in the part, offset in the granule, length.
fn overlap(part: &ObjectPart<'_>, granule: &Range<u64>) -> (usize, usize, usize) {
    let (start, end) = (part.at.max(granule.start), part.end().min(granule.end));
    let length = |bytes: u64| usize::try_from(bytes).expect("inside memory");
    (length(start - part.at), length(start - granule.start), length(end.saturating_sub(start)))
}
