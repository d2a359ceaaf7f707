//! `pario cat`: print files.

use std::ffi::OsString;
use std::io::Write;

use clap::Args as ClapArgs;
use pario::partition::Location;

use super::end_of_many;
use crate::context::Context;
use crate::copy::{PIECE_BYTES, Source};
use crate::error::{CliError, Outcome};
use crate::place::Place;

/// What can be said to `pario cat`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario cat pario://scratch/run1/log
  pario cat pario://scratch/a pario://scratch/b | wc -c")]
pub(crate) struct Args {
    /// The files
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let mut failures = Vec::new();
    for text in &args.places {
        match print(context, text) {
            Ok(()) => {}
            Err(error @ CliError::NobodyReads) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    let done = args.places.len() - failures.len();
    end_of_many(context, failures, done)
}

fn print(context: &Context, text: &OsString) -> Outcome {
    let location = Location::parse(text)?;
    let place = Place::in_partition(&context.mount(&location.partition)?, &location.path);
    let source = Source::open(&place)?;
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
