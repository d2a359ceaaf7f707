//! Shared by the tests of the data path: seeded random numbers, patterns, partitions of every kind, and a watchdog for histories.
//!
//! Always: a history that fails or hangs prints its seed and its last steps; `PARIO_SEED` runs it again.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of test files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub mod stage;

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use pario::core::SeededRandom;
use pario::{EmbedOptions, EmbedStore, EmbedTransport, Partition};

pub const TRANSPORTS: [EmbedTransport; 4] =
    [EmbedTransport::InProcess, EmbedTransport::Unix, EmbedTransport::Tcp, EmbedTransport::TcpProtected];
pub const STORES: [EmbedStore; 4] =
    [EmbedStore::Memory, EmbedStore::Files, EmbedStore::Direct, EmbedStore::Log];

/// Longest duration of one history: none needs a tenth of it.
const HISTORY_LIMIT: Duration = Duration::from_secs(60);
/// Histories per fixture.
const SCENE_HISTORIES: u64 = 64;
/// Concurrent fixtures.
const LANES: usize = 2;
/// Steps shown when a history fails.
const STEPS_SHOWN: usize = 40;

/// Bytes that depend on offset and seed.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut chance = SeededRandom::new(seed);
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        pattern.extend_from_slice(&chance.next_u64().to_le_bytes());
    }
    pattern.truncate(bytes);
    pattern
}

/// Small outboxes and caches, so that they become full.
pub fn small(servers: u16, stripe_bytes: u64) -> EmbedOptions {
    EmbedOptions {
        servers,
        stripe_bytes,
        outbox_bytes: 256 << 10,
        memory_bytes: 64 << 20,
        ..EmbedOptions::default()
    }
}

/// A test over every transport and store.
pub fn each(check: impl Fn(&Partition)) {
    for transport in TRANSPORTS {
        for store in STORES {
            eprintln!("{transport:?} {store:?}");
            let options = EmbedOptions { transport, store, ..small(3, 64 << 10) };
            check(&Partition::embed(&options).expect("a partition in this process"));
        }
    }
}

/// The last steps of a history.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    steps: Arc<Mutex<(u64, VecDeque<String>)>>,
}

impl Trace {
    pub fn step(&self, text: impl Into<String>) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.0 += 1;
        let line = format!("step {}: {}", steps.0, text.into());
        steps.1.push_back(line);
        if STEPS_SHOWN < steps.1.len() {
            steps.1.pop_front();
        }
    }

    fn show(&self) -> String {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.1.iter().map(|line| format!("  {line}\n")).collect()
    }
}

/// Runs `history` under the requested seeds, each with a watchdog: a failure or a hang names seed and step. `PARIO_SEED` runs one,
/// `PARIO_HISTORIES` sets the number otherwise.
pub fn histories(default: u64, history: fn(u64, &Trace)) {
    if let Some(seed) = wished("PARIO_SEED") {
        return watched(seed, "", move |trace| history(seed, trace));
    }
    let count = wished("PARIO_HISTORIES").unwrap_or(default);
    let base = u64::from(std::process::id()) << 20 | 0x5eed << 40;
    for run in 0..count {
        // Half of the seeds are fixed, half are new.
        let seed = if run.is_multiple_of(2) { run / 2 } else { base + run };
        watched(seed, "", move |trace| history(seed, trace));
    }
}

/// Histories that share a fixture, which costs more than a history does: `set_up` makes a fixture for the seeds of its number, which run
/// in it one after the other. `PARIO_SEED` runs one, and with `PARIO_HISTORIES` that one and the following ones.
pub fn scenes<S: Send + Sync + 'static>(
    default: u64,
    set_up: fn(u64) -> S,
    history: fn(&Arc<S>, u64, &Trace),
) {
    let run = |seeds: std::ops::Range<u64>| {
        let mut scene: Option<(u64, Arc<S>)> = None;
        for seed in seeds.clone() {
            let number = seed / SCENE_HISTORIES;
            let here = match scene.take() {
                Some((same, here)) if same == number => here,
                Some(_) | None => Arc::new(set_up(number)),
            };
            scene = Some((number, Arc::clone(&here)));
            let first = seeds.start.max(number * SCENE_HISTORIES);
            let before =
                format!(", with all before it PARIO_SEED={first:#x} PARIO_HISTORIES={}", seed - first + 1);
            watched(seed, &before, move |trace| history(&here, seed, trace));
        }
    };
    let count = wished("PARIO_HISTORIES");
    if let Some(seed) = wished("PARIO_SEED") {
        return run(seed..seed + count.unwrap_or(1));
    }
    let count = count.unwrap_or(default);
    let base = u64::from(std::process::id()) << 14 | 0x5eed << 34;
    eprintln!("{count} histories; every second scene is new: seeds from {:#x} on", base * SCENE_HISTORIES);
    let next = std::sync::atomic::AtomicU64::new(0);
    // Histories mostly wait for each other's threads, so several of them keep the processors busy.
    std::thread::scope(|scope| {
        let lane = || loop {
            let turn = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let left = count.saturating_sub(turn * SCENE_HISTORIES);
            if left == 0 {
                return;
            }
            // Half of the seeds are fixed, half are new.
            let first = (if turn.is_multiple_of(2) { turn / 2 } else { base + turn }) * SCENE_HISTORIES;
            run(first..first + left.min(SCENE_HISTORIES));
        };
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
}

fn wished(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    Some(parsed.unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn watched(seed: u64, again: &str, history: impl FnOnce(&Trace) + Send + 'static) {
    let trace = Trace::default();
    let (ours, (done, over)) = (trace.clone(), channel::<()>());
    let thread = std::thread::spawn(move || {
        let _done = done;
        history(&ours);
    });
    let again = format!("run it again with PARIO_SEED={seed:#x}{again}");
    if over.recv_timeout(HISTORY_LIMIT) == Err(RecvTimeoutError::Timeout) {
        panic!("history {seed:#x} hangs; {again}\n{}", trace.show());
    }
    if let Err(panic) = thread.join() {
        eprintln!("history {seed:#x} failed; {again}\n{}", trace.show());
        std::panic::resume_unwind(panic);
    }
}

/// Where two byte strings differ, in one line.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} bytes expected, {} found", expected.len(), found.len()));
    }
    let first = expected.iter().zip(found).position(|(a, b)| a != b)?;
    let count = expected.iter().zip(found).filter(|(a, b)| a != b).count();
    let end = (first + 8).min(expected.len());
    Some(format!(
        "{count} bytes differ, the first at {first}: {:02x?} expected, {:02x?} found",
        &expected[first..end],
        &found[first..end]
    ))
}

/// Waits for a condition that another thread makes true.
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    stage::until(condition)
}

/// The manager's status.
pub fn manager_status(partition: &Partition) -> serde_json::Value {
    let request = pario::message::Request::Status {};
    let answer = partition.mount_handle().call(pario::core::ServerIndex::MANAGER, &request).unwrap();
    let pario::message::Reply::Status { json } = answer.reply else { panic!("{:?}", answer.reply) };
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    status["manager"].clone()
}

/// The whole contents of a file.
pub fn read_all(partition: &Partition, path: &str) -> Vec<u8> {
    let file = partition.open(path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}
