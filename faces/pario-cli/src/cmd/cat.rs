//! `pario cat`: print files.

use std::ffi::OsString;
use std::io::Write;

use clap::Args as ClapArgs;
use pario::partition::Location;
use pario::transfer::{PIECE_BYTES, SourceFile, TreePath};

use super::{container, end_of_many};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario cat`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario cat pario://scratch/run1/log
  pario cat pario://scratch/a pario://scratch/b | wc -c
  pario cat results/field                  a container on this machine")]
pub(crate) struct Args {
    /// The files; containers on this machine, too
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut failures = Vec::new();
    for text in &args.places {
        match print(context, text) {
            Ok(()) => {}
            Err(error @ CliError::OutputClosed) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    let done = args.places.len() - failures.len();
    end_of_many(context, failures, done)
}

fn print(context: &Context, text: &OsString) -> CliResult {
    let place = match container::named(text) {
        Some(path) => TreePath::local(path),
        None => {
            let location = Location::parse(text)?;
            typed_path::of(&context.mount(&location.partition)?, &location.path)
        }
    };
    let source = SourceFile::open(&place)?;
    let mut buffer = vec![0; usize::try_from(PIECE_BYTES).unwrap_or(1 << 20)];
    let mut at = 0;
    loop {
        let count = source.read_at(at, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        context.print(|out| out.write_all(&buffer[..count]))?;
        at += count as u64;
    }
}
