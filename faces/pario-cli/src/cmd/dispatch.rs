//! From the parsed command line to the subcommand.
//!
//! Always: output that was printed before a failure is flushed.

use std::process::ExitCode;

use super::{
    bench, cat, chmod, completions, config, cp, df, doctor, down, du, env, export, find, head, ln, logs, ls,
    mkdir, mount, mv, rm, rmdir, serve, start_log, stat, status, touch, tree, truncate, umount, up,
};
use crate::args::{Cli, Command};
use crate::context::{Context, Speech};
use crate::error::CliResult;
use crate::signals::Stop;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> CliResult<ExitCode> {
    if let Command::Serve(args) = cli.command {
        return serve::run(args);
    }
    if let Command::Bench(args) = &cli.command {
        return Err(bench::run(&cli, args));
    }
    let log = if let Command::Mount(args) = &cli.command { args.log.as_deref() } else { None };
    start_log(cli.verbose, log)?;
    let speech = Speech { json: cli.json, quiet: cli.quiet, verbose: cli.verbose };
    let context = Context::new(cli.registry, speech, Stop::default());
    let done = dispatch(&context, cli.command);
    // Output printed before a failure is flushed.
    match (done, context.flush()) {
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(code), Ok(())) => Ok(code),
    }
}

fn dispatch(context: &Context, command: Command) -> CliResult<ExitCode> {
    let done = match command {
        Command::Run(args) => return super::run::run(context, args),
        Command::Serve(args) => return serve::run(args),
        Command::Bench(_) => unreachable!("another program has taken its place"),
        Command::Up(args) => up::run(context, &args),
        Command::Down(args) => down::run(context, &args),
        Command::Status(args) => status::run(context, &args),
        Command::Logs(args) => logs::run(context, &args),
        Command::Config(args) => config::run(context, &args),
        Command::Mount(args) => mount::run(context, &args),
        Command::Umount(args) => umount::run(context, &args),
        Command::Export(args) => export::run(context, &args),
        Command::Ls(args) => ls::run(context, &args),
        Command::Cp(args) => cp::run(context, &args),
        Command::Cat(args) => cat::run(context, &args),
        Command::Stat(args) => stat::run(context, &args),
        Command::Rm(args) => rm::run(context, &args),
        Command::Mv(args) => mv::run(context, &args),
        Command::Find(args) => find::run(context, &args),
        Command::Head(args) => head::head(context, &args),
        Command::Tail(args) => head::tail(context, &args),
        Command::Touch(args) => touch::run(context, &args),
        Command::Chmod(args) => chmod::run(context, &args),
        Command::Rmdir(args) => rmdir::run(context, &args),
        Command::Mkdir(args) => mkdir::run(context, &args),
        Command::Ln(args) => ln::run(context, &args),
        Command::Df(args) => df::run(context, &args),
        Command::Du(args) => du::run(context, &args),
        Command::Tree(args) => tree::run(context, &args),
        Command::Truncate(args) => truncate::run(context, &args),
        Command::Env(args) => env::run(context, &args),
        Command::Flatten(args) => super::flatten::run(context, &args),
        Command::Tune(args) => super::tune::run(context, &args),
        Command::H5(args) => super::h5::run(context, &args),
        Command::Doctor(args) => doctor::run(context, &args),
        Command::Completions(args) => completions::run(context, &args),
        Command::DemoRank(args) => crate::demo::rank::run(context, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
