//! Services between servers: homes answer claims, owners serve remote accesses, hand blocks over, return them, and report handovers to
//! homes.
//!
//! The steps of `plain_cache/{first_touch,last_writer,walk}.rs`, without threads, around the same state machines.

use std::ops::Range;

use pario_core::Fault;
use pario_server::store::placement::{AccessStart, HandoverState, RemoteLookup, RemoteRequest};
use pario_server::store::{Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport};

use super::net::{PeerReply, PeerRequest};
use super::server::{INODE, blocks_of};
use super::simulation::{BLOCK_BYTES, BLOCKS, PlacementKind, PlacementSim, home, index};
use super::task::TaskHandle;
use crate::bugs::PlacementBug;

/// Attempts to report a handover to a home that does not answer.
const REPORTS_MAX: u32 = 3;

/// Requests to a home.
impl PlacementSim {
    pub(super) fn at_home(&mut self, server: usize, ask: PeerRequest) -> PeerReply {
        let directory = &mut self.servers[server].directory;
        match ask {
            PeerRequest::Claim(claim) => match directory.claim(&claim) {
                Ok(grants) => {
                    let others = grants.iter().any(|grant| grant.owner != claim.server);
                    self.seen.visit(if others { "home named an owner" } else { "home granted" });
                    PeerReply::Grants(grants)
                }
                Err(fault) => PeerReply::Failed(fault),
            },
            PeerRequest::GiveBack(back) => {
                directory.give_back(&back);
                PeerReply::Done
            }
            PeerRequest::ReportHandover(pass) => {
                directory.report_handover(&pass);
                PeerReply::Done
            }
            PeerRequest::Unchanged(blocks, stamp) => match self.servers[server].table.version_sum(blocks) {
                Some(now) if now == stamp => PeerReply::Done,
                Some(_) | None => PeerReply::NotNow,
            },
            PeerRequest::Handover(..)
            | PeerRequest::Read(..)
            | PeerRequest::Write(..)
            | PeerRequest::ReadAtomic(..) => PeerReply::NotOwner,
        }
    }
}

/// Queries and reports of any task.
impl TaskHandle {
    /// Sends a request to a home, possibly this server.
    async fn request_home(&self, home: usize, ask: PeerRequest) -> Result<PeerReply, Fault> {
        if home == self.server {
            let server = self.server;
            return Ok(self.state().at_home(server, ask));
        }
        self.call(home, ask).await
    }

    pub(super) async fn claim(&self, home: usize, blocks: &[u64]) -> Result<Vec<Grant>, Fault> {
        let (server, block_bytes) = (index(self.server), BLOCK_BYTES as u64);
        let blocks = self.state().servers[self.server].table.claimed(blocks);
        let claim = Claim { server, inode: INODE, block_bytes, blocks };
        match self.request_home(home, PeerRequest::Claim(claim)).await? {
            PeerReply::Grants(grants) => Ok(grants),
            PeerReply::Done
            | PeerReply::NotOwner
            | PeerReply::NotNow
            | PeerReply::Found(_)
            | PeerReply::AtomicData(..)
            | PeerReply::HandoverReply(_)
            | PeerReply::Failed(_) => Ok(Vec::new()),
        }
    }

    pub(super) async fn claim_unknown(&self, home: usize, blocks: &[u64]) -> Result<(), Fault> {
        let answer = self.claim(home, blocks).await;
        let server = self.server;
        self.state().table(server, |table| table.answered(blocks, answer.as_deref().ok(), index(server)));
        answer.map(|_| ())
    }

    /// See `CachedFile::begin`: waits until the target of an access to these blocks is known.
    pub(super) async fn begin(&self, blocks: Range<u64>) -> AccessStart {
        let server = self.server;
        self.wait(|world| {
            let servers = world.servers.len();
            let begun =
                world.table(server, |table| table.begin(blocks.clone(), |block| index(home(block, servers))));
            Some(begun).filter(|begun| *begun != AccessStart::Pending)
        })
        .await
    }

