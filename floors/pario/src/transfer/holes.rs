//! Finds runs of zeros that need not be written.

use std::ops::Range;

/// Unit of hole detection.
const PAGE_BYTES: usize = 4 << 10;
/// Shorter runs of zeros are written: a hole saves less than splitting a write costs.
const HOLE_BYTES_MIN: usize = 16 << 10;

/// The parts of `data` that must be written: everything but long runs of pages full of zeros.
pub(super) fn data_parts(data: &[u8]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    for (page, bytes) in data.chunks(PAGE_BYTES).enumerate() {
        if is_zero(bytes) {
            continue;
        }
        let (start, end) = (page * PAGE_BYTES, page * PAGE_BYTES + bytes.len());
        match parts.last_mut() {
            Some(last) if start - last.end < HOLE_BYTES_MIN => last.end = end,
            Some(_) => parts.push(start..end),
            None if start < HOLE_BYTES_MIN => parts.push(0..end),
            None => parts.push(start..end),
        }
    }
    if let Some(last) = parts.last_mut()
        && data.len() - last.end < HOLE_BYTES_MIN
    {
        last.end = data.len();
    }
    parts
}

fn is_zero(bytes: &[u8]) -> bool {
    let (before, words, after) =
        (bytes.len() % 16, bytes.chunks_exact(16), bytes.chunks_exact(16).remainder());
    debug_assert_eq!(before, after.len());
    // One accumulator over the page lets the compiler use wide registers; data differs early in most pages.
    bytes.first().is_none_or(|first| *first == 0)
        && words.fold(0u8, |seen, word| word.iter().fold(seen, |seen, byte| seen | byte)) == 0
        && after.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(length: usize, ones: &[usize], expected: &[Range<usize>]) {
        let mut data = vec![0u8; length];
        for at in ones {
            data[*at] = 1;
        }
        assert_eq!(data_parts(&data), expected);
    }

    #[test]
    fn zeros_alone_are_a_hole() {
        check(0, &[], &[]);
        check(100, &[], &[]);
        check(1 << 20, &[], &[]);
    }

    #[test]
    fn data_without_long_zeros_is_one_part() {
        check(100, &[99], std::slice::from_ref(&(0..100)));
        check(20 << 10, &[0, 12 << 10], std::slice::from_ref(&(0..20 << 10)));
    }

    #[test]
    fn long_runs_are_left_out() {
        check(64 << 10, &[0, (40 << 10) + 5], &[0..4 << 10, 40 << 10..44 << 10]);
        check((64 << 10) + 3, &[(64 << 10) + 2], std::slice::from_ref(&(64 << 10..(64 << 10) + 3)));
    }

    #[test]
    fn what_is_left_out_is_zero() {
        for step in [1, 777, 5000, 30_000] {
            let mut data = vec![0u8; 300_001];
            (0..data.len()).step_by(step).for_each(|at| data[at] = 7);
            let mut copy = vec![0u8; data.len()];
            for part in data_parts(&data) {
                copy[part.clone()].copy_from_slice(&data[part]);
            }
            assert_eq!(copy, data, "step {step}");
        }
    }
}
