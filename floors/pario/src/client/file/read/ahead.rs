//! Read-ahead of one file: requests under way for the next reads of a sequential or strided reader.
//!
//! Never: leaves a started request on its connection. Always: discarded when its data may be outdated.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pario_core::{ServerIndex, StripePiece};
use pario_sys::mutex::lock;

use crate::client::file::context::FileContext;
use crate::client::session::state::StartedRequest;

/// Read-ahead state: requests under way for a reader that continues where the last read ended, or in steps of one length (a column of a
/// matrix, a rank's share of records).
#[derive(Default)]
pub(super) struct RangeReadAhead {
    /// The last read.
    last: Range<u64>,
    /// Distance from the read before to the last one; 0: unknown, or backwards.
    stride: u64,
    /// Start of the last prefetched read.
    pub(super) prefetched_to: u64,
    pub(super) started: VecDeque<(StripePiece, StartedRequest)>,
}

impl RangeReadAhead {
    /// Notes a read. Returns the expected distance to the next read, if one is expected.
    pub(super) fn step(&mut self, range: &Range<u64>) -> Option<u64> {
        let bytes = range.end - range.start;
        let sequential = self.last.end == range.start;
        let stride = range.start.saturating_sub(self.last.start);
        let equal = bytes == self.last.end - self.last.start;
        let strided = equal && bytes < stride && stride == self.stride;
        (self.last, self.stride) = (range.clone(), stride);
        if sequential { Some(bytes) } else { strided.then_some(stride) }
    }
}

/// A prefetched range.
pub(super) struct StreamReadAhead {
    /// The number of its shape, and its displacement.
    pub(super) view: (u32, u64),
    pub(super) stream: Range<u64>,
    pub(super) started: Vec<PartRequest>,
}

/// A request under way for a server's part of a range.
pub(super) struct PartRequest {
    pub(super) server: ServerIndex,
    pub(super) stream: Range<u64>,
    pub(super) started: StartedRequest,
}

/// See the module.
pub(in crate::client) struct ReadAhead {
    context: Arc<FileContext>,
    /// Set before the first request is kept: a file without any is discarded without a lock.
    used: AtomicBool,
    range: Mutex<RangeReadAhead>,
    stream: Mutex<Option<StreamReadAhead>>,
    /// End of the last stream read by message.
    last_stream_end: AtomicU64,
}

impl ReadAhead {
    pub(in crate::client) fn new(context: &Arc<FileContext>) -> ReadAhead {
        ReadAhead {
            context: Arc::clone(context),
            used: AtomicBool::new(false),
            range: Mutex::default(),
            stream: Mutex::default(),
            last_stream_end: AtomicU64::new(0),
        }
    }

    /// Locks the requests for reads of ranges.
    pub(super) fn range(&self) -> MutexGuard<'_, RangeReadAhead> {
        let range = lock(&self.range);
        self.used.store(true, Ordering::SeqCst);
        range
    }

    /// The end of the stream read before this one, which ends at `end`.
    pub(super) fn last_stream_end(&self, end: u64) -> u64 {
        self.last_stream_end.swap(end, Ordering::AcqRel)
    }

    pub(super) fn take_stream(&self) -> Option<StreamReadAhead> {
        lock(&self.stream).take()
    }

    /// Keeps a prefetched range of a stream in place of another.
    pub(super) fn keep_stream(&self, ahead: StreamReadAhead) {
        let mut stream = lock(&self.stream);
        self.used.store(true, Ordering::SeqCst);
        let before = stream.replace(ahead);
        drop(stream);
        self.finish_stream(before);
    }

    /// The replies are not used, but must not stay on their connections.
    pub(super) fn finish_stream(&self, ahead: Option<StreamReadAhead>) {
        for asked in ahead.into_iter().flat_map(|ahead| ahead.started) {
            let _ = self.context.session.finish(asked.started, None);
        }
    }

    /// Discards prefetched data: it may be outdated.
    pub(in crate::client) fn discard(&self) {
        if !self.used.load(Ordering::SeqCst) {
            return;
        }
        self.finish_stream(self.take_stream());
        for (_, started) in lock(&self.range).started.drain(..) {
            // The reply is not used, but must not stay on the connection.
            let _ = self.context.session.finish(started, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reads: &[(u64, u64)], expected: Option<u64>) {
        let mut ahead = RangeReadAhead::default();
        let steps = reads.iter().map(|(at, bytes)| ahead.step(&(*at..at + bytes)));
        assert_eq!(steps.last().flatten(), expected, "{reads:?}");
    }

    #[test]
    fn rows_and_equal_steps_are_followed() {
        check(&[(0, 10)], Some(10));
        check(&[(50, 10)], None);
        check(&[(50, 10), (60, 20)], Some(20));
        check(&[(50, 10), (150, 10)], None);
        check(&[(50, 10), (150, 10), (250, 10)], Some(100));
        check(&[(50, 10), (150, 10), (250, 11)], None);
        check(&[(50, 10), (150, 10), (260, 10)], None);
        check(&[(250, 10), (150, 10), (50, 10)], None);
        check(&[(50, 10), (55, 10), (60, 10)], None);
    }
}
