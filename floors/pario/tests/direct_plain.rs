//! A group on one node above a file system of that node: its members read and write the plain file themselves, in the phases and under the
//! locks of any file, and no data is cached twice.

mod common;

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use common::pattern;
use pario::core::Code;
use pario::group::{Group, threads_on};
use pario::{CacheOptions, Datatype, open_cached};

/// Set explicitly, so that the tests do not depend on the location of temporary files.
fn options() -> CacheOptions {
    CacheOptions { create: true, direct: Some(true), ..CacheOptions::default() }
}

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

#[test]
fn small_reads_cost_no_message_and_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let all = pattern(1 << 20, 1);
    std::fs::write(&path, &all).unwrap();
    with_group(&[0, 0, 0], |group| {
        let file = open_cached(&group, &path, &options()).unwrap();
        let mut found = [0; 8192];
        file.read_at(0, &mut found).unwrap();
        let before = file.counts();
        for n in 0..100usize {
            let at = n * 37 % 100 * 8192;
            assert_eq!(file.read_at(at as u64, &mut found).unwrap(), 8192);
            assert!(found[..] == all[at..at + 8192]);
        }
        let made = file.counts().since(&before);
        assert_eq!((made.messages, made.direct_reads), (0, 100), "{made:?}");
        group.barrier().unwrap();
        if let Some(stats) = file.cache_stats() {
            assert_eq!((stats.cached_bytes, stats.plain_reads), (0, 0), "{stats:?}");
        }
        file.close().unwrap();
    });
}

#[test]
fn every_write_is_seen_by_all_and_by_strangers_after_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    let size = 4;
    with_group(&[0; 4], |group| {
        let file = open_cached(&group, &path, &options()).unwrap();
        let rank = group.rank() as u64;
        for round in 0..8u64 {
            // Small writes are buffered, large ones direct; then all members read all data.
            let bytes = if round % 2 == 0 { 3000 } else { 300_000 };
            file.write_at(rank * 300_000, &pattern(bytes, round * 10 + rank)).unwrap();
            group.barrier().unwrap();
            for other in 0..size {
                let mut found = vec![0; bytes];
                assert_eq!(file.read_at(other * 300_000, &mut found).unwrap(), bytes);
                assert!(found == pattern(bytes, round * 10 + other), "round {round}: {rank} reads {other}");
            }
            group.barrier().unwrap();
        }
        file.write_at(rank * 300_000, b"small").unwrap();
        file.sync().unwrap();
        let stranger = std::fs::File::open(&path).unwrap();
        for other in 0..size {
            let mut found = [0; 5];
            stranger.read_exact_at(&mut found, other * 300_000).unwrap();
            assert_eq!(&found, b"small");
        }
        assert_eq!(file.len().unwrap(), 4 * 300_000);
        group.barrier().unwrap();
        file.set_len(300_002).unwrap();
        let mut found = vec![1; 10];
        assert_eq!(file.read_at(300_000, &mut found).unwrap(), 2);
        file.close().unwrap();
    });
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 300_002);
}

#[test]
fn views_pointers_and_atomic_mode_are_those_of_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    with_group(&[0; 4], |group| {
        let file = open_cached(&group, &path, &options()).unwrap();
        let rank = i64::try_from(group.rank()).unwrap();
        let byte = Datatype::elementary(1).unwrap();
        let own = Datatype::contiguous(100, &byte).unwrap().resized(0, 400).unwrap();
        file.set_view(rank * 100, &byte, &own).unwrap();
        let data = pattern(50_000, group.rank() as u64);
        file.write_at_all(0, &data).unwrap();
        let mut found = vec![0; 50_000];
        assert_eq!(file.read_at_all(0, &mut found).unwrap(), 50_000);
        assert!(found == data);
        file.set_view(0, &byte, &byte).unwrap();
        file.set_atomicity(true).unwrap();
        for round in 0..10u8 {
            file.write_at(250_000, &vec![round * 4 + u8::try_from(rank).unwrap(); 200_000]).unwrap();
            let mut found = vec![0; 200_000];
            file.read_at(250_000, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == found[0]), "one write at a time");
        }
        file.close().unwrap();
    });
    let found = std::fs::read(&path).unwrap();
    for (rank, cells) in (0..4u64).map(|rank| (rank, pattern(50_000, rank))) {
        let at = usize::try_from(rank).unwrap() * 100;
        assert!(found[..200_000].chunks(400).map(|row| &row[at..at + 100]).eq(cells.chunks(100)));
    }
}

#[test]
fn large_writes_to_the_same_place_leave_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    // More than a record holds, whether it is lent or not.
    let bytes = 6 << 20;
    for direct in [true, false] {
        let options = CacheOptions { direct: Some(direct), ..options() };
        with_group(&[0; 3], |group| {
            let file = open_cached(&group, &path, &options).unwrap();
            let mut found = vec![0; bytes];
            for round in 0..4u8 {
                file.write_at(1000, &vec![1 + round * 3 + u8::try_from(group.rank()).unwrap(); bytes])
                    .unwrap();
                group.barrier().unwrap();
                assert_eq!(file.read_at(1000, &mut found).unwrap(), bytes);
                assert!(found.iter().all(|byte| *byte == found[0]), "round {round}, direct: {direct}");
                group.barrier().unwrap();
            }
            file.close().unwrap();
        });
    }
}

#[test]
fn reading_only_and_writing_only_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    with_group(&[0, 0], |group| {
        let writing = CacheOptions { read: false, ..options() };
        let file = open_cached(&group, &path, &writing).unwrap();
        file.write_at(group.rank() as u64 * 200_000, &pattern(200_000, 7)).unwrap();
        assert_eq!(file.read_at(0, &mut [0; 4]).unwrap_err().code(), Code::NotReadable);
        let reading = CacheOptions { write: false, create: false, ..options() };
        let other = open_cached(&group, &path, &reading).unwrap();
        group.barrier().unwrap();
        let mut found = vec![0; 200_000];
        assert_eq!(other.read_at(200_000, &mut found).unwrap(), 200_000);
        assert!(found == pattern(200_000, 7));
        assert_eq!(other.write_at(0, b"no").unwrap_err().code(), Code::NotWritable);
        file.close().unwrap();
        other.close().unwrap();
    });
}

#[test]
fn between_nodes_and_where_caches_are_not_coherent_blocks_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = path_in(&dir);
    for (nodes, noncoherent) in [(&[0, 1][..], None), (&[0, 0], Some(true))] {
        with_group(nodes, |group| {
            let file = open_cached(&group, &path, &CacheOptions { noncoherent, ..options() }).unwrap();
            file.write_at(group.rank() as u64 * 5000, &pattern(5000, 3)).unwrap();
            group.barrier().unwrap();
            let mut found = vec![0; 5000];
            file.read_at(5000, &mut found).unwrap();
            assert!(found == pattern(5000, 3));
            assert_eq!(file.counts().direct_reads, 0);
            file.close().unwrap();
        });
    }
}