    /// Queries the owners of blocks.
    pub(super) async fn learn(&self, blocks: Range<u64>) -> Result<(), Fault> {
        let mut at = blocks.start;
        while at < blocks.end {
            match self.begin(at..blocks.end).await {
                AccessStart::Owned(end) => {
                    let server = self.server;
                    self.state().table(server, |table| table.end(at..end));
                    at = end;
                }
                AccessStart::Remote(_, end) => at = end,
                AccessStart::Claim(home, asked) => self.claim_unknown(home.at(), &asked).await?,
                AccessStart::Report { number, to } => {
                    self.report_handover(to.at(), vec![(at, number)]).await?
                }
                AccessStart::Pending => {}
            }
        }
        Ok(())
    }

    /// Reports the new owner of blocks to their homes.
    pub(super) async fn report_handover(&self, to: usize, leaving: Vec<(u64, u64)>) -> Result<(), Fault> {
        let (server, mut result) = (self.server, Ok(()));
        for (home, blocks) in self.by_home(leaving, |(block, _)| block) {
            let pass = HandoverReport { server: index(server), to: index(to), inode: INODE, blocks };
            let mut told = self.request_home(home, PeerRequest::ReportHandover(pass.clone())).await;
            for _ in 1..REPORTS_MAX {
                if told.is_err() {
                    told = self.request_home(home, PeerRequest::ReportHandover(pass.clone())).await;
                }
            }
            self.state().table(server, |table| table.handed_over(&pass.blocks, index(to), told.is_ok()));
            result = result.and(told.map(|_| ()));
        }
        result
    }

    /// A peer requested blocks with an unreported handover: report it now.
    pub(super) async fn report_unreported(&self, blocks: Range<u64>) -> Result<(), Fault> {
        loop {
            let server = self.server;
            let owed = self.state().table(server, |table| table.unreported(blocks.clone()));
            let Some((block, number, to)) = owed else { return Ok(()) };
            self.report_handover(to.at(), vec![(block, number)]).await?;
        }
    }

    async fn visited(&self, blocks: &Range<u64>) -> RemoteLookup {
        let (server, mut visitor) = (self.server, RemoteRequest::new(blocks.clone()));
        self.wait(|world| world.table(server, |table| table.look_up_remote(&mut visitor))).await
    }

    /// Whether a home that named this server has newer information than its table.
    pub(super) fn home_knows_better(&self, blocks: &Range<u64>) -> bool {
        let server = self.server;
        let mut world = self.state();
        let doubts = world.table(server, |table| table.forget_remote(blocks.clone()));
        if doubts {
            world.seen.visit("home believed against memory");
        }
        doubts
    }

    /// Whether a remote access finds these blocks here; they are then in use.
    async fn admits_remote(&self, blocks: &Range<u64>, told: bool) -> Result<bool, Fault> {
        let mut found = self.visited(blocks).await;
        if told
            && (found == RemoteLookup::Unknown
                || found == RemoteLookup::NotOwner && self.home_knows_better(blocks))
        {
            self.state().seen.visit("visitor sent where nothing is known");
            self.learn(blocks.clone()).await?;
            found = self.visited(blocks).await;
        }
        if found == RemoteLookup::Owned {
            return Ok(true);
        }
        self.state().seen.visit("visitor sent on");
        self.report_unreported(blocks.clone()).await?;
        Ok(false)
    }

    /// Another server's access to blocks that are this one's.
    pub(super) async fn serve_remote_access(self, from: usize, number: u64, ask: PeerRequest) {
        let reply = self.serve(ask).await.unwrap_or_else(PeerReply::Failed);
        let server = self.server;
        self.state().reply((server, from), number, reply);
    }

