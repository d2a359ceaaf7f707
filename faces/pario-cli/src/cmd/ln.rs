//! `pario ln`: make links.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario::partition::Location;
use pario::transfer::LinkPolicy;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario ln`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario ln -s run7 pario://scratch/latest       the link says `run7`, seen from its own directory
  pario ln -sf run8 pario://scratch/latest      replaces the link
  pario ln pario://scratch/a pario://scratch/b  one more name of the same file")]
pub(crate) struct Args {
    /// Make a symbolic link instead of one more name of a file
    #[arg(short, long)]
    symbolic: bool,
    /// Replace a file or link of that name
    #[arg(short, long)]
    force: bool,
    /// Target of the link, not checked; without -s a file of the same partition
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The link itself
    #[arg(value_name = "PLACE")]
    link: OsString,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if !args.symbolic {
        return hard_link(context, args);
    }
    if Location::is_one(&args.target) {
        return Err(CliError::usage(
            "a link stays within its partition: give its target as a path, not as pario://…",
        ));
    }
    let location = Location::parse(&args.link)?;
    let place = typed_path::of(&context.mount(&location.partition)?, &location.path);
    if args.force && place.stat_if_exists(LinkPolicy::Stay)?.is_some() {
        place.remove_file()?;
    }
    Ok(place.symlink(&args.target)?)
}

fn hard_link(context: &Context, args: &Args) -> CliResult {
    if !Location::is_one(&args.target) {
        let text = format!("{}: give the file as pario://…, or use `pario ln -s`", args.target.display());
        return Err(CliError::usage(text));
    }
    let (from, to) = (Location::parse(&args.target)?, Location::parse(&args.link)?);
    if from.partition != to.partition {
        return Err(CliError::usage("a file has names in one partition only: use `pario cp`"));
    }
    let partition = context.mount(&to.partition)?;
    let place = typed_path::of(&partition, &to.path);
    if args.force && place.stat_if_exists(LinkPolicy::Stay)?.is_some() {
        place.remove_file()?;
    }
    let from = typed_path::of(&partition, &from.path);
    Ok(partition.link(&from.path, &place.path)?)
}
