//! `pario completions`: completion script for a shell.

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::context::Context;
use crate::error::CliResult;

/// Arguments of `pario completions`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario completions bash > ~/.local/share/bash-completion/completions/pario
  pario completions fish > ~/.config/fish/completions/pario.fish")]
pub(crate) struct Args {
    /// Which shell
    shell: Shell,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    // The generator panics if its writer fails: it writes into memory.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pario", &mut text);
    context.print(|out| std::io::Write::write_all(out, &text))
}
