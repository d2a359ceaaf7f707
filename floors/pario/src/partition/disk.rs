//! Small files that must never be half there, and locks that end with their process.
//!
//! Always: after [`write_atomically`] returned, or a crash during it, the file is the old one or the new one, whole.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use rustix::fs::FlockOperation;
use rustix::time::{ClockId, Timespec};

/// Replaces a file by new contents, mode 0600, on stable storage when it returns. One writer at a time: hold a lock.
pub(super) fn write_atomically(path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = beside(path, ".new");
    // What a crash left there may have another mode, and is nobody's.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    let written =
        file.write_all(contents).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&fresh, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    sync_directory_of(path)
}

/// Makes a change of names in a file's directory durable.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// A path with something behind its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes a directory and those above it that are missing, mode 0700; returns how many were made.
pub(super) fn make_directories(dir: &Path) -> io::Result<u32> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    match builder.create(dir) {
        Ok(()) => Ok(1),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = dir.parent().ok_or(error)?;
            let made = make_directories(above)?;
            match builder.create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(made + 1),
            }
        }
        Err(error) => Err(error),
    }
}

/// A lock file, locked. Ends with this value or with its process, however that ends.
#[derive(Debug)]
pub(super) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    /// Closing alone would not do: a child that is just being forked by another thread holds a copy until it runs its program.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// What came of an attempt to lock.
pub(super) enum Attempt {
    /// It is ours.
    Locked(FileLock),
    /// Somebody has it; his process number, if he wrote one.
    Held(Option<u32>),
}

/// Tries once; the holder's number is written into the file, for messages.
pub(super) fn try_lock(path: &Path) -> io::Result<Attempt> {
    loop {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                let mut text = String::new();
                file.take(32).read_to_string(&mut text)?;
                return Ok(Attempt::Held(text.trim().parse().ok()));
            }
            Err(error) => return Err(error.into()),
        }
        // A holder that removed the file would leave us a lock on a file that has no name any more.
        if is_same_file(&file, path)? {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            return Ok(Attempt::Locked(FileLock { file }));
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Tries until `limit` has passed.
pub(super) fn lock_within(path: &Path, limit: Duration) -> io::Result<Attempt> {
    let end = Deadline::after(limit);
    loop {
        match try_lock(path)? {
            Attempt::Held(_) if !end.has_passed() => pause(Duration::from_millis(2)),
            attempt @ (Attempt::Locked(_) | Attempt::Held(_)) => return Ok(attempt),
        }
    }
}

/// A moment until which something is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Nanos);

impl Deadline {
    pub(super) fn after(limit: Duration) -> Deadline {
        Deadline(MonotonicClock.now().plus_ms(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(super) fn has_passed(self) -> bool {
        self.0 <= MonotonicClock.now()
    }

    /// What is left, as `poll` takes it.
    pub(super) fn left(self) -> Timespec {
        let left = self.0.since(MonotonicClock.now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    }
}

/// A short rest between two looks at something that gives no sign when it changes.
pub(super) fn pause(rest: Duration) {
    let rest = Timespec {
        tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(rest.subsec_nanos()),
    };
    // An early end by a signal only means one look more.
    let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaces_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(beside(&path, ".new"), "left by a crash").unwrap();
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn counts_the_directories_it_makes() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        assert_eq!(make_directories(&deep).unwrap(), 3);
        assert_eq!(make_directories(&deep).unwrap(), 0);
        assert_eq!(make_directories(&dir.path().join("a/d")).unwrap(), 1);
        assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(make_directories(&dir.path().join("file/x")).is_err());
        assert!(make_directories(&dir.path().join("file")).is_err());
    }

    #[test]
    fn a_lock_names_its_holder_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let Attempt::Locked(held) = try_lock(&path).unwrap() else { panic!("nobody holds it") };
        let Attempt::Held(Some(pid)) = lock_within(&path, Duration::from_millis(20)).unwrap() else {
            panic!("it is held")
        };
        assert_eq!(pid, std::process::id());
        drop(held);
        assert!(matches!(try_lock(&path).unwrap(), Attempt::Locked(_)));
    }
}
