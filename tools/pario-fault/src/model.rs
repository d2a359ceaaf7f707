//! Allowed contents of a file after its calls and faults, and the check of bytes that were read.
//!
//! Every write has distinct bytes, derived from the run's seed, the writer, the number of the call and the offset in the file; so each
//! byte that is read identifies the writes that may have written it. Always: a byte is that of the newest safe write there, or of a later
//! one; where no write is safe it may be zero.

use std::collections::BTreeSet;
use std::ops::Range;

use pario::core::random::mix;

/// Identity of bytes: the seed of the run and the number of the writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSeed(pub u64);

impl ByteSeed {
    /// The ink of a writer.
    #[must_use]
    pub fn of(seed: u64, writer: u64) -> ByteSeed {
        ByteSeed(mix(seed ^ mix(writer)))
    }

    /// The bytes that a call writes at `offset`.
    pub fn fill(self, call: u64, offset: u64, target: &mut [u8]) {
        let base = self.0 ^ mix(call);
        let (mut word_at, mut word) = (u64::MAX, [0; 8]);
        for (at, byte) in (offset..).zip(target) {
            if word_at != at / 8 {
                word_at = at / 8;
                word = mix(base.wrapping_add(word_at)).to_le_bytes();
            }
            // Never zero, so that an unwritten byte differs from every written one.
            *byte = word[usize::try_from(at % 8).expect("below 8")] | 1;
        }
    }
}

/// How much a write can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It may be there or not: it failed, did not end, or a later error may have been about it.
    Doubtful,
    /// It returned.
    Returned,
    /// A later sync or close returned.
    Safe,
}

#[derive(Clone, Debug)]
struct ModelWrite {
    call: u64,
    range: Range<u64>,
    standing: Standing,
}

/// What counts as acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// Every write that returned: no server died.
    Returned,
    /// Writes that a sync or a close acknowledged.
    Synced,
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct FileModel {
    writes: Vec<ModelWrite>,
}

/// Bytes that no write explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByteMismatch {
    /// Byte range.
    pub range: Range<u64>,
    /// The byte found and the bytes allowed.
    pub text: String,
}

impl FileModel {
    /// A write ended, well or not.
    pub fn wrote(&mut self, call: u64, range: Range<u64>, returned: bool) {
        let standing = if returned { Standing::Returned } else { Standing::Doubtful };
        self.writes.push(ModelWrite { call, range, standing });
    }

    /// A sync or a close returned.
    pub fn synced(&mut self) {
        self.promote(Standing::Safe);
    }

    /// A call failed: writes that were not safe yet may be lost.
    pub fn unsettle_unsynced(&mut self) {
        self.promote(Standing::Doubtful);
    }

    fn promote(&mut self, standing: Standing) {
        for write in &mut self.writes {
            if write.standing == Standing::Returned {
                write.standing = standing;
            }
        }
    }

    /// The shortest and the longest that the file may be.
    #[must_use]
    pub fn lengths(&self, promise: Acknowledged) -> (u64, u64) {
        let end = |write: &ModelWrite| write.range.end;
        let least = self.writes.iter().filter(|write| holds(write, promise)).map(end).max();
        (least.unwrap_or(0), self.writes.iter().map(end).max().unwrap_or(0))
    }

