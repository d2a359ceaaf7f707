//! Statistics: requests posted, merged, served and waited for, per file, per application and in total; and fairness.
//!
//! Always: counts of forgotten files and applications are kept in sum, so that totals add up.

use crate::histogram::Histogram;
use crate::policy::WaitingFigures;
use crate::request::{ApplicationId, FileId, IoKind};

/// Counts and histograms of one file, one application, or all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Requests accepted.
    pub posted: u64,
    /// Requests refused because a queue was full.
    pub refused: u64,
    /// Requests held back because earlier ones touched the same bytes.
    pub held: u64,
    /// Requests withdrawn before they ran.
    pub withdrawn: u64,
    /// Requests that succeeded.
    pub done: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that ended after their deadline.
    pub late: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Virtual requests served (an application's are those with its request as the oldest).
    pub virtual_requests: u64,
    /// Requests served in them; divided by `virtual_requests` this is the aggregation factor.
    pub served: u64,
    /// Operations issued to hosts; fewer than `served` with real aggregation.
    pub runs: u64,
    /// Lengths of requests, in bytes.
    pub request_bytes: Histogram,
    /// From arrival to `next`, in microseconds.
    pub wait_us: Histogram,
    /// From `next` to `complete`, in microseconds.
    pub service_us: Histogram,
}

impl Totals {
    /// Adds the counts of another one.
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

    /// Slow-down of its requests relative to their service time alone; `None` before any was served in measurable time.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let (wait, service) = (self.wait_us.sum() as f64, self.service_us.sum() as f64);
        (0.0 < service).then(|| (wait + service) / service)
    }

    pub(crate) fn note_done(&mut self, kind: IoKind, bytes: u64) {
        self.done += 1;
        match kind {
            IoKind::Read => self.read_bytes += bytes,
            IoKind::Write => self.written_bytes += bytes,
        }
    }
}

/// Statistics of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationFigures {
    /// The application.
    pub application: ApplicationId,
    /// Its weight.
    pub weight: u32,
    /// Its unfinished requests.
    pub unfinished: usize,
    /// Time with unfinished requests.
    pub busy_us: u64,
    /// Its counts.
    pub totals: Totals,
}

/// Statistics of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFigures {
    /// The file.
    pub file: FileId,
    /// Its counts.
    pub totals: Totals,
}

/// Fairness between the applications that were served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fairness {
    /// Jain's index over bytes by busy time and weight: 1 is even, 1/n is all for one. `None` before the first service.
    pub jain: Option<f64>,
    /// The largest slow-down of an application over the smallest.
    pub slowest_to_fastest: Option<f64>,
}

/// All statistics.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// All requests.
    pub total: Totals,
    /// By application, in the order of ids.
    pub applications: Vec<ApplicationFigures>,
    /// By file, in the order of ids.
    pub files: Vec<FileFigures>,
    /// Applications forgotten since, in sum.
    pub forgotten_applications: Totals,
    /// Files forgotten since, in sum.
    pub forgotten_files: Totals,
    /// Requests not yet running.
    pub waiting: usize,
    /// Requests running.
    pub running: usize,
    /// Cost and savings of deliberate waiting.
    pub deliberate: WaitingFigures,
    /// Fairness of the service.
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
