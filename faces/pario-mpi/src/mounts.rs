//! The partitions that this process has mounted, each once.
//!
//! Always: a forked child mounts for itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pario::{Error, Partition};

use crate::problem::{Class, Problem, Result};

/// Partitions of one process. A program uses one or two.
const MOUNTS_MAX: usize = 64;

static MOUNTS: Mutex<Option<(u32, HashMap<String, Partition>)>> = Mutex::new(None);

/// The partition of a name, or of a partition file, which is started if it does not run.
pub fn partition_of(name: &str) -> Result<Partition> {
    let mut mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if mounts.as_ref().is_none_or(|(owner, _)| *owner != process) {
        // What the parent mounted is the parent's: dropping it here would speak on its sockets.
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
        return Err(Problem::new(Class::Other, format!("more than {MOUNTS_MAX} partitions in one process")));
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

/// A partition that is not there is a file that is not there, and no argument that cannot be.
fn missing(error: Error) -> Problem {
    if let Error::Setup(text) = &error {
        return Problem::new(Class::NoSuchFile, text.clone());
    }
    error.into()
}