    /// Judges the bytes that were read at `offset`.
    pub fn judge(
        &self,
        ink: ByteSeed,
        promise: Acknowledged,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ByteMismatch> {
        let all = offset..offset + bytes.len() as u64;
        for range in self.segments(&all) {
            let found = &bytes[index(range.start - offset)..index(range.end - offset)];
            self.judge_segment(ink, promise, range, found)?;
        }
        Ok(())
    }

    /// Checks those of the first bytes of a file that this writer wrote; the rest belongs to other writers.
    pub fn judge_written(
        &self,
        ink: ByteSeed,
        promise: Acknowledged,
        bytes: &[u8],
    ) -> Result<(), ByteMismatch> {
        for range in self.segments(&(0..bytes.len() as u64)) {
            let found = &bytes[index(range.start)..index(range.end)];
            if self.writes.iter().any(|write| write.range.contains(&range.start)) {
                self.judge_segment(ink, promise, range, found)?;
            }
        }
        Ok(())
    }

    /// `all`, cut where a write begins or ends.
    fn segments(&self, all: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let mut cuts = BTreeSet::from([all.start, all.end]);
        let ends = self.writes.iter().flat_map(|write| [write.range.start, write.range.end]);
        cuts.extend(ends.filter(|cut| all.contains(cut)));
        let cuts: Vec<u64> = cuts.into_iter().collect();
        (1..cuts.len()).map(move |at| cuts[at - 1]..cuts[at])
    }

    fn judge_segment(
        &self,
        ink: ByteSeed,
        promise: Acknowledged,
        range: Range<u64>,
        found: &[u8],
    ) -> Result<(), ByteMismatch> {
        let covers = |write: &&ModelWrite| write.range.start <= range.start && range.end <= write.range.end;
        let covering: Vec<&ModelWrite> = self.writes.iter().filter(covers).collect();
        let floor = covering.iter().rposition(|write| holds(write, promise));
        let mut candidates: Vec<Vec<u8>> = Vec::new();
        for write in covering[floor.unwrap_or(0)..].iter().rev() {
            let mut bytes = vec![0; found.len()];
            ink.fill(write.call, range.start, &mut bytes);
            if bytes == found {
                return Ok(());
            }
            candidates.push(bytes);
        }
        if floor.is_none() {
            candidates.push(vec![0; found.len()]);
        }
        let explained = |at: usize| candidates.iter().any(|bytes| bytes[at] == found[at]);
        let Some(first) = (0..found.len()).find(|at| !explained(*at)) else { return Ok(()) };
        let wrong = (first..found.len()).take_while(|at| !explained(*at)).count();
        let start = range.start + first as u64;
        Err(ByteMismatch {
            range: start..start + wrong as u64,
            text: self.explain(ink, start, found[first], &covering[floor.unwrap_or(0)..]),
        })
    }

    fn explain(&self, ink: ByteSeed, at: u64, found: u8, candidates: &[&ModelWrite]) -> String {
        let older = self.writes.iter().rev().find(|write| {
            let mut byte = [0];
            ink.fill(write.call, at, &mut byte);
            write.range.contains(&at) && byte[0] == found
        });
        let is = match older {
            Some(write) => format!("call {} wrote it", write.call),
            None if found == 0 => "zero".to_owned(),
            None => format!("{found:#04x}, of no call"),
        };
        let calls: Vec<String> = candidates.iter().map(|write| write.call.to_string()).collect();
        format!("byte {at} is {is}; it must be of call {}", calls.join(" or "))
    }
}

fn holds(write: &ModelWrite, promise: Acknowledged) -> bool {
    match promise {
        Acknowledged::Returned => write.standing != Standing::Doubtful,
        Acknowledged::Synced => write.standing == Standing::Safe,
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("bytes that were read are in memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: ByteSeed = ByteSeed(7);

    /// Writes 1 (synced), 2 (returned), 3 (failed), all over bytes 0 to 99; 4 returned at 200 to 299.
    fn model() -> FileModel {
        let mut model = FileModel::default();
        model.wrote(1, 0..100, true);
        model.synced();
        model.wrote(2, 0..100, true);
        model.wrote(3, 0..100, false);
        model.wrote(4, 200..300, true);
        model
    }

    fn ink(call: u64, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; index(range.end - range.start)];
        INK.fill(call, range.start, &mut bytes);
        bytes
    }

    #[track_caller]
    fn check(promise: Acknowledged, offset: u64, bytes: &[u8], wrong: Option<Range<u64>>) {
        let judged = model().judge(INK, promise, offset, bytes).err();
        // A byte of one write may by chance be that of another, so a longer range may be reported in part.
        let within =
            |found: &ByteMismatch| wrong.as_ref().is_some_and(|wrong| wrong.contains(&found.range.start));
        assert!(judged.as_ref().map_or(wrong.is_none(), within), "{judged:?}, expected {wrong:?}");
    }

    #[test]
    fn later_writes_may_be_there_and_earlier_ones_not() {
        check(Acknowledged::Synced, 0, &ink(1, 0..100), None);
        check(Acknowledged::Synced, 10, &ink(2, 10..50), None);
        check(Acknowledged::Synced, 0, &ink(3, 0..100), None);
        check(Acknowledged::Returned, 0, &ink(1, 0..100), Some(0..100));
        check(Acknowledged::Returned, 0, &ink(3, 0..100), None);
        let mixed = [ink(3, 0..37), ink(2, 37..100)].concat();
        check(Acknowledged::Returned, 0, &mixed, None);
    }

    #[test]
    fn lost_and_foreign_bytes_are_found() {
        check(Acknowledged::Synced, 0, &[0; 100], Some(0..100));
        check(Acknowledged::Synced, 200, &[0; 100], None);
        check(Acknowledged::Returned, 200, &[0; 100], Some(200..300));
        let mut flipped = ink(4, 200..300);
        flipped[41] ^= 4;
        check(Acknowledged::Synced, 200, &flipped, Some(241..242));
        check(Acknowledged::Synced, 100, &[0; 100], None);
        check(Acknowledged::Synced, 100, &[9; 100], Some(100..200));
        let moved = ink(4, 201..301);
        assert!(model().judge(INK, Acknowledged::Returned, 200, &moved).is_err(), "bytes of another offset");
    }

    #[test]
    fn lengths_follow_what_is_promised() {
        assert_eq!(model().lengths(Acknowledged::Synced), (100, 300));
        assert_eq!(model().lengths(Acknowledged::Returned), (300, 300));
    }

    #[test]
    fn an_error_makes_unsynced_writes_doubtful_for_ever() {
        let mut model = model();
        model.unsettle_unsynced();
        model.synced();
        assert_eq!(model.judge(INK, Acknowledged::Synced, 200, &[0; 100]), Ok(()));
        assert!(model.judge(INK, Acknowledged::Synced, 0, &[0; 100]).is_err());
    }
}
