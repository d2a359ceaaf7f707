//! A seeded random generator (splitmix64) for tests and fault drivers: the same seed gives the same numbers.
//!
//! Never: a source of secrets.

/// splitmix64 with a seed; see the module.
#[derive(Clone, Debug, Default)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number of `0..end`.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(0 < end, "an empty range has no number");
        self.next_u64() % end
    }

    /// A number of `from..end`.
    pub fn between(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end - from)
    }

    /// An index of a sequence of `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// True once in `n` times, on average.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True or false, equally often.
    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// One of these; there must be one.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// One of these, or `None` if there is none.
    pub fn try_pick<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        (!choices.is_empty()).then(|| self.pick(choices))
    }

    /// An independent generator, for a part of a run.
    #[must_use]
    pub fn split(&mut self) -> SeededRandom {
        SeededRandom(self.next_u64())
    }
}

/// The finaliser of splitmix64: equal inputs give equal outputs, neighbouring inputs unrelated ones.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let mut random = SeededRandom::new(0);
        // The published first outputs of splitmix64 for seed 0.
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }
}
