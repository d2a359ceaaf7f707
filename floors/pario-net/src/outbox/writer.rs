//! The client's side of an outbox: reserve, copy, commit. Threads of the process copy at the same time.
//!
//! Never: holds a lock while bytes are copied, or while a server is attached. Always: an error, or a panic while bytes are copied, leaves
//! no record.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use pario_core::limits::RECORD_BYTES_MAX;
use pario_core::{Fault, Layout, Nanos, ObjectId, ServerIndex};
use pario_sys::kill_point::{Point, reach};
use pario_sys::sync::{FenceSite, Mutex, MutexGuard, is_strong, lock};

use super::collective_wait::CollectiveWait;
use super::cursor::Cursor;
use super::memory::OutboxMemory;
use super::offers::Attached;
use super::readers::{self, Concern, Readers, ServerSlot, WaitCheck};
use super::record::{Concerned, IntentState, RecordHead, RecordKind, head_bytes, span};
use super::ring::{RecordSpace, Ring, RingState};
use super::{RECORD_ALIGN, RECORD_HEAD_BYTES};

/// What a record writes to.
#[derive(Clone, Copy, Debug)]
pub struct RecordMeta {
    /// File and generation.
    pub object: ObjectId,
    /// Layout of the file.
    pub layout: Layout,
    /// The view's number; 0 is the file's own bytes.
    pub view: u32,
    /// Displacement added to the view, in bytes.
    pub displacement: u64,
    /// Offset in the view's stream.
    pub offset: u64,
    /// Number of processes of the node that write to the file together, this one included; 0 if unknown.
    pub local_writers: u16,
}

/// A committed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommittedRecord {
    /// The position after it.
    pub end: u64,
    /// When it was committed.
    pub at: Nanos,
}

/// Writes a record's data through a function that copies bytes to an offset in the record.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(usize, &[u8]));

/// An entry of the ring.
#[derive(Clone, Copy)]
pub(super) struct RingEntry {
    pub(super) kind: RecordKind,
    pub(super) meta: RecordMeta,
    pub(super) bytes: usize,
}

/// A process's outbox for one partition.
#[derive(Debug)]
pub struct Outbox {
    memory: OutboxMemory,
    ring: Ring,
    readers: Readers,
    /// Held while a thread waits for space: threads get space in turn, however much they need.
    turn: Mutex<()>,
}

/// Space in the ring that a thread copies a record into. Dropped without [`RecordInProgress::commit`] it becomes a pad.
struct RecordInProgress<'a> {
    outbox: &'a Outbox,
    space: RecordSpace,
    meta: RecordMeta,
    is_committed: bool,
}

/// Space that was reserved for a record.
struct Reserved {
    space: RecordSpace,
    /// The cursor of the server that the record concerns, if it concerns one.
    only_reader: Option<Arc<Cursor>>,
}

impl RecordInProgress<'_> {
    fn commit(mut self, head: &RecordHead) -> Nanos {
        self.outbox.memory.write_head(head);
        reach(Point::CommitHead);
        self.is_committed = true;
        self.outbox.ring.commit(&self.outbox.memory, &self.space)
    }

    fn write_pad(&self, start: u64, end: u64) {
        let bytes = u32::try_from(end - start - RECORD_ALIGN).expect("a ring is at most a gibibyte");
        self.outbox.memory.write_head(&self.meta.head(RecordKind::Pad, start, bytes));
    }
}

impl Drop for RecordInProgress<'_> {
    fn drop(&mut self) {
        if !self.is_committed && is_strong(FenceSite::GivenUp) {
            self.write_pad(self.space.record, self.space.end);
            drop(self.outbox.ring.finish(&self.outbox.memory, &self.space));
        }
    }
}

impl RecordMeta {
    /// Head of a record that concerns no server and is not committed.
    fn head(&self, kind: RecordKind, position: u64, data_bytes: u32) -> RecordHead {
        let (view, displacement, offset) = match kind {
            RecordKind::Data => (self.view, self.displacement, self.offset),
            RecordKind::Intent => (0, 0, self.offset),
            RecordKind::Pad => (0, 0, 0),
        };
        RecordHead {
            position,
            kind,
            local_writers: self.local_writers,
            data_bytes,
            object: self.object,
            view,
            displacement,
            offset,
            layout: self.layout,
            concerned: Concerned::default(),
            committed: Nanos(0),
        }
    }
}

impl Outbox {
    /// A new one of `bytes` for a partition of `servers`.
    pub fn create(bytes: usize, servers: usize) -> std::io::Result<Outbox> {
        Ok(Outbox {
            memory: OutboxMemory::create(bytes)?,
            ring: Ring::new(),
            readers: Readers::new(servers),
            turn: Mutex::new(()),
        })
    }

    /// The descriptor to offer to servers.
    pub fn descriptor(&self) -> &OwnedFd {
        self.memory.descriptor()
    }

