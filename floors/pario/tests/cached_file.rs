//! The file cache: a group's files on a plain file system, compared with a byte array and with the plain file afterwards.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::{SeededRandom, pattern};
use pario::core::Code;
use pario::group::{Group, threads_on};
use pario::{CacheOptions, CacheStats, Datatype, GroupFile, Placement, Seek, open_cached};

const BLOCK: u64 = 4096;

/// Small blocks, each with its own home server.
fn small(cache_blocks: u64) -> CacheOptions {
    CacheOptions {
        create: true,
        cache_bytes: cache_blocks * BLOCK,
        block_bytes: Some(BLOCK),
        stripe_bytes: Some(BLOCK),
        // Blocks are cached on one node too, on any file system below.
        direct: Some(false),
        ..CacheOptions::default()
    }
}

/// The same, cached at the blocks' home servers, at their first or at their last writer.
fn placed(cache_blocks: u64, placement: Placement) -> CacheOptions {
    CacheOptions { placement, ..small(cache_blocks) }
}

/// Makes three tests of each: one for each placement.
macro_rules! for_each_placement {
    ($($name:ident,)*) => {
        mod home {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::Home);
            })*
        }

        mod first_touch {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::FirstTouch);
            })*
        }

        mod last_writer {
            $(#[test]
            fn $name() {
                super::$name(pario::Placement::LastWriter);
            })*
        }
    };
}

for_each_placement! {
    what_a_group_writes_is_read_by_all_and_is_in_the_plain_file,
    random_accesses_through_views_are_in_the_plain_file,
    what_a_neighbour_just_wrote_is_read_without_the_file_system,
    only_written_bytes_reach_the_file_beside_what_strangers_write,
    two_groups_write_disjoint_bytes_of_the_same_blocks,
    one_pool_serves_all_files_and_stays_within_its_size,
    two_requests_that_exceed_the_pool_together_do_not_wait_for_each_other,
    what_is_larger_than_the_pool_goes_past_it,
    pointers_and_atomic_mode_are_those_of_any_file,
    locks_surround_accesses_where_caches_below_are_not_coherent,
    reading_only_writing_only_and_cutting_at_open,
    needs_root_a_full_file_system_is_told_to_all_at_sync_and_nothing_else_is_lost,
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

/// Groups of one to six members on one, two and four nodes.
const GROUPS: [&[usize]; 7] =
    [&[0], &[0, 0], &[0, 1], &[0, 0, 0, 0], &[0, 1, 0, 1], &[0, 1, 2, 3], &[0, 0, 1, 1, 2, 3]];

fn what_a_group_writes_is_read_by_all_and_is_in_the_plain_file(placement: Placement) {
    for nodes in GROUPS {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        let before = pattern(50_000, 1);
        std::fs::write(&path, &before).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let options = CacheOptions { create: false, ..placed(64, placement) };
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &options).unwrap();
            assert_eq!(file.len().unwrap(), 50_000);
            assert_eq!(file.attr().unwrap().mode, 0o640);
            let mut found = vec![0; 60_000];
            assert_eq!(file.read_at_all(0, &mut found).unwrap(), 50_000);
            assert!(found[..50_000] == before);
            group.barrier().unwrap();
            let (rank, size) = (group.rank(), group.size());
            let mine = pattern(5000, rank as u64 + 100);
            file.write_at(20_000 + 7000 * rank as u64, &mine).unwrap();
            group.barrier().unwrap();
            for other in 0..size {
                let mut found = vec![0; 5000];
                assert_eq!(file.read_at(20_000 + 7000 * other as u64, &mut found).unwrap(), 5000);
                assert!(found == pattern(5000, other as u64 + 100), "rank {rank} reads what {other} wrote");
            }
            file.close().unwrap();
        });
        let mut expected = before;
        for rank in 0..nodes.len() {
            let at = 20_000 + 7000 * rank;
            expected.resize(expected.len().max(at + 5000), 0);
            expected[at..at + 5000].copy_from_slice(&pattern(5000, rank as u64 + 100));
        }
        assert!(std::fs::read(&path).unwrap() == expected, "on nodes {nodes:?}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
}

/// One member's random choices in a history; all members know all of them.
struct MemberChoices {
    at: u64,
    bytes: usize,
    seed: u64,
}

