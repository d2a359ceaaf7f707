//! The command line of `pario bench`: parsed options, checked plans, printed results.

mod distant;
mod kernel;
mod sliding;
mod team;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand};
use pario::core::Size;

use crate::full::FullPlan;
use crate::io::IoPlan;
use crate::lock::LockPlan;
use crate::meta::MetaPlan;
use crate::mpi::MpiPlan;
use crate::sched::{self, Grounds, SchedPlan};
use crate::{BenchError, BenchReport, BenchResult, PAIRS_DEFAULT, PAIRS_QUICK};
use distant::{DistantArgs, SharedFilesArgs};
use kernel::{
    BtioArgs, FlashArgs, IrregularArgs, KernelRequest, ScaleArgs, StridedArgs, SubarrayArgs, TileArgs,
};
use sliding::SlidingArgs;
use team::TeamArgs;

/// Entries of the large directory of `bench meta --large`.
const LARGE_ENTRIES: u64 = 1_000_000;

/// Measure Pario against plain files on this machine
#[derive(Parser, Debug)]
#[command(name = "pario bench", bin_name = "pario bench")]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  pario bench io                       write and read, small calls, TCP, start, memory, commands
  pario bench io --dir /data --json    on the file system of /data, as one JSON object
  pario bench meta --large             names: create, stat, unlink; a directory of 10^6 entries
  pario bench full                     an application beside one that writes to a server without room
  pario bench lock                     locks that are kept, shared pointers, counting together
  pario bench sliding --hosts 4        overlapping windows: the cooperative cache, range locks, no locks
  pario bench distant                  files of other processes: own, near, far
  pario bench shared-files             records that all processes change, in a shared file
  pario bench btio --class A           the NAS benchmark's dumps, by every method, against plain files and memory
  pario bench mpi --quick              MPI programs on the MPI library's own I/O and on Pario
  pario bench team micro               threads that write one file, by every way
  pario bench sched --plots plots      policies of the I/O scheduler, modelled and real: figures, tables, plots

Every benchmark brings up its own partition with its own registry and removes all of it at the end.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    kernel: Benchmark,
    /// Print facts as JSON
    #[arg(long, global = true, help_heading = "Everywhere")]
    json: bool,
    /// The registry of partitions; a benchmark has its own
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    registry: Option<PathBuf>,
    /// Show more detail; -vv also logs info, -vvv debug messages
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
    /// No reports of success, no progress bars
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    quiet: bool,
}

#[derive(Subcommand, Debug)]
enum Benchmark {
    /// Transfers against plain write and read of a file in the same directory; start, memory, command latencies
    Io(IoArgs),
    /// Create, stat and unlink by four processes, in one directory and in one each
    Meta(MetaArgs),
    /// What an application loses beside another that hammers a full server, one of four, in memory
    Full(FullArgs),
    /// Locks that are kept, shared pointers, counting together: four processes on one partition
    Lock(LockArgs),
    /// Windows that slide over what all others change: the file cache on a plain file against byte-range locks
    Sliding(SlidingArgs),
    /// The file of one process, accessed by itself, from its node and from another: against pread and pwrite
    Distant(DistantArgs),
    /// Records that all processes read, change and write back: a shared file, a plain file, a partition
    SharedFiles(SharedFilesArgs),
    /// Dumps of the NAS BT benchmark: diagonal multi-partitioning, a square number of processes
    Btio(BtioArgs),
    /// A dense set of two-dimensional tiles, one per process
    Tile(TileArgs),
    /// Checkpoint of the FLASH code: 24 variables on blocks with guard cells
    Flash(FlashArgs),
    /// Pieces of equal size dealt to the processes in turn
    Strided(StridedArgs),
    /// Boxes of an array in three and four dimensions
    Subarray(SubarrayArgs),
    /// Pieces of four bytes, at equal and at random distances
    Irregular(IrregularArgs),
    /// n processes on n servers, and many on n
    Scale(ScaleArgs),
    /// Policies of the I/O scheduler for several applications at once, on a modelled disk and on a slowed store
    Sched(SchedArgs),
    /// Small C programs on the MPI library's own I/O and on Pario: needs mpiexec and mpicc
    Mpi(MpiArgs),
    /// Threads that write one file together, against locks, separate files and one thread
    Team(TeamArgs),
    /// A process of a benchmark
    #[command(hide = true)]
    Worker,
    /// A host of a benchmark
    #[command(hide = true)]
    Host {
        /// The benchmark's directory
        dir: PathBuf,
    },
    /// Removes what a benchmark made, when it is over
    #[command(hide = true)]
    Janitor {
        /// The benchmark's directory
        dir: PathBuf,
    },
}

