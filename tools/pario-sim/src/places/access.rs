//! Accesses of clients: all blocks of others at once, then run by run, each at its owner.
//!
//! Step by step what `SharedFile::{read,write,by_owner,take_all,get}` do with threads, around the same walk and the same answers.

use std::ops::Range;

use pario_core::{Code, Fault, Generation, LocalOffset, ObjectId};
use pario_server::store::ownership::{Heard, Reach, Step, Walk, runs};
use pario_server::store::{Take, Taken, Visit};

use super::hand::{Hand, cells};
use super::net::{Ask, Reply};
use super::server::INODE;
use super::truth::cells_of;
use super::world::{BLOCK_BYTES, CELL, CELLS, Op, Placement, home, index};
use crate::bugs::{AnyBug, PlaceBug};
use crate::history::{Access, Did};

/// Runs that are asked for at a time.
const AT_ONCE: usize = 8;
const BYTES: u64 = BLOCK_BYTES as u64;

/// What an access finds or brings.
pub(super) struct Load {
    pub(super) tag: u64,
    writes: bool,
    pub(super) found: [u64; CELLS],
}

/// What came of blocks that an owner was asked for.
pub(super) enum Came {
    /// These are this server's, with the numbers of their ownerships; why others did not come.
    Mine(Vec<(u64, u64)>, Option<Fault>),
    /// None; whether the write comes too late.
    Refused { late: bool },
}

fn bytes(cells: &Range<usize>) -> Range<u64> {
    (cells.start * CELL) as u64..(cells.end * CELL) as u64
}

/// The whole and partial blocks of an access, each for itself.
pub(super) fn parts(op: &Op, ended: u64, found: Option<&[u64; CELLS]>) -> Vec<Access> {
    let blocks = super::server::blocks_of(&op.cells);
    let part = |block: u64| {
        let cells: Vec<usize> = cells_of(block).filter(|cell| op.cells.contains(cell)).collect();
        let did = match found {
            Some(found) => Did::Read(cells.iter().map(|cell| found[*cell]).collect()),
            None => Did::Wrote(op.tag),
        };
        Access { began: op.began, ended, cells, did }
    };
    blocks.map(part).collect()
}

impl Hand {
    /// An access of a client's, from its beginning to its end.
    pub(super) async fn access(self, client: usize, op: Op) {
        let mut load = Load { tag: op.tag, writes: op.writes, found: [0; CELLS] };
        let (placement, moments) = {
            let world = self.world();
            (world.placement, world.moments)
        };
        let done = match (placement, op.writes) {
            (Placement::LastWriter, false) if moments => self.read_at_once(&op.cells, &mut load).await,
            (Placement::LastWriter, true) if moments => self.write_at_once(&op.cells, &mut load).await,
            (Placement::Home, _) => self.at_homes(&op.cells, &mut load).await,
            (_, false) => self.read(&op.cells, &mut load).await,
            (_, true) => self.write(&op.cells, &mut load, placement == Placement::LastWriter).await,
        };
        let mut world = self.world();
        let now = world.step;
        match done {
            Ok(()) => {
                world.note(|| format!("client {client}: {op:?} found {:?}", load.found));
                let found = (!op.writes).then_some(&load.found);
                let parts = parts(&op, now, found);
                if moments && let Err(what) = world.truth.is_whole(&op, &load.found) {
                    world.violate(what);
                }
                world.truth.returned(client, op.tag, parts);
            }
            Err(fault) => {
                world.note(|| format!("client {client}: {op:?} failed: {fault}"));
                if op.writes {
                    let parts = parts(&op, now, None);
                    world.truth.never_ends(op.tag, parts);
                }
                world.judge_fault(&op, &fault);
            }
        }
        if let Some(client) = world.clients.get_mut(client) {
            client.op = None;
        }
    }

    /// Each block at its fixed home.
    async fn at_homes(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        for block in super::server::blocks_of(range) {
            let of_block = cells_of(block);
            let part = of_block.start.max(range.start)..of_block.end.min(range.end);
            let (home, nearest) = (self.home(block), self.world().has(PlaceBug::KeepNearest));
            if home == self.server || nearest {
                self.here(&part, load)?;
            } else {
                self.there(home, &part, false, load).await?;
            }
        }
        Ok(())
    }

    /// At this server.
    pub(super) fn here(&self, part: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let (server, mut world) = (self.server, self.world());
        if load.writes {
            return world.write_at(server, part.clone(), load.tag);
        }
        let found = world.read_at(server, part.clone())?;
        load.found[part.clone()].copy_from_slice(&found);
        Ok(())
    }

    fn visit_of(part: &Range<usize>, told: bool, load: &Load) -> Ask {
        match load.writes {
            true => Ask::Write(part.clone(), load.tag, told),
            false => Ask::Read(part.clone(), told),
        }
    }

    /// At another server; false if it is not the owner.
    async fn there(
        &self,
        owner: usize,
        part: &Range<usize>,
        told: bool,
        load: &mut Load,
    ) -> Result<bool, Fault> {
        let number = self.start(owner, Hand::visit_of(part, told, load));
        self.hear_visit(number, part, load).await
    }

