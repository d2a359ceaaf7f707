//! Accesses that happen at one moment: writes that hold all their blocks, and reads that find out whether what they found was there together.
//!
//! Step by step what `shared_file/moment.rs` does with threads. In a world where clients access the file so, all of them do: who does not is
//! kept out by locks, which the other world plays.

use std::ops::Range;

use pario_core::{Code, Fault};
use pario_server::store::ownership::{Found, Hold, Look, Visitor, runs};

use super::access::{Came, Load};
use super::hand::{Hand, cells};
use super::net::{Ask, Reply};
use super::server::blocks_of;
use super::world::{BLOCK_BYTES, home, index};
use crate::bugs::PlaceBug;

const BYTES: u64 = BLOCK_BYTES as u64;

/// What other servers said to a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Others {
    Together,
    Moved,
    Busy,
    Changed,
}

fn cells_within(range: &Range<usize>, blocks: &Range<u64>) -> Range<usize> {
    let whole = cells(&(blocks.start * BYTES..blocks.end * BYTES));
    whole.start.max(range.start)..whole.end.min(range.end)
}

impl Hand {
    /// Overwrites whole blocks at one moment.
    pub(super) async fn write_at_once(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let (server, mut held) = (self.server, Vec::new());
        let gathered = self.hold_all(blocks_of(range), load, &mut held).await;
        if gathered.is_err() {
            self.world().truth.fails(load.tag);
        }
        let mut written = Ok(());
        for (block, _) in &held {
            self.pause().await;
            let put = self.here(&cells_within(range, &(*block..block + 1)), load);
            if put.is_err() {
                self.world().truth.fails(load.tag);
                self.world().misses(server, *block);
            }
            written = written.and(put);
        }
        self.world().table(server, |table| table.let_go(&held));
        self.world().seen.visit("written at once");
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
                    Some(hold).filter(|hold| *hold != Hold::Used)
                })
                .await;
            match hold {
                Hold::Mine(mine) => {
                    (at, tries) = (at + mine.len() as u64, 0);
                    held.extend(mine);
                    let early = self.world().has(PlaceBug::HoldOne) && at < blocks.end;
                    if early {
                        // What is own is written before the rest is there.
                        let run = held.remove(held.len() - 1);
                        let _ = self.here(&cells(&(run.0 * BYTES..(run.0 + 1) * BYTES)), load);
                        self.world().table(server, |table| table.let_go(&[run]));
                    }
                }
                Hold::Used => {}
                Hold::Theirs(owner, run) => {
                    let Some((reach, number)) = self.reach_for(owner.at(), run, 0 < tries, load) else {
                        continue;
                    };
                    match self.hear_take(reach, number, load).await? {
                        Came::Mine(mine, fault) => {
                            at += mine.len() as u64;
                            held.extend(mine);
                            fault.map_or(Ok(()), Err)?;
                            tries = 0;
                        }
                        Came::Refused { late: true } => return Ok(()),
                        Came::Refused { late: false } => {
                            tries += 1;
                            self.pause().await;
                            self.find_out(at..blocks.end).await?;
                        }
                    }
                }
                Hold::Ask(home, asked) => self.ask(home.at(), &asked).await?,
                Hold::Tell { number, to } => self.pass_on(to.at(), vec![(at, number)]).await?,
            }
        }
        Ok(())
    }

    /// Reads what was there at one moment. Who gives up in earnest would take a lock; here it goes on.
    pub(super) async fn read_at_once(&self, range: &Range<usize>, load: &mut Load) -> Result<(), Fault> {
        let (server, blocks, mut told) = (self.server, blocks_of(range), false);
        loop {
            self.find_out(blocks.clone()).await?;
            let look = self
                .wait(|world| {
                    let look = world.table(server, |table| table.look(blocks.clone()));
                    Some(look).filter(|look| *look != Look::Pending)
                })
                .await;
            let (seen, theirs) = match look {
                Look::Seen(seen, theirs) => (seen, theirs),
                Look::Pending => continue,
                Look::Unknown => {
                    self.learn(blocks.clone()).await?;
                    continue;
                }
            };
            let unpinned = self.world().has(PlaceBug::LookUnpinned);
            let unpin = |hand: &Hand| {
                let mut world = hand.world();
                seen.iter().for_each(|(block, _)| world.table(server, |table| table.end(*block..block + 1)));
            };
            if unpinned {
                unpin(self);
            }
            let others = self.ask_owners(range, &theirs, told, load).await;
            if others == Ok(Others::Together) {
                self.pause().await;
            }
            let read = match &others {
                Ok(Others::Together) => {
                    let parts = runs(&seen);
                    parts.iter().try_for_each(|run| self.here(&cells_within(range, run), load))
                }
                Ok(Others::Moved | Others::Busy | Others::Changed) | Err(_) => Ok(()),
            };
            if !unpinned {
                unpin(self);
            }
            read?;
            let word = match others? {
                Others::Together => {
                    self.world().seen.visit("read at once");
                    return Ok(());
                }
                Others::Moved => {
                    told = true;
                    "read at once moved"
                }
                Others::Busy => "read at once met a writer",
                Others::Changed => "read at once in vain",
            };
            self.world().seen.visit(word);
            self.pause().await;
        }
    }

    async fn ask_owners(
        &self,
        range: &Range<usize>,
        theirs: &[(pario_core::ServerIndex, Range<u64>)],
        told: bool,
        load: &mut Load,
    ) -> Result<Others, Fault> {
        let ask = |(owner, blocks): &(pario_core::ServerIndex, Range<u64>)| {
            let part = cells_within(range, blocks);
            let number = self.start(owner.at(), Ask::Look(part.clone(), told));
            (*owner, blocks.clone(), part, number)
        };
        let asked: Vec<_> = theirs.iter().map(ask).collect();
        let (mut others, mut stamps, mut result) = (Others::Together, Vec::new(), Ok(()));
        for (owner, blocks, part, number) in asked {
            match self.finish(number).await {
                Ok(Reply::Moment(found, stamp)) => {
                    load.found[part].copy_from_slice(&found);
                    stamps.push((owner.at(), blocks, stamp));
                }
                Ok(Reply::NotNow) => others = Others::Busy,
                Ok(_) => {
                    let server = self.server;
                    self.world().table(server, |table| table.forget(blocks, owner));
                    others = Others::Moved;
                }
                Err(fault) => result = result.and(Err(fault)),
            }
        }
        result?;
        let trusts = self.world().has(PlaceBug::TrustOwners);
        if others != Others::Together || stamps.len() < 2 || trusts {
            return Ok(others);
        }
        let ask =
            |(owner, blocks, stamp): (usize, Range<u64>, u64)| self.start(owner, Ask::Still(blocks, stamp));
        let asked: Vec<u64> = stamps.into_iter().map(ask).collect();
        let mut result = Ok(others);
        for number in asked {
            match self.finish(number).await {
                Ok(Reply::Done) => {}
                Ok(_) => result = result.map(|_| Others::Changed),
                Err(fault) => result = Err(fault),
            }
        }
        result
    }

    /// Another server's read of blocks that are this one's, as they are at one moment: it does not wait.
    pub(super) async fn look_for(self, from: usize, number: u64, (cells, told): (Range<usize>, bool)) {
        let reply = self.looked(cells, told).await.unwrap_or_else(Reply::Failed);
        let server = self.server;
        self.world().reply((server, from), number, reply);
    }

    async fn looked(&self, cells: Range<usize>, told: bool) -> Result<Reply, Fault> {
        let (server, blocks) = (self.server, blocks_of(&cells));
        let come = |hand: &Hand| {
            hand.world().table(server, |table| table.visited(&mut Visitor::new(blocks.clone())))
        };
        let mut found = come(self);
        let unknown = found == Some(Found::Unknown) || found == Some(Found::Gone) && self.doubts(&blocks);
        if told && unknown {
            // Never by waiting for a block: who asks keeps others waiting for its own.
            self.find_out(blocks.clone()).await?;
            found = come(self);
        }
        match found {
            None => return Ok(Reply::NotNow),
            Some(Found::Mine) => {}
            Some(Found::Gone | Found::Unknown) => {
                self.tell_owed(blocks).await?;
                return Ok(Reply::NotMine);
            }
        }
        let stamp = self.world().servers[server].table.stamps(blocks.clone());
        self.pause().await;
        let mut world = self.world();
        let read = world.read_at(server, cells);
        world.table(server, |table| table.end(blocks));
        let stamp = stamp.ok_or_else(|| Fault::new(Code::Protocol, "a block in use has no stamp"))?;
        read.map(|found| Reply::Moment(found, stamp))
    }
}
