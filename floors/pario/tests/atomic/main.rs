//! Histories of real processes: random overlapping accesses, recorded and checked. In atomic mode one order must explain all of them;
//! without it every completed write is seen by every later read of the group, and by other groups after sync and a signal.
//!
//! `PARIO_SEED` repeats a run; `PARIO_ATOMIC_RUNS` sets the number of runs of each kind.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(unreachable_pub, reason = "modules of one test")]

#[path = "../common/mod.rs"]
mod common;

mod checker;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario::group::{Group, Hub, NODE_VARIABLE};
use pario::{CacheOptions, Datatype, GroupFile, Hints, Method, Partition, open_cached};
use pario_core::Clock;
use pario_sys::clock::MonotonicClock;

use self::checker::{Did, RecordedAccess};
use self::common::SeededRandom;
use self::common::stage::{Program, Stage, job, mounted, say};

const CELLS: usize = 48;
/// Small and odd, so that cells cross blocks.
const CELL_BYTES: usize = 700;
const FILE: &str = "cells";
const ROUNDS: u64 = 3;
const ACCESSES: u64 = 14;

/// Arguments of the processes of a group: `SEED GROUP ATOMIC GROUND LOG`.
#[test]
fn member() {
    let Some(job) = job() else { return };
    let words: Vec<&str> = job.split(' ').collect();
    let (seed, group_number, atomic) =
        (words[0].parse::<u64>().unwrap(), words[1].parse::<u64>().unwrap(), words[2] == "1");
    let group = pario::group::from_env().unwrap().expect("a member was invited");
    let ground: AtomicTarget = words[3].parse().unwrap();
    let (_partition, file) = ground.open(&group, Path::new(words[4]));
    file.set_atomicity(atomic).unwrap();
    let member = group_number << 8 | group.rank() as u64;
    let mut chance = SeededRandom::new(seed ^ (member + 1).wrapping_mul(0x9e37_79b9));
    let mut common = SeededRandom::new(seed);
    let mut log = Vec::new();
    for round in 0..ROUNDS {
        let view = CellView::choose(&mut chance, atomic);
        view.set(&file);
        // Two-phase splits a member's write, unless it is atomic.
        let collective = common.once_in(3) && (atomic || ground != AtomicTarget::Partition(Method::TwoPhase));
        for number in 0..ACCESSES {
            let tag = ((round * ACCESSES + number + 1) << 16) | (member + 1);
            log.push(view.access(&file, &mut chance, tag, collective));
        }
    }
    file.close().unwrap();
    std::fs::write(format!("{}-{member}", words[4]), serde_json::to_string(&log).unwrap()).unwrap();
    say(1);
    group.leave();
}

/// Kind of file, and how it is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AtomicTarget {
    /// A file of the partition.
    Partition(Method),
    /// A plain file through the group's own servers; on one node it is lent to the members, or not.
    Plain { direct: bool },
}

impl AtomicTarget {
    const ALL: [AtomicTarget; 5] = [
        AtomicTarget::Partition(Method::ServerDirected),
        AtomicTarget::Partition(Method::ClientDirected),
        AtomicTarget::Partition(Method::TwoPhase),
        AtomicTarget::Plain { direct: true },
        AtomicTarget::Plain { direct: false },
    ];

    fn word(self) -> &'static str {
        match self {
            AtomicTarget::Partition(method) => method.word(),
            AtomicTarget::Plain { direct: true } => "plain-lent",
            AtomicTarget::Plain { direct: false } => "plain-kept",
        }
    }

    fn open(self, group: &Arc<dyn Group>, log: &Path) -> (Option<Partition>, GroupFile) {
        match self {
            AtomicTarget::Partition(method) => {
                let partition = mounted();
                let hints = Hints { method: Some(method), ..Hints::default() };
                let options = partition.options().read(true).write(true);
                let file = options.open_all(group, FILE, &hints).unwrap();
                (Some(partition), file)
            }
            AtomicTarget::Plain { direct } => {
                let block = Some(4096);
                let options = CacheOptions {
                    direct: Some(direct),
                    block_bytes: block,
                    stripe_bytes: block,
                    ..CacheOptions::default()
                };
                (None, open_cached(group, plain_beside(log), &options).unwrap())
            }
        }
    }
}

