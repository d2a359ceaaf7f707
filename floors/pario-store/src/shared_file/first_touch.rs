//! Placement by first touch: a block is cached at the server whose process touched it first, and others reach it there.
//!
//! ```text
//!  access ─► run of blocks ─┬─ mine ──► blocks of this server's cache
//!                           ├─ theirs ► visit at the owner ── "not mine any more" ─► ask the home again
//!                           └─ nobody's: claim at the home, which makes it mine
//! ```
//! Never: holds room, a block or the gate while another server is asked; passes a visit on; touches the plain file where a block is not its
//! own. Always: a block leaves only when the plain file has its bytes, and is nobody's before its home has heard of that.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, Generation, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;

use super::core::Core;
use super::file::SharedFile;
use super::owners::{ASKED_MAX, Begun, Found, Owners};
use crate::cache::Key;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::places::{Claim, Companions, GiveBack, Grant, Visit};
use crate::source::Source;
use crate::sync::lock;

/// How often whose a run of blocks is may change before an access that wants them gives up.
const TRIES_MAX: u32 = 32;
/// Blocks of one file that a server owns at most.
const OWNED_MAX: usize = 1 << 20;
/// Blocks without bytes that a server goes on to own after a sync, so that they stay where they were.
pub(super) const KEPT_MAX: usize = 1 << 16;

/// What a file whose blocks have no fixed place has beside its blocks.
#[derive(Debug)]
pub(super) struct Touch {
    /// The homes of blocks.
    pub(super) homes: Layout,
    pub(super) owners: Owners,
    pub(super) companions: Arc<dyn Companions>,
}

/// Who carries a part of an access out.
enum Way {
    Here,
    /// At another server; whether the home said so just now.
    There(ServerIndex, bool),
}

/// Blocks that do not leave meanwhile.
struct Pinned<'a>(&'a Owners, Range<u64>);

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.0.end(self.1.clone());
    }
}

impl SharedFile {
    pub(super) fn write(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError> {
        let Some(touch) = &self.touch else { return self.write_here(core, generation, at, pieces) };
        let range = at..at.saturating_add(total_bytes(pieces));
        if range.is_empty() {
            return Ok(());
        }
        self.check_reach(&range)?;
        let object = ObjectId { inode: self.inode, generation };
        self.by_owner(core, touch, &range, |run, way| {
            let part = cut(pieces, (run.start - range.start)..(run.end - range.start));
            match way {
                Way::Here => self.write_here(core, generation, run.start, &part).map(|()| true),
                Way::There(owner, told) => {
                    let visit = Visit { object, at: LocalOffset(run.start), told };
                    touch.companions.write(owner, visit, &part).map_err(StoreError::Below)
                }
            }
        })?;
        let gate = self.open_gate()?;
        if gate.generation <= generation {
            self.length.fetch_max(range.end, Ordering::AcqRel);
        }
        Ok(())
    }

    pub(super) fn read(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        target: &mut [u8],
    ) -> Result<usize, StoreError> {
        let Some(touch) = &self.touch else { return self.read_here(core, (generation, at), target, true) };
        let range = at..at.saturating_add(target.len() as u64);
        let object = ObjectId { inode: self.inode, generation };
        self.by_owner(core, touch, &range, |run, way| {
            let part = &mut target[within(&range, run.start)..within(&range, run.end)];
            match way {
                Way::Here => {
                    let count = self.read_here(core, (generation, run.start), part, true)?;
                    part[count..].fill(0);
                    Ok(true)
                }
                Way::There(owner, told) => {
                    let visit = Visit { object, at: LocalOffset(run.start), told };
                    touch.companions.read(owner, visit, part).map_err(StoreError::Below)
                }
            }
        })?;
        Ok(target.len())
    }

    /// Walks through a range, each run of blocks at its owner. `go` says whether the owner still was that.
    fn by_owner(
        &self,
        core: &Core,
        touch: &Touch,
        range: &Range<u64>,
        mut go: impl FnMut(Range<u64>, Way) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let bytes = self.place.block_bytes;
        let (mut at, mut tries, mut last) = (range.start, 0, self.place.server);
        let all = at / bytes..range.end.div_ceil(bytes);
        // All homes first, so that runs are as long as can be.
        while let Some((home, asked)) = touch.owners.unknown(all.clone(), |block| self.home(touch, block)) {
            self.ask(core, touch, home, &asked)?;
        }
        while at < range.end {
            let blocks = at / bytes..all.end;
            let until = |end: u64| end.saturating_mul(bytes).min(range.end);
            if TRIES_MAX < tries {
                return Err(self.unsettled(touch, blocks.start, last));
            }
            match touch.owners.begin(blocks.clone(), |block| self.home(touch, block)) {
                Begun::Mine(end) => {
                    let _pinned = Pinned(&touch.owners, blocks.start..end);
                    go(at..until(end), Way::Here)?;
                    (at, tries) = (until(end), 0);
                }
                Begun::Theirs(owner, end) => {
                    core.counts.forwards.fetch_add(1, Ordering::Relaxed);
                    if go(at..until(end), Way::There(owner, 0 < tries))? {
                        (at, tries) = (until(end), 0);
                        continue;
                    }
                    touch.owners.forget(blocks.start..end, owner);
                    (tries, last) = (tries + 1, owner);
                }
                Begun::Ask(home, asked) => {
                    // Asking again and again without getting on is no progress either.
                    tries += u32::from(0 < tries);
                    self.ask(core, touch, home, &asked)?;
                }
                Begun::Again => {}
                Begun::Stuck => return Err(self.unsettled(touch, blocks.start, last)),
            }
        }
        Ok(())
    }

    /// Another server's access to blocks that are this one's; false if they are not.
    pub(super) fn visit(
        &self,
        core: &Core,
        visit: Visit,
        bytes: u64,
        go: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let Some(touch) = &self.touch else { return Ok(false) };
        let Some(end) = visit.at.0.checked_add(bytes).filter(|end| visit.at.0 < *end) else {
            return Err(StoreError::Below(Fault::new(
                Code::Invalid,
                "a visit of no byte, or beyond every file",
            )));
        };
        let block = self.place.block_bytes;
        let blocks = visit.at.0 / block..end.div_ceil(block);
        let mut found = touch.owners.visited(blocks.clone());
        if found == Found::Unknown && visit.told {
            // The home's answer to an earlier claim may have been lost: it knows.
            self.learn(core, touch, blocks.clone())?;
            found = touch.owners.visited(blocks.clone());
        }
        if found != Found::Mine {
            return Ok(false);
        }
        let _pinned = Pinned(&touch.owners, blocks);
        core.counts.visits.fetch_add(1, Ordering::Relaxed);
        go().map(|()| true)
    }

    /// Whether all blocks of a range are this server's.
    pub(super) fn is_here(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks(range);
        self.touch.as_ref().is_some_and(|touch| touch.owners.has(blocks))
    }

    /// Finds out whose blocks are.
    fn learn(&self, core: &Core, touch: &Touch, blocks: Range<u64>) -> Result<(), StoreError> {
        let mut at = blocks.start;
        while at < blocks.end {
            match touch.owners.begin(at..blocks.end, |block| self.home(touch, block)) {
                Begun::Mine(end) => {
                    touch.owners.end(at..end);
                    at = end;
                }
                Begun::Theirs(_, end) => at = end,
                Begun::Ask(home, asked) => self.ask(core, touch, home, &asked)?,
                Begun::Again => {}
                Begun::Stuck => return Err(self.unsettled(touch, at, self.place.server)),
            }
        }
        Ok(())
    }

    /// Whether a block is this server's, or becomes it; then it stays until what is returned is dropped.
    pub(super) fn own_block(&self, core: &Core, block: u64) -> Option<impl Drop + '_> {
        let touch = self.touch.as_ref()?;
        let blocks = block..block.saturating_add(1);
        for _ in 0..2 {
            match touch.owners.begin(blocks.clone(), |block| self.home(touch, block)) {
                Begun::Mine(_) => return Some(Pinned(&touch.owners, blocks)),
                Begun::Ask(home, asked) => self.ask(core, touch, home, &asked).ok()?,
                Begun::Again => {}
                Begun::Theirs(..) | Begun::Stuck => return None,
            }
        }
        None
    }

