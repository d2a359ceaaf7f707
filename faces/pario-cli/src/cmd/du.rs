//! `pario du`: size of files and trees.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, Args as ClapArgs};
use pario::Partition;
use pario::core::{FileKind, Size};
use pario::transfer::TreePath;
use serde_json::{Value, json};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario du`.
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
struct TreeTotal {
    bytes: u64,
    files: u64,
    directories: u64,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut typed: Vec<Option<&OsString>> = args.places.iter().map(Some).collect();
    if typed.is_empty() {
        typed.push(None);
    }
    let (mut facts, mut failures, mut done) = (Vec::new(), Vec::new(), 0);
    for text in typed {
        match measure(context, args, text, &mut facts) {
            Ok(()) => done += 1,
            Err(error @ CliError::OutputClosed) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, done)
}

fn measure(context: &Context, args: &Args, text: Option<&OsString>, facts: &mut Vec<Value>) -> CliResult {
    let location = context.location(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let attr = partition.symlink_metadata(&place.path).map_err(|error| CliError::remote(&place, &error))?;
    let mut show = |place: &TreePath, sum: TreeTotal, top: bool| -> CliResult {
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
        let sum = TreeTotal { bytes: attr.size, files: 1, directories: 0 };
        return show(&place, sum, true);
    }
    let sum = tree(&partition, &place, &mut |place, sum| show(place, sum, false))?;
    // The walk has printed every directory, the topmost included, unless only totals are requested.
    if args.summarize { show(&place, sum, true) } else { Ok(()) }
}

/// Sums a tree, subdirectories before their parent.
fn tree(
    partition: &Partition,
    dir: &TreePath,
    show: &mut impl FnMut(&TreePath, TreeTotal) -> CliResult,
) -> CliResult<TreeTotal> {
    let remote = |error: pario::Error| CliError::remote(dir, &error);
    let mut sum = TreeTotal { directories: 1, ..TreeTotal::default() };
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