/// The file contents after the writes of all members: member `rank` sees every so many-th piece from the `rank`-th on.
fn put(model: &mut Vec<u8>, turns: &[MemberChoices], piece: u64) {
    let size = turns.len() as u64;
    for (rank, turn) in turns.iter().enumerate() {
        for (n, byte) in pattern(turn.bytes, turn.seed).iter().enumerate() {
            let stream = turn.at + n as u64;
            let row = stream / piece * piece * size;
            let at = usize::try_from(row + rank as u64 * piece + stream % piece).unwrap();
            if model.len() <= at {
                model.resize(at + 1, 0);
            }
            model[at] = *byte;
        }
    }
}

/// Members write and read through interleaved views, in phases, with truncations and syncs between them.
fn history(nodes: &[usize], cache_blocks: u64, (seed, placement): (u64, Placement)) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let mut model = pattern(30_000, seed);
    std::fs::write(&path, &model).unwrap();
    let options = placed(cache_blocks, placement);
    let size = nodes.len();
    let mut chance = SeededRandom::new(seed);
    let (piece, rounds) = (1 + chance.below(3000), 6);
    let turns: Vec<Vec<MemberChoices>> = (0..rounds)
        .map(|_| {
            let mut turn = || {
                let most = if chance.once_in(4) { 200_000 } else { 9000 };
                MemberChoices {
                    at: chance.below(20_000),
                    bytes: 1 + chance.index(most),
                    seed: chance.next_u64(),
                }
            };
            (0..size).map(|_| turn()).collect()
        })
        .collect();
    let cuts: Vec<Option<u64>> =
        (0..rounds).map(|_| chance.once_in(3).then(|| chance.below(90_000))).collect();
    let syncs: Vec<bool> = (0..rounds).map(|_| chance.once_in(3)).collect();
    with_group(nodes, |group| {
        let file = open_cached(&group, &path, &options).unwrap();
        let (rank, step) = (group.rank() as u64, i64::try_from(piece * size as u64).unwrap());
        let byte = Datatype::elementary(1).unwrap();
        let own =
            Datatype::contiguous(i64::try_from(piece).unwrap(), &byte).unwrap().resized(0, step).unwrap();
        file.set_view(i64::try_from(rank * piece).unwrap(), &byte, &own).unwrap();
        for (round, turns) in turns.iter().enumerate() {
            let mine = &turns[group.rank()];
            let data = pattern(mine.bytes, mine.seed);
            if round % 2 == 0 {
                file.write_at_all(mine.at, &data).unwrap();
            } else {
                file.write_at(mine.at, &data).unwrap();
            }
            let mut back = vec![0; data.len()];
            assert_eq!(file.read_at(mine.at, &mut back).unwrap(), data.len());
            assert!(back == data, "rank {rank} reads its own in round {round}");
            group.barrier().unwrap();
            if syncs[round] {
                file.sync().unwrap();
            }
            if let Some(bytes) = cuts[round] {
                file.set_len(bytes).unwrap();
                assert_eq!(file.len().unwrap(), bytes);
                group.barrier().unwrap();
            }
        }
        let end = file.len().unwrap();
        file.set_view(0, &byte, &byte).unwrap();
        let mut all = vec![0; usize::try_from(end).unwrap()];
        assert_eq!(file.read_at_all(0, &mut all).unwrap(), all.len());
        file.close().unwrap();
        assert!(all == std::fs::read(&path).unwrap(), "rank {rank} saw what the plain file has");
    });
    for (turns, cut) in turns.iter().zip(&cuts) {
        put(&mut model, turns, piece);
        if let Some(bytes) = cut {
            model.resize(usize::try_from(*bytes).unwrap(), 0);
        }
    }
    let found = std::fs::read(&path).unwrap();
    assert_eq!(found.len(), model.len());
    assert!(found == model, "the plain file is as the model has it");
}

fn random_accesses_through_views_are_in_the_plain_file(placement: Placement) {
    common::histories(
        14,
        match placement {
            Placement::Home => |seed, trace| random_history(seed, trace, Placement::Home),
            Placement::FirstTouch => |seed, trace| random_history(seed, trace, Placement::FirstTouch),
            Placement::Auto | Placement::LastWriter => {
                |seed, trace| random_history(seed, trace, Placement::LastWriter)
            }
        },
    );
}

