//! Route of an access to the owners of the blocks that it touches.
//!
//! ```text
//!  run of blocks ─┬─ owned ─► blocks of this server's cache
//!                 ├─ remote ► remote access at the owner ── "not the owner" ─► ask the home again
//!                 │           (or, with last-writer placement and whole blocks: handover)
//!                 └─ no owner: claim at the home, which grants it
//! ```
//! `OwnerWalk` decides the next step. Never: holds a reservation, a block or the gate while another server is asked. Always:
//! progresses, or gives up after too many changes of owner with an error that names the servers.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, LocalOffset, ObjectId, ServerIndex};

use super::first_touch::DynamicPlacement;
use super::owners::{AccessStart, Owners};
use crate::error::StoreError;
use crate::peers::{Claim, Grant, RemoteAccess};
use crate::placement::{OwnerWalk, WalkStep};
use crate::plain_cache::core::Core;
use crate::plain_cache::file::CachedFile;
use crate::sync::lock;

/// Most blocks of one file that a server owns.
const OWNED_MAX: usize = 1 << 20;
/// Where a part of an access is carried out.
pub(in crate::plain_cache) enum AccessRoute {
    Here,
    /// Here, in whole blocks just handed over by another server: they have no bytes except these.
    Received,
    /// At another server; whether the home has just named it.
    Remote(ServerIndex, bool),
}

/// Blocks that are not evicted meanwhile.
pub(in crate::plain_cache) struct Pinned<'a>(
    pub(in crate::plain_cache) &'a Owners,
    pub(in crate::plain_cache) Range<u64>,
);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.with(|table| table.end(self.1.clone()));
    }
}

impl CachedFile {
    /// Walks through a range, each run of blocks at its owner. `go` returns whether that server was still the owner. With last-writer
    /// placement, `taking` names the written object: whole blocks are handed over.
    pub(in crate::plain_cache) fn by_owner(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        (range, taking): (&Range<u64>, Option<ObjectId>),
        mut go: impl FnMut(Range<u64>, AccessRoute) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let (bytes, own) = (self.placement.block_bytes, self.placement.server);
        self.learn_owners(core, touch, self.blocks(range))?;
        let mut walk = OwnerWalk::new(range, bytes, own, taking.is_some());
        while let Some(blocks) = walk.rest() {
            if walk.is_lost() {
                return Err(self.unknown_owner(touch, blocks.start, walk.last()));
            }
            match walk.step(touch.owners.begin(blocks.clone(), |block| self.home(touch, block))) {
                WalkStep::Here { run, end } => {
                    let _pinned = Pinned(&touch.owners, blocks.start..end);
                    go(run, AccessRoute::Here)?;
                    walk.advance(end);
                }
                WalkStep::Handover { owner, blocks, told } => {
                    let Some(object) = taking else {
                        return Err(self.unknown_owner(touch, blocks.start, owner));
                    };
                    let visit =
                        RemoteAccess { object, at: LocalOffset(blocks.start * bytes), home_confirmed: told };
                    let fill = |run: Range<u64>| {
                        go(run.start * bytes..run.end * bytes, AccessRoute::Received).map(|_| ())
                    };
                    match self.request_run(core, touch, (owner, visit, blocks.clone()), fill)? {
                        true => walk.advance(blocks.end),
                        false => walk.retry(owner),
                    }
                }
                WalkStep::Remote { owner, run, end, told } => {
                    core.counts.forwards.fetch_add(1, Ordering::Relaxed);
                    if go(run, AccessRoute::Remote(owner, told))? {
                        walk.advance(end);
                        continue;
                    }
                    touch.owners.with(|table| table.forget(blocks.start..end, owner));
                    walk.retry(owner);
                }
                WalkStep::Claim(home, asked) => self.claim_unknown(core, touch, home, &asked)?,
                WalkStep::Report { number, to } => {
                    self.report_unreported(core, touch, to, (blocks.start, number))?
                }
                WalkStep::Wait => return Err(self.unknown_owner(touch, blocks.start, walk.last())),
            }
        }
        Ok(())
    }

