//! How an access gets to the owners of the blocks that it touches.
//!
//! ```text
//!  run of blocks ─┬─ mine ──► blocks of this server's cache
//!                 ├─ theirs ► visit at the owner ── "not mine any more" ─► ask the home again
//!                 │           (or, where blocks follow their writers and this one overwrites them: take them over)
//!                 └─ nobody's: claim at the home, which makes it mine
//! ```
//! Never: holds room, a block or the gate while another server is asked. Always: gets on, or gives up after [`TRIES_MAX`] changes of owner
//! and names the servers.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, LocalOffset, ObjectId, ServerIndex};

use super::core::Core;
use super::file::SharedFile;
use super::first_touch::Touch;
use super::owners::{Begun, Owners};
use crate::error::StoreError;
use crate::places::{Claim, Grant, Visit};
use crate::sync::lock;

/// How often whose a run of blocks is may change before an access that wants them gives up.
const TRIES_MAX: u32 = 32;
/// How often blocks that are overwritten are taken in vain before they are written at their owner.
const TAKES_MAX: u32 = 3;
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

/// How far an access got.
struct Walk {
    at: u64,
    end: u64,
    bytes: u64,
    /// How often nothing came of it since it got on last.
    tries: u32,
    last: ServerIndex,
}

impl Walk {
    /// Bytes from here to a block.
    fn until(&self, block: u64) -> Range<u64> {
        self.at..block.saturating_mul(self.bytes).min(self.end)
    }

    fn go_on(&mut self, block: u64) {
        (self.at, self.tries) = (self.until(block).end, 0);
    }

    fn go_again(&mut self, last: ServerIndex) {
        (self.tries, self.last) = (self.tries + 1, last);
    }

    /// Blocks from here on, up to one, that lie in the access as a whole; `None` also where taking them failed too often.
    fn whole(&self, end: u64) -> Option<Range<u64>> {
        let whole = self.at / self.bytes..end.min(self.end / self.bytes);
        let fits = self.at.is_multiple_of(self.bytes) && !whole.is_empty();
        (fits && self.tries < TAKES_MAX).then_some(whole)
    }

    /// The end of the block that an access begins in the middle of; else `end`.
    fn part(&self, end: u64) -> u64 {
        if self.at.is_multiple_of(self.bytes) { end } else { end.min(self.at / self.bytes + 1) }
    }
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
        let bytes = self.place.block_bytes;
        let all = range.start / bytes..range.end.div_ceil(bytes);
        self.find_out(core, touch, all.clone())?;
        let mut walk = Walk { at: range.start, end: range.end, bytes, tries: 0, last: self.place.server };
        while walk.at < range.end {
            let blocks = walk.at / bytes..all.end;
            if TRIES_MAX < walk.tries {
                return Err(self.unsettled(touch, blocks.start, walk.last));
            }
            match touch.owners.begin(blocks.clone(), |block| self.home(touch, block)) {
                Begun::Mine(end) => {
                    let _pinned = Pinned(&touch.owners, blocks.start..end);
                    go(walk.until(end), Way::Here)?;
                    walk.go_on(end);
                }
                Begun::Theirs(owner, end) => {
                    let whole = taking.and_then(|object| Some((object, walk.whole(end)?)));
                    if let Some((object, whole)) = whole {
                        let visit = Visit { object, at: LocalOffset(walk.at), told: 0 < walk.tries };
                        let fill =
                            |run: Range<u64>| go(run.start * bytes..run.end * bytes, Way::Taken).map(|_| ());
                        match self.take_over(core, touch, (owner, visit, whole.clone()), fill)? {
                            true => walk.go_on(whole.end),
                            false => walk.go_again(owner),
                        }
                        continue;
                    }
                    // What comes behind a part of a block may be whole ones.
                    let end = if taking.is_some() { walk.part(end) } else { end };
                    core.counts.forwards.fetch_add(1, Ordering::Relaxed);
                    if go(walk.until(end), Way::There(owner, 0 < walk.tries))? {
                        walk.go_on(end);
                        continue;
                    }
                    touch.owners.forget(blocks.start..end, owner);
                    walk.go_again(owner);
                }
                Begun::Ask(home, asked) => {
                    // Asking again and again without getting on is no progress either.
                    walk.tries += u32::from(0 < walk.tries);
                    self.ask(core, touch, home, &asked)?;
                }
                Begun::Tell { number, to } => self.settle(core, touch, to, (blocks.start, number))?,
                Begun::Again => {}
                Begun::Stuck => return Err(self.unsettled(touch, blocks.start, walk.last)),
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
                Begun::Again => {}
                Begun::Stuck => return Err(self.unsettled(touch, at, self.place.server)),
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
        let claim = Claim { server, inode: self.inode, block_bytes, blocks: blocks.to_vec() };
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

    fn unsettled(&self, touch: &Touch, block: u64, last: ServerIndex) -> StoreError {
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
