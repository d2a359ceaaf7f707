//! A file mapped as memory, for reading or writing many small pieces of it without a system call each.
//!
//! Never: forms a Rust reference to the bytes, which other processes may be writing; reads beyond the file's length at the time of
//! mapping. Always: the caller has checked that the range is in memory, or made it present, so that a failed disk read is an error and
//! not a signal; a page that is reclaimed in between and cannot be read again still raises SIGBUS.

#![expect(unsafe_code, reason = "mapping and copying raw memory")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::piece::{MemoryPiece, copy};
use crate::process::fork_generation;

const PAGE: usize = 4096;

/// Identity of the file of a descriptor. Inode numbers of removed files are reused, hence also the birth time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    device: (u32, u32),
    inode: u64,
    /// Zero where the file system has no birth time.
    birth: (i64, u32),
}

impl FileIdentity {
    /// The file of a descriptor, and how long it is.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<(FileIdentity, u64)> {
        let wanted = StatxFlags::INO | StatxFlags::SIZE | StatxFlags::BTIME;
        let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)?;
        let knows_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born = if knows_birth { (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { (0, 0) };
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        Ok((FileIdentity { device, inode: stat.stx_ino, birth: born }, stat.stx_size))
    }
}

/// Whether a file has a name in a directory; false for a removed file and for anonymous memory.
#[must_use]
pub fn has_name(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_nlink != 0)
}

/// The first bytes of a file, mapped for reading. The file must not be cut while it is mapped.
#[derive(Debug)]
pub struct FileMap {
    base: NonNull<u8>,
    len: usize,
    made_in: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only copied from.
unsafe impl Send for FileMap {}
// SAFETY: as above; no method forms a reference to the bytes.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps the whole file as it is now. `None`: it is empty.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Option<FileMap>> {
        let bytes = rustix::fs::fstat(fd)?.st_size;
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        if len == 0 {
            return Ok(None);
        }
        // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = FileMap { base, len, made_in: fork_generation() };
        // SAFETY: the range is exactly the mapping made above; the advice has no effect in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(Some(map))
    }

    /// Bytes mapped.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes a range present in memory.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let start = range.start.min(self.len) / PAGE * PAGE;
        let end = range.end.min(self.len);
        if end <= start {
            return Ok(());
        }
        let at = self.address_of(start);
        // SAFETY: `start..end` lies inside the mapping; populating for reading changes no byte.
        let populated =
            unsafe { rustix::mm::madvise(at.cast_mut().cast(), end - start, Advice::LinuxPopulateRead) };
        match populated {
            // A kernel before 5.14: pages are mapped when they are touched.
            Err(rustix::io::Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Copies bytes from `at` on.
    #[inline]
    pub fn copy_to(&self, at: usize, target: &mut [u8]) {
        assert!(at <= self.len && target.len() <= self.len - at, "a copy stays inside the mapping");
        let source = self.address_of(at);
        // SAFETY: the source lies inside the mapping, as asserted, and `target` is exclusively ours, so they do not overlap. A concurrent
        // writer of the file only changes the values of plain bytes.
        unsafe { copy(source, target.as_mut_ptr(), target.len()) };
    }

    /// Bytes from `at` on, as they are when they are copied.
    #[must_use]
    #[inline]
    pub fn part(&self, at: usize, bytes: usize) -> MemoryPiece<'_> {
        assert!(at <= self.len && bytes <= self.len - at, "a part stays inside the mapping");
        // SAFETY: the bytes lie inside the mapping, which is there for as long as `self` is.
        unsafe { MemoryPiece::from_raw(self.address_of(at), bytes) }
    }

    #[inline]
    fn address_of(&self, at: usize) -> *const u8 {
        assert!(at <= self.len, "an offset inside the mapping");
        // SAFETY: `at <= len`, so the result is inside the mapping or one past its end.
        unsafe { self.base.as_ptr().add(at) }
    }
}

