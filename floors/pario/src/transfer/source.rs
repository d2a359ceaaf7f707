//! A file read by a transfer.

use std::fmt;
use std::ops::Range;

use super::tree::ReadFile;
use super::{TransferError, TransferResult, TreePath};

/// A file of any tree, open for reading.
#[derive(Debug)]
pub struct SourceFile {
    file: Box<dyn ReadFile>,
    path: TreePath,
}

impl SourceFile {
    /// Opens it.
    pub fn open(path: &TreePath) -> TransferResult<SourceFile> {
        Ok(SourceFile { file: path.tree.open(&path.path)?, path: path.clone() })
    }

    /// Length now.
    pub fn length(&self) -> TransferResult<u64> {
        self.file.length()
    }

    /// Fills `target` from `offset` on; returns the number of bytes before the end.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> TransferResult<usize> {
        self.file.read_at(offset, target)
    }

    /// Reads exactly `target.len()` bytes; fails if another program truncated the file.
    pub fn read_exact_at(&self, offset: u64, target: &mut [u8]) -> TransferResult {
        let count = self.read_at(offset, target)?;
        if count == target.len() {
            return Ok(());
        }
        let at = offset + count as u64;
        Err(TransferError::refused(format!("{self}: became shorter while it was read, at byte {at}")))
    }

    /// Reads `bytes` bytes into a buffer, which grows as needed.
    pub(super) fn read_into<'b>(
        &self,
        offset: u64,
        bytes: u64,
        buffer: &'b mut Vec<u8>,
    ) -> TransferResult<&'b [u8]> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        self.read_exact_at(offset, &mut buffer[..bytes])?;
        Ok(&buffer[..bytes])
    }

    /// The parts of a range that may hold data, in order; the rest is holes.
    pub fn data_in(&self, range: Range<u64>) -> TransferResult<Vec<Range<u64>>> {
        self.file.data_in(range)
    }

    /// Whether parts that may hold data may be long runs of zeros.
    pub(super) fn may_be_zeros(&self) -> bool {
        self.file.may_be_zeros()
    }
}

impl fmt::Display for SourceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}
