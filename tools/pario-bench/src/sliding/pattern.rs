//! The sliding window: the pages that a process reads and writes in each turn, and their possible contents.
//!
//! ```text
//!  pages     | 0 | 1 | 2 | 3 | 4 | 5 | …        windows of two pages, each overlapping the next by one
//!  windows   |--0--|                            a segment has as many windows as there are processes;
//!                |--1--|                        process r begins with window r of the segment and goes on to the next,
//!                    |--2--|                    until it has been in all of them; then the next segment
//! ```
//! Every word of a page is a *stamp*: its writer, and the turn in that process's own order.
//!
//! Never: does I/O. Always: a page that was written by one call is one stamp over and over.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Pages of a window.
pub(super) const WINDOW_PAGES: u64 = 2;
const WORD: usize = 8;
/// Bytes filled word by word, before they are copied.
const SEED_BYTES: usize = 4096;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SlidingPattern {
    pub(super) processes: u64,
    pub(super) page_bytes: u64,
    pub(super) segments: u64,
    /// Passes over each segment.
    pub(super) rounds: u64,
}

/// Writer and turn of a page, or its initial state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PageStamp {
    /// Initial contents of that page.
    First(u64),
    Written {
        rank: u64,
        turn: u64,
    },
}

impl PageStamp {
    fn word(self) -> u64 {
        match self {
            PageStamp::First(page) => page << 8,
            PageStamp::Written { rank, turn } => turn << 8 | (rank + 1),
        }
    }

    fn of(word: u64) -> PageStamp {
        match (word & 0xff, word >> 8) {
            (0, page) => PageStamp::First(page),
            (rank, turn) => PageStamp::Written { rank: rank - 1, turn },
        }
    }

    /// Fills a page with this stamp.
    pub(super) fn fill(self, page: &mut [u8]) {
        let seed = page.len().min(SEED_BYTES);
        let (head, rest) = page.split_at_mut(seed);
        let word = self.word().to_le_bytes();
        for place in head.chunks_exact_mut(WORD) {
            place.copy_from_slice(&word);
        }
        for place in rest.chunks_mut(seed.max(1)) {
            place.copy_from_slice(&head[..place.len()]);
        }
    }
}

/// Atomicity of one write, as seen by other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whole {
    /// A page.
    Page,
    /// A word only.
    Word,
}

impl SlidingPattern {
    /// The pattern on a file of about `bytes` bytes.
    pub(super) fn over(bytes: u64, processes: u64, page_bytes: u64, rounds: u64) -> SlidingPattern {
        let segments = (bytes / (processes * page_bytes)).max(1);
        SlidingPattern { processes, page_bytes, segments, rounds }
    }

    /// Accesses (of a window, read and written) of each process.
    pub(super) fn turns(&self) -> u64 {
        self.segments * self.rounds * self.processes
    }

    pub(super) fn pages(&self) -> u64 {
        self.segments * self.processes + (WINDOW_PAGES - 1)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.pages() * self.page_bytes
    }

    pub(super) fn window_bytes(&self) -> u64 {
        WINDOW_PAGES * self.page_bytes
    }

    /// Bytes that all processes together read and write.
    pub(super) fn moved_bytes(&self) -> u64 {
        2 * self.processes * self.turns() * self.window_bytes()
    }

    /// The first page of a process's window in a turn.
    pub(super) fn window(&self, rank: u64, turn: u64) -> u64 {
        let segment = turn / (self.rounds * self.processes);
        segment * self.processes + (rank + turn) % self.processes
    }

    /// The last turn before `end` in which a process wrote a page; `None` if it never did.
    pub(super) fn last_write(&self, rank: u64, page: u64, end: u64) -> Option<u64> {
        // The page is in windows of at most two segments, this one and the one before.
        let each = self.rounds * self.processes;
        let segment = page / self.processes;
        let from = segment.saturating_sub(1) * each;
        let to = ((segment + 1) * each).min(end).min(self.turns());
        (from..to).rev().find(|turn| {
            let first = self.window(rank, *turn);
            (first..first + WINDOW_PAGES).contains(&page)
        })
    }

