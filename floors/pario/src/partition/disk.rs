//! Small files replaced atomically, and locks that end with their process.
//!
//! Always: after [`write_atomically`] returned, or a crash during it, the file has either its old or its new contents, complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use pario_sys::dir::{Dir, OwnError, PRIVATE_FILE};
use rustix::fs::{FlockOperation, OFlags};
use rustix::time::{ClockId, Timespec};

/// Replaces a file's contents, mode 0600, on stable storage on return. One writer at a time: hold a lock.
pub(crate) fn write_atomically(dir: &Dir, name: &OsStr, contents: &[u8]) -> Result<(), OwnError> {
    let fresh = beside(Path::new(name), ".new");
    // A file left by a crash may have another mode.
    dir.remove_own_file(&fresh)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = dir.open_own_file(&fresh, flags, PRIVATE_FILE)?;
    let failed = |source| OwnError::Io { path: dir.path().join(name), source };
    let written = file
        .write_all(contents)
        .and_then(|()| file.sync_all())
        .and_then(|()| dir.rename(&fresh, Path::new(name)));
    if let Err(error) = written {
        let _ = dir.remove_file(&fresh);
        return Err(failed(error));
    }
    dir.sync().map_err(failed)
}

/// Reads a whole file of a directory, up to `limit` bytes.
pub(super) fn read(dir: &Dir, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = dir.open_own_file(Path::new(name), OFlags::RDONLY, 0).map_err(OwnError::into_io)?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Syncs a change of names in a file's directory.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// A path with a suffix added to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// A locked lock file. Unlocked on drop or at the end of its process.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    /// Unlocks explicitly: a child being forked by another thread holds a copy of the descriptor until its exec.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Result of an attempt to lock.
pub(super) enum Attempt {
    /// Locked by this process.
    Locked(FileLock),
    /// Locked by another process; its number, if it wrote one.
    Held(Option<u32>),
}

/// One attempt; the holder writes its number into the file, for messages. The file must belong to the user or root.
pub(super) fn try_lock(dir: &Dir, name: &OsStr) -> Result<Attempt, OwnError> {
    let failed = |source| OwnError::Io { path: dir.path().join(name), source };
    loop {
        let file = dir.open_own_file(Path::new(name), OFlags::RDWR | OFlags::CREATE, PRIVATE_FILE)?;
        if let Some(attempt) = lock_opened(file, dir, name).map_err(failed)? {
            return Ok(attempt);
        }
    }
}

/// One attempt on an open file; `None`: the file was unlinked meanwhile.
fn lock_opened(mut file: File, dir: &Dir, name: &OsStr) -> io::Result<Option<Attempt>> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
            let mut text = Vec::new();
            file.take(32).read_to_end(&mut text)?;
            return Ok(Some(Attempt::Held(String::from_utf8_lossy(&text).trim().parse().ok())));
        }
        Err(error) => return Err(error.into()),
    }
    // If the holder has removed the file, this lock is on an unlinked file.
    if !is_same_file(&file, dir, name)? {
        return Ok(None);
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Some(Attempt::Locked(FileLock { file })))
}

fn is_same_file(file: &File, dir: &Dir, name: &OsStr) -> io::Result<bool> {
    let own = file.metadata()?;
    let named = dir.stat(Path::new(name))?;
    Ok(named.is_some_and(|named| (named.st_dev, named.st_ino) == (own.dev(), own.ino())))
}

/// Wait without a message.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// Attempts until `limit` has passed; logs the wait after [`SILENT_WAIT`].
pub(super) fn lock_within(dir: &Dir, name: &OsStr, limit: Duration) -> Result<Attempt, OwnError> {
    let (end, silence) = (Deadline::after(limit), Deadline::after(SILENT_WAIT));
    let mut told = false;
    loop {
        match try_lock(dir, name)? {
            Attempt::Held(pid) if !end.has_passed() => {
                if !told && silence.has_passed() {
                    told = true;
                    let holder = pid.map_or_else(String::new, |pid| format!(", held by process {pid}"));
                    let path = dir.path().join(name);
                    tracing::warn!("waiting up to {limit:?} for the lock {}{holder}", path.display());
                }
                pause(Duration::from_millis(2));
            }
            attempt @ (Attempt::Locked(_) | Attempt::Held(_)) => return Ok(attempt),
        }
    }
}

/// End of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Nanos);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Deadline {
        Deadline(MonotonicClock.now().plus_ms(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(super) fn has_passed(self) -> bool {
        self.0 <= MonotonicClock.now()
    }

    /// The remaining time, for `poll`.
    pub(super) fn left(self) -> Timespec {
        let left = self.0.since(MonotonicClock.now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    }
}

/// A short sleep between two polls of a condition without notification.
pub(super) fn pause(rest: Duration) {
    let rest = Timespec {
        tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(rest.subsec_nanos()),
    };
    // An early end by a signal only means one more poll.
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaces_whole_and_private() {
        let root = tempfile::tempdir().unwrap();
        let (dir, name) = (Dir::open(root.path()).unwrap(), OsStr::new("file"));
        let path = root.path().join("file");
        fs::write(beside(&path, ".new"), "left by a crash").unwrap();
        write_atomically(&dir, name, b"one").unwrap();
        write_atomically(&dir, name, b"two").unwrap();
        assert_eq!(read(&dir, name, 100).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_names_its_holder_and_ends_with_it() {
        let root = tempfile::tempdir().unwrap();
        let (dir, name) = (Dir::open(root.path()).unwrap(), OsStr::new("lock"));
        let Attempt::Locked(held) = try_lock(&dir, name).unwrap() else { panic!("the lock is free") };
        let Attempt::Held(Some(pid)) = lock_within(&dir, name, Duration::from_millis(20)).unwrap() else {
            panic!("it is held")
        };
        assert_eq!(pid, std::process::id());
        drop(held);
        assert!(matches!(try_lock(&dir, name).unwrap(), Attempt::Locked(_)));
    }

    #[test]
    fn a_planted_lock_file_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, root.path().join("lock")).unwrap();
        assert!(try_lock(&Dir::open(root.path()).unwrap(), OsStr::new("lock")).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}