    fn ask(&self, core: &Core, touch: &Touch, home: ServerIndex, blocks: &[u64]) -> Result<(), StoreError> {
        let own = self.place.server;
        let answer = self.claim(core, touch, home, blocks);
        touch.owners.answered(blocks, answer.as_deref().ok(), own);
        answer.map(|_| ()).map_err(StoreError::Below)
    }

    fn claim(
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

    /// Gives up those of these blocks that are owned without bytes.
    pub(super) fn hand_back(&self, core: &Core, blocks: impl IntoIterator<Item = u64>) {
        let Some(touch) = &self.touch else { return };
        let key = |index| Key { inode: self.inode, index };
        let wanted = |block| core.pool.state().ledger.find(key(block)).is_some();
        let leaving = touch.owners.leave(blocks, wanted);
        let mut homes: BTreeMap<ServerIndex, Vec<(u64, u64)>> = BTreeMap::new();
        for (block, number) in leaving {
            homes.entry(self.home(touch, block)).or_default().push((block, number));
        }
        for (home, blocks) in homes {
            for some in blocks.chunks(ASKED_MAX) {
                self.tell(core, touch, home, some);
                touch.owners.left(some);
            }
        }
    }

    /// Everything that is owned is given up: the file ends here.
    pub(super) fn hand_back_all(&self, core: &Core) {
        if let Some(touch) = &self.touch {
            self.hand_back(core, touch.owners.mine());
        }
    }

    fn tell(&self, core: &Core, touch: &Touch, home: ServerIndex, blocks: &[(u64, u64)]) {
        let back = GiveBack { server: self.place.server, inode: self.inode, blocks: blocks.to_vec() };
        core.counts.handed_back.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        if home == self.place.server {
            lock(&core.directory).give_back(&back);
        } else if let Err(error) = touch.companions.give_back(home, &back) {
            tracing::debug!(%error, "a home may not know that blocks are nobody's");
        }
    }

    fn home(&self, touch: &Touch, block: u64) -> ServerIndex {
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

fn within(range: &Range<u64>, at: u64) -> usize {
    usize::try_from(at - range.start).expect("within the caller's memory")
}

/// A range of the bytes of pieces.
fn cut<'a>(pieces: &'a [Piece<'a>], range: Range<u64>) -> Vec<Piece<'a>> {
    let (skip, bytes) = (within(&(0..range.end), range.start), within(&range, range.end));
    let mut source = Source::new(pieces);
    source.take(skip);
    source.take(bytes)
}
