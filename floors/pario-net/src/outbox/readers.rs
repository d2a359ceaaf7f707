//! The servers that drain an outbox: which are attached, which are dead, and up to where each has drained.
//!
//! Never: waits without checking every 20 ms whether the server is alive. Always: a record without space waits only for servers with
//! undrained records.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pario_core::limits::WAKE_BYTES;
use pario_core::{Clock, Code, Fault, Nanos, ServerIndex};
use pario_sys::clock::MonotonicClock;
use pario_sys::sync::{Condvar, FenceSite, Mutex, MutexGuard, fence, lock};

use super::cursor::Cursor;
use super::memory::OutboxMemory;
use super::outbox_at;

/// A server that a record concerns, and the number of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Concern {
    /// The server.
    pub server: ServerIndex,
    /// How many.
    pub bytes: u64,
}

/// Called while waiting for a server, about every 20 ms with the time waited so far: fails when the server is dead.
pub type WaitCheck<'a> = &'a dyn Fn(ServerIndex, Duration) -> Result<(), Fault>;

/// What became of a server's part in the outbox.
#[derive(Debug)]
pub(super) enum CursorSlot {
    Never,
    Attached(Arc<Cursor>),
    Stopped { taken: u64, wanted: u64, reader: DeadReader },
}

/// A server declared dead that may yet be stopped in the middle of reading the ring.
#[derive(Debug)]
pub(super) struct DeadReader {
    cursor: Arc<Cursor>,
    /// The oldest position that it may be reading.
    from: u64,
}

/// A server of the partition.
#[derive(Debug)]
pub(super) struct ServerSlot {
    pub(super) cursor: CursorSlot,
    /// While the outbox is offered to it: the oldest record that must stay for it, `u64::MAX` if none.
    pub(super) offered_from: Option<u64>,
}

impl ServerSlot {
    fn cursor(&self) -> Option<&Arc<Cursor>> {
        match &self.cursor {
            CursorSlot::Attached(cursor) => Some(cursor),
            CursorSlot::Never | CursorSlot::Stopped { .. } => None,
        }
    }
}

