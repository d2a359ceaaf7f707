//! `pario bench io`: transfers through a partition against plain ones, start-up, memory, command latencies.

mod around;
mod checksums;
mod compare;
mod protected;
pub(crate) mod transfer;

use std::path::PathBuf;

use pario::core::Size;

use super::error::BenchError;
use super::figures::Figures;
use super::machine::Machine;
use super::progress::BenchProgress;
use super::report::BenchReport;
use super::testbed::Testbed;
use compare::{Comparison, TransferDirections};

/// Checked options of `bench io`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct IoPlan {
    /// Directory; the system\'s temporary directory if `None`.
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
/// Servers of the partition of most figures.
const SERVERS: usize = 4;
/// Servers of the partition for the start time.
const MANY_SERVERS: usize = 16;

/// State shared by all parts of the benchmark.
struct IoBench<'a> {
    plan: &'a IoPlan,
    testbed: Testbed,
    progress: BenchProgress,
    figures: Figures,
}

/// Runs the benchmark.
pub(crate) fn run(plan: &IoPlan) -> Result<BenchReport, BenchError> {
    let ground = Testbed::new(plan.dir.as_deref())?;
    let machine = Machine::here(ground.dir());
    let mut bench =
        IoBench { plan, testbed: ground, progress: BenchProgress::new(), figures: Figures::default() };
    bench.with_four()?;
    bench.with_one()?;
    bench.with_checksums()?;
    bench.start_many()?;
    let IoBench { testbed: ground, figures, .. } = bench;
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
    Ok(BenchReport { title, figures, machine, settings })
}

impl IoBench<'_> {
    fn with_four(&mut self) -> Result<(), BenchError> {
        let up = self.testbed.up("four", SERVERS)?;
        let large = Comparison {
            partition: "four",
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[],
            directions: TransferDirections::Both,
        };
        self.compare("", &large, (0.9, 0.9))?;
        let small = Comparison {
            bytes: self.plan.size.0 / 2,
            call_bytes: SMALL_CALL_BYTES,
            directions: TransferDirections::Write,
            ..large
        };
        self.compare("small_", &small, (1.0, 1.0))?;
        let tcp = Comparison { variables: &[("PARIO_TRANSPORT", "tcp")], ..large };
        self.compare("tcp_", &tcp, (0.25, 0.25))?;
        self.protected("four")?;
        self.load_memory(&up.entry, &small)?;
        self.commands("four")?;
        self.testbed.down("four")
    }

    fn with_one(&mut self) -> Result<(), BenchError> {
        self.testbed.up("one", 1)?;
        let large = Comparison {
            partition: "one",
            bytes: self.plan.size.0,
            call_bytes: CALL_BYTES,
            variables: &[],
            directions: TransferDirections::Both,
        };
        self.compare("one_", &large, (0.8, 0.8))?;
        self.testbed.down("one")
    }
}
