//! The command line as it is typed: global options and the list of subcommands.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand};

use crate::cmd;

/// An ad-hoc parallel file system: bring a partition up, use it, take it down.
#[derive(Parser, Debug)]
#[command(name = "pario", version, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print facts as JSON
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// The registry of partitions [default: the file that PARIO_REGISTRY names, else in your home]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) registry: Option<PathBuf>,
    /// Say more; twice for more still
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
    /// No reports of success, no progress bars
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  pario run                                          a demonstration, nothing to set up
  pario up --name scratch --servers 4 --dir /data    bring a partition up
  pario cp results.bin pario://scratch/run1/         put a file into it
  pario ls -l pario://scratch/run1/                  look at it
  pario run --servers 4 --stage-out out/ -- ./simulate
  pario down scratch                                 take it down; --destroy removes its data

Exit codes: 0 done; 1 the operation failed; 2 the command line or a setting is wrong, nothing was
done; 3 done in part, or problems remain; 128 + N ended by signal N. `pario run` exits as its
command did.
Environment: PARIO_REGISTRY, PARIO_PARTITION, PARIO_LOG (off, error, warn, info, debug, trace).";

/// Every subcommand.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Bring a partition up: a new one, one that is down, or one whose servers died
    Up(cmd::up::Args),
    /// Take a partition down; its data stays unless told otherwise
    Down(cmd::down::Args),
    /// Show partitions: servers, health, space, cache, throughput, who waits for whom
    Status(cmd::status::Args),
    /// Show settings and where each came from
    Config(cmd::config::Args),
    /// Run a command with a partition of its own; without a command, a demonstration
    Run(cmd::run::Args),
    /// List a directory
    Ls(cmd::ls::Args),
    /// Copy files and trees between this machine and partitions
    Cp(cmd::cp::Args),
    /// Print files
    Cat(cmd::cat::Args),
    /// Show everything known of a file
    Stat(cmd::stat::Args),
    /// Remove files and trees
    Rm(cmd::rm::Args),
    /// Give files and directories another name
    Mv(cmd::mv::Args),
    /// Make directories
    Mkdir(cmd::mkdir::Args),
    /// Make symbolic links
    Ln(cmd::ln::Args),
    /// Show how much room there is
    Df(cmd::df::Args),
    /// Show how much files and trees hold
    Du(cmd::du::Args),
    /// Show a tree
    Tree(cmd::tree::Args),
    /// Cut files, or make them longer by a hole
    Truncate(cmd::truncate::Args),
    /// Check a partition, and repair what can be
    Doctor(cmd::doctor::Args),
    /// Measure Pario against plain files on this machine
    Bench(cmd::bench::Args),
    /// Print completions for a shell
    Completions(cmd::completions::Args),
    /// Serve one storage directory; started by `pario up`
    #[command(hide = true)]
    Serve(cmd::serve::Args),
}

/// A mistake on the command line as one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let rest: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let help = "see `pario --help`";
    if rest.is_empty() {
        format!("{first} ({help})")
    } else {
        format!("{first} {} ({help})", rest.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_has_examples() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:"), "{} has no examples", command.get_name());
        }
    }

    #[test]
    fn mistakes_are_one_line() {
        for words in [&["pario", "frob"][..], &["pario", "up", "--strpe", "4"], &["pario", "cp", "x"]] {
            let line = one_line(&Cli::try_parse_from(words).unwrap_err());
            assert!(!line.contains('\n') && line.contains("--help"), "{line}");
        }
    }
}
