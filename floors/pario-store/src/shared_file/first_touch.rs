//! Placement by first touch: a block is cached at the server whose process touched it first, and others reach it there.
//!
//! ```text
//!  access ─┬─ blocks of others ─► all are asked at once: visited, or taken over by whoever overwrites them
//!          └─ the rest, and what has gone on meanwhile ─► run by run, each at its owner (walk)
//! ```
//! Never: holds room, a block or the gate while another server is asked; passes a visit on; touches the plain file where a block is not its
//! own. Always: a block leaves only when the plain file has its bytes, and is nobody's before its home has heard of that.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, Generation, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;

use super::core::Core;
use super::file::SharedFile;
use super::owners::{ASKED_MAX, Begun, Found, Owners};
use super::walk::{Pinned, Way};
use crate::cache::Key;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::places::{Companions, GiveBack, Visit};
use crate::source::Source;
use crate::sync::lock;

/// Visits of one read that are under way at a time.
pub(super) const VISITS_AT_ONCE: usize = 8;
/// Blocks without bytes that a server goes on to own after a sync, so that they stay where they were.
pub(super) const KEPT_MAX: usize = 1 << 16;

/// How others see a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// As a whole.
    AtOnce,
    /// Block by block.
    InParts,
}

/// What a file whose blocks have no fixed place has beside its blocks.
#[derive(Debug)]
pub(super) struct Touch {
    /// The homes of blocks.
    pub(super) homes: Layout,
    pub(super) owners: Owners,
    pub(super) companions: Arc<dyn Companions>,
    /// Who overwrites whole blocks gets them.
    pub(super) follows: bool,
}

