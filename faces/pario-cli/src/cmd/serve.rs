//! `pario serve`: one server, started by `pario up` and talked to over standard input and output. Hidden from the help.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::process::{Command, ExitCode};

use clap::Args as ClapArgs;
use pario::partition::protocol::{LINE_BYTES_MAX, SERVE_ARGUMENTS, relay};
use pario::partition::{ServeSpec, binary};

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
        let failed = |error: &dyn std::fmt::Display| CliError::failed(format!("cannot start the server: {error}"));
        let own = std::env::current_exe().or_else(|_| binary::find_binary().map_err(std::io::Error::other));
        let mut server = Command::new(own.map_err(|error| failed(&error))?);
        server.args(SERVE_ARGUMENTS);
        return relay(server, std::io::stdout()).map_err(|error| failed(&error));
    }
    // The first line says what to log, so it is read here and handed on unchanged.
    let mut input = BufReader::new(std::io::stdin());
    let mut first = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut first);
    read.map_err(|error| CliError::failed(format!("cannot read what to serve: {error}")))?;
    let filter = serde_json::from_slice::<ServeSpec>(&first).map(|spec| spec.settings.log.to_string());
    log_with(filter.as_deref().unwrap_or("warn"));
    Ok(pario::start::serve(Cursor::new(first).chain(input), std::io::stdout()))
}
