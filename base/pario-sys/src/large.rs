//! Large pages for memory that processes share.
//!
//! The first touch of a small page costs more than copying into it ten times, in each process that has it mapped. Memory files have large
//! pages only where an administrator asked for them, but every kernel from 6.1 on puts small ones together when it is asked to: here that is
//! done while there is only one of them.
//!
//! Never: fails, or changes what memory holds: where there are no large pages, small ones do. Always: once it took long it is not tried
//! again in this process, since memory is in pieces then.

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
/// Longer than it takes to make as much memory of small pages, for each large one.
const TOO_LONG: Duration = Duration::from_millis(2);

/// Whether it is worth a try.
static WORTH: AtomicBool = AtomicBool::new(true);

/// Maps a file that is shared with others, at a multiple of a large page where it is as long as that.
pub(crate) fn map(fd: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<NonNull<u8>> {
    // Only a hint: if another thread takes the place meanwhile, the kernel chooses another one, and pages are small.
    let place = (LARGE_BYTES <= len).then(|| free_place(len)).and_then(Result::ok);
    let place = place.unwrap_or(std::ptr::null_mut());
    // SAFETY: the address is chosen by the kernel, or is what it says if nothing is there: no memory in use is replaced.
    let mapped = unsafe { rustix::mm::mmap(place, len, protection, MapFlags::SHARED, fd, 0) }?;
    Ok(NonNull::new(mapped.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?)
}

/// Where there are `len` bytes of free addresses from a multiple of a large page on.
fn free_place(len: usize) -> io::Result<*mut libc::c_void> {
    let all = len.checked_add(LARGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::empty(), flags) }?;
    // SAFETY: exactly the mapping just made, which nobody knows of.
    unsafe { rustix::mm::munmap(start, all) }?;
    Ok(start.wrapping_byte_add(start.addr().next_multiple_of(LARGE_BYTES) - start.addr()))
}

/// Gives the large pages that lie in `range` of a mapping their memory as such, as far as that can be had. The mapping is of the whole file.
pub(crate) fn make(fd: impl AsFd, base: NonNull<u8>, range: &Range<usize>) {
    let (start, end) = (range.start.next_multiple_of(LARGE_BYTES), range.end / LARGE_BYTES * LARGE_BYTES);
    if end <= start || !base.addr().get().is_multiple_of(LARGE_BYTES) || !WORTH.load(Ordering::Relaxed) {
        return;
    }
    // Only what has a page already is put together.
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
    // Somebody held a page for a moment: the next ones may go better.
    let is_lasting = refused.is_some_and(|error| error.kind() != io::ErrorKind::WouldBlock);
    let pages = u32::try_from((end - start) / LARGE_BYTES).unwrap_or(u32::MAX);
    if is_lasting || TOO_LONG.saturating_mul(pages) < worked().saturating_sub(began) {
        WORTH.store(false, Ordering::Relaxed);
    }
}

/// For how long this thread has had a processor: waiting for one says nothing about memory.
fn worked() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use crate::shared::{Access, AttachLimit, Shared};
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
        let (writer, fd) = Shared::create_in_steps("pario-large", bytes, 4096).unwrap();
        writer.write(100, b"abc");
        for part in parts() {
            writer.make_present(&fd, part).unwrap();
        }
        for at in [1 << 20, 3 * LARGE_BYTES - 3, 3 * LARGE_BYTES + 4000] {
            writer.write(at, b"xyz");
        }
        let limit = AttachLimit { bytes_min: 1, bytes_max: 1 << 30 };
        let reader = Shared::attach(fd, Access::ReadOnly, limit).unwrap();
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
            let made = Shared::create("pario-pages", 3 * LARGE_BYTES).unwrap();
            let found = large_kib("pario-pages");
            drop(made);
            found == 3 * 2048
        };
        // Another test may take the place in the moment before it is used.
        let given_up = || !super::WORTH.load(std::sync::atomic::Ordering::Relaxed);
        assert!((0..10).any(is_large) || !kernel_can() || given_up());
    }

    #[test]
    fn a_mapping_leaves_no_address_behind() {
        let mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let made: Vec<_> =
            (0..8).map(|_| Shared::create_in_steps("pario-kept", LARGE_BYTES + 4096, 1).unwrap()).collect();
        let before = mapped();
        drop(made);
        // Other tests map memory meanwhile, and this one has made eight.
        assert!(mapped() + 4 <= before, "{} of {before}", mapped());
    }
}
