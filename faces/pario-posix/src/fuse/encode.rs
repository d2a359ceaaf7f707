//! Answers to the kernel, as bytes. Layouts: `linux/fuse.h`.
//!
//! Never: does I/O. Always: entries and attributes are valid for no time, so that the kernel asks again.

use pario::core::limits::NAME_BYTES_MAX;
use pario::core::{FileAttr, FileKind, InodeId, Space};

use crate::semantics::{ConflictingLock, ListedEntry};

/// Version of the protocol that these layouts belong to.
const VERSION: (u32, u32) = (7, 38);
/// Features of the first word: concurrent reads, record locks, truncation by open, large writes, `flock`, concurrent direct I/O,
/// concurrent operations in a directory, long requests, dropped privileges, and the second word.
const FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5 | 1 << 10 | 1 << 15 | 1 << 18 | 1 << 22 | 1 << 28 | 1 << 30;
/// Features of the second word: mappings of files that are opened for direct I/O.
const FLAGS2: u32 = 1 << 4;
/// Largest data part of a request.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;
/// Direct I/O, and concurrent writes.
const OPEN_FLAGS: u32 = 1 | 1 << 6;
/// Block size of counts, and the unit of `df`.
const BLOCK_BYTES: u64 = 512;
const SPACE_BLOCK_BYTES: u32 = 4096;
const HEAD_BYTES: usize = 16;
/// Last byte of a lock to the end of the file.
const LOCK_LAST: u64 = i64::MAX as u64;

/// Bytes of an answer under construction.
#[derive(Debug, Default)]
struct Words(Vec<u8>);

impl Words {
    fn u16(mut self, numbers: &[u16]) -> Words {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
        self
    }

    fn u32(mut self, numbers: &[u32]) -> Words {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
        self
    }

    fn u64(mut self, numbers: &[u64]) -> Words {
        numbers.iter().for_each(|number| self.0.extend(number.to_ne_bytes()));
        self
    }
}

/// The header of an answer with `data` bytes behind it.
pub(super) fn head(unique: u64, error: i32, data: usize) -> Vec<u8> {
    let length = u32::try_from(HEAD_BYTES + data).unwrap_or(u32::MAX);
    Words::default().u32(&[length]).u32(&[error.wrapping_neg().cast_unsigned()]).u64(&[unique]).0
}

/// Features of this side, limited to the kernel's.
pub(super) fn init(minor: u32, flags: u32, flags2: u32) -> Vec<u8> {
    let most = u32::try_from(DATA_BYTES_MAX).unwrap_or(u32::MAX);
    let pages = u16::try_from(DATA_BYTES_MAX / PAGE_BYTES).unwrap_or(u16::MAX);
    let words = Words::default().u32(&[VERSION.0, VERSION.1.min(minor), most, FLAGS & flags]);
    // Requests in the background, and their congestion threshold; largest write, granularity of times in ns.
    let words = words.u16(&[64, 48]).u32(&[most, 1]).u16(&[pages, 0]).u32(&[FLAGS2 & flags2]);
    let mut data = words.0;
    data.resize(64, 0);
    data
}

fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

fn attributes(words: Words, attr: &FileAttr) -> Words {
    let is_device = attr.kind.is_special();
    let size = if is_device { 0 } else { attr.size };
    let device = if is_device { u32::try_from(attr.size).unwrap_or(0) } else { 0 };
    let seconds = |ns: u64| ns / 1_000_000_000;
    let rest = |ns: u64| u32::try_from(ns % 1_000_000_000).unwrap_or(0);
    let (accessed, modified, changed) = (attr.accessed_ns, attr.modified_ns, attr.changed_ns);
    let blocks = if attr.kind == FileKind::File { size.div_ceil(BLOCK_BYTES) } else { 0 };
    let block = u32::try_from(attr.layout.stripe_bytes().clamp(4096, DATA_BYTES_MAX as u64)).unwrap_or(4096);
    words
        .u64(&[attr.inode.0, size, blocks, seconds(accessed), seconds(modified), seconds(changed)])
        .u32(&[rest(accessed), rest(modified), rest(changed), type_bits(attr.kind) | attr.mode, attr.links])
        .u32(&[attr.uid, attr.gid, device, block, 0])
}

/// The answer to a request for attributes.
pub(super) fn attr_out(attr: &FileAttr) -> Vec<u8> {
    attributes(Words::default().u64(&[0, 0]), attr).0
}

/// The answer to a lookup or a creation. Inode numbers are used once, so that the generation is always 0.
pub(super) fn entry_out(attr: &FileAttr) -> Vec<u8> {
    attributes(Words::default().u64(&[attr.inode.0, 0, 0, 0, 0]), attr).0
}

