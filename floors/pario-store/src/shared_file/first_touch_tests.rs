//! Servers of one group on one plain file, whose messages are lost now and then: nothing that was written is, and no block has two owners.
//! `PARIO_SEED` runs one history again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{OnceLock, Weak};

use pario_core::{Layout, ServerIndex};

use super::*;
use crate::places::{Answer, Claim, GiveBack, Grant, Pass, Take, Taken, Visit, Visited};

pub(super) const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
const CELL: u64 = 64;
pub(super) const INODE: InodeId = InodeId(5);
pub(super) const OBJECT: ObjectId = ObjectId { inode: INODE, generation: Generation(0) };

/// How servers reach each other; one message in a few is lost, on its way or on its way back.
#[derive(Debug, Default)]
pub(super) struct Net {
    stores: OnceLock<Vec<Weak<SharedFileStore>>>,
    pub(super) chance: AtomicU64,
    pub(super) loses: AtomicBool,
    /// What homes were told, to be told again late.
    told: Mutex<Vec<(ServerIndex, Pass)>>,
}

impl Net {
    pub(super) fn next(&self) -> u64 {
        let number = self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    pub(super) fn once_in(&self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    /// Whether a message or its answer is lost.
    fn pass(&self) -> Result<(), Fault> {
        if self.loses.load(Ordering::Relaxed) && self.once_in(10) {
            return Err(Fault::new(Code::Unreachable, "lost"));
        }
        Ok(())
    }

    fn ask<T>(
        &self,
        server: ServerIndex,
        act: impl FnOnce(&SharedFileStore) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.pass()?;
        let store = self.stores.get().and_then(|stores| stores[server.at()].upgrade());
        let answer = act(&*store.ok_or(Fault::from(Code::Unreachable))?);
        self.pass()?;
        answer
    }
}

#[derive(Debug)]
struct Link(Arc<Net>);

impl Companions for Link {
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        self.0.ask(home, |store| Places::claim(store, claim))
    }

    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        self.0.ask(home, |store| {
            Places::give_back(store, back);
            // The same once more, late: it must end nothing else.
            Places::give_back(store, back);
            Ok(())
        })
    }

    fn pass(&self, home: ServerIndex, pass: &Pass) -> Result<(), Fault> {
        let late = {
            let mut told = lock(&self.0.told);
            told.push((home, pass.clone()));
            let place = usize::try_from(self.0.next() % told.len() as u64).unwrap();
            if self.0.once_in(2) { Some(told.swap_remove(place)) } else { None }
        };
        self.0.ask(home, |store| {
            Places::pass(store, pass);
            Ok(())
        })?;
        // An earlier one once more, whoever it was from: it must change nothing.
        late.map_or(Ok(()), |(home, pass)| {
            self.0.ask(home, |store| {
                Places::pass(store, &pass);
                Ok(())
            })
        })
    }

    fn take(&self, owner: ServerIndex, take: Take) -> Result<Answer<'_, Taken>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| {
                let mut heard = None;
                let given = Places::take(store, take, &mut |taken| assert!(heard.replace(taken).is_none()));
                given.map_err(|error| Fault::from(&error))?;
                Ok(heard.expect("whoever takes is answered"))
            })
        }))
    }

    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, bool>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| store.visit_read(visit, target).map_err(|error| Fault::from(&error)))
        }))
    }

    fn read_at_once<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, Visited>, Fault> {
        Ok(Box::new(move || {
            self.0.ask(owner, |store| store.visit_at_once(visit, target).map_err(|error| Fault::from(&error)))
        }))
    }

    fn is_still(
        &self,
        owner: ServerIndex,
        visit: Visit,
        bytes: u64,
        stamp: u64,
    ) -> Result<Answer<'_, bool>, Fault> {
        Ok(Box::new(move || self.0.ask(owner, |store| Ok(Places::is_still(store, visit, bytes, stamp)))))
    }

    fn write(&self, owner: ServerIndex, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, Fault> {
        self.0.ask(owner, |store| store.visit_write(visit, pieces).map_err(|error| Fault::from(&error)))
    }

    fn describe(&self, server: ServerIndex) -> String {
        format!("server {server}")
    }
}

