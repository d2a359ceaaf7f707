//! `pario ln`: make symbolic links.

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
  pario ln -sf run8 pario://scratch/latest      replaces the link")]
pub(crate) struct Args {
    /// Make a symbolic link; there is no other kind
    #[arg(short, long)]
    symbolic: bool,
    /// Replace a file or link of that name
    #[arg(short, long)]
    force: bool,
    /// Target of the link; not checked
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// The link itself
    #[arg(value_name = "PLACE")]
    link: OsString,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if !args.symbolic {
        return Err(CliError::usage("a partition has no hard links: use `pario ln -s` for a symbolic one"));
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
