//! Non-temporal copies, past the processor's caches: for memory that is written once and read later by another process.
//!
//! A plain copy first reads the lines it will overwrite and evicts the application's data from the cache. Never: leaves stores in flight:
//! a later publishing store is seen after the copied bytes. Always: full cache lines; the ends of a range are copied plainly.

#![expect(unsafe_code, reason = "raw memory is written by instructions that the language has no word for")]

/// Bytes of a line of the cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;

/// Copies all of `source`.
///
/// # Safety
/// `target..target + source.len()` is mapped writable and does not overlap `source`; no Rust reference to it is in use.
pub(crate) unsafe fn copy(source: &[u8], target: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let head = target.align_offset(LINE_BYTES).min(source.len());
        let (head, rest) = source.split_at(head);
        // SAFETY: the head lies inside the range that the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(head.as_ptr(), target, head.len()) };
        let (lines, tail) = rest.as_chunks::<LINE_BYTES>();
        let mut at = target.wrapping_add(head.len());
        for line in lines {
            // SAFETY: the line lies inside the range that the caller guarantees, and begins at a multiple of its size.
            unsafe { stream_line(line, at) };
            at = at.wrapping_add(LINE_BYTES);
        }
        // SAFETY: the tail lies inside the range that the caller guarantees.
        unsafe { std::ptr::copy_nonoverlapping(tail.as_ptr(), at, tail.len()) };
        // SAFETY: every processor of this kind has the instruction.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
    }
}

/// # Safety
/// `target` is a multiple of a line's size, and its line is mapped writable.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn stream_line(line: &[u8; LINE_BYTES], target: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let (quarters, _) = line.as_chunks::<{ size_of::<__m128i>() }>();
    for (number, quarter) in quarters.iter().enumerate() {
        // SAFETY: the bytes are there, and need no alignment.
        let bytes = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
        let at = target.wrapping_add(number * size_of::<__m128i>());
        // SAFETY: `at` lies in the line that the caller promises and is aligned as it is; `copy` fences before it returns.
        unsafe { _mm_stream_si128(at.cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around a few lines, to every offset in a line.
    #[test]
    fn every_byte_is_copied_and_no_other() {
        let source: Vec<u8> = (0..400u32).map(|byte| byte.to_le_bytes()[0].wrapping_mul(7)).collect();
        for start in 0..70 {
            for bytes in [0, 1, 15, 63, 64, 65, 127, 128, 200, 300] {
                let mut target = vec![0xEE; 500];
                // SAFETY: `start + bytes < 500`, and the vector is ours alone.
                unsafe { copy(&source[..bytes], target.as_mut_ptr().wrapping_add(start)) };
                assert_eq!(target[start..start + bytes], source[..bytes], "{start} {bytes}");
                let others = target[..start].iter().chain(&target[start + bytes..]);
                assert!(others.copied().all(|byte| byte == 0xEE), "{start} {bytes}");
            }
        }
    }
}
