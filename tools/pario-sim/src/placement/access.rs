//! Accesses of clients: all blocks of other owners concurrently, then run by run, each at its owner.
//!
//! The steps of `CachedFile::{read,write,by_owner,request_all,finish_handover}`, without threads, around the same walk and the same replies.

use std::ops::Range;

use pario_core::{Code, Fault, Generation, LocalOffset, ObjectId};
use pario_server::store::placement::{HandoverAttempt, HandoverOutcome, OwnerWalk, WalkStep, runs};
use pario_server::store::{Handover, HandoverReply, RemoteAccess};

use super::net::{PeerReply, PeerRequest};
use super::oracle::cells_of;
use super::server::INODE;
use super::simulation::{BLOCK_BYTES, CELL, CELLS, PlacementKind, PlacementOp, home, index};
use super::task::{TaskHandle, cells};
use crate::bugs::{AnyBug, PlacementBug};
use crate::history::{Did, RecordedAccess};

/// Runs requested concurrently.
const RUNS_IN_FLIGHT: usize = 8;
const BYTES: u64 = BLOCK_BYTES as u64;

/// Data of an access.
pub(super) struct Load {
    pub(super) tag: u64,
    writes: bool,
    pub(super) found: [u64; CELLS],
}

/// Result of a handover request.
pub(super) enum ReceivedBlocks {
    /// Blocks now owned by this server, with their ownership versions; the fault of the rest.
    Owned(Vec<(u64, u64)>, Option<Fault>),
    /// None; whether the request was stale.
    Refused { late: bool },
}

fn bytes(cells: &Range<usize>) -> Range<u64> {
    (cells.start * CELL) as u64..(cells.end * CELL) as u64
}

/// The whole and partial blocks of an access, each for itself.
pub(super) fn parts(op: &PlacementOp, ended: u64, found: Option<&[u64; CELLS]>) -> Vec<RecordedAccess> {
    let blocks = super::server::blocks_of(&op.cells);
    let part = |block: u64| {
        let cells: Vec<usize> = cells_of(block).filter(|cell| op.cells.contains(cell)).collect();
        let did = match found {
            Some(found) => Did::Read(cells.iter().map(|cell| found[*cell]).collect()),
            None => Did::Wrote(op.tag),
        };
        RecordedAccess { began: op.began, ended, cells, did }
    };
    blocks.map(part).collect()
}

