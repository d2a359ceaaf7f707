//! Servers of one group on one plain file with last-writer placement and a lossy network. `PARIO_SEED` repeats one history.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use pario_core::{Code, Fault, Generation, LocalOffset, ObjectId, SeededRandom, ServerIndex};
use pario_sys::MemoryPiece;

use super::first_touch_tests::{BLOCK, INODE, LossyNetwork, OBJECT, check_owners, insist, open};
use crate::error::StoreError;
use crate::peers::{Claim, Handover, HandoverReply, NUMBERS_PER_GRANT, PeerService, RemoteAccess};
use crate::plain_cache::*;
use crate::store::Store;
use crate::sync::lock;

/// Blocks with known content, each guarded by a lock.
const GUARDED: u64 = 8;
/// Blocks overwritten without locks, each time with one repeated byte.
const FREE: u64 = 4;
const BLOCKS: u64 = GUARDED + FREE;

type GuardedModel = Vec<Mutex<Vec<u8>>>;

fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK).unwrap()
}

/// Every write is visible to later reads on any server, as on a single server.
fn live(store: &PlainCacheStore, net: &LossyNetwork, model: &GuardedModel) {
    for _ in 0..200 {
        if net.once_in(3) { race(store, net) } else { take_turns(store, net, model) }
    }
}

/// Under the locks of one or two blocks: read, overwritten as a whole, or written in the middle, also across the border.
fn take_turns(store: &PlainCacheStore, net: &LossyNetwork, model: &GuardedModel) {
    let first = net.next() % GUARDED;
    let count = (1 + net.next() % 2).min(GUARDED - first);
    let place = |block: u64| usize::try_from(block).unwrap();
    let mut guards: Vec<MutexGuard<'_, Vec<u8>>> =
        (first..first + count).map(|block| lock(&model[place(block)])).collect();
    let mut expected: Vec<u8> = guards.iter().flat_map(|guard| guard.iter().copied()).collect();
    if net.once_in(3) {
        let mut found = vec![0; expected.len()];
        insist(|| store.read(OBJECT, LocalOffset(first * BLOCK), &mut found));
        assert!(found == expected, "block {first} or the next one does not have the last write");
        return;
    }
    let part = if net.once_in(2) { 0..expected.len() } else { 100..expected.len() - 50 };
    let fill = u8::try_from(net.next() & 0xff).unwrap();
    expected[part.clone()].fill(fill);
    let at = LocalOffset(first * BLOCK + part.start as u64);
    insist(|| store.write(OBJECT, at, &[MemoryPiece::from(&expected[part.clone()])]));
    for (guard, data) in guards.iter_mut().zip(expected.chunks(bytes(1))) {
        guard.copy_from_slice(data);
    }
}

/// Without locks: the block has the bytes of exactly one of two writers.
fn race(store: &PlainCacheStore, net: &LossyNetwork) {
    let at = LocalOffset((GUARDED + net.next() % FREE) * BLOCK);
    let mut data = vec![u8::try_from(net.next() & 0xff).unwrap(); bytes(1)];
    if net.once_in(2) {
        insist(|| store.write(OBJECT, at, &[MemoryPiece::from(data.as_slice())]));
        return;
    }
    insist(|| store.read(OBJECT, at, &mut data));
    assert!(data.iter().all(|byte| *byte == data[0]), "a block is of two writers");
}

fn history(seed: u64) {
    let net = Arc::new(LossyNetwork::default());
    *lock(&net.chance) = SeededRandom::new(seed);
    let servers = 2 + u16::try_from(net.next() % 3).unwrap();
    let cache_blocks = [1, 2, 5, 100][usize::try_from(net.next() % 4).unwrap()];
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, servers, (cache_blocks, true), &file);
    let behind = net.next().is_multiple_of(2);
    stores.iter().for_each(|store| store.set_write_behind(behind));
    let model: GuardedModel = (0..GUARDED).map(|_| Mutex::new(vec![0; bytes(1)])).collect();
    net.loses.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| live(store, &net, &model));
        }
        // Concurrent syncs: bytes that no cache holds are in the plain file, and no other byte changes.
        scope.spawn(|| {
            for place in 0..20 {
                insist(|| stores[place % stores.len()].refresh_file(INODE, 0).map_err(StoreError::Below));
            }
        });
    });
    net.loses.store(false, Ordering::Relaxed);
    check_end(&stores, &model, &file);
}

