//! The demonstration of `pario run` without a command: several processes write a field as a checkpoint, read it back cut
//! another way, verify every value, and a table says what happened and how fast.
//!
//! Never: succeeds unless every value was right.

pub(crate) mod field;
pub(crate) mod rank;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use pario::Partition;
use pario::core::Size;
use serde::Serialize;

use crate::bench::BenchError;
use crate::bench::job::{Job, Outcome};
use crate::bench::worker::{Worker, together};
use field::{Field, VALUE_BYTES};
use rank::{RankJob, Step};

/// Processes of the demonstration.
const RANKS: u64 = 4;
/// 64 MiB of doubles.
const FIELD: Field = Field { x: 256, y: 256, z: 128 };
const PATH: &str = "checkpoint";

/// What happened, as facts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Demonstration {
    /// The partition's name.
    pub(crate) partition: String,
    /// The file in it.
    pub(crate) file: String,
    /// Processes that took part.
    pub(crate) processes: u64,
    /// Servers of the partition.
    pub(crate) servers: usize,
    /// Cells along x, y, z.
    pub(crate) cells: [u64; 3],
    /// Bytes of the field.
    pub(crate) bytes: u64,
    /// The checkpoint.
    pub(crate) write: StepFacts,
    /// The restart.
    pub(crate) read: StepFacts,
    /// Every value was right; a demonstration with a wrong one fails.
    pub(crate) verified_values: u64,
}

/// One half of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct StepFacts {
    /// Calls of all processes.
    pub(crate) calls: u64,
    /// Bytes of each call.
    pub(crate) call_bytes: u64,
    /// Open to close, the slowest process.
    pub(crate) seconds: f64,
    /// Inside the calls, the slowest process.
    pub(crate) calls_seconds: f64,
    /// Bytes of the field in MiB, by `seconds`.
    pub(crate) mib_per_s: f64,
    /// What the processes counted, by name: requests sent, records, direct transfers, leases.
    pub(crate) counts: BTreeMap<String, u64>,
}

/// Runs the demonstration on a partition that is up and listed in the registry at `registry`.
pub(crate) fn run(partition: &Partition, registry: &Path) -> Result<Demonstration, BenchError> {
    partition.create(PATH)?.close()?;
    let start = |_| Worker::start(registry, &[]);
    let mut ranks: Vec<Worker> = (0..RANKS).map(start).collect::<Result<_, _>>()?;
    let job = |step| {
        let partition = partition.name().to_owned();
        move |rank| {
            Job::Rank(RankJob {
                partition: partition.clone(),
                path: PATH.to_owned(),
                field: FIELD,
                rank: rank as u64,
                ranks: RANKS,
                step,
            })
        }
    };
    let written = together(&mut ranks, job(Step::Checkpoint))?;
    let read = together(&mut ranks, job(Step::Restart))?;
    Ok(Demonstration {
        partition: partition.name().to_owned(),
        file: format!("pario://{}/{PATH}", partition.name()),
        processes: RANKS,
        servers: partition.mount_handle().servers(),
        cells: [FIELD.x, FIELD.y, FIELD.z],
        bytes: FIELD.bytes(),
        write: StepFacts::of(&written),
        read: StepFacts::of(&read),
        verified_values: FIELD.bytes() / VALUE_BYTES,
    })
}

impl StepFacts {
    fn of(outcomes: &[Outcome]) -> StepFacts {
        let slowest = |time: fn(&Outcome) -> f64| outcomes.iter().map(time).fold(f64::MIN_POSITIVE, f64::max);
        let calls: u64 = outcomes.iter().map(|outcome| outcome.calls).sum();
        let seconds = slowest(|outcome| outcome.seconds);
        let mut counts = BTreeMap::new();
        for (name, count) in outcomes.iter().flat_map(|outcome| &outcome.counts) {
            *counts.entry(name.clone()).or_default() += count;
        }
        StepFacts {
            calls,
            call_bytes: FIELD.bytes() / calls.max(1),
            seconds,
            calls_seconds: slowest(|outcome| outcome.calls_seconds),
            mib_per_s: crate::bench::mib(FIELD.bytes()) / seconds,
            counts,
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

impl Demonstration {
    /// For people.
    pub(crate) fn table(&self) -> String {
        let [x, y, z] = self.cells;
        let mut text = format!(
            "{} processes checkpoint a field of {x} × {y} × {z} doubles ({}) into one file on {} servers,\n\
             each its own pencil, row by row; then they restart: each reads a slab across all pencils.\n\n",
            self.processes,
            Size(self.bytes).rounded(),
            self.servers
        );
        text.push_str("           calls    of each   in calls   open to close       speed   messages   records   direct\n");
        for (name, step) in [("write", &self.write), ("read", &self.read)] {
            let direct = step.count("direct_writes") + step.count("direct_reads");
            let _ = writeln!(
                text,
                "  {name:<5} {:>8} {:>10} {:>10} {:>15} {:>11} {:>10} {:>9} {direct:>8}",
                step.calls,
                Size(step.call_bytes).rounded(),
                milliseconds(step.calls_seconds),
                milliseconds(step.seconds),
                format!("{:.0} MiB/s", step.mib_per_s),
                step.count("messages"),
                step.count("records"),
            );
        }
        let _ = write!(
            text,
            "\nverified: all {} values are what was computed for their cells\n\n\
             what to do next:\n  pario run --stage-out out/ -- ./program   a partition for the life of your program; \
             what it wrote is kept in out/\n  pario up --name scratch --servers 4 --dir /data   a partition that stays; \
             then pario cp, ls, status, down\n  pario bench io   how fast it is against plain files on this machine\n",
            self.verified_values
        );
        text
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_process_counts_and_counts_add_up() {
        let outcome = |seconds, records| Outcome {
            seconds,
            calls_seconds: seconds / 2.0,
            calls: 8,
            counts: BTreeMap::from([("records".to_owned(), records)]),
        };
        let facts = StepFacts::of(&[outcome(0.5, 3), outcome(1.0, 4)]);
        assert_eq!((facts.seconds, facts.calls_seconds, facts.calls), (1.0, 0.5, 16));
        assert_eq!(facts.count("records"), 7);
        assert_eq!(facts.mib_per_s, 64.0);
        assert_eq!(facts.call_bytes, FIELD.bytes() / 16);
    }
}