impl std::str::FromStr for AtomicTarget {
    type Err = String;

    fn from_str(word: &str) -> Result<AtomicTarget, String> {
        let found = AtomicTarget::ALL.into_iter().find(|ground| ground.word() == word);
        found.ok_or_else(|| format!("no ground is called {word}"))
    }
}

/// Path of the plain file of a history.
fn plain_beside(log: &Path) -> PathBuf {
    log.with_file_name("plain")
}

/// The cells that a member sees in an iteration.
struct CellView {
    first: usize,
    stride: usize,
    count: usize,
}

impl CellView {
    fn choose(chance: &mut SeededRandom, atomic: bool) -> CellView {
        // Without atomic mode only contiguous calls are atomic.
        let stride = if atomic { 1 + chance.index(3) } else { 1 };
        let first = chance.index(CELLS / 3);
        CellView { first, stride, count: (CELLS - first).div_ceil(stride) }
    }

    fn set(&self, file: &GroupFile) {
        let byte = Datatype::elementary(1).unwrap();
        let cell = Datatype::contiguous(i64::try_from(CELL_BYTES).unwrap(), &byte).unwrap();
        let wide = cell.resized(0, i64::try_from(CELL_BYTES * self.stride).unwrap()).unwrap();
        file.set_view(i64::try_from(CELL_BYTES * self.first).unwrap(), &cell, &wide).unwrap();
    }

    fn access(
        &self,
        file: &GroupFile,
        chance: &mut SeededRandom,
        tag: u64,
        collective: bool,
    ) -> serde_json::Value {
        let count = 1 + chance.index(self.count.min(12));
        let start = chance.index(self.count - count + 1);
        let cells: Vec<usize> = (start..start + count).map(|at| self.first + at * self.stride).collect();
        let mut bytes = vec![0; count * CELL_BYTES];
        let writes = chance.once_in(2);
        if writes {
            bytes.chunks_mut(CELL_BYTES).for_each(|cell| fill(cell, tag));
        }
        let at = start as u64;
        let began = MonotonicClock.now().0;
        match (writes, collective) {
            (true, false) => file.write_at(at, &bytes).unwrap(),
            (true, true) => file.write_at_all(at, &bytes).unwrap(),
            (false, false) => assert_eq!(file.read_at(at, &mut bytes).unwrap(), bytes.len()),
            (false, true) => assert_eq!(file.read_at_all(at, &mut bytes).unwrap(), bytes.len()),
        }
        let ended = MonotonicClock.now().0;
        let tags: Vec<u64> = if writes { vec![tag] } else { bytes.chunks(CELL_BYTES).map(tag_of).collect() };
        serde_json::json!({ "began": began, "ended": ended, "cells": cells, "writes": writes, "tags": tags })
    }
}

fn fill(cell: &mut [u8], tag: u64) {
    for (at, byte) in cell.iter_mut().enumerate() {
        *byte = tag.to_le_bytes()[at % 8];
    }
}

/// The tag in a cell; a torn cell has none.
fn tag_of(cell: &[u8]) -> u64 {
    let tag = u64::from_le_bytes(cell[..8].try_into().unwrap());
    let mut expected = vec![0; cell.len()];
    fill(&mut expected, tag);
    if expected == cell { tag } else { u64::MAX }
}

fn log_of(path: &Path) -> Vec<RecordedAccess> {
    let log: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    log.iter()
        .map(|line| {
            let tags = numbers(&line["tags"]);
            let did = if line["writes"] == true { Did::Wrote(tags[0]) } else { Did::Read(tags) };
            RecordedAccess {
                began: line["began"].as_u64().unwrap(),
                ended: line["ended"].as_u64().unwrap(),
                cells: numbers(&line["cells"])
                    .into_iter()
                    .map(|cell| usize::try_from(cell).unwrap())
                    .collect(),
                did,
            }
        })
        .collect()
}