#[derive(ClapArgs, Debug)]
struct CommonArgs {
    /// Directory to measure in [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Pairs of runs that each figure rests on [default: 9; 3 with --quick]
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// A first impression: smaller and fewer runs
    #[arg(long)]
    quick: bool,
}

#[derive(ClapArgs, Debug)]
struct IoArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Bytes of each transfer; small calls move half of it [default: 1GiB; 256MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

#[derive(ClapArgs, Debug)]
struct MetaArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Files of each run, over all processes [default: 20000; 4000 with --quick]
    #[arg(long, value_name = "N")]
    files: Option<u64>,
    /// Also a directory of 10^6 entries; takes minutes
    #[arg(long)]
    large: bool,
}

#[derive(ClapArgs, Debug)]
struct FullArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Bytes that the neighbour writes and reads in each run [default: 256MiB; 32MiB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
}

#[derive(ClapArgs, Debug)]
struct LockArgs {
    /// Directory to measure in [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Runs that each figure rests on [default: 9; 3 with --quick]
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Processes that work together
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    processes: usize,
    /// Increments of one counter, by all processes together [default: 1000000; 20000 with --quick]
    #[arg(long, value_name = "N")]
    increments: Option<u64>,
    /// Records where the shared pointer is, by all processes together [default: 100000; 20000 with --quick]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// A first impression: smaller and fewer runs
    #[arg(long)]
    quick: bool,
}

#[derive(ClapArgs, Debug)]
struct SchedArgs {
    /// Runs that each figure rests on, each with a seed of its own [default: 9; 3 with --quick]
    #[arg(long, value_name = "N")]
    seeds: Option<usize>,
    /// The first seed; the same seeds give the same figures everywhere
    #[arg(long, value_name = "N", default_value_t = sched::SEED_DEFAULT)]
    seed: u64,
    /// Policies of the tables, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Option<Vec<String>>,
    /// Draw the tables as SVG files into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// On a modelled disk, or with real servers on a slowed store
    #[arg(long, value_enum, default_value_t = Grounds::Both)]
    ground: Grounds,
    /// Directory of the real ground [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Pairs of runs on the real ground [default: 9; 3 with --quick]
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// A first impression: fewer seeds, no tables
    #[arg(long)]
    quick: bool,
}

#[derive(ClapArgs, Debug)]
struct MpiArgs {
    /// Directory to measure in [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Kernels, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Option<Vec<String>>,
    /// Numbers of ranks, separated by commas [default: 2,4; 2 with --quick]
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    ranks: Option<Vec<u16>>,
    /// Bytes of each file [default: 400MB; 64MB with --quick]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// How often all sides of a kernel are run in turn [default: 3; 1 with --quick]
    #[arg(long, value_name = "N")]
    passes: Option<u32>,
    /// Do not touch free memory before each run: if a virtual machine's host has reclaimed it, the first run then pays for it
    #[arg(long)]
    no_warm_memory: bool,
    /// Draw plots as SVG files into this directory, with a page of all figures (figures.md)
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// A first impression: smaller and fewer runs, no limited store
    #[arg(long)]
    quick: bool,
}

impl CommonArgs {
    fn pairs(&self) -> BenchResult<usize> {
        match self.pairs.unwrap_or(if self.quick { PAIRS_QUICK } else { PAIRS_DEFAULT }) {
            0 => Err(BenchError::usage("--pairs 0: a figure needs at least one pair of runs")),
            pairs => Ok(pairs),
        }
    }
}

