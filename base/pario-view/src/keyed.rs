//! A keyed hash for lists of very many numbers; the key is random per process and unknown to senders of views.
//!
//! The standard library's hash takes longer for a list than decoding it. Never: leaves this process; hashes are comparable only under one
//! key.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    start: u64,
    factor: u64,
}

impl Default for Keyed {
    fn default() -> Keyed {
        let random = RandomState::new();
        // An odd factor is invertible, so no input bit is lost.
        Keyed { start: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding { state: self.start, factor: self.factor }
    }
}

/// Multiplies each word with the key and folds the product's halves together.
#[derive(Debug)]
pub(crate) struct Folding {
    state: u64,
    factor: u64,
}

/// Words hashed independently, so that one product need not wait for the one before.
const LANES: usize = 4;

/// The halves of a product, folded together.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let halves = u128::from(one).wrapping_mul(u128::from(other)).to_le_bytes();
    let half = |from: usize| u64::from_le_bytes(halves[from..from + 8].try_into().expect("eight bytes"));
    half(0) ^ half(8)
}

impl Folding {
    #[inline]
    fn take(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor);
    }
}

impl Hasher for Folding {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let (rows, odd) = words.as_chunks::<LANES>();
        if !rows.is_empty() {
            let mut lanes: [u64; LANES] = [0, 16, 32, 48].map(|bits| self.state.rotate_left(bits));
            for row in rows {
                for (lane, word) in lanes.iter_mut().zip(row) {
                    *lane = fold(*lane ^ u64::from_le_bytes(*word), self.factor);
                }
            }
            lanes.into_iter().for_each(|lane| self.take(lane));
        }
        odd.iter().for_each(|word| self.take(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.take(u64::from_le_bytes(last) ^ (bytes.len() as u64).rotate_right(8));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.take(number);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn what_differs_in_a_bit_a_length_or_a_place_hashes_differently() {
        let keyed = Keyed::default();
        let plain = vec![7u8; 77];
        let mut all: Vec<Vec<u8>> = (0..=77).map(|length| plain[..length].to_vec()).collect();
        all.extend((0..77 * 8).map(|bit| {
            let mut other = plain.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            other
        }));
        all.push([&plain[..], &[0]].concat());
        all.extend((1..70).map(|zeros| vec![0; zeros]));
        // The same words in another order.
        let words: Vec<u8> = (0..12u64).flat_map(u64::to_le_bytes).collect();
        all.extend((0..12).map(|turn| [&words[8 * turn..], &words[..8 * turn]].concat()));
        let hashes: HashSet<u64> = all.iter().map(|bytes| keyed.hash_one(bytes)).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn equal_things_hash_equally_with_one_secret_and_not_with_another() {
        let (one, other) = (Keyed::default(), Keyed::default());
        let numbers: Vec<i64> = (0..1000).map(|number| number * 40).collect();
        assert_eq!(one.hash_one(&numbers), one.hash_one(numbers.clone()));
        assert_ne!(one.hash_one(&numbers), other.hash_one(&numbers));
    }
}
