//! Reused buffers for file data: zeroing a fresh mebibyte, and its page faults, cost as much as copying it.
//!
//! Never: keeps more than [`KEPT_MAX`] buffers, or small ones. Always: a borrower fills a buffer before passing it on: it may hold bytes
//! of an earlier use.

use std::sync::{Mutex, PoisonError};

/// Buffers kept by a process.
pub const KEPT_MAX: usize = 8;
/// Smaller ones are as well allocated.
const KEPT_BYTES_MIN: usize = 64 << 10;
/// Larger ones are rare, and would be too much memory to keep.
const KEPT_BYTES_MAX: usize = 1 << 20;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer of exactly `bytes` bytes, with arbitrary contents.
#[must_use]
pub fn take(bytes: usize) -> Vec<u8> {
    let spare = (KEPT_BYTES_MIN <= bytes).then(|| spare().pop()).flatten();
    match spare {
        Some(mut buffer) => {
            buffer.resize(bytes, 0);
            buffer
        }
        None => vec![0; bytes],
    }
}

/// Returns a buffer for reuse.
pub fn give_back(buffer: Vec<u8>) {
    if !(KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&buffer.len()) {
        return;
    }
    let mut spare = spare();
    if spare.len() < KEPT_MAX {
        spare.push(buffer);
    }
}

fn spare() -> std::sync::MutexGuard<'static, Vec<Vec<u8>>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_length_that_was_asked_for() {
        for bytes in [0, 10, KEPT_BYTES_MIN, KEPT_BYTES_MAX, 2 * KEPT_BYTES_MAX, KEPT_BYTES_MIN + 1] {
            let buffer = take(bytes);
            assert_eq!(buffer.len(), bytes);
            give_back(buffer);
        }
    }

    #[test]
    fn few_are_kept_and_none_that_are_small_or_huge() {
        for _ in 0..3 * KEPT_MAX {
            give_back(vec![1; KEPT_BYTES_MAX]);
            give_back(vec![1; 10]);
            give_back(vec![1; 3 * KEPT_BYTES_MAX]);
        }
        let spare = spare();
        assert!(spare.len() <= KEPT_MAX);
        assert!(spare.iter().all(|buffer| (KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&buffer.len())));
    }
}
