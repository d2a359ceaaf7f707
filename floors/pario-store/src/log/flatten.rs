//! Makes a plain file of a container.
//!
//! Never: leaves a half-written file under the container's name. Always: the plain file is complete and on stable storage before it takes
//! the container's place; without room for it the container stays as it was.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::container::{LogContainer, LogOptions};
use super::error::{LogError, at};
use super::marker::{self, MarkerState, WriterFiles};
use super::writer::is_locked;
use crate::disk::{Disk, DiskFile, OpenMode};

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 4 << 20;

/// Replaces the container at `path` by a plain file with its bytes; returns their number.
///
/// # Errors
/// Not a container, open for writing, or the file system refuses; the container is then as it was.
pub fn flatten(options: &LogOptions, path: &Path) -> Result<u64, LogError> {
    let disk = &*options.disk;
    let beside = beside(path);
    let state = match marker::examine(disk, path) {
        // An earlier run was interrupted between the exchange and the removal.
        Err(LogError::Foreign { .. }) if is_flattened(disk, path, &beside) => {
            marker::remove_container(disk, &beside)?;
            return Ok(disk.length(path).map_err(at("examining", path))?.unwrap_or(0));
        }
        state => state?,
    };
    if state == MarkerState::Unfinished {
        return Err(LogError::Foreign { path: path.to_owned() });
    }
    let writers = WriterFiles::list(disk, path)?;
    if writers.indexed.iter().any(|number| is_locked(disk, path, *number)) {
        return Err(LogError::Busy { path: path.to_owned() });
    }
    let names = disk.list_dir(path).map_err(at("listing", path))?;
    if let Some((name, _)) = names.iter().find(|(name, _)| !marker::is_own_name(name)) {
        let source = std::io::Error::other("not a file of the container; move it away first");
        return Err(LogError::Disk { doing: "flattening", path: path.join(name), source });
    }
    // A leftover of an interrupted run.
    if disk.exists(&beside).map_err(at("examining", &beside))? {
        disk.remove(&beside).map_err(at("removing", &beside))?;
    }
    let bytes = match fill(options, path, &beside) {
        Ok(bytes) => bytes,
        Err(error) => {
            let _ = disk.remove(&beside);
            return Err(error);
        }
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk.sync_dir(parent).map_err(at("syncing", parent))?;
    marker::remove_container(disk, &beside)?;
    disk.sync_dir(parent).map_err(at("syncing", parent))?;
    Ok(bytes)
}

/// Name of the plain file while it is written, and of the container while it is removed.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".pario-flatten");
    path.with_file_name(name)
}

fn is_flattened(disk: &dyn Disk, path: &Path, beside: &Path) -> bool {
    disk.list_dir(path).is_err() && matches!(marker::examine(disk, beside), Ok(MarkerState::Present))
}

/// Writes the plain file, and exchanges it with the container.
fn fill(options: &LogOptions, path: &Path, beside: &Path) -> Result<u64, LogError> {
    let disk = &*options.disk;
    let container = LogContainer::open_with(options, path)?;
    let file = disk.open(beside, OpenMode::CreateNew).map_err(at("making", beside))?;
    copy(&container, &*file, beside)?;
    file.sync_all().map_err(at("syncing", beside))?;
    let bytes = container.len();
    container.close()?;
    disk.exchange(beside, path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            LogError::NoExchange { path: path.to_owned() }
        }
        None if error.kind() == std::io::ErrorKind::Unsupported => {
            LogError::NoExchange { path: path.to_owned() }
        }
        Some(_) | None => at("replacing", path)(error),
    })?;
    Ok(bytes)
}

/// Copies all bytes; holes stay holes.
fn copy(container: &LogContainer, file: &dyn DiskFile, path: &Path) -> Result<(), LogError> {
    let mut buffer = vec![0; usize::try_from(COPY_BYTES).unwrap_or(usize::MAX)];
    let mut from = 0;
    while from < container.len() {
        // Small pieces side by side are written together; a hole of whole steps is left out.
        let step = from..(from + COPY_BYTES).min(container.len());
        let parts = container.data_in(step.clone())?;
        if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
            let target = &mut buffer[..usize::try_from(last.end - first.start).unwrap_or(usize::MAX)];
            container.read_at(target, first.start)?;
            file.write_at(target, first.start).map_err(at("writing", path))?;
        }
        from = step.end;
    }
    file.set_len(container.len()).map_err(at("writing", path))
}
