//! What servers do for each other: homes answer, owners let visitors in, give blocks away and back, and tell homes.
//!
//! Step by step what `shared_file/{first_touch,last_writer,walk}.rs` do with threads, around the same machines.

use std::ops::Range;

use pario_core::Fault;
use pario_server::store::ownership::{Begun, Found, Parted, Visitor};
use pario_server::store::{Claim, GiveBack, Grant, Pass, Take, Taken};

use super::hand::Hand;
use super::net::{Ask, Reply};
use super::server::{INODE, blocks_of};
use super::world::{BLOCK_BYTES, BLOCKS, Placement, World, home, index};
use crate::bugs::PlaceBug;

/// How often a home is told that blocks are passed on, if it does not answer.
const TOLD_MAX: u32 = 3;

/// A home is asked or told.
impl World {
    pub(super) fn at_home(&mut self, server: usize, ask: Ask) -> Reply {
        let directory = &mut self.servers[server].directory;
        match ask {
            Ask::Claim(claim) => match directory.claim(&claim) {
                Ok(grants) => {
                    let others = grants.iter().any(|grant| grant.owner != claim.server);
                    self.seen.visit(if others { "home named an owner" } else { "home granted" });
                    Reply::Grants(grants)
                }
                Err(fault) => Reply::Failed(fault),
            },
            Ask::GiveBack(back) => {
                directory.give_back(&back);
                Reply::Done
            }
            Ask::Pass(pass) => {
                directory.pass(&pass);
                Reply::Done
            }
            Ask::Still(blocks, stamp) => match self.servers[server].table.stamps(blocks) {
                Some(now) if now == stamp => Reply::Done,
                Some(_) | None => Reply::NotNow,
            },
            Ask::Take(..) | Ask::Read(..) | Ask::Write(..) | Ask::Look(..) => Reply::NotMine,
        }
    }
}

/// What any task may have to find out or to tell.
impl Hand {
    /// Asks a home, which may be this server's own.
    async fn ask_home(&self, home: usize, ask: Ask) -> Result<Reply, Fault> {
        if home == self.server {
            let server = self.server;
            return Ok(self.world().at_home(server, ask));
        }
        self.call(home, ask).await
    }

    pub(super) async fn claim(&self, home: usize, blocks: &[u64]) -> Result<Vec<Grant>, Fault> {
        let (server, block_bytes) = (index(self.server), BLOCK_BYTES as u64);
        let blocks = self.world().servers[self.server].table.claimed(blocks);
        let claim = Claim { server, inode: INODE, block_bytes, blocks };
        match self.ask_home(home, Ask::Claim(claim)).await? {
            Reply::Grants(grants) => Ok(grants),
            Reply::Done
            | Reply::NotMine
            | Reply::NotNow
            | Reply::Found(_)
            | Reply::Moment(..)
            | Reply::Taken(_)
            | Reply::Failed(_) => Ok(Vec::new()),
        }
    }

    pub(super) async fn ask(&self, home: usize, blocks: &[u64]) -> Result<(), Fault> {
        let answer = self.claim(home, blocks).await;
        let server = self.server;
        self.world().table(server, |table| table.answered(blocks, answer.as_deref().ok(), index(server)));
        answer.map(|_| ())
    }

    /// See `SharedFile::begin`: waits until it is known where an access to these blocks goes on.
    pub(super) async fn begin(&self, blocks: Range<u64>) -> Begun {
        let server = self.server;
        self.wait(|world| {
            let servers = world.servers.len();
            let begun =
                world.table(server, |table| table.begin(blocks.clone(), |block| index(home(block, servers))));
            Some(begun).filter(|begun| *begun != Begun::Pending)
        })
        .await
    }

    /// Finds out whose blocks are.
    pub(super) async fn learn(&self, blocks: Range<u64>) -> Result<(), Fault> {
        let mut at = blocks.start;
        while at < blocks.end {
            match self.begin(at..blocks.end).await {
                Begun::Mine(end) => {
                    let server = self.server;
                    self.world().table(server, |table| table.end(at..end));
                    at = end;
                }
                Begun::Theirs(_, end) => at = end,
                Begun::Ask(home, asked) => self.ask(home.at(), &asked).await?,
                Begun::Tell { number, to } => self.pass_on(to.at(), vec![(at, number)]).await?,
                Begun::Pending => {}
            }
        }
        Ok(())
    }

    /// Tells homes whom blocks were passed on to.
    pub(super) async fn pass_on(&self, to: usize, leaving: Vec<(u64, u64)>) -> Result<(), Fault> {
        let (server, mut result) = (self.server, Ok(()));
        for (home, blocks) in self.by_home(leaving, |(block, _)| block) {
            let pass = Pass { server: index(server), to: index(to), inode: INODE, blocks };
            let mut told = self.ask_home(home, Ask::Pass(pass.clone())).await;
            for _ in 1..TOLD_MAX {
                if told.is_err() {
                    told = self.ask_home(home, Ask::Pass(pass.clone())).await;
                }
            }
            self.world().table(server, |table| table.passed(&pass.blocks, index(to), told.is_ok()));
            result = result.and(told.map(|_| ()));
        }
        result
    }