/// All servers see the same bytes, and the plain file has them in the end.
fn check_end(stores: &[Arc<PlainCacheStore>], model: &GuardedModel, file: &std::fs::File) {
    let mut seen = vec![0; bytes(BLOCKS)];
    stores[0].read(OBJECT, LocalOffset(0), &mut seen).unwrap();
    let expected: Vec<u8> = model.iter().flat_map(|block| lock(block).clone()).collect();
    assert!(seen[..expected.len()] == expected, "what was written last");
    for store in stores {
        let mut found = vec![0; seen.len()];
        store.read(OBJECT, LocalOffset(0), &mut found).unwrap();
        assert!(found == seen, "all servers see the same");
    }
    for store in stores {
        // No message is in flight after the thread has ended.
        store.shut();
    }
    check_owners(stores);
    for store in stores {
        store.close(INODE).unwrap();
    }
    let mut found = vec![0; seen.len()];
    let count = pario_sys::read_exact_or_end_at(std::os::fd::AsFd::as_fd(file), &mut found, 0).unwrap();
    found[count..].fill(0);
    assert!(found == seen, "the plain file has what was written");
}

#[test]
fn blocks_that_follow_their_writers_lose_nothing_beside_lost_messages() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let chosen = number("PARIO_SEED");
    let first = chosen.unwrap_or_else(|| u64::from(std::process::id()) << 20);
    let count = number("PARIO_SEEDS").unwrap_or(if chosen.is_some() { 1 } else { 40 });
    for seed in first..first + count {
        println!("PARIO_SEED={seed}");
        history(seed);
    }
}

/// Two servers on a reliable network, with memory for all blocks.
fn two() -> (Vec<Arc<PlainCacheStore>>, std::fs::File) {
    let file = tempfile::tempfile().unwrap();
    (open(&Arc::new(LossyNetwork::default()), 2, (100, true), &file), file)
}

fn write(store: &PlainCacheStore, at: u64, data: &[u8]) {
    store.write(OBJECT, LocalOffset(at), &[MemoryPiece::from(data)]).unwrap();
}

#[test]
fn who_overwrites_blocks_gets_them_and_who_changes_a_part_does_not() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(4)]);
    write(other, 100, &vec![2; bytes(2)]);
    let stats = other.cache_stats();
    // The middle one of three blocks is whole.
    assert_eq!((stats.takes, stats.forwards, one.cache_stats().passed_on), (1, 2, 1));
    write(other, BLOCK, &vec![3; bytes(1)]);
    let stats = other.cache_stats();
    assert_eq!((stats.takes, stats.forwards), (1, 2), "it is here already");
    write(other, 0, &vec![4; bytes(4)]);
    let stats = other.cache_stats();
    assert_eq!(
        (stats.takes, stats.forwards, one.cache_stats().passed_on),
        (3, 2, 4),
        "a run before it, one after it"
    );
    assert_eq!((one.cache_stats().cached_bytes, stats.cached_bytes), (0, 4 * BLOCK), "one copy");
    let (read, written) = (stats.plain_read_bytes, stats.plain_written_bytes);
    assert_eq!((read, written, one.cache_stats().plain_written_bytes), (0, 0, 0), "no write-back was needed");
    let mut found = vec![0; bytes(4)];
    one.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![4; bytes(4)]);
}

#[test]
fn what_was_synced_is_below_also_if_it_moves_meanwhile() {
    let (stores, file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(1)]);
    // The sync is complete at the requesting server, and has not begun at the owner.
    other.refresh_file(INODE, 0).unwrap();
    write(other, 0, &vec![2; bytes(1)]);
    one.refresh_file(INODE, 0).unwrap();
    let below = |expected: u8| {
        let mut found = vec![0; bytes(1)];
        pario_sys::read_exact_or_end_at(std::os::fd::AsFd::as_fd(&file), &mut found, 0).unwrap();
        assert!(found == vec![expected; bytes(1)], "{expected} is not in the plain file");
    };
    below(1);
    // Both have completed the same number of syncs: the block moves without a write-back.
    write(one, 0, &vec![3; bytes(1)]);
    below(1);
    one.refresh_file(INODE, 0).unwrap();
    below(3);
}