    pub(super) fn memory(&self) -> &OutboxMemory {
        &self.memory
    }

    /// Largest record; longer writes are several.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX
            .min(usize::try_from(self.memory.capacity() / 4).expect("a capacity fits into memory"))
    }

    /// Largest record that is made where a write must be there as a whole or not at all.
    #[must_use]
    pub fn whole_bytes_max(&self) -> usize {
        super::whole_bytes_max(self.memory.capacity())
    }

    /// Position after the last committed record.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.ring.lock().tail()
    }

    /// Attaches a server; `offer` sends it the start position: the tail, or, for a returning server, its last position if those records
    /// are still in the ring.
    pub fn attach(
        &self,
        server: ServerIndex,
        offer: impl FnOnce(u64) -> Result<Cursor, Fault>,
    ) -> Result<Attached, Fault> {
        self.readers.attach(&self.ring, &self.memory, server, offer)
    }

    /// The same for several servers that were never attached: all offers are sent before the first answer is awaited. Returns the servers
    /// attached now; a failed one is left to the next caller that needs it.
    pub fn attach_new<T>(
        &self,
        servers: &[ServerIndex],
        begin: impl FnMut(ServerIndex, u64) -> Result<T, Fault>,
        end: impl FnMut(ServerIndex, T) -> Result<Cursor, Fault>,
    ) -> Vec<ServerIndex> {
        self.readers.attach_new(&self.ring, servers, begin, end)
    }

    /// Marks a server as dead. Its undrained records wait in the ring for its return, as long as the ring has space.
    pub fn detach(&self, server: ServerIndex) {
        self.readers.detach_if(server, |_| true);
    }

    /// Drops the undrained records of a dead server: they must never be applied later. Returns whether there were any.
    pub fn abandon(&self, server: ServerIndex) -> bool {
        self.readers.abandon(&self.memory, server)
    }

    /// Undrained records of a dead server.
    #[must_use]
    pub fn stopped(&self, server: ServerIndex) -> Option<std::ops::Range<u64>> {
        self.readers.stopped(&self.memory, server)
    }

    /// The cursor of an attached server.
    #[must_use]
    pub fn cursor(&self, server: ServerIndex) -> Option<Arc<Cursor>> {
        self.readers.cursor(server)
    }

    /// The cursor that a server has or last had, by its address, and the errors that it counts.
    #[must_use]
    pub fn counted_errors(&self, server: ServerIndex) -> Option<(usize, u64)> {
        self.readers.counted_errors(server)
    }

    /// Whether `server` has drained its records up to `position`.
    #[must_use]
    pub fn is_drained(&self, server: ServerIndex, position: u64) -> bool {
        self.readers.is_drained(&self.memory, server, position)
    }

    /// Waits until `server` has drained all records up to `position`.
    pub fn wait_drained(
        &self,
        server: ServerIndex,
        position: u64,
        progress: WaitCheck<'_>,
    ) -> Result<(), Fault> {
        self.readers.wait_drained(&self.memory, server, position, progress)
    }

    /// Announces, until the result is dropped, that a thread is in a collective call.
    #[must_use]
    pub fn begin_collective_wait(self: &Arc<Self>) -> CollectiveWait {
        CollectiveWait::begin(Arc::clone(self))
    }

    /// Whether the allocated memory is less than twice the bytes written so far.
    #[must_use]
    pub fn needs_memory(&self) -> bool {
        self.memory.needs_memory()
    }

    /// Allocates that memory in advance, for an idle thread. Best effort.
    pub fn preallocate(&self) {
        self.memory.preallocate();
    }

    /// Copies `data`, bytes of the file, into the ring and commits it. Every server that the record concerns must be attached. Returns
    /// the position after the record.
    pub fn commit(&self, meta: RecordMeta, data: &[u8], progress: WaitCheck<'_>) -> Result<u64, Fault> {
        self.commit_range(meta, data, progress).map(|committed| committed.end)
    }

    /// The same; also returns the time of the commit.
    pub fn commit_range(
        &self,
        meta: RecordMeta,
        data: &[u8],
        progress: WaitCheck<'_>,
    ) -> Result<CommittedRecord, Fault> {
        let entry = RingEntry { kind: RecordKind::Data, meta, bytes: data.len() };
        let range = meta.offset..meta.offset + data.len() as u64;
        let mut pieces = meta.layout.pieces(range.clone());
        let fill: Fill<'_> = &mut |write| write(0, data);
        // A record inside one block, the usual one, concerns one server: no list is allocated.
        match (pieces.next(), pieces.next()) {
            (Some(only), None) => {
                let concern = Concern { server: only.server, bytes: only.bytes };
                self.append(entry, std::slice::from_ref(&concern), fill, progress)
            }
            _ => self.append(entry, &concerns(&meta.layout, range), fill, progress),
        }
    }

    /// The same for `bytes` bytes of a view's stream, which concern some servers and are written by `fill`.
    pub fn commit_stream(
        &self,
        meta: RecordMeta,
        concerns: &[Concern],
        (bytes, fill): (usize, Fill<'_>),
        progress: WaitCheck<'_>,
    ) -> Result<u64, Fault> {
        let entry = RingEntry { kind: RecordKind::Data, meta, bytes };
        self.append(entry, concerns, fill, progress).map(|committed| committed.end)
    }

    pub(super) fn append(
        &self,
        entry: RingEntry,
        concerns: &[Concern],
        fill: Fill<'_>,
        progress: WaitCheck<'_>,
    ) -> Result<CommittedRecord, Fault> {
        assert!(entry.bytes <= self.whole_bytes_max(), "longer writes are split by the caller");
        let data_bytes = u32::try_from(entry.bytes).expect("a record is at most half an outbox");
        let head_bytes = head_bytes(if entry.kind == RecordKind::Data { entry.meta.displacement } else { 0 });
        reach(Point::CommitBegun);
        let Reserved { space, only_reader } =
            self.reserve(span(head_bytes, u64::from(data_bytes)), concerns, progress)?;
        let reserved = RecordInProgress { outbox: self, space, meta: entry.meta, is_committed: false };
        if space.start < space.record {
            reserved.write_pad(space.start, space.record);
        }
        reach(Point::CommitFloor);
        fill(&mut |at, bytes| {
            assert!(at + bytes.len() <= entry.bytes, "data stays inside its record");
            self.memory.write_data(space.record, head_bytes + at, bytes);
        });
        reach(Point::CommitBytes);
        let concerned = Concerned::of(concerns.iter().map(|concern| concern.server));
        let head = RecordHead { concerned, ..entry.meta.head(entry.kind, space.record, data_bytes) };
        let at = reserved.commit(&head);
        reach(Point::CommitTail);
        match (concerns, only_reader) {
            ([only], Some(cursor)) => {
                readers::announce(&cursor, only.bytes, space.end, self.memory.capacity())
            }
            _ => self.readers.announce(concerns, space.end, self.memory.capacity()),
        }
        reach(Point::CommitTold);
        Ok(CommittedRecord { end: space.end, at })
    }

    /// Waits for `need` bytes of space that no server and no thread uses, and reserves them.
    fn reserve(&self, need: u64, concerns: &[Concern], progress: WaitCheck<'_>) -> Result<Reserved, Fault> {
        let _turn = lock(&self.turn);
        let capacity = self.memory.capacity();
        let space = {
            let ring = self.ring.lock();
            let space = ring.next_space(need, capacity);
            let lowest = space.end.saturating_sub(capacity);
            // The usual case: the memory is there and free.
            if self.memory.is_present(space.end) && ring.is_copied(lowest) {
                let slots = self.readers.slots();
                if readers::hindrance(&slots, lowest).is_none() {
                    return self.take(ring, &slots, concerns, space);
                }
            }
            space
        };
        let lowest = space.end.saturating_sub(capacity);
        self.memory.make_present(space.end)?;
        loop {
            self.readers.wait_for_space(&self.memory, lowest, concerns, progress)?;
            let (ring, slots) = (self.ring.lock_copied(lowest), self.readers.slots());
            // A server that returned meanwhile may need records that are still there.
            if readers::hindrance(&slots, lowest).is_none() {
                return self.take(ring, &slots, concerns, space);
            }
        }
    }

    /// Reserves space with free memory.
    fn take(
        &self,
        mut ring: MutexGuard<'_, RingState>,
        slots: &[ServerSlot],
        concerns: &[Concern],
        space: RecordSpace,
    ) -> Result<Reserved, Fault> {
        let lowest = space.end.saturating_sub(self.memory.capacity());
        readers::check_attached(slots, concerns)?;
        readers::check_unread(slots, lowest)?;
        ring.drop_before(&self.memory, lowest);
        // Once more: a server that began to read in between may not have seen the new floor.
        readers::check_unread(slots, lowest)?;
        let only_reader = readers::claim(slots, concerns, space.end);
        ring.reserve(space);
        Ok(Reserved { space, only_reader })
    }

    /// Sets the state of an announced direct write.
    pub(super) fn set_intent(&self, position: u64, state: IntentState) {
        // Dropped with its server: its memory may belong to another record by now.
        let ring = self.ring.lock();
        if ring.floor() <= position {
            self.memory.store(position, RECORD_HEAD_BYTES + 8, state.word());
        }
    }
}

/// The servers that a range of a file concerns.
fn concerns(layout: &Layout, range: std::ops::Range<u64>) -> Vec<Concern> {
    let mut concerns: Vec<Concern> = Vec::new();
    for piece in layout.pieces(range) {
        match concerns.iter_mut().find(|concern| concern.server == piece.server) {
            Some(concern) => concern.bytes += piece.bytes,
            None => concerns.push(Concern { server: piece.server, bytes: piece.bytes }),
        }
    }
    concerns
}