    /// Somebody was sent here for blocks that were passed on.
    pub(super) async fn tell_owed(&self, blocks: Range<u64>) -> Result<(), Fault> {
        loop {
            let server = self.server;
            let owed = self.world().table(server, |table| table.owed(blocks.clone()));
            let Some((block, number, to)) = owed else { return Ok(()) };
            self.pass_on(to.at(), vec![(block, number)]).await?;
        }
    }

    async fn visited(&self, blocks: &Range<u64>) -> Found {
        let (server, mut visitor) = (self.server, Visitor::new(blocks.clone()));
        self.wait(|world| world.table(server, |table| table.visited(&mut visitor))).await
    }

    /// Whether a home that sent somebody here knows better than what is remembered.
    pub(super) fn doubts(&self, blocks: &Range<u64>) -> bool {
        let server = self.server;
        let mut world = self.world();
        let doubts = world.table(server, |table| table.doubt(blocks.clone()));
        if doubts {
            world.seen.visit("home believed against memory");
        }
        doubts
    }

    /// Whether a visitor finds these blocks here; then they are in use.
    async fn lets_in(&self, blocks: &Range<u64>, told: bool) -> Result<bool, Fault> {
        let mut found = self.visited(blocks).await;
        if told && (found == Found::Unknown || found == Found::Gone && self.doubts(blocks)) {
            self.world().seen.visit("visitor sent where nothing is known");
            self.learn(blocks.clone()).await?;
            found = self.visited(blocks).await;
        }
        if found == Found::Mine {
            return Ok(true);
        }
        self.world().seen.visit("visitor sent on");
        self.tell_owed(blocks.clone()).await?;
        Ok(false)
    }

    /// Another server's access to blocks that are this one's.
    pub(super) async fn visit(self, from: usize, number: u64, ask: Ask) {
        let reply = self.serve(ask).await.unwrap_or_else(Reply::Failed);
        let server = self.server;
        self.world().reply((server, from), number, reply);
    }

    async fn serve(&self, ask: Ask) -> Result<Reply, Fault> {
        let (cells, tag, told) = match ask {
            Ask::Read(cells, told) => (cells, None, told),
            Ask::Write(cells, tag, told) => (cells, Some(tag), told),
            Ask::Claim(_)
            | Ask::GiveBack(_)
            | Ask::Pass(_)
            | Ask::Take(..)
            | Ask::Look(..)
            | Ask::Still(..) => return Ok(Reply::NotMine),
        };
        let (server, blocks) = (self.server, blocks_of(&cells));
        let (fixed, blind) = {
            let world = self.world();
            (world.placement == Placement::Home, world.has(PlaceBug::VisitAnything))
        };
        if !fixed && !blind && !self.lets_in(&blocks, told).await? {
            return Ok(Reply::NotMine);
        }
        self.pause().await;
        let mut world = self.world();
        world.seen.visit("visit");
        let result = match tag {
            Some(tag) => world.write_at(server, cells, tag).map(|()| Reply::Done),
            None => world.read_at(server, cells).map(Reply::Found),
        };
        if !fixed && !blind {
            world.table(server, |table| table.end(blocks));
        }
        result
    }

    async fn part(&self, blocks: &Range<u64>, of: u64) -> Parted {
        let server = self.server;
        let look = |world: &mut World| {
            let parted = world.table(server, |table| table.part(blocks.clone(), of));
            Some(parted).filter(|parted| *parted != Parted::Used)
        };
        match self.wait_a_while(look).await {
            Some(parted) => parted,
            None => {
                self.world().seen.visit("taker out of patience");
                Parted::Used
            }
        }
    }

    /// Another server overwrites whole blocks of this one's.
    pub(super) async fn give(self, number: u64, (take, tag): (Take, u64)) {
        let (server, to) = (self.server, take.to.at());
        if let Err(fault) = self.gives(number, take, tag).await {
            self.world().reply((server, to), number, Reply::Failed(fault));
        }
    }

