//! Staging: a directory into a partition before a job, a partition into a directory after it.
//!
//! Always: staging out is a success only if every file was read back on both sides and is the same.

use std::path::Path;

use pario::Partition;

use crate::context::Context;
use crate::copy::{self, Copied, CopyOptions, Pair, Progress};
use crate::error::{CliError, Outcome};
use crate::place::{Place, Tree};
use crate::signals::Stop;

/// Options of both ways: everything, as it is.
fn options(durable: bool) -> CopyOptions {
    CopyOptions { recursive: true, preserve: true, durable, ..CopyOptions::default() }
}

/// Copies what is in `dir` into the partition's root.
pub(crate) fn stage_in(context: &Context, dir: &Path, partition: &Partition, stop: &Stop) -> Outcome {
    let pair = Pair { from: local(dir)?, to: Place::root(partition) };
    run(context, &pair, options(false), ("staging in", stop)).map(drop)
}

/// Copies everything in the partition into `dir`, and proves that it arrived.
pub(crate) fn stage_out(
    context: &Context,
    partition: &Partition,
    dir: &Path,
    stop: &Stop,
) -> Outcome<Copied> {
    let to = Place { tree: Tree::Local, path: dir.to_owned() };
    to.make_directories()?;
    let pair = Pair { from: Place::root(partition), to: local(dir)? };
    let copied = run(context, &pair, options(true), ("staging out", stop))?;
    let progress = Progress::new(context.speech, "verifying");
    let verified = copy::verify(&pair, copy::default_jobs(), &progress, stop);
    progress.end();
    let (_, failures) = verified?;
    first_of(failures)?;
    Ok(copied)
}

/// A directory of this machine, links to it resolved.
fn local(dir: &Path) -> Outcome<Place> {
    let path = std::fs::canonicalize(dir).map_err(|error| CliError::local(dir, &error))?;
    Ok(Place { tree: Tree::Local, path })
}

fn run(
    context: &Context,
    pair: &Pair,
    options: CopyOptions,
    (what, stop): (&'static str, &Stop),
) -> Outcome<Copied> {
    let progress = Progress::new(context.speech, what);
    let copied = copy::copy(std::slice::from_ref(pair), options, &progress, stop);
    progress.end();
    let (copied, failures) = copied?;
    first_of(failures)?;
    Ok(copied)
}

/// The first failure, with the number of the others.
fn first_of(mut failures: Vec<CliError>) -> Outcome {
    if failures.is_empty() {
        return Ok(());
    }
    let others = failures.len() - 1;
    let first = failures.swap_remove(0);
    if others == 0 {
        return Err(first);
    }
    Err(CliError::failed(format!("{first}; and {others} more")))
}
