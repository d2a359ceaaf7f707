//! The client's side of an outbox: reserve, copy, commit, wait for servers to take.
//!
//! Never: waits without asking now and then whether the server it waits for lives. Always: a record that does not fit yet
//! waits only for servers that have something to take.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::limits::{
    LARGE_PAGE_BYTES, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN, RECORD_BYTES_MAX, WAKE_BYTES,
};
use pario_core::{Clock, Fault, InodeId, Layout, Nanos, ObjectId, ServerIndex};
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;
use pario_sys::kill_point::{Point, reach};
use pario_sys::shared::{Access, AttachLimit, Shared};
use pario_sys::sync::{Place, fence, publishing};

use super::record::{Concerned, IntentState, RecordHead, RecordKind, head_bytes, span};
use super::{
    CURSOR_BYTES, CURSOR_MAGIC, OUTBOX_HEAD_BYTES, OUTBOX_MAGIC, RECORD_ALIGN, Sleep, cursor_at, outbox_at,
};

/// How long one sleep for a server lasts before its health is looked at.
const NAP: Duration = Duration::from_millis(20);

/// What a record writes to.
#[derive(Clone, Copy, Debug)]
pub struct RecordMeta {
    /// File and generation.
    pub object: ObjectId,
    /// How it lies on the servers.
    pub layout: Layout,
    /// The view's number; 0 is the file's own bytes.
    pub view: u32,
    /// How far behind its place in the file the view is taken to be.
    pub moved: u64,
    /// Where it goes, in the view's stream.
    pub offset: u64,
    /// How many processes of the node write to the file together, this one included; 0 if that is not known.
    pub companions: u16,
}

/// A server that a record concerns, and how many of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Concern {
    /// Which.
    pub server: ServerIndex,
    /// How many.
    pub bytes: u64,
}

/// Puts a record's data where it belongs: it is given a function that copies bytes to an offset in the record.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(usize, &[u8]));

/// One server's cursor and doorbell, as the client sees them.
#[derive(Debug)]
pub struct Cursor {
    server: ServerIndex,
    pub(super) page: Shared,
    doorbell: Doorbell,
    /// Position behind the last record that concerns this server.
    wanted: AtomicU64,
    /// Bytes committed for this server since it was last woken.
    unannounced: AtomicU64,
}

/// Asked while waiting for a server: fails when it is gone. Called about every 20 ms with the time waited so far.
pub type Progress<'a> = &'a dyn Fn(ServerIndex, Duration) -> Result<(), Fault>;

/// What became of a server's part in the outbox.
#[derive(Debug)]
enum Slot {
    Never,
    Attached(Arc<Cursor>),
    Stopped { taken: u64, wanted: u64, reader: Reader },
}

/// A server that is taken for gone, and may yet be stopped in the middle of reading the ring.
#[derive(Debug)]
struct Reader {
    cursor: Arc<Cursor>,
    /// The oldest position that it may be reading.
    from: u64,
}

impl Slot {
    fn cursor(&self) -> Option<&Arc<Cursor>> {
        match self {
            Slot::Attached(cursor) => Some(cursor),
            Slot::Never | Slot::Stopped { .. } => None,
        }
    }
}

/// A server that takes from the outbox (again).
#[derive(Debug)]
pub struct Attached {
    /// Its cursor.
    pub cursor: Arc<Cursor>,
    /// Records of these positions were overwritten before it came back.
    pub lost: Option<std::ops::Range<u64>>,
}

/// The bit that stands for a file among those that may be written behind.
#[must_use]
pub fn write_behind_bit(inode: InodeId) -> u32 {
    1 << (inode.0 % 32)
}

fn gone(server: ServerIndex) -> Fault {
    Fault::new(
        pario_core::Code::Unreachable,
        format!("server {server} is gone and has not taken all of the outbox"),
    )
}

/// The ring as its writer knows it.
#[derive(Debug, Default)]
struct Ring {
    /// Position behind the last record.
    tail: u64,
    /// Where the records begin that are still there, oldest first.
    starts: VecDeque<u64>,
    /// How much of the ring's memory there is: it comes as it is first used.
    present: u64,
}

