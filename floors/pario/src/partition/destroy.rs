//! Removes a partition's data from its directories, and nothing else.
//!
//! Always: the identity is removed last, so that an interrupted removal can be repeated; a directory is removed only if Pario
//! made it and it is empty.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pario_core::PartitionId;
use pario_sys::dir::{Dir, Missing, open_own, temporary_path};

use super::disk;
use super::identity::{
    CONTENTS, HeldDirectory, IDENTITY_FILE, Identity, IdentityError, LOCK_FILE, lock, not_own,
};

/// Removes a partition's data from directories of this machine, and then the directories made for it, parents included, if they
/// are empty.
///
/// A missing directory, or one without identity, is skipped: an earlier removal was interrupted there.
///
/// # Errors
/// [`IdentityError`] for the first directory that is served, belongs to another partition, or cannot be removed.
pub fn destroy_all(dirs: &[PathBuf], partition: PartitionId) -> Result<(), IdentityError> {
    let mut made = Vec::new();
    for dir in dirs {
        let opened = match open_own(dir, Missing::Refuse) {
            Ok(owned) => owned.dir,
            Err(error) if error.io().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) => continue,
            Err(error) => return Err(not_own(dir, error)),
        };
        let Some(identity) = Identity::read_in(&opened)? else { continue };
        if identity.partition != partition {
            return Err(IdentityError::Foreign {
                dir: dir.clone(),
                found: identity.partition,
                found_name: identity.name.clone(),
                wanted: partition,
                wanted_name: identity.name,
            });
        }
        let lock = lock(&opened)?;
        remove_contents(&opened)?;
        drop(lock);
        made.extend(dir.ancestors().take(identity.made_directories as usize).map(Path::to_owned));
    }
    remove_empty(made);
    Ok(())
}

/// As [`destroy_all`] for one directory.
///
/// # Errors
/// As [`destroy_all`].
pub fn destroy(dir: &Path, partition: PartitionId) -> Result<(), IdentityError> {
    destroy_all(&[dir.to_owned()], partition)
}

impl HeldDirectory {
    /// Undoes [`Identity::hold`] after a failed start. A directory that existed before is kept.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if a file or directory cannot be removed.
    pub fn undo(self) -> Result<(), IdentityError> {
        if self.created {
            remove_contents(&self.opened)?;
            remove_empty(
                self.dir
                    .ancestors()
                    .take(self.identity.made_directories as usize)
                    .map(Path::to_owned)
                    .collect(),
            );
        }
        drop(self.lock);
        Ok(())
    }

    /// Removes the directory's contents while its lock is held: a server's part of `pario down --destroy`.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if a file or directory cannot be removed.
    pub fn destroy(self) -> Result<(), IdentityError> {
        remove_contents(&self.opened)?;
        remove_empty(
            self.dir.ancestors().take(self.identity.made_directories as usize).map(Path::to_owned).collect(),
        );
        drop(self.lock);
        Ok(())
    }
}

/// Removes Pario's files; the lock file may be removed while locked, since a lock on an unlinked file excludes no process.
fn remove_contents(opened: &Dir) -> Result<(), IdentityError> {
    let failed = |source| IdentityError::Io {
        dir: opened.path().to_owned(),
        doing: "cannot remove its contents",
        source,
    };
    for name in CONTENTS {
        opened.remove_all(OsStr::new(name)).map_err(failed)?;
    }
    for name in [IDENTITY_FILE, LOCK_FILE] {
        opened.remove_all(OsStr::new(name)).map_err(failed)?;
        opened.remove_all(disk::beside(Path::new(name), ".new").as_os_str()).map_err(failed)?;
    }
    Ok(())
}

/// Removes empty directories, the deepest first; a directory that is not empty is kept, with its parents.
fn remove_empty(mut dirs: Vec<PathBuf>) {
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    for dir in dirs {
        let _ = fs::remove_dir(dir);
    }
    // It may have been made for another use, such as a removed registry.
    let _ = fs::remove_dir(temporary_path());
}

#[cfg(test)]
#[path = "destroy_tests.rs"]
mod tests;
