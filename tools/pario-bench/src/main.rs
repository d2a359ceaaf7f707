//! `pario-bench`, run by `pario bench`: sides of a comparison alternate, each in fresh processes; figures have median and spread.
//!
//! ```text
//!  args ─► io | meta | full (a kernel: which sides, which figures) ─► Worker (a process per side) ─► Job
//!               │                                                 Ground (directory, registry, partitions, janitor)
//!               └─► Figures ─► Report (table or --json, with machine and settings)
//! ```
//! A further kernel adds a module that fills [`figures::Figures`], and a [`job::Job`] for what its processes do. `sched` has no
//! processes: it models a disk in virtual time, and `plot` draws what it finds.
//!
//! Never: measures inside the process that prints; leaves a server, a file or a directory behind, also when interrupted.
//! Always: the sides of a pair run one right after the other, on the same file system, with the same calls.

mod args;
mod backed;
mod clock;
mod distant;
mod error;
mod figures;
mod footprint;
mod full;
mod io;
mod job;
mod kernel;
mod lock;
mod machine;
mod meta;
mod mpi;
mod plot;
mod progress;
mod report;
mod sched;
mod shared_files;
mod sliding;
mod team;
mod testbed;
mod worker;

pub(crate) use error::{BenchError, BenchResult};
pub(crate) use report::BenchReport;
pub(crate) use testbed::janitor;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use pario::partition::LogFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Default number of pairs per figure.
pub(crate) const PAIRS_DEFAULT: usize = 9;
/// Pairs of `--quick`.
pub(crate) const PAIRS_QUICK: usize = 3;

fn main() -> ExitCode {
    let done = match args::Cli::try_parse() {
        Ok(cli) => start_log(cli.verbose).and_then(|()| args::run(&cli)),
        Err(error)
            if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
        {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { error::EXIT_USAGE } else { 0 });
        }
        Err(error) => Err(BenchError::Usage(args::one_line(&error))),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    let text = error.to_string();
    // If standard error is closed, the message is dropped.
    let _ = writeln!(std::io::stderr(), "pario: {}", pario::core::text::shown(&text));
    ExitCode::from(error.code())
}

/// Logs to standard error with the filter of `PARIO_LOG`, by default warnings; `-v` adds more.
fn start_log(verbose: u8) -> BenchResult {
    let given = std::env::var("PARIO_LOG").ok().filter(|text| !text.is_empty());
    let filter = match given {
        Some(text) => text
            .parse::<LogFilter>()
            .map_err(|rule| BenchError::usage(format!("environment PARIO_LOG: log = \"{text}\": {rule}")))?
            .to_string(),
        None => ["warn", "warn", "info", "debug"].get(usize::from(verbose)).unwrap_or(&"trace").to_string(),
    };
    // The filter was checked above.
    let levels = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines.with_filter(levels)).init();
    Ok(())
}
