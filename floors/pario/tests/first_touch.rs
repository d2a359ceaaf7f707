//! Placement by first touch and by last writer: where blocks are, the cost to reach them, that they move when they are evicted or
//! overwritten, and that there is no deadlock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::stage::until;
use common::{SeededRandom, difference, pattern};
use pario::core::Code;
use pario::group::{Group, threads_on};
use pario::{CacheOptions, CacheStats, GroupFile, Placement, open_cached};

const BLOCK: u64 = 4096;

fn options(cache_blocks: u64) -> CacheOptions {
    CacheOptions {
        create: true,
        cache_bytes: cache_blocks * BLOCK,
        block_bytes: Some(BLOCK),
        stripe_bytes: Some(BLOCK),
        placement: Placement::FirstTouch,
        ..CacheOptions::default()
    }
}

fn last_writer(cache_blocks: u64) -> CacheOptions {
    CacheOptions { placement: Placement::LastWriter, ..options(cache_blocks) }
}

/// Runs every member of a group of threads on these nodes.
fn with_group<T: Send>(nodes: &[usize], work: impl Fn(Arc<dyn Group>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let run = |group: Arc<dyn Group>| {
            scope.spawn(move || {
                let result = work(Arc::clone(&group));
                group.leave();
                result
            })
        };
        let members: Vec<_> = threads_on(nodes).into_iter().map(run).collect();
        members.into_iter().map(|member| member.join().expect("no member panics")).collect()
    })
}

fn path_in(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("plain")
}

/// The counters of this member's server; each is alone on its node.
fn stats(file: &GroupFile) -> CacheStats {
    file.cache_stats().expect("each is alone on its node")
}

/// Messages to other servers.
fn messages(stats: &CacheStats) -> u64 {
    stats.claims + stats.forwards
}

/// Reads in three pieces, the last first: this prevents read-ahead.
fn read_back(file: &GroupFile, at: u64, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    let piece = bytes.div_ceil(3);
    for (n, part) in found.chunks_mut(piece).enumerate().rev() {
        assert_eq!(file.read_at(at + (n * piece) as u64, part).unwrap(), part.len());
    }
    found
}

#[test]
fn blocks_lie_where_they_were_touched_and_ones_own_cost_no_message() {
    const BLOCKS: u64 = 9;
    for nodes in [&[0, 1][..], &[0, 1, 2, 3]] {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &options(1000)).unwrap();
            let (rank, size) = (group.rank() as u64, group.size() as u64);
            let (at, bytes) = (rank * BLOCKS * BLOCK, usize::try_from(BLOCKS * BLOCK).unwrap());
            file.write_at(at, &pattern(bytes, rank)).unwrap();
            group.barrier().unwrap();
            let first = stats(&file);
            assert_eq!(first.cached_bytes, BLOCKS * BLOCK, "what it touched is here: {first:?}");
            assert!(first.claims < size, "one question for each other home: {first:?}");
            // Repeated accesses: no message.
            for _ in 0..5 {
                let found = read_back(&file, at, bytes);
                assert!(found == pattern(bytes, rank));
                file.write_at(at, &found).unwrap();
            }
            let own = stats(&file);
            assert_eq!((messages(&own), own.plain_reads), (messages(&first), 0), "{own:?}");
            group.barrier().unwrap();
            // A neighbour's block is read at its owner, with one remote access for each read, and not from the file system.
            let next = (rank + 1) % size;
            for _ in 0..3 {
                assert!(read_back(&file, next * BLOCKS * BLOCK, bytes) == pattern(bytes, next));
            }
            group.barrier().unwrap();
            let after = stats(&file);
            assert_eq!(after.forwards - own.forwards, 9, "{after:?}");
            assert_eq!(after.visits, 9, "{after:?}");
            assert!(after.claims - own.claims <= 3 * (size - 1), "asked for once: {after:?}");
            assert_eq!((after.plain_reads, after.plain_writes), (0, 0), "{after:?}");
            assert_eq!(after.cached_bytes, BLOCKS * BLOCK, "one copy in all: {after:?}");
            group.barrier().unwrap();
            file.close().unwrap();
        });
        let expected: Vec<u8> = (0..nodes.len() as u64)
            .flat_map(|rank| pattern(usize::try_from(BLOCKS * BLOCK).unwrap(), rank))
            .collect();
        assert!(std::fs::read(&path).unwrap() == expected);
    }
}

