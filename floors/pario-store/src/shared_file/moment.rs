//! Accesses to several blocks that happen at one moment, without a lock at the manager: blocks have owners, and these keep the order.
//!
//! ```text
//!  write ─► holds its blocks, the lowest first: own ones, and others' that it takes ─► bytes ─► lets all go at once
//!  read  ─► pins its own blocks ─► asks all other owners for bytes and stamps ─► (several owners: still the same?) ─► its own bytes
//! ```
//! Never: a reader that waits for a block while it has pinned others: who would have to wait says so, and it begins anew; a writer that waits for
//! a block below one that it holds. Always: what a reader found was there together when the last answer came. Whoever writes in another way
//! locks at the manager, which keeps these accesses out meanwhile (decision 0014).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pario_core::limits::{FILE_BYTES_MAX, FRAME_DATA_BYTES_MAX};
use pario_core::{Clock, Code, Fault, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;
use pario_sys::clock::MonotonicClock;

use super::core::Core;
use super::file::SharedFile;
use super::first_touch::{Touch, VISITS_AT_ONCE, cut, within};
use super::last_writer::Came;
use super::owners::Found;
use super::walk::Pinned;
use crate::error::StoreError;
use crate::ownership::{Hold, Look, runs};
use crate::places::{Visit, Visited};

/// So long a write tries to have blocks whose owners do not settle. Those who are dead have long been told by then.
const HOLDS_MAX: Duration = Duration::from_secs(120);
/// How often a read begins anew that met somebody writing, or blocks that had moved.
const LOOKS_MAX: u32 = 128;
/// How often what came for it may be in vain.
const AGAIN_MAX: u32 = 3;
/// Pause of those who would ask again at once what was refused just now.
const PAUSE: Duration = Duration::from_micros(200);

/// What other servers said to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    /// All bytes are here, and were there together.
    Together,
    /// Blocks have moved.
    Moved,
    /// Somebody is writing one.
    Busy,
    /// Something has changed since it came.
    Changed,
}

/// Blocks that a write holds, with their numbers.
#[derive(Debug, Default)]
struct Holds {
    all: Vec<(u64, u64)>,
    /// Those that came from other servers, without their bytes.
    taken: Vec<(u64, u64)>,
}

