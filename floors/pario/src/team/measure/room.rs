//! The directory of the measurements' files, and how much fits into it.
//!
//! Always: removed with everything in it when the value is dropped.

use std::io;
use std::path::{Path, PathBuf};

use super::MeasureError;

/// See the module.
#[derive(Debug)]
pub(super) struct MeasureRoom {
    directory: PathBuf,
}

impl MeasureRoom {
    pub(super) fn new(directory: &Path) -> Result<MeasureRoom, MeasureError> {
        if !std::fs::metadata(directory).map_err(MeasureError::at(directory))?.is_dir() {
            return Err(MeasureError::at(directory)(io::ErrorKind::NotADirectory.into()));
        }
        let own = directory.join(format!(".pario-tune-{}", std::process::id()));
        std::fs::create_dir(&own).map_err(MeasureError::at(directory))?;
        Ok(MeasureRoom { directory: own })
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Bytes that a measurement may take: half of what is free.
    pub(super) fn bytes(&self) -> Result<u64, MeasureError> {
        let found = rustix::fs::statvfs(&self.directory)
            .map_err(|error| MeasureError::at(&self.directory)(error.into()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize) / 2)
    }

    /// Removes the files of a measurement.
    pub(super) fn clear(&self) -> Result<(), MeasureError> {
        for entry in std::fs::read_dir(&self.directory).map_err(MeasureError::at(&self.directory))? {
            let path = entry.map_err(MeasureError::at(&self.directory))?.path();
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(MeasureError::at(&path))?;
        }
        Ok(())
    }
}

impl Drop for MeasureRoom {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            tracing::warn!(%error, directory = %self.directory.display(), "files of a measurement are left");
        }
    }
}

/// Memory that a buffer may take: half of what is available.
pub(super) fn memory_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    // Without a count the allocation decides.
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024) / 2)
}
