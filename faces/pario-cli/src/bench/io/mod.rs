//! `pario bench io`: transfers through a partition against plain ones, start-up, memory, command latencies.

mod around;
mod compare;
pub(crate) mod transfer;

use std::path::PathBuf;

use pario::core::Size;

use super::error::BenchError;
use super::figures::Figures;
use super::ground::Ground;
use super::machine::Machine;
use super::progress::Progress;
use super::report::Report;
use compare::{Comparison, Directions};

/// What `bench io` is asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct IoPlan {
    /// Where; the system's directory for temporary files if `None`.
    pub(crate) dir: Option<PathBuf>,
    /// Bytes of a transfer in large calls; small calls move half of it.
    pub(crate) size: Size,
    /// Pairs per figure.
    pub(crate) pairs: usize,
}

/// Bytes of a large call.
const CALL_BYTES: usize = 1 << 20;
/// Bytes of a small call.
const SMALL_CALL_BYTES: usize = 8 << 10;
/// Servers of the partition that most figures are taken with.
const SERVERS: usize = 4;
/// Servers of the partition whose start is measured.
const MANY_SERVERS: usize = 16;

/// What all parts of the benchmark share.
struct Bench<'a> {
    plan: &'a IoPlan,
    ground: Ground,
    progress: Progress,
    figures: Figures,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &IoPlan) -> Result<Report, BenchError> {
    let ground = Ground::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let mut bench = Bench { plan, ground, progress: Progress::new(), figures: Figures::default() };
    bench.with_four()?;
    bench.with_one()?;
    bench.start_many()?;
    let Bench { ground, figures, .. } = bench;
    let title = format!(
        "pario bench io: {} in calls of {}, {} pairs, each in fresh processes, plain and Pario in turn",
        plan.size,
        Size(CALL_BYTES as u64),
        plan.pairs
    );
    let settings = serde_json::json!({
        "bytes": plan.size.0,
        "call_bytes": CALL_BYTES,
        "small_bytes": plan.size.0 / 2,
        "small_call_bytes": SMALL_CALL_BYTES,
        "pairs": plan.pairs,
        "servers": SERVERS,
        "dir": ground.dir().parent(),
    });
    ground.end()?;
    Ok(Report { title, figures, machine, settings })
}

impl Bench<'_> {
    fn with_four(&mut self) -> Result<(), BenchError> {
        let up = self.ground.up("four", SERVERS)?;
        let large = Comparison {
            partition: "four",
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[],
            directions: Directions::Both,
        };
        self.compare("", &large, (0.9, 0.9))?;
        let small = Comparison {
            bytes: self.plan.size.0 / 2,
            call_bytes: SMALL_CALL_BYTES,
            directions: Directions::Write,
            ..large
        };
        self.compare("small_", &small, (1.0, 1.0))?;
        let tcp = Comparison { variables: &[("PARIO_TRANSPORT", "tcp")], ..large };
        self.compare("tcp_", &tcp, (0.25, 0.25))?;
        self.load_memory(&up.entry, &small)?;
        self.commands("four")?;
        self.ground.down("four")
    }

    fn with_one(&mut self) -> Result<(), BenchError> {
        self.ground.up("one", 1)?;
        let large = Comparison {
            partition: "one",
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[],
            directions: Directions::Both,
        };
        self.compare("one_", &large, (0.8, 0.8))?;
        self.ground.down("one")
    }
}
