//! Offering the outbox to servers: the exchange of messages holds no lock, and other threads commit meanwhile.
//!
//! Never: two offers to one server at the same time. Always: records that a returning server is offered stay in the ring until the offer
//! ends; they count as undrained.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Fault, ServerIndex};

use super::cursor::Cursor;
use super::memory::OutboxMemory;
use super::readers::{CursorSlot, Readers, drained_since};
use super::ring::{Ring, RingState};

/// A server that drains the outbox (again).
#[derive(Debug)]
pub struct Attached {
    /// Its cursor.
    pub cursor: Arc<Cursor>,
    /// Records at these positions were overwritten before it returned.
    pub lost: Option<Range<u64>>,
}

/// Where a server is to begin.
struct OfferStart {
    from: u64,
    /// The oldest record that must stay until the offer ends; `u64::MAX`: none.
    kept_from: u64,
    lost: Option<Range<u64>>,
}

/// An offer that is being made; it ends with this value.
struct Offer<'a> {
    readers: &'a Readers,
    server: ServerIndex,
    from: u64,
    lost: Option<Range<u64>>,
}

impl Offer<'_> {
    fn accept_from(self, offer: impl FnOnce(u64) -> Result<Cursor, Fault>) -> Result<Attached, Fault> {
        let cursor = offer(self.from)?;
        Ok(self.accept(cursor))
    }

    fn accept(mut self, cursor: Cursor) -> Attached {
        let cursor = Arc::new(cursor);
        let slot = &mut self.readers.slots()[self.server.at()].cursor;
        let wanted = match slot {
            CursorSlot::Stopped { wanted, .. } => self.from.max(*wanted),
            CursorSlot::Never | CursorSlot::Attached(_) => self.from,
        };
        cursor.wanted.store(wanted, Ordering::Relaxed);
        *slot = CursorSlot::Attached(Arc::clone(&cursor));
        Attached { cursor, lost: self.lost.take() }
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.readers.slots()[self.server.at()].offered_from = None;
        self.readers.offered.notify_all();
    }
}

impl Readers {
    /// Offers the outbox to a server with `offer`, which sends it the start position: the tail, or, for a returning server, its last
    /// position if those records are still in the ring.
    pub(super) fn attach(
        &self,
        ring: &Ring,
        memory: &OutboxMemory,
        server: ServerIndex,
        offer: impl FnOnce(u64) -> Result<Cursor, Fault>,
    ) -> Result<Attached, Fault> {
        let start = loop {
            let state = ring.lock();
            let mut slots = self.slots();
            let slot = &mut slots[server.at()];
            if slot.offered_from.is_none() {
                if let CursorSlot::Attached(cursor) = &slot.cursor {
                    return Ok(Attached { cursor: Arc::clone(cursor), lost: None });
                }
                let start = start(&slot.cursor, &state, memory);
                slot.offered_from = Some(start.kept_from);
                break start;
            }
            drop(state);
            // Another thread offers it: its result is that of this one.
            self.wait_for_offers(slots, |slots| slots[server.at()].offered_from.is_some());
        };
        let made = Offer { readers: self, server, from: start.from, lost: start.lost };
        let attached = made.accept_from(offer)?;
        attached.cursor.wake();
        Ok(attached)
    }

    /// The same for several servers that were never attached: all offers are sent before the first answer is awaited. Returns the servers
    /// attached now; a failed one, or one that another thread attaches, is left to the next caller that needs it.
    pub(super) fn attach_new<T>(
        &self,
        ring: &Ring,
        servers: &[ServerIndex],
        mut begin: impl FnMut(ServerIndex, u64) -> Result<T, Fault>,
        mut end: impl FnMut(ServerIndex, T) -> Result<Cursor, Fault>,
    ) -> Vec<ServerIndex> {
        let new: Vec<Offer<'_>> =
            servers.iter().filter_map(|server| self.offer_if_new(ring, *server)).collect();
        let begun: Vec<(Offer<'_>, Result<T, Fault>)> = new
            .into_iter()
            .map(|offer| {
                let begun = begin(offer.server, offer.from);
                (offer, begun)
            })
            .collect();
        let mut attached = Vec::new();
        for (offer, begun) in begun {
            let server = offer.server;
            let Ok(new) = begun.and_then(|begun| offer.accept_from(|_| end(server, begun))) else { continue };
            new.cursor.wake();
            attached.push(server);
        }
        attached
    }

    fn offer_if_new(&self, ring: &Ring, server: ServerIndex) -> Option<Offer<'_>> {
        let state = ring.lock();
        let mut slots = self.slots();
        let slot = slots.get_mut(server.at())?;
        if slot.offered_from.is_some() || !matches!(slot.cursor, CursorSlot::Never) {
            return None;
        }
        slot.offered_from = Some(u64::MAX);
        Some(Offer { readers: self, server, from: state.tail(), lost: None })
    }
}

fn start(slot: &CursorSlot, ring: &RingState, memory: &OutboxMemory) -> OfferStart {
    let at_tail = OfferStart { from: ring.tail(), kept_from: u64::MAX, lost: None };
    let CursorSlot::Stopped { taken, wanted, reader } = slot else { return at_tail };
    let taken = drained_since(memory, reader, *taken);
    match *wanted {
        wanted if wanted <= taken => at_tail,
        _ if ring.floor() <= taken => OfferStart { from: taken, kept_from: taken, lost: None },
        // Records that are being copied are committed after the tail, and not lost.
        wanted => OfferStart { lost: Some(taken..wanted.min(ring.tail())), ..at_tail },
    }
}