    async fn serve(&self, ask: PeerRequest) -> Result<PeerReply, Fault> {
        let (cells, tag, told) = match ask {
            PeerRequest::Read(cells, told) => (cells, None, told),
            PeerRequest::Write(cells, tag, told) => (cells, Some(tag), told),
            PeerRequest::Claim(_)
            | PeerRequest::GiveBack(_)
            | PeerRequest::ReportHandover(_)
            | PeerRequest::Handover(..)
            | PeerRequest::ReadAtomic(..)
            | PeerRequest::Unchanged(..) => return Ok(PeerReply::NotOwner),
        };
        let (server, blocks) = (self.server, blocks_of(&cells));
        let (fixed, blind) = {
            let world = self.state();
            (world.placement == PlacementKind::Home, world.has(PlacementBug::VisitAnything))
        };
        if !fixed && !blind && !self.admits_remote(&blocks, told).await? {
            return Ok(PeerReply::NotOwner);
        }
        self.pause().await;
        let mut world = self.state();
        world.seen.visit("visit");
        let result = match tag {
            Some(tag) => world.write_at(server, cells, tag).map(|()| PeerReply::Done),
            None => world.read_at(server, cells).map(PeerReply::Found),
        };
        if !fixed && !blind {
            world.table(server, |table| table.end(blocks));
        }
        result
    }

    async fn part(&self, blocks: &Range<u64>, of: u64) -> HandoverState {
        let server = self.server;
        let look = |world: &mut PlacementSim| {
            let parted = world.table(server, |table| table.hand_over(blocks.clone(), of));
            Some(parted).filter(|parted| *parted != HandoverState::Busy)
        };
        match self.wait_a_while(look).await {
            Some(parted) => parted,
            None => {
                self.state().seen.visit("taker out of patience");
                HandoverState::Busy
            }
        }
    }

    /// Another server overwrites whole blocks of this one's.
    pub(super) async fn serve_handover(self, number: u64, (take, tag): (Handover, u64)) {
        let (server, to) = (self.server, take.to.at());
        if let Err(fault) = self.hand_over(number, take, tag).await {
            self.state().reply((server, to), number, PeerReply::Failed(fault));
        }
    }

    async fn hand_over(&self, number: u64, take: Handover, tag: u64) -> Result<(), Fault> {
        let (server, to) = (self.server, take.to.at());
        let first = take.first.at.0 / BLOCK_BYTES as u64;
        let blocks = first..first + u64::from(take.blocks);
        let mut parted = self.part(&blocks, take.number_sum).await;
        let told = take.first.home_confirmed;
        if told
            && (parted == HandoverState::Unknown
                || parted == HandoverState::NotOwner && self.home_knows_better(&blocks))
        {
            self.find_out(blocks.clone()).await?;
            parted = self.part(&blocks, take.number_sum).await;
        }
        let HandoverState::Leaving(leaving) = parted else {
            self.report_unreported(blocks).await?;
            let mut world = self.state();
            world.seen.visit("take refused");
            world.reply((server, to), number, PeerReply::HandoverReply(HandoverReply::NotMine));
            return Ok(());
        };
        self.flush_for_sync(&take, &leaving).await?;
        let numbers = leaving.iter().map(|(_, number)| number + 1).collect();
        let answer = PeerReply::HandoverReply(HandoverReply::Granted(numbers));
        let answers_first = self.state().has(PlacementBug::AnswerFirst);
        if answers_first {
            self.state().reply((server, to), number, answer.clone());
            self.pause().await;
        }
        {
            let mut world = self.state();
            world.remove_from_cache(server, blocks, (tag, to));
            if !world.is_waited_for(number) {
                world.seen.visit("given to nobody who listens");
            }
            if !answers_first {
                world.reply((server, to), number, answer);
            }
            world.seen.visit("take granted");
        }
        // It is reported when the blocks are requested next.
        let _ = self.report_handover(to, leaving).await;
        Ok(())
    }

    /// A sync has passed the receiving server before these blocks, and would not find them here any more.
    async fn flush_for_sync(&self, take: &Handover, leaving: &[(u64, u64)]) -> Result<(), Fault> {
        let server = self.server;
        let due = {
            let world = self.state();
            world.servers[server].table.synced() < take.syncs && !world.has(PlacementBug::GivePastSync)
        };
        if !due {
            return Ok(());
        }
        self.pause().await;
        let mut world = self.state();
        let PlacementSim { servers, plain, .. } = &mut *world;
        let written =
            leaving.iter().try_for_each(|(block, _)| servers[server].write_back(plain, *block..block + 1));
        match written {
            Ok(()) => {
                plain.sync();
                world.seen.visit("put down before it is given");
                Ok(())
            }
            Err(fault) => {
                world.table(server, |table| table.keep(leaving));
                Err(fault)
            }
        }
    }

