//! Statistics: what was asked, joined, served and waited for; per file, per application and in all; and how fair that was.
//!
//! Always: figures of forgotten files and applications are kept in sum, so that totals add up.

use crate::histogram::Histogram;
use crate::policy::WaitingFigures;
use crate::request::{ApplicationId, FileId, Kind};

/// Counts and histograms of one file, one application, or all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests taken.
    pub posted: u64,
    /// Requests refused because a queue was full.
    pub refused: u64,
    /// Requests held back for a while because earlier ones touched the same bytes.
    pub held: u64,
    /// Requests taken back before they ran.
    pub withdrawn: u64,
    /// Requests that ended well.
    pub done: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that ended after their deadline.
    pub late: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Virtual requests served (an application's are those whose oldest request is its own).
    pub virtual_requests: u64,
    /// Requests served in them; over `virtual_requests` this is the factor of aggregation.
    pub served: u64,
    /// Operations told to hosts; fewer than `served` with real aggregation.
    pub runs: u64,
    /// Lengths of requests, in bytes.
    pub request_bytes: Histogram,
    /// From arrival to `next`, in microseconds.
    pub wait_us: Histogram,
    /// From `next` to `complete`, in microseconds.
    pub service_us: Histogram,
}

impl Totals {
    /// Adds another one's figures.
    pub fn merge(&mut self, other: &Self) {
        self.posted += other.posted;
        self.refused += other.refused;
        self.held += other.held;
        self.withdrawn += other.withdrawn;
        self.done += other.done;
        self.failed += other.failed;
        self.late += other.late;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.virtual_requests += other.virtual_requests;
        self.served += other.served;
        self.runs += other.runs;
        self.request_bytes.merge(&other.request_bytes);
        self.wait_us.merge(&other.wait_us);
        self.service_us.merge(&other.service_us);
    }

    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// How much longer its requests took than their service alone; `None` before anything was served in measurable time.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let (wait, service) = (self.wait_us.sum() as f64, self.service_us.sum() as f64);
        (0.0 < service).then(|| (wait + service) / service)
    }

    pub(crate) fn note_done(&mut self, kind: Kind, bytes: u64) {
        self.done += 1;
        match kind {
            Kind::Read => self.read_bytes += bytes,
            Kind::Write => self.written_bytes += bytes,
        }
    }
}

/// An application's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationFigures {
    /// Which.
    pub application: ApplicationId,
    /// Its weight.
    pub weight: u32,
    /// Its unfinished requests.
    pub unfinished: usize,
    /// How long it has had unfinished requests.
    pub busy_us: u64,
    /// Its counts.
    pub totals: Totals,
}

/// A file's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFigures {
    /// Which.
    pub file: FileId,
    /// Its counts.
    pub totals: Totals,
}

/// How evenly service was shared between applications that were served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fairness {
    /// Jain's index over bytes by busy time and weight: 1 is even, 1/n is all for one. `None` before anything was served.
    pub jain: Option<f64>,
    /// The largest slow-down of an application over the smallest.
    pub slowest_to_fastest: Option<f64>,
}

/// Everything that is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// All requests.
    pub total: Totals,
    /// By application, in the order of ids.
    pub applications: Vec<ApplicationFigures>,
    /// By file, in the order of ids.
    pub files: Vec<FileFigures>,
    /// Applications forgotten since, together.
    pub forgotten_applications: Totals,
    /// Files forgotten since, together.
    pub forgotten_files: Totals,
    /// Requests not yet running.
    pub waiting: usize,
    /// Requests running.
    pub running: usize,
    /// What deliberate waiting has cost and won.
    pub deliberate: WaitingFigures,
    /// How evenly service was shared.
    pub fairness: Fairness,
}

/// Jain's index of fairness: the square of the sum over n times the sum of squares.
#[must_use]
pub fn jain(shares: &[f64]) -> Option<f64> {
    let (sum, squares) =
        shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    (0.0 < squares).then(|| sum * sum / (shares.len() as f64 * squares))
}

pub(crate) fn fairness(applications: &[ApplicationFigures]) -> Fairness {
    let served = || applications.iter().filter(|one| 0 < one.totals.bytes() && 0 < one.busy_us);
    let share =
        |one: &ApplicationFigures| one.totals.bytes() as f64 / one.busy_us as f64 / f64::from(one.weight);
    let shares: Vec<f64> = served().map(share).collect();
    let slowdowns = || served().filter_map(|one| one.totals.slowdown());
    let slowest = slowdowns().reduce(f64::max);
    let fastest = slowdowns().reduce(f64::min);
    let slowest_to_fastest = slowest.zip(fastest).map(|(slowest, fastest)| slowest / fastest);
    Fairness { jain: jain(&shares), slowest_to_fastest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_one_when_even_and_one_nth_when_not() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
    }
}
