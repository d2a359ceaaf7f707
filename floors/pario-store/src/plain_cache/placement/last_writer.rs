//! Last-writer placement: a server that overwrites whole blocks of another server becomes their owner, without a transfer of bytes.
//!
//! ```text
//!  writer's server ── handover request ──► owner: blocks not in use ─► evicted ─── report ───► home
//!        ▲                                                        │
//!        └── fills them; then they are accessible ◄── granted ────┘
//! ```
//! Never: writes back bytes that are about to be overwritten, except if the writer's server has already synced; holds a reservation, a
//! block or the gate while another server is asked; waits for a block while it requests others. Always: blocks are evicted by their owner
//! before its reply; an owner that handed a block over does not claim it before the home has recorded that; a server that missed the
//! reply finds its ownership at the home, and writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, Generation, LocalOffset, ObjectId, ServerIndex};
use pario_sys::MemoryPiece;

use super::first_touch::{DynamicPlacement, slice_pieces};
use super::owners::HandoverState;
use crate::cache::{BlockKey, SharedBlock};
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::peers::{Handover, HandoverReply, HandoverReport, PendingAnswer, RemoteAccess};
use crate::placement::{HandoverAttempt, HandoverOutcome, runs};
use crate::plain_cache::core::Core;
use crate::plain_cache::file::CachedFile;
use crate::sync::lock;

/// Attempts to report a handover to a home that does not answer.
const REPORTS_MAX: u32 = 3;
/// Truncations that one write survives.
const TRUNCATIONS_MAX: u32 = 32;
/// Runs of blocks requested concurrently.
const HANDOVERS_AT_ONCE: usize = 8;

/// A handover request and its pending answer.
pub(in crate::plain_cache) struct PendingHandover<'a> {
    attempt: HandoverAttempt,
    answer: Result<PendingAnswer<'a, HandoverReply>, Fault>,
}

/// Result of a handover request.
pub(in crate::plain_cache) enum HandoverResult {
    /// These belong to this server, with their ownership numbers; the fault that kept others back.
    Received(Vec<(u64, u64)>, Option<Fault>),
    /// None; whether the write is stale.
    Refused { late: bool },
}

impl CachedFile {
    /// Requests whole blocks of a range from their owners, concurrently, and has `write` fill them. Returns the rest of the range.
    pub(in crate::plain_cache) fn request_all(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        (range, object): (&Range<u64>, ObjectId),
        mut write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let bytes = self.placement.block_bytes;
        self.learn_owners(core, touch, self.blocks(range))?;
        let whole = range.start.div_ceil(bytes)..range.end / bytes;
        let reach = |(owner, blocks): (ServerIndex, Range<u64>)| {
            let visit = RemoteAccess { object, at: LocalOffset(blocks.start * bytes), home_confirmed: false };
            self.send_handover(core, touch, (owner, visit, blocks))
        };
        let theirs = touch.owners.with(|table| table.remote_runs(whole, HANDOVERS_AT_ONCE));
        let reaching: Vec<PendingHandover<'_>> = theirs.into_iter().filter_map(reach).collect();
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for reaching in reaching {
            let blocks = reaching.attempt.blocks.clone();
            match self.finish_handover(core, touch, reaching, &mut write) {
                Ok(true) => {
                    left.push(at..blocks.start * bytes);
                    at = blocks.end * bytes;
                }
                Ok(false) => {}
                // Await the other requests as well: blocks handed over have no bytes except these.
                Err(error) => result = result.and(Err(error)),
            }
        }
        left.push(at..range.end);
        left.retain(|part| !part.is_empty());
        result.map(|()| left)
    }

    /// Requests whole blocks from their owner and has `write` fill them; false if that server did not own them.
    pub(in crate::plain_cache) fn request_run(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        wanted: (ServerIndex, RemoteAccess, Range<u64>),
        write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let reaching = self.send_handover(core, touch, wanted);
        reaching.map_or(Ok(false), |reaching| self.finish_handover(core, touch, reaching, write))
    }