    /// Whether any process writes this stamp to a page.
    fn is_ever(&self, page: u64, stamp: PageStamp) -> bool {
        match stamp {
            PageStamp::First(of) => of == page,
            PageStamp::Written { rank, turn } => {
                let first = self.window(rank, turn);
                rank < self.processes && turn < self.turns() && (first..first + WINDOW_PAGES).contains(&page)
            }
        }
    }

    /// Whether a stamp may remain on a page at the end.
    fn is_last(&self, page: u64, stamp: PageStamp) -> bool {
        match stamp {
            // Every page is in a window that all processes access.
            PageStamp::First(_) => false,
            PageStamp::Written { rank, turn } => {
                rank < self.processes && self.last_write(rank, page, self.turns()) == Some(turn)
            }
        }
    }

    /// Checks a page at the end.
    pub(super) fn check_end(&self, page: u64, bytes: &[u8], whole: Whole) -> Result<(), String> {
        stamps(bytes, whole).and_then(|stamps| {
            let wrong = stamps.into_iter().find(|stamp| !self.is_last(page, *stamp));
            wrong.map_or(Ok(()), |stamp| Err(format!("it has {stamp:?}, which was not the last")))
        })
    }
}

/// Stamps seen by one process, which later reads must be consistent with.
#[derive(Debug)]
pub(super) struct SeenStamps {
    pattern: SlidingPattern,
    rank: u64,
    whole: Whole,
    /// The latest turn of each process seen on a page of this segment.
    latest: BTreeMap<(u64, u64), u64>,
}

impl SeenStamps {
    pub(super) fn new(pattern: SlidingPattern, rank: u64, whole: Whole) -> SeenStamps {
        SeenStamps { pattern, rank, whole, latest: BTreeMap::new() }
    }

    /// Checks a page that was read in a turn.
    pub(super) fn check(&mut self, turn: u64, page: u64, bytes: &[u8]) -> Result<(), String> {
        let found = stamps(bytes, self.whole)?;
        if let Some(stamp) = found.iter().find(|stamp| !self.pattern.is_ever(page, **stamp)) {
            return Err(format!("{stamp:?} was never written there"));
        }
        let (Whole::Page, Some(stamp)) = (self.whole, found.first()) else { return Ok(()) };
        let mine = self.pattern.last_write(self.rank, page, turn);
        match *stamp {
            PageStamp::First(_) if mine.is_some() => Err("what this process wrote is gone".to_owned()),
            PageStamp::First(_) if self.latest.range((page, 0)..(page + 1, 0)).next().is_some() => {
                Err("what was seen is gone".to_owned())
            }
            PageStamp::Written { rank, turn } if rank == self.rank && Some(turn) != mine => {
                Err(format!("this process's write of turn {turn} came back after that of {mine:?}"))
            }
            PageStamp::First(_) => Ok(()),
            PageStamp::Written { rank, turn } => self.see(page, rank, turn),
        }
    }

    fn see(&mut self, page: u64, rank: u64, turn: u64) -> Result<(), String> {
        let latest = self.latest.entry((page, rank)).or_insert(turn);
        if turn < *latest {
            return Err(format!("rank {rank}'s write of turn {turn} came back after that of {latest}"));
        }
        *latest = turn;
        Ok(())
    }

    /// Drops pages that are not read again.
    pub(super) fn forget_before(&mut self, page: u64) {
        self.latest = self.latest.split_off(&(page, 0));
    }
}

