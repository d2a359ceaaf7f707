//! First-touch placement: a block is cached at the server of the process that touched it first; other servers access it there.
//!
//! ```text
//!  access ─┬─ blocks of other servers ─► all owners asked concurrently: remote access, or handover if overwritten
//!          └─ the rest, and blocks that moved meanwhile ─► run by run, each at its owner (walk)
//! ```
//! Never: holds a reservation, a block or the gate while another server is asked; forwards a remote access; accesses the plain file for a
//! block that it does not own. Always: a block leaves only after its bytes are in the plain file, and has no owner only after its home
//! has recorded that.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, Generation, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::MemoryPiece;

use super::owners::{AccessStart, CLAIMED_MAX, Owners, RemoteLookup};
use super::walk::{AccessRoute, Pinned};
use crate::cache::BlockKey;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::peers::{GiveBack, PeerServers, RemoteAccess};
use crate::plain_cache::core::Core;
use crate::plain_cache::file::CachedFile;
use crate::source::PieceReader;
use crate::sync::lock;

/// Concurrent remote reads of one read.
pub(in crate::plain_cache) const REMOTE_READS_MAX: usize = 8;
/// Blocks without cached bytes that a server still owns after a sync, so that they stay where they were.
pub(in crate::plain_cache) const KEPT_MAX: usize = 1 << 16;

/// Visibility of a write to concurrent readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::plain_cache) enum WriteVisibility {
    /// All of it or nothing.
    Atomic,
    /// Block by block.
    PerBlock,
}

/// State of a file with dynamic placement, beside its blocks.
#[derive(Debug)]
pub(in crate::plain_cache) struct DynamicPlacement {
    /// Layout of the blocks' homes.
    pub(in crate::plain_cache) homes: Layout,
    pub(in crate::plain_cache) owners: Owners,
    pub(in crate::plain_cache) peers: Arc<dyn PeerServers>,
    /// Last-writer placement: a server that overwrites whole blocks becomes their owner.
    pub(in crate::plain_cache) follows_writers: bool,
}