impl Ring {
    /// The oldest record that is still there.
    fn floor(&self) -> u64 {
        self.starts.front().copied().unwrap_or(self.tail)
    }
}

/// What is put into the ring.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: RecordKind,
    pub(super) meta: RecordMeta,
    pub(super) bytes: usize,
}

/// A process's outbox for one partition.
#[derive(Debug)]
pub struct Outbox {
    segment: Shared,
    descriptor: OwnedFd,
    capacity: u64,
    ring: Mutex<Ring>,
    /// How much of the ring there is memory for; grows without the ring being locked.
    ahead: AtomicU64,
    slots: Mutex<Vec<Slot>>,
    clock: MonotonicClock,
}

impl Cursor {
    /// Maps what a server sent in answer to an offered outbox.
    pub fn attach(server: ServerIndex, page: OwnedFd, doorbell: OwnedFd) -> Result<Cursor, Fault> {
        let limit = AttachLimit { bytes_min: CURSOR_BYTES, bytes_max: CURSOR_BYTES };
        let page = Shared::attach(page, Access::ReadOnly, limit).map_err(|error| {
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
        let taken = page.load_u64(cursor_at::TAKEN, Ordering::Acquire);
        Ok(Cursor { server, page, doorbell, wanted: AtomicU64::new(taken), unannounced: AtomicU64::new(0) })
    }

    /// Position up to which the server has taken everything.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.page.load_u64(cursor_at::TAKEN, Ordering::Acquire)
    }

    /// Whether there are records for this server that it has not taken.
    fn is_behind(&self) -> bool {
        self.taken() < self.wanted.load(Ordering::Acquire)
    }

    /// Errors that the server met with this outbox's records, ever.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.page.load_u64(cursor_at::ERRORS, Ordering::Acquire)
    }

    /// Whether the server has reserved room, so that writes may return before they are taken.
    #[must_use]
    pub fn may_write_behind(&self, inode: InodeId) -> bool {
        self.page.load_u32(cursor_at::WRITE_BEHIND, Ordering::Acquire) & write_behind_bit(inode) != 0
    }

    /// The same, asked behind a commit: if it says yes, whoever takes the permission away from then on sees the record.
    #[must_use]
    pub fn might_write_behind(&self, inode: InodeId) -> bool {
        // Pairs with the server's fence between taking the permission away and looking at the tails.
        fence(Place::Permission);
        self.may_write_behind(inode)
    }

    /// Wakes the server if it sleeps.
    pub fn wake(&self) {
        self.wake_unless(|_| false);
    }

    /// The same, but one that rests is left alone while less than half of the outbox is used: it looks by itself soon.
    fn announce(&self, is_half: bool) {
        self.wake_unless(|asleep| asleep == Sleep::Resting as u32 && !is_half);
    }

    fn wake_unless(&self, may_rest: impl FnOnce(u32) -> bool) {
        // Pairs with the server's fence between saying that it sleeps and looking at the tails a last time.
        fence(Place::Wake);
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
}

impl Outbox {
    /// A new one of `bytes` for a partition of `servers`.
    pub fn create(bytes: usize, servers: usize) -> std::io::Result<Outbox> {
        let capacity = bytes.clamp(OUTBOX_BYTES_MIN, OUTBOX_BYTES_MAX).next_multiple_of(4096);
        // A process that writes little needs little, and its first write does not wait for all.
        let first = whole_pages(1, capacity as u64);
        let (segment, descriptor) =
            Shared::create_in_steps("pario-outbox", OUTBOX_HEAD_BYTES + capacity, place_in_segment(first))?;
        segment.store_u64(outbox_at::CAPACITY, capacity as u64, Ordering::Relaxed);
        segment.store_u64(outbox_at::MAGIC, OUTBOX_MAGIC, Ordering::Release);
        let slots = Mutex::new((0..servers).map(|_| Slot::Never).collect());
        Ok(Outbox {
            segment,
            descriptor,
            capacity: capacity as u64,
            ring: Mutex::new(Ring { present: first, ..Ring::default() }),
            ahead: AtomicU64::new(first),
            slots,
            clock: MonotonicClock,
        })
    }

