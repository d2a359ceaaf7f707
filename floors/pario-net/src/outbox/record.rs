//! Head of a record: 64 bytes in front of its data. Layout: `docs/formats/outbox.md`, section "Record".

use pario_core::{Generation, InodeId, Layout, Nanos, ObjectId, ServerIndex};

use super::RECORD_ALIGN;

/// Bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = 64;
/// Bytes of the head of a record with a displaced view: the displacement follows the other fields.
pub(super) const DISPLACED_HEAD_BYTES: usize = 128;
/// Offset of the commit time in a head.
pub(super) const COMMITTED_AT: usize = 56;
/// Kind word of data with a displaced view.
const DISPLACED_WORD: u16 = 4;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// One write.
    Data,
    /// Fills the end of the ring.
    Pad,
    /// Bytes that its writer puts into the store itself; older records must not be written over them.
    Intent,
}

impl RecordKind {
    fn word(self) -> u16 {
        match self {
            RecordKind::Data => 1,
            RecordKind::Pad => 2,
            RecordKind::Intent => 3,
        }
    }
}

/// Progress of a direct write that was announced by an intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntentState {
    /// It may be in the store in part.
    InProgress,
    /// It is in the store.
    Done,
    /// It is not made; as if it had never been announced.
    Void,
}

impl IntentState {
    pub(super) fn word(self) -> u64 {
        match self {
            IntentState::InProgress => 0,
            IntentState::Done => 1,
            IntentState::Void => 2,
        }
    }

    pub(super) fn from_word(word: u64) -> Option<IntentState> {
        [IntentState::InProgress, IntentState::Done, IntentState::Void]
            .into_iter()
            .find(|state| state.word() == word)
    }
}

/// Bytes of an intent after its head: length, state.
pub(super) const INTENT_BYTES: u32 = 16;

/// Head of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHead {
    /// Its own position, so that a reader never mistakes old bytes for a record.
    pub position: u64,
    /// Kind of the record.
    pub kind: RecordKind,
    /// Number of processes of the node that write to the file together, its writer included, as known to the writer; a hint.
    pub local_writers: u16,
    /// Bytes of data after the head.
    pub data_bytes: u32,
    /// File and generation that it writes to.
    pub object: ObjectId,
    /// View that its stream offset belongs to; 0 is the file's own bytes.
    pub view: u32,
    /// Displacement added to the view, in bytes.
    pub displacement: u64,
    /// Where in the stream.
    pub offset: u64,
    /// Layout of the file.
    pub layout: Layout,
    /// Servers with a part of its data.
    pub concerned: Concerned,
    /// When it was committed, on the node's clock.
    pub committed: Nanos,
}

/// A set of servers in 48 bits: a bit stands for every 48th server. Servers outside it need not know the record's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Concerned(u64);

impl Concerned {
    const BITS: u16 = 48;
    /// All servers.
    pub const ALL: Concerned = Concerned((1 << Concerned::BITS) - 1);

    /// The set of some servers, including those that share a bit with them.
    pub fn of(servers: impl IntoIterator<Item = ServerIndex>) -> Concerned {
        Concerned(servers.into_iter().fold(0, |bits, server| bits | 1 << (server.0 % Concerned::BITS)))
    }

    /// Whether a server is in it.
    #[must_use]
    pub fn includes(self, server: ServerIndex) -> bool {
        self.0 >> (server.0 % Concerned::BITS) & 1 == 1
    }
}

impl RecordHead {
    /// Head, data and filling.
    #[must_use]
    pub fn span(&self) -> u64 {
        span(self.head_bytes(), u64::from(self.data_bytes))
    }