/// Whether all of a range of a file is in memory or being read into it; `None` if unknown: a kernel before 6.5, or a file of another
/// user. False beyond the file's end.
///
/// Pages of a mapping that are in memory are mapped when they are touched, sixteen or a large page per fault; populating them first with
/// [`FileMap::populate`] takes longer than copying them.
#[must_use]
pub fn is_in_memory(file: BorrowedFd<'_>, range: Range<u64>) -> Option<bool> {
    let page = rustix::param::page_size() as u64;
    let start = range.start / page * page;
    let pages = range.end.saturating_sub(start).div_ceil(page);
    if range.is_empty() {
        return Some(true);
    }
    cached_pages(file, start..range.end).map(|cached| pages <= cached)
}

/// Number of pages of a range of a file in memory; `None` if unknown.
fn cached_pages(file: BorrowedFd<'_>, range: Range<u64>) -> Option<u64> {
    /// As the kernel has them: `struct cachestat_range` and `struct cachestat`.
    #[repr(C)]
    struct CachestatRange {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct CachestatCounts {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    /// The number of `cachestat` on every architecture that we run on.
    const CACHESTAT: libc::c_long = 451;
    let asked = CachestatRange { offset: range.start, bytes: range.end - range.start };
    let mut told = CachestatCounts::default();
    // SAFETY: the descriptor is open, and both structures live and have the kernel's layout.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut told, 0) };
    (result == 0).then_some(told.cached)
}

/// Bytes for an offset of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scattered<'a> {
    /// File offset.
    pub at: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Most bytes of a file that are mapped for one [`scatter`].
pub const SCATTER_SPAN_MAX: u64 = 4 << 20;

/// Writes ascending, disjoint pieces into a file by a mapping, exactly these bytes; lengthens the file if needed. False: the file or the
/// kernel does not allow it, or there is no space; no byte is written then, but the file may be longer.
///
/// The file must not be truncated concurrently.
pub fn scatter(fd: BorrowedFd<'_>, pieces: &[Scattered<'_>]) -> io::Result<bool> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(true) };
    let ascends =
        pieces.windows(2).all(|pair| pair[0].at.saturating_add(pair[0].bytes.len() as u64) <= pair[1].at);
    let start = first.at / PAGE as u64 * PAGE as u64;
    let end = last.at.saturating_add(last.bytes.len() as u64);
    if !ascends || SCATTER_SPAN_MAX < end - start || end == first.at {
        return Ok(false);
    }
    // Blocks first: a page without a block would raise SIGBUS at its first touch. This never shortens the file.
    let room = rustix::fs::FallocateFlags::empty();
    if rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, room, first.at, end - first.at)).is_err() {
        return Ok(false);
    }
    let len = usize::try_from(end - start).map_err(|_| io::ErrorKind::InvalidInput)?;
    let Some(map) = FileMap::for_writing(fd, start, len) else { return Ok(false) };
    for piece in pieces {
        let at = usize::try_from(piece.at - start).map_err(|_| io::ErrorKind::InvalidInput)?;
        map.copy_from(at, piece.bytes);
    }
    Ok(true)
}

impl FileMap {
    /// Maps a range of the file for writing, with all its pages present and writable. `None`: not possible.
    fn for_writing(fd: BorrowedFd<'_>, start: u64, len: usize) -> Option<FileMap> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, start) };
        let base = NonNull::new(base.ok()?.cast::<u8>())?;
        let map = FileMap { base, len, made_in: fork_generation() };
        // SAFETY: the range is exactly the mapping made above; the advice has no effect in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }.ok()?;
        // SAFETY: as above; populating for writing changes no byte.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }.ok()?;
        Some(map)
    }

