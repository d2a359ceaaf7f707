//! Groups of threads, each with a directory of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario::distant::{Distant, DistantOptions};
use pario::group::{Group, threads_on};

/// Directories of the members of a test.
pub(crate) struct HomeDirs(pub(crate) tempfile::TempDir);

impl HomeDirs {
    pub(crate) fn new(members: usize) -> HomeDirs {
        let dirs = HomeDirs(tempfile::tempdir().unwrap());
        (0..members).for_each(|rank| std::fs::create_dir(dirs.of(rank)).unwrap());
        dirs
    }

    pub(crate) fn of(&self, rank: usize) -> PathBuf {
        self.0.path().join(rank.to_string())
    }

    /// Files below all directories.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(self.0.path(), &mut found);
        found
    }
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Runs `body` as each member of a group on these nodes; all results, in rank order.
pub(crate) fn on_members<T: Send>(nodes: &[usize], body: impl Fn(Arc<dyn Group>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let members: Vec<_> =
            threads_on(nodes).into_iter().map(|group| scope.spawn(|| body(group))).collect();
        members
            .into_iter()
            .map(|member| member.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// The same as members of Distant I/O, each a home in its directory.
pub(crate) fn as_homes<T: Send>(
    nodes: &[usize],
    dirs: &HomeDirs,
    body: impl Fn(&Arc<dyn Group>, &Distant) -> T + Sync,
) -> Vec<T> {
    on_members(nodes, |group| {
        let options = DistantOptions::in_dir(dirs.of(group.rank()));
        let distant = Distant::join(&group, &options).unwrap();
        let result = body(&group, &distant);
        distant.leave().unwrap();
        group.leave();
        result
    })
}
