//! The files of a container: their names, and the marker that tells a container from a directory. Format: docs/formats/log.md.
//!
//! Never: changes the marker of a container. Always: all containers of a version have the same marker, so that two processes may make
//! one container at the same time.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::entry::WriterNumber;
use super::error::{LogError, at};
use crate::disk::{Disk, EntryKind, OpenMode};

/// Name of the marker.
pub(crate) const MARKER: &str = "pario-container";
/// Name of the summary.
pub(crate) const SUMMARY: &str = "summary";
/// Name of a summary that is being written.
pub(crate) const SUMMARY_NEW: &str = "summary.new";
/// Name of an index that is being repaired.
pub(crate) const INDEX_NEW: &str = "index.new";
/// Version of containers.
pub(crate) const VERSION: u32 = 1;

const MARKER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"PARIOLOG";

/// The writers of which a container has files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct WriterFiles {
    /// Those with an index, ascending.
    pub(crate) indexed: Vec<WriterNumber>,
    /// Those with a data log only: no entry of theirs was ever written. Ascending.
    pub(crate) unindexed: Vec<WriterNumber>,
}

impl WriterFiles {
    pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<WriterFiles, LogError> {
        let names = disk.list_dir(dir).map_err(at("listing", dir))?;
        let names: Vec<_> = names.iter().filter(|(_, kind)| *kind == EntryKind::File).collect();
        let numbers = |suffix: &str| -> Vec<WriterNumber> {
            let mut found: Vec<_> = names.iter().filter_map(|(name, _)| parse(name, suffix)).collect();
            found.sort_unstable();
            found
        };
        let indexed = numbers("-index");
        let mut unindexed = numbers("-data");
        unindexed.retain(|number| indexed.binary_search(number).is_err());
        Ok(WriterFiles { indexed, unindexed })
    }

    /// A number that no writer has.
    pub(crate) fn next(&self) -> WriterNumber {
        let last = self.indexed.last().max(self.unindexed.last());
        last.map_or(WriterNumber(1), |last| WriterNumber(last.0.saturating_add(1)))
    }
}

pub(crate) fn data_path(dir: &Path, writer: WriterNumber) -> PathBuf {
    dir.join(format!("{:08x}-data", writer.0))
}

pub(crate) fn index_path(dir: &Path, writer: WriterNumber) -> PathBuf {
    dir.join(format!("{:08x}-index", writer.0))
}

fn parse(name: &OsStr, suffix: &str) -> Option<WriterNumber> {
    let name = name.to_str()?;
    let number = WriterNumber(u32::from_str_radix(name.strip_suffix(suffix)?, 16).ok()?);
    // Only the written form: no capitals, no signs, no missing zeros.
    (format!("{:08x}{suffix}", number.0) == name).then_some(number)
}

/// Whether `name` is of a file that containers have.
pub(crate) fn is_own_name(name: &OsStr) -> bool {
    [MARKER, SUMMARY, SUMMARY_NEW, INDEX_NEW].iter().any(|own| name == *own) || is_writers(name)
}

fn is_writers(name: &OsStr) -> bool {
    parse(name, "-data").or_else(|| parse(name, "-index")).is_some()
}

fn marker_bytes() -> [u8; MARKER_BYTES] {
    let mut bytes = [0; MARKER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// State of the marker of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkerState {
    /// Whole.
    Present,
    /// Missing or unfinished, and the directory has no files of others: a container of which the creation was interrupted.
    Unfinished,
}

/// Whether `dir` is a container.
///
/// # Errors
/// Missing, foreign, damaged or newer.
pub(crate) fn examine(disk: &dyn Disk, dir: &Path) -> Result<MarkerState, LogError> {
    let names = match disk.list_dir(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(LogError::Missing { path: dir.to_owned() });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(LogError::Foreign { path: dir.to_owned() });
        }
        Err(error) => return Err(at("listing", dir)(error)),
    };
    let is_marked = names.iter().any(|(name, kind)| name == MARKER && *kind == EntryKind::File);
    let are_own = names.iter().all(|(name, kind)| *kind == EntryKind::File && is_own_name(name));
    let has_writer = names.iter().any(|(name, _)| is_writers(name));
    if !is_marked {
        return match (names.is_empty(), are_own && has_writer) {
            (true, _) => Ok(MarkerState::Unfinished),
            // Lost in a power cut before the first sync.
            (false, true) => Err(LogError::Damaged { path: dir.to_owned() }),
            (false, false) => Err(LogError::Foreign { path: dir.to_owned() }),
        };
    }
    let path = dir.join(MARKER);
    let file = disk.open(&path, OpenMode::Read).map_err(at("opening", &path))?;
    let mut bytes = [0; MARKER_BYTES];
    let count = file.read_at(&mut bytes, 0).map_err(at("reading", &path))?;
    if bytes == marker_bytes() {
        return Ok(MarkerState::Present);
    }
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[8..12]);
    let version = u32::from_le_bytes(word);
    let mut sum = [0; 4];
    sum.copy_from_slice(&bytes[12..16]);
    if bytes[..8] == *MAGIC && u32::from_le_bytes(sum) == crc32c::crc32c(&bytes[..12]) && VERSION < version {
        return Err(LogError::Newer { path: dir.to_owned(), version });
    }
    // Killed, or a power cut, before the first byte was in the marker.
    if bytes.iter().all(|byte| *byte == 0) && names.iter().all(|(name, _)| name == MARKER) {
        return Ok(MarkerState::Unfinished);
    }
    let is_ours = bytes[..8] == *MAGIC || count < MARKER_BYTES || bytes.iter().all(|byte| *byte == 0);
    if is_ours && are_own {
        return Err(LogError::Damaged { path: dir.to_owned() });
    }
    Err(LogError::Foreign { path: dir.to_owned() })
}