fn random_history(seed: u64, trace: &common::Trace, placement: Placement) {
    let choice = usize::try_from(seed % 35).unwrap();
    let nodes = GROUPS[choice % GROUPS.len()];
    // From a pool that holds nothing to one that holds all.
    let cache_blocks = [0, 3, 8, 20, 1000][choice % 5];
    trace.step(format!("on nodes {nodes:?}, {cache_blocks} blocks, {placement:?}"));
    history(nodes, cache_blocks, (seed, placement));
}

/// The sum over all servers of one counter.
fn total(stats: &[Option<CacheStats>], count: impl Fn(&CacheStats) -> u64) -> u64 {
    stats.iter().flatten().map(count).sum()
}

fn what_a_neighbour_just_wrote_is_read_without_the_file_system(placement: Placement) {
    for nodes in [&[0, 0][..], &[0, 1], &[0, 1, 2, 3]] {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        let stats = with_group(nodes, |group| {
            let file = open_cached(&group, &path, &placed(1000, placement)).unwrap();
            let (rank, size) = (group.rank() as u64, group.size() as u64);
            file.write_at(rank * 20_000, &pattern(20_000, rank)).unwrap();
            group.barrier().unwrap();
            let next = (rank + 1) % size;
            let mut found = vec![0; 20_000];
            assert_eq!(file.read_at(next * 20_000, &mut found).unwrap(), 20_000);
            assert!(found == pattern(20_000, next));
            group.barrier().unwrap();
            let stats = file.cache_stats();
            group.barrier().unwrap();
            file.close().unwrap();
            stats
        });
        let count = nodes.iter().max().unwrap() + 1;
        assert_eq!(stats.iter().flatten().count(), count, "one server a node");
        assert_eq!(total(&stats, |stats| stats.plain_reads), 0, "{stats:?}");
        assert_eq!(total(&stats, |stats| stats.plain_writes), 0, "{stats:?}");
        assert!(0 < total(&stats, |stats| stats.hits));
    }
}

fn only_written_bytes_reach_the_file_beside_what_strangers_write(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    std::fs::write(&path, vec![b'.'; 10_000]).unwrap();
    let stranger = std::fs::File::options().write(true).open(&path).unwrap();
    with_group(&[0, 1], |group| {
        let file = open_cached(&group, &path, &placed(100, placement)).unwrap();
        let rank = group.rank() as u64;
        // Known to the cache before the other program opens it.
        let mut all = [0; 10_000];
        file.read_at(0, &mut all).unwrap();
        file.write_at(100 + 4096 * rank, b"group").unwrap();
        group.barrier().unwrap();
        if rank == 0 {
            stranger.write_all_at(b"stranger", 110).unwrap();
            stranger.write_all_at(b"longer", 12_000).unwrap();
        }
        group.barrier().unwrap();
        // Between two groups, as between any two programs, data is visible after sync on both sides.
        file.sync().unwrap();
        let mut found = [0; 8];
        file.read_at(110, &mut found).unwrap();
        assert_eq!(&found, b"stranger");
        assert_eq!(file.len().unwrap(), 12_006);
        file.close().unwrap();
    });
    let found = std::fs::read(&path).unwrap();
    assert_eq!(
        (&found[100..105], &found[110..118], &found[4196..4201]),
        (&b"group"[..], &b"stranger"[..], &b"group"[..])
    );
    assert!(found[105..110].iter().all(|byte| *byte == b'.'));
    assert_eq!((found.len(), &found[12_000..]), (12_006, &b"longer"[..]));
}

fn two_groups_write_disjoint_bytes_of_the_same_blocks(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    std::fs::write(&path, vec![0; 40_000]).unwrap();
    let write = |nodes: &[usize], first: usize, mark: u8| {
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &placed(100, placement)).unwrap();
            for at in (first + 2 * group.rank() * 100..40_000).step_by(200 * group.size()) {
                file.write_at(at as u64, &[mark; 100]).unwrap();
            }
            file.close().unwrap();
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&[0, 1], 0, 1));
        scope.spawn(|| write(&[0, 0, 1], 100, 2));
    });
    let found = std::fs::read(&path).unwrap();
    assert!(found.chunks(200).all(|row| row[..100] == [1; 100] && row[100..] == [2; 100]));
}

