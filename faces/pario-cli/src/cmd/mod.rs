//! The subcommands, one file each: `Args` as typed, `run` as done.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod doctor;
mod doctor_mpi;
pub(crate) mod down;
pub(crate) mod du;
pub(crate) mod env;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mv;
pub(crate) mod rm;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod up;

use std::process::ExitCode;

use pario::partition::LogFilter;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::context::{Context, Speech};
use crate::error::{CliError, Outcome};
use crate::signals::Stop;

/// Carries out what was asked.
pub(crate) fn run(cli: Cli) -> Outcome<ExitCode> {
    if let Command::Serve(args) = cli.command {
        return serve::run(args);
    }
    start_log(cli.verbose)?;
    let speech = Speech { json: cli.json, quiet: cli.quiet, verbose: cli.verbose };
    let context = Context::new(cli.registry, speech, Stop::default());
    let done = dispatch(&context, cli.command);
    // What was printed before a failure is worth seeing.
    match (done, context.flush()) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(code), Ok(())) => Ok(code),
    }
}

fn dispatch(context: &Context, command: Command) -> Outcome<ExitCode> {
    let done = match command {
        Command::Run(args) => return run::run(context, args),
        Command::Serve(args) => return serve::run(args),
        Command::Up(args) => up::run(context, &args),
        Command::Down(args) => down::run(context, &args),
        Command::Status(args) => status::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Ls(args) => ls::run(context, &args),
        Command::Cp(args) => cp::run(context, &args),
        Command::Cat(args) => cat::run(context, &args),
        Command::Stat(args) => stat::run(context, &args),
        Command::Rm(args) => rm::run(context, &args),
        Command::Mv(args) => mv::run(context, &args),
        Command::Mkdir(args) => mkdir::run(context, &args),
        Command::Ln(args) => ln::run(context, &args),
        Command::Df(args) => df::run(context, &args),
        Command::Du(args) => du::run(context, &args),
        Command::Tree(args) => tree::run(context, &args),
        Command::Truncate(args) => truncate::run(context, &args),
        Command::Env(args) => env::run(context, &args),
        Command::Doctor(args) => doctor::run(context, &args),
        Command::Bench(args) => bench::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Logs to standard error what `PARIO_LOG` says, warnings by default; `-v` says more.
fn start_log(verbose: u8) -> Outcome {
    let given = std::env::var("PARIO_LOG").ok().filter(|text| !text.is_empty());
    let filter = match given {
        Some(text) => text
            .parse::<LogFilter>()
            .map_err(|rule| CliError::usage(format!("environment PARIO_LOG: log = \"{text}\": {rule}")))?
            .to_string(),
        None => ["warn", "warn", "info", "debug"].get(usize::from(verbose)).unwrap_or(&"trace").to_string(),
    };
    log_with(&filter);
    Ok(())
}

/// Starts the log; a second start changes nothing.
fn log_with(filter: &str) {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(|| Heedless(std::io::stderr()))
        .with_ansi(false)
        .try_init();
}

/// Standard error that takes no notice of failures: a server's log may lie on the very disk that is full, and a line that cannot
/// be written must not end the thread that wrote it.
struct Heedless(std::io::Stderr);

impl std::io::Write for Heedless {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// The first failure decides the exit code once all were told: partly done if something was.
fn end_of_many(context: &Context, failures: Vec<CliError>, done: usize) -> Outcome {
    if failures.is_empty() {
        return Ok(());
    }
    context.flush()?;
    let code = if done == 0 { failures[0].code() } else { crate::error::EXIT_PARTLY };
    failures.iter().for_each(|failure| context.complain(failure));
    Err(CliError::Told { code })
}
