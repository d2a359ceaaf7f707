//! Atomic multi-block accesses: writes that hold all their blocks, and reads that check the versions of all blocks afterwards.
//!
//! The steps of `plain_cache/placement/atomic.rs`, without threads. In a run with atomic accesses all clients make them: others are
//! excluded by locks, which the coherence simulation covers.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_server::store::placement::{AtomicLookup, HoldStep, RemoteLookup, RemoteRequest, runs};

use super::access::{Load, ReceivedBlocks};
use super::net::{PeerReply, PeerRequest};
use super::server::blocks_of;
use super::simulation::{BLOCK_BYTES, home, index};
use super::task::{TaskHandle, cells};
use crate::bugs::PlacementBug;

const BYTES: u64 = BLOCK_BYTES as u64;

/// Result of a read at the other owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnersReply {
    Atomic,
    Moved,
    Busy,
    Changed,
}

fn cells_within(range: &Range<usize>, blocks: &Range<u64>) -> Range<usize> {
    let whole = cells(&(blocks.start * BYTES..blocks.end * BYTES));
    whole.start.max(range.start)..whole.end.min(range.end)
}

impl TaskHandle {
    /// Overwrites whole blocks atomically.
    pub(super) async fn write_atomic(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let (server, mut held) = (self.server, Vec::new());
        let gathered = self.hold_all(blocks_of(range), load, &mut held).await;
        if gathered.is_err() {
            self.state().truth.fails(load.tag);
        }
        let mut written = Ok(());
        for (block, _) in &held {
            self.pause().await;
            let put = self.here(&cells_within(range, &(*block..block + 1)), load);
            if put.is_err() {
                self.state().truth.fails(load.tag);
                self.state().misses(server, *block);
            }
            written = written.and(put);
        }
        self.state().table(server, |table| table.release(&held));
        self.state().seen.visit("written at once");
        written.and(gathered)
    }

    /// Holds blocks, the lowest first.
    async fn hold_all(
        &self,
        blocks: Range<u64>,
        load: &mut Load,
        held: &mut Vec<(u64, u64)>,
    ) -> Result<(), Fault> {
        self.find_out(blocks.clone()).await?;
        let (server, mut at, mut tries) = (self.server, blocks.start, 0u32);
        while at < blocks.end {
            let hold = self
                .wait(|world| {
                    let servers = world.servers.len();
                    let home = |block| index(home(block, servers));
                    let hold = world.table(server, |table| table.hold(at..blocks.end, home));
                    Some(hold).filter(|hold| *hold != HoldStep::Busy)
                })
                .await;
            match hold {
                HoldStep::Held(mine) => {
                    (at, tries) = (at + mine.len() as u64, 0);
                    held.extend(mine);
                    let early = self.state().has(PlacementBug::HoldOne) && at < blocks.end;
                    if early {
                        // Own blocks are written before the rest is held.
                        let run = held.remove(held.len() - 1);
                        let _ = self.here(&cells(&(run.0 * BYTES..(run.0 + 1) * BYTES)), load);
                        self.state().table(server, |table| table.release(&[run]));
                    }
                }
                HoldStep::Busy => {}
                HoldStep::Remote(owner, run) => {
                    let Some((reach, number)) = self.send_handover(owner.at(), run, 0 < tries, load) else {
                        continue;
                    };
                    match self.await_handover(reach, number, load).await? {
                        ReceivedBlocks::Owned(mine, fault) => {
                            at += mine.len() as u64;
                            held.extend(mine);
                            fault.map_or(Ok(()), Err)?;
                            tries = 0;
                        }
                        ReceivedBlocks::Refused { late: true } => return Ok(()),
                        ReceivedBlocks::Refused { late: false } => {
                            tries += 1;
                            self.pause().await;
                            self.find_out(at..blocks.end).await?;
                        }
                    }
                }
                HoldStep::Claim(home, asked) => self.claim_unknown(home.at(), &asked).await?,
                HoldStep::Report { number, to } => self.report_handover(to.at(), vec![(at, number)]).await?,
            }
        }
        Ok(())
    }