    pub(in crate::plain_cache) fn send_handover<'a>(
        &self,
        core: &Core,
        touch: &'a DynamicPlacement,
        (owner, visit, blocks): (ServerIndex, RemoteAccess, Range<u64>),
    ) -> Option<PendingHandover<'a>> {
        let (syncs, of) = touch.owners.with(|table| table.begin_handover(blocks.clone(), owner))?;
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        let take = Handover { to: self.placement.server, first: visit, blocks: count, syncs, number_sum: of };
        core.counts.handover_requests.fetch_add(1, Ordering::Relaxed);
        Some(PendingHandover {
            attempt: HandoverAttempt::new(owner, take, blocks),
            answer: touch.peers.request_handover(owner, take),
        })
    }

    fn finish_handover(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        reaching: PendingHandover<'_>,
        write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let (mine, fault) = match self.await_handover(core, touch, reaching)? {
            HandoverResult::Received(mine, fault) => (mine, fault),
            HandoverResult::Refused { late } => return Ok(late),
        };
        let written = runs(&mine).into_iter().map(write).fold(Ok(()), Result::and);
        touch.owners.with(|table| table.filled(&mine));
        written?;
        fault.map_or(Ok(true), |fault| Err(StoreError::Below(fault)))
    }

    /// Awaits a handover request: blocks that belong to this server now have no bytes yet and must be filled.
    pub(in crate::plain_cache) fn await_handover(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        PendingHandover { attempt: mut reach, answer }: PendingHandover<'_>,
    ) -> Result<HandoverResult, StoreError> {
        let (owner, blocks) = (reach.owner, reach.blocks.clone());
        let mut heard = reach.answered(answer.and_then(|wait| wait()));
        if let HandoverOutcome::Retry(take) = heard {
            heard = reach.answered(touch.peers.request_handover(owner, take).and_then(|wait| wait()));
        }
        let (mine, fault) = match heard {
            HandoverOutcome::Granted(mine) => (mine, None),
            HandoverOutcome::Refused { late } => {
                touch.owners.with(|table| table.not_received(blocks));
                return Ok(HandoverResult::Refused { late });
            }
            HandoverOutcome::AskHomes(fault) => {
                (self.granted_by_homes(core, touch, blocks.clone()), Some(fault))
            }
            HandoverOutcome::Retry(_) => return Err(self.unknown_owner(touch, blocks.start, owner)),
        };
        touch.owners.with(|table| table.received(&mine));
        let count = blocks.end - blocks.start;
        touch.owners.with(|table| {
            table.not_received(blocks.filter(|block| mine.iter().all(|(own, _)| own != block)))
        });
        let fault = fault.filter(|_| (mine.len() as u64) < count);
        Ok(HandoverResult::Received(mine, fault))
    }

    /// Those of these blocks that their homes record as this server's: they have no bytes except those about to be written.
    fn granted_by_homes(&self, core: &Core, touch: &DynamicPlacement, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let mut mine = Vec::new();
        for (home, blocks) in self.by_home(touch, blocks.map(|block| (block, 0))) {
            let blocks: Vec<u64> = blocks.into_iter().map(|(block, _)| block).collect();
            let Ok(grants) = self.claim(core, touch, home, &blocks) else { continue };
            let own = blocks.iter().zip(grants).filter(|(_, grant)| grant.owner == self.placement.server);
            mine.extend(own.map(|(block, grant)| (*block, grant.number)));
        }
        mine.sort_unstable();
        mine
    }

    /// Writes whole blocks after their handover; a later truncation keeps its part of them.
    pub(in crate::plain_cache) fn write_received(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<(), StoreError> {
        if self.write_here(core, generation, at, pieces)? {
            return Ok(());
        }
        for _ in 0..TRUNCATIONS_MAX {
            let now = self.open_gate()?.generation;
            let left =
                self.announced_length.load(Ordering::Acquire).saturating_sub(at).min(total_bytes(pieces));
            if self.write_here(core, now, at, &slice_pieces(pieces, 0..left))? {
                return Ok(());
            }
        }
        let text = format!(
            "{} was truncated {TRUNCATIONS_MAX} times during one write; retry",
            self.plain.path().display()
        );
        Err(StoreError::Below(Fault::new(Code::Busy, text)))
    }

    /// A sync begins: blocks handed over from now on are written back by their former owners first. Returns the sync's number.
    pub(in crate::plain_cache) fn begin_sync(&self) -> Result<u64, StoreError> {
        let Some(touch) = self.dynamic.as_ref().filter(|touch| touch.follows_writers) else { return Ok(0) };
        touch.owners.begin_sync().ok_or_else(|| {
            let text = format!("{}: a block handover timed out; retry the sync", self.plain.path().display());
            StoreError::Below(Fault::new(Code::Busy, text))
        })
    }

    /// All bytes dirty before that sync began are on storage.
    pub(in crate::plain_cache) fn end_sync(&self, sync: u64) {
        if let Some(touch) = &self.dynamic {
            touch.owners.with(|table| table.end_sync(sync));
        }
    }

    /// Another server overwrites whole blocks owned here: see [`crate::Places::hand_over`].
    pub(in crate::plain_cache) fn hand_over(
        &self,
        core: &Core,
        take: Handover,
        answer: &mut dyn FnMut(HandoverReply),
    ) -> Result<(), StoreError> {
        let blocks = self.requested_blocks(&take)?;
        let refuse = |answer: &mut dyn FnMut(HandoverReply), why| {
            answer(why);
            Ok(())
        };
        let Some(touch) = &self.dynamic else { return refuse(answer, HandoverReply::NotMine) };
        if take.first.object.generation < self.open_gate()?.generation {
            return refuse(answer, HandoverReply::TooLate);
        }
        let mut parted = touch.owners.hand_over(blocks.clone(), take.number_sum);
        let doubts =
            || take.first.home_confirmed && touch.owners.with(|table| table.forget_remote(blocks.clone()));
        if (parted == HandoverState::Unknown && take.first.home_confirmed)
            || (parted == HandoverState::NotOwner && doubts())
        {
            // The home's answer to an earlier claim may have been lost or delayed: ask it. Never waits for a block: its user may wait for
            // a block that the requester is acquiring.
            self.learn_owners(core, touch, blocks.clone())?;
            parted = touch.owners.hand_over(blocks.clone(), take.number_sum);
        }
        let HandoverState::Leaving(leaving) = parted else {
            self.report_unreported_run(core, touch, blocks)?;
            return refuse(answer, HandoverReply::NotMine);
        };
        // No truncation from here on: a write-back must not extend the truncated file.
        let gate = match self.open_gate() {
            Ok(gate) if gate.generation <= take.first.object.generation => gate,
            cut_or_closed => {
                touch.owners.with(|table| table.keep(&leaving));
                return cut_or_closed.and_then(|_| refuse(answer, HandoverReply::TooLate));
            }
        };
        if touch.owners.with(|table| table.synced()) < take.syncs
            && let Err(error) = self.write_back_all(core, &leaving)
        {
            touch.owners.with(|table| table.keep(&leaving));
            return Err(error);
        }
        self.evict_all(core, &leaving);
        drop(gate);
        answer(HandoverReply::Granted(leaving.iter().map(|(_, number)| number + 1).collect()));
        core.counts.handed_over.fetch_add(leaving.len() as u64, Ordering::Relaxed);
        if let Err(fault) = self.report_handover(core, touch, take.to, leaving) {
            // The report is repeated before this server claims the blocks again.
            tracing::debug!(%fault, "the home did not confirm a block handover; the report will be repeated");
        }
        Ok(())
    }

    fn requested_blocks(&self, take: &Handover) -> Result<Range<u64>, StoreError> {
        let bytes = self.placement.block_bytes;
        let first = take.first.at.0 / bytes;
        let end = first.checked_add(u64::from(take.blocks)).filter(|end| first < *end);
        let whole = end.filter(|_| take.first.at.0.is_multiple_of(bytes));
        let odd = || Fault::new(Code::Invalid, "a handover request must name at least one whole block");
        whole.map(|end| first..end).ok_or_else(|| StoreError::Below(odd()))
    }

    /// The requester has already synced: its sync would not find these dirty blocks here any more.
    fn write_back_all(&self, core: &Core, leaving: &[(u64, u64)]) -> Result<(), StoreError> {
        let found = leaving.iter().filter_map(|(index, _)| {
            let key = BlockKey { inode: self.inode, index: *index };
            Some((key, core.pool.state().ledger.find(key)?))
        });
        let found: Vec<(BlockKey, SharedBlock)> = found.collect();
        self.write_back(core, &found)?;
        self.plain.sync()
    }

    /// Evicts blocks: no access finds them in the cache any more, and no write-back writes them.
    fn evict_all(&self, core: &Core, leaving: &[(u64, u64)]) {
        // Requests that wait for memory check again when this ends.
        let _using = core.pool.begin_write_back();
        for (index, _) in leaving {
            let key = BlockKey { inode: self.inode, index: *index };
            let found = core.pool.state().ledger.find(key);
            let Some(found) = found else { continue };
            // Locked by a write-back in progress.
            let mut block = lock(&found);
            let mut state = core.pool.state();
            let in_vain = state.ledger.is_written_behind(key);
            state.ledger.remove(key);
            drop(state);
            block.flushed();
            if in_vain {
                core.wasted_write_behind();
            }
        }
    }

    /// Reports handovers to the homes.
    pub(in crate::plain_cache) fn report_handover(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        to: ServerIndex,
        leaving: Vec<(u64, u64)>,
    ) -> Result<(), Fault> {
        let mut result = Ok(());
        for (home, blocks) in self.by_home(touch, leaving) {
            let pass = HandoverReport { server: self.placement.server, to, inode: self.inode, blocks };
            let tell = || {
                if home != self.placement.server {
                    return touch.peers.report_handover(home, &pass);
                }
                lock(&core.directory).report_handover(&pass);
                Ok(())
            };
            let told = (1..REPORTS_MAX).fold(tell(), |told, _| told.or_else(|_| tell()));
            touch.owners.with(|table| table.handed_over(&pass.blocks, to, told.is_ok()));
            result = result.and(told);
        }
        result
    }

    /// A home sent a request here for blocks that were handed over: repeats the report that it missed.
    pub(in crate::plain_cache) fn report_unreported_run(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        blocks: Range<u64>,
    ) -> Result<(), StoreError> {
        while let Some((block, number, to)) = touch.owners.with(|table| table.unreported(blocks.clone())) {
            self.report_handover(core, touch, to, vec![(block, number)]).map_err(StoreError::Below)?;
        }
        Ok(())
    }

    pub(in crate::plain_cache) fn by_home(
        &self,
        touch: &DynamicPlacement,
        blocks: impl IntoIterator<Item = (u64, u64)>,
    ) -> BTreeMap<ServerIndex, Vec<(u64, u64)>> {
        let mut homes: BTreeMap<ServerIndex, Vec<(u64, u64)>> = BTreeMap::new();
        for (block, number) in blocks {
            homes.entry(self.home(touch, block)).or_default().push((block, number));
        }
        homes
    }
}