    async fn hear_visit(&self, number: u64, part: &Range<usize>, load: &mut Load) -> Result<bool, Fault> {
        match self.finish(number).await? {
            Reply::Found(found) => {
                load.found[part.clone()].copy_from_slice(&found);
                Ok(true)
            }
            Reply::Done => Ok(true),
            Reply::NotMine
            | Reply::NotNow
            | Reply::Moment(..)
            | Reply::Grants(_)
            | Reply::Taken(_)
            | Reply::Failed(_) => Ok(false),
        }
    }

    async fn read(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let server = self.server;
        self.find_out(super::server::blocks_of(range)).await?;
        let theirs = self.world().servers[server].table.theirs(super::server::blocks_of(range), AT_ONCE);
        let mut asked = Vec::new();
        for (owner, blocks) in theirs {
            let whole = cells(&(blocks.start * BYTES..blocks.end * BYTES));
            let part = whole.start.max(range.start)..whole.end.min(range.end);
            let number = self.start(owner.at(), Hand::visit_of(&part, false, load));
            asked.push((owner, blocks, part, number));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (owner, blocks, part, number) in asked {
            match self.hear_visit(number, &part, load).await {
                Ok(true) => {
                    left.push(at..part.start);
                    at = part.end;
                }
                Ok(false) => self.world().table(server, |table| table.forget(blocks, owner)),
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        result?;
        left.push(at..range.end);
        for part in left.into_iter().filter(|part| !part.is_empty()) {
            self.by_owner(&part, load, false).await?;
        }
        Ok(())
    }

    async fn write(&self, range: &Range<usize>, load: &mut Load, follows: bool) -> Result<(), Fault> {
        let left = match follows {
            true => self.take_all(range, load).await?,
            false => vec![range.clone()],
        };
        for part in left {
            self.by_owner(&part, load, follows).await?;
        }
        Ok(())
    }

    /// Takes whole blocks that are other servers', all at once. What is left of the range.
    async fn take_all(&self, range: &Range<usize>, load: &mut Load) -> Result<Vec<Range<usize>>, Fault> {
        let (server, all) = (self.server, bytes(range));
        self.find_out(super::server::blocks_of(range)).await?;
        let whole = all.start.div_ceil(BYTES)..(all.end / BYTES).max(all.start.div_ceil(BYTES));
        let theirs = self.world().servers[server].table.theirs(whole, AT_ONCE);
        let mut reaching = Vec::new();
        for (owner, blocks) in theirs {
            reaching.extend(self.reach_for(owner.at(), blocks, false, load));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (reach, number) in reaching {
            let part = cells(&(reach.blocks.start * BYTES..reach.blocks.end * BYTES));
            match self.get(reach, number, load).await {
                Ok(true) => {
                    left.push(at..part.start);
                    at = part.end;
                }
                Ok(false) => {}
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        left.push(at..range.end);
        left.retain(|part| !part.is_empty());
        result.map(|()| left)
    }

    /// Asks an owner for blocks that are to be overwritten.
    pub(super) fn reach_for(
        &self,
        owner: usize,
        blocks: Range<u64>,
        told: bool,
        load: &Load,
    ) -> Option<(Reach, u64)> {
        let server = self.server;
        let (syncs, of) =
            self.world().table(server, |table| table.reach_for(blocks.clone(), index(owner)))?;
        let object = ObjectId { inode: INODE, generation: Generation(0) };
        let visit = Visit { object, at: LocalOffset(blocks.start * BYTES), told };
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        let take = Take { to: index(server), visit, blocks: count, syncs, of };
        let bug = match self.world().bug {
            Some(AnyBug::Ownership(bug)) => Some(bug),
            Some(AnyBug::Machine(_) | AnyBug::Around(_) | AnyBug::Place(_)) | None => None,
        };
        let reach = Reach::new(index(owner), take, blocks).sabotaged(bug);
        Some((reach, self.start(owner, Ask::Take(take, load.tag))))
    }

    async fn taken(&self, number: u64) -> Result<Taken, Fault> {
        match self.finish(number).await? {
            Reply::Taken(taken) => Ok(taken),
            Reply::Grants(_)
            | Reply::Done
            | Reply::NotMine
            | Reply::NotNow
            | Reply::Found(_)
            | Reply::Moment(..)
            | Reply::Failed(_) => Err(Fault::new(Code::Protocol, "not an answer to a take")),
        }
    }

    /// What comes of blocks that were asked for; false if they were not the owner's to give.
    async fn get(&self, reach: Reach, number: u64, load: &mut Load) -> Result<bool, Fault> {
        let server = self.server;
        let (mine, fault) = match self.hear_take(reach, number, load).await? {
            Came::Mine(mine, fault) => (mine, fault),
            Came::Refused { late } => return Ok(late),
        };
        let mut written = Ok(());
        for run in runs(&mine) {
            self.pause().await;
            let part = cells(&(run.start * BYTES..run.end * BYTES));
            let put = self.here(&part, load);
            if put.is_err() {
                // The block is as the plain file has it.
                self.world().truth.fails(load.tag);
                run.for_each(|block| self.world().misses(server, block));
            }
            written = written.and(put);
        }
        self.world().table(server, |table| table.filled(&mine));
        written?;
        fault.map_or(Ok(true), Err)
    }

    /// Those of these blocks that came have no bytes yet, and must be filled.
    pub(super) async fn hear_take(
        &self,
        mut reach: Reach,
        number: u64,
        load: &mut Load,
    ) -> Result<Came, Fault> {
        let (server, blocks, owner) = (self.server, reach.blocks.clone(), reach.owner.at());
        let mut heard = reach.heard(self.taken(number).await);
        if let Heard::Again(take) = heard {
            self.world().seen.visit("take asked for again");
            heard = reach.heard(self.taken(self.start(owner, Ask::Take(take, load.tag))).await);
        }
        let (mine, fault) = match heard {
            Heard::Mine(mine) => (mine, None),
            Heard::Refused { late } => {
                self.miss(blocks);
                return Ok(Came::Refused { late });
            }
            Heard::Unheard(fault) => (self.unheard(blocks.clone()).await, Some(fault)),
            Heard::Again(_) => return Err(Fault::new(Code::Protocol, "a take is asked for twice at most")),
        };
        let fault = fault.filter(|_| (mine.len() as u64) < blocks.end - blocks.start);
        if fault.is_some() {
            self.world().truth.fails(load.tag);
        }
        self.world().table(server, |table| table.got(&mine));
        self.miss(blocks.filter(|block| mine.iter().all(|(own, _)| own != block)));
        Ok(Came::Mine(mine, fault))
    }

    fn miss(&self, blocks: impl Iterator<Item = u64>) {
        let (server, missed) = (self.server, blocks.collect::<Vec<u64>>());
        let mut world = self.world();
        world.table(server, |table| table.missed(missed.iter().copied()));
        missed.into_iter().for_each(|block| world.misses(server, block));
    }

    /// Those of these blocks that are this server's, as their homes say.
    async fn unheard(&self, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let mut mine = Vec::new();
        for (home, blocks) in self.by_home(blocks, |block| block) {
            let Ok(grants) = self.claim(home, &blocks).await else { continue };
            let own = blocks.iter().zip(grants).filter(|(_, grant)| grant.owner == index(self.server));
            mine.extend(own.map(|(block, grant)| (*block, grant.number)));
        }
        let word = if mine.is_empty() { "take looked up in vain" } else { "take looked up at home" };
        self.world().seen.visit(word);
        mine.sort_unstable();
        mine
    }

    /// Asks all homes of blocks that nothing is known of.
    pub(super) async fn find_out(&self, blocks: Range<u64>) -> Result<(), Fault> {
        loop {
            let server = self.server;
            let asked = {
                let mut world = self.world();
                let servers = world.servers.len();
                world
                    .table(server, |table| table.unknown(blocks.clone(), |block| index(home(block, servers))))
            };
            let Some((home, asked)) = asked else { return Ok(()) };
            self.ask(home.at(), &asked).await?;
        }
    }

    /// Each run of blocks at its owner.
    async fn by_owner(&self, range: &Range<usize>, load: &mut Load, takes: bool) -> Result<(), Fault> {
        let server = self.server;
        self.find_out(super::server::blocks_of(range)).await?;
        let mut walk = Walk::new(&bytes(range), BYTES, index(server), takes && load.writes);
        while let Some(blocks) = walk.rest() {
            if walk.is_lost() {
                return Err(Fault::new(
                    Code::Busy,
                    format!("whose block {} is is not settled", blocks.start),
                ));
            }
            match walk.step(self.begin(blocks.clone()).await) {
                Step::Here { run, end } => {
                    self.pause().await;
                    let done = self.here(&cells(&run), load);
                    self.world().table(server, |table| table.end(blocks.start..end));
                    done?;
                    walk.go_on(end);
                }
                Step::Take { owner, blocks, told } => {
                    let got = match self.reach_for(owner.at(), blocks.clone(), told, load) {
                        Some((reach, number)) => self.get(reach, number, load).await?,
                        None => false,
                    };
                    if got { walk.go_on(blocks.end) } else { walk.go_again(owner) }
                }
                Step::Visit { owner, run, end, told } => {
                    if self.there(owner.at(), &cells(&run), told, load).await? {
                        walk.go_on(end);
                        continue;
                    }
                    self.world().table(server, |table| table.forget(blocks.start..end, owner));
                    walk.go_again(owner);
                }
                Step::Ask(home, asked) => self.ask(home.at(), &asked).await?,
                Step::Tell { number, to } => self.pass_on(to.at(), vec![(blocks.start, number)]).await?,
                Step::Wait => {}
            }
        }
        Ok(())
    }
}
