//! A registry for one `pario run` of a user without a writable home: in its own directory below `pario-UID`.
//!
//! Always: the directory is made here, mode 0700, below one that is checked to be the user's, and is removed with its last partition.

use std::fs;
use std::io;
use std::path::Path;

use pario_sys::dir::{Missing, OwnError, open_own, open_trusted, scratch, temporary_path};

use super::disk;
use super::registry::{Registry, RegistryError};

/// File name that identifies such a registry.
const FILE: &str = "run-registry";

/// Makes one.
///
/// # Errors
/// [`RegistryError`] if the temporary directory is not writable, or `pario-UID` there does not belong to the user.
pub fn make() -> Result<Registry, RegistryError> {
    let made = scratch("registry");
    let dir = made.map_err(|error| {
        Registry::open(&temporary_path().join(FILE)).not_own("cannot make its directory", error)
    })?;
    Ok(Registry::open(&dir.join(FILE)))
}

/// Whether a registry is private.
#[must_use]
pub fn is_private(registry: &Registry) -> bool {
    registry.path().file_name().is_some_and(|name| name == FILE)
}

/// Removes an empty private registry, with its directory.
pub fn remove_if_empty(registry: &Registry) {
    if !is_private(registry) || !registry.list().is_ok_and(|entries| entries.is_empty()) {
        return;
    }
    match remove(registry.path()) {
        Err(error) if error.io().is_none_or(|error| error.kind() != io::ErrorKind::NotFound) => {
            tracing::warn!(%error, "could not remove {}", registry.path().display());
        }
        _ => {}
    }
}

/// Removes the files, their directory, and `pario-UID` if it is empty.
fn remove(path: &Path) -> Result<(), OwnError> {
    let (Some(dir), lock) = (path.parent(), disk::beside(Path::new(FILE), ".lock")) else { return Ok(()) };
    let opened = open_own(dir, Missing::Refuse)?.dir;
    opened.remove_own_file(Path::new(FILE))?;
    opened.remove_own_file(&lock)?;
    if let (Some(above), Some(name)) = (dir.parent(), dir.file_name()) {
        let above = open_trusted(above, Missing::Refuse)?.dir;
        fs::remove_dir(above.descriptor_path(name))
            .map_err(|source| OwnError::Io { path: dir.to_owned(), source })?;
    }
    let _ = fs::remove_dir(temporary_path());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::entry::tests::sample;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn it_goes_with_its_last_partition() {
        let registry = make().unwrap();
        assert!(is_private(&registry));
        let dir = registry.path().parent().unwrap().to_owned();
        assert_eq!(dir.parent().unwrap(), temporary_path());
        for dir in [dir.as_path(), temporary_path().as_path()] {
            let found = fs::metadata(dir).unwrap();
            assert_eq!((found.mode() & 0o777, found.uid()), (0o700, rustix::process::geteuid().as_raw()));
        }
        let entry = sample("x", 1);
        let add = |entries: &mut Vec<_>| -> Result<(), RegistryError> {
            entries.push(entry.clone());
            Ok(())
        };
        registry.update(add).unwrap();
        remove_if_empty(&registry);
        assert_eq!(registry.list().unwrap().len(), 1, "a registry with entries stays");
        registry.forget(&entry).unwrap();
        remove_if_empty(&registry);
        assert!(!registry.path().parent().unwrap().exists());
        remove_if_empty(&registry);
    }

    #[test]
    fn another_registry_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::open(&dir.path().join("registry"));
        registry.update(|_| Ok::<(), RegistryError>(())).unwrap();
        remove_if_empty(&registry);
        assert!(dir.path().exists());
    }
}
