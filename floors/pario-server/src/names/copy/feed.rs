//! The feed: changes on their way from appends to the copier, in memory.
//!
//! Never: grows past `FEED_BYTES_MAX`; on overflow changes are dropped, and the copier writes a new snapshot instead.

use super::super::base::RowsView;

/// Bytes of changes that may wait for the copier.
const FEED_BYTES_MAX: usize = 64 << 20;
/// Sequence number and length of a change.
const HEAD_BYTES: usize = 8 + 4;

/// See the module.
#[derive(Debug)]
pub(in crate::names) struct Feed {
    bytes: Vec<u8>,
    /// Changes were dropped: a new snapshot is required.
    overflowed: bool,
    /// Every change up to this one is in the copy, on stable storage.
    pub(in crate::names) copied: u64,
    /// Every change up to this one was taken out of the feed.
    pub(super) taken: u64,
    /// The last change that was pushed.
    pushed: u64,
    /// The copy cannot be written; nothing waits for it.
    pub(in crate::names) failing: bool,
    /// The copier waits for a view of all rows, with every change up to this one.
    pub(in crate::names) wants_view: Option<u64>,
    /// All rows, up to this change.
    pub(in crate::names) view: Option<(u64, RowsView)>,
}

/// Changes that were taken out of the feed.
#[derive(Debug, Default)]
pub(super) struct FeedChanges {
    bytes: Vec<u8>,
    pub(super) overflowed: bool,
}

impl Feed {
    /// An empty feed; `view` is the ledger's view when opened.
    pub(in crate::names) fn new(view: (u64, RowsView)) -> Feed {
        Feed {
            bytes: Vec::new(),
            overflowed: false,
            copied: 0,
            taken: 0,
            pushed: 0,
            failing: false,
            wants_view: None,
            view: Some(view),
        }
    }

    /// Adds a change; returns whether it is the first that waits.
    pub(in crate::names) fn push(&mut self, sequence: u64, body: &[u8]) -> bool {
        self.pushed = sequence;
        let first = self.bytes.is_empty();
        if FEED_BYTES_MAX < self.bytes.len() + HEAD_BYTES + body.len() {
            self.bytes = Vec::new();
            self.overflowed = true;
        }
        if !self.overflowed {
            self.bytes.extend_from_slice(&sequence.to_le_bytes());
            self.bytes.extend_from_slice(
                &u32::try_from(body.len()).expect("a record is below 8 MiB").to_le_bytes(),
            );
            self.bytes.extend_from_slice(body);
        }
        first
    }

    /// Takes all waiting changes. Dropped changes count as taken: the next snapshot must contain them.
    pub(super) fn take(&mut self) -> FeedChanges {
        if self.overflowed {
            self.taken = self.pushed;
        }
        FeedChanges {
            bytes: std::mem::take(&mut self.bytes),
            overflowed: std::mem::take(&mut self.overflowed),
        }
    }

    /// Whether a log file with this last change may be removed.
    pub(in crate::names) fn releases(&self, last: u64) -> bool {
        self.failing || last <= self.copied
    }

    /// Passes the view to the copier if it waits for one and the view is recent enough; returns whether it did.
    pub(in crate::names) fn offer(&mut self, applied: u64, view: impl FnOnce() -> Option<RowsView>) -> bool {
        if self.wants_view.is_none_or(|wanted| applied < wanted) {
            return false;
        }
        self.view = view().map(|view| (applied, view));
        if self.view.is_some() {
            self.wants_view = None;
        }
        self.view.is_some()
    }
}

impl FeedChanges {
    /// The changes, in order.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEAD_BYTES>()?;
            let sequence = u64::from_le_bytes(*head.first_chunk().expect("12 bytes have 8"));
            let bytes = u32::from_le_bytes(*head.last_chunk().expect("12 bytes have 4"));
            let (body, behind) = behind.split_at(bytes as usize);
            rest = behind;
            Some((sequence, body))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_after_an_overflow_must_have_what_was_dropped() {
        let mut feed = Feed {
            bytes: Vec::new(),
            overflowed: false,
            copied: 3,
            taken: 3,
            pushed: 3,
            failing: false,
            wants_view: None,
            view: None,
        };
        let body = vec![0; 4 << 20];
        let count = (FEED_BYTES_MAX / body.len()) as u64;
        for sequence in 4..4 + count {
            feed.push(sequence, &body);
        }
        assert!(feed.take().overflowed);
        assert_eq!(feed.taken, 3 + count);
        feed.push(4 + count, &body);
        let taken = feed.take();
        assert!(!taken.overflowed);
        assert_eq!(taken.changes().map(|(sequence, _)| sequence).collect::<Vec<_>>(), [4 + count]);
    }
}
