//! Options of `pario bench team`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario::core::Size;

use super::CommonArgs;
use crate::kernel::BtioClass;
use crate::team::{self, TeamBenchPlan, TeamKernel, TeamSide};
use crate::{BenchError, BenchResult};

/// Most threads of a team.
const THREADS_MAX: u32 = 256;

#[derive(ClapArgs, Debug)]
pub(super) struct TeamArgs {
    /// What is run
    #[arg(value_name = "KERNEL")]
    kernel: TeamKernel,
    #[command(flatten)]
    common: CommonArgs,
    /// Bytes that all threads write in a run; of images, of each of 13 files [default: 128MiB, 32MiB; a quarter with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// micro: these numbers of threads, separated by commas, instead of the scenarios of the figures
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    threads: Vec<u32>,
    /// micro: these sizes of parts, separated by commas, instead of the scenarios of the figures
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    parts: Vec<Size>,
    /// micro: 1, 2, 4 and 8 threads with parts from 4KiB to 64MiB
    #[arg(long, conflicts_with_all = ["threads", "parts"])]
    sweep: bool,
    /// Every side syncs its files before it closes them
    #[arg(long)]
    sync: bool,
    /// Only these sides, as in ordered,team-plain [default: all]
    #[arg(long, value_name = "SIDES", value_delimiter = ',')]
    sides: Vec<TeamSide>,
    /// btio: the size of the problem
    #[arg(long, value_name = "CLASS", default_value = "A")]
    class: BtioClass,
    /// btio: solutions that are written [default: 40; 10 with --quick]
    #[arg(long, value_name = "N")]
    dumps: Option<u64>,
    /// strided: entries of the container that is opened [default: 1000000; 100000 with --quick]
    #[arg(long, value_name = "N")]
    entries: Option<u64>,
    /// Also draw the speeds of all sides into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl TeamArgs {
    fn plan(&self) -> BenchResult<TeamBenchPlan> {
        let quick = self.common.quick;
        let usual = if self.kernel == TeamKernel::Images { 32 << 20 } else { 128 << 20 };
        let size = self.size.unwrap_or(Size(if quick { usual / 4 } else { usual }));
        if size.0 < 1 << 20 {
            return Err(BenchError::usage(format!("--size {size}: at least 1MiB")));
        }
        if let Some(odd) = self.threads.iter().find(|count| !(1..=THREADS_MAX).contains(*count)) {
            return Err(BenchError::usage(format!("--threads {odd}: from 1 to {THREADS_MAX}")));
        }
        if let Some(odd) = self.parts.iter().find(|part| !(8..=1 << 30).contains(&part.0)) {
            return Err(BenchError::usage(format!("--parts {odd}: from 8B to 1GiB")));
        }
        let dumps = self.dumps.unwrap_or(if quick { 10 } else { 40 });
        let entries = self.entries.unwrap_or(if quick { 100_000 } else { 1_000_000 });
        if dumps == 0 || entries == 0 {
            return Err(BenchError::usage("--dumps and --entries: at least 1"));
        }
        let sweep = |threads: &[u32], parts: &[u64]| {
            (threads.to_vec(), parts.iter().copied().map(Size).collect::<Vec<_>>())
        };
        let (threads, parts) = match self.sweep {
            true => sweep(&[1, 2, 4, 8], &[4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]),
            false => (self.threads.clone(), self.parts.clone()),
        };
        if self.kernel != TeamKernel::Micro && !(threads.is_empty() && parts.is_empty()) {
            return Err(BenchError::usage("--threads, --parts and --sweep are options of micro"));
        }
        Ok(TeamBenchPlan {
            dir: self.common.dir.clone(),
            kernel: self.kernel,
            pairs: self.common.pairs()?,
            quick,
            size,
            threads,
            parts,
            sync: self.sync,
            sides: self.sides.clone(),
            class: self.class,
            dumps,
            entries,
        })
    }
}

/// Runs the benchmark and prints the result.
pub(super) fn show(cli: &super::Cli, args: &TeamArgs) -> BenchResult {
    let report = team::run(&args.plan()?)?;
    if let Some(path) = &args.plot {
        report.plot(path)?;
    }
    super::print(&if cli.json { report.json() } else { report.table() })
}