fn one_pool_serves_all_files_and_stays_within_its_size(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    with_group(&[0, 1], |group| {
        let names: Vec<PathBuf> = (0..3).map(|n| dir.path().join(format!("file-{n}"))).collect();
        let open = |name: &PathBuf| open_cached(&group, name, &placed(8, placement)).unwrap();
        let files: Vec<GroupFile> = names.iter().map(open).collect();
        for round in 0..5u64 {
            for (n, file) in files.iter().enumerate() {
                let data = pattern(9000, round * 10 + n as u64);
                file.write_at(9000 * (2 * round + group.rank() as u64), &data).unwrap();
            }
            for file in &files {
                let stats = file.cache_stats().expect("each is alone on its node");
                assert!(stats.cached_bytes <= 8 * BLOCK, "{stats:?}");
            }
        }
        // The same file again, under the same servers.
        let again = open(&names[0]);
        group.barrier().unwrap();
        let mut found = vec![0; 9000];
        again.read_at(9000, &mut found).unwrap();
        assert!(found == pattern(9000, 0));
        again.close().unwrap();
        for file in files {
            file.close().unwrap();
        }
        // And after all handles were closed, from new servers.
        let file = open(&names[2]);
        assert_eq!(file.len().unwrap(), 90_000);
        file.read_at(0, &mut found).unwrap();
        assert!(found == pattern(9000, 2));
        file.close().unwrap();
    });
}

fn two_requests_that_exceed_the_pool_together_do_not_wait_for_each_other(placement: Placement) {
    let bytes = usize::try_from(6 * BLOCK).unwrap();
    for nodes in [&[0, 0, 0, 0][..], &[0, 0, 1, 1], &[0, 1, 2, 3]] {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(&dir);
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &placed(8, placement)).unwrap();
            for round in 0..20u64 {
                let at = (round + group.rank() as u64) % 4 * BLOCK;
                file.write_at(at, &vec![1; bytes]).unwrap();
                file.read_at(at, &mut vec![0; bytes]).unwrap();
            }
            file.close().unwrap();
        });
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 1));
    }
}

fn what_is_larger_than_the_pool_goes_past_it(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    for nodes in [&[0, 0][..], &[0, 1]] {
        let stats = with_group(nodes, |group| {
            let file = open_cached(&group, &path, &placed(3, placement)).unwrap();
            // Dirty data under the large write, and dirty data beside it.
            file.write_at(50_000, b"overwritten").unwrap();
            file.write_at(900_000, b"beside").unwrap();
            group.barrier().unwrap();
            if group.rank() == 1 {
                file.write_at(10, &pattern(300_000, 8)).unwrap();
            }
            group.barrier().unwrap();
            let mut found = vec![0; 300_000];
            assert_eq!(file.read_at(10, &mut found).unwrap(), 300_000);
            assert!(found == pattern(300_000, 8));
            group.barrier().unwrap();
            let stats = file.cache_stats();
            if let Some(stats) = &stats {
                assert!(stats.cached_bytes <= 3 * BLOCK, "{stats:?}");
                // With home placement both servers have a large part of it; with first touch one may have nearly all.
                assert!(0 < stats.straight || placement != Placement::Home, "{stats:?}");
            }
            file.close().unwrap();
            stats
        });
        assert!(0 < total(&stats, |stats| stats.straight), "{stats:?}");
        let found = std::fs::read(&path).unwrap();
        assert!(found[10..300_010] == pattern(300_000, 8) && found[900_000..] == *b"beside");
    }
}