impl SharedFile {
    /// `how`: whether readers at one moment are to see all of it or nothing.
    pub(super) fn write(
        &self,
        core: &Core,
        (generation, how): (Generation, Seen),
        at: u64,
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError> {
        let Some(touch) = &self.touch else {
            return self.write_here(core, generation, at, pieces).map(|_| ());
        };
        let range = at..at.saturating_add(total_bytes(pieces));
        if range.is_empty() {
            return Ok(());
        }
        self.check_reach(&range)?;
        let object = ObjectId { inode: self.inode, generation };
        let put = |run: Range<u64>, way: Way| {
            let part = cut(pieces, (run.start - range.start)..(run.end - range.start));
            match way {
                Way::Here => self.write_here(core, generation, run.start, &part).map(|_| true),
                Way::Taken => self.write_taken(core, generation, run.start, &part).map(|()| true),
                Way::There(owner, told) => {
                    let visit = Visit { object, at: LocalOffset(run.start), told };
                    touch.companions.write(owner, visit, &part).map_err(StoreError::Below)
                }
            }
        };
        let taking = touch.follows.then_some(object);
        let left = match taking {
            Some(object) if how == Seen::AtOnce => {
                self.write_at_once(core, touch, (&range, object), pieces)?;
                Vec::new()
            }
            Some(object) => self.take_all(core, touch, (&range, object), |run| {
                put(self.bytes_of(run), Way::Taken).map(|_| ())
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
        for part in self.visit_all(core, touch, (&range, object), target)? {
            let target = &mut target[within(&range, part.start)..within(&range, part.end)];
            self.by_owner(core, touch, (&part, None), |run, way| {
                let target = &mut target[within(&part, run.start)..within(&part, run.end)];
                match way {
                    Way::Here | Way::Taken => {
                        let count = self.read_here(core, (generation, run.start), target, true)?;
                        target[count..].fill(0);
                        Ok(true)
                    }
                    Way::There(owner, told) => {
                        let visit = Visit { object, at: LocalOffset(run.start), told };
                        let answer = touch.companions.read(owner, visit, target);
                        answer.and_then(|wait| wait()).map_err(StoreError::Below)
                    }
                }
            })?;
        }
        Ok(target.len())
    }

    /// Reads from other servers, all at once; what is left of the range.
    fn visit_all(
        &self,
        core: &Core,
        touch: &Touch,
        (range, object): (&Range<u64>, ObjectId),
        target: &mut [u8],
    ) -> Result<Vec<Range<u64>>, StoreError> {
        self.find_out(core, touch, self.blocks(range))?;
        let theirs = touch.owners.theirs(self.blocks(range), VISITS_AT_ONCE);
        let (mut asked, mut rest, mut at) = (Vec::new(), target, range.start);
        for (owner, blocks) in theirs {
            let run = self.bytes_of(blocks.clone());
            let run = run.start.max(range.start)..run.end.min(range.end);
            let (part, behind) =
                rest.split_at_mut(within(&(at..run.end), run.start)).1.split_at_mut(within(&run, run.end));
            (rest, at) = (behind, run.end);
            core.counts.forwards.fetch_add(1, Ordering::Relaxed);
            let visit = Visit { object, at: LocalOffset(run.start), told: false };
            asked.push((owner, blocks, run, touch.companions.read(owner, visit, part)));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (owner, blocks, run, answer) in asked {
            match answer.and_then(|wait| wait()) {
                Ok(true) => {
                    left.push(at..run.start);
                    at = run.end;
                }
                Ok(false) => touch.owners.forget(blocks, owner),
                // The other answers are waited for all the same: one that nobody fetches would stay on its connection.
                Err(fault) => result = result.and(Err(StoreError::Below(fault))),
            }
        }
        left.push(at..range.end);
        left.retain(|part| !part.is_empty());
        result.map(|()| left)
    }

    pub(super) fn bytes_of(&self, blocks: Range<u64>) -> Range<u64> {
        let bytes = self.place.block_bytes;
        blocks.start.saturating_mul(bytes)..blocks.end.saturating_mul(bytes)
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
        let come = || Some(touch.owners.visited(blocks.clone()));
        let learn = || self.learn(core, touch, blocks.clone());
        if self.found(core, (touch, visit), &blocks, (come, learn))? != Some(Found::Mine) {
            return Ok(false);
        }
        let _pinned = Pinned(&touch.owners, blocks);
        core.counts.visits.fetch_add(1, Ordering::Relaxed);
        go().map(|()| true)
    }

    /// What a visitor finds that comes for blocks by `come`, which finds nothing where it would have to wait and does not. Where the home must
    /// be asked whose they are, `learn` does so.
    pub(super) fn found(
        &self,
        core: &Core,
        (touch, visit): (&Touch, Visit),
        blocks: &Range<u64>,
        (come, learn): (impl Fn() -> Option<Found>, impl Fn() -> Result<(), StoreError>),
    ) -> Result<Option<Found>, StoreError> {
        let mut found = come();
        let doubts = || visit.told && touch.owners.doubt(blocks.clone());
        if (found == Some(Found::Unknown) && visit.told) || (found == Some(Found::Gone) && doubts()) {
            // The home's answer to an earlier claim may have been lost, or the claim may have come late: it knows.
            learn()?;
            found = come();
        }
        if matches!(found, Some(Found::Gone | Found::Unknown)) {
            self.tell_owed(core, touch, blocks.clone())?;
        }
        Ok(found)
    }

    /// Whether all blocks of a range are this server's.
    pub(super) fn is_here(&self, range: &Range<u64>) -> bool {
        let blocks = self.blocks(range);
        self.touch.as_ref().is_some_and(|touch| touch.owners.has(blocks))
    }

    /// Whether a block is this server's, or becomes it; then it stays until what is returned is dropped.
    pub(super) fn own_block(&self, core: &Core, block: u64) -> Option<impl Drop + '_> {
        let touch = self.touch.as_ref()?;
        let blocks = block..block.saturating_add(1);
        for _ in 0..2 {
            match touch.owners.begin(blocks.clone(), |block| self.home(touch, block)) {
                Begun::Mine(_) => return Some(Pinned(&touch.owners, blocks)),
                Begun::Ask(home, asked) => self.ask(core, touch, home, &asked).ok()?,
                Begun::Tell { number, to } => {
                    // Nobody asked for it: it is another one's in any case.
                    let _ = self.pass_on(core, touch, to, vec![(block, number)]);
                    return None;
                }
                Begun::Theirs(..) | Begun::Pending => return None,
            }
        }
        None
    }

    /// Gives up those of these blocks that are owned without bytes.
    pub(super) fn hand_back(&self, core: &Core, blocks: impl IntoIterator<Item = u64>) {
        let Some(touch) = &self.touch else { return };
        let key = |index| Key { inode: self.inode, index };
        let wanted = |block| core.pool.state().ledger.find(key(block)).is_some();
        let leaving = touch.owners.leave(blocks, wanted);
        for (home, blocks) in self.by_home(touch, leaving) {
            for some in blocks.chunks(ASKED_MAX) {
                let told = self.tell(core, touch, home, some);
                touch.owners.left(some, told);
            }
        }
    }

    /// Everything that is owned is given up: the file ends here.
    pub(super) fn hand_back_all(&self, core: &Core) {
        if let Some(touch) = &self.touch {
            self.hand_back(core, touch.owners.mine());
        }
    }

    /// Whether a home knows that blocks are nobody's any more.
    fn tell(&self, core: &Core, touch: &Touch, home: ServerIndex, blocks: &[(u64, u64)]) -> bool {
        let back = GiveBack { server: self.place.server, inode: self.inode, blocks: blocks.to_vec() };
        core.counts.handed_back.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        if home == self.place.server {
            lock(&core.directory).give_back(&back);
            return true;
        }
        let told = touch.companions.give_back(home, &back);
        if let Err(error) = &told {
            tracing::debug!(%error, "a home may not know that blocks are nobody's");
        }
        told.is_ok()
    }
}

pub(super) fn within(range: &Range<u64>, at: u64) -> usize {
    usize::try_from(at - range.start).expect("within the caller's memory")
}

/// A range of the bytes of pieces.
pub(super) fn cut<'a>(pieces: &'a [Piece<'a>], range: Range<u64>) -> Vec<Piece<'a>> {
    let (skip, bytes) = (within(&(0..range.end), range.start), within(&range, range.end));
    let mut source = Source::new(pieces);
    source.take(skip);
    source.take(bytes)
}
