//! The server's side of an outbox: look at records, take their bytes by reference, move the cursor.
//!
//! Never: believes a position or a length; a ring that lies is [`OutboxError`] and its client is shut out.
//! Always: bytes are handed out only for records between `taken` and the tail that was seen.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::{FILE_BYTES_MAX, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN, RECORD_BYTES_MAX};
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::Piece;
use pario_sys::shared::{Access, AttachError, AttachLimit, Shared};
use pario_sys::sync::{Place, fence};

use super::record::{INTENT_BYTES, IntentState, MOVED_HEAD_BYTES, RECORD_HEAD_BYTES, RecordHead, RecordKind};
use super::{
    CURSOR_BYTES, CURSOR_MAGIC, OUTBOX_HEAD_BYTES, OUTBOX_MAGIC, RECORD_ALIGN, Sleep, cursor_at, outbox_at,
};

/// What is known as a whole to be present or not.
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
    Lie {
        /// What is wrong.
        what: &'static str,
        /// Where.
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
    segment: Shared,
    capacity: u64,
    /// A bit for each part of it: whether it was made present.
    present: Box<[AtomicU64]>,
}

/// The server's cursor for one outbox; the client maps it read-only.
#[derive(Debug)]
pub struct CursorPage {
    page: Shared,
}

impl OutboxReader {
    /// Maps and checks what a client offered.
    pub fn attach(descriptor: OwnedFd) -> Result<OutboxReader, OutboxError> {
        let limit = AttachLimit {
            bytes_min: OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MIN,
            bytes_max: OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MAX,
        };
        let segment = Shared::attach(descriptor, Access::ReadOnly, limit)?;
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

    /// Position behind the last committed record. `taken` is the caller's own cursor, for checking.
    pub fn tail(&self, taken: u64) -> Result<u64, OutboxError> {
        self.span(taken).map(|span| span.end)
    }

    /// What is there for a reader that has come to `taken`: from the oldest record that it has not seen to the tail. Records
    /// that did not concern it may be gone.
    pub fn span(&self, taken: u64) -> Result<Range<u64>, OutboxError> {
        let tail = self.segment.load_u64(outbox_at::TAIL, Ordering::Acquire);
        // After the tail: a floor that is newer than the tail can only be seen too high, and then the tail is looked at again.
        let floor = self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire);
        let from = taken.max(floor.min(tail));
        let fits = tail.checked_sub(from).is_some_and(|bytes| bytes <= self.capacity);
        if !fits || !tail.is_multiple_of(RECORD_ALIGN) || !from.is_multiple_of(RECORD_ALIGN) {
            return Err(OutboxError::Lie { what: "an impossible tail or floor", position: tail });
        }
        Ok(from..tail)
    }

    /// Whether the memory of a record at `position` still holds it.
    #[must_use]
    pub fn still_holds(&self, position: u64) -> bool {
        fence(Place::Holds);
        self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire) <= position
    }

    /// The record at `position`, which is before `tail`.
    pub fn record(&self, position: u64, tail: u64) -> Result<RecordView, OutboxError> {
        let lie = |what| OutboxError::Lie { what, position };
        assert!(
            position < tail && position.is_multiple_of(RECORD_ALIGN),
            "only committed records are looked at"
        );
        let place = usize::try_from(position % self.capacity).map_err(|_| lie("an impossible position"))?;
        let at = OUTBOX_HEAD_BYTES + place;
        let mut bytes = [0u8; RECORD_HEAD_BYTES];
        self.segment.read(at, &mut bytes);
        let to_end = self.capacity - position % self.capacity;
        let fits = MOVED_HEAD_BYTES as u64 <= to_end.min(tail - position);
        let moved = || fits.then(|| self.segment.load_u64(at + RECORD_HEAD_BYTES, Ordering::Relaxed));
        let head = RecordHead::decode(&bytes, position, moved).map_err(lie)?;
        if tail - position < head.span() || to_end < head.span() {
            return Err(lie("a record longer than what was committed"));
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

    /// How long an intent's direct write is, and how far it has come.
    pub fn intent(&self, record: &RecordView) -> Result<(u64, IntentState), OutboxError> {
        assert!(record.head.kind == RecordKind::Intent, "only intents have a state");
        // The state first: once it is done, nothing of the intent changes any more.
        let state = self.segment.load_u64(record.data_at + 8, Ordering::Acquire);
        let bytes = self.segment.load_u64(record.data_at, Ordering::Relaxed);
        let in_file = record.head.offset.checked_add(bytes).is_some_and(|end| end <= FILE_BYTES_MAX);
        match IntentState::from_word(state).filter(|_| in_file) {
            Some(state) => Ok((bytes, state)),
            None => Err(OutboxError::Lie { what: "an impossible intent", position: record.head.position }),
        }
    }

    /// Bytes of a record's data, from `start` on, by reference.
    ///
    /// They are made present when they are looked at first: a kernel that has to stop in the middle of writing, at memory that is not, clears
    /// the rest of what it would have written.
    #[must_use]
    pub fn data(&self, record: &RecordView, start: usize, bytes: usize) -> Piece<'_> {
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
        // What is behind it in its last part is not written yet.
        for part in parts.start..range.end / PRESENT_BYTES {
            self.present[part / WORD_BITS].fetch_or(1 << (part % WORD_BITS), Ordering::Relaxed);
        }
    }

    fn is_present(&self, part: usize) -> bool {
        self.present[part / WORD_BITS].load(Ordering::Relaxed) & 1 << (part % WORD_BITS) != 0
    }

    /// Whether a thread of the client waits for room in the ring. A hint.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.segment.load_u64(outbox_at::WANTS_ROOM, Ordering::Relaxed) != 0
    }

    /// Whether a thread of the client waits for what it wrote to be taken, as for sync, close or a read. A hint.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.more_wait_than(&[outbox_at::WANTS_ROOM])
    }

    fn more_wait_than(&self, others: &[usize]) -> bool {
        // The client writes these words, and may write anything.
        let load = |sum: u64, at: &usize| sum.saturating_add(self.segment.load_u64(*at, Ordering::Acquire));
        // Those others say so before they wait, and until they do not: seen before or after, they are none of ours.
        let before = others.iter().fold(0, load);
        let waiting = self.segment.load_u64(outbox_at::WAITING, Ordering::Acquire);
        before.max(others.iter().fold(0, load)) < waiting
    }

    /// Whether one that waits so does not do it in a call that all members of its group make. A hint.
    #[must_use]
    pub fn waits_alone(&self) -> bool {
        self.more_wait_than(&[outbox_at::WANTS_ROOM, outbox_at::WAITING_TOGETHER])
    }

    /// Whether a thread of the client is in a call that all members of its group make, such as close: it waits for them in any case, and
    /// brings nothing until they have come. A hint.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.segment.load_u64(outbox_at::GATHERING, Ordering::Relaxed) != 0
    }

    /// Whether a thread of the client waits for the cursor. Call after moving it.
    #[must_use]
    pub fn somebody_waits(&self) -> bool {
        // Pairs with the client's fence between saying that it waits and looking at the cursor a last time.
        fence(Place::Moved);
        self.segment.load_u64(outbox_at::WAITING, Ordering::Relaxed) != 0
    }
}

