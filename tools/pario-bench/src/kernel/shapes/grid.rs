//! Grids of processes.

/// A grid of `dimensions` edges for `processes` processes, as equal as possible, largest first.
pub(super) fn balanced(processes: u64, dimensions: usize) -> Vec<u64> {
    let mut edges = vec![1; dimensions];
    for factor in prime_factors(processes).into_iter().rev() {
        let smallest = (0..dimensions).min_by_key(|index| edges[*index]).unwrap_or(0);
        edges[smallest] *= factor;
    }
    edges.sort_unstable_by(|a: &u64, b| b.cmp(a));
    edges
}

fn prime_factors(mut number: u64) -> Vec<u64> {
    let mut factors = Vec::new();
    let mut factor = 2;
    while factor * factor <= number {
        while number.is_multiple_of(factor) {
            factors.push(factor);
            number /= factor;
        }
        factor += 1;
    }
    if 1 < number {
        factors.push(number);
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_as_equal_as_can_be() {
        assert_eq!(balanced(4, 2), [2, 2]);
        assert_eq!(balanced(8, 2), [4, 2]);
        assert_eq!(balanced(64, 2), [8, 8]);
        assert_eq!(balanced(12, 3), [3, 2, 2]);
        assert_eq!(balanced(7, 4), [7, 1, 1, 1]);
        assert_eq!(balanced(1, 3), [1, 1, 1]);
    }
}
