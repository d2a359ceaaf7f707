//! `pario serve`: one server, started by `pario up` and controlled over standard input and output. Hidden from the help.

use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::Args as ClapArgs;
use pario::partition::binary;
use pario::partition::protocol::{SERVE_ARGUMENTS, relay};
use pario::partition::server_log::ServerLog;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use super::log_into;
use crate::error::{CliError, CliResult};

/// Arguments of `pario serve`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// Read what to serve from standard input
    #[arg(long, required = true)]
    from_stdin: bool,
    /// Start the server, pass its answers on, and end when it is up
    #[arg(long)]
    background: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> CliResult<ExitCode> {
    assert!(args.from_stdin, "the command line requires it");
    if args.background {
        let failed =
            |error: &dyn std::fmt::Display| CliError::failed(format!("cannot start the server: {error}"));
        let own = std::env::current_exe().or_else(|_| binary::find_binary().map_err(std::io::Error::other));
        let mut server = Command::new(own.map_err(|error| failed(&error))?);
        server.args(SERVE_ARGUMENTS);
        return relay(server, std::io::stdout()).map_err(|error| failed(&error));
    }
    Ok(pario::start::serve(std::io::stdin(), std::io::stdout(), |settings, log| {
        log_into(settings.log.as_str(), ServerLogWriter(Arc::clone(log)));
    }))
}

/// The server's log as a writer for the tracing subscriber.
struct ServerLogWriter(Arc<ServerLog>);

/// One log line.
struct LogLineWriter<'a> {
    log: &'a ServerLog,
    cause: Option<Identifier>,
}

impl<'a> MakeWriter<'a> for ServerLogWriter {
    type Writer = LogLineWriter<'a>;

    fn make_writer(&'a self) -> LogLineWriter<'a> {
        LogLineWriter { log: &self.0, cause: None }
    }

    /// Levels that the user enabled are not rate-limited; the size of the log bounds them.
    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogLineWriter<'a> {
        let is_limited = *metadata.level() <= Level::INFO;
        LogLineWriter { log: &self.0, cause: is_limited.then(|| metadata.callsite()) }
    }
}

impl Write for LogLineWriter<'_> {
    /// The subscriber writes one line per call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.log.write_line(self.cause.clone(), &String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
