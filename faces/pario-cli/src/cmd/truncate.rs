//! `pario truncate`: cut files, or make them longer by a hole.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::Size;
use pario::partition::Location;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario truncate`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario truncate -s 0 pario://scratch/log
  pario truncate -s 10GiB pario://scratch/sparse     made if it is missing; holds no data yet")]
pub(crate) struct Args {
    /// The new length, as in 4096, 64KiB or 1.5GiB
    #[arg(short, long, value_name = "SIZE")]
    size: Size,
    /// What is missing is not made
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The files
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match cut(context, args, text) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn cut(context: &Context, args: &Args, text: &OsString) -> CliResult {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let options = partition.options().read(true).write(true).create(!args.no_create);
    let cut =
        options.open(&place.path).and_then(|file| file.set_len(args.size.0).and_then(|()| file.close()));
    cut.map_err(|error| CliError::remote(&place, &error))
}
