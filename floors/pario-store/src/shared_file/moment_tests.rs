//! Servers whose clients write and read several blocks at one moment, without locks: nobody sees a part of a write, and all get on.

use super::first_touch_tests::{BLOCK, Net, OBJECT, check_owners, open};
use super::*;
use crate::places::Places;

/// Blocks are written two or four at a time, so that each two are always written together.
const PAIRS: u64 = 4;

fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK).unwrap()
}

fn live(store: &SharedFileStore, net: &Net) {
    for _ in 0..150 {
        let first = net.next() % PAIRS;
        let pairs = (1 + net.next() % 2).min(PAIRS - first);
        let at = LocalOffset(2 * first * BLOCK);
        if net.once_in(2) {
            let fill = vec![u8::try_from(net.next() & 0xff).unwrap(); bytes(2 * pairs)];
            store.write_at_once(OBJECT, at, &[Piece::from(fill.as_slice())]).unwrap();
            continue;
        }
        let mut found = vec![0; bytes(2 * pairs)];
        // Part of a block on either side does as well.
        let cut = if net.once_in(2) { 0 } else { 100 };
        let part = cut..found.len() - cut;
        if store.read_at_once(OBJECT, LocalOffset(at.0 + cut as u64), &mut found[part.clone()]).unwrap() {
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
    let net = Arc::new(Net::default());
    net.chance.store(seed, Ordering::Relaxed);
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
        assert!(store.read_at_once(OBJECT, LocalOffset(0), &mut found).unwrap(), "nobody writes any more");
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
    let net = Arc::new(Net::default());
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, 3, (100, true), &file);
    for (turn, store) in stores.iter().chain(&stores).enumerate() {
        let fill = vec![u8::try_from(turn).unwrap(); bytes(4)];
        store.write_at_once(OBJECT, LocalOffset(0), &[Piece::from(fill.as_slice())]).unwrap();
    }
    let stats: Vec<CacheStats> = stores.iter().map(|store| store.cache_stats()).collect();
    // All four blocks with one asking; one more where the server that is remembered has passed them on since.
    assert_eq!(stats.iter().map(|stats| stats.takes).collect::<Vec<u64>>(), [2, 3, 3]);
    assert_eq!(stats.iter().map(|stats| stats.passed_on).sum::<u64>(), 5 * 4);
    assert!(stats.iter().all(|stats| (stats.forwards, stats.visits) == (0, 0)), "{stats:?}");
    let mut found = vec![0; bytes(4)];
    assert!(stores[0].read_at_once(OBJECT, LocalOffset(0), &mut found).unwrap());
    assert_eq!(found, vec![5; bytes(4)]);
    // One owner has all of it: one visit, and nothing to be made sure of; the server that is remembered was asked in vain.
    assert_eq!((stores[0].cache_stats().forwards, stores[2].cache_stats().visits), (2, 1));
    let odd = stores[0].write_at_once(OBJECT, LocalOffset(1), &[Piece::from(found.as_slice())]);
    assert!(odd.is_err_and(|error| error.to_string().contains("whole blocks")));
}

/// Peers may name any number: it is an answer, not the end of a thread.
#[test]
fn places_beyond_every_file_are_refused() {
    let net = Arc::new(Net::default());
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, 2, (100, true), &file);
    for at in [u64::MAX - 10, u64::MAX - 4096, 1 << 63] {
        let error = stores[0].read_at_once(OBJECT, LocalOffset(at), &mut [0; 4096]).unwrap_err();
        assert!(error.to_string().contains("beyond every file"), "{error}");
    }
}
