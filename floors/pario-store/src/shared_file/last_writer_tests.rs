//! Servers of one group on one plain file whose blocks follow their writers, and whose messages are lost now and then. `PARIO_SEED` runs one
//! history again.

use std::sync::MutexGuard;

use pario_core::ServerIndex;

use super::first_touch_tests::{BLOCK, INODE, Net, OBJECT, check_owners, insist, open};
use super::*;
use crate::places::{Claim, NUMBERS, Take, Taken, Visit};

/// Blocks whose content is known to whoever holds their lock.
const GUARDED: u64 = 8;
/// Blocks that all overwrite as they like, each time with one byte over and over.
const FREE: u64 = 4;
const BLOCKS: u64 = GUARDED + FREE;

type Model = Vec<Mutex<Vec<u8>>>;

fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * BLOCK).unwrap()
}

/// What every write must be on one server: seen at once by whoever comes later, on any.
fn live(store: &SharedFileStore, net: &Net, model: &Model) {
    for _ in 0..200 {
        if net.once_in(3) { race(store, net) } else { take_turns(store, net, model) }
    }
}

/// Under the locks of one or two blocks: read, overwritten as a whole, or written in the middle, over the border too.
fn take_turns(store: &SharedFileStore, net: &Net, model: &Model) {
    let first = net.next() % GUARDED;
    let count = (1 + net.next() % 2).min(GUARDED - first);
    let place = |block: u64| usize::try_from(block).unwrap();
    let mut guards: Vec<MutexGuard<'_, Vec<u8>>> =
        (first..first + count).map(|block| lock(&model[place(block)])).collect();
    let mut expected: Vec<u8> = guards.iter().flat_map(|guard| guard.iter().copied()).collect();
    if net.once_in(3) {
        let mut found = vec![0; expected.len()];
        insist(|| store.read(OBJECT, LocalOffset(first * BLOCK), &mut found));
        assert!(found == expected, "block {first} or the one behind it is not what was written last");
        return;
    }
    let part = if net.once_in(2) { 0..expected.len() } else { 100..expected.len() - 50 };
    let fill = u8::try_from(net.next() & 0xff).unwrap();
    expected[part.clone()].fill(fill);
    let at = LocalOffset(first * BLOCK + part.start as u64);
    insist(|| store.write(OBJECT, at, &[Piece::from(&expected[part.clone()])]));
    for (guard, data) in guards.iter_mut().zip(expected.chunks(bytes(1))) {
        guard.copy_from_slice(data);
    }
}

/// Without locks: of two writers one stays as a whole.
fn race(store: &SharedFileStore, net: &Net) {
    let at = LocalOffset((GUARDED + net.next() % FREE) * BLOCK);
    let mut data = vec![u8::try_from(net.next() & 0xff).unwrap(); bytes(1)];
    if net.once_in(2) {
        insist(|| store.write(OBJECT, at, &[Piece::from(data.as_slice())]));
        return;
    }
    insist(|| store.read(OBJECT, at, &mut data));
    assert!(data.iter().all(|byte| *byte == data[0]), "a block is of two writers");
}

fn history(seed: u64) {
    let net = Arc::new(Net::default());
    net.chance.store(seed, Ordering::Relaxed);
    let servers = 2 + u16::try_from(net.next() % 3).unwrap();
    let cache_blocks = [1, 2, 5, 100][usize::try_from(net.next() % 4).unwrap()];
    let file = tempfile::tempfile().unwrap();
    let stores = open(&net, servers, (cache_blocks, true), &file);
    let behind = net.next().is_multiple_of(2);
    stores.iter().for_each(|store| store.set_write_behind(behind));
    let model: Model = (0..GUARDED).map(|_| Mutex::new(vec![0; bytes(1)])).collect();
    net.loses.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for store in &stores {
            scope.spawn(|| live(store, &net, &model));
        }
        // Syncs beside it: what was in no cache by then is in the plain file, and nothing else changes.
        scope.spawn(|| {
            for place in 0..20 {
                insist(|| stores[place % stores.len()].refresh_file(INODE, 0).map_err(StoreError::Below));
            }
        });
    });
    net.loses.store(false, Ordering::Relaxed);
    check_end(&stores, &model, &file);
}

/// Everybody sees the same, and the plain file has it in the end.
fn check_end(stores: &[Arc<SharedFileStore>], model: &Model, file: &std::fs::File) {
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
        // Nothing is on its way any more when the thread has ended.
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

/// Two servers that lose nothing, with room for all blocks.
fn two() -> (Vec<Arc<SharedFileStore>>, std::fs::File) {
    let file = tempfile::tempfile().unwrap();
    (open(&Arc::new(Net::default()), 2, (100, true), &file), file)
}

fn write(store: &SharedFileStore, at: u64, data: &[u8]) {
    store.write(OBJECT, LocalOffset(at), &[Piece::from(data)]).unwrap();
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
        "a run before it, one behind it"
    );
    assert_eq!((one.cache_stats().cached_bytes, stats.cached_bytes), (0, 4 * BLOCK), "one copy");
    let (read, written) = (stats.plain_read_bytes, stats.plain_written_bytes);
    assert_eq!((read, written, one.cache_stats().plain_written_bytes), (0, 0, 0), "nothing went down for it");
    let mut found = vec![0; bytes(4)];
    one.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![4; bytes(4)]);
}

