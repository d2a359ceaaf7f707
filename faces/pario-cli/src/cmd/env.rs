//! `pario env`: environment variables that a batch script needs to use a partition; flags to compile programs.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use serde_json::{Map, Value};

use crate::compile::Language;
use crate::context::{Context, PARTITION_VARIABLE};
use crate::error::{CliError, CliResult};
use crate::mpi::{self, MpiChoice, PRELOAD_VARIABLE};

/// Arguments of `pario env`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  eval \"$(pario env scratch)\"                         which partition; nothing is preloaded
  eval \"$(pario env scratch -- srun ./simulate)\"      also the preload for the MPI that ./simulate uses
  eval \"$(pario env scratch --preload)\"               the same for the MPI of the mpiexec in PATH
  cc -fopenmp app.c $(pario env --compile)           headers and library of Pario
  gfortran -fopenmp $(pario env --compile=fortran) app.f90
The preload goes into every program that the shell starts from then on, ssh and ls included: set it in
a batch script, not in a login shell. `pario run -- COMMAND` sets it for that command alone.")]
pub(crate) struct Args {
    /// The partition; without it, the one that PARIO_PARTITION names
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Set the preload for MPI programs, too
    #[arg(long)]
    preload: bool,
    /// Print flags to compile and link programs in C (or Fortran) instead
    #[arg(long, value_name = "LANGUAGE", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "c", conflicts_with_all = ["name", "preload", "command"])]
    compile: Option<Language>,
    /// Which MPI programs use
    #[arg(long, value_enum, default_value_t)]
    mpi: MpiChoice,
    /// The command that will be run, to see which MPI it uses
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if let Some(language) = args.compile {
        let flags = crate::compile::flags(language)?;
        return if context.speech.json { context.json(&flags) } else { context.line(flags.join(" ")) };
    }
    let name = context.partition_name(args.name.as_deref())?;
    let registry = context.registry()?;
    registry.find(&name)?;
    let registry = std::path::absolute(registry.path())
        .map_err(|error| CliError::failed(format!("registry {}: {error}", registry.path().display())))?;
    let mut variables: Vec<(&str, OsString)> =
        vec![(PARTITION_VARIABLE, name.into()), ("PARIO_REGISTRY", registry.into_os_string())];
    let launcher = [OsString::from("mpiexec")];
    let words = if args.command.is_empty() { &launcher[..] } else { &args.command };
    let wanted = args.preload || !args.command.is_empty();
    if let Some(found) = args.mpi.resolve(words).filter(|_| wanted) {
        let before = std::env::var_os(PRELOAD_VARIABLE);
        variables.push((PRELOAD_VARIABLE, mpi::preload(&mpi::library(found.abi)?, before.as_deref())));
    }
    if context.speech.json {
        let text = |value: &OsString| Value::String(value.to_string_lossy().into_owned());
        let facts: Map<String, Value> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect();
        return context.json(&facts);
    }
    for (name, value) in &variables {
        context.line(format!("export {name}={}", quoted(&value.to_string_lossy())))?;
    }
    Ok(())
}

/// Quoted for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_stay_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
