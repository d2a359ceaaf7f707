//! Which bytes of the file each thread writes in each call. Pure.
//!
//! Always: the parts of all threads tile the file; every byte is a function of its offset in the file, apart from a stamp at the start of
//! each part in timed runs.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::kernel::data::fill_run;
use crate::kernel::shapes::ShapeSpec;

/// Bytes at the start of a part that are written anew for each call: the offset of the part.
pub(super) const STAMP_BYTES: usize = 8;

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum TeamPattern {
    /// Parts of equal size, one after the other by thread and call.
    Parts {
        /// Bytes of a part.
        part_bytes: u64,
        /// Calls of each thread.
        calls: u64,
    },
    /// One buffer of all threads in each call.
    Common {
        /// Bytes of the buffer.
        bytes: u64,
        /// Calls of each thread.
        calls: u64,
    },
    /// Parts of equal size that are written again after `wrap` calls, at explicit offsets.
    Again {
        /// Bytes of a part.
        part_bytes: u64,
        /// Calls of each thread.
        calls: u64,
        /// Calls that fill the file.
        wrap: u64,
    },
    /// The shape of a kernel: lists of pieces.
    Shape(ShapeSpec),
}

/// What one thread writes in its calls.
#[derive(Clone, Debug)]
pub(super) struct ThreadPart {
    /// Offsets and lengths of the pieces of the first call, in the order of memory.
    pub(super) pieces: Vec<(u64, usize)>,
    /// Bytes by which the file moves on with each call.
    pub(super) step_bytes: u64,
    /// Calls after which it begins anew; 0: never.
    wrap: u64,
}

impl TeamPattern {
    /// Calls of each thread.
    pub(super) fn calls(&self) -> u64 {
        match self {
            TeamPattern::Parts { calls, .. }
            | TeamPattern::Common { calls, .. }
            | TeamPattern::Again { calls, .. } => *calls,
            TeamPattern::Shape(spec) => spec.steps(),
        }
    }

    /// Bytes that all threads write in one call.
    pub(super) fn step_bytes(&self, threads: u32) -> u64 {
        match self {
            TeamPattern::Parts { part_bytes, .. } | TeamPattern::Again { part_bytes, .. } => {
                part_bytes * u64::from(threads)
            }
            TeamPattern::Common { bytes, .. } => *bytes,
            TeamPattern::Shape(spec) => spec.span_bytes(u64::from(threads)),
        }
    }

    /// Bytes written by all calls.
    pub(super) fn data_bytes(&self, threads: u32) -> u64 {
        self.step_bytes(threads) * self.calls()
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self, threads: u32) -> u64 {
        if let TeamPattern::Again { wrap, calls, .. } = self {
            return self.step_bytes(threads) * (*wrap).min(*calls);
        }
        self.data_bytes(threads)
    }

    /// The part of a thread, or of one thread that writes for all.
    pub(super) fn part(&self, thread: u32, threads: u32) -> Result<ThreadPart, BenchError> {
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (pieces, wrap) = match self {
            TeamPattern::Parts { part_bytes, .. } => {
                (vec![(u64::from(thread) * part_bytes, bytes(*part_bytes))], 0)
            }
            TeamPattern::Again { part_bytes, wrap, .. } => {
                (vec![(u64::from(thread) * part_bytes, bytes(*part_bytes))], *wrap)
            }
            TeamPattern::Common { bytes: all, .. } => (vec![(0, bytes(*all))], 0),
            TeamPattern::Shape(spec) => {
                let wrong = |error: crate::kernel::shapes::ShapeError| BenchError::Worker(error.0);
                let part = spec.part(u64::from(thread), u64::from(threads)).map_err(wrong)?;
                let view = part.view().map_err(wrong)?;
                let extents = view.extents(part.stream(0));
                (extents.map(|extent| (extent.file_offset, bytes(extent.bytes))).collect(), 0)
            }
        };
        Ok(ThreadPart { pieces, step_bytes: self.step_bytes(threads), wrap })
    }
}