/// One history.
#[derive(Clone, Copy, Debug)]
struct AtomicHistory {
    seed: u64,
    groups: u64,
    size: usize,
    nodes: usize,
    atomic: bool,
    ground: AtomicTarget,
}

fn play(stage: &Stage, scene: AtomicHistory) {
    eprintln!("{scene:?}; PARIO_SEED={} repeats it", scene.seed);
    let partition = stage.mount();
    let file = partition.create(FILE).unwrap();
    file.write_at(0, &vec![0; CELLS * CELL_BYTES]).unwrap();
    file.close().unwrap();
    let log = stage.dir().join("log");
    std::fs::write(plain_beside(&log), vec![0; CELLS * CELL_BYTES]).unwrap();
    let mut programs = Vec::new();
    let hubs: Vec<Hub> = (0..scene.groups).map(|_| Hub::start(scene.size).unwrap()).collect();
    for (number, hub) in hubs.iter().enumerate() {
        for rank in 0..scene.size {
            let invitation = hub.invitation(rank).variables();
            let node = OsString::from(format!("node{}", rank % scene.nodes));
            let mut env: Vec<(&str, &OsStr)> =
                invitation.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
            // One node is the servers' own.
            if 1 < scene.nodes {
                env.push((NODE_VARIABLE, &node));
            }
            let (seed, atomic, ground) = (scene.seed, u8::from(scene.atomic), scene.ground.word());
            let job = format!("{seed} {number} {atomic} {ground} {}", log.display());
            programs.push((number, rank, Program::start_with(stage, "member", &job, &env)));
        }
    }
    let mut histories = Vec::new();
    for (number, rank, program) in programs {
        let (said, status) = program.end(0);
        assert!(status.success() && said == 1, "rank {rank} of group {number}: {status:?}");
        let member = (number as u64) << 8 | rank as u64;
        histories.push(log_of(Path::new(&format!("{}-{member}", log.display()))));
    }
    let judged = if scene.atomic && scene.groups == 1 {
        checker::sequential(&histories, CELLS)
    } else {
        checker::visible(&histories)
    };
    if let Err(what) = judged {
        for (rank, history) in histories.iter().enumerate() {
            for access in history {
                eprintln!("rank {rank}: {access:?}");
            }
        }
        panic!("{scene:?}: {what}");
    }
}

fn runs() -> u64 {
    std::env::var("PARIO_ATOMIC_RUNS").map_or(2, |runs| runs.parse().unwrap())
}

fn seeds(salt: u64) -> Vec<u64> {
    if let Ok(seed) = std::env::var("PARIO_SEED") {
        return vec![seed.parse().unwrap()];
    }
    let began = MonotonicClock.now().0 ^ salt << 48;
    (0..runs()).map(|run| SeededRandom::new(began + run).next_u64() >> 1).collect()
}

fn each_scene(atomic: bool, groups: u64, salt: u64) {
    let Some(stage) = Stage::start(3, "stripe = \"4KiB\"") else { return };
    // Caches of two groups on a plain file see each other's writes only after sync.
    let grounds = if groups == 1 { &AtomicTarget::ALL[..] } else { &AtomicTarget::ALL[..3] };
    for nodes in [1, 2, 4] {
        for seed in seeds(salt ^ nodes as u64) {
            let ground = SeededRandom::new(seed).pick(grounds);
            play(&stage, AtomicHistory { seed, groups, size: 4, nodes, atomic, ground });
        }
    }
    if groups == 1 {
        // The method with its own locks is always included.
        for seed in seeds(salt ^ 77) {
            let ground = AtomicTarget::Plain { direct: true };
            play(&stage, AtomicHistory { seed, groups, size: 4, nodes: 1, atomic, ground });
        }
    }
}

#[test]
fn in_atomic_mode_one_order_explains_everything() {
    each_scene(true, 1, 1);
}

#[test]
fn without_it_a_completed_write_is_seen_by_every_later_read() {
    each_scene(false, 1, 2);
}

/// Two applications on one file: completed writes of one are seen by the other too.
#[test]
fn two_groups_see_each_others_completed_writes() {
    each_scene(false, 2, 3);
}
