//! Random numbers for the model: small, seeded, the same on every machine.

use pario::core::SeededRandom;

/// Distributions over [`SeededRandom`].
#[derive(Clone, Debug)]
pub(crate) struct ModelRandom(SeededRandom);

impl ModelRandom {
    /// From a seed; seeds that lie close together give unrelated numbers.
    pub(crate) fn new(seed: u64) -> ModelRandom {
        ModelRandom(SeededRandom::new(seed))
    }

    /// Evenly in `0.0..1.0`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly in `0..below`; 0 if there is nothing below.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        // The bias of the remainder is far below what a model can show.
        if below == 0 { 0 } else { self.0.below(below) }
    }

    /// Exponentially, with this mean.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "at most 37 means, nanoseconds"
    )]
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_always_the_same_numbers() {
        let mut random = ModelRandom::new(7);
        let drawn: Vec<u64> = (0..4).map(|_| random.below(1000)).collect();
        let mut again = ModelRandom::new(7);
        assert_eq!(drawn, (0..4).map(|_| again.below(1000)).collect::<Vec<_>>());
        let mut other = ModelRandom::new(8);
        assert_ne!(drawn, (0..4).map(|_| other.below(1000)).collect::<Vec<_>>());
    }

    #[test]
    fn means_are_what_was_asked_for() {
        let mut random = ModelRandom::new(1);
        let sum: u64 = (0..100_000).map(|_| random.exponential(1000)).sum();
        assert!((98_000_000..102_000_000).contains(&sum), "{sum}");
        let sum: u64 = (0..100_000).map(|_| random.below(1001)).sum();
        assert!((49_000_000..51_000_000).contains(&sum), "{sum}");
        assert_eq!(random.below(0), 0);
    }
}
