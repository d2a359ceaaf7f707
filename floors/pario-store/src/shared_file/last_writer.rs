//! Blocks that follow their writers: a server that overwrites whole blocks of another's takes them over, and no byte of them travels.
//!
//! ```text
//!  writer's server ── take ──► owner: nobody works on them ─► out of its cache ─── pass ───► home
//!        ▲                                                    │
//!        └── fills them; then others may have them ◄── yours ─┘
//! ```
//! Never: writes bytes down that are about to be overwritten, but where a sync has been at the writer's server already; holds room, a block
//! or the gate while another server is asked; waits for a block while it is taking others. Always: what is given is out of its owner's cache before that is
//! said; an owner that gave a block claims it no more before the home knows of it; a server that was made owner and did not hear of it finds
//! that out, and writes all the same.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault, Generation, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;

use super::core::Core;
use super::file::SharedFile;
use super::first_touch::{Touch, cut};
use super::owners::Parted;
use crate::cache::{Key, SharedBlock};
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::ownership::{Heard, Reach, runs};
use crate::places::{Answer, Pass, Take, Taken, Visit};
use crate::sync::lock;

/// How often a home is told that blocks are passed on, if it does not answer.
const TOLD_MAX: u32 = 3;
/// Cuts that may come into the way of one write.
const CUTS_MAX: u32 = 32;
/// Runs of blocks that are taken at a time.
const TAKES_AT_ONCE: usize = 8;

/// Blocks that their owner was asked for, and its answer.
pub(super) struct Reaching<'a> {
    reach: Reach,
    answer: Result<Answer<'a, Taken>, Fault>,
}

/// What came of that.
pub(super) enum Came {
    /// These are this server's, with the numbers of their ownerships; why others did not come.
    Mine(Vec<(u64, u64)>, Option<Fault>),
    /// None; whether the write comes too late.
    Refused { late: bool },
}

impl SharedFile {
    /// Takes whole blocks of a range that are other servers', all at once, and has `write` fill them. What is left of the range.
    pub(super) fn take_all(
        &self,
        core: &Core,
        touch: &Touch,
        (range, object): (&Range<u64>, ObjectId),
        mut write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let bytes = self.place.block_bytes;
        self.find_out(core, touch, self.blocks(range))?;
        let whole = range.start.div_ceil(bytes)..range.end / bytes;
        let reach = |(owner, blocks): (ServerIndex, Range<u64>)| {
            let visit = Visit { object, at: LocalOffset(blocks.start * bytes), told: false };
            self.reach_for(core, touch, (owner, visit, blocks))
        };
        let theirs = touch.owners.theirs(whole, TAKES_AT_ONCE);
        let reaching: Vec<Reaching<'_>> = theirs.into_iter().filter_map(reach).collect();
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for reaching in reaching {
            let blocks = reaching.reach.blocks.clone();
            match self.get(core, touch, reaching, &mut write) {
                Ok(true) => {
                    left.push(at..blocks.start * bytes);
                    at = blocks.end * bytes;
                }
                Ok(false) => {}
                // What the others were asked for comes all the same, and has no other bytes than these.
                Err(error) => result = result.and(Err(error)),
            }
        }
        left.push(at..range.end);
        left.retain(|part| !part.is_empty());
        result.map(|()| left)
    }

    /// Takes whole blocks from their owner and has `write` fill them; false if they were not its to give.
    pub(super) fn take_over(
        &self,
        core: &Core,
        touch: &Touch,
        wanted: (ServerIndex, Visit, Range<u64>),
        write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let reaching = self.reach_for(core, touch, wanted);
        reaching.map_or(Ok(false), |reaching| self.get(core, touch, reaching, write))
    }

