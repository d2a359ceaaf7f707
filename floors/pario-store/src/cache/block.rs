//! One block of a cache: its bytes, which of them are valid, and which of them are dirty.
//!
//! Never: knows its position in a file. Always: dirty bytes are valid; invalid bytes have no meaning.

use pario_sys::aligned::try_zeroed;

use crate::ranges::{Ranges, Span};

/// See the module.
#[derive(Debug)]
pub struct Block {
    data: Box<[u8]>,
    known: Ranges,
    dirty: Ranges,
}

impl Block {
    /// A block without valid bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Block {
        Block { data: vec![0; bytes].into(), known: Ranges::default(), dirty: Ranges::default() }
    }

    /// The same; `None` without memory for it.
    #[must_use]
    pub fn try_new(bytes: usize) -> Option<Block> {
        Some(Block { data: try_zeroed(bytes)?, known: Ranges::default(), dirty: Ranges::default() })
    }

    /// Bytes in it.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block has at least a byte")]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Bytes that are dirty.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.total_bytes() as u64
    }

    /// The memory of `span` for overwriting; it is valid and dirty from now on.
    pub fn overwrite(&mut self, span: Span) -> &mut [u8] {
        self.known.insert(span.clone());
        self.dirty.insert(span.clone());
        &mut self.data[span]
    }

    /// Whether all of `span` is valid.
    #[must_use]
    pub fn knows(&self, span: &Span) -> bool {
        self.known.covers(span)
    }

    /// The bytes of `span`, which must be valid.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.data[span]
    }

    /// Adds the backing store's bytes of the whole block; dirty bytes stay.
    pub fn learn(&mut self, fetched: &[u8]) {
        for gap in self.known.gaps(0..self.data.len()) {
            self.data[gap.clone()].copy_from_slice(&fetched[gap]);
        }
        self.known.insert(0..self.data.len());
    }

    /// Has `read` fetch the backing store's bytes of the whole block; dirty bytes stay.
    pub fn fetch<E>(&mut self, read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        if !self.known.is_empty() {
            let mut fetched = vec![0; self.data.len()];
            read(&mut fetched)?;
            self.learn(&fetched);
            return Ok(());
        }
        read(&mut self.data)?;
        self.known.insert(0..self.data.len());
        Ok(())
    }

    /// The spans that must be written to make the block clean.
    pub fn dirty(&self) -> impl Iterator<Item = (Span, &[u8])> {
        self.dirty.iter().map(|span| (span.clone(), &self.data[span]))
    }

    /// All dirty bytes are in the backing store now.
    pub fn flushed(&mut self) {
        self.dirty.clear();
    }

    /// Invalidates clean bytes: they may have changed in the backing store.
    pub fn forget_clean(&mut self) {
        self.known = self.dirty.clone();
    }

    /// Truncates the file at `end` of this block; later bytes are zeros.
    pub fn cut(&mut self, end: usize) {
        self.dirty.cut(end);
        self.data[end..].fill(0);
        self.known.insert(end..self.data.len());
    }

    /// Copies dirty bytes over a buffer that begins at `start` of the block.
    pub fn overlay(&self, start: usize, target: &mut [u8]) {
        let end = start + target.len();
        for (span, _) in self.dirty().filter(|(span, _)| span.start < end && start < span.end) {
            let part = span.start.max(start)..span.end.min(end);
            target[part.start - start..part.end - start].copy_from_slice(&self.data[part]);
        }
    }
}
