//! Read-ahead: recognises streams of reads by the distance between them, and names the blocks to prefetch.
//!
//! Never: reads. Always: at most [`STREAMS_MAX`] streams per file; the least recently advanced one is dropped first.

use std::ops::Range;

/// Streams tracked per file.
const STREAMS_MAX: usize = 16;
/// Equal distances that make a stream.
const STEPS_MIN: u32 = 2;
/// Steps prefetched.
const STEPS_AHEAD: u64 = 2;
/// Largest distance of a stream's steps, in blocks; larger ones are chance.
const DISTANCE_MAX: u64 = 1024;

/// See the module. Block indexes are those of one server's object.
#[derive(Debug, Default)]
pub(super) struct ReadStreams {
    /// The most recently advanced stream is last.
    streams: Vec<ReadStream>,
}

#[derive(Clone, Copy, Debug)]
struct ReadStream {
    last: u64,
    distance: u64,
    steps: u32,
}

impl ReadStreams {
    /// A read of these blocks; returns the blocks to prefetch.
    pub(super) fn read(&mut self, blocks: &Range<u64>) -> Vec<u64> {
        let Some(last) = blocks.end.checked_sub(1).filter(|_| !blocks.is_empty()) else { return Vec::new() };
        // Reads within the current block of a stream are ignored.
        if self.streams.iter().any(|stream| stream.last == last) {
            return Vec::new();
        }
        let mut stream = self.take_best(blocks.start).unwrap_or(ReadStream { last, distance: 0, steps: 0 });
        let distance = last - stream.last;
        stream.steps = if distance == stream.distance { stream.steps + 1 } else { u32::from(0 < distance) };
        (stream.last, stream.distance) = (last, distance);
        self.streams.push(stream);
        if STREAMS_MAX < self.streams.len() {
            self.streams.remove(0);
        }
        if stream.steps < STEPS_MIN {
            return Vec::new();
        }
        let width = (blocks.end - blocks.start).min(distance);
        let step = |n: u64| {
            let end = stream.last.saturating_add(n.saturating_mul(distance)).saturating_add(1);
            end.saturating_sub(width)..end
        };
        (1..=STEPS_AHEAD).flat_map(step).collect()
    }

    /// The stream that these blocks continue: the stream that expects them, or else the nearest one before them.
    fn take_best(&mut self, start: u64) -> Option<ReadStream> {
        let expects =
            |stream: &ReadStream| 0 < stream.steps && stream.last.saturating_add(stream.distance) >= start;
        let near = |stream: &ReadStream| {
            stream.last < start.saturating_add(1) && start - stream.last <= DISTANCE_MAX
        };
        let before = |stream: &&ReadStream| near(stream);
        let best = self
            .streams
            .iter()
            .filter(before)
            .max_by_key(|stream| (expects(stream), stream.last))
            .copied()?;
        self.streams.retain(|stream| stream.last != best.last);
        Some(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reads: &[Range<u64>], ahead: &[u64]) {
        let mut streams = ReadStreams::default();
        let last = reads.iter().map(|read| streams.read(read)).last().unwrap_or_default();
        assert_eq!(last, ahead, "{reads:?}");
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "reads are ranges of blocks")]
    fn sequential_and_strided_reads_are_streams_and_chance_is_none() {
        check(&[0..1], &[]);
        check(&[0..1, 1..2], &[]);
        check(&[0..1, 1..2, 2..3], &[3, 4]);
        check(&[0..4, 4..8, 8..12], &[12, 13, 14, 15, 16, 17, 18, 19]);
        check(&[5..6, 15..16, 25..26], &[35, 45]);
        check(&[5..6, 5..6, 15..16, 15..16, 25..26, 25..26], &[]);
        check(&[0..1, 1..2, 2..3, 3..4], &[4, 5]);
        check(&[9..10, 3..4, 7..8, 1..2], &[]);
        check(&[0..1, 5000..5001, 10_000..10_001], &[]);
    }

    #[test]
    fn streams_beside_each_other_are_told_apart_and_bounded() {
        let mut streams = ReadStreams::default();
        for step in 0..5u64 {
            let (one, two) =
                (streams.read(&(step..step + 1)), streams.read(&(1000 + 3 * step..1001 + 3 * step)));
            if step == 4 {
                assert_eq!((one, two), (vec![5, 6], vec![1015, 1018]));
            }
        }
        for n in 0..1000 {
            streams.read(&(n * 5000..n * 5000 + 1));
        }
        assert!(streams.streams.len() <= STREAMS_MAX);
    }
}
