//! Servers of one group on one plain file with a lossy network: no written byte is lost, and no block has two owners. `PARIO_SEED`
//! repeats one history.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use pario_core::{
    Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, SeededRandom, ServerIndex,
};
use pario_sys::MemoryPiece;

use crate::error::StoreError;
use crate::peers::{
    AtomicReadReply, Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport, PeerServers,
    PeerService, PendingAnswer, RemoteAccess,
};
use crate::plain_cache::*;
use crate::real_disk::RealDisk;
use crate::store::Store;
use crate::sync::lock;

pub(in crate::plain_cache) const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const CELL: u64 = 64;
pub(in crate::plain_cache) const INODE: InodeId = InodeId(5);
pub(in crate::plain_cache) const OBJECT: ObjectId = ObjectId { inode: INODE, generation: Generation(0) };

/// Network between servers; a few percent of the messages or answers are lost.
#[derive(Debug, Default)]
pub(in crate::plain_cache) struct LossyNetwork {
    stores: OnceLock<Vec<Weak<PlainCacheStore>>>,
    pub(in crate::plain_cache) chance: Mutex<SeededRandom>,
    pub(in crate::plain_cache) loses: AtomicBool,
    /// Reports to homes, kept to be repeated late.
    reports: Mutex<Vec<(ServerIndex, HandoverReport)>>,
}

impl LossyNetwork {
    pub(in crate::plain_cache) fn next(&self) -> u64 {
        lock(&self.chance).next_u64()
    }

    pub(in crate::plain_cache) fn once_in(&self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// Whether a message or its answer is lost.
    fn maybe_lose(&self) -> Result<(), Fault> {
        if self.loses.load(Ordering::Relaxed) && self.once_in(10) {
            return Err(Fault::new(Code::Unreachable, "lost"));
        }
        Ok(())
    }

    fn ask<T>(
        &self,
        server: ServerIndex,
        act: impl FnOnce(&PlainCacheStore) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.maybe_lose()?;
        let store = self.stores.get().and_then(|stores| stores[server.at()].upgrade());
        let answer = act(&*store.ok_or(Fault::from(Code::Unreachable))?);
        self.maybe_lose()?;
        answer
    }
}

#[derive(Debug)]
struct LossyLink(Arc<LossyNetwork>);

impl PeerServers for LossyLink {
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        self.0.ask(home, |store| PeerService::claim(store, claim))
    }

    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        self.0.ask(home, |store| {
            PeerService::give_back(store, back);
            // The same report again, late: it must end no other ownership.
            PeerService::give_back(store, back);
            Ok(())
        })
    }

    fn report_handover(&self, home: ServerIndex, pass: &HandoverReport) -> Result<(), Fault> {
        let late = {
            let mut told = lock(&self.0.reports);
            told.push((home, pass.clone()));
            let place = usize::try_from(self.0.next() % told.len() as u64).unwrap();
            if self.0.once_in(2) { Some(told.swap_remove(place)) } else { None }
        };
        self.0.ask(home, |store| {
            PeerService::report_handover(store, pass);
            Ok(())
        })?;
        // An earlier report again, from any server: it must change nothing.
        late.map_or(Ok(()), |(home, pass)| {
            self.0.ask(home, |store| {
                PeerService::report_handover(store, &pass);
                Ok(())
            })
        })
    }

    fn request_handover(
        &self,
        owner: ServerIndex,
        take: Handover,
    ) -> Result<PendingAnswer<'_, HandoverReply>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| {
                let mut heard = None;
                let given =
                    PeerService::hand_over(store, take, &mut |taken| assert!(heard.replace(taken).is_none()));
                given.map_err(|error| Fault::from(&error))?;
                Ok(heard.expect("every request is answered"))
            })
        }))
    }

    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, bool>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| store.remote_read(visit, target).map_err(|error| Fault::from(&error)))
        }))
    }

    fn read_atomic<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, AtomicReadReply>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| {
                store.remote_read_atomic(visit, target).map_err(|error| Fault::from(&error))
            })
        }))
    }

    fn is_still(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        bytes: u64,
        stamp: u64,
    ) -> Result<PendingAnswer<'_, bool>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| Ok(PeerService::is_unchanged(store, visit, bytes, stamp)))
        }))
    }

    fn write(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, Fault> {
        self.0.ask(owner, |store| store.remote_write(visit, pieces).map_err(|error| Fault::from(&error)))
    }

    fn describe(&self, server: ServerIndex) -> String {
        format!("server {server}")
    }
}

/// Opens one plain file at all servers, each with a cache of so many blocks, with or without last-writer placement.
pub(in crate::plain_cache) fn open(
    net: &Arc<LossyNetwork>,
    servers: u16,
    (cache_blocks, follows): (u64, bool),
    file: &std::fs::File,
) -> Vec<Arc<PlainCacheStore>> {
    let homes = Layout::new(BLOCK, servers, 0, servers).unwrap();
    let make = |index: u16| {
        let store = Arc::new(PlainCacheStore::new(cache_blocks * BLOCK).unwrap());
        store.set_peers(Arc::new(LossyLink(Arc::clone(net))));
        let layout = Layout::new(BLOCK, 1, index, servers).unwrap();
        let server = ServerIndex(index);
        let place = CachePlacement {
            server,
            layout,
            block_bytes: BLOCK,
            homes: Some(homes),
            follows_writers: follows,
            direct: false,
        };
        let plain = RealDisk::adopt(file.try_clone().unwrap());
        let plain =
            PlainFileOpening { path: "plain".into(), file: plain, reads: true, writes: true, locks: false };
        store.open(INODE, place, plain, 0).unwrap();
        store
    };
    let stores: Vec<Arc<PlainCacheStore>> = (0..servers).map(make).collect();
    net.stores.set(stores.iter().map(Arc::downgrade).collect()).unwrap();
    stores
}

