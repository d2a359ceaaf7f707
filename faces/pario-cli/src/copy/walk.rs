//! Going through what is to be copied: directories are made on the way, files become jobs.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use pario::core::FileKind;

use super::crew::Jobs;
use super::file::FileJob;
use super::{Pair, Run};
use crate::error::{CliError, Outcome};
use crate::place::{Facts, Links, Place};

/// Directories within each other; deeper ones are a loop, or as bad.
const DEPTH_MAX: usize = 1024;

/// A directory that was made.
#[derive(Debug)]
pub(super) struct Directory {
    place: Place,
    facts: Facts,
}

/// Walks one pair; failures are kept in `run`.
pub(super) fn walk(run: &Run<'_>, pair: &Pair, jobs: &Jobs) {
    // A link that is named is followed, unless trees are copied: then it is copied as a link, without a slash behind it.
    let links = if run.options.recursive && !pair.from.has_slash() { Links::Stay } else { Links::Follow };
    let facts = pair.from.facts(links);
    match facts.and_then(|facts| check_not_inside(pair, &facts).map(|()| facts)) {
        Ok(facts) => visit(run, pair.clone(), facts, (jobs, 0)),
        Err(error) => run.fail(error),
    }
}

fn visit(run: &Run<'_>, pair: Pair, facts: Facts, (jobs, depth): (&Jobs, usize)) {
    if run.check().is_err() {
        return;
    }
    let done = match facts.kind {
        Some(FileKind::File) => {
            run.progress.found(facts.size);
            jobs.push(FileJob { pair, facts });
            Ok(())
        }
        Some(FileKind::Directory) if !run.options.recursive => Err(CliError::with_cure(
            format!("{}: is a directory", pair.from),
            "use -r to copy it with what is in it",
        )),
        Some(FileKind::Directory) => directory(run, &pair, facts, (jobs, depth)),
        Some(FileKind::Symlink) => link(run, &pair, &facts),
        None => Err(CliError::failed(format!(
            "{}: only files, directories and symbolic links are copied",
            pair.from
        ))),
    };
    if let Err(error) = done {
        run.fail(error);
    }
}

fn directory(run: &Run<'_>, pair: &Pair, facts: Facts, (jobs, depth): (&Jobs, usize)) -> Outcome {
    if DEPTH_MAX < depth {
        return Err(CliError::failed(format!("{}: more than {DEPTH_MAX} directories deep", pair.from)));
    }
    let existed = pair.to.is_directory()?;
    pair.to.make_directory()?;
    // A root that gives its contents to a directory which is there leaves that directory as it is.
    if !existed || (run.options.preserve && pair.from.name().is_some()) {
        run.keep_directory(Directory { place: pair.to.clone(), facts });
    }
    run.count.directories.fetch_add(1, Ordering::Relaxed);
    for entry in pair.from.list()? {
        let (name, facts) = entry?;
        let inner = Pair { from: pair.from.child(&name), to: pair.to.child(&name) };
        visit(run, inner, facts, (jobs, depth + 1));
    }
    Ok(())
}

fn link(run: &Run<'_>, pair: &Pair, facts: &Facts) -> Outcome {
    let target: PathBuf = pair.from.read_link()?;
    match pair.to.look(Links::Stay)?.map(|facts| facts.kind) {
        Some(Some(FileKind::Directory)) => {
            return Err(CliError::failed(format!(
                "{}: is a directory, and {} is a link",
                pair.to, pair.from
            )));
        }
        Some(_) => pair.to.remove_file()?,
        None => {}
    }
    pair.to.make_link(&target).map_err(|error| pair.to.blame_parent(error))?;
    if run.options.preserve {
        pair.to.set_link_like(facts)?;
    }
    run.count.links.fetch_add(1, Ordering::Relaxed);
    run.progress.copied(pair);
    Ok(())
}

/// A tree copied into itself would never end.
fn check_not_inside(pair: &Pair, facts: &Facts) -> Outcome {
    if facts.kind != Some(FileKind::Directory) || !pair.from.shares_tree(&pair.to) {
        return Ok(());
    }
    for above in pair.to.path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        let above = Place { tree: pair.to.tree.clone(), path: above.to_owned() };
        if above.look(Links::Follow)?.is_some_and(|found| found.identity == facts.identity) {
            return Err(CliError::failed(format!("{} cannot be copied into itself, {}", pair.from, pair.to)));
        }
    }
    Ok(())
}

/// Gives directories their bits and times, the deepest first: what is put into one changes its times.
pub(super) fn finish_directories(run: &Run<'_>) {
    let directories = std::mem::take(&mut *run.directories.lock().unwrap_or_else(PoisonError::into_inner));
    for Directory { place, facts } in directories.iter().rev() {
        let set = match run.options.preserve {
            true => place.set_like(facts),
            false => place.set_mode(facts.mode & 0o777),
        };
        if let Err(error) = set {
            run.fail(error);
        }
    }
}
