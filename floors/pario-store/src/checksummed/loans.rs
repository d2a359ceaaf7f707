//! Locks between the server and borrowers that write an object and its table through lent descriptors.
//!
//! ```text
//!  bytes of the table that are locked           by                              while
//!  the entries of granules                      a writer, for writing           it changes their bytes
//!  the loan byte, far beyond every entry        the lent description, reading   it is lent for writing
//! ```
//! Kernel locks of open file descriptions, so that they end with a killed process.
//!
//! Never: waits without bound, since a holder may be stopped. Always: a known entry, read under a lock, matches its granule's bytes.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use pario_sys::file_lock::{LockFile, LockKind, lock_range};

use super::table::place_of;
use crate::disk::DiskFile;

/// Beyond every entry.
const LOAN_BYTE: Range<u64> = 1 << 62..(1 << 62) + 1;
/// Attempts with a yield of the processor, before the first sleep.
const YIELDS: usize = 64;
/// Sleeps after that: a writer of the longest run ends within them.
const PAUSES: usize = 200;
const PAUSE: Duration = Duration::from_micros(100);

/// Locks the entries of granules; false if another writer holds one of them beyond the last attempt.
pub fn lock_entries(file: &LockFile, kind: LockKind, granules: &Range<u64>) -> io::Result<bool> {
    let entries = entries_of(granules);
    for attempt in 0..YIELDS + PAUSES {
        if file.try_lock(kind, &entries)? {
            return Ok(true);
        }
        if attempt < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::park_timeout(PAUSE);
        }
    }
    Ok(false)
}

/// Unlocks them.
pub fn unlock_entries(file: &LockFile, granules: &Range<u64>) -> io::Result<()> {
    file.unlock(&entries_of(granules))
}

fn entries_of(granules: &Range<u64>) -> Range<u64> {
    place_of(granules.start)..place_of(granules.end)
}

/// Marks a description as lent for writing, for as long as any process has it open.
pub(super) fn hold(lent: BorrowedFd<'_>) -> io::Result<()> {
    // Not unlocked by the server: the description belongs to the borrower from now on.
    std::mem::forget(lock_range(lent, LockKind::Read, LOAN_BYTE)?);
    Ok(())
}

/// Whether a borrower has the table for writing.
pub(super) fn is_lent(file: &dyn DiskFile) -> io::Result<bool> {
    let Some(fd) = file.as_fd() else { return Ok(false) };
    Ok(!LockFile::open_again(fd)?.try_lock(LockKind::Write, &LOAN_BYTE)?)
}

/// The server's own description for locking entries.
pub(super) fn own(file: &dyn DiskFile) -> io::Result<Option<LockFile>> {
    file.as_fd().map(LockFile::open_again).transpose()
}
