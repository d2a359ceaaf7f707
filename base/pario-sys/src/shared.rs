//! A mapping of a sealed memfd: the memory that a process and its node's servers share.
//!
//! Never: hands out a reference to the memory (single atomics excepted); maps a file that its owner could shrink.
//! Always: every access is checked against the mapping's length; a forked child never touches or unmaps it.

#![expect(unsafe_code, reason = "mapping memory and copying through raw pointers is what this module is for")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use pario_core::limits::LARGE_PAGE_BYTES;
use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::mm::{Advice, ProtFlags};
use rustix::thread::futex;

use crate::clock::timespec;
use crate::large;
use crate::piece::MemoryPiece;
use crate::process::fork_generation;

/// Smaller copies stay in the cache: they may be read again immediately.
const STREAMED_BYTES_MIN: usize = 4096;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What a mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAccess {
    /// Loads only.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// Sizes of a segment that [`SharedMemory::attach`] accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachLimit {
    /// Shortest.
    pub bytes_min: usize,
    /// Longest.
    pub bytes_max: usize,
}

/// Why a descriptor from a peer was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Its owner could change its size under us, or it is no memfd at all.
    #[error("the segment is not sealed against shrinking, growing and unsealing")]
    NotSealed,
    /// Shorter or longer than it may be.
    #[error("the segment has {bytes} bytes, outside {} to {}", .limit.bytes_min, .limit.bytes_max)]
    Size {
        /// Its length.
        bytes: u64,
        /// The accepted limit.
        limit: AttachLimit,
    },
    /// The operating system refused.
    #[error("mapping the segment: {0}")]
    Os(#[from] io::Error),
}

/// How a [`SharedMemory::futex_wait`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FutexWait {
    /// By a wake, or spuriously: check the word again.
    Woken,
    /// The time is over.
    TimedOut,
    /// The word differed from the expected value, so there was no wait.
    Changed,
}

