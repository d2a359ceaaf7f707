//! `pario mkdir`: make directories.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::partition::Location;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::place::Place;

/// What can be said to `pario mkdir`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario mkdir pario://scratch/run1
  pario mkdir -p pario://scratch/a/b/c")]
pub(crate) struct Args {
    /// The directories
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Make those above, too; what is there already is no error
    #[arg(short, long)]
    parents: bool,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match make(context, args, text) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn make(context: &Context, args: &Args, text: &OsString) -> Outcome {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = Place::in_partition(&partition, &location.path);
    if args.parents {
        return place.make_directories();
    }
    partition.create_dir(&place.path).map_err(|error| CliError::remote(&place, &error))
}
