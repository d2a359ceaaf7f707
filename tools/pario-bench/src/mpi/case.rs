//! One run of the program and its times.

use std::collections::BTreeMap;

/// Opening and closing only.
pub(super) const OPEN_CLOSE: &str = "open_close";
/// Writing overlapped with computing.
pub(super) const OVERLAP: &str = "overlap";

/// I/O implementation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum MpiSide {
    /// The MPI library's.
    Native,
    Pario,
    /// Exchange and `pwrite`, hand-written.
    Hand,
}

/// Kind of calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum MpiCallKind {
    Collective,
    Independent,
    Nonblocking,
    Handwritten,
}

/// Specification of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MpiRunSpec {
    pub(super) kernel: String,
    pub(super) side: MpiSide,
    pub(super) how: MpiCallKind,
    pub(super) ranks: u16,
    pub(super) limited: bool,
}

/// A run with its MPI and its times.
#[derive(Clone, Debug)]
pub(super) struct MpiCase {
    /// `romio` or `ompio`: I/O implementation of the native side.
    pub(super) mpi: &'static str,
    pub(super) work: MpiRunSpec,
    pub(super) times: MpiTimes,
}

/// Seconds of every repetition by kind, and the bytes moved.
#[derive(Clone, Debug, Default)]
pub(super) struct MpiTimes {
    pub(super) bytes: f64,
    pub(super) seconds: BTreeMap<String, Vec<f64>>,
}

impl MpiSide {
    pub(super) fn word(self) -> &'static str {
        match self {
            MpiSide::Native => "native",
            MpiSide::Pario => "pario",
            MpiSide::Hand => "by hand",
        }
    }
}

impl MpiCallKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            MpiCallKind::Collective => "collective",
            MpiCallKind::Independent => "independent",
            MpiCallKind::Nonblocking => "nonblocking",
            MpiCallKind::Handwritten => "handwritten",
        }
    }
}

impl MpiTimes {
    /// From the program's output line.
    pub(super) fn parse(line: &str) -> Option<MpiTimes> {
        let facts: serde_json::Value = serde_json::from_str(line.trim()).ok()?;
        let bytes = facts["bytes"].as_f64()?;
        let numbers = |value: &serde_json::Value| -> Option<Vec<f64>> {
            value.as_array()?.iter().map(serde_json::Value::as_f64).collect()
        };
        let all = facts.as_object()?.iter();
        let seconds = all.filter_map(|(name, value)| Some((name.clone(), numbers(value)?))).collect();
        Some(MpiTimes { bytes, seconds })
    }

    /// Adds the repetitions of another run.
    pub(super) fn append(&mut self, other: MpiTimes) {
        for (kind, seconds) in other.seconds {
            self.seconds.entry(kind).or_default().extend(seconds);
        }
    }

    /// All repetitions; empty if not measured.
    pub(super) fn of(&self, kind: &str) -> &[f64] {
        self.seconds.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The median; of an even number the longer of the two in the middle.
    pub(super) fn median(&self, kind: &str) -> Option<f64> {
        let mut rounds: Vec<f64> = self.of(kind).iter().copied().filter(|seconds| 0.0 < *seconds).collect();
        rounds.sort_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied()
    }

    /// Megabytes per second in the median repetition.
    pub(super) fn speed(&self, kind: &str) -> Option<f64> {
        self.median(kind).map(|seconds| self.bytes / seconds / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_of_several_runs_are_put_together() {
        let mut times = MpiTimes::parse("{\"bytes\": 1, \"write_s\": [2]}").unwrap();
        times.append(MpiTimes::parse("{\"bytes\": 1, \"write_s\": [1, 3], \"read_s\": [5]}").unwrap());
        assert_eq!((times.of("write_s"), times.of("read_s")), (&[2.0, 1.0, 3.0][..], &[5.0][..]));
    }

    #[test]
    fn the_programs_line_is_understood() {
        let times =
            MpiTimes::parse("{\"bytes\": 2000000, \"write_s\": [0.5, 0.25], \"read_s\": []}\n").unwrap();
        assert_eq!(times.of("write_s"), [0.5, 0.25]);
        assert_eq!(times.speed("write_s"), Some(4.0));
        assert_eq!((times.median("read_s"), times.median("cold_read_s")), (None, None));
        assert!(MpiTimes::parse("another line").is_none());
        assert!(MpiTimes::parse("{\"write_s\": [1]}").is_none());
    }
}
