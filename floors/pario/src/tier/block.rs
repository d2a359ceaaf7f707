//! One block of the tier's cache: its bytes, which of them are known, and which of them the partition does not have yet.
//!
//! Never: knows where it belongs. Always: what is dirty is known; bytes that are not known mean nothing.

use pario_server::store::ranges::{Ranges, Span};

/// See the module.
#[derive(Debug)]
pub(super) struct Block {
    data: Box<[u8]>,
    known: Ranges,
    dirty: Ranges,
}

impl Block {
    /// A block of which nothing is known.
    pub(super) fn new(bytes: usize) -> Block {
        Block { data: vec![0; bytes].into(), known: Ranges::default(), dirty: Ranges::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty.total_bytes() as u64
    }

    /// Where `span` is to be overwritten; it counts as known and dirty from now on.
    pub(super) fn overwrite(&mut self, span: Span) -> &mut [u8] {
        self.known.insert(span.clone());
        self.dirty.insert(span.clone());
        &mut self.data[span]
    }

    pub(super) fn knows(&self, span: &Span) -> bool {
        self.known.covers(span)
    }

    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        &self.data[span]
    }

    /// The partition's bytes of the whole block; what was written here stays.
    pub(super) fn learn(&mut self, fetched: &[u8]) {
        for gap in self.known.gaps(0..self.data.len()) {
            self.data[gap.clone()].copy_from_slice(&fetched[gap]);
        }
        self.known.insert(0..self.data.len());
    }

    /// What must be written so that the partition has all of it.
    pub(super) fn dirty(&self) -> impl Iterator<Item = (Span, &[u8])> {
        self.dirty.iter().map(|span| (span.clone(), &self.data[span]))
    }

    /// The partition has what was dirty.
    pub(super) fn flushed(&mut self) {
        self.dirty.clear();
    }

    /// What was not written here may have changed in the partition.
    pub(super) fn forget_clean(&mut self) {
        self.known = self.dirty.clone();
    }

    /// Puts what is dirty over bytes from elsewhere that begin at `start` of the block.
    pub(super) fn overlay(&self, start: usize, target: &mut [u8]) {
        let end = start + target.len();
        for (span, _) in self.dirty().filter(|(span, _)| span.start < end && start < span.end) {
            let part = span.start.max(start)..span.end.min(end);
            target[part.start - start..part.end - start].copy_from_slice(&self.data[part]);
        }
    }
}