/// Why memory cannot be reused yet.
pub(super) enum Hindrance {
    /// A server has not drained it.
    Undrained(Arc<Cursor>),
    /// It is offered to a returning server.
    Offered,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Readers {
    slots: Mutex<Vec<ServerSlot>>,
    /// An offer has ended.
    pub(super) offered: Condvar,
    clock: MonotonicClock,
}

fn not_drained(server: ServerIndex) -> Fault {
    Fault::new(
        Code::Unreachable,
        format!("server {server} is unreachable and has not drained all of the outbox"),
    )
}

/// Position of a server that was declared dead at `known`: it may have progressed since, and drained records must not be offered
/// again. Once records after `known` were overwritten, its cursor is meaningless: it skips dropped records.
pub(super) fn drained_since(memory: &OutboxMemory, reader: &DeadReader, known: u64) -> u64 {
    let taken = reader.cursor.drained();
    // After the cursor: records present throughout were present when they were drained.
    if memory.floor() <= known { known.max(taken) } else { known }
}

impl Readers {
    pub(super) fn new(servers: usize) -> Readers {
        let slot = |_| ServerSlot { cursor: CursorSlot::Never, offered_from: None };
        let slots = Mutex::new((0..servers).map(slot).collect());
        Readers { slots, offered: Condvar::new(), clock: MonotonicClock }
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Vec<ServerSlot>> {
        lock(&self.slots)
    }

    /// The server is dead.
    pub(super) fn detach_if(&self, server: ServerIndex, is_meant: impl FnOnce(&Arc<Cursor>) -> bool) {
        let slot = &mut self.slots()[server.at()].cursor;
        if let CursorSlot::Attached(cursor) = slot
            && is_meant(cursor)
        {
            let (taken, wanted) = (cursor.drained(), cursor.wanted.load(Ordering::Acquire));
            let reader = DeadReader { cursor: Arc::clone(cursor), from: taken };
            *slot = CursorSlot::Stopped { taken, wanted, reader };
        }
    }

    /// Drops the undrained records of a dead server. Returns whether there were any.
    pub(super) fn abandon(&self, memory: &OutboxMemory, server: ServerIndex) -> bool {
        let slot = &mut self.slots()[server.at()].cursor;
        match slot {
            CursorSlot::Stopped { taken, wanted, reader } => {
                let pending = drained_since(memory, reader, *taken) < *wanted;
                *taken = *wanted;
                pending
            }
            CursorSlot::Never | CursorSlot::Attached(_) => false,
        }
    }

    /// Undrained records of a dead server.
    pub(super) fn stopped(&self, memory: &OutboxMemory, server: ServerIndex) -> Option<Range<u64>> {
        match self.slots().get(server.at()).map(|slot| &slot.cursor) {
            Some(CursorSlot::Stopped { taken, wanted, reader }) => {
                let taken = drained_since(memory, reader, *taken);
                (taken < *wanted).then_some(taken..*wanted)
            }
            Some(CursorSlot::Never | CursorSlot::Attached(_)) | None => None,
        }
    }

    /// The cursor of an attached server.
    pub(super) fn cursor(&self, server: ServerIndex) -> Option<Arc<Cursor>> {
        self.slots().get(server.at()).and_then(ServerSlot::cursor).cloned()
    }

    /// The cursor that a server has or last had, by its address, and the errors that it counts.
    pub(super) fn counted_errors(&self, server: ServerIndex) -> Option<(usize, u64)> {
        let counted = |cursor: &Arc<Cursor>| (Arc::as_ptr(cursor).addr(), cursor.errors());
        match self.slots().get(server.at()).map(|slot| &slot.cursor) {
            Some(CursorSlot::Attached(cursor)) => Some(counted(cursor)),
            Some(CursorSlot::Stopped { reader, .. }) => Some(counted(&reader.cursor)),
            Some(CursorSlot::Never) | None => None,
        }
    }

    /// Whether `server` has drained its records up to `position`.
    pub(super) fn is_drained(&self, memory: &OutboxMemory, server: ServerIndex, position: u64) -> bool {
        match self.slots().get(server.at()).map(|slot| &slot.cursor) {
            Some(CursorSlot::Attached(cursor)) => {
                position.min(cursor.wanted.load(Ordering::Acquire)) <= cursor.drained()
            }
            Some(CursorSlot::Stopped { taken, wanted, reader }) => {
                position.min(*wanted) <= drained_since(memory, reader, *taken)
            }
            Some(CursorSlot::Never) | None => true,
        }
    }

    /// A record up to `end` is committed: wakes the concerned servers with enough pending bytes.
    pub(super) fn announce(&self, concerns: &[Concern], end: u64, capacity: u64) {
        let slots = self.slots();
        for concern in concerns {
            let Some(cursor) = slots.get(concern.server.at()).and_then(ServerSlot::cursor) else { continue };
            announce(cursor, concern.bytes, end, capacity);
        }
    }

    /// Waits until `server` has drained all records up to `position`.
    pub(super) fn wait_drained(
        &self,
        memory: &OutboxMemory,
        server: ServerIndex,
        position: u64,
        progress: WaitCheck<'_>,
    ) -> Result<(), Fault> {
        let started = self.clock.now();
        // Looked up each time: the server may be replaced by a new incarnation during the wait.
        while !self.is_drained(memory, server, position) {
            let cursor = self.cursor(server).ok_or_else(|| not_drained(server))?;
            let goal = position.min(cursor.wanted.load(Ordering::Acquire));
            sleep_for_cursor(memory, &cursor, goal);
            self.check(&cursor, started, progress)?;
        }
        Ok(())
    }

    /// Waits until memory before `lowest` holds no undrained record; every concerned server must be attached. A server found dead
    /// meanwhile does not delay records that do not concern it.
    pub(super) fn wait_for_space(
        &self,
        memory: &OutboxMemory,
        lowest: u64,
        concerns: &[Concern],
        progress: WaitCheck<'_>,
    ) -> Result<(), Fault> {
        let mut started: Option<Nanos> = None;
        loop {
            let slots = self.slots();
            check_attached(&slots, concerns)?;
            let Some(hindrance) = hindrance(&slots, lowest) else { return Ok(()) };
            drop(slots);
            let Hindrance::Undrained(slowest) = hindrance else {
                self.wait_for_offers(self.slots(), |slots| is_offered(slots, lowest));
                continue;
            };
            memory.raise(outbox_at::WAITING_FOR_SPACE, Ordering::Relaxed);
            sleep_for_cursor(memory, &slowest, lowest);
            memory.lower(outbox_at::WAITING_FOR_SPACE);
            let started = *started.get_or_insert_with(|| self.clock.now());
            if let Err(fault) = self.check(&slowest, started, progress) {
                if concerns.iter().any(|concern| concern.server == slowest.server) {
                    return Err(fault);
                }
                self.detach_if(slowest.server, |cursor| Arc::ptr_eq(cursor, &slowest));
            }
        }
    }

    /// Waits while an offer is as described.
    pub(super) fn wait_for_offers(
        &self,
        mut slots: MutexGuard<'_, Vec<ServerSlot>>,
        is_meant: impl Fn(&[ServerSlot]) -> bool,
    ) {
        while is_meant(&slots) {
            slots = self.offered.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(&self, cursor: &Cursor, started: Nanos, progress: WaitCheck<'_>) -> Result<(), Fault> {
        progress(cursor.server, self.clock.now().since(started))
    }
}

/// Whether records before `lowest` are offered to a returning server.
fn is_offered(slots: &[ServerSlot], lowest: u64) -> bool {
    slots.iter().filter_map(|slot| slot.offered_from).any(|from| from < lowest)
}

/// Why memory before `lowest` cannot be reused: it holds a record that a server needs.
pub(super) fn hindrance(slots: &[ServerSlot], lowest: u64) -> Option<Hindrance> {
    if is_offered(slots, lowest) {
        return Some(Hindrance::Offered);
    }
    let behind = slots.iter().filter_map(ServerSlot::cursor).filter(|cursor| cursor.has_undrained());
    let slowest = behind.min_by_key(|cursor| cursor.drained())?;
    (slowest.drained() < lowest).then(|| Hindrance::Undrained(Arc::clone(slowest)))
}

/// From now on the record up to `end` counts as undrained for the servers that it concerns, also while it is copied. Returns the cursor
/// of the only one, if there is one.
pub(super) fn claim(slots: &[ServerSlot], concerns: &[Concern], end: u64) -> Option<Arc<Cursor>> {
    for cursor in concerns.iter().filter_map(|concern| slots[concern.server.at()].cursor()) {
        cursor.wanted.store(end, Ordering::Release);
    }
    let [only] = concerns else { return None };
    slots[only.server.at()].cursor().cloned()
}

/// A record up to `end` with bytes for a server is committed: wakes it if it has enough pending bytes.
pub(super) fn announce(cursor: &Cursor, bytes: u64, end: u64, capacity: u64) {
    let unannounced = cursor.unannounced.fetch_add(bytes, Ordering::Relaxed);
    if WAKE_BYTES <= unannounced + bytes {
        cursor.announce(capacity / 2 <= end.saturating_sub(cursor.drained()));
    }
}

/// Memory before `lowest` is not reused while a server may be reading it, however long ago it was declared dead: it may be stopped
/// between its last check and its system call, and would then write any bytes found there when it continues. The caller sends a message
/// instead.
pub(super) fn check_unread(slots: &[ServerSlot], lowest: u64) -> Result<(), Fault> {
    let is_read = |slot: &ServerSlot| match &slot.cursor {
        CursorSlot::Stopped { reader, .. } => reader.from < lowest && reader.cursor.is_draining(),
        CursorSlot::Never | CursorSlot::Attached(_) => false,
    };
    if slots.iter().any(is_read) {
        return Err(Fault::new(Code::Busy, "a server that does not answer is reading the outbox"));
    }
    Ok(())
}

/// Every server that a record concerns must be attached.
pub(super) fn check_attached(slots: &[ServerSlot], concerns: &[Concern]) -> Result<(), Fault> {
    let is_missing =
        |concern: &&Concern| slots.get(concern.server.at()).and_then(ServerSlot::cursor).is_none();
    concerns.iter().find(is_missing).map_or(Ok(()), |concern| Err(not_drained(concern.server)))
}

/// Sleeps until the server's cursor moves, for a short while.
fn sleep_for_cursor(memory: &OutboxMemory, cursor: &Cursor, position: u64) {
    let moves = cursor.moves();
    // The reason of the wait is announced already.
    memory.raise(outbox_at::WAITING, Ordering::Release);
    // Pairs with the server's fence between advancing its cursor and checking for waiting threads.
    fence(FenceSite::Waiting);
    if cursor.drained() < position {
        cursor.wake();
        cursor.sleep(moves);
    }
    memory.lower(outbox_at::WAITING);
}
