//! Blocks that are allotted before they are written.
//!
//! Measured on ext4: it books every new page of a write on its own, unless the blocks are there already. One call for a whole range first
//! makes a large write a third cheaper. File systems that allot as they write back (XFS, btrfs) gain nothing.
//!
//! Never: changes a length or a byte of a file.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::FallocateFlags;

/// Allotting blocks is one more call: less is not worth it.
pub const ROOM_BYTES_MIN: u64 = 256 << 10;

/// What `statfs` says of ext2, ext3 and ext4.
const EXT4_MAGIC: rustix::fs::FsWord = 0xEF53;

/// Whether large writes to this file, or to files of this directory, are cheaper after [`make_room`].
#[must_use]
pub fn gains_by_room(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == EXT4_MAGIC)
}

/// Has blocks allotted for a range, also beyond the file's end, which stays where it is.
pub fn make_room(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
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
        match make_room(file.as_fd(), 0..1 << 20) {
            Ok(()) => assert!(1 << 20 <= file.metadata().unwrap().blocks() * 512),
            // Not every file system can; then nobody gains by it either.
            Err(error) => assert!(!gains_by_room(file.as_fd()), "{error}"),
        }
        let mut back = [0; 8];
        assert_eq!(crate::read_exact_or_end_at(file.as_fd(), &mut back, 0).unwrap(), 3);
        assert_eq!(&back[..3], b"abc");
    }
}
