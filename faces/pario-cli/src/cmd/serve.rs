//! `pario serve`: one server, started by `pario up` and talked to over standard input and output. Hidden from the help.

use std::process::{Command, ExitCode};

use clap::Args as ClapArgs;
use pario::partition::binary;
use pario::partition::protocol::{SERVE_ARGUMENTS, relay};

use super::log_with;
use crate::error::{CliError, Outcome};

/// What can be said to `pario serve`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// Read what to serve from standard input
    #[arg(long, required = true)]
    from_stdin: bool,
    /// Start the server, pass its answers on, and end when it is up
    #[arg(long)]
    background: bool,
}

/// Carries it out.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    assert!(args.from_stdin, "the command line requires it");
    if args.background {
        let failed =
            |error: &dyn std::fmt::Display| CliError::failed(format!("cannot start the server: {error}"));
        let own = std::env::current_exe().or_else(|_| binary::find_binary().map_err(std::io::Error::other));
        let mut server = Command::new(own.map_err(|error| failed(&error))?);
        server.args(SERVE_ARGUMENTS);
        return relay(server, std::io::stdout()).map_err(|error| failed(&error));
    }
    Ok(pario::start::serve(std::io::stdin(), std::io::stdout(), |settings| log_with(settings.log.as_str())))
}
