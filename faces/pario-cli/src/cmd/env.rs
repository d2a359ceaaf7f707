//! `pario env`: the exports that a batch script needs to use a partition.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use serde_json::{Map, Value};

use crate::context::{Context, PARTITION_VARIABLE};
use crate::error::{CliError, Outcome};
use crate::mpi::{self, Choice, PRELOAD_VARIABLE};

/// What can be said to `pario env`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  eval \"$(pario env scratch)\"                         with the MPI whose mpiexec is in PATH
  eval \"$(pario env scratch -- srun ./simulate)\"      with the MPI that ./simulate uses
  eval \"$(pario env scratch --mpi none)\"              without a preload
MPI-IO of programs that are started afterwards is served by Pario for pario://NAME/path.")]
pub(crate) struct Args {
    /// The partition; without it, the one that PARIO_PARTITION names
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Which MPI programs use
    #[arg(long, value_enum, default_value_t)]
    mpi: Choice,
    /// The command that will be run, to see which MPI it uses
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let name = context.partition_name(args.name.as_deref())?;
    let registry = context.registry()?;
    registry.find(&name)?;
    let registry = std::path::absolute(registry.path())
        .map_err(|error| CliError::failed(format!("registry {}: {error}", registry.path().display())))?;
    let mut variables: Vec<(&str, OsString)> =
        vec![(PARTITION_VARIABLE, name.into()), ("PARIO_REGISTRY", registry.into_os_string())];
    let launcher = [OsString::from("mpiexec")];
    let words = if args.command.is_empty() { &launcher[..] } else { &args.command };
    if let Some(found) = args.mpi.resolve(words) {
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

/// As a word of a shell.
fn quoted(text: &str) -> String {
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
