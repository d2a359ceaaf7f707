//! The outbox: the memory from which a process's records are taken by the servers of its node. Drawn in `docs/formats/outbox.md`.
//!
//! Two segments, each with one writer. The *outbox* belongs to the client: a head page and a ring of records; the client
//! copies a record into the ring and commits it with one store of `tail`. The *cursor* belongs to a server: how far it has
//! taken this outbox, whether it sleeps, whether the client may write behind, how many errors there were.
//!
//! Never: a Rust reference to shared memory; trust in what the other side wrote: every number is loaded once and checked.
//! Always: bytes before `tail` and at or after the lowest `taken` are not touched by the client; a record never wraps.

mod intent;
mod reader;
mod record;
mod writer;

pub use intent::Intent;
pub use reader::{CursorPage, OutboxError, OutboxReader, RecordView};
pub use record::{Concerned, IntentState, RECORD_HEAD_BYTES, RecordHead, RecordKind};
pub use writer::{
    Attached, Concern, Cursor, Fill, Gathering, Outbox, Progress, RecordMeta, write_behind_bit,
};

/// How a server sleeps, as its cursor tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// It does not.
    Awake = 0,
    /// Until its doorbell rings.
    Light = 1,
    /// It leaves the processors to busy writers for a moment: only who waits for it rings, or who has used half of its outbox.
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

/// Largest record that an outbox can hold whatever else is in it.
pub(crate) fn whole_bytes_max(capacity: u64) -> usize {
    usize::try_from(capacity / 2).expect("a capacity fits into memory").saturating_sub(2 * RECORD_HEAD_BYTES)
}

/// Places in the outbox's head page.
pub(crate) mod outbox_at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const CAPACITY: usize = 8;
    /// On a line of its own: the client stores it with every record.
    pub(crate) const TAIL: usize = 64;
    /// Records before this position are gone: their memory may be in use again.
    pub(crate) const FLOOR: usize = 72;
    /// How many threads of the client wait for `taken` to move.
    pub(crate) const WAITING: usize = 128;
    /// How many of them wait for room only.
    pub(crate) const WANTS_ROOM: usize = 136;
    /// How many threads of the client are in a call that all members of their group make.
    pub(crate) const GATHERING: usize = 144;
    /// How many of the threads that wait do so in such a call.
    pub(crate) const WAITING_TOGETHER: usize = 152;
}

/// Places in the cursor's page.
pub(crate) mod cursor_at {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const TAKEN: usize = 64;
    /// Futex word: changes whenever `taken` does and somebody waits.
    pub(crate) const TURN: usize = 72;
    pub(crate) const ASLEEP: usize = 128;
    pub(crate) const WRITE_BEHIND: usize = 132;
    pub(crate) const ERRORS: usize = 192;
    /// Odd while the server takes.
    pub(crate) const ROUND: usize = 256;
}
