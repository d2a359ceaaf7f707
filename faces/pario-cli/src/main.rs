//! The `pario` command: parse, run, exit code. One file per subcommand in `cmd/`.
//!
//! Never: logic that a user of the library would need. Always: facts on standard output, problems on standard error, one line
//! each; the exit code tells the kind of failure (see `error`).

mod args;
mod clock;
mod cmd;
mod compile;
mod context;
mod demo;
mod error;
mod export_clients;
mod glob;
mod human;
mod job;
mod mode;
mod mount_clients;
mod mount_process;
mod mpi;
mod progress;
mod ranks;
mod settings_args;
mod signals;
mod stream;
mod table;
mod typed_path;

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

/// Help is printed on standard output; an error is one line with the help command.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let kind = error.kind();
    if matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // If standard output is closed, the text is dropped.
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
