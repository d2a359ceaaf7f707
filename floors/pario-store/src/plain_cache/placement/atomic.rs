//! Multi-block atomic access without a lock at the manager: the owners of the blocks keep the order.
//!
//! ```text
//!  write ─► holds its blocks in ascending order: own ones, and others by handover ─► bytes ─► releases all together
//!  read  ─► pins its own blocks ─► requests bytes and versions of the others ─► (several owners: versions unchanged?) ─► its own bytes
//! ```
//! Never: a reader that waits for a block while it has pinned others (it gets a refusal and starts again); a writer that waits for a
//! block below one that it holds. Always: the bytes of a read were all current when the last answer arrived. Non-atomic writers lock at
//! the manager, which excludes these accesses meanwhile (decision 0014).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pario_core::limits::{FILE_BYTES_MAX, FRAME_DATA_BYTES_MAX};
use pario_core::{Clock, Code, Fault, LocalOffset, ObjectId, ServerIndex};
use pario_sys::MemoryPiece;
use pario_sys::clock::MonotonicClock;

use super::first_touch::{DynamicPlacement, REMOTE_READS_MAX, slice_pieces, within};
use super::last_writer::HandoverResult;
use super::owners::RemoteLookup;
use super::walk::Pinned;
use crate::error::StoreError;
use crate::peers::{AtomicReadReply, RemoteAccess};
use crate::placement::{AtomicLookup, HoldStep, RemoteRequest, runs};
use crate::plain_cache::core::Core;
use crate::plain_cache::file::CachedFile;

/// Time limit of an atomic write while owners keep changing. Dead servers have been reported by then.
const HOLDS_MAX: Duration = Duration::from_secs(120);
/// Restarts of a read that met a writer or moved blocks.
const RESTARTS_MAX: u32 = 128;
/// Discarded attempts (a block changed meanwhile) after which a read gives up.
const CHANGES_MAX: u32 = 3;
/// Pause before a refused request is repeated.
const PAUSE: Duration = Duration::from_micros(200);

/// Result of a read's requests to other servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PeerReadResult {
    /// All bytes have arrived and were current together.
    Atomic,
    /// Blocks have moved.
    Moved,
    /// A block is being written.
    Busy,
    /// A block has changed since its bytes arrived.
    Changed,
}

/// Blocks that a write holds, with their ownership numbers.
#[derive(Debug, Default)]
struct HeldBlocks {
    all: Vec<(u64, u64)>,
    /// Blocks handed over by other servers, without bytes.
    received: Vec<(u64, u64)>,
}

