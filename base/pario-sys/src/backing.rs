//! Free memory that the hypervisor has backed.
//!
//! A virtual machine may return unused memory to its host (balloon, free page reporting); its next user then pays some nanoseconds a byte
//! to get it again. The kernel hands out recently used memory first.
//!
//! Never: keeps memory. Always: requests large pages, since hosts reclaim large free ranges.

#![expect(unsafe_code, reason = "mapping raw memory")]

use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Touches and frees `bytes` of free memory, so that the next allocation finds it backed.
pub fn back_free_memory(bytes: usize) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the address is chosen by the kernel, so no memory in use is replaced.
    let base =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) }?;
    // SAFETY: the range is the mapping just made; this advice changes no contents.
    let _ = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxHugepage) };
    // SAFETY: the same.
    let populated = unsafe { rustix::mm::madvise(base, bytes, Advice::LinuxPopulateWrite) };
    // SAFETY: the mapping just made, to which no pointer exists.
    let unmapped = unsafe { rustix::mm::munmap(base, bytes) };
    populated.and(unmapped).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        size.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    #[test]
    fn what_was_used_is_given_back() {
        back_free_memory(0).unwrap();
        let before = mapped_kib();
        back_free_memory(64 << 20).unwrap();
        assert!(mapped_kib() < before + (48 << 10), "64 MiB stay mapped");
        let error = back_free_memory(usize::MAX / 2).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOMEM.raw_os_error()));
    }
}
