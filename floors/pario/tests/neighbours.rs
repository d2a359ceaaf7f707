//! Costs between neighbours on two nodes, counted between real processes: reading the other's fresh data causes no read of the file system
//! below, a lock costs one round trip when its holder changes, and repeated use sends no message.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use common::pattern;
use common::stage::{Program, Stage, job, mounted, until};
use pario::group::{Group, Hub, NODE_VARIABLE, Reduce};
use pario::{CacheOptions, GroupFile, Hints, LockOptions, Method, Partition, open_cached};

const PART: usize = 3 << 20;
const CHANGES: u64 = 20;
const REPEATS: u64 = 100;
const PLAIN: &str = "PARIO_TEST_PLAIN";

/// Not a test of its own: one of two neighbours.
#[test]
fn child() {
    let Some(job) = job() else { return };
    let group = pario::group::from_env().unwrap().expect("a rank has an invitation");
    assert_ne!(group.node_of(0), group.node_of(1), "they are on two nodes");
    match job.as_str() {
        "tier" => tier(&group),
        "cache" => cache(&group),
        "locks" => locks(&group),
        other => panic!("{other}"),
    }
    group.leave();
}

/// Both as neighbours on two nodes; both must succeed.
fn run(job: &str) {
    let Some(stage) = Stage::start(2, "") else { return };
    let hub = Hub::start(2).unwrap();
    let plain = stage.dir().join("plain");
    let start = |rank: usize| {
        let label = ["one", "two"][rank];
        let variables: BTreeMap<_, _> = hub.invitation(rank).variables().into_iter().collect();
        let mut more: Vec<(&str, &OsStr)> =
            variables.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
        more.extend([(NODE_VARIABLE, OsStr::new(label)), (PLAIN, plain.as_os_str())]);
        Program::start_with(&stage, "child", job, &more)
    };
    let programs: Vec<Program> = (0..2).map(start).collect();
    for program in programs {
        let (_, status) = program.end(0);
        assert!(status.success(), "{job}: {status}");
    }
}

fn sum(group: &Arc<dyn Group>, number: u64) -> u64 {
    group.reduce(number, Reduce::Sum).unwrap()
}

/// Each writes a part and reads the other's.
fn exchange(group: &Arc<dyn Group>, file: &GroupFile) {
    let (rank, other) = (group.rank() as u64, 1 - group.rank() as u64);
    file.write_at(rank * PART as u64, &pattern(PART, rank)).unwrap();
    group.barrier().unwrap();
    let mut found = vec![0; PART];
    assert_eq!(file.read_at(other * PART as u64, &mut found).unwrap(), PART);
    assert!(found == pattern(PART, other), "rank {rank} reads what rank {other} wrote");
    group.barrier().unwrap();
}

fn tier(group: &Arc<dyn Group>) {
    let partition = mounted();
    let options = partition.options().create(true).read(true).write(true);
    let hints = Hints { method: Some(Method::ClientDirected), ..Hints::default() };
    let file = options.open_all(group, "tier", &hints).unwrap();
    exchange(group, &file);
    let stats = file.node_cache_stats().expect("each node has a node-cache server");
    assert_eq!(sum(group, stats.misses), 0, "nothing was read from the partition: {stats:?}");
    assert!(0 < sum(group, stats.hits), "{stats:?}");
    file.close().unwrap();
}

fn cache(group: &Arc<dyn Group>) {
    let path = PathBuf::from(std::env::var_os(PLAIN).unwrap());
    let options = CacheOptions { create: true, ..CacheOptions::default() };
    let file = open_cached(group, path, &options).unwrap();
    exchange(group, &file);
    let stats = file.cache_stats().expect("each node has a server of the cache");
    assert_eq!(sum(group, stats.plain_reads), 0, "nothing was read from the plain file: {stats:?}");
    assert!(0 < sum(group, stats.hits), "{stats:?}");
    // One continues alone: once it has the lease for both, no message is sent.
    if group.rank() == 0 {
        let mut found = [0; 100];
        file.write_at(0, &[1; 100]).unwrap();
        file.read_at(0, &mut found).unwrap();
        let before = file.counts();
        for number in 0..REPEATS {
            file.write_at(number, &[2; 100]).unwrap();
            file.read_at(number, &mut found).unwrap();
            assert_eq!(found, [2; 100]);
        }
        let counts = file.counts().since(&before);
        assert_eq!((counts.lease_messages, counts.lock_messages), (0, 0), "{counts:?}");
    }
    group.barrier().unwrap();
    file.close().unwrap();
}

fn locks(group: &Arc<dyn Group>) {
    let partition = mounted();
    let file = partition.options().create(true).read(true).write(true).open("locked").unwrap();
    let take = || drop(file.lock(0..10, &LockOptions::exclusive()).unwrap());
    let said = |partition: &Partition| partition.counts().lock_messages;
    if group.rank() == 0 {
        take();
    }
    group.barrier().unwrap();
    let before = said(&partition);
    // A member that continues makes the other return its lock, which counts there.
    group.barrier().unwrap();
    for change in 0..CHANGES {
        if group.rank() as u64 == (change + 1) % 2 {
            let asked = said(&partition);
            take();
            assert_eq!(said(&partition) - asked, 1, "one message asks for it, and its answer brings it");
            for _ in 0..REPEATS {
                take();
            }
            assert_eq!(said(&partition) - asked, 1, "what is kept is used again without a word");
        }
        group.barrier().unwrap();
    }
    // Each requested half of the changes and returned the other half, the last one of them perhaps just now.
    let own = || said(&partition) - before;
    assert!(until(|| own() == CHANGES), "{} messages for {CHANGES} changes of holder", own());
    group.barrier().unwrap();
    file.close().unwrap();
}

#[test]
fn what_a_neighbour_wrote_into_tier_1_is_read_without_the_partition() {
    run("tier");
}

#[test]
fn what_a_neighbour_wrote_into_the_cooperative_cache_is_read_without_the_plain_file() {
    run("cache");
}

#[test]
fn a_lock_costs_one_round_trip_for_each_change_of_holder_and_none_for_repeated_use() {
    run("locks");
}