/// The stamps of a page: one, if writes of pages are atomic; each distinct one, if only words are.
fn stamps(bytes: &[u8], whole: Whole) -> Result<Vec<PageStamp>, String> {
    let Some((first, rest)) = bytes.split_first_chunk::<WORD>() else { return Err("it is empty".to_owned()) };
    let stamp = |word: &[u8; WORD]| PageStamp::of(u64::from_le_bytes(*word));
    // Each word equals the one before it.
    if *rest == bytes[..rest.len()] {
        return Ok(vec![stamp(first)]);
    }
    if whole == Whole::Page {
        return Err("it is a mixture of several writes".to_owned());
    }
    let (words, _) = bytes.as_chunks::<WORD>();
    let mut found: Vec<PageStamp> = words.iter().map(stamp).collect();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: SlidingPattern = SlidingPattern { processes: 4, page_bytes: 64, segments: 3, rounds: 2 };

    fn page(stamp: PageStamp) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        stamp.fill(&mut bytes);
        bytes
    }

    fn written(rank: u64, turn: u64) -> PageStamp {
        PageStamp::Written { rank, turn }
    }

    #[test]
    fn every_process_slides_through_all_windows_of_each_segment() {
        for rank in 0..4 {
            for (segment, turns) in (0..PATTERN.turns()).collect::<Vec<_>>().chunks(8).enumerate() {
                let mut windows: Vec<u64> = turns.iter().map(|turn| PATTERN.window(rank, *turn)).collect();
                assert_eq!(windows[0], 4 * segment as u64 + rank, "it begins with its own");
                windows.sort_unstable();
                windows.dedup();
                let first = 4 * segment as u64;
                assert_eq!(windows, (first..first + 4).collect::<Vec<_>>());
            }
        }
        assert_eq!((PATTERN.pages(), PATTERN.turns()), (13, 24));
        assert_eq!(PATTERN.moved_bytes(), 2 * 4 * 24 * 128);
        let over = SlidingPattern::over(256 << 20, 4, 256 << 10, 1);
        assert_eq!((over.segments, over.file_bytes()), (256, (256 << 20) + (256 << 10)));
    }

    #[test]
    fn stamps_are_told_from_every_word_of_a_page() {
        for stamp in [PageStamp::First(12), written(0, 0), written(3, 23)] {
            assert_eq!(stamps(&page(stamp), Whole::Page), Ok(vec![stamp]));
        }
        let mut torn = page(written(1, 7));
        torn[32..].copy_from_slice(&page(written(2, 3))[32..]);
        assert!(stamps(&torn, Whole::Page).is_err());
        assert_eq!(stamps(&torn, Whole::Word), Ok(vec![written(1, 7), written(2, 3)]));
    }

    #[test]
    fn what_nobody_wrote_and_what_comes_back_is_found() {
        let mut seen = SeenStamps::new(PATTERN, 0, Whole::Page);
        seen.check(0, 0, &page(PageStamp::First(0))).unwrap();
        assert!(seen.check(0, 0, &page(PageStamp::First(1))).is_err(), "another page's");
        assert!(seen.check(1, 0, &page(PageStamp::First(0))).is_err(), "the own write is gone");
        // Rank 1 is in window 1 at turn 0 and in window 0 at turn 3.
        assert!(seen.check(1, 0, &page(written(1, 0))).is_err(), "it was not there");
        seen.check(1, 1, &page(written(1, 0))).unwrap();
        seen.check(1, 1, &page(written(1, 3))).unwrap();
        assert!(seen.check(1, 1, &page(written(1, 0))).is_err(), "older than what was seen");
        assert!(seen.check(4, 1, &page(written(0, 0))).is_err(), "rank 0 wrote it again in turn 1");
        seen.check(4, 1, &page(written(0, 1))).unwrap();
        seen.forget_before(2);
        assert!(seen.latest.is_empty());
    }

    #[test]
    fn only_a_last_write_may_be_left() {
        let last = PATTERN.last_write(2, 4, PATTERN.turns()).unwrap();
        PATTERN.check_end(4, &page(written(2, last)), Whole::Page).unwrap();
        assert!(PATTERN.check_end(4, &page(written(2, last - 4)), Whole::Page).is_err());
        assert!(PATTERN.check_end(4, &page(PageStamp::First(4)), Whole::Page).is_err());
        for page in 0..PATTERN.pages() {
            for rank in 0..4 {
                assert!(PATTERN.last_write(rank, page, PATTERN.turns()).is_some(), "{rank} {page}");
            }
        }
    }
}