impl ThreadPart {
    /// Bytes of one call.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes by which the pieces of a call lie behind those of the first one.
    pub(super) fn ahead(&self, call: u64) -> u64 {
        if self.wrap == 0 { call * self.step_bytes } else { call % self.wrap * self.step_bytes }
    }

    /// Offset of the first piece in a call.
    pub(super) fn offset(&self, call: u64) -> u64 {
        self.pieces.first().map_or(0, |(offset, _)| *offset) + self.ahead(call)
    }

    /// Fills the buffer with the bytes of a call.
    pub(super) fn fill(&self, buffer: &mut [u8], call: u64) {
        for (range, offset) in self.ranges(call) {
            fill_run(&mut buffer[range], offset);
        }
    }

    /// Ranges of the buffer, and their offsets in a call.
    fn ranges(&self, call: u64) -> impl Iterator<Item = (Range<usize>, u64)> + '_ {
        let ahead = self.ahead(call);
        let mut at = 0;
        self.pieces.iter().map(move |(offset, bytes)| {
            at += bytes;
            (at - bytes..at, offset + ahead)
        })
    }

    /// Marks the buffer with the call.
    pub(super) fn stamp(&self, buffer: &mut [u8], call: u64) {
        let bytes = STAMP_BYTES.min(buffer.len());
        buffer[..bytes].copy_from_slice(&self.offset(call).to_le_bytes()[..bytes]);
    }

    /// Whether a buffer that was read has the mark of the call.
    pub(super) fn is_stamped(&self, buffer: &[u8], call: u64) -> bool {
        let bytes = STAMP_BYTES.min(buffer.len());
        buffer[..bytes] == self.offset(call).to_le_bytes()[..bytes]
    }
}

/// The first wrong byte of a file of unstamped parts.
pub(super) fn first_wrong(content: &[u8], file_offset: u64) -> Option<u64> {
    let mut expected = vec![0; content.len()];
    fill_run(&mut expected, file_offset);
    let wrong = content.iter().zip(&expected).position(|(is, should)| is != should);
    wrong.map(|at| file_offset + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::BtioClass;
    use crate::kernel::shapes::Btio;

    /// The parts of all threads and calls tile the file, and what they fill is right at its place.
    #[test]
    fn parts_of_all_threads_tile_the_file() {
        let btio = ShapeSpec::Btio(Btio { class: BtioClass::S, dumps: 2, run_cells: None });
        for (pattern, threads) in [
            (TeamPattern::Parts { part_bytes: 1000, calls: 3 }, 3),
            (TeamPattern::Again { part_bytes: 24, calls: 5, wrap: 2 }, 2),
            (TeamPattern::Shape(btio), 4),
        ] {
            let bytes = usize::try_from(pattern.file_bytes(threads)).unwrap();
            let (mut file, mut written) = (vec![0; bytes], 0);
            for thread in 0..threads {
                let part = pattern.part(thread, threads).unwrap();
                let mut buffer = vec![0; part.bytes()];
                for call in 0..pattern.calls() {
                    part.fill(&mut buffer, call);
                    for (range, offset) in part.ranges(call) {
                        let at = usize::try_from(offset).unwrap();
                        written += range.len();
                        file[at..at + range.len()].copy_from_slice(&buffer[range]);
                    }
                }
            }
            assert_eq!(written as u64, pattern.data_bytes(threads), "{pattern:?}");
            assert_eq!(first_wrong(&file, 0), None, "{pattern:?}");
            file[13] ^= 1;
            assert_eq!(first_wrong(&file[8..], 8), Some(13));
        }
    }

    #[test]
    fn stamps_tell_calls_apart() {
        let part = TeamPattern::Parts { part_bytes: 100, calls: 3 }.part(1, 2).unwrap();
        let mut buffer = vec![0; part.bytes()];
        part.stamp(&mut buffer, 2);
        assert!(part.is_stamped(&buffer, 2) && !part.is_stamped(&buffer, 1));
        assert_eq!(part.offset(2), 500);
    }
}
