//! One run of the program and the seconds that it told.

use std::collections::BTreeMap;

/// Opening and closing only.
pub(super) const OPEN_CLOSE: &str = "open_close";
/// Writing behind computing.
pub(super) const OVERLAP: &str = "overlap";

/// Whose I/O.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    /// The MPI library's.
    Native,
    Pario,
    /// Exchange and `pwrite`, as users write it.
    Hand,
}

/// By which calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum How {
    Collective,
    Independent,
    Nonblocking,
    Handwritten,
}

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Work {
    pub(super) kernel: String,
    pub(super) side: Side,
    pub(super) how: How,
    pub(super) ranks: u16,
    pub(super) limited: bool,
}

/// What was run, by which MPI, and its times.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// `romio` or `ompio`: whose I/O the native side is.
    pub(super) mpi: &'static str,
    pub(super) work: Work,
    pub(super) times: Times,
}

/// Seconds of every round by what they are for, and the bytes that they moved.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    pub(super) bytes: f64,
    pub(super) seconds: BTreeMap<String, Vec<f64>>,
}

impl Side {
    pub(super) fn word(self) -> &'static str {
        match self {
            Side::Native => "native",
            Side::Pario => "pario",
            Side::Hand => "by hand",
        }
    }
}

impl How {
    pub(super) fn word(self) -> &'static str {
        match self {
            How::Collective => "collective",
            How::Independent => "independent",
            How::Nonblocking => "nonblocking",
            How::Handwritten => "handwritten",
        }
    }
}

impl Times {
    /// From the line that the program printed.
    pub(super) fn parse(line: &str) -> Option<Times> {
        let facts: serde_json::Value = serde_json::from_str(line.trim()).ok()?;
        let bytes = facts["bytes"].as_f64()?;
        let numbers = |value: &serde_json::Value| -> Option<Vec<f64>> {
            value.as_array()?.iter().map(serde_json::Value::as_f64).collect()
        };
        let all = facts.as_object()?.iter();
        let seconds = all.filter_map(|(name, value)| Some((name.clone(), numbers(value)?))).collect();
        Some(Times { bytes, seconds })
    }

    /// Rounds of another run of the same.
    pub(super) fn append(&mut self, other: Times) {
        for (kind, seconds) in other.seconds {
            self.seconds.entry(kind).or_default().extend(seconds);
        }
    }

    /// All rounds; none if it was not measured.
    pub(super) fn of(&self, kind: &str) -> &[f64] {
        self.seconds.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The median round; of an even number the longer of the two in the middle.
    pub(super) fn median(&self, kind: &str) -> Option<f64> {
        let mut rounds: Vec<f64> = self.of(kind).iter().copied().filter(|seconds| 0.0 < *seconds).collect();
        rounds.sort_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied()
    }

    /// Megabytes a second in the median round.
    pub(super) fn speed(&self, kind: &str) -> Option<f64> {
        self.median(kind).map(|seconds| self.bytes / seconds / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_several_runs_are_put_together() {
        let mut times = Times::parse("{\"bytes\": 1, \"write_s\": [2]}").unwrap();
        times.append(Times::parse("{\"bytes\": 1, \"write_s\": [1, 3], \"read_s\": [5]}").unwrap());
        assert_eq!((times.of("write_s"), times.of("read_s")), (&[2.0, 1.0, 3.0][..], &[5.0][..]));
    }

    #[test]
    fn the_programs_line_is_understood() {
        let times = Times::parse("{\"bytes\": 2000000, \"write_s\": [0.5, 0.25], \"read_s\": []}\n").unwrap();
        assert_eq!(times.of("write_s"), [0.5, 0.25]);
        assert_eq!(times.speed("write_s"), Some(4.0));
        assert_eq!((times.median("read_s"), times.median("cold_read_s")), (None, None));
        assert!(Times::parse("something else").is_none());
        assert!(Times::parse("{\"write_s\": [1]}").is_none());
    }
}