/// Memory shared with other processes. Mapped until it is dropped; a peer may write the bytes at any time.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    access: MapAccess,
    made_in: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread; all methods are atomics or bounded copies of untrusted bytes.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method forms a reference to plain bytes of the mapping.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes a segment of `bytes`, rounded up to whole pages, with all its space allocated; the descriptor is for the peer.
    pub fn create(name: &str, bytes: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        SharedMemory::create_in_steps(name, bytes, bytes)
    }

    /// The same with space for its first `first` bytes only: the rest must not be touched before [`SharedMemory::make_present`].
    pub fn create_in_steps(name: &str, bytes: usize, first: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        let len = round_up_to_page(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        let shared = SharedMemory::map(&fd, len, MapAccess::ReadWrite)?;
        shared.make_present(&fd, 0..first.clamp(1, len))?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok((shared, fd))
    }

    /// Has space allocated for a part of a segment: a page that cannot be had is an error here instead of SIGBUS at its first touch. What
    /// is long enough gets large pages, if there are some.
    pub fn make_present(&self, fd: &OwnedFd, range: Range<usize>) -> io::Result<()> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        large::make(fd, self.base, &range);
        // Piecewise: a signal during `fallocate` undoes only the current piece.
        for start in range.clone().step_by(LARGE_PAGE_BYTES) {
            let bytes = (range.end - start).min(LARGE_PAGE_BYTES) as u64;
            let piece = || rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, start as u64, bytes);
            rustix::io::retry_on_intr(piece)?;
        }
        Ok(())
    }

    /// Maps a segment of a peer, after checking that its size is sealed.
    pub fn attach(fd: OwnedFd, access: MapAccess, limit: AttachLimit) -> Result<SharedMemory, AttachError> {
        // Files that cannot be sealed at all answer EINVAL.
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| AttachError::NotSealed)?;
        let stat = rustix::fs::fstat(&fd).map_err(io::Error::from)?;
        if !seals.contains(SEALS) || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(AttachError::NotSealed);
        }
        let bytes = u64::try_from(stat.st_size).map_err(|_| AttachError::NotSealed)?;
        let len = usize::try_from(bytes).map_err(|_| AttachError::Size { bytes, limit })?;
        if len == 0 || len < limit.bytes_min || limit.bytes_max < len {
            return Err(AttachError::Size { bytes, limit });
        }
        Ok(SharedMemory::map(&fd, len, access)?)
    }

    fn map(fd: &OwnedFd, len: usize, access: MapAccess) -> io::Result<SharedMemory> {
        let protection = match access {
            MapAccess::ReadOnly => ProtFlags::READ,
            MapAccess::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let base = large::map(fd.as_fd(), len, protection)?;
        let shared = SharedMemory { base, len, access, made_in: fork_generation() };
        // SAFETY: the range is exactly the mapping made above; the advice has no effect in this process.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(shared)
    }

    /// Bytes mapped.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Loads the word at `at`, a multiple of 8.
    #[must_use]
    pub fn load_u64(&self, at: usize, ordering: Ordering) -> u64 {
        self.atomic_u64(at).load(ordering)
    }

    /// Stores the word at `at`, a multiple of 8.
    pub fn store_u64(&self, at: usize, value: u64, ordering: Ordering) {
        self.assert_writable();
        self.atomic_u64(at).store(value, ordering);
    }

    /// Adds to the word at `at`, a multiple of 8; returns the previous value.
    pub fn fetch_add_u64(&self, at: usize, value: u64, ordering: Ordering) -> u64 {
        self.assert_writable();
        self.atomic_u64(at).fetch_add(value, ordering)
    }

    /// Loads the word at `at`, a multiple of 4.
    #[must_use]
    pub fn load_u32(&self, at: usize, ordering: Ordering) -> u32 {
        self.atomic_u32(at).load(ordering)
    }

    /// Stores the word at `at`, a multiple of 4.
    pub fn store_u32(&self, at: usize, value: u32, ordering: Ordering) {
        self.assert_writable();
        self.atomic_u32(at).store(value, ordering);
    }

    /// Copies bytes out. A peer that writes them meanwhile makes them any mixture of old and new.
    pub fn read(&self, at: usize, target: &mut [u8]) {
        let source = self.pointer(at, target.len());
        // SAFETY: `pointer` checked that the source lies in the mapping; `target` is a Rust slice and so cannot overlap it, since no
        // reference to the mapping exists. A concurrent peer only changes the values, which are plain bytes that every caller treats as
        // untrusted.
        unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len()) };
    }

    /// Copies bytes in. Visible to peers in order only after a store with [`Ordering::Release`].
    pub fn write(&self, at: usize, source: &[u8]) {
        self.assert_writable();
        let target = self.pointer(at, source.len());
        // SAFETY: `pointer` checked that the target lies in the mapping, which is writable; `source` is a Rust slice and so cannot
        // overlap it. A concurrent peer only changes bytes that readers treat as untrusted.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) };
    }

    /// The same past the caches, above a minimum size: for bytes that a peer reads later and this process does not.
    pub fn write_once(&self, at: usize, source: &[u8]) {
        if source.len() < STREAMED_BYTES_MIN {
            return self.write(at, source);
        }
        self.assert_writable();
        let target = self.pointer(at, source.len());
        // SAFETY: as for `write`.
        unsafe { crate::streaming::copy(source, target) };
    }

    /// Bytes for a system call, without a reference to them.
    #[must_use]
    pub fn piece(&self, range: Range<usize>) -> MemoryPiece<'_> {
        assert!(range.start <= range.end, "range {range:?} runs backwards");
        let len = range.end - range.start;
        let start = self.pointer(range.start, len);
        // SAFETY: `pointer` checked that the range lies in the mapping, which lives as long as the borrow of `self`.
        unsafe { MemoryPiece::from_raw(start, len) }
    }

    /// Sleeps while the word at `at` (a multiple of 4) is `expected`, until a wake or for `timeout`.
    #[must_use]
    pub fn futex_wait(&self, at: usize, expected: u32, timeout: Option<Duration>) -> FutexWait {
        let timeout = timeout.map(timespec);
        match futex::wait(self.atomic_u32(at), futex::Flags::empty(), expected, timeout.as_ref()) {
            Err(rustix::io::Errno::AGAIN) => FutexWait::Changed,
            Err(rustix::io::Errno::TIMEDOUT) => FutexWait::TimedOut,
            Ok(()) | Err(_) => FutexWait::Woken,
        }
    }

    /// Wakes up to `count` sleepers on the word at `at`, in all processes; returns how many.
    pub fn futex_wake(&self, at: usize, count: u32) -> usize {
        futex::wake(self.atomic_u32(at), futex::Flags::empty(), count).unwrap_or(0)
    }

    /// Makes the pages of `range` present, so that their first touch causes no fault. Best effort.
    pub fn prefault(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let start = range.start / page * page;
        let end = range.end.min(self.len);
        if end <= start {
            return;
        }
        let advice = match self.access {
            MapAccess::ReadOnly => Advice::LinuxPopulateRead,
            MapAccess::ReadWrite => Advice::LinuxPopulateWrite,
        };
        let address = self.pointer(start, end - start);
        // SAFETY: the range lies in the mapping; populating changes no contents.
        let _ = unsafe { rustix::mm::madvise(address.cast(), end - start, advice) };
    }

    fn atomic_u64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "word at {at} is not aligned");
        let word = self.pointer(at, 8).cast::<u64>();
        // SAFETY: `pointer` checked that the word lies in the mapping, which lives as long as `self`; the base is
        // page-aligned and `at` a multiple of 8. All processes access this word by atomics only. Where the mapping is
        // read-only callers only load, and a load of this width is one plain instruction on every 64-bit target.
        unsafe { AtomicU64::from_ptr(word) }
    }

    fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "word at {at} is not aligned");
        let word = self.pointer(at, 4).cast::<u32>();
        // SAFETY: as for `atomic_u64`, with 4 bytes.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn pointer(&self, at: usize, bytes: usize) -> *mut u8 {
        let end = at.checked_add(bytes).expect("offset overflows");
        assert!(end <= self.len, "{at}..{end} lies outside the segment of {} bytes", self.len);
        assert_eq!(self.made_in, fork_generation(), "shared memory used in a forked child");
        // SAFETY: `at <= len`, so the result is inside the mapping or one past its end.
        unsafe { self.base.as_ptr().add(at) }
    }

    fn assert_writable(&self) {
        assert_eq!(self.access, MapAccess::ReadWrite, "store into a read-only mapping");
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // The range is not mapped in a forked child (MADV_DONTFORK); another mapping may be there by now.
        if self.made_in != fork_generation() {
            return;
        }
        // SAFETY: the range is the one `map` mapped; nothing borrowed from `self` outlives it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn round_up_to_page(bytes: usize) -> Option<usize> {
    let page = rustix::param::page_size();
    bytes.max(1).checked_next_multiple_of(page)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::mm::MapFlags;

    use super::*;

    const LIMIT: AttachLimit = AttachLimit { bytes_min: 4096, bytes_max: 1 << 20 };

    #[test]
    fn created_segment_is_rounded_sealed_and_zero() {
        let (shared, fd) = SharedMemory::create("test", 5000).unwrap();
        assert_eq!(shared.len(), 8192);
        assert_eq!(shared.load_u64(8184, Ordering::Relaxed), 0);
        for bytes in [0, 4096, 16384] {
            assert_eq!(rustix::fs::ftruncate(&fd, bytes), Err(rustix::io::Errno::PERM));
        }
        assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
    }

    #[test]
    fn both_mappings_see_the_same_bytes() {
        let (writer, fd) = SharedMemory::create("test", 4096).unwrap();
        let reader = SharedMemory::attach(fd, MapAccess::ReadOnly, LIMIT).unwrap();
        writer.write(100, b"abc");
        writer.store_u64(8, 7, Ordering::Release);
        assert_eq!(writer.fetch_add_u64(8, 2, Ordering::AcqRel), 7);
        writer.store_u32(16, 5, Ordering::Release);
        assert_eq!(reader.load_u64(8, Ordering::Acquire), 9);
        assert_eq!(reader.load_u32(16, Ordering::Acquire), 5);
        let mut bytes = [0; 4];
        reader.read(99, &mut bytes);
        assert_eq!(&bytes, b"\0abc");
        let mut bytes = [0; 3];
        reader.piece(100..103).copy_to(&mut bytes);
        assert_eq!(&bytes, b"abc");
        reader.prefault(0..1 << 30);
        writer.prefault(0..100);
    }

    #[test]
    fn attach_refuses_what_could_change() {
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        rustix::fs::fcntl_add_seals(&open, SealFlags::SHRINK | SealFlags::GROW).unwrap();
        assert!(matches!(
            SharedMemory::attach(open, MapAccess::ReadOnly, LIMIT),
            Err(AttachError::NotSealed)
        ));
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        assert!(matches!(
            SharedMemory::attach(file.into(), MapAccess::ReadOnly, LIMIT),
            Err(AttachError::NotSealed)
        ));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(matches!(
            SharedMemory::attach(reader.into(), MapAccess::ReadOnly, LIMIT),
            Err(AttachError::NotSealed)
        ));
    }

    #[test]
    fn attach_refuses_too_short_and_too_long() {
        for (bytes, limit) in [
            (4096, AttachLimit { bytes_min: 8192, bytes_max: 1 << 20 }),
            (8192, AttachLimit { bytes_min: 0, bytes_max: 4096 }),
        ] {
            let (_, fd) = SharedMemory::create("test", bytes).unwrap();
            let error = SharedMemory::attach(fd, MapAccess::ReadOnly, limit).unwrap_err();
            assert!(
                matches!(error, AttachError::Size { bytes: found, .. } if found == bytes as u64),
                "{error}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "outside the segment")]
    fn reading_past_the_end_stops() {
        let (shared, _fd) = SharedMemory::create("test", 4096).unwrap();
        shared.read(4090, &mut [0; 7]);
    }

    #[test]
    #[should_panic(expected = "read-only")]
    fn storing_into_a_read_only_mapping_stops() {
        let (_writer, fd) = SharedMemory::create("test", 4096).unwrap();
        let reader = SharedMemory::attach(fd, MapAccess::ReadOnly, LIMIT).unwrap();
        reader.store_u64(0, 1, Ordering::Relaxed);
    }

    #[test]
    fn futex_waits_for_change_wake_or_time() {
        let (shared, fd) = SharedMemory::create("test", 4096).unwrap();
        let shared = Arc::new(shared);
        assert_eq!(shared.futex_wait(0, 1, None), FutexWait::Changed);
        assert_eq!(shared.futex_wait(0, 0, Some(Duration::from_millis(1))), FutexWait::TimedOut);
        // The sleeper waits through a second, read-only mapping: shared futexes are identified by file, not by address.
        let peer = SharedMemory::attach(fd, MapAccess::ReadOnly, LIMIT).unwrap();
        let sleeper = std::thread::spawn(move || {
            while peer.load_u32(0, Ordering::Acquire) == 0 {
                let _ = peer.futex_wait(0, 0, Some(Duration::from_secs(20)));
            }
            peer.load_u32(0, Ordering::Acquire)
        });
        shared.store_u32(0, 3, Ordering::Release);
        shared.futex_wake(0, 1);
        assert_eq!(sleeper.join().unwrap(), 3);
    }

    /// In a child: puts a page of its own where the mapping was, drops the mapping, and touches the page.
    fn drop_in_child(shared: SharedMemory) -> i32 {
        let base = shared.base.as_ptr();
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: FIXED_NOREPLACE refuses an address that is in use.
        let page = unsafe { rustix::mm::mmap_anonymous(base.cast(), 4096, protection, flags) };
        let Ok(page) = page else { return 1 };
        drop(shared);
        // SAFETY: the page was mapped writable above.
        unsafe { page.cast::<u8>().write_volatile(1) };
        7
    }

    #[test]
    fn a_forked_child_has_no_mapping_and_does_not_unmap_what_took_its_place() {
        let (shared, _fd) = SharedMemory::create("test", 4096).unwrap();
        // SAFETY: the child makes plain system calls only and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = drop_in_child(shared);
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid memory; the child is ours.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (child, true, 7));
        shared.store_u64(0, 1, Ordering::Relaxed);
    }
}
