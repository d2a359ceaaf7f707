//! `pario mv`: give files and directories another name.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::partition::Location;

use super::end_of_many;
use crate::context::Context;
use crate::copy;
use crate::error::{CliError, Outcome};
use crate::place::{Links, Place, Tree};

/// What can be said to `pario mv`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario mv pario://scratch/new pario://scratch/current      at once, replacing what was there
  pario mv pario://scratch/a pario://scratch/b pario://scratch/dir/")]
pub(crate) struct Args {
    /// What to rename
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// The new name, or the directory that takes the sources; in the same partition
    #[arg(value_name = "TARGET", required = true)]
    target: OsString,
    /// Never replace anything
    #[arg(short, long)]
    no_clobber: bool,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let goal = Location::parse(&args.target)?;
    let sources = args.sources.iter().map(Location::parse).collect::<Result<Vec<_>, _>>()?;
    if let Some(other) = sources.iter().find(|source| source.partition != goal.partition) {
        let text = format!("{other} and {goal} are in two partitions");
        return Err(CliError::with_cure(text, "copy with `pario cp -rp`, then remove with `pario rm -r`"));
    }
    let partition = context.mount(&goal.partition)?;
    let places = sources.iter().map(|source| Place::in_partition(&partition, &source.path)).collect();
    let pairs = copy::pair(places, &Place::in_partition(&partition, &goal.path))?;
    let (mut failures, mut done) = (Vec::new(), 0);
    for copy::Pair { from, to } in pairs {
        match rename(&from, &to, args.no_clobber) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn rename(from: &Place, to: &Place, no_clobber: bool) -> Outcome {
    // Asked first, so that the error names the side that is at fault.
    from.facts(Links::Stay)?;
    match &from.tree {
        Tree::Partition(partition) if no_clobber => partition
            .mount_handle()
            .rename_new(&from.path, &to.path)
            .map_err(|error| CliError::remote(to, &error)),
        Tree::Partition(_) | Tree::Local => from.rename(to),
    }
}