    async fn gives(&self, number: u64, take: Take, tag: u64) -> Result<(), Fault> {
        let (server, to) = (self.server, take.to.at());
        let first = take.visit.at.0 / BLOCK_BYTES as u64;
        let blocks = first..first + u64::from(take.blocks);
        let mut parted = self.part(&blocks, take.of).await;
        let told = take.visit.told;
        if told && (parted == Parted::Unknown || parted == Parted::Gone && self.doubts(&blocks)) {
            self.find_out(blocks.clone()).await?;
            parted = self.part(&blocks, take.of).await;
        }
        let Parted::Leaving(leaving) = parted else {
            self.tell_owed(blocks).await?;
            let mut world = self.world();
            world.seen.visit("take refused");
            world.reply((server, to), number, Reply::Taken(Taken::NotMine));
            return Ok(());
        };
        self.put_down_for_sync(&take, &leaving).await?;
        let numbers = leaving.iter().map(|(_, number)| number + 1).collect();
        let answer = Reply::Taken(Taken::Yours(numbers));
        let answers_first = self.world().has(PlaceBug::AnswerFirst);
        if answers_first {
            self.world().reply((server, to), number, answer.clone());
            self.pause().await;
        }
        {
            let mut world = self.world();
            world.take_away(server, blocks, (tag, to));
            if !world.is_waited_for(number) {
                world.seen.visit("given to nobody who listens");
            }
            if !answers_first {
                world.reply((server, to), number, answer);
            }
            world.seen.visit("take granted");
        }
        // It is told when somebody asks for the blocks.
        let _ = self.pass_on(to, leaving).await;
        Ok(())
    }

    /// A sync was at the taking server before these blocks, and would not find them here any more.
    async fn put_down_for_sync(&self, take: &Take, leaving: &[(u64, u64)]) -> Result<(), Fault> {
        let server = self.server;
        let due = {
            let world = self.world();
            world.servers[server].table.synced() < take.syncs && !world.has(PlaceBug::GivePastSync)
        };
        if !due {
            return Ok(());
        }
        self.pause().await;
        let mut world = self.world();
        let World { servers, plain, .. } = &mut *world;
        let written =
            leaving.iter().try_for_each(|(block, _)| servers[server].put_down(plain, *block..block + 1));
        match written {
            Ok(()) => {
                plain.sync();
                world.seen.visit("put down before it is given");
                Ok(())
            }
            Err(fault) => {
                world.table(server, |table| table.stay(leaving));
                Err(fault)
            }
        }
    }

    /// Ownerships of blocks that were thrown out are given back.
    pub(super) async fn hand_back(self, blocks: Vec<u64>) {
        let server = self.server;
        let leaving = {
            let mut world = self.world();
            let wanted = |block: u64| world.servers[server].keeps(block) && !world.has(PlaceBug::LeaveBytes);
            let wanted: Vec<u64> = blocks.iter().copied().filter(|block| wanted(*block)).collect();
            world.table(server, |table| table.leave(blocks, |block| wanted.contains(&block)))
        };
        for (home, blocks) in self.by_home(leaving, |(block, _)| block) {
            let back = GiveBack { server: index(server), inode: INODE, blocks: blocks.clone() };
            let told = self.ask_home(home, Ask::GiveBack(back)).await.is_ok();
            let mut world = self.world();
            if !told {
                world.seen.visit("block given back unheard");
            }
            world.table(server, |table| table.left(&blocks, told));
        }
    }

    /// One server's part of a sync.
    pub(super) async fn refresh(self) {
        let server = self.server;
        let sync = self.world().table(server, |table| table.sync_begins());
        let mut waited = false;
        self.wait(|world| {
            let awaits = world.servers[server].table.awaits(sync);
            waited |= awaits;
            (!awaits).then_some(())
        })
        .await;
        if waited {
            self.world().seen.visit("sync waited for a take");
        }
        self.pause().await;
        let mut world = self.world();
        let World { servers, plain, .. } = &mut *world;
        let flushed = servers[server].flush(plain);
        if flushed.is_ok() {
            plain.sync();
            world.table(server, |table| table.sync_ends(sync));
            world.servers[server].forget_clean();
        }
        world.refreshed(server, flushed.is_ok());
    }

    /// The file ends here: everything goes down, and nothing is owned any more.
    pub(super) async fn close(self) {
        let server = self.server;
        let mine = {
            let mut world = self.world();
            let World { servers, plain, .. } = &mut *world;
            if let Err(fault) = servers[server].flush(plain) {
                world.violate(format!("server {server} cannot end: {fault}"));
            }
            world.servers[server].take_out(0..BLOCKS as u64);
            world.servers[server].table.mine()
        };
        self.hand_back(mine).await;
    }
}

impl World {
    /// Blocks leave a cache without their bytes, for a write at another server.
    fn take_away(&mut self, server: usize, blocks: Range<u64>, (tag, to): (u64, usize)) {
        for block in blocks.clone() {
            let was_dirty = self.servers[server].is_dirty(block);
            self.servers[server].take_out(block..block + 1);
            if !self.servers[to].alive {
                self.lose(block, "bytes lost with their owner");
            } else if was_dirty {
                self.truth.leaves(block, tag, to);
                if !self.servers[to].table.is_taking(&(block..block + 1)) {
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
