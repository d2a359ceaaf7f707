//! Free memory that the host of a virtual machine has backed, so that whoever uses it next does not pay for that.
//!
//! Where a host gets unused memory back (`/sys/module/page_reporting`), the next first touch waits for it, some two nanoseconds a byte:
//! several times what any copy costs, and it hits whichever side of a comparison happens to be next.
//!
//! Never: takes more than is free, so that nothing is thrown out of the page cache. Always: gives all of it back before it returns.

use pario::backing::back_free_memory;
use pario::core::Size;

/// Most that is touched.
const BYTES_MAX: u64 = 4 << 30;

/// Touches and frees so much memory, or three quarters of what is free if that is less; how much it was.
pub(crate) fn touch(bytes: u64) -> Size {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = bytes.min(BYTES_MAX).min(free_bytes(&meminfo) / 4 * 3);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = usize::try_from(bytes).unwrap_or(usize::MAX) / threads;
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // Where there is none to be had, the pass goes on with what there is.
            scope.spawn(move || drop(back_free_memory(share)));
        }
    });
    Size(bytes)
}

/// Memory that nobody uses, not even for the page cache; 0 where the kernel does not tell.
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