    /// The descriptor to offer to servers.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Largest record; longer writes are several.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        RECORD_BYTES_MAX.min(usize::try_from(self.capacity / 4).expect("a capacity fits into memory"))
    }

    /// Largest record that is made where a write must be there as a whole or not at all.
    #[must_use]
    pub fn whole_bytes_max(&self) -> usize {
        super::whole_bytes_max(self.capacity)
    }

    /// Position behind the last record.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.lock().tail
    }

    /// Holds back commits while a server is being attached and `offer` tells it where to start: at the tail, or, for a
    /// server that came back, where it had stopped if those records are still in the ring.
    pub fn attach(
        &self,
        server: ServerIndex,
        offer: impl FnOnce(u64) -> Result<Cursor, Fault>,
    ) -> Result<Attached, Fault> {
        let ring = self.lock();
        let (from, lost) = match &self.slots()[server.at()] {
            Slot::Never => (ring.tail, None),
            Slot::Attached(cursor) => return Ok(Attached { cursor: Arc::clone(cursor), lost: None }),
            Slot::Stopped { taken, wanted, reader } => {
                let taken = self.taken_since(reader, *taken);
                match *wanted {
                    wanted if wanted <= taken => (ring.tail, None),
                    _ if ring.floor() <= taken => (taken, None),
                    wanted => (ring.tail, Some(taken..wanted)),
                }
            }
        };
        let cursor = Arc::new(offer(from)?);
        cursor.wanted.store(ring.tail, Ordering::Relaxed);
        self.slots()[server.at()] = Slot::Attached(Arc::clone(&cursor));
        drop(ring);
        cursor.wake();
        Ok(Attached { cursor, lost })
    }

    /// The same for several servers that were never attached: all are told before the first answer is waited for. Returns those that are
    /// attached now; one that fails is left to whoever needs it.
    pub fn attach_new<T>(
        &self,
        servers: &[ServerIndex],
        mut begin: impl FnMut(ServerIndex, u64) -> Result<T, Fault>,
        mut end: impl FnMut(ServerIndex, T) -> Result<Cursor, Fault>,
    ) -> Vec<ServerIndex> {
        let ring = self.lock();
        let is_new = |server: &&ServerIndex| matches!(self.slots().get(server.at()), Some(Slot::Never));
        let new: Vec<ServerIndex> = servers.iter().filter(is_new).copied().collect();
        let begun: Vec<(ServerIndex, Result<T, Fault>)> =
            new.into_iter().map(|server| (server, begin(server, ring.tail))).collect();
        let mut attached = Vec::new();
        for (server, begun) in begun {
            let Ok(cursor) = begun.and_then(|begun| end(server, begun)).map(Arc::new) else { continue };
            cursor.wanted.store(ring.tail, Ordering::Relaxed);
            self.slots()[server.at()] = Slot::Attached(Arc::clone(&cursor));
            attached.push((server, cursor));
        }
        drop(ring);
        attached.iter().for_each(|(_, cursor)| cursor.wake());
        attached.into_iter().map(|(server, _)| server).collect()
    }

    /// How far a server came that was taken for gone at `known`: it may have gone on since, and what it took must not be offered again.
    /// Once records behind `known` made way for others, its cursor says nothing: it passes over what is not there any more.
    fn taken_since(&self, reader: &Reader, known: u64) -> u64 {
        let taken = reader.cursor.taken();
        // Behind the cursor: what was there all the time was there when it was taken.
        let floor = self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire);
        if floor <= known { known.max(taken) } else { known }
    }

    /// Notes that a server is gone. What it had not taken waits in the ring for its return, as long as the ring has room.
    pub fn detach(&self, server: ServerIndex) {
        self.detach_if(server, |_| true);
    }

    fn detach_if(&self, server: ServerIndex, is_meant: impl FnOnce(&Arc<Cursor>) -> bool) {
        let slot = &mut self.slots()[server.at()];
        if let Slot::Attached(cursor) = slot
            && is_meant(cursor)
        {
            let (taken, wanted) = (cursor.taken(), cursor.wanted.load(Ordering::Acquire));
            let reader = Reader { cursor: Arc::clone(cursor), from: taken };
            *slot = Slot::Stopped { taken, wanted, reader };
        }
    }

    /// Gives up what a gone server had not taken: it must never be applied later. Returns whether there was something.
    pub fn abandon(&self, server: ServerIndex) -> bool {
        let slot = &mut self.slots()[server.at()];
        match slot {
            Slot::Stopped { taken, wanted, reader } => {
                let pending = self.taken_since(reader, *taken) < *wanted;
                *taken = *wanted;
                pending
            }
            Slot::Never | Slot::Attached(_) => false,
        }
    }

    /// What a server that is gone has not taken.
    #[must_use]
    pub fn stopped(&self, server: ServerIndex) -> Option<std::ops::Range<u64>> {
        match self.slots().get(server.at()) {
            Some(Slot::Stopped { taken, wanted, reader }) => {
                let taken = self.taken_since(reader, *taken);
                (taken < *wanted).then_some(taken..*wanted)
            }
            Some(Slot::Never | Slot::Attached(_)) | None => None,
        }
    }

    /// The cursor of an attached server.
    #[must_use]
    pub fn cursor(&self, server: ServerIndex) -> Option<Arc<Cursor>> {
        match self.slots().get(server.at()) {
            Some(Slot::Attached(cursor)) => Some(Arc::clone(cursor)),
            Some(Slot::Never | Slot::Stopped { .. }) | None => None,
        }
    }

    /// The cursor that a server has or last had, by its address, and the errors that it counts.
    #[must_use]
    pub fn counted_errors(&self, server: ServerIndex) -> Option<(usize, u64)> {
        let counted = |cursor: &Arc<Cursor>| (Arc::as_ptr(cursor).addr(), cursor.errors());
        match self.slots().get(server.at()) {
            Some(Slot::Attached(cursor)) => Some(counted(cursor)),
            Some(Slot::Stopped { reader, .. }) => Some(counted(&reader.cursor)),
            Some(Slot::Never) | None => None,
        }
    }

    /// Position up to which `server` has taken what concerns it.
    #[must_use]
    pub fn is_taken(&self, server: ServerIndex, position: u64) -> bool {
        match self.slots().get(server.at()) {
            Some(Slot::Attached(cursor)) => {
                position.min(cursor.wanted.load(Ordering::Acquire)) <= cursor.taken()
            }
            Some(Slot::Stopped { taken, wanted, reader }) => {
                position.min(*wanted) <= self.taken_since(reader, *taken)
            }
            Some(Slot::Never) | None => true,
        }
    }

    /// Copies `data`, bytes of the file, into the ring and commits it. Every server that the record concerns must be attached.
    /// Returns the position behind the record.
    pub fn commit(&self, meta: RecordMeta, data: &[u8], progress: Progress<'_>) -> Result<u64, Fault> {
        let concerns = concerns(&meta.layout, meta.offset..meta.offset + data.len() as u64);
        self.commit_stream(meta, &concerns, (data.len(), &mut |write| write(0, data)), progress)
    }

    /// The same for `bytes` bytes of a view's stream, which concern some servers and are put in place by `fill`.
    pub fn commit_stream(
        &self,
        meta: RecordMeta,
        concerns: &[Concern],
        (bytes, fill): (usize, Fill<'_>),
        progress: Progress<'_>,
    ) -> Result<u64, Fault> {
        self.put(Entry { kind: RecordKind::Data, meta, bytes }, concerns, fill, progress)
    }

    pub(super) fn put(
        &self,
        entry: Entry,
        concerns: &[Concern],
        fill: Fill<'_>,
        progress: Progress<'_>,
    ) -> Result<u64, Fault> {
        assert!(entry.bytes <= self.whole_bytes_max(), "longer writes are split by the caller");
        let data_bytes = u32::try_from(entry.bytes).expect("a record is at most half an outbox");
        let head_bytes = head_bytes(if entry.kind == RecordKind::Data { entry.meta.moved } else { 0 });
        let need = span(head_bytes, u64::from(data_bytes));
        let mut ring = self.lock();
        self.check_attached(concerns)?;
        let room_to_end = self.capacity - ring.tail % self.capacity;
        let pad = if room_to_end < need { room_to_end } else { 0 };
        self.make_present(&mut ring, pad + need)?;
        reach(Point::CommitBegun);
        self.wait_for_room(ring.tail + pad + need, concerns, progress)?;
        self.check_attached(concerns)?;
        self.check_unread(&ring, pad + need)?;
        self.give_up_oldest(&mut ring, pad + need);
        // Once more: one that began to read in between may not have seen the new floor.
        self.check_unread(&ring, pad + need)?;
        reach(Point::CommitFloor);
        if 0 < pad {
            self.write_head(
                ring.tail,
                (RecordKind::Pad, pad - RECORD_ALIGN),
                Concerned::default(),
                entry.meta,
            );
            let start = ring.tail;
            ring.starts.push_back(start);
            ring.tail += pad;
        }
        let start = ring.tail;
        let data_at = self.place(start) + head_bytes;
        fill(&mut |at, bytes| {
            assert!(at + bytes.len() <= entry.bytes, "data stays inside its record");
            self.segment.write_once(data_at + at, bytes);
        });
        reach(Point::CommitBytes);
        let concerned = Concerned::of(concerns.iter().map(|concern| concern.server));
        self.write_head(start, (entry.kind, u64::from(data_bytes)), concerned, entry.meta);
        reach(Point::CommitHead);
        ring.starts.push_back(start);
        ring.tail += need;
        let end = ring.tail;
        self.segment.store_u64(outbox_at::TAIL, end, publishing(Place::Tail));
        reach(Point::CommitTail);
        self.tell_servers(end, concerns);
        reach(Point::CommitTold);
        drop(ring);
        Ok(end)
    }

    /// Says how far an announced direct write has come.
    pub(super) fn set_intent(&self, position: u64, state: IntentState) {
        // Given up with its server: its memory may be another record's by now.
        let ring = self.lock();
        if ring.floor() <= position {
            let at = self.place(position) + super::RECORD_HEAD_BYTES + 8;
            self.segment.store_u64(at, state.word(), Ordering::Release);
        }
    }

    /// Sees to it that there is memory for as much behind the last record. Where there is none, the caller sends a message instead.
    fn make_present(&self, ring: &mut Ring, need: u64) -> Result<(), Fault> {
        let wanted = (ring.tail + need).min(self.capacity);
        ring.present = ring.present.max(self.ahead.load(Ordering::Acquire));
        if wanted <= ring.present {
            return Ok(());
        }
        let end = whole_pages(wanted.max(ring.present * 2), self.capacity);
        self.get_memory(ring.present..end).map_err(|error| {
            Fault::new(pario_core::Code::Busy, format!("no memory for more of the outbox: {error}"))
        })?;
        ring.present = end;
        self.ahead.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Whether there should be memory for as much again as has been written so far, and is not.
    #[must_use]
    pub fn wants_memory(&self) -> bool {
        self.ahead.load(Ordering::Acquire) < self.memory_goal()
    }

    /// Makes that memory, so that whoever writes next finds it: for a thread that has nothing else to do. Does what can be done.
    pub fn make_memory_ahead(&self) {
        let ahead = self.ahead.load(Ordering::Acquire);
        let end = whole_pages(self.memory_goal(), self.capacity);
        if end <= ahead || self.get_memory(ahead..end).is_err() {
            // Whoever needs it will be told.
            return;
        }
        self.segment.prefault(place_in_segment(ahead)..place_in_segment(end));
        self.ahead.fetch_max(end, Ordering::AcqRel);
    }

    fn get_memory(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        let place = place_in_segment(range.start)..place_in_segment(range.end);
        self.segment.make_present(&self.descriptor, place)
    }

    fn memory_goal(&self) -> u64 {
        let tail = self.segment.load_u64(outbox_at::TAIL, Ordering::Relaxed);
        tail.saturating_mul(2).min(self.capacity)
    }

    /// Memory is not used again while a server may be reading it, however long ago it was taken for gone: it may be stopped between
    /// its last look and its system call, and would then write whatever is there when it goes on. The caller sends a message instead.
    fn check_unread(&self, ring: &Ring, need: u64) -> Result<(), Fault> {
        let lowest = (ring.tail + need).saturating_sub(self.capacity);
        let is_read = |slot: &Slot| match slot {
            Slot::Stopped { reader, .. } => reader.from < lowest && reader.cursor.is_taking(),
            Slot::Never | Slot::Attached(_) => false,
        };
        if self.slots().iter().any(is_read) {
            return Err(Fault::new(
                pario_core::Code::Busy,
                "a server that does not answer is reading the outbox",
            ));
        }
        Ok(())
    }

    /// Forgets records whose memory is needed, and says so before it is overwritten: a server that had nothing to do with them,
    /// or was taken for gone, must not look there any more.
    fn give_up_oldest(&self, ring: &mut Ring, need: u64) {
        let lowest = (ring.tail + need).saturating_sub(self.capacity);
        while ring.starts.front().is_some_and(|start| *start < lowest) {
            ring.starts.pop_front();
        }
        self.segment.store_u64(outbox_at::FLOOR, ring.floor(), Ordering::Release);
        fence(Place::Floor);
    }

    /// Says, until what it returns is dropped, that a thread is in a call that all members of its group make.
    #[must_use]
    pub fn gather(self: &Arc<Self>) -> Gathering {
        self.segment.fetch_add_u64(outbox_at::GATHERING, 1, Ordering::Relaxed);
        Gathering(Arc::clone(self))
    }

    /// Waits until `server` has taken everything up to `position`.
    pub fn wait_taken(
        &self,
        server: ServerIndex,
        position: u64,
        progress: Progress<'_>,
    ) -> Result<(), Fault> {
        let started = self.clock.now();
        // Looked up each time: the server may be replaced by a new life while we wait.
        while !self.is_taken(server, position) {
            let cursor = self.cursor(server).ok_or_else(|| gone(server))?;
            let goal = position.min(cursor.wanted.load(Ordering::Acquire));
            self.nap(&cursor, goal);
            self.check(&cursor, started, progress)?;
        }
        Ok(())
    }

    /// Every server that the record concerns must be there to take it.
    fn check_attached(&self, concerns: &[Concern]) -> Result<(), Fault> {
        let slots = self.slots();
        let is_missing = |concern: &&Concern| slots.get(concern.server.at()).and_then(Slot::cursor).is_none();
        concerns.iter().find(is_missing).map_or(Ok(()), |concern| Err(gone(concern.server)))
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, position: u64) -> usize {
        place_in_segment(position % self.capacity)
    }

    fn write_head(
        &self,
        position: u64,
        (kind, data_bytes): (RecordKind, u64),
        concerned: Concerned,
        meta: RecordMeta,
    ) {
        let head = RecordHead {
            position,
            kind,
            companions: meta.companions,
            data_bytes: u32::try_from(data_bytes).expect("a ring is at most a gibibyte"),
            object: meta.object,
            view: if kind == RecordKind::Data { meta.view } else { 0 },
            moved: if kind == RecordKind::Data { meta.moved } else { 0 },
            offset: if kind == RecordKind::Pad { 0 } else { meta.offset },
            layout: meta.layout,
            concerned,
            committed: self.clock.now(),
        };
        self.segment.write(self.place(position), &head.encode());
        if head.moved != 0 {
            self.segment.write(self.place(position) + super::RECORD_HEAD_BYTES, &head.moved.to_le_bytes());
        }
    }

    /// Waits until a record that ends at `end` overwrites nobody's. A server that is found to be gone meanwhile keeps
    /// no record waiting that wants nothing of it.
    fn wait_for_room(&self, end: u64, concerns: &[Concern], progress: Progress<'_>) -> Result<(), Fault> {
        let floor = end.saturating_sub(self.capacity);
        let mut started: Option<Nanos> = None;
        while let Some(slowest) = self.slowest() {
            if floor <= slowest.taken() {
                return Ok(());
            }
            self.segment.fetch_add_u64(outbox_at::WANTS_ROOM, 1, Ordering::Relaxed);
            self.nap(&slowest, floor);
            self.segment.fetch_add_u64(outbox_at::WANTS_ROOM, u64::MAX, Ordering::Relaxed);
            let started = *started.get_or_insert_with(|| self.clock.now());
            if let Err(fault) = self.check(&slowest, started, progress) {
                if concerns.iter().any(|concern| concern.server == slowest.server) {
                    return Err(fault);
                }
                self.detach_if(slowest.server, |cursor| Arc::ptr_eq(cursor, &slowest));
            }
        }
        Ok(())
    }

    /// The attached server that is furthest behind with records that concern it.
    fn slowest(&self) -> Option<Arc<Cursor>> {
        let slots = self.slots();
        let behind = slots.iter().filter_map(Slot::cursor).filter(|cursor| cursor.is_behind());
        behind.min_by_key(|cursor| cursor.taken()).cloned()
    }

    /// Sleeps until the server's cursor moves, for a short while.
    fn nap(&self, cursor: &Cursor, position: u64) {
        let turn = cursor.page.load_u32(cursor_at::TURN, Ordering::Acquire);
        // What it waits for is said already.
        self.segment.fetch_add_u64(outbox_at::WAITING, 1, Ordering::Release);
        // Pairs with the server's fence between moving its cursor and looking whether somebody waits.
        fence(Place::Waiting);
        if cursor.taken() < position {
            cursor.wake();
            // Woken, timed out or too late: the caller looks at the cursor in any case.
            let _ = cursor.page.futex_wait(cursor_at::TURN, turn, Some(NAP));
        }
        self.segment.fetch_add_u64(outbox_at::WAITING, u64::MAX, Ordering::Relaxed);
    }

    fn check(&self, cursor: &Cursor, started: Nanos, progress: Progress<'_>) -> Result<(), Fault> {
        progress(cursor.server, self.clock.now().since(started))
    }

    /// Notes what the record wants of which server and wakes those that have enough to do.
    fn tell_servers(&self, end: u64, concerns: &[Concern]) {
        let mut slots = self.slots();
        for concern in concerns {
            match slots.get_mut(concern.server.at()) {
                Some(Slot::Attached(cursor)) => {
                    cursor.wanted.store(end, Ordering::Release);
                    let unannounced = cursor.unannounced.fetch_add(concern.bytes, Ordering::Relaxed);
                    if WAKE_BYTES <= unannounced + concern.bytes {
                        cursor.announce(self.capacity / 2 <= end.saturating_sub(cursor.taken()));
                    }
                }
                // It went a moment ago: the record waits for its return like those before it.
                Some(Slot::Stopped { wanted, .. }) => *wanted = end,
                Some(Slot::Never) | None => {}
            }
        }
    }
}

/// A thread is in a call that all members of its group make; see [`Outbox::gather`].
#[derive(Debug)]
pub struct Gathering(Arc<Outbox>);

impl Gathering {
    /// Waits until `server` has taken everything up to `position`, as part of the call.
    pub fn wait_taken(
        &self,
        server: ServerIndex,
        position: u64,
        progress: Progress<'_>,
    ) -> Result<(), Fault> {
        let segment = &self.0.segment;
        segment.fetch_add_u64(outbox_at::WAITING_TOGETHER, 1, Ordering::Relaxed);
        let waited = self.0.wait_taken(server, position, progress);
        segment.fetch_add_u64(outbox_at::WAITING_TOGETHER, u64::MAX, Ordering::Relaxed);
        waited
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.0.segment.fetch_add_u64(outbox_at::GATHERING, u64::MAX, Ordering::Relaxed);
    }
}

/// The end of the page of memory, a large one, that a place of the ring lies in; the ring's end if that comes first.
fn whole_pages(end: u64, capacity: u64) -> u64 {
    let head = OUTBOX_HEAD_BYTES as u64;
    let pages = (head + end).next_multiple_of(LARGE_PAGE_BYTES as u64);
    (pages - head).min(capacity)
}

fn place_in_segment(at: u64) -> usize {
    OUTBOX_HEAD_BYTES + usize::try_from(at).expect("a capacity fits into memory")
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