/// A command-line error as one line, with the help of its subcommand.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let (said, usage) = text.split_once("Usage:").unwrap_or((&text, "pario bench"));
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let parts: Vec<&str> =
        lines.map(|line| line.trim_start_matches("error: ").trim_start_matches("tip: ")).collect();
    let command = usage.split_whitespace().take_while(|word| !word.starts_with(['[', '<', '-']));
    let command = command.collect::<Vec<_>>().join(" ");
    format!("{} (see `{command} --help`)", parts.join("; ").replace(":; ", ": "))
}

/// Runs the benchmark.
pub(crate) fn run(cli: &Cli) -> BenchResult {
    match &cli.kernel {
        Benchmark::Io(args) => show(cli, &crate::io::run(&io_plan(args)?)?),
        Benchmark::Meta(args) => show(cli, &crate::meta::run(&meta_plan(args)?)?),
        Benchmark::Full(args) => show(cli, &crate::full::run(&full_plan(args)?)?),
        Benchmark::Lock(args) => show(cli, &crate::lock::run(&lock_plan(args)?)?),
        Benchmark::Sliding(args) => sliding::show(cli, args),
        Benchmark::Team(args) => team::show(cli, args),
        Benchmark::Distant(args) => show(cli, &crate::distant::run(&args.plan()?)?),
        Benchmark::SharedFiles(args) => show(cli, &crate::shared_files::run(&args.plan()?)?),
        Benchmark::Btio(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Tile(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Flash(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Strided(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Subarray(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Irregular(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Scale(args) => show_kernel(cli, &args.asked()?),
        Benchmark::Sched(args) => {
            let report = sched::run(&sched_plan(args)?)?;
            print(&if cli.json { report.json() } else { report.table() })
        }
        Benchmark::Mpi(args) => {
            let report = crate::mpi::run(&mpi_plan(args)?)?;
            print(&if cli.json { report.json() } else { report.table() })
        }
        Benchmark::Worker => crate::worker::serve(),
        Benchmark::Host { .. } => crate::sliding::hosts::serve(),
        Benchmark::Janitor { dir } => crate::janitor(dir),
    }
}

fn io_plan(args: &IoArgs) -> BenchResult<IoPlan> {
    let size = args.size.unwrap_or(Size(if args.common.quick { 256 << 20 } else { 1 << 30 }));
    if size.0 < 2 << 20 {
        return Err(BenchError::usage(format!("--size {size}: at least 2MiB, two calls")));
    }
    Ok(IoPlan { dir: args.common.dir.clone(), size, pairs: args.common.pairs()? })
}

fn meta_plan(args: &MetaArgs) -> BenchResult<MetaPlan> {
    let files = args.files.unwrap_or(if args.common.quick { 4000 } else { 20_000 });
    if files < 4 {
        return Err(BenchError::usage(format!("--files {files}: at least one for each of four processes")));
    }
    let large = if args.large { LARGE_ENTRIES } else { 0 };
    Ok(MetaPlan { dir: args.common.dir.clone(), files, pairs: args.common.pairs()?, large })
}

fn full_plan(args: &FullArgs) -> BenchResult<FullPlan> {
    let size = args.size.unwrap_or(Size(if args.common.quick { 32 << 20 } else { 256 << 20 }));
    if size.0 == 0 || !size.0.is_multiple_of(1 << 20) {
        return Err(BenchError::usage(format!("--size {size}: a multiple of 1MiB, at least 1MiB")));
    }
    Ok(FullPlan { dir: args.common.dir.clone(), size, pairs: args.common.pairs()? })
}

fn lock_plan(args: &LockArgs) -> BenchResult<LockPlan> {
    let runs = args.runs.unwrap_or(if args.quick { PAIRS_QUICK } else { PAIRS_DEFAULT });
    let increments = args.increments.unwrap_or(if args.quick { 20_000 } else { 1_000_000 });
    let records = args.records.unwrap_or(if args.quick { 20_000 } else { 100_000 });
    if runs == 0 {
        return Err(BenchError::usage("--runs 0: a figure needs at least one run"));
    }
    let processes = args.processes;
    if !(1..=256).contains(&processes) {
        return Err(BenchError::usage(format!("--processes {processes}: from 1 to 256")));
    }
    if increments.min(records) < processes as u64 {
        return Err(BenchError::usage("--increments and --records: at least one for each process"));
    }
    Ok(LockPlan { dir: args.dir.clone(), runs, processes, increments, records })
}

fn sched_plan(args: &SchedArgs) -> BenchResult<SchedPlan> {
    let seeds = args.seeds.unwrap_or(if args.quick { sched::SEEDS_QUICK } else { sched::SEEDS_DEFAULT });
    if !(1..=sched::SEEDS_MAX).contains(&seeds) {
        return Err(BenchError::usage(format!("--seeds {seeds}: from 1 to {}", sched::SEEDS_MAX)));
    }
    let known = sched::policy_names();
    let policies = match &args.policies {
        Some(wanted) => wanted.clone(),
        None if args.quick => Vec::new(),
        None => known.clone(),
    };
    if let Some(stranger) = policies.iter().find(|name| !known.contains(name)) {
        return Err(BenchError::usage(format!("--policies {stranger}: there are {}", known.join(", "))));
    }
    if let (Some(dir), true) = (&args.plots, policies.is_empty()) {
        let dir = dir.display();
        return Err(BenchError::usage(format!(
            "--plots {dir}: --quick makes no tables to draw; name --policies"
        )));
    }
    let pairs = args.pairs.unwrap_or(if args.quick { PAIRS_QUICK } else { PAIRS_DEFAULT });
    if pairs == 0 {
        return Err(BenchError::usage("--pairs 0: a figure needs at least one pair of runs"));
    }
    let (plots, dir) = (args.plots.clone(), args.dir.clone());
    Ok(SchedPlan { seed: args.seed, seeds, policies, plots, grounds: args.ground, dir, pairs })
}

fn mpi_plan(args: &MpiArgs) -> BenchResult<MpiPlan> {
    let known = crate::mpi::NAMES;
    let kernels = args.kernels.clone().unwrap_or_else(|| known.map(str::to_owned).to_vec());
    if let Some(stranger) = kernels.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(BenchError::usage(format!("--kernels {stranger}: there are {}", known.join(", "))));
    }
    let ranks = args.ranks.clone().unwrap_or(if args.quick { vec![2] } else { vec![2, 4] });
    if ranks.is_empty() || ranks.contains(&0) {
        return Err(BenchError::usage("--ranks: each at least 1"));
    }
    let size = args.size.unwrap_or(Size(if args.quick { 64_000_000 } else { 400_000_000 }));
    // Counts of a dump have 32 bits.
    if !(8_000_000..=8_000_000_000).contains(&size.0) {
        return Err(BenchError::usage(format!("--size {size}: from 8MB to 8GB")));
    }
    let passes = args.passes.unwrap_or(if args.quick { 1 } else { 3 });
    if passes == 0 {
        return Err(BenchError::usage("--passes 0: a figure needs at least one run of each side"));
    }
    let (megabytes, rounds) = (size.0 >> 20, if args.quick { 2 } else { 3 });
    let (dir, plots, backed) = (args.dir.clone(), args.plots.clone(), !args.no_warm_memory);
    Ok(MpiPlan { dir, kernels, ranks, megabytes, passes, rounds, backed, limited: !args.quick, plots })
}

fn show(cli: &Cli, report: &BenchReport) -> BenchResult {
    print(&if cli.json { report.json() } else { report.table() })
}

fn show_kernel(cli: &Cli, asked: &KernelRequest) -> BenchResult {
    let report = crate::kernel::run(&asked.plan)?;
    if let Some(path) = &asked.plot {
        report.plot(path)?;
    }
    print(&if cli.json { report.json() } else { report.table() })
}

/// A closed pipe ends the command quietly.
fn print(text: &str) -> BenchResult {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(BenchError::when("writing the output")(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
