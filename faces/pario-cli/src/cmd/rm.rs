//! `pario rm`: remove files and trees.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args as ClapArgs;
use pario::Partition;
use pario::core::{Code, FileKind};
use pario::partition::Location;
use pario::transfer::TreePath;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Arguments of `pario rm`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario rm pario://scratch/run1/log
  pario rm -r pario://scratch/run1
  pario rm -f pario://scratch/may-be-missing")]
pub(crate) struct Args {
    /// Files; with -r directories, too
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Directories with what is in them
    #[arg(short, long)]
    recursive: bool,
    /// What is missing is no error
    #[arg(short, long)]
    force: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    context.stop.catch()?;
    let (mut failures, mut done) = (Vec::new(), 0);
    for text in &args.places {
        match remove(context, args, text, &mut failures) {
            Ok(()) => done += 1,
            Err(error @ CliError::Interrupted { .. }) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    end_of_many(context, failures, done)
}

fn remove(context: &Context, args: &Args, text: &OsString, failures: &mut Vec<CliError>) -> CliResult {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let attr = match partition.symlink_metadata(&place.path) {
        Ok(attr) => attr,
        Err(error) if args.force && error.code() == Code::NotFound => return Ok(()),
        Err(error) => return Err(CliError::remote(&place, &error)),
    };
    if attr.kind != FileKind::Directory {
        return Ok(place.remove_file()?);
    }
    if !args.recursive {
        let cure = "use -r to remove it with what is in it";
        return Err(CliError::with_cure(format!("{place}: is a directory"), cure));
    }
    if attr.inode == pario::core::InodeId::ROOT {
        let cure = format!("`pario down {} --destroy` removes the partition", location.partition);
        return Err(CliError::with_cure(format!("{place}: the root of a partition stays"), cure));
    }
    let before = failures.len();
    tree(context, &partition, &place, failures)?;
    if before < failures.len() {
        Err(CliError::failed(format!("{place}: not all of it could be removed")))
    } else {
        Ok(())
    }
}

/// Removes the contents of a directory, then the directory.
fn tree(context: &Context, partition: &Partition, dir: &TreePath, failures: &mut Vec<CliError>) -> CliResult {
    let remote = |error: pario::Error| CliError::remote(dir, &error);
    let before = failures.len();
    for entry in partition.read_dir(&dir.path).map_err(remote)? {
        context.stop.check()?;
        let entry = entry.map_err(remote)?;
        let place = dir.child(OsStr::from_bytes(&entry.name));
        let removed = match entry.attr.kind {
            FileKind::Directory => tree(context, partition, &place, failures),
            FileKind::File
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => match partition.remove_file(&place.path) {
                // Another process removed the entry concurrently.
                Err(error) if error.code() == Code::NotFound => Ok(()),
                removed => removed.map_err(|error| CliError::remote(&place, &error)),
            },
        };
        match removed {
            Ok(()) => {}
            Err(error @ CliError::Interrupted { .. }) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    // A directory that is not empty would only repeat the first failure.
    if before == failures.len() { partition.remove_dir(&dir.path).map_err(remote) } else { Ok(()) }
}
