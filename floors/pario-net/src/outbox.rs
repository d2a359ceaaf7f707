//! The outbox: the memory from which the servers of a node drain a process's records. Layout: `docs/formats/outbox.md`.
//!
//! Two segments, each with one writer. The *outbox* belongs to the client: a head page and a ring of records; the client copies a record
//! into the ring and commits it with one store of `tail`. The *cursor* belongs to a server: its position in this outbox, whether it
//! sleeps, whether the client may write behind, the number of errors.
//!
//! Never: a Rust reference to shared memory; trust in the other side's values: every number is loaded once and checked. Always: the
//! client does not touch bytes before `tail` and at or after the lowest `drained`; a record never wraps.

mod collective_wait;
mod cursor;
mod intent;
mod memory;
mod offers;
mod reader;
mod readers;
mod record;
mod ring;
mod writer;

pub use collective_wait::CollectiveWait;
pub use cursor::{Cursor, write_behind_bit};
pub use intent::Intent;
pub use offers::Attached;
pub use reader::{CursorPage, OutboxError, OutboxReader, RecordView};
pub use readers::{Concern, WaitCheck};
pub use record::{Concerned, IntentState, RECORD_HEAD_BYTES, RecordHead, RecordKind};
pub use writer::{CommittedRecord, Fill, Outbox, RecordMeta};

/// Sleep state of a server, from its cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// It is awake.
    Awake = 0,
    /// Until its doorbell rings.
    Light = 1,
    /// It briefly leaves the processors to busy writers: only clients that wait for it, or have used half of their outbox, ring it.
    Resting = 2,
}

/// First word of an outbox; changes with its form, so that it is also the layout's hash.
pub const OUTBOX_MAGIC: u64 = u64::from_le_bytes(*b"PAROUT03");
/// First word of a cursor.
pub const CURSOR_MAGIC: u64 = u64::from_le_bytes(*b"PARCUR02");
/// Bytes before the ring.
pub const OUTBOX_HEAD_BYTES: usize = 4096;
/// Bytes of a cursor segment.
pub const CURSOR_BYTES: usize = 4096;
/// Records start at multiples of this.
pub const RECORD_ALIGN: u64 = 64;

/// Largest record that always fits, with any other records in the outbox.
pub(crate) fn whole_bytes_max(capacity: u64) -> usize {
    usize::try_from(capacity / 2).expect("a capacity fits into memory").saturating_sub(2 * RECORD_HEAD_BYTES)
}

/// Offsets in the outbox's head page.
pub(crate) mod outbox_at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const CAPACITY: usize = 8;
    /// On a line of its own: the client stores it with every record.
    pub(crate) const TAIL: usize = 64;
    /// Records before this position are dropped: their memory may be reused.
    pub(crate) const FLOOR: usize = 72;
    /// Number of the client's threads waiting for `drained` to advance.
    pub(crate) const WAITING: usize = 128;
    /// Number of them waiting for space only.
    pub(crate) const WAITING_FOR_SPACE: usize = 136;
    /// Number of the client's threads in a collective call.
    pub(crate) const IN_COLLECTIVE: usize = 144;
    /// Number of the waiting threads in a collective call.
    pub(crate) const WAITING_IN_COLLECTIVE: usize = 152;
}

/// Offsets in the cursor's page.
pub(crate) mod cursor_at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const DRAINED: usize = 64;
    /// Futex word: changes whenever `drained` does and a thread waits.
    pub(crate) const MOVES: usize = 72;
    pub(crate) const ASLEEP: usize = 128;
    pub(crate) const WRITE_BEHIND: usize = 132;
    pub(crate) const ERRORS: usize = 192;
    /// Odd while the server drains.
    pub(crate) const ROUND: usize = 256;
}