#[test]
fn a_block_that_was_thrown_out_goes_to_whoever_touches_it_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    with_group(&[0, 1], |group| {
        let file = open_cached(&group, &path, &options(9)).unwrap();
        let all = usize::try_from(9 * BLOCK).unwrap();
        if group.rank() == 0 {
            file.write_at(0, &pattern(all, 1)).unwrap();
            // The same amount again: the first blocks are evicted, and are in the file afterwards.
            file.write_at(9 * BLOCK, &pattern(all, 2)).unwrap();
            assert!(until(|| 9 <= stats(&file).handed_back), "{:?}", stats(&file));
        }
        group.barrier().unwrap();
        if group.rank() == 1 {
            assert!(read_back(&file, 0, all) == pattern(all, 1));
            let before = stats(&file);
            assert_eq!(
                (before.forwards, before.cached_bytes),
                (0, 9 * BLOCK),
                "they are here now: {before:?}"
            );
            file.write_at(0, &pattern(all, 3)).unwrap();
            assert_eq!(messages(&stats(&file)), messages(&before));
        }
        group.barrier().unwrap();
        if group.rank() == 0 {
            // The cached owners are outdated at both; the home server corrects them.
            let mut found = vec![0; all];
            assert_eq!(file.read_at(0, &mut found).unwrap(), all);
            assert!(found == pattern(all, 3));
        }
        file.close().unwrap();
    });
    let all = usize::try_from(9 * BLOCK).unwrap();
    assert!(std::fs::read(&path).unwrap() == [pattern(all, 3), pattern(all, 2)].concat());
}

#[test]
fn whoever_overwrites_blocks_has_them_and_no_byte_of_them_travels() {
    const BLOCKS: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let bytes = usize::try_from(BLOCKS * BLOCK).unwrap();
    with_group(&[0, 1, 2], |group| {
        let file = open_cached(&group, &path, &last_writer(1000)).unwrap();
        let (rank, size) = (group.rank() as u64, group.size() as u64);
        for turn in 0..9 {
            if turn % size == rank {
                file.write_at(0, &pattern(bytes, turn)).unwrap();
                let now = stats(&file);
                assert_eq!(now.cached_bytes, BLOCKS * BLOCK, "all of it is here: {now:?}");
                // Again: no message.
                file.write_at(0, &pattern(bytes, turn)).unwrap();
                let again = stats(&file);
                assert_eq!((messages(&again), again.takes), (messages(&now), now.takes), "{again:?}");
                assert!(read_back(&file, 0, bytes) == pattern(bytes, turn));
            }
            group.barrier().unwrap();
        }
        let own = stats(&file);
        assert_eq!((own.forwards, own.visits), (0, 0), "no byte was sent to or by another server: {own:?}");
        assert_eq!((own.plain_reads, own.plain_writes), (0, 0), "{own:?}");
        // Eight iterations of nine moved four blocks from one server; a server with an outdated owner asks again, in runs where some home
        // servers have not received the report yet.
        assert!(own.takes <= 3 * (1 + BLOCKS) && own.passed_on <= 3 * BLOCKS, "{own:?}");
        // A server counts a block that it has passed on after the receiver has it.
        let total = || {
            let passed = group.allgather(&stats(&file).passed_on.to_le_bytes()).unwrap();
            passed.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())).sum::<u64>()
        };
        let found = (0..10_000).map(|_| total()).find(|total| *total == 8 * BLOCKS);
        assert!(found.is_some(), "{} blocks were passed on", total());
        group.barrier().unwrap();
        // A part of a block is written at its owner.
        if rank == 1 {
            file.write_at(BLOCK + 10, &pattern(100, 99)).unwrap();
            assert_eq!(stats(&file).forwards, 1);
        }
        file.close().unwrap();
    });
    let mut expected = pattern(bytes, 8);
    expected[4106..4206].copy_from_slice(&pattern(100, 99));
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn windows_that_all_change_in_turn_cost_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let nodes: Vec<usize> = (0..6).map(|rank| rank % 3).collect();
    let bytes = usize::try_from(2 * BLOCK).unwrap();
    with_group(&nodes, |group| {
        let file = open_cached(&group, &path, &last_writer(64)).unwrap();
        let rank = group.rank() as u64;
        let slide = |rounds: std::ops::Range<u64>| {
            for round in rounds {
                let at = (rank + round) % 6 * BLOCK;
                // A reader sees one write in each block, and writes both.
                let mut found = vec![0; bytes];
                file.read_at(at, &mut found).unwrap();
                for block in found.chunks(bytes / 2) {
                    assert!(block.iter().all(|byte| *byte == block[0]), "a block is of two writers");
                }
                file.write_at(at, &vec![u8::try_from(1 + (rank + 6 * round) % 250).unwrap(); bytes]).unwrap();
            }
        };
        file.write_at(rank * BLOCK, &vec![0; bytes]).unwrap();
        group.barrier().unwrap();
        // Until the file is in the mixed phase, and every member has its token.
        slide(0..30);
        group.barrier().unwrap();
        let before = file.counts();
        slide(30..60);
        let after = file.counts();
        // If too much changes during a read, it takes a lock; that is rare.
        assert!(after.locks - before.locks <= 30, "60 calls that overlap: {before:?}, {after:?}");
        group.barrier().unwrap();
        let own = file.cache_stats().map_or(0, |stats| stats.at_once);
        let all = group.allgather(&own.to_le_bytes()).unwrap();
        let total: u64 = all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap())).sum();
        assert!(180 < total, "{total} of 360 reads did without a lock");
        file.close().unwrap();
    });
}

