//! Asking for memory before it is copied from.
//!
//! A copy from memory that is in no cache waits for it: a core has few requests of its own under way, and hardware looks ahead only inside
//! a page, along one run. The second level of cache has more under way. So whoever knows what is copied next asks for it a few thousand
//! bytes before: pieces of 1280 bytes at equal distances were copied 1.6 times as fast, and one run 2.3 times (AMD EPYC).
//!
//! Never: faults, or waits; an address that is not there is forgotten. Always: reads nothing that a program could see.

#![cfg_attr(
    all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)),
    expect(unsafe_code, reason = "an instruction that the language has no word for")
)]

/// Bytes of a line of the cache.
const LINE_BYTES: usize = 64;

/// Asks for `bytes` bytes from `start` on to come into the second level of cache.
#[inline]
pub(crate) fn fetch(start: *const u8, bytes: usize) {
    let first = start.addr() % LINE_BYTES;
    let mut at = start.wrapping_sub(first);
    for _ in 0..(first + bytes).div_ceil(LINE_BYTES) {
        fetch_line(at);
        at = at.wrapping_add(LINE_BYTES);
    }
}

#[inline]
fn fetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every processor of this kind has the instruction, and it does nothing with an address that is not mapped.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, readonly, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_for_nothing_happens() {
        let bytes = vec![1u8; 10_000];
        fetch(bytes.as_ptr(), bytes.len());
        fetch(bytes.as_ptr().wrapping_add(63), 2);
        fetch(std::ptr::null(), 1000);
        fetch(std::ptr::without_provenance(usize::MAX - 100), 1000);
        assert!(bytes.iter().all(|byte| *byte == 1));
    }
}
