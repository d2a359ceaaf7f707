//! `pario chmod`: change permission bits.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::FileKind;
use pario::partition::Location;
use pario::transfer::{FileStat, LinkPolicy, TreePath};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::mode::ModeChange;
use crate::typed_path;

/// Arguments of `pario chmod`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario chmod 640 pario://scratch/results
  pario chmod -R u+rwX,go-w pario://scratch/run1
Bits are kept and shown; a partition belongs to one user, who may read and write all of it.")]
pub(crate) struct Args {
    /// 644, u+x, go-w, a=rX, …; several with commas
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files and directories
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Directories with what is in them
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    context.stop.catch()?;
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        let changed = Location::parse(text).map_err(CliError::from).and_then(|location| {
            let place = typed_path::of(&context.mount(&location.partition)?, &location.path);
            let facts = place.stat(LinkPolicy::Follow)?;
            change(context, args, &place, &facts)
        });
        match changed {
            Ok(()) => done += 1,
            Err(error @ CliError::Interrupted { .. }) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn change(context: &Context, args: &Args, place: &TreePath, facts: &FileStat) -> CliResult {
    context.stop.check()?;
    let directory = facts.kind == Some(FileKind::Directory);
    place.set_mode(args.mode.apply(facts.mode, directory))?;
    if !args.recursive || !directory {
        return Ok(());
    }
    for entry in place.read_dir()? {
        let entry = entry?;
        // A symbolic link has no permission bits, and its target may be outside the tree.
        if !entry.stat.is_link() {
            change(context, args, &place.child(&entry.name), &entry.stat)?;
        }
    }
    Ok(())
}