/// Writes the marker.
pub(crate) fn mark(disk: &dyn Disk, dir: &Path) -> Result<(), LogError> {
    let path = dir.join(MARKER);
    let file = disk.open(&path, OpenMode::Create).map_err(at("making", &path))?;
    file.write_at(&marker_bytes(), 0).map_err(at("writing", &path))
}

/// Removes a container, its marker last.
pub(crate) fn remove_container(disk: &dyn Disk, dir: &Path) -> Result<(), LogError> {
    let mut names = match disk.list_dir(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at("listing", dir)(error)),
    };
    names.retain(|(name, _)| is_own_name(name));
    names.sort_unstable_by_key(|(name, _)| name == MARKER);
    for (name, _) in names {
        let path = dir.join(name);
        match disk.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(at("removing", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    disk.remove_dir(dir).map_err(at("removing", dir))
}

/// Flushes the marker to stable storage.
pub(crate) fn sync_marker(disk: &dyn Disk, dir: &Path) -> Result<(), LogError> {
    let path = dir.join(MARKER);
    let file = disk.open(&path, OpenMode::Read).map_err(at("opening", &path))?;
    file.sync_data().map_err(at("syncing", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_disk::RealDisk;

    #[test]
    fn the_marker_has_the_bytes_of_the_format() {
        assert_eq!(&marker_bytes()[..16], b"PARIOLOG\x01\0\0\0\xee\x02\x75\x95");
        assert_eq!(marker_bytes()[16..], [0; 48]);
    }

    #[test]
    fn only_names_of_our_form_are_writers() {
        assert_eq!(parse(OsStr::new("000003e8-data"), "-data"), Some(WriterNumber(0x3e8)));
        for name in ["3e8-data", "000003E8-data", "000003e8-index", "x", "+00003e8-data", "000003e8-data.new"]
        {
            assert_eq!(parse(OsStr::new(name), "-data"), None, "{name}");
        }
    }

    #[test]
    fn a_directory_is_a_container_only_with_a_whole_marker() {
        let dir = tempfile::tempdir().unwrap();
        let (root, marker) = (dir.path(), dir.path().join(MARKER));
        let state = || examine(&RealDisk, root);
        assert_eq!(state().unwrap(), MarkerState::Unfinished, "empty");
        std::fs::write(&marker, "").unwrap();
        assert_eq!(state().unwrap(), MarkerState::Unfinished, "never written");
        std::fs::write(root.join("00000001-index"), "").unwrap();
        assert!(matches!(state(), Err(LogError::Damaged { .. })));
        mark(&RealDisk, root).unwrap();
        assert_eq!(state().unwrap(), MarkerState::Present);
        let mut newer = marker_bytes();
        newer[8] = 9;
        let crc = crc32c::crc32c(&newer[..12]);
        newer[12..16].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(&marker, newer).unwrap();
        assert!(matches!(state(), Err(LogError::Newer { version: 9, .. })));
        newer[12] ^= 1;
        std::fs::write(&marker, newer).unwrap();
        assert!(matches!(state(), Err(LogError::Damaged { .. })));
        std::fs::write(&marker, [b'x'; 100]).unwrap();
        assert!(matches!(state(), Err(LogError::Foreign { .. })), "a file of another program");
        std::fs::remove_file(&marker).unwrap();
        assert!(matches!(state(), Err(LogError::Damaged { .. })), "files of a writer, but no marker");
        std::fs::write(root.join("notes"), "").unwrap();
        assert!(matches!(state(), Err(LogError::Foreign { .. })), "files of a user");
        assert!(matches!(examine(&RealDisk, &root.join("none")), Err(LogError::Missing { .. })));
        let file = root.join("00000001-index");
        assert!(matches!(examine(&RealDisk, &file), Err(LogError::Foreign { .. })), "a plain file");
    }
}