#[test]
fn a_reader_in_equal_steps_has_the_next_on_their_way() {
    const READS: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let all = pattern(usize::try_from(READS * 7000).unwrap(), 3);
    std::fs::write(&path, &all).unwrap();
    with_group(&[0, 1], |group| {
        let file = open_cached(&group, &path, &placed(1000, Placement::Home)).unwrap();
        let mut found = [0; 500];
        for n in 0..READS {
            let at = usize::try_from(n * 7000).unwrap() + 1000;
            assert_eq!(file.read_at(at as u64, &mut found).unwrap(), 500);
            assert!(found == all[at..at + 500]);
            let asked = file.counts().read_messages;
            if (3..READS - 6).contains(&n) {
                assert!(n + 1 < asked, "{asked} requests for {} reads: none ahead", n + 1);
            }
        }
        // Some ranges lie in two blocks; no block is requested twice.
        let places = (0..READS + 4).map(|n| u64::from(n * 7000 % BLOCK + 1500 > BLOCK) + 1).sum::<u64>();
        assert!(file.counts().read_messages <= places, "{}", file.counts().read_messages);
        file.close().unwrap();
    });
}

#[test]
fn a_group_that_sets_no_placement_follows_its_writers_across_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    for (nodes, placement) in [(&[0, 0][..], Placement::Home), (&[0, 1][..], Placement::LastWriter)] {
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &small(100)).unwrap();
            assert_eq!(file.placement(), Some(placement));
            let block = pattern(usize::try_from(BLOCK).unwrap(), group.rank() as u64);
            // The second member overwrites the block of the first: it moves there, if there are two nodes.
            for rank in 0..group.size() {
                if group.rank() == rank {
                    file.write_at(0, &block).unwrap();
                }
                group.barrier().unwrap();
            }
            let takes = file.cache_stats().map_or(0, |stats| stats.takes);
            let moved = group.rank() == 1 && placement == Placement::LastWriter;
            assert_eq!(takes, u64::from(moved), "handovers requested by rank {}", group.rank());
            file.close().unwrap();
        });
        assert!(std::fs::read(&path).unwrap() == pattern(usize::try_from(BLOCK).unwrap(), 1));
    }
}

fn pointers_and_atomic_mode_are_those_of_any_file(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let size = 4;
    with_group(&[0, 1, 0, 1], |group| {
        let file = open_cached(&group, &path, &placed(100, placement)).unwrap();
        file.write_ordered(&[b'a' + u8::try_from(group.rank()).unwrap(); 10]).unwrap();
        file.write_shared(&[b'x'; 10]).unwrap();
        group.barrier().unwrap();
        assert_eq!(file.len().unwrap(), 80);
        file.seek_shared(Seek::Set(0)).unwrap();
        let mut found = [0; 10];
        file.read_ordered(&mut found).unwrap();
        assert_eq!(found, [b'a' + u8::try_from(group.rank()).unwrap(); 10]);
        file.set_atomicity(true).unwrap();
        let at = 4096 - 50;
        for round in 0..10 {
            file.write_at(at, &[u8::try_from(group.rank() + round * size).unwrap(); 100]).unwrap();
            let mut found = [0; 100];
            file.read_at(at, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == found[0]), "one write at a time: {found:?}");
        }
        file.close().unwrap();
    });
    assert_eq!(&std::fs::read(&path).unwrap()[..40], b"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd");
}

fn locks_surround_accesses_where_caches_below_are_not_coherent(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    for (noncoherent, locked) in [(Some(true), true), (Some(false), false), (None, false)] {
        let options = CacheOptions { noncoherent, ..placed(100, placement) };
        let stats = with_group(&[0, 1], |group| {
            let file = open_cached(&group, &path, &options).unwrap();
            file.write_at(group.rank() as u64 * 10_000, &pattern(10_000, 5)).unwrap();
            file.sync().unwrap();
            file.read_at(0, &mut [0; 20_000]).unwrap();
            group.barrier().unwrap();
            let stats = file.cache_stats();
            group.barrier().unwrap();
            file.close().unwrap();
            stats
        });
        let accesses = total(&stats, |stats| stats.plain_reads + stats.plain_writes);
        assert!(0 < accesses);
        assert_eq!(total(&stats, |stats| stats.locks), if locked { accesses } else { 0 }, "{stats:?}");
    }
}

