//! The server's side of an outbox: decode records, read their bytes by reference, advance the cursor.
//!
//! Never: trusts a position or a length; an inconsistent ring is [`OutboxError`] and its client is disconnected. Always: bytes are
//! returned only for records between `drained` and the tail that was read.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::{FILE_BYTES_MAX, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN, RECORD_BYTES_MAX};
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::MemoryPiece;
use pario_sys::shared::{AttachError, AttachLimit, MapAccess, SharedMemory};
use pario_sys::sync::{FenceSite, fence};

use super::record::{
    DISPLACED_HEAD_BYTES, INTENT_BYTES, IntentState, RECORD_HEAD_BYTES, RecordHead, RecordKind,
};
use super::{
    CURSOR_BYTES, CURSOR_MAGIC, OUTBOX_HEAD_BYTES, OUTBOX_MAGIC, RECORD_ALIGN, Sleep, cursor_at, outbox_at,
};

/// Granularity of presence: each part is present as a unit.
const PRESENT_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;
const WORD_BITS: usize = u64::BITS as usize;

/// Why an outbox is refused.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// The segment itself.
    #[error("outbox segment refused: {0}")]
    Attach(#[from] AttachError),
    /// Its head page.
    #[error("outbox has another form or a capacity that is not its size")]
    Form,
    /// A record or position that cannot be.
    #[error("outbox holds {what} at position {position}")]
    Violation {
        /// The violated rule.
        what: &'static str,
        /// Position of the record.
        position: u64,
    },
    /// The server's own segment could not be made.
    #[error("no memory for a cursor: {0}")]
    Cursor(std::io::Error),
}

/// A record in an outbox.
#[derive(Clone, Copy, Debug)]
pub struct RecordView {
    /// Its head, checked.
    pub head: RecordHead,
    data_at: usize,
}

/// A client's outbox, mapped read-only.
#[derive(Debug)]
pub struct OutboxReader {
    segment: SharedMemory,
    capacity: u64,
    /// A bit for each part of it: whether it was made present.
    present: Box<[AtomicU64]>,
}

/// The server's cursor for one outbox; the client maps it read-only.
#[derive(Debug)]
pub struct CursorPage {
    page: SharedMemory,
}

impl OutboxReader {
    /// Maps and checks a client's outbox.
    pub fn attach(descriptor: OwnedFd) -> Result<OutboxReader, OutboxError> {
        let limit = AttachLimit {
            bytes_min: OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MIN,
            bytes_max: OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MAX,
        };
        let segment = SharedMemory::attach(descriptor, MapAccess::ReadOnly, limit)?;
        let capacity = segment.load_u64(outbox_at::CAPACITY, Ordering::Relaxed);
        let magic = segment.load_u64(outbox_at::MAGIC, Ordering::Acquire);
        if magic != OUTBOX_MAGIC
            || capacity != (segment.len() - OUTBOX_HEAD_BYTES) as u64
            || capacity % RECORD_ALIGN != 0
        {
            return Err(OutboxError::Form);
        }
        let words = segment.len().div_ceil(PRESENT_BYTES * WORD_BITS);
        let present = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(OutboxReader { segment, capacity, present })
    }

    /// Bytes that can be pending in it.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Position after the last committed record. `taken` is the caller's own cursor, for checking.
    pub fn tail(&self, taken: u64) -> Result<u64, OutboxError> {
        self.span(taken).map(|span| span.end)
    }

