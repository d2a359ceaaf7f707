//! Free memory that the machine below has backed.
//!
//! A virtual machine may give memory that nobody uses back to its host; whoever uses it next then pays for getting it again, some
//! nanoseconds a byte. Memory that was used a moment ago is given out first.
//!
//! Never: keeps anything. Always: asks for large pages, since it is large free ranges that a host gets back.

#![expect(unsafe_code, reason = "mapping raw memory")]

use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Uses so much free memory for a moment. Whoever needs memory next finds it backed.
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
    // SAFETY: the mapping just made, which nobody has a pointer to.
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