    /// Copies bytes into a mapping for writing.
    #[inline]
    fn copy_from(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "a copy stays inside the mapping");
        let target = self.address_of(at).cast_mut();
        // SAFETY: the target lies inside the mapping, as asserted, which only [`FileMap::for_writing`] makes and to which no reference
        // exists; `bytes` is ordinary memory, so they do not overlap.
        unsafe { copy(bytes.as_ptr(), target, bytes.len()) };
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // A forked child did not inherit the mapping; its addresses may belong to another mapping by now.
        if self.made_in == fork_generation() {
            // SAFETY: exactly the mapping that was made, unmapped once.
            let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
            debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn shows_what_is_in_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(FileMap::of(file.as_fd()).unwrap().is_none());
        file.write_all(&[7; 10_000]).unwrap();
        let map = FileMap::of(file.as_fd()).unwrap().unwrap();
        map.populate(5000..20_000).unwrap();
        let mut bytes = [0; 100];
        map.copy_to(9900, &mut bytes);
        assert_eq!(bytes, [7; 100]);
        assert_eq!(map.len(), 10_000);
    }

    #[test]
    fn a_file_is_not_the_one_that_had_its_number_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let make = || FileIdentity::of(std::fs::File::create(&path).unwrap().as_fd()).unwrap().0;
        let first = make();
        // Birth times have the resolution of the kernel's clock tick.
        let is_another = (0..1_000_000).any(|_| {
            std::fs::remove_file(&path).unwrap();
            make() != first
        });
        assert!(is_another || first.birth == (0, 0), "{first:?}");
    }

    #[test]
    fn tells_what_is_in_memory() {
        const BYTES: u64 = 3 << 20;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; usize::try_from(BYTES).unwrap()]).unwrap();
        file.set_len(2 * BYTES).unwrap();
        let told = |range| is_in_memory(file.as_fd(), range);
        if told(0..BYTES).is_none() {
            eprintln!("SKIPPED: this kernel has no cachestat");
            return;
        }
        for range in [0..BYTES, 5000..70_000, 70_001..70_002, BYTES - 1..BYTES, 10..10] {
            assert_eq!(told(range.clone()), Some(true), "{range:?}");
        }
        // Unwritten ranges and ranges beyond the end have no pages.
        for range in [BYTES..2 * BYTES, BYTES - 4096..BYTES + 1, 2 * BYTES..3 * BYTES] {
            assert_eq!(told(range.clone()), Some(false), "{range:?}");
        }
    }

    #[test]
    fn scatters_pieces_and_leaves_the_rest() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let pieces: Vec<Scattered<'_>> =
            (0..3000).map(|n| Scattered { at: 4000 + n * 10, bytes: b"abcd" }).collect();
        assert!(scatter(file.as_fd(), &pieces).unwrap());
        let map = FileMap::of(file.as_fd()).unwrap().unwrap();
        assert_eq!(map.len(), 4000 + 2999 * 10 + 4);
        let mut bytes = vec![0; map.len()];
        map.copy_to(0, &mut bytes);
        for (at, byte) in bytes.iter().enumerate() {
            let expected = match (at.checked_sub(4000).map(|at| at % 10), at < 5000) {
                (Some(place @ 0..4), _) => b"abcd"[place],
                (_, true) => 7,
                (_, false) => 0,
            };
            assert_eq!(*byte, expected, "byte {at}");
        }
    }

    #[test]
    fn scatters_nothing_that_is_not_in_order_too_wide_or_not_writable() {
        let file = tempfile::tempfile().unwrap();
        let piece = |at| Scattered { at, bytes: b"ab" };
        for odd in [&[piece(5), piece(4)][..], &[piece(0), piece(1)], &[piece(0), piece(SCATTER_SPAN_MAX)]] {
            assert!(!scatter(file.as_fd(), odd).unwrap());
        }
        let named = tempfile::NamedTempFile::new().unwrap();
        let reader = std::fs::File::open(named.path()).unwrap();
        assert!(!scatter(reader.as_fd(), &[piece(0), piece(9)]).unwrap());
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    #[should_panic(expected = "inside the mapping")]
    fn never_reads_beyond_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100]).unwrap();
        FileMap::of(file.as_fd()).unwrap().unwrap().copy_to(50, &mut [0; 51]);
    }
}
