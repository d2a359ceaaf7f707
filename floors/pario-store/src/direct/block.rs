//! One block of the cache: its bytes, which of them are known, and which of them the disk does not have yet.
//!
//! Never: talks to the ledger. Always: what is dirty is known; bytes that are not known mean nothing.

use std::io;

use pario_sys::aligned::{ALIGNMENT, AlignedBuffer};

use crate::disk::DiskFile;
use crate::ranges::{Ranges, Span};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Block {
    pub(super) data: AlignedBuffer,
    known: Ranges,
    dirty: Ranges,
}

impl Block {
    /// A block of which nothing is known, in memory that was used before or is new.
    pub(super) fn new(data: Option<AlignedBuffer>) -> Block {
        let data = data.unwrap_or_else(|| AlignedBuffer::zeroed(BLOCK_BYTES));
        Block { data, known: Ranges::default(), dirty: Ranges::default() }
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

    /// Fetches whatever is not known of the whole block.
    pub(super) fn fetch(&mut self, file: &dyn DiskFile, start: u64) -> io::Result<()> {
        self.fetch_gaps(file, start, 0..BLOCK_BYTES)
    }

    /// The aligned spans that must be written so that all that is dirty is on the disk; what is not known of them is
    /// fetched first.
    pub(super) fn prepare_flush(&mut self, file: &dyn DiskFile, start: u64) -> io::Result<Vec<Span>> {
        let spans: Vec<Span> = self.dirty.widened(ALIGNMENT).iter().collect();
        for span in &spans {
            self.fetch_gaps(file, start, span.clone())?;
        }
        Ok(spans)
    }

    /// All that was dirty is on the disk.
    pub(super) fn flushed(&mut self) {
        self.dirty.clear();
    }

    /// What was dirty is given up: the disk's bytes count again.
    pub(super) fn discard(&mut self) {
        self.dirty.clear();
        self.known.clear();
    }

    /// The object ends at `end` of this block now; whatever comes after are zeros.
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
