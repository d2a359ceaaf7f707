//! The command line: global options and the list of subcommands.

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
    /// Show more detail; -vv also logs info, -vvv debug messages
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
    /// Bring a partition up: a new one, one that is down, or one with dead servers
    Up(cmd::up::Args),
    /// Take a partition down; its data is kept unless --destroy is given
    Down(cmd::down::Args),
    /// Show partitions: servers, health, space, cache, throughput, lock waits
    Status(cmd::status::Args),
    /// Show the logs of servers
    Logs(cmd::logs::Args),
    /// Show settings and where each came from
    Config(cmd::config::Args),
    /// Run a command with a partition of its own; without a command, a demonstration
    Run(cmd::run::Args),
    /// Mount a partition in a directory, for any program
    Mount(cmd::mount::MountArgs),
    /// End mounts
    Umount(cmd::umount::UmountArgs),
    /// Serve a partition through NFSv3, for machines without Pario
    Export(cmd::export::ExportArgs),
    /// List a directory
    Ls(cmd::ls::Args),
    /// Copy files and trees between this machine and partitions
    Cp(cmd::cp::Args),
    /// Print files
    Cat(cmd::cat::Args),
    /// Print the first lines or bytes of files
    Head(cmd::head::HeadArgs),
    /// Print the last lines or bytes of files, and what is appended
    Tail(cmd::head::TailArgs),
    /// Find files and directories by name, kind, size or age
    Find(cmd::find::Args),
    /// Show everything known of a file
    Stat(cmd::stat::Args),
    /// Remove files and trees
    Rm(cmd::rm::Args),
    /// Rename files and directories
    Mv(cmd::mv::Args),
    /// Make directories
    Mkdir(cmd::mkdir::Args),
    /// Remove empty directories
    Rmdir(cmd::rmdir::Args),
    /// Set times of files, and make those that are missing
    Touch(cmd::touch::Args),
    /// Change permission bits
    Chmod(cmd::chmod::Args),
    /// Make symbolic links
    Ln(cmd::ln::Args),
    /// Show free and used space
    Df(cmd::df::Args),
    /// Show the size of files and trees
    Du(cmd::du::Args),
    /// Show a tree
    Tree(cmd::tree::Args),
    /// Cut files, or make them longer by a hole
    Truncate(cmd::truncate::Args),
    /// Print the exports that a batch script needs to use a partition
    Env(cmd::env::Args),
    /// Make plain files of containers
    Flatten(cmd::flatten::Args),
    /// Measure a file system, and keep the settings of teams for it
    Tune(cmd::tune::Args),
    /// Look into HDF5 trees: list, describe, print, verify
    H5(cmd::h5::Args),
    /// Check a partition or a container, and repair it
    Doctor(cmd::doctor::Args),
    /// Measure Pario against plain files on this machine
    Bench(cmd::bench::Args),
    /// Print completions for a shell
    Completions(cmd::completions::Args),
    /// Serve one storage directory; started by `pario up`
    #[command(hide = true)]
    Serve(cmd::serve::Args),
    /// A rank of the demonstration; started by `pario run`
    #[command(hide = true)]
    DemoRank(crate::demo::rank::Args),
}

/// A command-line error as one line, with the help of its subcommand.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let (said, usage) = text.split_once("Usage:").unwrap_or((&text, ""));
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    for part in lines.filter(|part| !part.starts_with("For more information")) {
        let part = part.strip_prefix("tip: ").unwrap_or(part);
        let gap = if line.ends_with(':') { " " } else { "; " };
        line.push_str(gap);
        line.push_str(part);
    }
    format!("{line} (see `{} --help`)", command_of(usage))
}

/// `pario up` of `pario up [OPTIONS] …`: the command words of a usage line.
fn command_of(usage: &str) -> String {
    use clap::CommandFactory;
    let mut command = Cli::command();
    let mut words = vec!["pario".to_owned()];
    for word in usage.split_whitespace().skip(1) {
        let Some(inner) = command.find_subcommand(word).cloned() else { break };
        words.push(word.to_owned());
        command = inner;
    }
    words.join(" ")
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
        for (words, expected) in [
            (&["pario", "frob"][..], "unrecognized subcommand 'frob' (see `pario --help`)"),
            (
                &["pario", "up", "--strpe", "4"],
                "unexpected argument '--strpe' found; a similar argument exists: '--stripe' (see `pario up --help`)",
            ),
            (
                &["pario", "cp"],
                "the following required arguments were not provided: <SOURCE>...; <TARGET> (see `pario cp --help`)",
            ),
            (
                &["pario", "config", "show", "--x"],
                "unexpected argument '--x' found; to pass '--x' as a value, use '-- --x' (see `pario config show --help`)",
            ),
        ] {
            assert_eq!(one_line(&Cli::try_parse_from(words).unwrap_err()), expected);
        }
    }
}