#[test]
fn what_was_synced_is_below_also_if_it_moves_meanwhile() {
    let (stores, file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(1)]);
    // The sync is over at the server that takes the block, and has not begun at the one that has it.
    other.refresh_file(INODE, 0).unwrap();
    write(other, 0, &vec![2; bytes(1)]);
    one.refresh_file(INODE, 0).unwrap();
    let below = |expected: u8| {
        let mut found = vec![0; bytes(1)];
        pario_sys::read_exact_or_end_at(std::os::fd::AsFd::as_fd(&file), &mut found, 0).unwrap();
        assert!(found == vec![expected; bytes(1)], "{expected} is not below");
    };
    below(1);
    // Both have been synced as often: it moves without being written down.
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
    let cut = |store: &SharedFileStore| {
        store.announce_length(INODE, BLOCK);
        store.truncate(INODE, Generation(0), Generation(1), BLOCK).unwrap();
    };
    cut(one);
    write(other, 0, &vec![2; bytes(1)]);
    let mut found = vec![0; bytes(1)];
    let now = ObjectId { inode: INODE, generation: Generation(1) };
    one.read(now, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![1; bytes(1)], "what came too late changes nothing");
    assert_eq!(one.cache_stats().passed_on, 0);
    // A block is taken, and then the file is cut here: what the cut keeps of it has the new bytes.
    let file = other.core.file(INODE).unwrap();
    let take = Take {
        to: ServerIndex(1),
        visit: Visit { object: now, at: LocalOffset(0), told: false },
        blocks: 1,
        syncs: 0,
        of: NUMBERS,
    };
    let mut heard = Vec::new();
    Places::take(&**one, take, &mut |taken| heard.push(taken)).unwrap();
    assert!(matches!(heard[..], [Taken::Yours(_)]), "{heard:?}");
    cut(other);
    file.write_taken(&other.core, Generation(0), 0, &[Piece::from(vec![3; bytes(2)].as_slice())]).unwrap();
    other.read(now, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![3; bytes(1)]);
    assert_eq!(file.length(), BLOCK, "and nothing behind it");
    for odd in
        [Take { blocks: 0, ..take }, Take { visit: Visit { at: LocalOffset(1), ..take.visit }, ..take }]
    {
        let refused = Places::take(&**one, odd, &mut |_| panic!("it was given"));
        assert_eq!(Fault::from(&refused.unwrap_err()).code, Code::Invalid);
    }
}

/// Found by the simulator: the take of a write that was over long ago took a block along, and what was in it.
#[test]
fn a_take_that_comes_late_gets_nothing() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    write(one, 0, &vec![1; bytes(1)]);
    let visit = Visit { object: OBJECT, at: LocalOffset(0), told: true };
    let late = Take { to: ServerIndex(1), visit, blocks: 1, syncs: 0, of: NUMBERS };
    write(other, 0, &vec![2; bytes(1)]);
    write(one, 0, &vec![3; bytes(1)]);
    let mut heard = Vec::new();
    Places::take(&**one, late, &mut |taken| heard.push(taken)).unwrap();
    assert_eq!(heard, [Taken::NotMine]);
    let mut found = vec![0; bytes(1)];
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![3; bytes(1)]);
}

/// Found by the simulator: a claim that came late made its sender an owner that did not know of it and sent everybody away; one that came
/// twice gave its owner a number that it did not know.
#[test]
fn claims_that_come_late_or_twice_leave_blocks_in_reach() {
    let (stores, _file) = two();
    let [one, other] = &stores[..] else { unreachable!() };
    let claim = Claim { server: ServerIndex(1), inode: INODE, block_bytes: BLOCK, blocks: vec![(0, 0)] };
    let mut found = vec![0; bytes(1)];
    write(one, 0, &vec![1; bytes(1)]);
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    // The block is nobody's any more, which the other server does not know; then a claim of its own comes that was long on its way.
    one.refresh_file(INODE, 0).unwrap();
    one.core.file(INODE).unwrap().hand_back_all(&one.core);
    Places::claim(&**one, &claim).unwrap();
    one.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![1; bytes(1)]);
    // The same once more, while it is the owner: what it says of its block is believed all the same.
    Places::claim(&**one, &claim).unwrap();
    write(one, 0, &vec![2; bytes(1)]);
    other.read(OBJECT, LocalOffset(0), &mut found).unwrap();
    assert!(found == vec![2; bytes(1)]);
    assert_eq!((one.cache_stats().takes, other.cache_stats().passed_on), (1, 1));
}