#[test]
fn blocks_of_a_file_that_was_cut_are_not_given_to_late_writers() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(2)]);
    let cut = |store: &PlainCacheStore| {
        store.announce_length(INODE, BLOCK);
        store.truncate(INODE, Generation(0), Generation(1), BLOCK).unwrap();
    };
    cut(one);
    write(other, 0, &vec![2; bytes(1)]);
    let mut found = vec![0; bytes(1)];
    let now = ObjectId { inode: INODE, generation: Generation(1) };
    one.read(now, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![1; bytes(1)], "a stale write changes nothing");
    assert_eq!(one.cache_stats().passed_on, 0);
    // A block is handed over, and then the file is truncated here: the remaining part of it has the new bytes.
    let file = other.core.file(INODE).unwrap();
    let take = Handover {
        to: ServerIndex(1),
        first: RemoteAccess { object: now, at: LocalOffset(0), home_confirmed: false },
        blocks: 1,
        syncs: 0,
        number_sum: NUMBERS_PER_GRANT,
    };
    let mut heard = Vec::new();
    PeerService::hand_over(&**one, take, &mut |taken| heard.push(taken)).unwrap();
    assert!(matches!(heard[..], [HandoverReply::Granted(_)]), "{heard:?}");
    cut(other);
    file.write_received(&other.core, Generation(0), 0, &[MemoryPiece::from(vec![3; bytes(2)].as_slice())])
        .unwrap();
    other.read(now, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![3; bytes(1)]);
    assert_eq!(file.length(), BLOCK, "and nothing after it");
    for odd in [
        Handover { blocks: 0, ..take },
        Handover { first: RemoteAccess { at: LocalOffset(1), ..take.first }, ..take },
    ] {
        let refused = PeerService::hand_over(&**one, odd, &mut |_| panic!("it was handed over"));
        assert_eq!(Fault::from(&refused.unwrap_err()).code, Code::Invalid);
    }
}

/// Found by the simulator: the handover request of a completed write discarded a block with newer bytes.
#[test]
fn a_take_that_comes_late_gets_nothing() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(1)]);
    let visit = RemoteAccess { object: OBJECT, at: LocalOffset(0), home_confirmed: true };
    let late =
        Handover { to: ServerIndex(1), first: visit, blocks: 1, syncs: 0, number_sum: NUMBERS_PER_GRANT };
    write(other, 0, &vec![2; bytes(1)]);
    write(one, 0, &vec![3; bytes(1)]);
    let mut heard = Vec::new();
    PeerService::hand_over(&**one, late, &mut |taken| heard.push(taken)).unwrap();
    assert_eq!(heard, [HandoverReply::NotMine]);
    let mut found = vec![0; bytes(1)];
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![3; bytes(1)]);
}

/// Found by the simulator: a delayed claim made its sender an owner without its knowledge, which then refused all requests; a repeated
/// claim gave its owner a number unknown to it.
#[test]
fn claims_that_come_late_or_twice_leave_blocks_in_reach() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    let claim = Claim { server: ServerIndex(1), inode: INODE, block_bytes: BLOCK, blocks: vec![(0, 0)] };
    let mut found = vec![0; bytes(1)];
    write(one, 0, &vec![1; bytes(1)]);
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    // The block has no owner any more, which the other server does not know; then a delayed claim of that server arrives.
    one.refresh_file(INODE, 0).unwrap();
    one.core.file(INODE).unwrap().give_back_all(&one.core);
    PeerService::claim(&**one, &claim).unwrap();
    one.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![1; bytes(1)]);
    // The same once more, while it is the owner: its messages about the block are still accepted.
    PeerService::claim(&**one, &claim).unwrap();
    write(one, 0, &vec![2; bytes(1)]);
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![2; bytes(1)]);
    assert_eq!((one.cache_stats().takes, other.cache_stats().passed_on), (1, 1));
}