/// Opens one plain file at all servers, each with a cache of so many blocks; whether blocks follow their writers.
pub(super) fn open(
    net: &Arc<Net>,
    servers: u16,
    (cache_blocks, follows): (u64, bool),
    file: &std::fs::File,
) -> Vec<Arc<SharedFileStore>> {
    let homes = Layout::new(BLOCK, servers, 0, servers).unwrap();
    let make = |index: u16| {
        let store = Arc::new(SharedFileStore::new(cache_blocks * BLOCK).unwrap());
        store.set_companions(Arc::new(Link(Arc::clone(net))));
        let layout = Layout::new(BLOCK, 1, index, servers).unwrap();
        let server = ServerIndex(index);
        let place = Place { server, layout, block_bytes: BLOCK, homes: Some(homes), follows, direct: false };
        let plain = RealDisk::adopt(file.try_clone().unwrap());
        let plain = PlainFile { path: "plain".into(), file: plain, reads: true, writes: true, locks: false };
        store.open(INODE, place, plain, 0).unwrap();
        store
    };
    let stores: Vec<Arc<SharedFileStore>> = (0..servers).map(make).collect();
    net.stores.set(stores.iter().map(Arc::downgrade).collect()).unwrap();
    stores
}

/// Does something until no message of it is lost.
pub(super) fn insist<T>(mut act: impl FnMut() -> Result<T, StoreError>) -> T {
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

/// One server's clients write and read cells of their own in blocks that all share; what they wrote last.
fn live(store: &SharedFileStore, net: &Net, (rank, servers): (u64, u64)) -> HashMap<u64, u64> {
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
            insist(|| store.write(OBJECT, at, &[Piece::from(data.as_slice())]));
            written.insert(cell, seed);
        }
    }
    written
}

/// Blocks have one owner, who is known at their homes.
pub(super) fn check_owners(stores: &[Arc<SharedFileStore>]) {
    let mut owned = HashSet::new();
    for (index, store) in stores.iter().enumerate() {
        let file = store.core.file(INODE).unwrap();
        for block in file.touch.as_ref().unwrap().owners.mine() {
            assert!(owned.insert(block), "block {block} has two owners");
            let home = &stores[usize::try_from(block).unwrap() % stores.len()];
            let server = ServerIndex(u16::try_from(index).unwrap());
            let claim = Claim { server, inode: INODE, block_bytes: BLOCK, blocks: vec![(block, 0)] };
            assert_eq!(Places::claim(&**home, &claim).unwrap()[0].owner, server, "block {block}");
        }
        for (key, _) in store.core.pool.state().ledger.all(INODE) {
            assert!(file.is_here(&(key.index * BLOCK..key.index * BLOCK + 1)), "{key:?} is another one's");
        }
    }
}

fn history(seed: u64) {
    let net = Arc::new(Net::default());
    net.chance.store(seed, Ordering::Relaxed);
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
        // Nothing is on its way any more when the thread has ended.
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
    let store = SharedFileStore::new(BLOCK).unwrap();
    let layout = Layout::new(BLOCK, 1, 0, 2).unwrap();
    let place = Place {
        server: ServerIndex(0),
        layout,
        block_bytes: BLOCK,
        homes: Some(layout),
        follows: false,
        direct: false,
    };
    let file = RealDisk::adopt(tempfile::tempfile().unwrap());
    let plain = PlainFile { path: "plain".into(), file, reads: true, writes: true, locks: false };
    let fault = store.open(INODE, place, plain, 0).unwrap_err();
    assert!(fault.text.contains("plain"), "{fault}");
}
