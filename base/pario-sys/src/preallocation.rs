//! Preallocation: blocks are allocated before they are written.
//!
//! Measured on ext4: it allocates every new page of a write separately, unless the blocks exist. One `fallocate` for the full range first
//! makes a large write a third cheaper. File systems with delayed allocation (XFS, btrfs) gain nothing.
//!
//! Never: changes a length or a byte of a file.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::FallocateFlags;

/// Allotting blocks is one more call: less is not worth it.
pub const PREALLOCATE_BYTES_MIN: u64 = 256 << 10;

/// `f_type` of ext2, ext3 and ext4 in `statfs`.
const EXT4_MAGIC: rustix::fs::FsWord = 0xEF53;

/// Whether large writes to this file, or to files of this directory, are cheaper after [`preallocate`].
#[must_use]
pub fn gains_by_preallocation(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == EXT4_MAGIC)
}

/// Allocates blocks for a range, also beyond the file's end, which is unchanged.
pub fn preallocate(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    let bytes = range.end.saturating_sub(range.start);
    let allot = || rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, range.start, bytes);
    Ok(rustix::io::retry_on_intr(allot)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn room_changes_neither_length_nor_bytes() {
        let file = tempfile::tempfile().unwrap();
        crate::write_pieces_at(file.as_fd(), &[b"abc".as_slice().into()], 0).unwrap();
        match preallocate(file.as_fd(), 0..1 << 20) {
            Ok(()) => assert!(1 << 20 <= file.metadata().unwrap().blocks() * 512),
            // Not every file system supports it; those that do not gain nothing from it.
            Err(error) => assert!(!gains_by_preallocation(file.as_fd()), "{error}"),
        }
        let mut back = [0; 8];
        assert_eq!(crate::read_exact_or_end_at(file.as_fd(), &mut back, 0).unwrap(), 3);
        assert_eq!(&back[..3], b"abc");
    }
}
