//! Walks the sources of a copy: makes directories, queues files as jobs.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pario_core::{AttrChange, FileKind};

use super::copy::{CopyRun, PLAIN_MODE_BITS, Replace};
use super::file::FileJob;
use super::tree::{FileStat, LinkPolicy};
use super::workers::Jobs;
use super::{CopyPair, TransferError, TransferResult, TreePath};

/// Depth limit; deeper trees are treated as a loop.
const DEPTH_MAX: usize = 1024;

/// A directory that was made.
#[derive(Debug)]
pub(super) struct MadeDirectory {
    path: TreePath,
    stat: FileStat,
}

/// Walks one pair; failures are recorded in `run`.
pub(super) fn walk(run: &CopyRun<'_>, pair: &CopyPair, jobs: &Jobs) {
    // A symbolic link named by the user is followed, unless trees are copied: then it is copied as a link, without a trailing slash.
    let links =
        if run.options.recursive && !pair.from.has_slash() { LinkPolicy::Stay } else { LinkPolicy::Follow };
    let stat = pair.from.stat(links);
    match stat.and_then(|stat| check_not_inside(pair, &stat).map(|()| stat)) {
        Ok(stat) => CopyWalk { run, jobs }.visit(pair.clone(), stat, 0),
        Err(error) => run.fail(error),
    }
}

/// State of one walk.
struct CopyWalk<'a> {
    run: &'a CopyRun<'a>,
    jobs: &'a Jobs,
}

impl CopyWalk<'_> {
    fn visit(&self, pair: CopyPair, stat: FileStat, depth: usize) {
        let run = self.run;
        if run.check().is_err() {
            return;
        }
        let done = match stat.kind {
            Some(FileKind::File | FileKind::Symlink) if skips(run, &pair, &stat) => Ok(()),
            Some(FileKind::File) => {
                run.observer.found(stat.size);
                self.jobs.push(FileJob { pair, stat, is_inside: 0 < depth });
                Ok(())
            }
            Some(FileKind::Directory) if !run.options.recursive => {
                Err(TransferError::NotRecursive { path: pair.from.to_string() })
            }
            Some(FileKind::Directory) => self.directory(&pair, stat, depth),
            Some(FileKind::Symlink) => link(run, &pair, &stat),
            Some(FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice) | None => {
                Err(TransferError::refused(format!(
                    "{}: only files, directories and symbolic links are copied",
                    pair.from
                )))
            }
        };
        if let Err(error) = done {
            run.fail(error);
        }
    }

    fn directory(&self, pair: &CopyPair, stat: FileStat, depth: usize) -> TransferResult {
        let run = self.run;
        if DEPTH_MAX < depth {
            let text = format!("{}: more than {DEPTH_MAX} directories deep", pair.from);
            return Err(TransferError::refused(text));
        }
        // The user named the target itself, also through a link; directories below it must be real.
        if 0 < depth && pair.to.stat_if_exists(LinkPolicy::Stay)?.is_some_and(|found| found.is_link()) {
            return Err(TransferError::link_in_target(&pair.to));
        }
        let existed = pair.to.is_directory()?;
        pair.to.create_dir()?;
        let pair = &CopyPair { from: pair.from.clone(), to: pair.to.as_target()? };
        // A root copied by contents into an existing directory keeps that directory's attributes.
        if !existed || (run.options.preserve && pair.from.name().is_some()) {
            run.keep_directory(MadeDirectory { path: pair.to.clone(), stat });
        }
        run.count.directories.fetch_add(1, Ordering::Relaxed);
        if !existed {
            run.observer.copied(&pair.from, &pair.to);
        }
        for entry in pair.from.read_dir()? {
            let entry = entry?;
            let inner = CopyPair { from: pair.from.child(&entry.name), to: pair.to.child(&entry.name) };
            self.visit(inner, entry.stat, depth + 1);
        }
        Ok(())
    }
}

/// Whether the existing target is kept; counted if so. Errors are reported again when the target is created.
fn skips(run: &CopyRun<'_>, pair: &CopyPair, stat: &FileStat) -> bool {
    let links = match run.options.replace {
        Replace::Always => return false,
        Replace::Older => LinkPolicy::Follow,
        Replace::Never => LinkPolicy::Stay,
    };
    let Ok(Some(there)) = pair.to.stat_if_exists(links) else { return false };
    // An existing directory: an error, reported as such.
    let stays = run.options.replace == Replace::Never || stat.modified_ns <= there.modified_ns;
    if !stays || there.is_directory() {
        return false;
    }
    run.count.skipped.fetch_add(1, Ordering::Relaxed);
    run.observer.skipped(&pair.to);
    true
}

fn link(run: &CopyRun<'_>, pair: &CopyPair, stat: &FileStat) -> TransferResult {
    let target: PathBuf = pair.from.read_link()?;
    match pair.to.stat_if_exists(LinkPolicy::Stay)? {
        Some(there) if there.is_directory() => {
            let text = format!("{}: is a directory, and {} is a link", pair.to, pair.from);
            return Err(TransferError::refused(text));
        }
        Some(_) => pair.to.remove_file()?,
        None => {}
    }
    pair.to.symlink(&target).map_err(|error| pair.to.blame_parent(error))?;
    if run.options.preserve {
        pair.to.set_attr(stat.as_change(), LinkPolicy::Stay)?;
    }
    run.count.links.fetch_add(1, Ordering::Relaxed);
    run.observer.copied(&pair.from, &pair.to);
    Ok(())
}

/// A tree copied into itself would never end.
fn check_not_inside(pair: &CopyPair, stat: &FileStat) -> TransferResult {
    if !stat.is_directory() || !pair.from.shares_tree(&pair.to) {
        return Ok(());
    }
    for above in pair.to.ancestors() {
        if above.stat_if_exists(LinkPolicy::Follow)?.is_some_and(|found| found.is_same_file(stat)) {
            let text = format!("{} cannot be copied into itself, {}", pair.from, pair.to);
            return Err(TransferError::refused(text));
        }
    }
    Ok(())
}

/// Sets permission bits and times of directories, the deepest first: a new entry changes the times of its directory.
pub(super) fn finish_directories(run: &CopyRun<'_>) {
    let directories = std::mem::take(&mut *run.directories.lock().unwrap_or_else(PoisonError::into_inner));
    for MadeDirectory { path, stat } in directories.iter().rev() {
        let mode = Some(stat.mode & PLAIN_MODE_BITS);
        let set = match run.options.preserve {
            true => path.set_attr(stat.as_change(), LinkPolicy::Follow),
            false => path.set_attr(AttrChange { mode, ..AttrChange::default() }, LinkPolicy::Follow),
        };
        if let Err(error) = set {
            run.fail(error);
        }
    }
}