    pub(super) fn reach_for<'a>(
        &self,
        core: &Core,
        touch: &'a Touch,
        (owner, visit, blocks): (ServerIndex, Visit, Range<u64>),
    ) -> Option<Reaching<'a>> {
        let (syncs, of) = touch.owners.reach_for(blocks.clone(), owner)?;
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        let take = Take { to: self.place.server, visit, blocks: count, syncs, of };
        core.counts.takes.fetch_add(1, Ordering::Relaxed);
        Some(Reaching { reach: Reach::new(owner, take, blocks), answer: touch.companions.take(owner, take) })
    }

    fn get(
        &self,
        core: &Core,
        touch: &Touch,
        reaching: Reaching<'_>,
        write: impl FnMut(Range<u64>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let (mine, fault) = match self.hear(core, touch, reaching)? {
            Came::Mine(mine, fault) => (mine, fault),
            Came::Refused { late } => return Ok(late),
        };
        let written = runs(&mine).into_iter().map(write).fold(Ok(()), Result::and);
        touch.owners.filled(&mine);
        written?;
        fault.map_or(Ok(true), |fault| Err(StoreError::Below(fault)))
    }

    /// Waits for what comes of blocks that were asked for: those that are this server's have no bytes yet, and must be filled.
    pub(super) fn hear(
        &self,
        core: &Core,
        touch: &Touch,
        Reaching { mut reach, answer }: Reaching<'_>,
    ) -> Result<Came, StoreError> {
        let (owner, blocks) = (reach.owner, reach.blocks.clone());
        let mut heard = reach.heard(answer.and_then(|wait| wait()));
        if let Heard::Again(take) = heard {
            heard = reach.heard(touch.companions.take(owner, take).and_then(|wait| wait()));
        }
        let (mine, fault) = match heard {
            Heard::Mine(mine) => (mine, None),
            Heard::Refused { late } => {
                touch.owners.missed(blocks);
                return Ok(Came::Refused { late });
            }
            Heard::Unheard(fault) => (self.unheard(core, touch, blocks.clone()), Some(fault)),
            Heard::Again(_) => return Err(self.unsettled(touch, blocks.start, owner)),
        };
        touch.owners.got(&mine);
        let count = blocks.end - blocks.start;
        touch.owners.missed(blocks.filter(|block| mine.iter().all(|(own, _)| own != block)));
        let fault = fault.filter(|_| (mine.len() as u64) < count);
        Ok(Came::Mine(mine, fault))
    }

    /// Those of these blocks that are this server's, as their homes say: what was passed on has no bytes any more but those that are
    /// about to be written.
    fn unheard(&self, core: &Core, touch: &Touch, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let mut mine = Vec::new();
        for (home, blocks) in self.by_home(touch, blocks.map(|block| (block, 0))) {
            let blocks: Vec<u64> = blocks.into_iter().map(|(block, _)| block).collect();
            let Ok(grants) = self.claim(core, touch, home, &blocks) else { continue };
            let own = blocks.iter().zip(grants).filter(|(_, grant)| grant.owner == self.place.server);
            mine.extend(own.map(|(block, grant)| (*block, grant.number)));
        }
        mine.sort_unstable();
        mine
    }

    /// Writes to whole blocks whose bytes were given up for it: a cut that came since keeps of it what it keeps of everything.
    pub(super) fn write_taken(
        &self,
        core: &Core,
        generation: Generation,
        at: u64,
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError> {
        if self.write_here(core, generation, at, pieces)? {
            return Ok(());
        }
        for _ in 0..CUTS_MAX {
            let now = self.open_gate()?.generation;
            let left = self.coming.load(Ordering::Acquire).saturating_sub(at).min(total_bytes(pieces));
            if self.write_here(core, now, at, &cut(pieces, 0..left))? {
                return Ok(());
            }
        }
        let text = format!("{} is cut again and again", self.plain.path().display());
        Err(StoreError::Below(Fault::new(Code::Busy, text)))
    }

    /// The file is about to be synced: blocks that come from now on have what was dirty elsewhere written down there. The sync's number.
    pub(super) fn sync_begins(&self) -> Result<u64, StoreError> {
        let Some(touch) = self.touch.as_ref().filter(|touch| touch.follows) else { return Ok(0) };
        touch.owners.sync_begins().ok_or_else(|| {
            let text = format!("{}: blocks that are taken over do not come", self.plain.path().display());
            StoreError::Below(Fault::new(Code::Busy, text))
        })
    }

    /// What was dirty before that sync began is on storage.
    pub(super) fn sync_ends(&self, sync: u64) {
        if let Some(touch) = &self.touch {
            touch.owners.sync_ends(sync);
        }
    }

    /// Another server overwrites whole blocks of this one's: see [`crate::Places::take`].
    pub(super) fn give(
        &self,
        core: &Core,
        take: Take,
        answer: &mut dyn FnMut(Taken),
    ) -> Result<(), StoreError> {
        let blocks = self.wanted(&take)?;
        let refuse = |answer: &mut dyn FnMut(Taken), why| {
            answer(why);
            Ok(())
        };
        let Some(touch) = &self.touch else { return refuse(answer, Taken::NotMine) };
        if take.visit.object.generation < self.open_gate()?.generation {
            return refuse(answer, Taken::Late);
        }
        let mut parted = touch.owners.part(blocks.clone(), take.of);
        let doubts = || take.visit.told && touch.owners.doubt(blocks.clone());
        if (parted == Parted::Unknown && take.visit.told) || (parted == Parted::Gone && doubts()) {
            // The home's answer to an earlier claim may have been lost, or the claim may have come late: it knows. Never by waiting for a
            // block: who holds it may wait for one that the asking server is taking.
            self.find_out(core, touch, blocks.clone())?;
            parted = touch.owners.part(blocks.clone(), take.of);
        }
        let Parted::Leaving(leaving) = parted else {
            self.tell_owed(core, touch, blocks)?;
            return refuse(answer, Taken::NotMine);
        };
        // From here on nothing is cut: what is written down must not come behind the file's new end.
        let gate = match self.open_gate() {
            Ok(gate) if gate.generation <= take.visit.object.generation => gate,
            cut_or_closed => {
                touch.owners.stay(&leaving);
                return cut_or_closed.and_then(|_| refuse(answer, Taken::Late));
            }
        };
        if touch.owners.synced() < take.syncs
            && let Err(error) = self.write_down_all(core, &leaving)
        {
            touch.owners.stay(&leaving);
            return Err(error);
        }
        self.take_out(core, &leaving);
        drop(gate);
        answer(Taken::Yours(leaving.iter().map(|(_, number)| number + 1).collect()));
        core.counts.passed.fetch_add(leaving.len() as u64, Ordering::Relaxed);
        if let Err(fault) = self.pass_on(core, touch, take.to, leaving) {
            // It is told when somebody here asks for the blocks.
            tracing::debug!(%fault, "a home may not know that blocks were passed on");
        }
        Ok(())
    }

    fn wanted(&self, take: &Take) -> Result<Range<u64>, StoreError> {
        let bytes = self.place.block_bytes;
        let first = take.visit.at.0 / bytes;
        let end = first.checked_add(u64::from(take.blocks)).filter(|end| first < *end);
        let whole = end.filter(|_| take.visit.at.0.is_multiple_of(bytes));
        let odd = || Fault::new(Code::Invalid, "blocks are taken as a whole, and at least one");
        whole.map(|end| first..end).ok_or_else(|| StoreError::Below(odd()))
    }

    /// A sync was at the taking server before these blocks, and would not find them here any more.
    fn write_down_all(&self, core: &Core, leaving: &[(u64, u64)]) -> Result<(), StoreError> {
        let found = leaving.iter().filter_map(|(index, _)| {
            let key = Key { inode: self.inode, index: *index };
            Some((key, core.pool.state().ledger.find(key)?))
        });
        let found: Vec<(Key, SharedBlock)> = found.collect();
        self.write_down(core, &found)?;
        self.plain.sync()
    }

    /// Takes blocks out of the cache: nobody finds them there any more, nor writes them down.
    fn take_out(&self, core: &Core, leaving: &[(u64, u64)]) {
        // Whoever waits for room looks again when it is over.
        let _using = core.pool.using();
        for (index, _) in leaving {
            let key = Key { inode: self.inode, index: *index };
            let found = core.pool.state().ledger.find(key);
            let Some(found) = found else { continue };
            // Held by whoever writes it down just now.
            let mut block = lock(&found);
            let mut state = core.pool.state();
            let in_vain = state.ledger.is_put_down(key);
            state.ledger.remove(key);
            drop(state);
            block.flushed();
            if in_vain {
                core.in_vain();
            }
        }
    }

    /// Tells homes whom blocks were passed on to.
    pub(super) fn pass_on(
        &self,
        core: &Core,
        touch: &Touch,
        to: ServerIndex,
        leaving: Vec<(u64, u64)>,
    ) -> Result<(), Fault> {
        let mut result = Ok(());
        for (home, blocks) in self.by_home(touch, leaving) {
            let pass = Pass { server: self.place.server, to, inode: self.inode, blocks };
            let tell = || {
                if home != self.place.server {
                    return touch.companions.pass(home, &pass);
                }
                lock(&core.directory).pass(&pass);
                Ok(())
            };
            let told = (1..TOLD_MAX).fold(tell(), |told, _| told.or_else(|_| tell()));
            touch.owners.passed(&pass.blocks, to, told.is_ok());
            result = result.and(told);
        }
        result
    }

    /// Somebody was sent here for blocks that were passed on: their homes cannot have heard of it.
    pub(super) fn tell_owed(&self, core: &Core, touch: &Touch, blocks: Range<u64>) -> Result<(), StoreError> {
        while let Some((block, number, to)) = touch.owners.owed(blocks.clone()) {
            self.pass_on(core, touch, to, vec![(block, number)]).map_err(StoreError::Below)?;
        }
        Ok(())
    }

    pub(super) fn by_home(
        &self,
        touch: &Touch,
        blocks: impl IntoIterator<Item = (u64, u64)>,
    ) -> BTreeMap<ServerIndex, Vec<(u64, u64)>> {
        let mut homes: BTreeMap<ServerIndex, Vec<(u64, u64)>> = BTreeMap::new();
        for (block, number) in blocks {
            homes.entry(self.home(touch, block)).or_default().push((block, number));
        }
        homes
    }
}
