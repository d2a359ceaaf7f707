//! Where a shared file is to be: the first member leaves a probe beside it, and all members look for it.
//!
//! | members that see the probe | place |
//! |---|---|
//! | all | one plain file |
//! | of the first member's node only | components on the homes |
//! | others, but not all | an error that names them |
//!
//! Never: guesses by the name of a path or file system. Always: removes the probe.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pario_core::{Code, Fault};
use pario_net::greeting::random_number;
use pario_sys::dir::PRIVATE_FILE;
use serde::{Deserialize, Serialize};

use super::options::FilePlace;
use crate::error::{Error, Result};
use crate::group::{Group, broadcast_value, exchange_values};

/// Overrides the trial: `filesystem` or `distant`.
pub const PLACE_VARIABLE: &str = "PARIO_SF";

/// The chosen place and why.
pub(super) type ChosenPlace = (FilePlace, String);

/// Directory and name of a path.
pub(super) fn split(path: &Path) -> Result<(PathBuf, String)> {
    let invalid =
        || Error::from(Fault::new(Code::Invalid, format!("{}: a shared file needs a name", path.display())));
    let name = path.file_name().ok_or_else(invalid)?.to_string_lossy().into_owned();
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if 200 < name.len() {
        let text = format!("the name of a shared file has {} bytes; the limit is 200", name.len());
        return Err(Fault::new(Code::NameTooLong, text).into());
    }
    Ok((dir.to_owned(), name))
}

/// A name in a directory that no other file has.
pub(super) fn unused_name(name: &str) -> String {
    format!(".{name}.pario-{:016x}", random_number())
}

#[derive(Serialize, Deserialize)]
struct PlaceProbe {
    name: String,
    mark: u64,
    failed: Option<String>,
}

/// Removes the probe also if the trial fails.
struct ProbeFile(PathBuf);

impl Drop for ProbeFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Tries whether all members share the directory of `path`; collective.
pub(super) fn try_place(group: &dyn Group, path: &Path) -> Result<ChosenPlace> {
    let split = split(path);
    let (dir, name) = match &split {
        Ok((dir, name)) => (dir.clone(), name.clone()),
        Err(_) => (PathBuf::new(), String::new()),
    };
    group.agree(split.map(|_| ()))?;
    let mut probe = PlaceProbe { name: unused_name(&name), mark: random_number(), failed: None };
    let mut left = None;
    if group.rank() == 0 {
        let path = dir.join(&probe.name);
        match leave(&path, probe.mark) {
            Ok(()) => left = Some(ProbeFile(path)),
            Err(error) => probe.failed = Some(format!("{}: {error}", dir.display())),
        }
    }
    let probe: PlaceProbe = broadcast_value(group, &probe)?;
    if let Some(why) = probe.failed {
        return Err(Fault::new(Code::Io, format!("rank 0 cannot create a file in {why}")).into());
    }
    let is_seen = sees(&dir.join(&probe.name), probe.mark);
    let seen: Vec<bool> = exchange_values(group, &is_seen)?;
    drop(left);
    let nodes: Vec<usize> = (0..group.size()).map(|rank| group.node_of(rank)).collect();
    choose(&seen, &nodes).map_err(|ranks| {
        let text = format!(
            "{} is shared with ranks {ranks:?} and not with all: choose a directory that all nodes share, or one of each node",
            dir.display()
        );
        Fault::new(Code::Invalid, text).into()
    })
}

/// The place; `Err`: ranks of other nodes that see the probe although not all do. Pure.
fn choose(seen: &[bool], nodes: &[usize]) -> std::result::Result<ChosenPlace, Vec<usize>> {
    if seen.iter().all(|seen| *seen) {
        let why = format!("all {} members see the directory of rank 0", seen.len());
        return Ok((FilePlace::Filesystem, why));
    }
    let others: Vec<usize> =
        (0..seen.len()).filter(|rank| seen[*rank] && nodes.get(*rank) != nodes.first()).collect();
    match others.is_empty() {
        true => Ok((FilePlace::Distant, "only the node of rank 0 sees its directory".into())),
        false => Err(others),
    }
}

fn leave(path: &Path, mark: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
    file.write_all(&mark.to_le_bytes())?;
    // Seen by other nodes of a shared file system.
    file.sync_all()
}

fn sees(path: &Path, mark: u64) -> bool {
    let mut found = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut found));
    read.is_ok() && found == mark.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_follows_from_who_sees_the_probe() {
        let place = |seen: &[bool], nodes: &[usize]| choose(seen, nodes).map(|(place, _)| place);
        assert_eq!(place(&[true], &[0]), Ok(FilePlace::Filesystem));
        assert_eq!(place(&[true, true, true], &[0, 1, 2]), Ok(FilePlace::Filesystem));
        assert_eq!(place(&[true, false, false], &[0, 1, 2]), Ok(FilePlace::Distant));
        assert_eq!(place(&[true, true, false, false], &[0, 0, 1, 1]), Ok(FilePlace::Distant));
        assert_eq!(place(&[true, false, true], &[0, 1, 2]), Err(vec![2]));
        assert_eq!(place(&[true, true, false, true], &[0, 0, 1, 2]), Err(vec![3]));
        // Containers of one node may have different directories.
        assert_eq!(place(&[true, false], &[0, 0]), Ok(FilePlace::Distant));
    }

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        assert_eq!(split(Path::new("vectors")).unwrap(), (PathBuf::from("."), "vectors".to_owned()));
        assert_eq!(split(Path::new("/a/b")).unwrap(), (PathBuf::from("/a"), "b".to_owned()));
        assert!(split(Path::new("/")).is_err());
        assert_eq!(split(Path::new(&"n".repeat(4096))).unwrap_err().code(), Code::NameTooLong);
    }
}