/// A reader across the old end sees all of such a write or nothing: the length travels by another message than the bytes.
#[test]
fn a_write_that_lengthens_the_file_takes_a_lock_and_one_inside_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let bytes = usize::try_from(2 * BLOCK).unwrap();
    with_group(&[0, 1, 2], |group| {
        let file = open_cached(&group, &path, &last_writer(64)).unwrap();
        let rank = group.rank() as u64;
        // All read and write the same blocks, until the file is in the mixed phase.
        for round in 0..20 {
            let mut found = vec![0; bytes];
            file.write_at((rank + round) % 3 * BLOCK, &vec![1; bytes]).unwrap();
            file.read_at((rank + round + 1) % 3 * BLOCK, &mut found).unwrap();
        }
        group.barrier().unwrap();
        for turn in 0..group.size() {
            if group.rank() == turn {
                let end = file.len().unwrap();
                let locks = || file.counts().locks;
                let before = locks();
                file.write_at(BLOCK, &vec![2; bytes]).unwrap();
                let inside = locks();
                file.write_at(end - BLOCK, &vec![3; bytes]).unwrap();
                let longer = locks();
                // A member that has locked keeps a token, and others recall it.
                assert!(0 < turn || inside == before, "rank {turn} writes inside");
                assert!(inside < longer, "rank {turn} lengthens");
                assert_eq!(file.len().unwrap(), end + BLOCK);
            }
            group.barrier().unwrap();
        }
        file.close().unwrap();
    });
}

#[test]
fn takes_in_all_directions_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    // More concurrent calls than any server has threads for; every write needs blocks of several servers.
    let nodes: Vec<usize> = (0..18).map(|rank| rank % 3).collect();
    let bytes = usize::try_from(3 * BLOCK).unwrap();
    with_group(&nodes, |group| {
        let file = open_cached(&group, &path, &last_writer(64)).unwrap();
        let rank = group.rank() as u64;
        let mut found = vec![0; bytes];
        for round in 0..20 {
            let at = (rank + round) % 6 * BLOCK;
            file.write_at(at, &vec![u8::try_from(1 + (rank + 18 * round) % 250).unwrap(); bytes]).unwrap();
            assert_eq!(file.read_at(at, &mut found).unwrap(), bytes);
            assert!(
                found.chunks(4096).all(|block| block.iter().all(|byte| *byte == block[0])),
                "a block of two writers"
            );
        }
        file.close().unwrap();
    });
}

#[test]
fn contiguous_writes_over_several_owners_blocks_happen_at_once() {
    for options in [options(4), last_writer(4)] {
        contiguous_writes(&options);
    }
}

fn contiguous_writes(options: &CacheOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let bytes = usize::try_from(3 * BLOCK).unwrap();
    // Space for few blocks: owners change all the time.
    with_group(&[0, 1, 2, 0, 1, 2], |group| {
        let file = open_cached(&group, &path, options).unwrap();
        for round in 0..15u8 {
            let at = u64::from(round % 3) * BLOCK + 100 * u64::from(round % 2);
            file.write_at(at, &vec![1 + round * 6 + u8::try_from(group.rank()).unwrap(); bytes]).unwrap();
            group.barrier().unwrap();
            let mut found = vec![0; bytes];
            assert_eq!(file.read_at(at, &mut found).unwrap(), bytes);
            assert!(found.iter().all(|byte| *byte == found[0]), "round {round}: one write as a whole");
            group.barrier().unwrap();
        }
        file.close().unwrap();
    });
}