    /// Bytes in front of its data.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        head_bytes(self.displacement)
    }

    /// The range of its view's stream, or of the file, that its data is.
    #[must_use]
    pub fn stream(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.data_bytes)
    }

    /// Its first bytes; a displacement, if any, follows them.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEAD_BYTES] {
        assert!(self.displacement == 0 || self.kind == RecordKind::Data, "only data has a view");
        let word = if self.displacement == 0 { self.kind.word() } else { DISPLACED_WORD };
        let mut bytes = [0u8; RECORD_HEAD_BYTES];
        bytes[0..8].copy_from_slice(&self.position.to_le_bytes());
        bytes[8..10].copy_from_slice(&word.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.local_writers.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.data_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.object.inode.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.object.generation.0.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.view.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.offset.to_le_bytes());
        let stripe = u32::try_from(self.layout.stripe_bytes()).expect("a stripe is at most 1 GiB");
        bytes[40..44].copy_from_slice(&stripe.to_le_bytes());
        bytes[44..46].copy_from_slice(&self.layout.count().to_le_bytes());
        bytes[46..48].copy_from_slice(&self.layout.first().to_le_bytes());
        bytes[48..50].copy_from_slice(&self.layout.total().to_le_bytes());
        bytes[50..56].copy_from_slice(&self.concerned.0.to_le_bytes()[..6]);
        bytes[COMMITTED_AT..COMMITTED_AT + 8].copy_from_slice(&self.committed.0.to_le_bytes());
        bytes
    }

    /// Decodes and checks a record that claims to be at `position`; `moved` is called for the displacement word if there is one, and
    /// returns `None` where the ring ends before it. The error text names the violated rule.
    pub fn decode(
        bytes: &[u8; RECORD_HEAD_BYTES],
        position: u64,
        moved: impl FnOnce() -> Option<u64>,
    ) -> Result<RecordHead, &'static str> {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let half = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        if long(0) != position {
            return Err("a record with a wrong position");
        }
        let (kind, moved) = match half(8) {
            1 => (RecordKind::Data, 0),
            2 => (RecordKind::Pad, 0),
            3 => (RecordKind::Intent, 0),
            DISPLACED_WORD => match moved() {
                Some(moved @ 1..=pario_core::limits::FILE_BYTES_MAX) => (RecordKind::Data, moved),
                Some(_) => return Err("a view that is moved to nowhere"),
                None => return Err("a record longer than the committed bytes"),
            },
            _ => return Err("a record of unknown kind"),
        };
        let layout = Layout::new(u64::from(word(40)), half(44), half(46), half(48))
            .map_err(|_| "an impossible layout")?;
        let (offset, data_bytes) = (long(32), word(12));
        if pario_core::limits::FILE_BYTES_MAX < offset.saturating_add(u64::from(data_bytes)) {
            return Err("a record beyond the end of every file");
        }
        Ok(RecordHead {
            position,
            kind,
            local_writers: half(10),
            data_bytes,
            object: ObjectId { inode: InodeId(long(16)), generation: Generation(word(24)) },
            view: word(28),
            displacement: moved,
            offset,
            layout,
            concerned: Concerned(long(48) >> 16),
            committed: Nanos(long(COMMITTED_AT)),
        })
    }
}

/// Bytes of a record in the ring.
pub(super) fn span(head_bytes: usize, data_bytes: u64) -> u64 {
    (head_bytes as u64 + data_bytes).next_multiple_of(RECORD_ALIGN)
}

/// Bytes in front of the data of a record with this displacement.
pub(super) fn head_bytes(moved: u64) -> usize {
    if moved == 0 { RECORD_HEAD_BYTES } else { DISPLACED_HEAD_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pinned() {
        let head = RecordHead {
            position: 0x1122,
            kind: RecordKind::Data,
            local_writers: 0x0201,
            data_bytes: 8192,
            object: ObjectId { inode: InodeId(7), generation: Generation(2) },
            view: 0,
            displacement: 0,
            offset: 0x10_0000,
            layout: Layout::new(1 << 20, 4, 3, 5).unwrap(),
            concerned: Concerned::of([ServerIndex(0), ServerIndex(47), ServerIndex(49)]),
            committed: Nanos(0xabcd),
        };
        #[rustfmt::skip]
        let expected = [
            0x22, 0x11, 0, 0, 0, 0, 0, 0, 1, 0, 1, 2, 0, 0x20, 0, 0,
            7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 4, 0, 3, 0,
            5, 0, 3, 0, 0, 0, 0, 0x80, 0xcd, 0xab, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(head.encode(), expected);
        let nothing = || -> Option<u64> { panic!("it is not moved") };
        assert_eq!(RecordHead::decode(&expected, 0x1122, nothing), Ok(head));
        assert!(RecordHead::decode(&expected, 0x1123, nothing).is_err());
        assert_eq!(head.span(), 8192 + 64);
        let intent = RecordHead { kind: RecordKind::Intent, view: 9, ..head };
        assert_eq!((intent.encode()[8], intent.encode()[28]), (3, 9));
        assert_eq!(RecordHead::decode(&intent.encode(), 0x1122, nothing), Ok(intent));
        let moved = RecordHead { view: 3, displacement: 4096, ..head };
        assert_eq!((moved.encode()[8], moved.encode()[28], moved.span()), (4, 3, 8192 + 128));
        assert_eq!(RecordHead::decode(&moved.encode(), 0x1122, || Some(4096)), Ok(moved));
        for nowhere in [None, Some(0), Some(u64::MAX)] {
            assert!(RecordHead::decode(&moved.encode(), 0x1122, || nowhere).is_err(), "{nowhere:?}");
        }
    }
}
