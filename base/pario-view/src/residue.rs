//! Arithmetic of remainders: the first hit of an arithmetic progression in a periodic window.
//!
//! Never: steps through the progression; the number of divisions is logarithmic.

/// The smallest `i` with `low <= (step * i) mod modulus <= high`. Wants `low <= high < modulus`.
pub(crate) fn first_in_window(step: u64, modulus: u64, low: u64, high: u64) -> Option<u64> {
    let (step, modulus) = (u128::from(step % modulus), u128::from(modulus));
    let first = first_hit(step, modulus, u128::from(low), u128::from(high))?;
    u64::try_from(first).ok()
}

/// As above, with `step < modulus`. Each level replaces the modulus by the step, as in Euclid's algorithm.
fn first_hit(step: u128, modulus: u128, low: u128, high: u128) -> Option<u128> {
    if low == 0 {
        return Some(0);
    }
    if step == 0 {
        return None;
    }
    let direct = low.div_ceil(step);
    if direct * step <= high {
        return Some(direct);
    }
    // No multiple of the step is in the window itself, so the first hit is after `turns` wraps of the modulus: step * i = modulus * turns
    // + r with r in low..=high, that is, modulus * turns leaves a remainder, by the step, that the window fills up to a multiple of it.
    let turns = first_hit(modulus % step, step, step - high % step, step - low % step)?;
    Some((modulus * turns + low).div_ceil(step))
}

/// Greatest common divisor; `gcd(0, n)` is `n`.
pub(crate) fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_where_steps_are_huge() {
        assert_eq!(first_in_window(1 << 40, (1 << 41) + 1, 0, 5), Some(0));
        assert_eq!(first_in_window(4096, 1 << 40, 5, 4095), None);
        assert_eq!(first_in_window(3, 1 << 62, (1 << 62) - 1, (1 << 62) - 1), Some((1 << 62) / 3));
    }

    proptest! {
        #[test]
        fn finds_what_stepping_finds(step in 0u64..200, modulus in 1u64..100, a in 0u64..100, b in 0u64..100) {
            let (low, high) = ((a % modulus).min(b % modulus), (a % modulus).max(b % modulus));
            let stepped = (0..modulus).find(|i| (low..=high).contains(&(step * i % modulus)));
            prop_assert_eq!(first_in_window(step, modulus, low, high), stepped);
        }
    }
}
