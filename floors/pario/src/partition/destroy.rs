//! Removing what a partition has put into directories, and nothing else.
//!
//! Always: the identity goes last, so that a removal that was cut short can be repeated; a directory goes only if Pario
//! made it and it is empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pario_core::PartitionId;

use super::disk;
use super::identity::{CONTENTS, Hold, IDENTITY_FILE, Identity, IdentityError, LOCK_FILE, lock};

/// Removes a partition's data from directories of this machine, and then the directories that were made for it, those
/// above included, as far as they are empty.
///
/// A directory that is gone, or has no identity, is passed over: an earlier removal came so far.
///
/// # Errors
/// [`IdentityError`] for the first directory that is served, belongs to another partition, or cannot be removed.
pub fn destroy_all(dirs: &[PathBuf], partition: PartitionId) -> Result<(), IdentityError> {
    let mut made = Vec::new();
    for dir in dirs {
        let Some(identity) = Identity::read(dir)? else { continue };
        if identity.partition != partition {
            return Err(IdentityError::Foreign {
                dir: dir.clone(),
                found: identity.partition,
                found_name: identity.name.clone(),
                wanted: partition,
                wanted_name: identity.name,
            });
        }
        let lock = lock(dir)?;
        remove_contents(dir)?;
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

impl Hold {
    /// Takes back what [`Identity::hold`] made, after a start that failed. A directory that was there before stays as it is.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if something cannot be removed.
    pub fn undo(self) -> Result<(), IdentityError> {
        if self.created {
            remove_contents(&self.dir)?;
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

    /// Removes the directory's contents while its lock is held: what a server does that is told to go for good.
    ///
    /// # Errors
    /// [`IdentityError::Io`] if something cannot be removed.
    pub fn destroy(self) -> Result<(), IdentityError> {
        remove_contents(&self.dir)?;
        remove_empty(
            self.dir.ancestors().take(self.identity.made_directories as usize).map(Path::to_owned).collect(),
        );
        drop(self.lock);
        Ok(())
    }
}

/// Removes what is Pario's; the lock file may go while it is locked, since a lock on a file without a name counts for nobody.
fn remove_contents(dir: &Path) -> Result<(), IdentityError> {
    let failed =
        |source| IdentityError::Io { dir: dir.to_owned(), doing: "cannot remove its contents", source };
    for name in CONTENTS {
        remove(&dir.join(name)).map_err(failed)?;
    }
    for name in [IDENTITY_FILE, LOCK_FILE] {
        remove(&dir.join(name)).map_err(failed)?;
        remove(&disk::beside(&dir.join(name), ".new")).map_err(failed)?;
    }
    Ok(())
}

/// Removes a file, a tree, or a symbolic link (never what it leads to); nothing there is as good.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes directories that are empty, the deepest first; one that is not stays, with those above it.
fn remove_empty(mut dirs: Vec<PathBuf>) {
    dirs.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
    for dir in dirs {
        let _ = fs::remove_dir(dir);
    }
}

#[cfg(test)]
#[path = "destroy_tests.rs"]
mod tests;
