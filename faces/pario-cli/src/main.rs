//! The `pario` command: parse, run, exit code. One file per subcommand in `cmd/`.
//!
//! Never: logic that a user of the library would miss. Always: facts go to standard output, problems to standard error, one
//! line each; the exit code tells kinds of failure apart (see `error`).

mod absent;
mod args;
mod bench;
mod clock;
mod cmd;
mod context;
mod copy;
mod demo;
mod error;
mod health;
mod human;
mod job;
mod mpi;
mod place;
mod problem;
mod ranks;
mod settings_args;
mod signals;
mod stage;
mod table;
mod wire;

pub(crate) use error::CliError;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Cli;
use crate::error::EXIT_USAGE;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cmd::run(cli) {
        Ok(code) => code,
        Err(error) => {
            context::complain(&error);
            ExitCode::from(error.code())
        }
    }
}

/// Help goes to standard output as it is; a mistake is one line and how to get help.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Nobody reads: nothing to complain about.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        context::complain(&CliError::usage(args::one_line(error)));
    }
    ExitCode::from(EXIT_USAGE)
}