    /// Records available to a reader at `taken`: from its oldest unread record to the tail. Records that did not concern it may be
    /// dropped.
    pub fn span(&self, taken: u64) -> Result<Range<u64>, OutboxError> {
        let tail = self.segment.load_u64(outbox_at::TAIL, Ordering::Acquire);
        // After the tail: a floor newer than the tail can only be too high, and then the tail is read again.
        let floor = self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire);
        let from = taken.max(floor.min(tail));
        let fits = tail.checked_sub(from).is_some_and(|bytes| bytes <= self.capacity);
        if !fits || !tail.is_multiple_of(RECORD_ALIGN) || !from.is_multiple_of(RECORD_ALIGN) {
            return Err(OutboxError::Violation { what: "an impossible tail or floor", position: tail });
        }
        Ok(from..tail)
    }

    /// Whether the memory of a record at `position` still holds it.
    #[must_use]
    pub fn still_holds(&self, position: u64) -> bool {
        fence(FenceSite::Holds);
        self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire) <= position
    }

    /// The record at `position`, which is before `tail`. `None`: its memory was reused since the span was read, as memory of records is
    /// that do not concern this server.
    pub fn record(&self, position: u64, tail: u64) -> Result<Option<RecordView>, OutboxError> {
        let record = self.decode(position, tail);
        // After decoding: bytes of another record look like a violation.
        if self.still_holds(position) { record.map(Some) } else { Ok(None) }
    }

    fn decode(&self, position: u64, tail: u64) -> Result<RecordView, OutboxError> {
        let lie = |what| OutboxError::Violation { what, position };
        assert!(
            position < tail && position.is_multiple_of(RECORD_ALIGN),
            "only committed records are decoded"
        );
        let place = usize::try_from(position % self.capacity).map_err(|_| lie("an impossible position"))?;
        let at = OUTBOX_HEAD_BYTES + place;
        let mut bytes = [0u8; RECORD_HEAD_BYTES];
        self.segment.read(at, &mut bytes);
        let to_end = self.capacity - position % self.capacity;
        let fits = DISPLACED_HEAD_BYTES as u64 <= to_end.min(tail - position);
        let moved = || fits.then(|| self.segment.load_u64(at + RECORD_HEAD_BYTES, Ordering::Relaxed));
        let head = RecordHead::decode(&bytes, position, moved).map_err(lie)?;
        if tail - position < head.span() || to_end < head.span() {
            return Err(lie("a record longer than the committed bytes"));
        }
        if head.kind == RecordKind::Data
            && super::whole_bytes_max(self.capacity).max(RECORD_BYTES_MAX) < head.data_bytes as usize
        {
            return Err(lie("a record that is too long"));
        }
        if head.kind == RecordKind::Intent && head.data_bytes != INTENT_BYTES {
            return Err(lie("an intent that is none"));
        }
        Ok(RecordView { head, data_at: at + head.head_bytes() })
    }

    /// Length and progress of an intent's direct write.
    pub fn intent(&self, record: &RecordView) -> Result<(u64, IntentState), OutboxError> {
        assert!(record.head.kind == RecordKind::Intent, "only intents have a state");
        // The state first: once it is done, the intent is constant.
        let state = self.segment.load_u64(record.data_at + 8, Ordering::Acquire);
        let bytes = self.segment.load_u64(record.data_at, Ordering::Relaxed);
        let in_file = record.head.offset.checked_add(bytes).is_some_and(|end| end <= FILE_BYTES_MAX);
        match IntentState::from_word(state).filter(|_| in_file) {
            Some(state) => Ok((bytes, state)),
            None => {
                Err(OutboxError::Violation { what: "an impossible intent", position: record.head.position })
            }
        }
    }

    /// Bytes of a record's data, from `start` on, by reference.
    ///
    /// They are made present at the first access: a kernel that hits an absent page in the middle of a write zeroes the rest of its
    /// target.
    #[must_use]
    pub fn data(&self, record: &RecordView, start: usize, bytes: usize) -> MemoryPiece<'_> {
        assert!(start + bytes <= record.head.data_bytes as usize, "a piece lies inside its record");
        let range = record.data_at + start..record.data_at + start + bytes;
        self.make_present(&range);
        self.segment.piece(range)
    }

    fn make_present(&self, range: &Range<usize>) {
        // Less is on a page with its head, which was read before, or on the next one.
        if range.len() < PAGE_BYTES {
            return;
        }
        let parts = range.start / PRESENT_BYTES..range.end.div_ceil(PRESENT_BYTES);
        if parts.clone().all(|part| self.is_present(part)) {
            return;
        }
        self.segment.prefault(range.clone());
        // The bytes after it in its last part are not written yet.
        for part in parts.start..range.end / PRESENT_BYTES {
            self.present[part / WORD_BITS].fetch_or(1 << (part % WORD_BITS), Ordering::Relaxed);
        }
    }

    fn is_present(&self, part: usize) -> bool {
        self.present[part / WORD_BITS].load(Ordering::Relaxed) & 1 << (part % WORD_BITS) != 0
    }

    /// Whether a thread of the client waits for space in the ring. A hint.
    #[must_use]
    pub fn waits_for_space(&self) -> bool {
        self.segment.load_u64(outbox_at::WAITING_FOR_SPACE, Ordering::Relaxed) != 0
    }

    /// Whether a thread of the client waits for its records to be drained, as for sync, close or a read. A hint.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.more_wait_than(&[outbox_at::WAITING_FOR_SPACE])
    }

    fn more_wait_than(&self, others: &[usize]) -> bool {
        // The client writes these words, and may write anything.
        let load = |sum: u64, at: &usize| sum.saturating_add(self.segment.load_u64(*at, Ordering::Acquire));
        // Collective waiters are counted before they wait and until they end: read before and after, they are excluded.
        let before = others.iter().fold(0, load);
        let waiting = self.segment.load_u64(outbox_at::WAITING, Ordering::Acquire);
        before.max(others.iter().fold(0, load)) < waiting
    }

    /// Whether a waiting thread is outside a collective call. A hint.
    #[must_use]
    pub fn waits_outside_collective(&self) -> bool {
        self.more_wait_than(&[outbox_at::WAITING_FOR_SPACE, outbox_at::WAITING_IN_COLLECTIVE])
    }

    /// Whether a thread of the client is in a collective call, such as close: it waits for the other members in any case, and writes
    /// nothing until they have arrived. A hint.
    #[must_use]
    pub fn in_collective(&self) -> bool {
        self.segment.load_u64(outbox_at::IN_COLLECTIVE, Ordering::Relaxed) != 0
    }

    /// Whether a thread of the client waits for the cursor. Call after moving it.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        // Pairs with the client's fence between saying that it waits and looking at the cursor a last time.
        fence(FenceSite::Moved);
        self.segment.load_u64(outbox_at::WAITING, Ordering::Relaxed) != 0
    }
}

