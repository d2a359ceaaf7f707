//! `pario bench`: replaces this process by `pario-bench`, a separate program.
//!
//! Never: interprets the arguments after `bench`. Always: output and exit code are those of `pario-bench`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args as ClapArgs;

use crate::args::Cli;
use crate::error::CliError;
use crate::mpi::in_path;

const PROGRAM: &str = "pario-bench";
const BUILD: &str = "`cargo build --release -p pario-bench` makes it; it belongs beside the pario command";

/// Measure Pario against plain files on this machine
#[derive(ClapArgs, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  pario bench --help                   every benchmark
  pario bench io                       write and read, small calls, TCP, start, memory, commands
  pario bench io --help                its options"
)]
pub(crate) struct Args {
    /// The benchmark and its options
    #[arg(value_name = "BENCHMARK", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Executes the program; returns only if that fails, with the cause.
pub(crate) fn run(cli: &Cli, args: &Args) -> CliError {
    let own = std::env::current_exe().ok();
    let Some(program) = find(own.as_ref()) else {
        return CliError::with_cure(format!("{PROGRAM} is neither beside pario nor in PATH"), BUILD);
    };
    let mut command = Command::new(&program);
    command.args(global(cli)).args(&args.words);
    // Measured partitions and commands use this `pario` binary.
    if let Some(own) = own.filter(|_| std::env::var_os("PARIO_BIN").is_none_or(|bin| bin.is_empty())) {
        command.env("PARIO_BIN", own);
    }
    CliError::local(&program, &command.exec())
}

fn find(own: Option<&PathBuf>) -> Option<PathBuf> {
    let beside = own.and_then(|own| own.parent()).map(|dir| dir.join(PROGRAM));
    beside.filter(|program| program.is_file()).or_else(|| in_path(PROGRAM.as_ref()))
}

/// Global options, given before or after `bench`.
fn global(cli: &Cli) -> Vec<OsString> {
    let mut words = vec!["-v".into(); usize::from(cli.verbose)];
    words.extend(cli.json.then(|| "--json".into()));
    words.extend(cli.quiet.then(|| "--quiet".into()));
    if let Some(registry) = &cli.registry {
        words.extend(["--registry".into(), registry.clone().into_os_string()]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command as Words;
    use clap::Parser;

    #[test]
    fn words_go_on_as_they_are() {
        for (typed, first, rest) in [
            (
                &["pario", "--json", "bench", "io", "--size", "4MiB"][..],
                &["--json"][..],
                &["io", "--size", "4MiB"][..],
            ),
            (&["pario", "bench", "-v", "io", "--json", "-q"], &["-v"], &["io", "--json", "-q"]),
            (&["pario", "bench", "--help"], &[], &["--help"]),
            (&["pario", "bench", "io", "-h"], &[], &["io", "-h"]),
            (&["pario", "bench"], &[], &[]),
            (&["pario", "bench", "--frob"], &[], &["--frob"]),
        ] {
            let cli = Cli::try_parse_from(typed).unwrap();
            let Words::Bench(args) = &cli.command else { panic!("{typed:?}") };
            assert_eq!(
                (global(&cli), &args.words[..]),
                (
                    first.iter().map(OsString::from).collect(),
                    &rest.iter().map(OsString::from).collect::<Vec<_>>()[..]
                )
            );
        }
    }
}