/// The answer to the opening of a file.
pub(super) fn open_out(handle: u64) -> Vec<u8> {
    Words::default().u64(&[handle]).u32(&[OPEN_FLAGS, 0]).0
}

/// The answer to the opening of a directory.
pub(super) fn open_dir_out(handle: u64) -> Vec<u8> {
    Words::default().u64(&[handle, 0]).0
}

/// The answer to a write.
pub(super) fn write_out(bytes: usize) -> Vec<u8> {
    Words::default().u32(&[u32::try_from(bytes).unwrap_or(u32::MAX), 0]).0
}

/// The answer to a request for the size of an extended attribute.
pub(super) fn xattr_size_out(bytes: usize) -> Vec<u8> {
    write_out(bytes)
}

/// The answer to a request for space.
pub(super) fn space_out(space: &Space) -> Vec<u8> {
    let block = u64::from(SPACE_BLOCK_BYTES);
    let (total, free) = (space.total_bytes / block, space.free_bytes / block);
    let name = u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX);
    // The number of inodes is not limited.
    let words = Words::default().u64(&[total, free, free, 0, 0]);
    words.u32(&[SPACE_BLOCK_BYTES, name, SPACE_BLOCK_BYTES, 0]).u64(&[0, 0, 0]).0
}

/// The answer to a request for a conflicting lock.
pub(super) fn lock_out(found: Option<&ConflictingLock>) -> Vec<u8> {
    let Some(lock) = found else { return Words::default().u64(&[0, 0]).u32(&[2, 0]).0 };
    let last = if lock.range.end == u64::MAX { LOCK_LAST } else { lock.range.end - 1 };
    let kind = u32::from(lock.mode == pario::RecordMode::Exclusive);
    Words::default().u64(&[lock.range.start, last]).u32(&[kind, lock.pid]).0
}

/// A notice that all pages of a file are outdated: its code is in the place of an error, and it answers no request.
pub(super) fn drop_pages(inode: InodeId) -> Vec<u8> {
    let words = Words::default().u32(&[40, 2]).u64(&[0]);
    // From the first byte, without an end.
    words.u64(&[inode.0, 0, (-1i64).cast_unsigned()]).0
}

/// Appends an entry of a listing; false if it does not fit into `limit` bytes.
pub(super) fn push_entry(data: &mut Vec<u8>, limit: usize, entry: &ListedEntry, next: u64) -> bool {
    let bytes = (24 + entry.name.len()).next_multiple_of(8);
    if limit < data.len() + bytes {
        return false;
    }
    let name = u32::try_from(entry.name.len()).unwrap_or(0);
    let words =
        Words(std::mem::take(data)).u64(&[entry.inode.0, next]).u32(&[name, type_bits(entry.kind) >> 12]);
    *data = words.0;
    data.extend_from_slice(&entry.name);
    data.resize(data.len().next_multiple_of(8), 0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario::core::{Generation, Layout};

    fn attr(kind: FileKind) -> FileAttr {
        FileAttr {
            inode: InodeId(5),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            links: 3,
            size: 1000,
            generation: Generation(0),
            layout: Layout::new(65536, 1, 0, 1).unwrap(),
            accessed_ns: 1_000_000_007,
            modified_ns: 2_000_000_008,
            changed_ns: 3_000_000_009,
        }
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_expects() {
        let file = attr(FileKind::File);
        assert_eq!(init(45, u32::MAX, u32::MAX).len(), 64);
        assert_eq!((attr_out(&file).len(), entry_out(&file).len()), (104, 128));
        assert_eq!((open_out(1).len(), open_dir_out(1).len(), write_out(3).len()), (16, 16, 8));
        assert_eq!((space_out(&Space::default()).len(), lock_out(None).len()), (80, 24));
        let error = head(1, 2, 0);
        assert_eq!((error.len(), &error[4..8]), (16, &(-2i32).to_ne_bytes()[..]));
    }

    #[test]
    fn a_device_shows_its_number_and_no_length() {
        let bytes = attr_out(&attr(FileKind::CharDevice));
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(16 + 8), word(16 + 60), word(16 + 76)), (0, 0o020_644, 1000));
    }

    #[test]
    fn entries_are_padded_and_stop_at_the_limit() {
        let entry = ListedEntry { name: b"name".to_vec(), inode: InodeId(9), kind: FileKind::Directory };
        let mut data = Vec::new();
        assert!(push_entry(&mut data, 64, &entry, 1) && push_entry(&mut data, 64, &entry, 2));
        assert!(!push_entry(&mut data, 64, &entry, 3));
        assert_eq!(
            (data.len(), &data[16..32]),
            (64, &[4, 0, 0, 0, 4, 0, 0, 0, b'n', b'a', b'm', b'e', 0, 0, 0, 0][..])
        );
    }
}