impl CachedFile {
    /// `how`: whether atomic readers must see all of it or nothing.
    pub(in crate::plain_cache) fn write(
        &self,
        core: &Core,
        (generation, how): (Generation, WriteVisibility),
        at: u64,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<(), StoreError> {
        let Some(touch) = &self.dynamic else {
            return self.write_here(core, generation, at, pieces).map(|_| ());
        };
        let range = at..at.saturating_add(total_bytes(pieces));
        if range.is_empty() {
            return Ok(());
        }
        self.check_reach(&range)?;
        let object = ObjectId { inode: self.inode, generation };
        let put = |run: Range<u64>, way: AccessRoute| {
            let part = slice_pieces(pieces, (run.start - range.start)..(run.end - range.start));
            match way {
                AccessRoute::Here => self.write_here(core, generation, run.start, &part).map(|_| true),
                AccessRoute::Received => {
                    self.write_received(core, generation, run.start, &part).map(|()| true)
                }
                AccessRoute::Remote(owner, told) => {
                    let visit = RemoteAccess { object, at: LocalOffset(run.start), home_confirmed: told };
                    touch.peers.write(owner, visit, &part).map_err(StoreError::Below)
                }
            }
        };
        let taking = touch.follows_writers.then_some(object);
        let left = match taking {
            Some(object) if how == WriteVisibility::Atomic => {
                self.write_atomic(core, touch, (&range, object), pieces)?;
                Vec::new()
            }
            Some(object) => self.request_all(core, touch, (&range, object), |run| {
                put(self.bytes_of(run), AccessRoute::Received).map(|_| ())
            })?,
            None => vec![range.clone()],
        };
        for part in left {
            self.by_owner(core, touch, (&part, taking), put)?;
        }
        let gate = self.open_gate()?;
        if gate.generation <= generation {
            self.length.fetch_max(range.end, Ordering::AcqRel);
        }
        Ok(())
    }

    pub(in crate::plain_cache) fn read(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let Some(touch) = &self.dynamic else { return self.read_here(core, (generation, at), target, true) };
        let range = at..at.saturating_add(target.len() as u64);
        let object = ObjectId { inode: self.inode, generation };
        for part in self.remote_read_all(core, touch, (&range, object), target)? {
            let target = &mut target[within(&range, part.start)..within(&range, part.end)];
            self.by_owner(core, touch, (&part, None), |run, way| {
                let target = &mut target[within(&part, run.start)..within(&part, run.end)];
                match way {
                    AccessRoute::Here | AccessRoute::Received => {
                        let count = self.read_here(core, (generation, run.start), target, true)?;
                        target[count..].fill(0);
                        Ok(true)
                    }
                    AccessRoute::Remote(owner, told) => {
                        let visit = RemoteAccess { object, at: LocalOffset(run.start), home_confirmed: told };
                        let answer = touch.peers.read(owner, visit, target);
                        answer.and_then(|wait| wait()).map_err(StoreError::Below)
                    }
                }
            })?;
        }
        Ok(target.len())
    }

    /// Reads from other servers concurrently; returns the rest of the range.
    fn remote_read_all(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        (range, object): (&Range<u64>, ObjectId),
        target: &mut [u8],
    ) -> Result<Vec<Range<u64>>, StoreError> {
        self.learn_owners(core, touch, self.blocks(range))?;
        let theirs = touch.owners.with(|table| table.remote_runs(self.blocks(range), REMOTE_READS_MAX));
        let (mut asked, mut rest, mut at) = (Vec::new(), target, range.start);
        for (owner, blocks) in theirs {
            let run = self.bytes_of(blocks.clone());
            let run = run.start.max(range.start)..run.end.min(range.end);
            let (part, behind) =
                rest.split_at_mut(within(&(at..run.end), run.start)).1.split_at_mut(within(&run, run.end));
            (rest, at) = (behind, run.end);
            core.counts.forwards.fetch_add(1, Ordering::Relaxed);
            let visit = RemoteAccess { object, at: LocalOffset(run.start), home_confirmed: false };
            asked.push((owner, blocks, run, touch.peers.read(owner, visit, part)));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (owner, blocks, run, answer) in asked {
            match answer.and_then(|wait| wait()) {
                Ok(true) => {
                    left.push(at..run.start);
                    at = run.end;
                }
                Ok(false) => touch.owners.with(|table| table.forget(blocks, owner)),
                // Await the other answers as well: an unread answer would stay on its connection.
                Err(fault) => result = result.and(Err(StoreError::Below(fault))),
            }
        }
        left.push(at..range.end);
        left.retain(|part| !part.is_empty());
        result.map(|()| left)
    }

    pub(in crate::plain_cache) fn bytes_of(&self, blocks: Range<u64>) -> Range<u64> {
        let bytes = self.placement.block_bytes;
        blocks.start.saturating_mul(bytes)..blocks.end.saturating_mul(bytes)
    }

    /// Access of another server to blocks owned here; false if this server does not own them.
    pub(in crate::plain_cache) fn remote_access(
        &self,
        core: &Core,
        visit: RemoteAccess,
        bytes: u64,
        go: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let Some(touch) = &self.dynamic else { return Ok(false) };
        let Some(end) = visit.at.0.checked_add(bytes).filter(|end| visit.at.0 < *end) else {
            return Err(StoreError::Below(Fault::new(
                Code::Invalid,
                "a remote access to no bytes, or beyond every file",
            )));
        };
        let block = self.placement.block_bytes;
        let blocks = visit.at.0 / block..end.div_ceil(block);
        let come = || Some(touch.owners.look_up_remote(blocks.clone()));
        let learn = || self.learn_run(core, touch, blocks.clone());
        if self.look_up_remote(core, (touch, visit), &blocks, (come, learn))? != Some(RemoteLookup::Owned) {
            return Ok(false);
        }
        let _pinned = Pinned(&touch.owners, blocks);
        core.counts.remote_accesses.fetch_add(1, Ordering::Relaxed);
        go().map(|()| true)
    }

    /// State of blocks for a remote request: `come` looks them up and returns `None` instead of waiting; `learn` asks the home if the
    /// owner is unknown.
    pub(in crate::plain_cache) fn look_up_remote(
        &self,
        core: &Core,
        (touch, visit): (&DynamicPlacement, RemoteAccess),
        blocks: &Range<u64>,
        (come, learn): (impl Fn() -> Option<RemoteLookup>, impl Fn() -> Result<(), StoreError>),
    ) -> Result<Option<RemoteLookup>, StoreError> {
        let mut found = come();
        let doubts =
            || visit.home_confirmed && touch.owners.with(|table| table.forget_remote(blocks.clone()));
        if (found == Some(RemoteLookup::Unknown) && visit.home_confirmed)
            || (found == Some(RemoteLookup::NotOwner) && doubts())
        {
            // The home's answer to an earlier claim may have been lost or delayed: ask it.
            learn()?;
            found = come();
        }
        if matches!(found, Some(RemoteLookup::NotOwner | RemoteLookup::Unknown)) {
            self.report_unreported_run(core, touch, blocks.clone())?;
        }
        Ok(found)
    }

    /// Whether this server owns all blocks of a range.
    pub(in crate::plain_cache) fn owns_range(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks(range);
        self.dynamic.as_ref().is_some_and(|touch| touch.owners.with(|table| table.has(blocks)))
    }

    /// Owns a block, or claims it; it stays until the returned guard is dropped.
    pub(in crate::plain_cache) fn own_block(&self, core: &Core, block: u64) -> Option<impl Drop + '_> {
        let touch = self.dynamic.as_ref()?;
        let blocks = block..block.saturating_add(1);
        for _ in 0..2 {
            match touch.owners.begin(blocks.clone(), |block| self.home(touch, block)) {
                AccessStart::Owned(_) => return Some(Pinned(&touch.owners, blocks)),
                AccessStart::Claim(home, asked) => self.claim_unknown(core, touch, home, &asked).ok()?,
                AccessStart::Report { number, to } => {
                    // A prefetch needs no result: the block belongs to another server in any case.
                    let _ = self.report_handover(core, touch, to, vec![(block, number)]);
                    return None;
                }
                AccessStart::Remote(..) | AccessStart::Pending => return None,
            }
        }
        None
    }

    /// Gives back those of these blocks that are owned without cached bytes.
    pub(in crate::plain_cache) fn give_back(&self, core: &Core, blocks: impl IntoIterator<Item = u64>) {
        let Some(touch) = &self.dynamic else { return };
        let key = |index| BlockKey { inode: self.inode, index };
        let wanted = |block| core.pool.state().ledger.find(key(block)).is_some();
        let leaving = touch.owners.with(|table| table.leave(blocks, wanted));
        for (home, blocks) in self.by_home(touch, leaving) {
            for some in blocks.chunks(CLAIMED_MAX) {
                let told = self.report_give_back(core, touch, home, some);
                touch.owners.with(|table| table.left(some, told));
            }
        }
    }

    /// Gives back all blocks: the file is closed here.
    pub(in crate::plain_cache) fn give_back_all(&self, core: &Core) {
        if let Some(touch) = &self.dynamic {
            self.give_back(core, touch.owners.with(|table| table.owned()));
        }
    }

    /// Reports given-back blocks to their home; returns whether it confirmed.
    fn report_give_back(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        home: ServerIndex,
        blocks: &[(u64, u64)],
    ) -> bool {
        let back = GiveBack { server: self.placement.server, inode: self.inode, blocks: blocks.to_vec() };
        core.counts.handed_back.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        if home == self.placement.server {
            lock(&core.directory).give_back(&back);
            return true;
        }
        let told = touch.peers.give_back(home, &back);
        if let Err(error) = &told {
            tracing::debug!(%error, "the home of given-back blocks did not confirm; the next claim repeats the report");
        }
        told.is_ok()
    }
}

pub(in crate::plain_cache) fn within(range: &Range<u64>, at: u64) -> usize {
    usize::try_from(at - range.start).expect("within the caller's memory")
}

/// A range of the bytes of pieces.
pub(in crate::plain_cache) fn slice_pieces<'a>(
    pieces: &'a [MemoryPiece<'a>],
    range: Range<u64>,
) -> Vec<MemoryPiece<'a>> {
    let (skip, bytes) = (within(&(0..range.end), range.start), within(&range, range.end));
    let mut source = PieceReader::new(pieces);
    source.take(skip);
    source.take(bytes)
}
