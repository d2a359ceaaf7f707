//! `pario mkdir`: make directories.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::partition::Location;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario mkdir`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario mkdir pario://scratch/run1
  pario mkdir -p pario://scratch/a/b/c")]
pub(crate) struct Args {
    /// The directories
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Make parent directories, too; existing directories are no error
    #[arg(short, long)]
    parents: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match make(context, args, text) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn make(context: &Context, args: &Args, text: &OsString) -> CliResult {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    if args.parents {
        return Ok(place.create_dir_all()?);
    }
    partition.create_dir(&place.path).map_err(|error| CliError::remote(&place, &error))
}
