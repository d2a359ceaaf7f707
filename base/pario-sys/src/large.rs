//! Large pages for shared memory.
//!
//! The first touch of a small page costs more than copying into it ten times, in each process that maps it. Memory files have large pages
//! only where an administrator enabled them, but every kernel from 6.1 on collapses small ones on request (MADV_COLLAPSE): here that is
//! done while only one small page of each exists.
//!
//! Never: fails, or changes contents: without large pages, small ones are used. Always: after one slow attempt this process does not try
//! again, since memory is fragmented then.

#![expect(
    unsafe_code,
    reason = "mapping raw memory, and advice that the wrapper of system calls has no word for"
)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pario_core::limits::LARGE_PAGE_BYTES as LARGE_BYTES;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a page that every kernel has.
const SMALL_BYTES: u64 = 4096;
/// `MADV_COLLAPSE` of `linux/mman.h`.
const COLLAPSE: libc::c_int = 25;
/// Per large page: longer than allocating the same memory in small pages.
const TOO_LONG: Duration = Duration::from_millis(2);

/// False after a slow or failed attempt.
static WORTH_TRYING: AtomicBool = AtomicBool::new(true);

/// Maps a shared file, aligned to a large page if it is at least that long.
pub(crate) fn map(fd: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<NonNull<u8>> {
    // Only a hint: if another thread maps the address meanwhile, the kernel chooses another one, and pages are small.
    let place = (LARGE_BYTES <= len).then(|| free_address(len)).and_then(Result::ok);
    let place = place.unwrap_or(std::ptr::null_mut());
    // SAFETY: the address is chosen by the kernel, or a hint that it uses only if free: no memory in use is replaced.
    let mapped = unsafe { rustix::mm::mmap(place, len, protection, MapFlags::SHARED, fd, 0) }?;
    Ok(NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// An address, aligned to a large page, of `len` free bytes.
fn free_address(len: usize) -> io::Result<*mut libc::c_void> {
    let all = len.checked_add(LARGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::empty(), flags) }?;
    // SAFETY: exactly the mapping just made, to which no pointer exists.
    unsafe { rustix::mm::munmap(start, all) }?;
    Ok(start.wrapping_byte_add(start.addr().next_multiple_of(LARGE_BYTES) - start.addr()))
}

/// Collapses the large pages inside `range` of a mapping, as far as possible. The mapping is of the whole file.
pub(crate) fn make(fd: impl AsFd, base: NonNull<u8>, range: &Range<usize>) {
    let (start, end) = (range.start.next_multiple_of(LARGE_BYTES), range.end / LARGE_BYTES * LARGE_BYTES);
    if end <= start || !base.addr().get().is_multiple_of(LARGE_BYTES) || !WORTH_TRYING.load(Ordering::Relaxed)
    {
        return;
    }
    // Only ranges with a page already are collapsed.
    for at in (start..end).step_by(LARGE_BYTES) {
        let first = rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, at as u64, SMALL_BYTES);
        if first.is_err() {
            return;
        }
    }
    let began = worked();
    let address = base.as_ptr().wrapping_add(start).cast();
    // SAFETY: the range lies in the caller's mapping; this advice changes no contents.
    let advised = unsafe { libc::madvise(address, end - start, COLLAPSE) };
    let refused = (advised != 0).then(io::Error::last_os_error);
    // A page was briefly pinned: the next ones may succeed.
    let is_lasting = refused.is_some_and(|error| error.kind() != io::ErrorKind::WouldBlock);
    let pages = u32::try_from((end - start) / LARGE_BYTES).unwrap_or(u32::MAX);
    if is_lasting || TOO_LONG.saturating_mul(pages) < worked().saturating_sub(began) {
        WORTH_TRYING.store(false, Ordering::Relaxed);
    }
}

/// Processor time of this thread: time spent waiting for a processor must not count as slow memory.
fn worked() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use crate::shared::{AttachLimit, MapAccess, SharedMemory};
    use pario_core::limits::LARGE_PAGE_BYTES as LARGE_BYTES;

    /// Kilobytes of large pages that this process has mapped of memory files with a name.
    fn large_kib(name: &str) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = false;
        let mut kib = 0;
        for line in maps.lines() {
            if line.contains('-') && line.contains(' ') && !line.contains("kB") {
                ours = line.contains(name);
            }
            if let Some(rest) = line.strip_prefix("ShmemPmdMapped:").filter(|_| ours) {
                kib += rest.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap();
            }
        }
        kib
    }

    fn kernel_can() -> bool {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        setting.is_ok_and(|setting| !setting.contains("[deny]"))
    }

    fn parts() -> [Range<usize>; 3] {
        [0..LARGE_BYTES, LARGE_BYTES..3 * LARGE_BYTES, 3 * LARGE_BYTES..3 * LARGE_BYTES + 4096]
    }

    #[test]
    fn memory_in_steps_keeps_its_bytes_for_both_sides() {
        let bytes = 3 * LARGE_BYTES + 4096;
        let (writer, fd) = SharedMemory::create_in_steps("pario-large", bytes, 4096).unwrap();
        writer.write(100, b"abc");
        for part in parts() {
            writer.make_present(&fd, part).unwrap();
        }
        for at in [1 << 20, 3 * LARGE_BYTES - 3, 3 * LARGE_BYTES + 4000] {
            writer.write(at, b"xyz");
        }
        let limit = AttachLimit { bytes_min: 1, bytes_max: 1 << 30 };
        let reader = SharedMemory::attach(fd, MapAccess::ReadOnly, limit).unwrap();
        for (at, expected) in [(100, b"abc"), (1 << 20, b"xyz"), (3 * LARGE_BYTES - 3, b"xyz")] {
            let mut found = [0; 3];
            reader.read(at, &mut found);
            assert_eq!(&found, expected, "at {at}");
        }
        let mut rest = vec![1; 1000];
        reader.read(200, &mut rest);
        assert!(rest.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_kernel_that_can_gives_large_pages() {
        let is_large = |_| {
            let made = SharedMemory::create("pario-pages", 3 * LARGE_BYTES).unwrap();
            let found = large_kib("pario-pages");
            drop(made);
            found == 3 * 2048
        };
        // Another test may map the address just before it is used.
        let given_up = || !super::WORTH_TRYING.load(std::sync::atomic::Ordering::Relaxed);
        assert!((0..10).any(is_large) || !kernel_can() || given_up());
    }

    #[test]
    fn a_mapping_leaves_no_address_behind() {
        // Other tests of this process map memory concurrently, and far less than this.
        const MADE: usize = 64;
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let make = |_| SharedMemory::create_in_steps("pario-kept", LARGE_BYTES + 4096, 1).unwrap();
        let made: Vec<_> = (0..MADE).map(make).collect();
        let before = mapped();
        drop(made);
        let after = mapped();
        assert!(after + MADE / 2 <= before, "{after} of {before}");
    }
}
