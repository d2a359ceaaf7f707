//! Accounting of a memory store's capacity.
//!
//! Never: takes another lock while it holds its own. Always: an object's pages are counted once, and not after its removal.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use pario_core::Space;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::MemoryObject;
use crate::sync::lock;

#[derive(Debug)]
pub(super) struct PageCapacity {
    capacity_bytes: u64,
    pages: Mutex<PageUse>,
}

/// Page bytes of the objects, as last counted, and those that writes in progress may still allocate.
#[derive(Debug, Default)]
struct PageUse {
    used_bytes: u64,
    promised_bytes: u64,
}

/// One object's share of the used bytes. Changed under the room's lock only.
#[derive(Debug, Default)]
pub(super) struct ObjectPages {
    bytes: u64,
    removed: bool,
}

impl PageCapacity {
    pub(super) fn new(capacity_bytes: u64) -> PageCapacity {
        PageCapacity { capacity_bytes, pages: Mutex::default() }
    }

    /// Reserves capacity for writing `bytes` at `at`, or fails; returns the reserved bytes, for [`PageCapacity::end_reservation`].
    pub(super) fn reserve(
        &self,
        target: &MemoryObject,
        at: u64,
        bytes: u64,
        all: impl FnOnce() -> Vec<Arc<MemoryObject>>,
    ) -> io::Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let page = rustix::param::page_size() as u64;
        let start = at / page * page;
        let end =
            at.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page)).ok_or(Errno::FBIG)?;
        if let Some(promised) = self.try_promise(end - start) {
            return Ok(promised);
        }
        // Tight: count the existing pages, and those of the range.
        self.recount(&all())?;
        let missing_bytes = hole_bytes(&target.fd, start, end)?;
        self.try_promise(missing_bytes).ok_or(Errno::NOSPC.into())
    }

    /// After a write: releases the reservation and counts the new pages.
    pub(super) fn end_reservation(&self, target: &MemoryObject, promised_bytes: u64) -> io::Result<()> {
        let mut taken = lock(&self.pages);
        taken.promised_bytes -= promised_bytes;
        recount(&mut taken, target)
    }

    /// Updates the counts of these objects.
    pub(super) fn recount(&self, objects: &[Arc<MemoryObject>]) -> io::Result<()> {
        let mut taken = lock(&self.pages);
        objects.iter().try_for_each(|object| recount(&mut taken, object))
    }

    /// Removes the object's pages from the count.
    pub(super) fn forget(&self, object: &MemoryObject) {
        let mut taken = lock(&self.pages);
        let mut count = lock(&object.count);
        taken.used_bytes -= std::mem::take(&mut count.bytes);
        count.removed = true;
    }

    /// Moves the count of the pages of `from` to `to`.
    pub(super) fn hand_over(&self, from: &MemoryObject, to: &MemoryObject) {
        let _taken = lock(&self.pages);
        let mut old = lock(&from.count);
        old.removed = true;
        lock(&to.count).bytes = std::mem::take(&mut old.bytes);
    }

    pub(super) fn space(&self) -> Space {
        let taken = lock(&self.pages);
        let used_bytes = taken.used_bytes + taken.promised_bytes;
        Space {
            total_bytes: self.capacity_bytes,
            free_bytes: self.capacity_bytes.saturating_sub(used_bytes),
            pool: 0,
        }
    }

    fn try_promise(&self, wanted_bytes: u64) -> Option<u64> {
        let mut taken = lock(&self.pages);
        let after = taken.used_bytes.checked_add(taken.promised_bytes)?.checked_add(wanted_bytes)?;
        // A write that needs no new page cannot fail, even if a borrower exceeded the capacity.
        if self.capacity_bytes < after && 0 < wanted_bytes {
            return None;
        }
        taken.promised_bytes += wanted_bytes;
        Some(wanted_bytes)
    }
}

fn recount(taken: &mut PageUse, object: &MemoryObject) -> io::Result<()> {
    let mut count = lock(&object.count);
    if count.removed {
        return Ok(());
    }
    let blocks = u64::try_from(rustix::fs::fstat(&object.fd)?.st_blocks).unwrap_or(0);
    taken.used_bytes = taken.used_bytes - count.bytes + blocks * 512;
    count.bytes = blocks * 512;
    Ok(())
}

/// Bytes of a range of whole pages that have no page yet.
fn hole_bytes(fd: &OwnedFd, start: u64, end: u64) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let mut data_bytes = 0;
    let mut at = start;
    while at < end {
        let data = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) if data < end => data,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        // The end of the object counts as a hole, and may lie within its last page.
        let hole = rustix::fs::seek(fd, SeekFrom::Hole(data))?.next_multiple_of(page).min(end);
        data_bytes += hole - data;
        at = hole;
    }
    Ok(end - start - data_bytes)
}