    /// Returns ownerships of evicted blocks.
    pub(super) async fn return_blocks(self, blocks: Vec<u64>) {
        let server = self.server;
        let leaving = {
            let mut world = self.state();
            let wanted =
                |block: u64| world.servers[server].keeps(block) && !world.has(PlacementBug::LeaveBytes);
            let wanted: Vec<u64> = blocks.iter().copied().filter(|block| wanted(*block)).collect();
            world.table(server, |table| table.leave(blocks, |block| wanted.contains(&block)))
        };
        for (home, blocks) in self.by_home(leaving, |(block, _)| block) {
            let back = GiveBack { server: index(server), inode: INODE, blocks: blocks.clone() };
            let told = self.request_home(home, PeerRequest::GiveBack(back)).await.is_ok();
            let mut world = self.state();
            if !told {
                world.seen.visit("block given back unheard");
            }
            world.table(server, |table| table.left(&blocks, told));
        }
    }

    /// One server's part of a sync.
    pub(super) async fn refresh(self) {
        let server = self.server;
        let sync = self.state().table(server, |table| table.begin_sync());
        let mut waited = false;
        self.wait(|world| {
            let awaits = world.servers[server].table.awaits(sync);
            waited |= awaits;
            (!awaits).then_some(())
        })
        .await;
        if waited {
            self.state().seen.visit("sync waited for a take");
        }
        self.pause().await;
        let mut world = self.state();
        let PlacementSim { servers, plain, .. } = &mut *world;
        let flushed = servers[server].flush(plain);
        if flushed.is_ok() {
            plain.sync();
            world.table(server, |table| table.end_sync(sync));
            world.servers[server].forget_clean();
        }
        world.refreshed(server, flushed.is_ok());
    }

    /// The file is closed: all dirty blocks are written back, and all ownerships end.
    pub(super) async fn close(self) {
        let server = self.server;
        let mine = {
            let mut world = self.state();
            let PlacementSim { servers, plain, .. } = &mut *world;
            if let Err(fault) = servers[server].flush(plain) {
                world.violate(format!("server {server} cannot end: {fault}"));
            }
            world.servers[server].evict_all(0..BLOCKS as u64);
            world.servers[server].table.owned()
        };
        self.return_blocks(mine).await;
    }
}

impl PlacementSim {
    /// Blocks leave a cache without their bytes, for a write at another server.
    fn remove_from_cache(&mut self, server: usize, blocks: Range<u64>, (tag, to): (u64, usize)) {
        for block in blocks.clone() {
            let was_dirty = self.servers[server].is_dirty(block);
            self.servers[server].evict_all(block..block + 1);
            if !self.servers[to].alive {
                self.lose(block, "bytes lost with their owner");
            } else if was_dirty {
                self.truth.leaves(block, tag, to);
                if !self.servers[to].table.is_requesting(&(block..block + 1)) {
                    self.misses(to, block);
                }
            }
        }
    }

    /// A server has done its part of a sync.
    pub(super) fn refreshed(&mut self, server: usize, done: bool) {
        let Some(sync) = &mut self.sync else { return };
        sync.failed |= !done;
        sync.waiting.remove(&server);
        if !sync.waiting.is_empty() {
            return;
        }
        let (began, failed) = (sync.began, sync.failed);
        self.sync = None;
        self.seen.visit(if failed { "file not synced" } else { "file synced" });
        self.note(|| format!("the sync of {began} is over: {}", if failed { "failed" } else { "done" }));
        if !failed && let Err(what) = self.truth.synced(began, &self.plain) {
            self.violate(what);
        }
    }
}
