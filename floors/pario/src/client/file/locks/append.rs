//! Appending: bytes are written at the end of the file, atomically, whichever processes append to it.
//!
//! ```text
//!  mutex of this process ─► append lock of the file (kept until recalled) ─► end of the file ─► write ─► unlock
//! ```
//! The file's end moves when the bytes are written, not before: a reader never finds a part of the file that was only reserved by an
//! appender, and a killed process leaves no hole.
//!
//! Never: waits for the append lock while it holds a lease or a lock of an access. Always: two appends do not overlap, and an append to a
//! file that was truncated meanwhile is written at its new end.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, Generation};
use pario_net::message::{
    At, LockMode, LockShape, LockSpace, LockWaitLimit, NameReply, NameRequest, Phase, Reply, Want,
};

use super::access::access_range;
use super::access::{AccessKind, Guarded};
use super::cached::{HeldLock, WantedLock};
use super::table::CachedLockOwner;
use crate::client::file::state::OpenFile;
use crate::client::file::write::range::FileWriter;
use crate::client::session::state::unexpected_reply;

/// One per process: its threads are serialised by a mutex.
const HOLDER: CachedLockOwner = CachedLockOwner { space: LockSpace::Append {}, owner_slot: 0, lock_group: 0 };

/// The append lock of a file, until it is dropped.
struct Appending<'a> {
    file: &'a Arc<OpenFile>,
    held: HeldLock,
}

impl Drop for Appending<'_> {
    fn drop(&mut self) {
        // A lock lost with the manager needs no return.
        self.file.locks.unlock(self.held);
    }
}

/// Writes all of `data` at the end of the file; returns the offset. `heard` holds the faults already reported to the handle.
pub(in crate::client) fn append(file: &Arc<OpenFile>, data: &[u8], heard: &AtomicU64) -> Result<u64, Fault> {
    file.context.session.check_process()?;
    if !file.context.backing.has_leases() {
        let text = format!(
            "{}: append is not supported on an application's own servers; use write_at",
            file.context.describe()
        );
        return Err(Fault::new(Code::Unsupported, text));
    }
    if data.is_empty() {
        return Ok(end_now(file)?.0);
    }
    let _time = file.context.session.timed_access(&file.context.session.counters.write_ns);
    let _in_turn = file.locks.appending.lock().unwrap_or_else(PoisonError::into_inner);
    let lock = lock_end(file)?;
    loop {
        let (end, generation) = end_now(file)?;
        let range = behind(file, end, data.len())?;
        // No lock of the bytes: readers find none of them before all are written, and then the end moves.
        let (_, access) = access_range(file, (&range, None), AccessKind::Write, Guarded::Locked)?;
        // Truncated since, or extended by a process that does not append.
        let grown = access.phase == (Phase::Exclusive {}) && file.data.length.known() != end;
        if access.generation != generation || grown {
            continue;
        }
        if !file.locks.is_locked(lock.held) {
            let text =
                format!("{}: the append lock was lost with the manager, server 0", file.context.describe());
            return Err(Fault::new(Code::Unreachable, text));
        }
        FileWriter { file, reported: heard, guarded: Guarded::Locked }.write_under(&access, range, data)?;
        return Ok(end);
    }
}

fn lock_end(file: &Arc<OpenFile>) -> Result<Appending<'_>, Fault> {
    let shape = LockShape::Bytes { start: 0, end: u64::MAX };
    let wished = WantedLock { holder: HOLDER, mode: LockMode::Exclusive {}, shape, view: None };
    let held = file.locks.lock(&wished, (file.context.session.number(), LockWaitLimit::Wait {}))?;
    Ok(Appending { file, held })
}

/// The file's end and generation: known here under an exclusive lease, else at the manager, which first recalls buffered writes of
/// other processes.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn end_now(file: &Arc<OpenFile>) -> Result<(u64, Generation), Fault> {
    loop {
        let access = file.lease.access(Want::Write {})?;
        let generation = access.generation;
        if access.phase == (Phase::Exclusive {}) {
            return Ok((file.data.length.known(), generation));
        }
        // The manager may recall this lease before it replies.
        drop(access);
        let request = NameRequest::Stat { at: At::inode(file.context.inode), follow: false };
        match file.context.session.name_call(request)? {
            NameReply::Attr { attr } if attr.generation == generation => {
                return Ok((attr.size.max(file.data.length.unreported_end()), generation));
            }
            NameReply::Attr { .. } => {}
            other => return Err(unexpected_reply(&Reply::Name { reply: other })),
        }
    }
}

fn behind(file: &OpenFile, end: u64, bytes: usize) -> Result<Range<u64>, Fault> {
    let to = end.checked_add(bytes as u64).filter(|to| *to <= FILE_BYTES_MAX);
    to.map(|to| end..to).ok_or_else(|| {
        let text = format!(
            "{}: {bytes} bytes after {end} end beyond the largest file offset",
            file.context.describe()
        );
        Fault::new(Code::TooLarge, text)
    })
}
