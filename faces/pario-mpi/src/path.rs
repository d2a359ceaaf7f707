//! Path resolution: `pario://NAME/path`, and paths under a directory of `PARIO_MAP`, are Pario's.
//!
//! Never: reads the file system. Always: all ranks with the same environment resolve a path alike.

use std::path::{Component, Path, PathBuf};

use pario::CacheOptions;
use pario::partition::Location;
use pario::partition::locate::SCHEME;

use crate::problem::{Class, MpiError, Result};

/// Maps directories to partitions: `DIR=pario://NAME/dir`, several separated by `;`.
pub(crate) const MAP_VARIABLE: &str = "PARIO_MAP";
/// The partition that `pario:///path` means.
const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

/// The result of resolving a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathTarget {
    /// A file of a partition.
    Partition {
        /// The partition's name, or its partition file.
        partition: String,
        /// The path in it.
        path: PathBuf,
    },
    /// A plain file that is opened through the ranks' file cache.
    Plain {
        /// The file.
        path: PathBuf,
        /// How it is cached.
        options: CacheOptions,
    },
    /// A file of the MPI library.
    MpiLibrary,
}

impl PathTarget {
    /// Kind of the target, which must be equal on all ranks.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            PathTarget::Partition { .. } => "in a partition",
            PathTarget::Plain { .. } => "in a plain file",
            PathTarget::MpiLibrary => "with the MPI library",
        }
    }

    /// The path in the partition, or of the plain file.
    pub(crate) fn path(&self) -> &Path {
        match self {
            PathTarget::Partition { path, .. } | PathTarget::Plain { path, .. } => path,
            PathTarget::MpiLibrary => Path::new(""),
        }
    }
}

/// Resolves a path that the program opens: with `PARIO_CACHE` plain files are Pario's too.
pub fn resolve_open(name: &str) -> Result<PathTarget> {
    let target = resolve_path(name)?;
    if target != PathTarget::MpiLibrary {
        return Ok(target);
    }
    Ok(match pario::cache_from_env()? {
        Some(options) if is_plain(name) => PathTarget::Plain { path: absolute(Path::new(name)), options },
        Some(_) | None => PathTarget::MpiLibrary,
    })
}

/// Names with a prefix (`ufs:/data/x`) are for the MPI library, and devices are no files.
fn is_plain(name: &str) -> bool {
    let prefixed = name.split_once(':').is_some_and(|(prefix, _)| !prefix.contains('/'));
    let device = ["/dev", "/proc", "/sys"].iter().any(|dir| absolute(Path::new(name)).starts_with(dir));
    !prefixed && !device
}

/// Resolves a path of the program.
pub fn resolve_path(name: &str) -> Result<PathTarget> {
    let map = pario::environment::text(MAP_VARIABLE)?.unwrap_or_default();
    let partition = pario::environment::text(PARTITION_VARIABLE)?.unwrap_or_default();
    resolve(name, &map, &partition)
}

fn resolve(name: &str, map: &str, default_partition: &str) -> Result<PathTarget> {
    if name.starts_with(SCHEME) {
        return located(name, default_partition);
    }
    if map.is_empty() {
        return Ok(PathTarget::MpiLibrary);
    }
    let own = absolute(Path::new(name));
    for entry in map.split(';').filter(|entry| !entry.trim().is_empty()) {
        let (dir, to) = entry.split_once('=').ok_or_else(|| wrong_map(entry))?;
        if !to.trim().starts_with(SCHEME) || dir.trim().is_empty() {
            return Err(wrong_map(entry));
        }
        if let Ok(rest) = own.strip_prefix(absolute(Path::new(dir.trim()))) {
            return located(&below(to.trim(), rest), default_partition);
        }
    }
    Ok(PathTarget::MpiLibrary)
}

/// The path `rest` below a directory of a partition. Trailing slashes are removed, except those of the scheme: `pario:///` is the
/// root of the partition that `PARIO_PARTITION` names.
fn below(dir: &str, rest: &Path) -> String {
    let dir = dir[SCHEME.len()..].trim_end_matches('/');
    format!("{SCHEME}{dir}/{}", rest.display())
}