#[track_caller]
fn refused(path: &Path, options: &CacheOptions, code: Code) {
    let path = path.to_owned();
    for told in with_group(&[0, 1, 0], |group| open_cached(&group, &path, options).err()) {
        let error = told.expect("all members get the error");
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn what_cannot_be_opened_is_told_to_all_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let existing = CacheOptions { create: false, ..small(10) };
    refused(&dir.path().join("missing"), &existing, Code::NotFound);
    refused(dir.path(), &existing, Code::IsDirectory);
    let path = path_in(&dir);
    std::fs::write(&path, b"here").unwrap();
    refused(&path, &CacheOptions { create_new: true, ..small(10) }, Code::Exists);
    refused(Path::new("/dev/null"), &existing, Code::Unsupported);
    if !rustix::process::geteuid().is_root() {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        refused(&path, &existing, Code::Denied);
    }
    let told = with_group(&[0, 0], |group| {
        let name = dir.path().join(format!("file-{}", group.rank()));
        open_cached(&group, name, &small(10)).unwrap_err().code()
    });
    assert_eq!(told, [Code::NotSame, Code::NotSame]);
}

fn reading_only_writing_only_and_cutting_at_open(placement: Placement) {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    std::fs::write(&path, b"before").unwrap();
    with_group(&[0, 1], |group| {
        let reading = CacheOptions { write: false, create: false, ..placed(10, placement) };
        let file = open_cached(&group, &path, &reading).unwrap();
        let mut found = [0; 10];
        assert_eq!(file.read_at_all(0, &mut found).unwrap(), 6);
        assert_eq!(file.write_at(0, b"no").unwrap_err().code(), Code::NotWritable);
        file.close().unwrap();
        let writing = CacheOptions { read: false, ..placed(10, placement) };
        let file = open_cached(&group, &path, &writing).unwrap();
        file.write_at(6 + 3 * group.rank() as u64, b"abc").unwrap();
        assert_eq!(file.read_at(0, &mut found).unwrap_err().code(), Code::NotReadable);
        file.close().unwrap();
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"beforeabcabc");
    with_group(&[0, 1], |group| {
        let file =
            open_cached(&group, &path, &CacheOptions { truncate: true, ..placed(10, placement) }).unwrap();
        assert_eq!(file.len().unwrap(), 0);
        file.set_len(9000).unwrap();
        group.barrier().unwrap();
        if group.rank() == 1 {
            file.write_at(5000, b"end").unwrap();
        }
        file.close().unwrap();
    });
    let found = std::fs::read(&path).unwrap();
    assert_eq!((found.len(), &found[5000..5003]), (9000, &b"end"[..]));
    assert!(found[..5000].iter().all(|byte| *byte == 0));
}

#[test]
fn what_lies_beyond_every_file_is_refused_with_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let told = with_group(&[0, 0], |group| {
        let file = open_cached(&group, &path, &small(10)).unwrap();
        let error = file.write_at(i64::MAX as u64 - 10, b"beyond every file").unwrap_err();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        file.close().unwrap();
        error.code()
    });
    assert_eq!(told, [Code::TooLarge, Code::TooLarge]);
}

/// A file system of a few bytes.
struct TinyTmpfs(tempfile::TempDir);

impl TinyTmpfs {
    fn new(bytes: u64) -> TinyTmpfs {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "pario-test"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success(), "root mounts a file system");
        TinyTmpfs(dir)
    }
}

impl Drop for TinyTmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn needs_root_a_full_file_system_is_told_to_all_at_sync_and_nothing_else_is_lost(placement: Placement) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED, needs root");
        return;
    }
    let full = TinyTmpfs::new(1 << 20);
    let path = full.0.path().join("plain");
    let ballast = full.0.path().join("ballast");
    std::fs::write(&ballast, vec![1; 900 << 10]).unwrap();
    with_group(&[0, 1], |group| {
        let file = open_cached(&group, &path, &placed(100, placement)).unwrap();
        let mine = pattern(150_000, group.rank() as u64);
        file.write_at(group.rank() as u64 * 150_000, &mine).unwrap();
        let error = file.sync().unwrap_err();
        assert_eq!(error.code(), Code::NoSpace, "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        group.barrier().unwrap();
        // With free space again it continues.
        if group.rank() == 0 {
            std::fs::remove_file(&ballast).unwrap();
        }
        group.barrier().unwrap();
        while file.sync().is_err() {}
        file.close().unwrap();
    });
    assert!(std::fs::read(&path).unwrap() == [pattern(150_000, 0), pattern(150_000, 1)].concat());
}