    /// Asks all homes of blocks with unknown owners, so that runs are as long as possible.
    pub(in crate::plain_cache) fn learn_owners(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        blocks: Range<u64>,
    ) -> Result<(), StoreError> {
        while let Some((home, asked)) =
            touch.owners.with(|table| table.unknown(blocks.clone(), |block| self.home(touch, block)))
        {
            self.claim_unknown(core, touch, home, &asked)?;
        }
        Ok(())
    }

    /// Learns the owners of blocks.
    pub(in crate::plain_cache) fn learn_run(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        blocks: Range<u64>,
    ) -> Result<(), StoreError> {
        let mut at = blocks.start;
        while at < blocks.end {
            match touch.owners.begin(at..blocks.end, |block| self.home(touch, block)) {
                AccessStart::Owned(end) => {
                    touch.owners.with(|table| table.end(at..end));
                    at = end;
                }
                AccessStart::Remote(_, end) => at = end,
                AccessStart::Claim(home, asked) => self.claim_unknown(core, touch, home, &asked)?,
                AccessStart::Report { number, to } => {
                    self.report_unreported(core, touch, to, (at, number))?
                }
                AccessStart::Pending => return Err(self.unknown_owner(touch, at, self.placement.server)),
            }
        }
        Ok(())
    }

    /// Reports an unreported handover to its home.
    fn report_unreported(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        to: ServerIndex,
        block: (u64, u64),
    ) -> Result<(), StoreError> {
        self.report_handover(core, touch, to, vec![block]).map_err(StoreError::Below)
    }

    pub(in crate::plain_cache) fn claim_unknown(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        home: ServerIndex,
        blocks: &[u64],
    ) -> Result<(), StoreError> {
        let own = self.placement.server;
        let answer = self.claim(core, touch, home, blocks);
        touch.owners.with(|table| table.answered(blocks, answer.as_deref().ok(), own));
        answer.map(|_| ()).map_err(StoreError::Below)
    }

    pub(in crate::plain_cache) fn claim(
        &self,
        core: &Core,
        touch: &DynamicPlacement,
        home: ServerIndex,
        blocks: &[u64],
    ) -> Result<Vec<Grant>, Fault> {
        if OWNED_MAX < touch.owners.with(|table| table.count()) {
            let text = format!(
                "{}: more than {OWNED_MAX} cached blocks: use larger ones",
                self.plain.path().display()
            );
            return Err(Fault::new(Code::TooMany, text));
        }
        let (server, block_bytes) = (self.placement.server, self.placement.block_bytes);
        let claim = Claim {
            server,
            inode: self.inode,
            block_bytes,
            blocks: touch.owners.with(|table| table.claimed(blocks)),
        };
        if home == server {
            return lock(&core.directory).claim(&claim);
        }
        core.counts.claims.fetch_add(1, Ordering::Relaxed);
        let grants = touch.peers.claim(home, &claim)?;
        if grants.len() == blocks.len() {
            return Ok(grants);
        }
        let text = format!("{} blocks were claimed, {} granted", blocks.len(), grants.len());
        Err(Fault::new(Code::Protocol, text))
    }

    pub(in crate::plain_cache) fn home(&self, touch: &DynamicPlacement, block: u64) -> ServerIndex {
        touch.homes.locate(block.saturating_mul(self.placement.block_bytes)).0
    }

    pub(in crate::plain_cache) fn unknown_owner(
        &self,
        touch: &DynamicPlacement,
        block: u64,
        last: ServerIndex,
    ) -> StoreError {
        let (home, own) = (self.home(touch, block), self.placement.server);
        let name = |server| touch.peers.describe(server);
        let text = format!(
            "{}: could not determine the owner of the block at byte {}: home {}, last owner {}, requester {}; retry, or reopen the file",
            self.plain.path().display(),
            block.saturating_mul(self.placement.block_bytes),
            name(home),
            name(last),
            name(own)
        );
        StoreError::Below(Fault::new(Code::Busy, text))
    }
}