impl CachedFile {
    /// Overwrites whole blocks atomically.
    pub(in crate::plain_cache) fn write_atomic(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        (range, object): (&Range<u64>, ObjectId),
        pieces: &[MemoryPiece<'_>],
    ) -> Result<(), StoreError> {
        let bytes = self.placement.block_bytes;
        if !range.start.is_multiple_of(bytes) || !range.end.is_multiple_of(bytes) {
            let text = format!("{}: atomic writes must cover whole blocks", self.plain.path().display());
            return Err(StoreError::Below(Fault::new(Code::Invalid, text)));
        }
        let mut holds = HeldBlocks::default();
        let gathered = self.hold_all(core, touch, (self.blocks(range), object), &mut holds);
        let mut written = Ok(());
        // Blocks handed over have no bytes except these, so they are written even if not all blocks were held; own blocks stay unchanged
        // then.
        for run in runs(if gathered.is_ok() { &holds.all } else { &holds.received }) {
            let run = self.bytes_of(run);
            let part = slice_pieces(pieces, run.start - range.start..run.end - range.start);
            written = written.and(self.write_received(core, object.generation, run.start, &part));
        }
        touch.owners.with(|table| table.release(&holds.all));
        written.and(gathered)
    }

    /// Holds blocks in ascending order. Ends early if the file was truncated since: the rest is stale.
    fn hold_all(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        (blocks, object): (Range<u64>, ObjectId),
        holds: &mut HeldBlocks,
    ) -> Result<(), StoreError> {
        self.learn_owners(core, touch, blocks.clone())?;
        let (mut at, mut tries, mut last) = (blocks.start, 0, self.placement.server);
        let mut began = MonotonicClock.now();
        while at < blocks.end {
            if HOLDS_MAX < MonotonicClock.now().since(began) {
                return Err(self.unknown_owner(touch, at, last));
            }
            match touch.owners.hold(at..blocks.end, |block| self.home(touch, block)) {
                HoldStep::Held(mine) => {
                    (at, tries) = (at + mine.len() as u64, 0);
                    holds.all.extend(mine);
                }
                // In use by a live thread of this process: keep waiting.
                HoldStep::Busy => began = MonotonicClock.now(),
                HoldStep::Remote(owner, run) => {
                    last = owner;
                    let visit = RemoteAccess { object, at: self.offset(at), home_confirmed: 0 < tries };
                    let Some(reaching) = self.send_handover(core, touch, (owner, visit, run)) else {
                        continue;
                    };
                    match self.await_handover(core, touch, reaching)? {
                        HandoverResult::Received(mine, fault) => {
                            at += mine.len() as u64;
                            holds.received.extend(&mine);
                            holds.all.extend(mine);
                            fault.map_or(Ok(()), |fault| Err(StoreError::Below(fault)))?;
                            tries = 0;
                        }
                        HandoverResult::Refused { late: true } => return Ok(()),
                        HandoverResult::Refused { late: false } => {
                            tries += 1;
                            if 1 < tries {
                                touch.owners.wait_for_change(PAUSE);
                            }
                            self.learn_owners(core, touch, at..blocks.end)?;
                        }
                    }
                }
                HoldStep::Claim(home, asked) => self.claim_unknown(core, touch, home, &asked)?,
                HoldStep::Report { number, to } => {
                    self.report_handover(core, touch, to, vec![(at, number)]).map_err(StoreError::Below)?;
                }
            }
        }
        Ok(())
    }

    fn offset(&self, block: u64) -> LocalOffset {
        LocalOffset(block.saturating_mul(self.placement.block_bytes))
    }

    /// Fills `target` atomically; false if too many changes interfere.
    pub(in crate::plain_cache) fn read_atomic(
        &self,
        core: &Core,
        object: ObjectId,
        at: u64,
        target: &mut [u8],
    ) -> Result<bool, StoreError> {
        let Some(touch) = self.dynamic.as_ref().filter(|touch| touch.follows_writers) else {
            return Ok(false);
        };
        let range = self.range_of(at, target.len() as u64)?;
        let (blocks, mut again, mut told) = (self.blocks(&range), 0, false);
        for _ in 0..RESTARTS_MAX {
            self.learn_owners(core, touch, blocks.clone())?;
            let (seen, theirs) = match touch.owners.look_up(blocks.clone()) {
                AtomicLookup::Seen(seen, theirs) => (seen, theirs),
                AtomicLookup::Pending => continue,
                AtomicLookup::Unknown => {
                    self.learn_run(core, touch, blocks.clone())?;
                    continue;
                }
            };
            let pinned: Vec<Pinned<'_>> =
                seen.iter().map(|(block, _)| Pinned(&touch.owners, *block..block + 1)).collect();
            if REMOTE_READS_MAX < theirs.len() {
                return Ok(false);
            }
            let others = self.read_from_owners((core, touch), (&range, object, told), theirs, target)?;
            if others == PeerReadResult::Atomic {
                self.read_pinned(core, (&range, object), &seen, target)?;
                core.counts.atomic_reads.fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
            drop(pinned);
            match others {
                PeerReadResult::Atomic => {}
                PeerReadResult::Moved => told = true,
                PeerReadResult::Busy => touch.owners.wait_for_change(PAUSE),
                PeerReadResult::Changed => {
                    core.counts.atomic_repeats.fetch_add(1, Ordering::Relaxed);
                    again += 1;
                }
            }
            if CHANGES_MAX < again {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Copies the pinned local blocks.
    fn read_pinned(
        &self,
        core: &Core,
        (range, object): (&Range<u64>, ObjectId),
        seen: &[(u64, u64)],
        target: &mut [u8],
    ) -> Result<(), StoreError> {
        for run in runs(seen) {
            let run = self.part_of(range, run);
            let target = &mut target[within(range, run.start)..within(range, run.end)];
            let count = self.read_here(core, (object.generation, run.start), target, true)?;
            target[count..].fill(0);
        }
        Ok(())
    }

    fn part_of(&self, range: &Range<u64>, blocks: Range<u64>) -> Range<u64> {
        let run = self.bytes_of(blocks);
        run.start.max(range.start)..run.end.min(range.end)
    }

    /// Reads from other servers concurrently, and verifies that the bytes were current together.
    fn read_from_owners(
        &self,
        (core, touch): (&Core, &DynamicPlacement),
        (range, object, told): (&Range<u64>, ObjectId, bool),
        theirs: Vec<(ServerIndex, Range<u64>)>,
        target: &mut [u8],
    ) -> Result<PeerReadResult, StoreError> {
        let (mut asked, mut rest, mut at) = (Vec::new(), target, range.start);
        for (owner, blocks) in theirs {
            let run = self.part_of(range, blocks.clone());
            let (part, behind) =
                rest.split_at_mut(within(&(at..run.end), run.start)).1.split_at_mut(within(&run, run.end));
            (rest, at) = (behind, run.end);
            core.counts.forwards.fetch_add(1, Ordering::Relaxed);
            let visit = RemoteAccess { object, at: LocalOffset(run.start), home_confirmed: told };
            asked.push((owner, blocks, run, touch.peers.read_atomic(owner, visit, part)));
        }
        let (mut others, mut stamps, mut result) = (PeerReadResult::Atomic, Vec::new(), Ok(()));
        for (owner, blocks, run, answer) in asked {
            match answer.and_then(|wait| wait()) {
                Ok(AtomicReadReply::Found(stamp)) => stamps.push((owner, run, stamp)),
                Ok(AtomicReadReply::NotMine) => {
                    touch.owners.with(|table| table.forget(blocks, owner));
                    others = PeerReadResult::Moved;
                }
                Ok(AtomicReadReply::Busy) => others = PeerReadResult::Busy,
                // Await the other answers as well: an unread answer would stay on its connection.
                Err(fault) => result = result.and(Err(StoreError::Below(fault))),
            }
        }
        result?;
        if others == PeerReadResult::Atomic { self.are_unchanged(touch, object, &stamps) } else { Ok(others) }
    }

    /// One owner's reply is atomic; replies of several owners are, if no block changed since the last one arrived.
    fn are_unchanged(
        &self,
        touch: &DynamicPlacement,
        object: ObjectId,
        stamps: &[(ServerIndex, Range<u64>, u64)],
    ) -> Result<PeerReadResult, StoreError> {
        if stamps.len() < 2 {
            return Ok(PeerReadResult::Atomic);
        }
        let ask = |(owner, run, stamp): &(ServerIndex, Range<u64>, u64)| {
            let visit = RemoteAccess { object, at: LocalOffset(run.start), home_confirmed: false };
            touch.peers.is_still(*owner, visit, run.end - run.start, *stamp)
        };
        let asked: Vec<_> = stamps.iter().map(ask).collect();
        let mut result = Ok(true);
        for answer in asked {
            let still = answer.and_then(|wait| wait()).map_err(StoreError::Below);
            result = result.and_then(|all| still.map(|still| all && still));
        }
        Ok(if result? { PeerReadResult::Atomic } else { PeerReadResult::Changed })
    }

    /// Atomic read of another server from blocks owned here.
    pub(in crate::plain_cache) fn remote_read_atomic(
        &self,
        core: &Core,
        visit: RemoteAccess,
        target: &mut [u8],
    ) -> Result<AtomicReadReply, StoreError> {
        let Some(touch) = &self.dynamic else { return Ok(AtomicReadReply::NotMine) };
        let blocks = self.blocks(&self.range_of(visit.at.0, target.len() as u64)?);
        let come =
            || touch.owners.with(|table| table.look_up_remote(&mut RemoteRequest::new(blocks.clone())));
        // Never waits for a block: the requester keeps its own blocks pinned.
        let learn = || self.learn_owners(core, touch, blocks.clone());
        match self.look_up_remote(core, (touch, visit), &blocks, (come, learn))? {
            Some(RemoteLookup::Owned) => {}
            Some(RemoteLookup::NotOwner | RemoteLookup::Unknown) => return Ok(AtomicReadReply::NotMine),
            None => return Ok(AtomicReadReply::Busy),
        }
        let _pinned = Pinned(&touch.owners, blocks.clone());
        let Some(stamp) = touch.owners.with(|table| table.version_sum(blocks)) else {
            return Ok(AtomicReadReply::Busy);
        };
        core.counts.remote_accesses.fetch_add(1, Ordering::Relaxed);
        let count = self.read_here(core, (visit.object.generation, visit.at.0), target, false)?;
        target[count..].fill(0);
        Ok(AtomicReadReply::Found(stamp))
    }

    pub(in crate::plain_cache) fn is_unchanged(&self, visit: RemoteAccess, bytes: u64, stamp: u64) -> bool {
        let Some(range) =
            self.range_of(visit.at.0, bytes).ok().filter(|_| bytes <= FRAME_DATA_BYTES_MAX as u64)
        else {
            return false;
        };
        let blocks = self.blocks(&range);
        self.dynamic
            .as_ref()
            .is_some_and(|touch| touch.owners.with(|table| table.version_sum(blocks)) == Some(stamp))
    }

    /// Checks a range named by a peer against the largest file.
    fn range_of(&self, at: u64, bytes: u64) -> Result<Range<u64>, StoreError> {
        let end = at.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        end.map(|end| at..end).ok_or_else(|| {
            let text =
                format!("{}: {bytes} bytes at {at} are beyond every file", self.plain.path().display());
            StoreError::Below(Fault::new(Code::TooLarge, text))
        })
    }
}
