//! A server's cursor and doorbell, as the client sees them.
//!
//! Never: stores into the cursor's page, which belongs to the server. Always: a server that sleeps is rung after the fence that pairs with
//! its last look at the tails.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pario_core::{Fault, InodeId, ServerIndex};
use pario_sys::doorbell::Doorbell;
use pario_sys::shared::{AttachLimit, MapAccess, SharedMemory};
use pario_sys::sync::{FenceSite, fence};

use super::{CURSOR_BYTES, CURSOR_MAGIC, Sleep, cursor_at};

/// Longest sleep for a server before its health is checked.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// One server's cursor and doorbell.
#[derive(Debug)]
pub struct Cursor {
    pub(super) server: ServerIndex,
    page: SharedMemory,
    doorbell: Doorbell,
    /// Position after the last record that concerns this server.
    pub(super) wanted: AtomicU64,
    /// Bytes committed for this server since it was last woken.
    pub(super) unannounced: AtomicU64,
}

/// The bit of a file among those that may be written behind.
#[must_use]
pub fn write_behind_bit(inode: InodeId) -> u32 {
    1 << (inode.0 % 32)
}

impl Cursor {
    /// Maps the cursor from a server's reply to an offered outbox.
    pub fn attach(server: ServerIndex, page: OwnedFd, doorbell: OwnedFd) -> Result<Cursor, Fault> {
        let limit = AttachLimit { bytes_min: CURSOR_BYTES, bytes_max: CURSOR_BYTES };
        let page = SharedMemory::attach(page, MapAccess::ReadOnly, limit).map_err(|error| {
            Fault::new(pario_core::Code::Protocol, format!("server {server}'s cursor: {error}"))
        })?;
        if page.load_u64(cursor_at::MAGIC, Ordering::Relaxed) != CURSOR_MAGIC {
            return Err(Fault::new(
                pario_core::Code::Protocol,
                format!("server {server}'s cursor has another form"),
            ));
        }
        let doorbell =
            Doorbell::from_fd(doorbell).map_err(|error| Fault::from_io(&error, "a server's doorbell"))?;
        let taken = page.load_u64(cursor_at::DRAINED, Ordering::Acquire);
        Ok(Cursor { server, page, doorbell, wanted: AtomicU64::new(taken), unannounced: AtomicU64::new(0) })
    }

    /// Position up to which the server has drained all records.
    #[must_use]
    pub fn drained(&self) -> u64 {
        self.page.load_u64(cursor_at::DRAINED, Ordering::Acquire)
    }

    /// Whether there are undrained records for this server.
    pub(super) fn has_undrained(&self) -> bool {
        self.drained() < self.wanted.load(Ordering::Acquire)
    }

    /// Whether the server is in the middle of a round.
    pub(super) fn is_draining(&self) -> bool {
        self.page.load_u64(cursor_at::ROUND, Ordering::Acquire) % 2 == 1
    }

    /// Errors that the server met with this outbox's records, ever.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.page.load_u64(cursor_at::ERRORS, Ordering::Acquire)
    }

    /// Whether the server has reserved space, so that writes may return before they are drained.
    #[must_use]
    pub fn may_write_behind(&self, inode: InodeId) -> bool {
        self.page.load_u32(cursor_at::WRITE_BEHIND, Ordering::Acquire) & write_behind_bit(inode) != 0
    }

    /// The same, checked after a commit: if true, a server that revokes the permission later sees the record.
    #[must_use]
    pub fn might_write_behind(&self, inode: InodeId) -> bool {
        // Pairs with the server's fence between revoking the permission and reading the tails.
        fence(FenceSite::Permission);
        self.may_write_behind(inode)
    }

    /// Wakes the server if it sleeps.
    pub fn wake(&self) {
        self.wake_unless(|_| false);
    }

    /// The same, but a resting server is not rung while less than half of the outbox is used: it polls by itself.
    pub(super) fn announce(&self, is_half: bool) {
        self.wake_unless(|asleep| asleep == Sleep::Resting as u32 && !is_half);
    }

    fn wake_unless(&self, may_rest: impl FnOnce(u32) -> bool) {
        // Pairs with the server's fence between saying that it sleeps and looking at the tails a last time.
        fence(FenceSite::Wake);
        let asleep = self.page.load_u32(cursor_at::ASLEEP, Ordering::Relaxed);
        if may_rest(asleep) {
            return;
        }
        self.unannounced.store(0, Ordering::Relaxed);
        if asleep != Sleep::Awake as u32 {
            // Only a full counter refuses, and then the server is being woken anyway.
            let _ = self.doorbell.ring();
        }
    }

    /// How often the cursor has moved with a thread waiting; for [`Cursor::sleep`].
    pub(super) fn moves(&self) -> u32 {
        self.page.load_u32(cursor_at::MOVES, Ordering::Acquire)
    }

    /// Sleeps until the cursor moves, for a short while.
    pub(super) fn sleep(&self, moves: u32) {
        // Woken, timed out or too late: the caller checks the cursor in any case.
        let _ = self.page.futex_wait(cursor_at::MOVES, moves, Some(SLEEP_MAX));
    }
}
