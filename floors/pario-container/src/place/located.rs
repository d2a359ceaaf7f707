//! From the name of a file to its place: `pario://NAME/path` and `pario:///path` lie in a partition, other names in a directory.
//!
//! Always: a partition is mounted once per process; a forked child mounts for itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pario::Partition;
use pario::partition::Location;
pub use pario::partition::locate::SCHEME;

use super::{DirectoryPlace, PartitionPlace, Place};
use crate::error::{Result, TreeError};

/// The partition that `pario:///path` means, by name or by partition file.
const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

/// Mounted partitions by name, and the process that mounted them.
struct TreeMounts {
    process: u64,
    known: HashMap<String, Partition>,
}

static MOUNTS: Mutex<Option<TreeMounts>> = Mutex::new(None);

/// The place of a file, by the name that a program gives.
pub fn place_of(name: &str) -> Result<Arc<dyn Place>> {
    let Some(rest) = name.strip_prefix(SCHEME) else { return Ok(Arc::new(DirectoryPlace::new(name))) };
    let default = pario::environment::text(PARTITION_VARIABLE).map_err(|error| setup(name, &error))?;
    let default = default.unwrap_or_default();
    let (partition, path) = match rest.strip_prefix('/') {
        Some(path) if !default.is_empty() => (default, path.to_owned()),
        Some(_) if default.is_empty() => {
            let text =
                format!("{name} names no partition: write {SCHEME}NAME/path, or set {PARTITION_VARIABLE}");
            return Err(TreeError::Invalid(text));
        }
        Some(_) | None => {
            let location = Location::parse(name).map_err(|error| TreeError::Invalid(error.to_string()))?;
            let path = String::from_utf8_lossy(&location.path).into_owned();
            // `PARIO_PARTITION=file.toml` describes the partition of the same name.
            let described = Path::new(&default).file_stem().and_then(|stem| stem.to_str());
            let by_file = default.ends_with(".toml") && described == Some(&location.partition);
            (if by_file { default } else { location.partition }, path)
        }
    };
    if path.trim_matches('/').is_empty() {
        return Err(TreeError::Invalid(format!("{name} names no file in the partition")));
    }
    let mounted = mount(&partition).map_err(|error| setup(name, &error))?;
    Ok(Arc::new(PartitionPlace::new(mounted, &path)))
}

/// A partition that does not run is reported as a missing file.
fn setup(name: &str, error: &pario::Error) -> TreeError {
    let errno = if matches!(error, pario::Error::Setup(_)) { 2 } else { error.errno() };
    TreeError::Partition { action: "mount", path: name.into(), cause: error.to_string(), errno }
}

fn mount(name: &str) -> pario::Result<Partition> {
    let mut mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = pario::fork_generation();
    if mounts.as_ref().is_none_or(|mounts| mounts.process != process) {
        // The parent's partitions are kept undropped: dropping them here would send on the parent's sockets.
        std::mem::forget(mounts.take());
        *mounts = Some(TreeMounts { process, known: HashMap::new() });
    }
    let Some(TreeMounts { known, .. }) = mounts.as_mut() else { unreachable!("filled above") };
    if let Some(partition) = known.get(name) {
        return Ok(partition.clone());
    }
    let partition = match name.ends_with(".toml") {
        true => Partition::mount_or_start(Path::new(name)),
        false => Partition::mount(name),
    }?;
    known.insert(name.to_owned(), partition.clone());
    Ok(partition)
}
