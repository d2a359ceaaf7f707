//! One block of the cache: its bytes, which of them are valid, and which of them are dirty.
//!
//! Never: calls the ledger. Always: dirty bytes are valid; invalid bytes have no meaning.

use std::io;

use pario_sys::aligned::{ALIGNMENT, AlignedBuffer};

use crate::disk::DiskFile;
use crate::ranges::{Ranges, Span};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct DirectBlock {
    pub(super) data: AlignedBuffer,
    known: Ranges,
    dirty: Ranges,
}

impl DirectBlock {
    /// A block without valid bytes, in reused or new memory.
    pub(super) fn new(data: Option<AlignedBuffer>) -> DirectBlock {
        let data = data.unwrap_or_else(|| AlignedBuffer::zeroed(BLOCK_BYTES));
        DirectBlock { data, known: Ranges::default(), dirty: Ranges::default() }
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty.total_bytes() as u64
    }

    /// The memory of `span` for overwriting; it is valid and dirty from now on.
    pub(super) fn overwrite(&mut self, span: Span) -> &mut [u8] {
        self.known.insert(span.clone());
        self.dirty.insert(span.clone());
        &mut self.data[span]
    }

    pub(super) fn knows(&self, span: &Span) -> bool {
        self.known.covers(span)
    }

    /// Fetches all invalid bytes of the block.
    pub(super) fn fetch(&mut self, file: &dyn DiskFile, start: u64) -> io::Result<()> {
        self.fetch_gaps(file, start, 0..BLOCK_BYTES)
    }

    /// The aligned spans that must be written to make the block clean; invalid bytes in them are fetched first.
    pub(super) fn prepare_flush(&mut self, file: &dyn DiskFile, start: u64) -> io::Result<Vec<Span>> {
        let spans: Vec<Span> = self.dirty.widened(ALIGNMENT).iter().collect();
        for span in &spans {
            self.fetch_gaps(file, start, span.clone())?;
        }
        Ok(spans)
    }

    /// All dirty bytes are on the disk.
    pub(super) fn flushed(&mut self) {
        self.dirty.clear();
    }

    /// Discards dirty bytes: the disk's bytes are valid again.
    pub(super) fn discard(&mut self) {
        self.dirty.clear();
        self.known.clear();
    }

    /// Truncates the object at `end` of this block; later bytes are zeros.
    pub(super) fn cut(&mut self, end: usize) {
        self.dirty.cut(end);
        self.data[end..].fill(0);
        self.known.insert(end..BLOCK_BYTES);
    }

    fn fetch_gaps(&mut self, file: &dyn DiskFile, start: u64, within: Span) -> io::Result<()> {
        let gaps = self.known.gaps(within);
        let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else { return Ok(()) };
        let wide = first.start / ALIGNMENT * ALIGNMENT..last.end.next_multiple_of(ALIGNMENT);
        let at = start + wide.start as u64;
        if self.known.is_empty() {
            let read = file.read_at(&mut self.data[wide.clone()], at)?;
            self.data[wide.start + read..wide.end].fill(0);
        } else {
            let mut fetched = AlignedBuffer::zeroed(wide.len());
            let read = file.read_at(&mut fetched, at)?;
            fetched[read..].fill(0);
            for gap in &gaps {
                let source = gap.start - wide.start..gap.end - wide.start;
                self.data[gap.clone()].copy_from_slice(&fetched[source]);
            }
        }
        for gap in gaps {
            self.known.insert(gap);
        }
        Ok(())
    }
}