impl CursorPage {
    /// A new cursor that starts at `from`; the descriptor is sent to the client.
    pub fn create(from: u64) -> Result<(CursorPage, OwnedFd), OutboxError> {
        let (page, descriptor) =
            SharedMemory::create("pario-cursor", CURSOR_BYTES).map_err(OutboxError::Cursor)?;
        page.store_u64(cursor_at::DRAINED, from, Ordering::Relaxed);
        page.store_u64(cursor_at::MAGIC, CURSOR_MAGIC, Ordering::Release);
        Ok((CursorPage { page }, descriptor))
    }

    /// All records before `position` are in the store.
    pub fn move_to(&self, position: u64, outbox: &OutboxReader) {
        self.page.store_u64(cursor_at::DRAINED, position, Ordering::Release);
        reach(Point::DrainUnwoken);
        if outbox.has_waiters() {
            let turn = self.page.load_u32(cursor_at::MOVES, Ordering::Relaxed);
            self.page.store_u32(cursor_at::MOVES, turn.wrapping_add(1), Ordering::Release);
            self.page.futex_wake(cursor_at::MOVES, u32::MAX >> 1);
        }
    }

    /// Announces how the server sleeps. Afterwards it must read the tails once more.
    pub fn announce_sleep(&self, sleep: Sleep) {
        self.page.store_u32(cursor_at::ASLEEP, sleep as u32, Ordering::Relaxed);
        // Pairs with the client's fence between a commit, or announcing a wait, and its check whether we sleep.
        fence(FenceSite::Asleep);
    }

    /// A drain round begins: a direct write announced from now on may be missed by this round.
    pub fn begin_round(&self) {
        let round = self.page.load_u64(cursor_at::ROUND, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ROUND, round | 1, Ordering::Relaxed);
        // Pairs with the client's fence between announcing a direct write and looking at the round.
        fence(FenceSite::Round);
    }

    /// The round is over.
    pub fn end_round(&self) {
        let round = self.page.load_u64(cursor_at::ROUND, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ROUND, (round | 1).wrapping_add(1), Ordering::Release);
    }

    /// Grants or revokes writing behind: one bit for the files of each inode number modulo 32.
    pub fn set_write_behind(&self, files: u32) {
        self.page.store_u32(cursor_at::WRITE_BEHIND, files, Ordering::Release);
    }

    /// Fence between revoking and reading the tails: any record missed then was committed by a client that will observe the revoked
    /// permission.
    pub fn withdrawn() {
        // Pairs with the client's fence between a commit and its check of the permission.
        fence(FenceSite::Withdrawn);
    }

    /// Counts one more error.
    pub fn count_error(&self) {
        let errors = self.page.load_u64(cursor_at::ERRORS, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ERRORS, errors + 1, Ordering::Release);
    }
}