impl SharedFile {
    /// Overwrites whole blocks so that others see all of it or nothing.
    pub(super) fn write_at_once(
        &self,
        core: &Core,
        touch: &Touch,
        (range, object): (&Range<u64>, ObjectId),
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError> {
        let bytes = self.place.block_bytes;
        if !range.start.is_multiple_of(bytes) || !range.end.is_multiple_of(bytes) {
            let text = format!("{}: only whole blocks are written at once", self.plain.path().display());
            return Err(StoreError::Below(Fault::new(Code::Invalid, text)));
        }
        let mut holds = Holds::default();
        let gathered = self.hold_all(core, touch, (self.blocks(range), object), &mut holds);
        let mut written = Ok(());
        // What was taken has no other bytes than these, also if not all could be had; what is this server's own stays as it was then.
        for run in runs(if gathered.is_ok() { &holds.all } else { &holds.taken }) {
            let run = self.bytes_of(run);
            let part = cut(pieces, run.start - range.start..run.end - range.start);
            written = written.and(self.write_taken(core, object.generation, run.start, &part));
        }
        touch.owners.let_go(&holds.all);
        written.and(gathered)
    }

    /// Holds blocks, the lowest first. It ends early if the file was cut since: the rest comes too late.
    fn hold_all(
        &self,
        core: &Core,
        touch: &Touch,
        (blocks, object): (Range<u64>, ObjectId),
        holds: &mut Holds,
    ) -> Result<(), StoreError> {
        self.find_out(core, touch, blocks.clone())?;
        let (mut at, mut tries, mut last) = (blocks.start, 0, self.place.server);
        let mut began = MonotonicClock.now();
        while at < blocks.end {
            if HOLDS_MAX < MonotonicClock.now().since(began) {
                return Err(self.unsettled(touch, at, last));
            }
            match touch.owners.hold(at..blocks.end, |block| self.home(touch, block)) {
                Hold::Mine(mine) => {
                    (at, tries) = (at + mine.len() as u64, 0);
                    holds.all.extend(mine);
                }
                // By somebody who lives, in this process: it is waited for.
                Hold::Used => began = MonotonicClock.now(),
                Hold::Theirs(owner, run) => {
                    last = owner;
                    let visit = Visit { object, at: self.offset(at), told: 0 < tries };
                    let Some(reaching) = self.reach_for(core, touch, (owner, visit, run)) else { continue };
                    match self.hear(core, touch, reaching)? {
                        Came::Mine(mine, fault) => {
                            at += mine.len() as u64;
                            holds.taken.extend(&mine);
                            holds.all.extend(mine);
                            fault.map_or(Ok(()), |fault| Err(StoreError::Below(fault)))?;
                            tries = 0;
                        }
                        Came::Refused { late: true } => return Ok(()),
                        Came::Refused { late: false } => {
                            tries += 1;
                            if 1 < tries {
                                touch.owners.rest(PAUSE);
                            }
                            self.find_out(core, touch, at..blocks.end)?;
                        }
                    }
                }
                Hold::Ask(home, asked) => self.ask(core, touch, home, &asked)?,
                Hold::Tell { number, to } => {
                    self.pass_on(core, touch, to, vec![(at, number)]).map_err(StoreError::Below)?;
                }
            }
        }
        Ok(())
    }

    fn offset(&self, block: u64) -> LocalOffset {
        LocalOffset(block.saturating_mul(self.place.block_bytes))
    }

    /// Fills `target` with what was there at one moment; false if too much changes meanwhile.
    pub(super) fn read_at_once(
        &self,
        core: &Core,
        object: ObjectId,
        at: u64,
        target: &mut [u8],
    ) -> Result<bool, StoreError> {
        let Some(touch) = self.touch.as_ref().filter(|touch| touch.follows) else { return Ok(false) };
        let range = self.range_of(at, target.len() as u64)?;
        let (blocks, mut again, mut told) = (self.blocks(&range), 0, false);
        for _ in 0..LOOKS_MAX {
            self.find_out(core, touch, blocks.clone())?;
            let (seen, theirs) = match touch.owners.look(blocks.clone()) {
                Look::Seen(seen, theirs) => (seen, theirs),
                Look::Pending => continue,
                Look::Unknown => {
                    self.learn(core, touch, blocks.clone())?;
                    continue;
                }
            };
            let pinned: Vec<Pinned<'_>> =
                seen.iter().map(|(block, _)| Pinned(&touch.owners, *block..block + 1)).collect();
            if VISITS_AT_ONCE < theirs.len() {
                return Ok(false);
            }
            let others = self.ask_owners((core, touch), (&range, object, told), theirs, target)?;
            if others == Others::Together {
                self.read_seen(core, (&range, object), &seen, target)?;
                core.counts.at_once.fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
            drop(pinned);
            match others {
                Others::Together => {}
                Others::Moved => told = true,
                Others::Busy => touch.owners.rest(PAUSE),
                Others::Changed => {
                    core.counts.again.fetch_add(1, Ordering::Relaxed);
                    again += 1;
                }
            }
            if AGAIN_MAX < again {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Blocks of this server's that are pinned.
    fn read_seen(
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

    /// Reads from other servers, all at once, and makes sure that what came was there together.
    fn ask_owners(
        &self,
        (core, touch): (&Core, &Touch),
        (range, object, told): (&Range<u64>, ObjectId, bool),
        theirs: Vec<(ServerIndex, Range<u64>)>,
        target: &mut [u8],
    ) -> Result<Others, StoreError> {
        let (mut asked, mut rest, mut at) = (Vec::new(), target, range.start);
        for (owner, blocks) in theirs {
            let run = self.part_of(range, blocks.clone());
            let (part, behind) =
                rest.split_at_mut(within(&(at..run.end), run.start)).1.split_at_mut(within(&run, run.end));
            (rest, at) = (behind, run.end);
            core.counts.forwards.fetch_add(1, Ordering::Relaxed);
            let visit = Visit { object, at: LocalOffset(run.start), told };
            asked.push((owner, blocks, run, touch.companions.read_at_once(owner, visit, part)));
        }
        let (mut others, mut stamps, mut result) = (Others::Together, Vec::new(), Ok(()));
        for (owner, blocks, run, answer) in asked {
            match answer.and_then(|wait| wait()) {
                Ok(Visited::Found(stamp)) => stamps.push((owner, run, stamp)),
                Ok(Visited::NotMine) => {
                    touch.owners.forget(blocks, owner);
                    others = Others::Moved;
                }
                Ok(Visited::NotNow) => others = Others::Busy,
                // The other answers are waited for all the same: one that nobody fetches would stay on its connection.
                Err(fault) => result = result.and(Err(StoreError::Below(fault))),
            }
        }
        result?;
        if others == Others::Together { self.are_still(touch, object, &stamps) } else { Ok(others) }
    }

    /// What one owner said was there at one moment; what several said, if none of it has changed since all of it came.
    fn are_still(
        &self,
        touch: &Touch,
        object: ObjectId,
        stamps: &[(ServerIndex, Range<u64>, u64)],
    ) -> Result<Others, StoreError> {
        if stamps.len() < 2 {
            return Ok(Others::Together);
        }
        let ask = |(owner, run, stamp): &(ServerIndex, Range<u64>, u64)| {
            let visit = Visit { object, at: LocalOffset(run.start), told: false };
            touch.companions.is_still(*owner, visit, run.end - run.start, *stamp)
        };
        let asked: Vec<_> = stamps.iter().map(ask).collect();
        let mut result = Ok(true);
        for answer in asked {
            let still = answer.and_then(|wait| wait()).map_err(StoreError::Below);
            result = result.and_then(|all| still.map(|still| all && still));
        }
        Ok(if result? { Others::Together } else { Others::Changed })
    }

    /// Another server's read of blocks that are this one's, as they are at one moment.
    pub(super) fn visit_at_once(
        &self,
        core: &Core,
        visit: Visit,
        target: &mut [u8],
    ) -> Result<Visited, StoreError> {
        let Some(touch) = &self.touch else { return Ok(Visited::NotMine) };
        let blocks = self.blocks(&self.range_of(visit.at.0, target.len() as u64)?);
        let come = || touch.owners.visited_now(blocks.clone());
        // Never by waiting for a block: who asks keeps others waiting for its own.
        let learn = || self.find_out(core, touch, blocks.clone());
        match self.found(core, (touch, visit), &blocks, (come, learn))? {
            Some(Found::Mine) => {}
            Some(Found::Gone | Found::Unknown) => return Ok(Visited::NotMine),
            None => return Ok(Visited::NotNow),
        }
        let _pinned = Pinned(&touch.owners, blocks.clone());
        let Some(stamp) = touch.owners.stamps(blocks) else { return Ok(Visited::NotNow) };
        core.counts.visits.fetch_add(1, Ordering::Relaxed);
        let count = self.read_here(core, (visit.object.generation, visit.at.0), target, false)?;
        target[count..].fill(0);
        Ok(Visited::Found(stamp))
    }

    pub(super) fn is_still(&self, visit: Visit, bytes: u64, stamp: u64) -> bool {
        let Some(range) =
            self.range_of(visit.at.0, bytes).ok().filter(|_| bytes <= FRAME_DATA_BYTES_MAX as u64)
        else {
            return false;
        };
        let blocks = self.blocks(&range);
        self.touch.as_ref().is_some_and(|touch| touch.owners.stamps(blocks) == Some(stamp))
    }

    /// Bytes that a peer names: no file has others.
    fn range_of(&self, at: u64, bytes: u64) -> Result<Range<u64>, StoreError> {
        let end = at.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX);
        end.map(|end| at..end).ok_or_else(|| {
            let text =
                format!("{}: {bytes} bytes at {at} are beyond every file", self.plain.path().display());
            StoreError::Below(Fault::new(Code::TooLarge, text))
        })
    }
}
