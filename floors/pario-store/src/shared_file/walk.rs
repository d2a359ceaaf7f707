//! How an access gets to the owners of the blocks that it touches.
//!
//! ```text
//!  run of blocks ─┬─ mine ──► blocks of this server's cache
//!                 ├─ theirs ► visit at the owner ── "not mine any more" ─► ask the home again
//!                 │           (or, where blocks follow their writers and this one overwrites them: take them over)
//!                 └─ nobody's: claim at the home, which makes it mine
//! ```
//! Where it goes next is decided by `ownership::Walk`. Never: holds room, a block or the gate while another server is asked. Always: gets on,
//! or gives up after too many changes of owner and names the servers.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, LocalOffset, ObjectId, ServerIndex};

use super::core::Core;
use super::file::SharedFile;
use super::first_touch::Touch;
use super::owners::{Begun, Owners};
use crate::error::StoreError;
use crate::ownership::{Step, Walk};
use crate::places::{Claim, Grant, Visit};
use crate::sync::lock;

/// Blocks of one file that a server owns at most.
const OWNED_MAX: usize = 1 << 20;
/// Who carries a part of an access out.
pub(super) enum Way {
    Here,
    /// Whole blocks that another server has just passed on: they have no bytes but these.
    Taken,
    /// At another server; whether the home said so just now.
    There(ServerIndex, bool),
}

/// Blocks that do not leave meanwhile.
pub(super) struct Pinned<'a>(pub(super) &'a Owners, pub(super) Range<u64>);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.end(self.1.clone());
    }
}

impl SharedFile {
    /// Walks through a range, each run of blocks at its owner. `go` says whether the owner still was that. Where blocks follow their writers,
    /// `taking` says what is written: whole ones are taken over.
    pub(super) fn by_owner(
        &self,
        core: &Core,
        touch: &Touch,
        (range, taking): (&Range<u64>, Option<ObjectId>),
        mut go: impl FnMut(Range<u64>, Way) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let (bytes, own) = (self.place.block_bytes, self.place.server);
        self.find_out(core, touch, self.blocks(range))?;
        let mut walk = Walk::new(range, bytes, own, taking.is_some());
        while let Some(blocks) = walk.rest() {
            if walk.is_lost() {
                return Err(self.unsettled(touch, blocks.start, walk.last()));
            }
            match walk.step(touch.owners.begin(blocks.clone(), |block| self.home(touch, block))) {
                Step::Here { run, end } => {
                    let _pinned = Pinned(&touch.owners, blocks.start..end);
                    go(run, Way::Here)?;
                    walk.go_on(end);
                }
                Step::Take { owner, blocks, told } => {
                    let Some(object) = taking else { return Err(self.unsettled(touch, blocks.start, owner)) };
                    let visit = Visit { object, at: LocalOffset(blocks.start * bytes), told };
                    let fill =
                        |run: Range<u64>| go(run.start * bytes..run.end * bytes, Way::Taken).map(|_| ());
                    match self.take_over(core, touch, (owner, visit, blocks.clone()), fill)? {
                        true => walk.go_on(blocks.end),
                        false => walk.go_again(owner),
                    }
                }
                Step::Visit { owner, run, end, told } => {
                    core.counts.forwards.fetch_add(1, Ordering::Relaxed);
                    if go(run, Way::There(owner, told))? {
                        walk.go_on(end);
                        continue;
                    }
                    touch.owners.forget(blocks.start..end, owner);
                    walk.go_again(owner);
                }
                Step::Ask(home, asked) => self.ask(core, touch, home, &asked)?,
                Step::Tell { number, to } => self.settle(core, touch, to, (blocks.start, number))?,
                Step::Wait => return Err(self.unsettled(touch, blocks.start, walk.last())),
            }
        }
        Ok(())
    }

    /// Asks all homes of blocks that nothing is known of, so that runs are as long as can be.
    pub(super) fn find_out(&self, core: &Core, touch: &Touch, blocks: Range<u64>) -> Result<(), StoreError> {
        while let Some((home, asked)) = touch.owners.unknown(blocks.clone(), |block| self.home(touch, block))
        {
            self.ask(core, touch, home, &asked)?;
        }
        Ok(())
    }

    /// Finds out whose blocks are.
    pub(super) fn learn(&self, core: &Core, touch: &Touch, blocks: Range<u64>) -> Result<(), StoreError> {
        let mut at = blocks.start;
        while at < blocks.end {
            match touch.owners.begin(at..blocks.end, |block| self.home(touch, block)) {
                Begun::Mine(end) => {
                    touch.owners.end(at..end);
                    at = end;
                }
                Begun::Theirs(_, end) => at = end,
                Begun::Ask(home, asked) => self.ask(core, touch, home, &asked)?,
                Begun::Tell { number, to } => self.settle(core, touch, to, (at, number))?,
                Begun::Pending => return Err(self.unsettled(touch, at, self.place.server)),
            }
        }
        Ok(())
    }

    /// Tells a home what it could not be told before.
    fn settle(
        &self,
        core: &Core,
        touch: &Touch,
        to: ServerIndex,
        block: (u64, u64),
    ) -> Result<(), StoreError> {
        self.pass_on(core, touch, to, vec![block]).map_err(StoreError::Below)
    }

    pub(super) fn ask(
        &self,
        core: &Core,
        touch: &Touch,
        home: ServerIndex,
        blocks: &[u64],
    ) -> Result<(), StoreError> {
        let own = self.place.server;
        let answer = self.claim(core, touch, home, blocks);
        touch.owners.answered(blocks, answer.as_deref().ok(), own);
        answer.map(|_| ()).map_err(StoreError::Below)
    }

    pub(super) fn claim(
        &self,
        core: &Core,
        touch: &Touch,
        home: ServerIndex,
        blocks: &[u64],
    ) -> Result<Vec<Grant>, Fault> {
        if OWNED_MAX < touch.owners.count() {
            let text =
                format!("{}: more than {OWNED_MAX} blocks are owned here", self.plain.path().display());
            return Err(Fault::new(Code::TooMany, text));
        }
        let (server, block_bytes) = (self.place.server, self.place.block_bytes);
        let claim = Claim { server, inode: self.inode, block_bytes, blocks: touch.owners.claimed(blocks) };
        if home == server {
            return lock(&core.directory).claim(&claim);
        }
        core.counts.claims.fetch_add(1, Ordering::Relaxed);
        let grants = touch.companions.claim(home, &claim)?;
        if grants.len() == blocks.len() {
            return Ok(grants);
        }
        let text = format!("{} blocks were claimed, {} granted", blocks.len(), grants.len());
        Err(Fault::new(Code::Protocol, text))
    }

    pub(super) fn home(&self, touch: &Touch, block: u64) -> ServerIndex {
        touch.homes.locate(block.saturating_mul(self.place.block_bytes)).0
    }

    pub(super) fn unsettled(&self, touch: &Touch, block: u64, last: ServerIndex) -> StoreError {
        let (home, own) = (self.home(touch, block), self.place.server);
        let name = |server| touch.companions.describe(server);
        let text = format!(
            "{}: whose the block at byte {} is could not be settled between {} (its home), {} (its last owner) and {}",
            self.plain.path().display(),
            block.saturating_mul(self.place.block_bytes),
            name(home),
            name(last),
            name(own)
        );
        StoreError::Below(Fault::new(Code::Busy, text))
    }
}
