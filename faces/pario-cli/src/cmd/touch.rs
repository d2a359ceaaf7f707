//! `pario touch`: set the times of files, and make those that are missing.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::core::{AttrChange, Code};
use pario::partition::Location;
use pario::transfer::LinkPolicy;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario touch`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario touch pario://scratch/done
  pario touch -c -m pario://scratch/log            only the time of the last change, only if it is there
  pario touch -r input.dat pario://scratch/input   the times of another file")]
pub(crate) struct Args {
    /// Files and directories
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// What is missing is not made
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Only the time of the last access
    #[arg(short)]
    access: bool,
    /// Only the time of the last change
    #[arg(short)]
    modification: bool,
    /// The times of this file instead of now
    #[arg(short, long, value_name = "PLACE")]
    reference: Option<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (accessed, modified) = match &args.reference {
        Some(text) => {
            let stat = typed_path::parse(context, text)?.stat(LinkPolicy::Follow)?;
            (stat.accessed_ns, stat.modified_ns)
        }
        None => (crate::clock::now_ns(), crate::clock::now_ns()),
    };
    let both = args.access == args.modification;
    let change = AttrChange {
        accessed_ns: (both || args.access).then_some(accessed),
        modified_ns: (both || args.modification).then_some(modified),
        ..AttrChange::default()
    };
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match touch(context, args, text, change) {
            Ok(()) => done += 1,
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn touch(context: &Context, args: &Args, text: &OsString, change: AttrChange) -> CliResult {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let remote = |error: pario::Error| CliError::remote(&place, &error);
    match partition.set_attr(&place.path, change) {
        Ok(_) => return Ok(()),
        Err(error) if error.code() == Code::NotFound => {}
        Err(error) => return Err(remote(error)),
    }
    if args.no_create {
        return Ok(());
    }
    let options = partition.options().write(true).create(true);
    options.open(&place.path).and_then(pario::File::close).map_err(remote)?;
    if args.reference.is_some() {
        partition.set_attr(&place.path, change).map_err(remote)?;
    }
    Ok(())
}