/// Repeats an operation until none of its messages is lost.
pub(in crate::plain_cache) fn insist<T>(mut act: impl FnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..1000 {
        match act() {
            Ok(done) => return done,
            Err(error) => assert_eq!(Fault::from(&error).code, Code::Unreachable, "{error}"),
        }
    }
    panic!("every message is lost");
}

fn content(seed: u64) -> Vec<u8> {
    (0..CELL).map(|n| u8::try_from((seed >> (n % 8 * 8) ^ n) & 0xff).unwrap()).collect()
}

/// One server's clients write and read cells of their own in blocks shared by all; returns the last written values.
fn live(store: &PlainCacheStore, net: &LossyNetwork, (rank, servers): (u64, u64)) -> HashMap<u64, u64> {
    let mut written = HashMap::new();
    for _ in 0..250 {
        let cell = net.next() % (BLOCKS * BLOCK / CELL / servers) * servers + rank;
        let at = LocalOffset(cell * CELL);
        if net.once_in(3) {
            let mut found = vec![0; content(0).len()];
            insist(|| store.read(OBJECT, at, &mut found));
            let expected = written.get(&cell).map_or_else(|| vec![0; found.len()], |seed| content(*seed));
            assert!(found[..] == expected, "cell {cell} of server {rank}");
        } else {
            let seed = net.next() | 1;
            let data = content(seed);
            insist(|| store.write(OBJECT, at, &[MemoryPiece::from(data.as_slice())]));
            written.insert(cell, seed);
        }
    }
    written
}

/// Each block has one owner, which its home has recorded.
pub(in crate::plain_cache) fn check_owners(stores: &[Arc<PlainCacheStore>]) {
    let mut owned = HashSet::new();
    for (index, store) in stores.iter().enumerate() {
        let file = store.core.file(INODE).unwrap();
        for block in file.dynamic.as_ref().unwrap().owners.with(|table| table.owned()) {
            assert!(owned.insert(block), "block {block} has two owners");
            let home = &stores[usize::try_from(block).unwrap() % stores.len()];
            let server = ServerIndex(u16::try_from(index).unwrap());
            let claim = Claim { server, inode: INODE, block_bytes: BLOCK, blocks: vec![(block, 0)] };
            assert_eq!(PeerService::claim(&**home, &claim).unwrap()[0].owner, server, "block {block}");
        }
        for (key, _) in store.core.pool.state().ledger.all(INODE) {
            assert!(file.owns_range(&(key.index * BLOCK..key.index * BLOCK + 1)), "{key:?} is not owned");
        }
    }
}

fn history(seed: u64) {
    let net = Arc::new(LossyNetwork::default());
    *lock(&net.chance) = SeededRandom::new(seed);
    let servers = 2 + u16::try_from(net.next() % 3).unwrap();
    let cache_blocks = [1, 2, 5, 100][usize::try_from(net.next() % 4).unwrap()];
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, servers, (cache_blocks, false), &file);
    let behind = net.next().is_multiple_of(2);
    stores.iter().for_each(|store| store.set_write_behind(behind));
    net.loses.store(true, Ordering::Relaxed);
    let written: Vec<HashMap<u64, u64>> = std::thread::scope(|scope| {
        let net = &net;
        let mut threads = Vec::new();
        for (rank, store) in (0..).zip(&stores) {
            threads.push(scope.spawn(move || live(store, net, (rank, u64::from(servers)))));
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    net.loses.store(false, Ordering::Relaxed);
    for store in &stores {
        // No message is in flight after the thread has ended.
        store.shut();
    }
    check_owners(&stores);
    for store in &stores {
        store.close(INODE).unwrap();
    }
    let mut found = vec![0; usize::try_from(BLOCKS * BLOCK).unwrap()];
    let count = pario_sys::read_exact_or_end_at(std::os::fd::AsFd::as_fd(&file), &mut found, 0).unwrap();
    found[count..].fill(0);
    let mut expected = vec![0; found.len()];
    for (cell, seed) in written.iter().flatten() {
        let at = usize::try_from(cell * CELL).unwrap();
        expected[at..at + content(*seed).len()].copy_from_slice(&content(*seed));
    }
    assert!(found == expected, "the plain file has what was written");
}

#[test]
fn blocks_that_move_beside_lost_messages_lose_nothing() {
    let chosen = std::env::var("PARIO_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let first = chosen.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    for seed in (first..).take(if chosen.is_some() { 1 } else { 40 }) {
        println!("PARIO_SEED={seed}");
        history(seed);
    }
}

#[test]
fn who_has_no_place_for_blocks_says_so() {
    let store = PlainCacheStore::new(BLOCK).unwrap();
    let layout = Layout::new(BLOCK, 1, 0, 2).unwrap();
    let place = CachePlacement {
        server: ServerIndex(0),
        layout,
        block_bytes: BLOCK,
        homes: Some(layout),
        follows_writers: false,
        direct: false,
    };
    let file = RealDisk::adopt(tempfile::tempfile().unwrap());
    let plain = PlainFileOpening { path: "plain".into(), file, reads: true, writes: true, locks: false };
    let fault = store.open(INODE, place, plain, 0).unwrap_err();
    assert!(fault.text.contains("plain"), "{fault}");
}
