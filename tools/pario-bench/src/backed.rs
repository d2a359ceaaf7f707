//! Touches free memory, so that the host of a virtual machine has backed it before a measurement.
//!
//! Where a host reclaims unused memory (`/sys/module/page_reporting`), the next first touch waits for it, about 2 ns a byte:
//! several times the cost of a copy, and it delays an arbitrary side of a comparison.
//!
//! Never: touches more than the free memory, so that the page cache is kept. Always: frees all of it before it returns.

use pario::backing::back_free_memory;
use pario::core::Size;

/// Upper bound of the touched memory.
const BYTES_MAX: u64 = 4 << 30;

/// Touches and frees `bytes`, or three quarters of the free memory if that is less; returns the size.
pub(crate) fn touch(bytes: u64) -> Size {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = bytes.min(BYTES_MAX).min(free_bytes(&meminfo) / 4 * 3);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = usize::try_from(bytes).unwrap_or(usize::MAX) / threads;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // If the allocation fails, the run continues without.
            scope.spawn(move || drop(back_free_memory(share)));
        }
    });
    Size(bytes)
}

/// Unused memory, without the page cache; 0 if the kernel does not report it.
fn free_bytes(meminfo: &str) -> u64 {
    let free = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = free.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_what_the_kernel_says() {
        assert_eq!(free_bytes("MemTotal: 9000 kB\nMemFree:     2048 kB\nMemAvailable: 4096 kB\n"), 2 << 20);
        assert_eq!(free_bytes("MemTotal: 9000 kB\n"), 0);
    }

    #[test]
    fn no_more_is_touched_than_asked_for() {
        let touched = touch(3 << 20);
        assert!(touched.0 <= 3 << 20, "{touched}");
        assert_eq!(touch(0), Size(0));
    }
}
