//! Servers with clients that write and read several blocks atomically without locks: no reader sees a part of a write, and all progress.

use std::sync::Arc;

use pario_core::{LocalOffset, SeededRandom};
use pario_sys::MemoryPiece;

use super::first_touch_tests::{BLOCK, LossyNetwork, OBJECT, check_owners, open};
use crate::peers::PeerService;
use crate::plain_cache::*;
use crate::store::Store;
use crate::sync::lock;

/// Blocks are written two or four at a time, so that each pair is always written in one write.
const PAIRS: u64 = 4;

fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK).unwrap()
}

fn live(store: &PlainCacheStore, net: &LossyNetwork) {
    for _ in 0..150 {
        let first = net.next() % PAIRS;
        let pairs = (1 + net.next() % 2).min(PAIRS - first);
        let at = LocalOffset(2 * first * BLOCK);
        if net.once_in(2) {
            let fill = vec![u8::try_from(net.next() & 0xff).unwrap(); bytes(2 * pairs)];
            store.write_atomic(OBJECT, at, &[MemoryPiece::from(fill.as_slice())]).unwrap();
            continue;
        }
        let mut found = vec![0; bytes(2 * pairs)];
        // Also with a partial block at either end.
        let cut = if net.once_in(2) { 0 } else { 100 };
        let part = cut..found.len() - cut;
        if store.read_atomic(OBJECT, LocalOffset(at.0 + cut as u64), &mut found[part.clone()]).unwrap() {
            for pair in found[part].chunks(bytes(2)).take(1) {
                assert!(pair[..bytes(1)].iter().all(|byte| *byte == pair[0]), "a part of a write was seen");
            }
            let whole = found.chunks(bytes(2)).filter(|_| cut == 0);
            for pair in whole {
                assert!(pair.iter().all(|byte| *byte == pair[0]), "a part of a write was seen");
            }
        }
    }
}

fn history(seed: u64) {
    let net = Arc::new(LossyNetwork::default());
    *lock(&net.chance) = SeededRandom::new(seed);
    let servers = 2 + u16::try_from(net.next() % 3).unwrap();
    let cache_blocks = [2, 5, 100][usize::try_from(net.next() % 3).unwrap()];
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, servers, (cache_blocks, true), &file);
    std::thread::scope(|scope| {
        for store in stores.iter().chain(&stores) {
            scope.spawn(|| live(store, &net));
        }
    });
    let read: u64 = stores.iter().map(|store| store.cache_stats().at_once).sum();
    assert!(0 < read, "some reads did without a lock");
    let mut seen = vec![0; bytes(2 * PAIRS)];
    stores[0].read(OBJECT, LocalOffset(0), &mut seen).unwrap();
    for store in &stores {
        let mut found = vec![0; seen.len()];
        assert!(store.read_atomic(OBJECT, LocalOffset(0), &mut found).unwrap(), "no writer is left");
        assert!(found == seen, "all servers see the same");
        store.shut();
    }
    check_owners(&stores);
}

#[test]
fn nobody_sees_a_part_of_a_write_that_holds_its_blocks() {
    (0..20).for_each(history);
}

#[test]
fn a_write_at_one_moment_takes_what_is_others_and_sends_no_byte() {
    let net = Arc::new(LossyNetwork::default());
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, 3, (100, true), &file);
    for (turn, store) in stores.iter().chain(&stores).enumerate() {
        let fill = vec![u8::try_from(turn).unwrap(); bytes(4)];
        store.write_atomic(OBJECT, LocalOffset(0), &[MemoryPiece::from(fill.as_slice())]).unwrap();
    }
    let stats: Vec<CacheStats> = stores.iter().map(|store| store.cache_stats()).collect();
    // All four blocks in one request; one request more where the remembered owner has handed them over since.
    assert_eq!(stats.iter().map(|stats| stats.takes).collect::<Vec<u64>>(), [2, 3, 3]);
    assert_eq!(stats.iter().map(|stats| stats.passed_on).sum::<u64>(), 5 * 4);
    assert!(stats.iter().all(|stats| (stats.forwards, stats.visits) == (0, 0)), "{stats:?}");
    let mut found = vec![0; bytes(4)];
    assert!(stores[0].read_atomic(OBJECT, LocalOffset(0), &mut found).unwrap());
    assert_eq!(found, vec![5; bytes(4)]);
    // One owner has all of it: one remote access and no second check; the remembered owner was asked in vain.
    assert_eq!((stores[0].cache_stats().forwards, stores[2].cache_stats().visits), (2, 1));
    let odd = stores[0].write_atomic(OBJECT, LocalOffset(1), &[MemoryPiece::from(found.as_slice())]);
    assert!(odd.is_err_and(|error| error.to_string().contains("whole blocks")));
}

/// A peer may send any number: the reply is an error, and the thread survives.
#[test]
fn places_beyond_every_file_are_refused() {
    let net = Arc::new(LossyNetwork::default());
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, 2, (100, true), &file);
    for at in [u64::MAX - 10, u64::MAX - 4096, 1 << 63] {
        let error = stores[0].read_atomic(OBJECT, LocalOffset(at), &mut [0; 4096]).unwrap_err();
        assert!(error.to_string().contains("beyond every file"), "{error}");
    }
}
