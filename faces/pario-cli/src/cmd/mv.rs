//! `pario mv`: renames within a tree; between trees, copies and then removes the sources.
//!
//! Always: a source is removed only after all of it was copied and read back.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::transfer::{self, CopyPair, LinkPolicy};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::{progress, typed_path};

/// Arguments of `pario mv`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario mv pario://scratch/new pario://scratch/current      at once, replacing what was there
  pario mv pario://scratch/a pario://scratch/b pario://scratch/dir/
  pario mv pario://scratch/results out/                     out of the partition: copied, verified, removed
  pario mv input.dat pario://scratch/")]
pub(crate) struct Args {
    /// What to rename or move
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// The new name, or the directory for the sources
    #[arg(value_name = "TARGET", required = true)]
    target: OsString,
    /// Never replace anything
    #[arg(short, long)]
    no_clobber: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let sources = args
        .sources
        .iter()
        .map(|source| typed_path::parse(context, source))
        .collect::<CliResult<Vec<_>>>()?;
    let goal = typed_path::parse(context, &args.target)?;
    if sources.iter().chain([&goal]).all(|place| place.is_local()) {
        let cure = "`mv` renames files of this machine";
        return Err(CliError::with_cure(format!("{goal}: nothing here is in a partition"), cure));
    }
    context.stop.catch()?;
    let (mut failures, mut done) = (Vec::new(), 0);
    for pair in transfer::pair(sources, &goal)? {
        let moved =
            if pair.from.shares_tree(&pair.to) { rename(&pair, args) } else { carry(context, &pair, args) };
        match moved {
            Ok(()) => done += 1,
            Err(error @ CliError::Interrupted { .. }) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn rename(CopyPair { from, to }: &CopyPair, args: &Args) -> CliResult {
    // Checked first, so that the error names the source.
    from.stat(LinkPolicy::Stay)?;
    Ok(if args.no_clobber { from.rename_new(to) } else { from.rename(to) }?)
}

/// Between two trees: copy, verify, remove.
fn carry(context: &Context, pair: &CopyPair, args: &Args) -> CliResult {
    if pair.from.name().is_none() {
        return Err(CliError::failed(format!("{}: the root of a tree stays", pair.from)));
    }
    pair.from.stat(LinkPolicy::Stay)?;
    match pair.to.stat_if_exists(LinkPolicy::Stay)? {
        Some(_) if args.no_clobber => return Err(CliError::failed(format!("{}: already exists", pair.to))),
        Some(there) if there.is_directory() => {
            return Err(CliError::failed(format!("{}: already exists, and trees are not merged", pair.to)));
        }
        Some(_) | None => {}
    }
    progress::watched(context, "moving", &context.stop, |progress| transfer::move_verified(pair, progress))
}