impl CursorPage {
    /// A new cursor that starts at `from`; the descriptor goes to the client.
    pub fn create(from: u64) -> Result<(CursorPage, OwnedFd), OutboxError> {
        let (page, descriptor) = Shared::create("pario-cursor", CURSOR_BYTES).map_err(OutboxError::Cursor)?;
        page.store_u64(cursor_at::TAKEN, from, Ordering::Relaxed);
        page.store_u64(cursor_at::MAGIC, CURSOR_MAGIC, Ordering::Release);
        Ok((CursorPage { page }, descriptor))
    }

    /// Everything before `position` is in the store.
    pub fn move_to(&self, position: u64, outbox: &OutboxReader) {
        self.page.store_u64(cursor_at::TAKEN, position, Ordering::Release);
        reach(Point::DrainUnwoken);
        if outbox.somebody_waits() {
            let turn = self.page.load_u32(cursor_at::TURN, Ordering::Relaxed);
            self.page.store_u32(cursor_at::TURN, turn.wrapping_add(1), Ordering::Release);
            self.page.futex_wake(cursor_at::TURN, u32::MAX >> 1);
        }
    }

    /// Says how the server sleeps. After saying so it must look at the tails once more.
    pub fn fall_asleep(&self, sleep: Sleep) {
        self.page.store_u32(cursor_at::ASLEEP, sleep as u32, Ordering::Relaxed);
        // Pairs with the client's fence between a commit, or saying that it waits, and its look whether we sleep.
        fence(Place::Asleep);
    }

    /// A round of taking begins: whoever announces a direct write from now on must not count on this round to see it.
    pub fn begin_round(&self) {
        let round = self.page.load_u64(cursor_at::ROUND, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ROUND, round | 1, Ordering::Relaxed);
        // Pairs with the client's fence between announcing a direct write and looking at the round.
        fence(Place::Round);
    }

    /// The round is over.
    pub fn end_round(&self) {
        let round = self.page.load_u64(cursor_at::ROUND, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ROUND, (round | 1).wrapping_add(1), Ordering::Release);
    }

    /// Grants or withdraws writing behind: one bit for the files of each remainder that an inode leaves when divided by 32.
    pub fn set_write_behind(&self, files: u32) {
        self.page.store_u32(cursor_at::WRITE_BEHIND, files, Ordering::Release);
    }

    /// Between withdrawing and a look at the tails: a record that is not seen then is of somebody who sees that the permission is gone.
    pub fn withdrawn() {
        // Pairs with the client's fence between a commit and its look at what it may do.
        fence(Place::Withdrawn);
    }

    /// Counts one more error.
    pub fn count_error(&self) {
        let errors = self.page.load_u64(cursor_at::ERRORS, Ordering::Relaxed);
        self.page.store_u64(cursor_at::ERRORS, errors + 1, Ordering::Release);
    }
}