fn located(name: &str, default_partition: &str) -> Result<PathTarget> {
    let rest = &name[SCHEME.len()..];
    let named = match rest.strip_prefix('/') {
        Some(path) if !default_partition.is_empty() => {
            return Ok(PathTarget::Partition {
                partition: default_partition.to_owned(),
                path: in_partition(path),
            });
        }
        Some(_) | None => Location::parse(name),
    };
    let location = named.map_err(|error| MpiError::new(Class::BadFile, error.to_string()))?;
    let path = String::from_utf8_lossy(&location.path).into_owned();
    // `PARIO_PARTITION=file.toml` describes the partition of the same name.
    let described = Path::new(default_partition).file_stem().and_then(|stem| stem.to_str());
    let partition = match described {
        Some(stem) if default_partition.ends_with(".toml") && stem == location.partition => {
            default_partition.to_owned()
        }
        Some(_) | None => location.partition,
    };
    Ok(PathTarget::Partition { partition, path: in_partition(&path) })
}

fn in_partition(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

/// An absolute path without `.` and `..`, resolved lexically.
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

fn wrong_map(entry: &str) -> MpiError {
    let text = format!("{MAP_VARIABLE}: '{entry}' is not DIR=pario://NAME/dir; several are separated by ';'");
    MpiError::new(Class::BadFile, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(partition: &str, path: &str) -> PathTarget {
        PathTarget::Partition { partition: partition.into(), path: path.into() }
    }

    #[test]
    fn names_and_mapped_directories_are_ours() {
        let map = "/data/run=pario://p/out;/scratch=pario://q";
        assert_eq!(resolve("pario://p/a/b", "", "").unwrap(), ours("p", "a/b"));
        assert_eq!(resolve("pario:///a", "", "p").unwrap(), ours("p", "a"));
        assert_eq!(resolve("/data/run/x", map, "").unwrap(), ours("p", "out/x"));
        assert_eq!(resolve("/data/./other/../run/x", map, "").unwrap(), ours("p", "out/x"));
        assert_eq!(resolve("/scratch/d/x", map, "").unwrap(), ours("q", "d/x"));
        assert_eq!(resolve("/data/runs/x", map, "").unwrap(), PathTarget::MpiLibrary);
        assert_eq!(resolve("relative", "", "").unwrap(), PathTarget::MpiLibrary);
        assert_eq!(resolve("pario://p/x", "", "/j/p.toml").unwrap(), ours("/j/p.toml", "x"));
        assert_eq!(resolve("pario://q/x", "", "/j/p.toml").unwrap(), ours("q", "x"));
    }

    /// Every form of `PARIO_MAP` in the guide, with and without trailing slashes; the directory itself maps to the partition's.
    #[test]
    fn every_form_of_the_map_leads_below_its_directory_and_to_it() {
        for (to, partition, dir) in [
            ("pario:///", "run-1", ""),
            ("pario:////", "run-1", ""),
            ("pario:///out", "run-1", "out/"),
            ("pario:///out/deep/", "run-1", "out/deep/"),
            ("pario://p", "p", ""),
            ("pario://p/", "p", ""),
            ("pario://p/dir", "p", "dir/"),
            ("pario://p/dir/", "p", "dir/"),
        ] {
            for map in [format!("/j/out={to}"), format!("/other=pario://q/ ; /j/out/ = {to} ;")] {
                let resolved = |name: &str| resolve(name, &map, "run-1").unwrap();
                assert_eq!(resolved("/j/out/field"), ours(partition, &format!("{dir}field")), "{map}");
                assert_eq!(resolved("/j/out/a/../b/c"), ours(partition, &format!("{dir}b/c")), "{map}");
                for itself in ["/j/out", "/j/out/", "/j/./out/x/.."] {
                    assert_eq!(resolved(itself), ours(partition, dir), "{map}");
                }
                assert_eq!(resolved("/j/outer"), PathTarget::MpiLibrary, "{map}");
            }
        }
        let by_file = resolve("/j/out/x", "/j/out=pario:///", "/j/p.toml").unwrap();
        assert_eq!(by_file, ours("/j/p.toml", "x"));
        let nowhere = resolve("/j/out/x", "/j/out=pario:///", "").unwrap_err();
        assert_eq!(nowhere.class, Class::BadFile, "no partition is named: {nowhere:?}");
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
