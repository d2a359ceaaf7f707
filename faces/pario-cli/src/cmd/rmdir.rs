//! `pario rmdir`: remove empty directories.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::partition::Location;
use pario::transfer::TreePath;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario rmdir`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario rmdir pario://scratch/empty
  pario rmdir -p pario://scratch/a/b/c     c, then b, then a")]
pub(crate) struct Args {
    /// Empty directories
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Those above it, too
    #[arg(short, long)]
    parents: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match remove(context, args, text) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn remove(context: &Context, args: &Args, text: &OsString) -> CliResult {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let above = if args.parents { usize::MAX } else { 1 };
    // The root, and the empty path above a relative one, have no name and are kept.
    for path in place.path.ancestors().filter(|path| path.file_name().is_some()).take(above) {
        let dir = TreePath { tree: place.tree.clone(), path: path.to_owned() };
        partition.remove_dir(path).map_err(|error| CliError::remote(&dir, &error))?;
    }
    if place.name().is_none() {
        return Err(CliError::failed(format!("{place}: the root of a partition stays")));
    }
    Ok(())
}