/// Every member writes its own cells of shared blocks, into pools that hold hardly any of them, and reads them back.
fn crowd(seed: u64, trace: &common::Trace) {
    const CELL: usize = 64;
    const BLOCKS: u64 = 24;
    let mut chance = SeededRandom::new(seed);
    let nodes: &[usize] = chance.pick(&[&[0, 1][..], &[0, 1, 2, 3], &[0, 0, 1, 1, 2]]);
    let cache_blocks = chance.pick(&[1, 2, 5, 100]);
    let options = chance.pick(&[options, last_writer])(cache_blocks);
    trace.step(format!("on nodes {nodes:?}, {cache_blocks} blocks, {:?}", options.placement));
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let cells = usize::try_from(BLOCKS * BLOCK).unwrap() / CELL / nodes.len();
    let streams = with_group(nodes, |group| {
        let file = open_cached(&group, &path, &options).unwrap();
        let mut mine = SeededRandom::new(seed ^ (group.rank() as u64 + 1) << 40);
        let mut cell = vec![0; cells];
        let place = |n: usize| ((n * group.size() + group.rank()) * CELL) as u64;
        for _ in 0..150 {
            let n = mine.index(cells);
            if mine.once_in(3) {
                let mut found = [0; CELL];
                let count = file.read_at(place(n), &mut found).unwrap();
                let expected = if cell[n] == 0 { [0; CELL].to_vec() } else { pattern(CELL, cell[n]) };
                assert!(found[..count] == expected[..count], "cell {n} of rank {}", group.rank());
                assert!(count == CELL || cell[n] == 0);
            } else {
                cell[n] = mine.next_u64() | 1;
                file.write_at(place(n), &pattern(CELL, cell[n])).unwrap();
            }
        }
        file.close().unwrap();
        cell
    });
    let mut expected = vec![0; cells * nodes.len() * CELL];
    for (rank, cell) in streams.iter().enumerate() {
        for (n, seed) in cell.iter().enumerate().filter(|(_, seed)| **seed != 0) {
            let at = (n * nodes.len() + rank) * CELL;
            expected[at..at + CELL].copy_from_slice(&pattern(CELL, *seed));
        }
    }
    let mut found = std::fs::read(&path).unwrap();
    found.resize(expected.len(), 0);
    assert_eq!(difference(&expected, &found), None);
}

#[test]
fn a_crowd_in_shared_blocks_loses_nothing() {
    common::histories(12, crowd);
}

#[test]
fn visits_in_both_directions_do_not_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    // More concurrent calls than either server has threads for.
    let nodes: Vec<usize> = (0..24).map(|rank| rank % 2).collect();
    with_group(&nodes, |group| {
        let file = open_cached(&group, &path, &options(64)).unwrap();
        let rank = group.rank() as u64;
        file.write_at(rank * BLOCK, &pattern(4096, rank)).unwrap();
        group.barrier().unwrap();
        let mut found = [0; 4096];
        for round in 0..40 {
            // Always a block of the other node.
            let other = (rank + 1 + 2 * round) % 24;
            assert_eq!(file.read_at(other * BLOCK, &mut found).unwrap(), 4096);
            assert!(found[..] == pattern(4096, other), "rank {rank} reads what {other} wrote");
        }
        file.close().unwrap();
    });
}

#[test]
fn one_file_has_one_placement_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    with_group(&[0, 1], |group| {
        let file = open_cached(&group, &path, &options(10)).unwrap();
        let home = CacheOptions { placement: Placement::Home, ..options(10) };
        let error = open_cached(&group, &path, &home).unwrap_err();
        assert_eq!(error.code(), Code::Invalid, "{error}");
        let other = open_cached(&group, &path, &last_writer(10)).unwrap_err();
        assert_eq!(other.code(), Code::Invalid, "{other}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        let again = open_cached(&group, &path, &options(10)).unwrap();
        file.write_at(group.rank() as u64 * 5000, &pattern(5000, 4)).unwrap();
        group.barrier().unwrap();
        let mut found = vec![0; 5000];
        again.read_at(5000 - group.rank() as u64 * 5000, &mut found).unwrap();
        assert!(found == pattern(5000, 4));
        file.close().unwrap();
        again.close().unwrap();
        // One after the other each access is allowed.
        let file = open_cached(&group, &path, &home).unwrap();
        assert_eq!(file.len().unwrap(), 10_000);
        file.close().unwrap();
    });
}

#[test]
fn what_was_cut_stays_cut_whoever_had_it() {
    for options in [options(100), last_writer(100)] {
        cuts(&options);
    }
}

fn cuts(options: &CacheOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    with_group(&[0, 1, 2], |group| {
        let file = open_cached(&group, &path, options).unwrap();
        let rank = group.rank() as u64;
        for round in 0..6u64 {
            file.write_at(rank * 10_000, &pattern(10_000, round * 10 + rank)).unwrap();
            group.barrier().unwrap();
            let cut = 4000 * round + 123;
            file.set_len(cut).unwrap();
            file.set_len(30_000).unwrap();
            let mut found = vec![1; 30_000];
            assert_eq!(file.read_at_all(0, &mut found).unwrap(), 30_000);
            let mut expected: Vec<u8> = (0..3).flat_map(|rank| pattern(10_000, round * 10 + rank)).collect();
            let cut = usize::try_from(cut).unwrap();
            expected[cut..].fill(0);
            assert_eq!(difference(&expected, &found), None, "round {round}");
            group.barrier().unwrap();
        }
        file.close().unwrap();
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 30_000);
}
