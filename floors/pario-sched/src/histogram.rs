//! A histogram with four buckets per doubling: values are known to a quarter, and memory grows with the largest value.
//!
//! Always: 256 buckets at most; merging two is the same as recording all values into one.

/// Buckets per doubling.
const PER_DOUBLING: u64 = 4;

/// Counts of values, by size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// Records one value.
    pub fn record(&mut self, value: u64) {
        let bucket = bucket(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The largest, exactly.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Their mean, or 0.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that `share` (0 to 1) of all values do not exceed: the upper end of its bucket, at most the largest.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let mut below = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            below += *count as f64;
            if 0 < *count && share * self.count as f64 <= below {
                return upper(bucket).min(self.max);
            }
        }
        self.max
    }

    /// Buckets that are not empty: the largest value of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| 0 < **count)
            .map(|(at, count)| (upper(at), *count))
    }
}

/// Values below 4 have a bucket each; then each doubling has four.
fn bucket(value: u64) -> usize {
    if value < PER_DOUBLING {
        return usize::try_from(value).unwrap_or(0);
    }
    let doubling = u64::from(value.ilog2());
    let quarter = (value >> (doubling - 2)) - PER_DOUBLING;
    usize::try_from((doubling - 1) * PER_DOUBLING + quarter).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_DOUBLING {
        return bucket;
    }
    let (doubling, quarter) = (bucket / PER_DOUBLING + 1, bucket % PER_DOUBLING);
    let next = u128::from(PER_DOUBLING + quarter + 1) << (doubling - 2);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_bucket_and_within_a_quarter() {
        for shift in 0..64 {
            for near in [-1_i64, 0, 1] {
                let value = (1_u64 << shift).saturating_add_signed(near);
                let end = upper(bucket(value));
                assert!(value <= end && end - value <= value / 4, "{value} lies in a bucket up to {end}");
                assert!(bucket(value) == 0 || upper(bucket(value) - 1) < value);
            }
        }
        assert!(bucket(u64::MAX) < 256);
    }

    #[test]
    fn quantiles_and_merging() {
        let (mut low, mut high, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 1..=100 {
            (if value <= 50 { &mut low } else { &mut high }).record(value);
            all.record(value);
        }
        low.merge(&high);
        assert_eq!(low, all);
        assert_eq!((all.count(), all.sum(), all.max()), (100, 5050, 100));
        assert_eq!((all.quantile(0.0), all.quantile(0.5), all.quantile(1.0)), (1, 55, 100));
        assert_eq!(Histogram::default().quantile(0.5), 0);
        assert_eq!(all.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    }
}
