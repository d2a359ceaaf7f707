//! The partitions that this process has mounted, each once.
//!
//! Always: a forked child mounts for itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pario::{Error, Partition};

use crate::problem::{Class, MpiError, Result};

/// Limit of partitions of one process. A program uses one or two.
const MOUNTS_MAX: usize = 64;

static MOUNTS: Mutex<Option<(u32, HashMap<String, Partition>)>> = Mutex::new(None);

/// The partition of a name, or of a partition file, which is started if it does not run.
pub fn partition_of(name: &str) -> Result<Partition> {
    let mut mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if mounts.as_ref().is_none_or(|(owner, _)| *owner != process) {
        // The parent's partitions are kept undropped: dropping them here would send on the parent's sockets.
        if let Some(parents) = mounts.take() {
            std::mem::forget(parents);
        }
        *mounts = Some((process, HashMap::new()));
    }
    let Some((_, known)) = mounts.as_mut() else { unreachable!("filled above") };
    if let Some(partition) = known.get(name) {
        return Ok(partition.clone());
    }
    if known.len() == MOUNTS_MAX {
        return Err(MpiError::new(Class::Other, format!("more than {MOUNTS_MAX} partitions in one process")));
    }
    let mounted = match name.ends_with(".toml") {
        true => Partition::mount_or_start(Path::new(name)),
        false => Partition::mount(name),
    };
    let partition = mounted.map_err(missing)?;
    known.insert(name.to_owned(), partition.clone());
    Ok(partition)
}

/// Whether this process has mounted a partition of that name.
pub(crate) fn is_mounted(name: &str) -> bool {
    let mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = mounts.as_ref().filter(|(owner, _)| *owner == std::process::id());
    here.is_some_and(|(_, known)| known.contains_key(name))
}

/// Removes a file.
pub fn remove(partition: &str, path: &Path) -> Result<()> {
    Ok(partition_of(partition)?.remove_file(path)?)
}

/// A missing partition is reported as a missing file, not as an invalid argument.
fn missing(error: Error) -> MpiError {
    if let Error::Setup(text) = &error {
        return MpiError::new(Class::NoSuchFile, text.clone());
    }
    error.into()
}
