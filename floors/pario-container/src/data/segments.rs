//! Pieces of a file against pieces of a buffer, in as few system calls as their order allows.
//!
//! Always: pieces that overlap take effect in their order.

use crate::bytes::{index, length};
use crate::error::Result;
use crate::place::PlaceFile;

/// Span that is read or written at once for small neighbouring pieces.
const SIEVE: u64 = 1 << 20;
/// Larger pieces gain nothing from joining.
const SMALL: u64 = 16 << 10;

/// A piece of a file and of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSegment {
    /// Position in the file.
    pub(crate) offset: u64,
    /// Position in the buffer.
    pub(crate) at: usize,
    /// Bytes.
    pub(crate) size: usize,
}

impl FileSegment {
    fn end(&self) -> u64 {
        self.offset + length(self.size)
    }
}

/// Groups of neighbouring small pieces; a group is accessed at once.
fn groups(segments: &[FileSegment]) -> Vec<&[FileSegment]> {
    let (mut groups, mut start) = (Vec::new(), 0);
    for at in 1..=segments.len() {
        let joins = at < segments.len() && {
            let (before, next) = (&segments[at - 1], &segments[at]);
            next.offset >= before.end()
                && next.offset - before.end() <= SMALL
                && length(before.size.max(next.size)) <= SMALL
                && next.end() - segments[start].offset <= SIEVE
        };
        if !joins {
            groups.push(&segments[start..at]);
            start = at;
        }
    }
    groups
}

/// Reads all pieces; bytes beyond the end of the file are zero.
pub(crate) fn read(file: &dyn PlaceFile, segments: &[FileSegment], buffer: &mut [u8]) -> Result<()> {
    let mut window = Vec::new();
    for group in groups(segments) {
        let (first, last) = (group[0], group[group.len() - 1]);
        if group.len() == 1 {
            read_full(file, first.offset, &mut buffer[first.at..first.at + first.size])?;
            continue;
        }
        window.resize(index(last.end() - first.offset), 0);
        read_full(file, first.offset, &mut window)?;
        for piece in group {
            let at = index(piece.offset - first.offset);
            buffer[piece.at..piece.at + piece.size].copy_from_slice(&window[at..at + piece.size]);
        }
    }
    Ok(())
}

/// Writes all pieces. Small ones with gaps are written as one span, with the bytes between them as they are.
pub(crate) fn write(file: &dyn PlaceFile, segments: &[FileSegment], buffer: &[u8]) -> Result<()> {
    let mut window = Vec::new();
    for group in groups(segments) {
        let (first, last) = (group[0], group[group.len() - 1]);
        if group.len() == 1 {
            file.write_at(first.offset, &buffer[first.at..first.at + first.size])?;
            continue;
        }
        window.resize(index(last.end() - first.offset), 0);
        let covered: usize = group.iter().map(|piece| piece.size).sum();
        if covered < window.len() {
            read_full(file, first.offset, &mut window)?;
        }
        for piece in group {
            let at = index(piece.offset - first.offset);
            window[at..at + piece.size].copy_from_slice(&buffer[piece.at..piece.at + piece.size]);
        }
        file.write_at(first.offset, &window)?;
    }
    Ok(())
}

/// Reads; what the file does not have is zero.
pub(crate) fn read_full(file: &dyn PlaceFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let count = file.read_at(offset, buffer)?;
    buffer[count..].fill(0);
    Ok(())
}
