//! Byte-range locks that belong to an open file description, not to a process: two opens of one process exclude each other, and closing
//! one does not release the locks of another.
//!
//! Never: waits without end for a dead holder: the kernel (or the NFS server) releases a holder's locks with its descriptor. Always: a
//! lock acquired by waiting is released when its guard is dropped.

#![expect(unsafe_code, reason = "fcntl has no safe form for ranges")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Writing. The descriptor must be open for reading.
    Read,
    /// Reading and writing. The descriptor must be open for writing.
    Write,
}

impl LockKind {
    fn number(self) -> libc::c_int {
        match self {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
        }
    }
}

/// A separate open description, by which one range after another is locked.
#[derive(Debug)]
pub struct LockFile(OwnedFd);

impl LockFile {
    /// Opens the file of a descriptor again: a descriptor that was passed to this process, or inherited, shares its description and
    /// therefore its locks with other processes.
    pub fn open_again(fd: impl AsFd) -> io::Result<LockFile> {
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let again = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(LockFile(again))
    }

    /// One more description of the same file.
    pub fn another(&self) -> io::Result<LockFile> {
        LockFile::open_again(&self.0)
    }

    /// Locks a range; `false` if a conflicting lock exists. Released by [`LockFile::unlock`], or with the description.
    pub fn try_lock(&self, kind: LockKind, range: &Range<u64>) -> io::Result<bool> {
        match set(self.0.as_fd(), kind.number(), range, libc::F_OFD_SETLK) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Unlocks a range.
    pub fn unlock(&self, range: &Range<u64>) -> io::Result<()> {
        set(self.0.as_fd(), libc::F_UNLCK, range, libc::F_OFD_SETLK)
    }
}

/// A locked range; unlocked when dropped.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    fd: BorrowedFd<'a>,
    range: Range<u64>,
}

/// Waits until no conflicting lock on a byte of `range` exists. A range that ends at `u64::MAX` has no end. Ranges of one open
/// description must not overlap while they are locked: the first to be dropped would unlock both.
pub fn lock_range(fd: BorrowedFd<'_>, kind: LockKind, range: Range<u64>) -> io::Result<RangeGuard<'_>> {
    loop {
        match set(fd, kind.number(), &range, libc::F_OFD_SETLKW) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(RangeGuard { fd, range }),
        }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        // Unlocking a held lock fails for no reason that a caller could repair; closing the descriptor unlocks too.
        let _ = set(self.fd, libc::F_UNLCK, &self.range, libc::F_OFD_SETLK);
    }
}

fn set(fd: BorrowedFd<'_>, kind: libc::c_int, range: &Range<u64>, how: libc::c_int) -> io::Result<()> {
    let start = i64::try_from(range.start).map_err(|_| io::ErrorKind::InvalidInput)?;
    // A length of 0 means: to the end of the file, also a later one.
    let len = i64::try_from(range.end - range.start.min(range.end)).ok();
    let len = len.filter(|len| start.checked_add(*len).is_some()).unwrap_or(0);
    // SAFETY: all-zero bytes are a valid `flock`, which is plain numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).map_err(|_| io::ErrorKind::InvalidInput)?;
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).map_err(|_| io::ErrorKind::InvalidInput)?;
    lock.l_start = start;
    lock.l_len = len;
    // SAFETY: the descriptor is borrowed and `lock` is a whole `flock` that lives through the call.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), how, &lock) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn two_opens_exclude_each_other_where_they_overlap() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || std::fs::File::options().read(true).write(true).open(file.path()).unwrap();
        let (mine, theirs) = (open(), open());
        let held = lock_range(mine.as_fd(), LockKind::Write, 10..20).unwrap();
        drop(lock_range(theirs.as_fd(), LockKind::Write, 20..30).unwrap());
        let (order, came) = channel();
        let waiting = {
            let order = order.clone();
            std::thread::spawn(move || {
                let held = lock_range(theirs.as_fd(), LockKind::Read, 19..u64::MAX).unwrap();
                order.send("theirs").unwrap();
                drop(held);
            })
        };
        order.send("mine").unwrap();
        drop(held);
        waiting.join().unwrap();
        assert_eq!(came.try_iter().collect::<Vec<_>>(), ["mine", "theirs"]);
    }

    #[test]
    fn what_was_opened_again_excludes_what_it_was_opened_from() {
        let (_memory, fd) = crate::SharedMemory::create("locks", 4096).unwrap();
        let passed = fd.try_clone().unwrap();
        let (mine, theirs) = (LockFile::open_again(&fd), LockFile::open_again(&passed));
        let (mine, theirs) = (mine.unwrap(), theirs.unwrap());
        let far = 1 << 40;
        assert!(mine.try_lock(LockKind::Write, &(far..far + 10)).unwrap());
        assert!(!theirs.try_lock(LockKind::Read, &(far + 9..far + 20)).unwrap());
        assert!(theirs.try_lock(LockKind::Read, &(far + 10..far + 20)).unwrap());
        mine.unlock(&(far..far + 10)).unwrap();
        assert!(mine.try_lock(LockKind::Read, &(far..far + 20)).unwrap(), "both read");
        mine.unlock(&(far..far + 20)).unwrap();
        drop(theirs);
        assert!(mine.try_lock(LockKind::Write, &(far..far + 20)).unwrap(), "its locks went with it");
    }

    #[test]
    fn a_descriptor_for_reading_cannot_lock_for_writing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reading = std::fs::File::open(file.path()).unwrap();
        assert!(lock_range(reading.as_fd(), LockKind::Write, 0..1).is_err());
        assert!(lock_range(reading.as_fd(), LockKind::Read, 0..1).is_ok());
    }
}
