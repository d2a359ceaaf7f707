//! Which paths are Pario's: `pario://NAME/path`, and what lies under a directory of `PARIO_MAP`.
//!
//! Never: looks at the file system. Always: a path that is Pario's for one rank is so for all that have its environment.

use std::path::{Component, Path, PathBuf};

use pario::SharedOptions;
use pario::partition::Location;
use pario::partition::locate::SCHEME;

use crate::problem::{Class, Problem, Result};

/// Maps directories to partitions: `DIR=pario://NAME/dir`, several separated by `;`.
pub(crate) const MAP_VARIABLE: &str = "PARIO_MAP";
/// The partition that `pario:///path` means.
const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// To a file of a partition.
    Ours {
        /// The partition's name, or the file that describes it.
        partition: String,
        /// The path in it.
        path: PathBuf,
    },
    /// To a plain file that is to be opened through a cache of the ranks' own.
    Plain {
        /// The file.
        path: PathBuf,
        /// How it is cached.
        options: SharedOptions,
    },
    /// To the MPI library.
    Theirs,
}

impl Target {
    /// Where it leads, in a word that all ranks must say alike.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Target::Ours { .. } => "in a partition",
            Target::Plain { .. } => "in a plain file",
            Target::Theirs => "with the MPI library",
        }
    }

    /// The path in the partition, or of the plain file.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Target::Ours { path, .. } | Target::Plain { path, .. } => path,
            Target::Theirs => Path::new(""),
        }
    }
}

/// Where a path that the program opens leads: with `PARIO_CACHE` plain files are Pario's affair too.
pub fn opening_of(name: &str) -> Result<Target> {
    let target = target_of(name)?;
    if target != Target::Theirs {
        return Ok(target);
    }
    Ok(match pario::cache_from_env()? {
        Some(options) if is_plain(name) => Target::Plain { path: absolute(Path::new(name)), options },
        Some(_) | None => Target::Theirs,
    })
}

/// Names with a prefix (`ufs:/data/x`) mean something to the MPI library alone, and devices are no files.
fn is_plain(name: &str) -> bool {
    let prefixed = name.split_once(':').is_some_and(|(prefix, _)| !prefix.contains('/'));
    let device = ["/dev", "/proc", "/sys"].iter().any(|dir| absolute(Path::new(name)).starts_with(dir));
    !prefixed && !device
}

/// Where a path of the program leads.
pub fn target_of(name: &str) -> Result<Target> {
    let map = std::env::var(MAP_VARIABLE).unwrap_or_default();
    let partition = std::env::var(PARTITION_VARIABLE).unwrap_or_default();
    resolve(name, &map, &partition)
}

fn resolve(name: &str, map: &str, default_partition: &str) -> Result<Target> {
    if name.starts_with(SCHEME) {
        return located(name, default_partition);
    }
    if map.is_empty() {
        return Ok(Target::Theirs);
    }
    let own = absolute(Path::new(name));
    for entry in map.split(';').filter(|entry| !entry.trim().is_empty()) {
        let (dir, to) = entry.split_once('=').ok_or_else(|| wrong_map(entry))?;
        if !to.trim().starts_with(SCHEME) || dir.trim().is_empty() {
            return Err(wrong_map(entry));
        }
        if let Ok(rest) = own.strip_prefix(absolute(Path::new(dir.trim()))) {
            let to = format!("{}/{}", to.trim().trim_end_matches('/'), rest.display());
            return located(&to, default_partition);
        }
    }
    Ok(Target::Theirs)
}

fn located(name: &str, default_partition: &str) -> Result<Target> {
    let rest = &name[SCHEME.len()..];
    let named = match rest.strip_prefix('/') {
        Some(path) if !default_partition.is_empty() => {
            return Ok(Target::Ours { partition: default_partition.to_owned(), path: in_partition(path) });
        }
        Some(_) | None => Location::parse(name),
    };
    let location = named.map_err(|error| Problem::new(Class::BadFile, error.to_string()))?;
    let path = String::from_utf8_lossy(&location.path).into_owned();
    // `PARIO_PARTITION=file.toml` describes the partition that its name means.
    let described = Path::new(default_partition).file_stem().and_then(|stem| stem.to_str());
    let partition = match described {
        Some(stem) if default_partition.ends_with(".toml") && stem == location.partition => {
            default_partition.to_owned()
        }
        Some(_) | None => location.partition,
    };
    Ok(Target::Ours { partition, path: in_partition(&path) })
}

fn in_partition(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

/// An absolute path without `.` and `..`, by its words alone.
fn absolute(path: &Path) -> PathBuf {
    let full = match path.is_absolute() {
        true => path.to_owned(),
        false => std::env::current_dir().unwrap_or_default().join(path),
    };
    let mut clean = PathBuf::new();
    for part in full.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => clean.push(part),
        }
    }
    clean
}

fn wrong_map(entry: &str) -> Problem {
    let text = format!("{MAP_VARIABLE}: '{entry}' is not DIR=pario://NAME/dir; several are separated by ';'");
    Problem::new(Class::BadFile, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(partition: &str, path: &str) -> Target {
        Target::Ours { partition: partition.into(), path: path.into() }
    }

    #[test]
    fn names_and_mapped_directories_are_ours() {
        let map = "/data/run=pario://p/out;/scratch=pario://q";
        assert_eq!(resolve("pario://p/a/b", "", "").unwrap(), ours("p", "a/b"));
        assert_eq!(resolve("pario:///a", "", "p").unwrap(), ours("p", "a"));
        assert_eq!(resolve("/data/run/x", map, "").unwrap(), ours("p", "out/x"));
        assert_eq!(resolve("/data/./other/../run/x", map, "").unwrap(), ours("p", "out/x"));
        assert_eq!(resolve("/scratch/d/x", map, "").unwrap(), ours("q", "d/x"));
        assert_eq!(resolve("/data/runs/x", map, "").unwrap(), Target::Theirs);
        assert_eq!(resolve("relative", "", "").unwrap(), Target::Theirs);
        assert_eq!(resolve("pario://p/x", "", "/j/p.toml").unwrap(), ours("/j/p.toml", "x"));
        assert_eq!(resolve("pario://q/x", "", "/j/p.toml").unwrap(), ours("q", "x"));
    }

    #[test]
    fn devices_and_prefixed_names_are_not_cached() {
        assert!(is_plain("/data/x") && is_plain("x") && is_plain("./a:b/c"));
        assert!(!is_plain("ufs:/data/x") && !is_plain("/dev/null") && !is_plain("/data/../dev/shm/x"));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (name, map) in [("pario://", ""), ("pario://a b/x", ""), ("/x", "/x:pario://p"), ("/x", "/x=/y")]
        {
            let error = resolve(name, map, "").unwrap_err();
            assert_eq!(error.class, Class::BadFile, "{name} {map}: {error:?}");
        }
    }
}
