//! Staging: a directory into a partition before a job, a partition into a directory after it.
//!
//! Always: staging out succeeds only if every file was read back on both sides and is equal.

use std::path::Path;

use super::copy::{self, Copied, CopyOptions, CopyPair, default_jobs};
use super::{FileStat, LinkPolicy, Observer, TransferError, TransferResult, TreePath, verify};
use crate::handle::Partition;

/// Copies the contents of `dir` into the partition's root.
pub fn stage_in(dir: &Path, partition: &Partition, observer: &dyn Observer) -> TransferResult<Copied> {
    let pair = CopyPair { from: resolved(dir)?, to: TreePath::root(partition) };
    copy_all(&pair, false, observer)
}

/// Copies everything in the partition into `dir`, on stable storage, and compares both.
pub fn stage_out(partition: &Partition, dir: &Path, observer: &dyn Observer) -> TransferResult<Copied> {
    TreePath::local(dir).create_dir_all()?;
    let pair = CopyPair { from: TreePath::root(partition), to: resolved(dir)?.as_target()? };
    copy_verified(&pair, observer)
}

/// Copies a tree as it is to stable storage, reads it back and compares both.
pub fn copy_verified(pair: &CopyPair, observer: &dyn Observer) -> TransferResult<Copied> {
    let copied = copy_all(pair, true, observer)?;
    observer.verifying();
    TransferError::all_of(verify::verify(pair, default_jobs(), observer)?.failures)?;
    Ok(copied)
}

/// Copies a tree with [`copy_verified`], then removes the source.
pub fn move_verified(pair: &CopyPair, observer: &dyn Observer) -> TransferResult {
    let stat = pair.from.stat(LinkPolicy::Stay)?;
    copy_verified(pair, observer)?;
    remove_all(&pair.from, stat, observer)
}

/// Removes a file, or a directory with everything in it.
fn remove_all(path: &TreePath, stat: FileStat, observer: &dyn Observer) -> TransferResult {
    if !stat.is_directory() {
        return path.remove_file();
    }
    for entry in path.read_dir()?.collect::<TransferResult<Vec<_>>>()? {
        if observer.is_stopped() {
            return Err(TransferError::Stopped);
        }
        remove_all(&path.child(&entry.name), entry.stat, observer)?;
    }
    path.remove_dir()
}

/// A directory of this machine, with links resolved.
fn resolved(dir: &Path) -> TransferResult<TreePath> {
    let path = std::fs::canonicalize(dir);
    Ok(TreePath::local(path.map_err(|error| TransferError::Local { path: dir.to_owned(), error })?))
}

fn copy_all(pair: &CopyPair, durable: bool, observer: &dyn Observer) -> TransferResult<Copied> {
    let options = CopyOptions { recursive: true, preserve: true, durable, ..CopyOptions::default() };
    let report = copy::copy(std::slice::from_ref(pair), options, observer)?;
    TransferError::all_of(report.failures)?;
    Ok(report.copied)
}
