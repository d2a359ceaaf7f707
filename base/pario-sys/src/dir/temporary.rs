//! Temporary directories: `pario-UID` in the system's temporary directory, mode 0700, checked at every use.
//!
//! Never: a name that another user could have made before, or could replace. Always: made again if an ending partition removed it.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::owned::{Missing, OwnError, open_own};
use super::{Dir, PRIVATE_DIRECTORY};

/// Attempts to use the directory while ending partitions remove it, and to find a free name in it.
const ATTEMPTS_MAX: u32 = 16;

/// The user's directory for temporary data: `$TMPDIR/pario-UID`, else `/tmp/pario-UID`. It may be missing.
#[must_use]
pub fn temporary_path() -> PathBuf {
    let above = std::env::temp_dir();
    let above = std::path::absolute(&above).unwrap_or(above);
    above.join(format!("pario-{}", rustix::process::geteuid().as_raw()))
}

/// Calls `work` with the directory of [`temporary_path`], made if missing.
///
/// # Errors
/// [`OwnError`] if it is not the user's own.
pub fn temporary_base<T>(mut work: impl FnMut(&Dir) -> io::Result<T>) -> Result<T, OwnError> {
    let path = temporary_path();
    let mut attempts = 0;
    loop {
        attempts += 1;
        match work(&open_own(&path, Missing::Make)?.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < ATTEMPTS_MAX => {}
            other => return other.map_err(|source| OwnError::Io { path, source }),
        }
    }
}

/// Uses a directory for small short-lived files, mainly sockets: `XDG_RUNTIME_DIR` if it belongs to the user with mode 0700, else
/// [`temporary_path`]. The former is in memory, and small: no file data there.
///
/// # Errors
/// As [`temporary_base`].
pub fn runtime_base<T>(mut work: impl FnMut(&Dir) -> io::Result<T>) -> Result<T, OwnError> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(dir) = named.and_then(|path| private(&path)) else { return temporary_base(work) };
    work(&dir).map_err(|source| OwnError::Io { path: dir.path().to_owned(), source })
}

fn private(path: &Path) -> Option<Dir> {
    let dir = open_own(path, Missing::Refuse).ok()?.dir;
    let found = rustix::fs::fstat(&dir).ok()?;
    (found.st_mode & 0o777 == PRIVATE_DIRECTORY).then_some(dir)
}

/// A new directory `PREFIX-…` below [`temporary_path`], mode 0700, with an unused name. Its creator removes it.
///
/// # Errors
/// As [`temporary_base`].
pub fn scratch(prefix: &str) -> Result<PathBuf, OwnError> {
    temporary_base(|base| {
        for _ in 0..ATTEMPTS_MAX {
            let random = std::hash::RandomState::new().build_hasher().finish();
            let name = OsString::from(format!("{prefix}-{random:016x}"));
            match base.make_dir(Path::new(&name), PRIVATE_DIRECTORY) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| base.path().join(&name)),
            }
        }
        Err(Errno::EXIST.into())
    })
}