    /// Reads atomically. The real client would acquire a lock after the last attempt; here it continues.
    pub(super) async fn read_atomic(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let (server, blocks, mut told) = (self.server, blocks_of(range), false);
        loop {
            self.find_out(blocks.clone()).await?;
            let look = self
                .wait(|world| {
                    let look = world.table(server, |table| table.look_up(blocks.clone()));
                    Some(look).filter(|look| *look != AtomicLookup::Pending)
                })
                .await;
            let (seen, theirs) = match look {
                AtomicLookup::Seen(seen, theirs) => (seen, theirs),
                AtomicLookup::Pending => continue,
                AtomicLookup::Unknown => {
                    self.learn(blocks.clone()).await?;
                    continue;
                }
            };
            let unpinned = self.state().has(PlacementBug::LookUnpinned);
            let unpin = |hand: &TaskHandle| {
                let mut world = hand.state();
                seen.iter().for_each(|(block, _)| world.table(server, |table| table.end(*block..block + 1)));
            };
            if unpinned {
                unpin(self);
            }
            let others = self.read_from_owners(range, &theirs, told, load).await;
            if others == Ok(OwnersReply::Atomic) {
                self.pause().await;
            }
            let read = match &others {
                Ok(OwnersReply::Atomic) => {
                    let parts = runs(&seen);
                    parts.iter().try_for_each(|run| self.here(&cells_within(range, run), load))
                }
                Ok(OwnersReply::Moved | OwnersReply::Busy | OwnersReply::Changed) | Err(_) => Ok(()),
            };
            if !unpinned {
                unpin(self);
            }
            read?;
            let word = match others? {
                OwnersReply::Atomic => {
                    self.state().seen.visit("read at once");
                    return Ok(());
                }
                OwnersReply::Moved => {
                    told = true;
                    "read at once moved"
                }
                OwnersReply::Busy => "read at once met a writer",
                OwnersReply::Changed => "read at once in vain",
            };
            self.state().seen.visit(word);
            self.pause().await;
        }
    }

    async fn read_from_owners(
        &self,
        range: &Range<usize>,
        theirs: &[(pario_core::ServerIndex, Range<u64>)],
        told: bool,
        load: &mut Load,
    ) -> Result<OwnersReply, Fault> {
        let ask = |(owner, blocks): &(pario_core::ServerIndex, Range<u64>)| {
            let part = cells_within(range, blocks);
            let number = self.start(owner.at(), PeerRequest::ReadAtomic(part.clone(), told));
            (*owner, blocks.clone(), part, number)
        };
        let asked: Vec<_> = theirs.iter().map(ask).collect();
        let (mut others, mut stamps, mut result) = (OwnersReply::Atomic, Vec::new(), Ok(()));
        for (owner, blocks, part, number) in asked {
            match self.finish(number).await {
                Ok(PeerReply::AtomicData(found, stamp)) => {
                    load.found[part].copy_from_slice(&found);
                    stamps.push((owner.at(), blocks, stamp));
                }
                Ok(PeerReply::NotNow) => others = OwnersReply::Busy,
                Ok(_) => {
                    let server = self.server;
                    self.state().table(server, |table| table.forget(blocks, owner));
                    others = OwnersReply::Moved;
                }
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        result?;
        let trusts = self.state().has(PlacementBug::TrustOwners);
        if others != OwnersReply::Atomic || stamps.len() < 2 || trusts {
            return Ok(others);
        }
        let ask = |(owner, blocks, stamp): (usize, Range<u64>, u64)| {
            self.start(owner, PeerRequest::Unchanged(blocks, stamp))
        };
        let asked: Vec<u64> = stamps.into_iter().map(ask).collect();
        let mut result = Ok(others);
        for number in asked {
            match self.finish(number).await {
                Ok(PeerReply::Done) => {}
                Ok(_) => result = result.map(|_| OwnersReply::Changed),
                Err(fault) => result = Err(fault),
            }
        }
        result
    }

    /// A remote atomic read of this server's blocks: it does not wait.
    pub(super) async fn serve_atomic_read(
        self,
        from: usize,
        number: u64,
        (cells, told): (Range<usize>, bool),
    ) {
        let reply = self.looked(cells, told).await.unwrap_or_else(PeerReply::Failed);
        let server = self.server;
        self.state().reply((server, from), number, reply);
    }

    async fn looked(&self, cells: Range<usize>, told: bool) -> Result<PeerReply, Fault> {
        let (server, blocks) = (self.server, blocks_of(&cells));
        let come = |hand: &TaskHandle| {
            hand.state().table(server, |table| table.look_up_remote(&mut RemoteRequest::new(blocks.clone())))
        };
        let mut found = come(self);
        let unknown = found == Some(RemoteLookup::Unknown)
            || found == Some(RemoteLookup::NotOwner) && self.home_knows_better(&blocks);
        if told && unknown {
            // Never waits for a block: the requester holds its own blocks meanwhile.
            self.find_out(blocks.clone()).await?;
            found = come(self);
        }
        match found {
            None => return Ok(PeerReply::NotNow),
            Some(RemoteLookup::Owned) => {}
            Some(RemoteLookup::NotOwner | RemoteLookup::Unknown) => {
                self.report_unreported(blocks).await?;
                return Ok(PeerReply::NotOwner);
            }
        }
        let stamp = self.state().servers[server].table.version_sum(blocks.clone());
        self.pause().await;
        let mut world = self.state();
        let read = world.read_at(server, cells);
        world.table(server, |table| table.end(blocks));
        let stamp = stamp.ok_or_else(|| Fault::new(Code::Protocol, "a block in use has no stamp"))?;
        read.map(|found| PeerReply::AtomicData(found, stamp))
    }
}