impl TaskHandle {
    /// An access of a client's, from its beginning to its end.
    pub(super) async fn access(self, client: usize, op: PlacementOp) {
        let mut load = Load { tag: op.tag, writes: op.writes, found: [0; CELLS] };
        let (placement, moments) = {
            let world = self.state();
            (world.placement, world.atomic)
        };
        let done = match (placement, op.writes) {
            (PlacementKind::LastWriter, false) if moments => self.read_atomic(&op.cells, &mut load).await,
            (PlacementKind::LastWriter, true) if moments => self.write_atomic(&op.cells, &mut load).await,
            (PlacementKind::Home, _) => self.at_homes(&op.cells, &mut load).await,
            (_, false) => self.read(&op.cells, &mut load).await,
            (_, true) => self.write(&op.cells, &mut load, placement == PlacementKind::LastWriter).await,
        };
        let mut world = self.state();
        let now = world.step;
        match done {
            Ok(()) => {
                world.note(|| format!("client {client}: {op:?} found {:?}", load.found));
                let found = (!op.writes).then_some(&load.found);
                let parts = parts(&op, now, found);
                if moments && let Err(what) = world.truth.is_atomic(&op, &load.found) {
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
            let (home, nearest) = (self.home(block), self.state().has(PlacementBug::KeepNearest));
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
        let (server, mut world) = (self.server, self.state());
        if load.writes {
            return world.write_at(server, part.clone(), load.tag);
        }
        let found = world.read_at(server, part.clone())?;
        load.found[part.clone()].copy_from_slice(&found);
        Ok(())
    }

    fn remote_access_of(part: &Range<usize>, told: bool, load: &Load) -> PeerRequest {
        match load.writes {
            true => PeerRequest::Write(part.clone(), load.tag, told),
            false => PeerRequest::Read(part.clone(), told),
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
        let number = self.start(owner, TaskHandle::remote_access_of(part, told, load));
        self.await_remote_access(number, part, load).await
    }

    async fn await_remote_access(
        &self,
        number: u64,
        part: &Range<usize>,
        load: &mut Load,
    ) -> Result<bool, Fault> {
        match self.finish(number).await? {
            PeerReply::Found(found) => {
                load.found[part.clone()].copy_from_slice(&found);
                Ok(true)
            }
            PeerReply::Done => Ok(true),
            PeerReply::NotOwner
            | PeerReply::NotNow
            | PeerReply::AtomicData(..)
            | PeerReply::Grants(_)
            | PeerReply::HandoverReply(_)
            | PeerReply::Failed(_) => Ok(false),
        }
    }

    async fn read(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let server = self.server;
        self.find_out(super::server::blocks_of(range)).await?;
        let theirs =
            self.state().servers[server].table.remote_runs(super::server::blocks_of(range), RUNS_IN_FLIGHT);
        let mut asked = Vec::new();
        for (owner, blocks) in theirs {
            let whole = cells(&(blocks.start * BYTES..blocks.end * BYTES));
            let part = whole.start.max(range.start)..whole.end.min(range.end);
            let number = self.start(owner.at(), TaskHandle::remote_access_of(&part, false, load));
            asked.push((owner, blocks, part, number));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (owner, blocks, part, number) in asked {
            match self.await_remote_access(number, &part, load).await {
                Ok(true) => {
                    left.push(at..part.start);
                    at = part.end;
                }
                Ok(false) => self.state().table(server, |table| table.forget(blocks, owner)),
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
            true => self.request_all(range, load).await?,
            false => vec![range.clone()],
        };
        for part in left {
            self.by_owner(&part, load, follows).await?;
        }
        Ok(())
    }

    /// Requests handovers of all whole blocks of other servers concurrently. Returns the rest of the range.
    async fn request_all(&self, range: &Range<usize>, load: &mut Load) -> Result<Vec<Range<usize>>, Fault> {
        let (server, all) = (self.server, bytes(range));
        self.find_out(super::server::blocks_of(range)).await?;
        let whole = all.start.div_ceil(BYTES)..(all.end / BYTES).max(all.start.div_ceil(BYTES));
        let theirs = self.state().servers[server].table.remote_runs(whole, RUNS_IN_FLIGHT);
        let mut reaching = Vec::new();
        for (owner, blocks) in theirs {
            reaching.extend(self.send_handover(owner.at(), blocks, false, load));
        }
        let (mut left, mut at, mut result) = (Vec::new(), range.start, Ok(()));
        for (reach, number) in reaching {
            let part = cells(&(reach.blocks.start * BYTES..reach.blocks.end * BYTES));
            match self.finish_handover(reach, number, load).await {
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

    /// Requests a handover of blocks that are to be overwritten.
    pub(super) fn send_handover(
        &self,
        owner: usize,
        blocks: Range<u64>,
        told: bool,
        load: &Load,
    ) -> Option<(HandoverAttempt, u64)> {
        let server = self.server;
        let (syncs, of) =
            self.state().table(server, |table| table.begin_handover(blocks.clone(), index(owner)))?;
        let object = ObjectId { inode: INODE, generation: Generation(0) };
        let visit = RemoteAccess { object, at: LocalOffset(blocks.start * BYTES), home_confirmed: told };
        let count = u32::try_from(blocks.end - blocks.start).unwrap_or(u32::MAX);
        let take = Handover { to: index(server), first: visit, blocks: count, syncs, number_sum: of };
        let bug = match self.state().bug {
            Some(AnyBug::Ownership(bug)) => Some(bug),
            Some(AnyBug::Machine(_) | AnyBug::Around(_) | AnyBug::Placement(_)) | None => None,
        };
        let reach = HandoverAttempt::new(index(owner), take, blocks).sabotaged(bug);
        Some((reach, self.start(owner, PeerRequest::Handover(take, load.tag))))
    }

    async fn handover_reply(&self, number: u64) -> Result<HandoverReply, Fault> {
        match self.finish(number).await? {
            PeerReply::HandoverReply(taken) => Ok(taken),
            PeerReply::Grants(_)
            | PeerReply::Done
            | PeerReply::NotOwner
            | PeerReply::NotNow
            | PeerReply::Found(_)
            | PeerReply::AtomicData(..)
            | PeerReply::Failed(_) => Err(Fault::new(Code::Protocol, "not a reply to a handover request")),
        }
    }

    /// Completes a handover; false if the peer did not own the blocks.
    async fn finish_handover(
        &self,
        reach: HandoverAttempt,
        number: u64,
        load: &mut Load,
    ) -> Result<bool, Fault> {
        let server = self.server;
        let (mine, fault) = match self.await_handover(reach, number, load).await? {
            ReceivedBlocks::Owned(mine, fault) => (mine, fault),
            ReceivedBlocks::Refused { late } => return Ok(late),
        };
        let mut written = Ok(());
        for run in runs(&mine) {
            self.pause().await;
            let part = cells(&(run.start * BYTES..run.end * BYTES));
            let put = self.here(&part, load);
            if put.is_err() {
                // The block is as the plain file has it.
                self.state().truth.fails(load.tag);
                run.for_each(|block| self.state().misses(server, block));
            }
            written = written.and(put);
        }
        self.state().table(server, |table| table.filled(&mine));
        written?;
        fault.map_or(Ok(true), Err)
    }

    /// The blocks received have no bytes yet, and must be filled.
    pub(super) async fn await_handover(
        &self,
        mut reach: HandoverAttempt,
        number: u64,
        load: &mut Load,
    ) -> Result<ReceivedBlocks, Fault> {
        let (server, blocks, owner) = (self.server, reach.blocks.clone(), reach.owner.at());
        let mut heard = reach.answered(self.handover_reply(number).await);
        if let HandoverOutcome::Retry(take) = heard {
            self.state().seen.visit("take asked for again");
            heard = reach.answered(
                self.handover_reply(self.start(owner, PeerRequest::Handover(take, load.tag))).await,
            );
        }
        let (mine, fault) = match heard {
            HandoverOutcome::Granted(mine) => (mine, None),
            HandoverOutcome::Refused { late } => {
                self.miss(blocks);
                return Ok(ReceivedBlocks::Refused { late });
            }
            HandoverOutcome::AskHomes(fault) => (self.granted_by_homes(blocks.clone()).await, Some(fault)),
            HandoverOutcome::Retry(_) => {
                return Err(Fault::new(Code::Protocol, "a handover is requested twice at most"));
            }
        };
        let fault = fault.filter(|_| (mine.len() as u64) < blocks.end - blocks.start);
        if fault.is_some() {
            self.state().truth.fails(load.tag);
        }
        self.state().table(server, |table| table.received(&mine));
        self.miss(blocks.filter(|block| mine.iter().all(|(own, _)| own != block)));
        Ok(ReceivedBlocks::Owned(mine, fault))
    }

    fn miss(&self, blocks: impl Iterator<Item = u64>) {
        let (server, missed) = (self.server, blocks.collect::<Vec<u64>>());
        let mut world = self.state();
        world.table(server, |table| table.not_received(missed.iter().copied()));
        missed.into_iter().for_each(|block| world.misses(server, block));
    }

    /// Those of these blocks that this server owns, according to their homes.
    async fn granted_by_homes(&self, blocks: Range<u64>) -> Vec<(u64, u64)> {
        let mut mine = Vec::new();
        for (home, blocks) in self.by_home(blocks, |block| block) {
            let Ok(grants) = self.claim(home, &blocks).await else { continue };
            let own = blocks.iter().zip(grants).filter(|(_, grant)| grant.owner == index(self.server));
            mine.extend(own.map(|(block, grant)| (*block, grant.number)));
        }
        let word = if mine.is_empty() { "take looked up in vain" } else { "take looked up at home" };
        self.state().seen.visit(word);
        mine.sort_unstable();
        mine
    }

    /// Queries the homes of all unknown blocks.
    pub(super) async fn find_out(&self, blocks: Range<u64>) -> Result<(), Fault> {
        loop {
            let server = self.server;
            let asked = {
                let mut world = self.state();
                let servers = world.servers.len();
                world
                    .table(server, |table| table.unknown(blocks.clone(), |block| index(home(block, servers))))
            };
            let Some((home, asked)) = asked else { return Ok(()) };
            self.claim_unknown(home.at(), &asked).await?;
        }
    }

    /// Each run of blocks at its owner.
    async fn by_owner(&self, range: &Range<usize>, load: &mut Load, takes: bool) -> Result<(), Fault> {
        let server = self.server;
        self.find_out(super::server::blocks_of(range)).await?;
        let mut walk = OwnerWalk::new(&bytes(range), BYTES, index(server), takes && load.writes);
        while let Some(blocks) = walk.rest() {
            if walk.is_lost() {
                return Err(Fault::new(
                    Code::Busy,
                    format!("could not determine the owner of block {}", blocks.start),
                ));
            }
            match walk.step(self.begin(blocks.clone()).await) {
                WalkStep::Here { run, end } => {
                    self.pause().await;
                    let done = self.here(&cells(&run), load);
                    self.state().table(server, |table| table.end(blocks.start..end));
                    done?;
                    walk.advance(end);
                }
                WalkStep::Handover { owner, blocks, told } => {
                    let got = match self.send_handover(owner.at(), blocks.clone(), told, load) {
                        Some((reach, number)) => self.finish_handover(reach, number, load).await?,
                        None => false,
                    };
                    if got { walk.advance(blocks.end) } else { walk.retry(owner) }
                }
                WalkStep::Remote { owner, run, end, told } => {
                    if self.there(owner.at(), &cells(&run), told, load).await? {
                        walk.advance(end);
                        continue;
                    }
                    self.state().table(server, |table| table.forget(blocks.start..end, owner));
                    walk.retry(owner);
                }
                WalkStep::Claim(home, asked) => self.claim_unknown(home.at(), &asked).await?,
                WalkStep::Report { number, to } => {
                    self.report_handover(to.at(), vec![(blocks.start, number)]).await?
                }
                WalkStep::Wait => {}
            }
        }
        Ok(())
    }
}
