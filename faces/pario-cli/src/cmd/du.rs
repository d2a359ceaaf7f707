//! `pario du`: how much files and trees hold.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, Args as ClapArgs};
use pario::Partition;
use pario::core::{FileKind, Size};
use serde_json::{Value, json};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::place::Place;

/// What can be said to `pario du`.
#[derive(ClapArgs, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  pario du pario://scratch/
  pario du -s pario://scratch/run1 pario://scratch/run2
Sizes are lengths of files, holes included.")]
pub(crate) struct Args {
    /// Files and trees; without any, the partition that PARIO_PARTITION names
    #[arg(value_name = "PLACE")]
    places: Vec<OsString>,
    /// Only the sum of each place
    #[arg(short, long)]
    summarize: bool,
    /// Sizes with units, as they are anyway
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Sizes in bytes
    #[arg(short, long, conflicts_with = "human")]
    bytes: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    files: u64,
    directories: u64,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let mut typed: Vec<Option<&OsString>> = args.places.iter().map(Some).collect();
    if typed.is_empty() {
        typed.push(None);
    }
    let (mut facts, mut failures, mut done) = (Vec::new(), Vec::new(), 0);
    for text in typed {
        match measure(context, args, text, &mut facts) {
            Ok(()) => done += 1,
            Err(error @ CliError::NobodyReads) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, done)
}

fn measure(context: &Context, args: &Args, text: Option<&OsString>, facts: &mut Vec<Value>) -> Outcome {
    let location = context.location(text)?;
    let partition = context.mount(&location.partition)?;
    let place = Place::in_partition(&partition, &location.path);
    let attr = partition.symlink_metadata(&place.path).map_err(|error| CliError::remote(&place, &error))?;
    let mut show = |place: &Place, sum: Sum, top: bool| -> Outcome {
        if args.summarize && !top {
            return Ok(());
        }
        if context.speech.json {
            facts.push(json!({
                "place": place.to_string(), "bytes": sum.bytes, "files": sum.files, "directories": sum.directories,
            }));
            return Ok(());
        }
        let size = if args.bytes { sum.bytes.to_string() } else { Size(sum.bytes).rounded() };
        context.line(format!("{size:>10}  {}", crate::error::one_line(&place.to_string())))
    };
    if attr.kind != FileKind::Directory {
        let sum = Sum { bytes: attr.size, files: 1, directories: 0 };
        return show(&place, sum, true);
    }
    let sum = tree(&partition, &place, &mut |place, sum| show(place, sum, false))?;
    // Every directory was shown by the walk, the topmost too, unless only sums are wanted.
    if args.summarize { show(&place, sum, true) } else { Ok(()) }
}

/// Sums a tree up, directories within before the one around them.
fn tree(partition: &Partition, dir: &Place, show: &mut impl FnMut(&Place, Sum) -> Outcome) -> Outcome<Sum> {
    let remote = |error: pario::Error| CliError::remote(dir, &error);
    let mut sum = Sum { directories: 1, ..Sum::default() };
    for entry in partition.read_dir(&dir.path).map_err(remote)? {
        let entry = entry.map_err(remote)?;
        if entry.attr.kind == FileKind::Directory {
            let inner = tree(partition, &dir.child(OsStr::from_bytes(&entry.name)), show)?;
            sum.bytes += inner.bytes;
            sum.files += inner.files;
            sum.directories += inner.directories;
        } else {
            sum.bytes += entry.attr.size;
            sum.files += 1;
        }
    }
    show(dir, sum)?;
    Ok(sum)
}
