//! One process of `pario bench distant`: rank 0 is the home, rank 1 is on its node, rank 2 is on another one.
//!
//! Always: one member measures at a time; the others wait in a barrier.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pario::Group;
use pario::core::SeededRandom;
use pario::distant::{Distant, DistantFiles, DistantOptions, FilePlace, SharedFileOptions};
use serde::{Deserialize, Serialize};

use super::super::error::BenchError;
use super::super::job::JobOutcome;
use crate::clock::{BenchTimer, sleep};

/// Request sizes that are compared, in KiB.
pub(crate) const COMPARED: [u64; 4] = [4, 8, 16, 32];
/// Request sizes that are reported for far accesses, in KiB.
pub(crate) const REPORTED: [u64; 6] = [4, 32, 64, 256, 1024, 4096];
/// Bytes of an overlapped transfer.
const OVERLAPPED: usize = 1 << 20;
/// Bytes per second that a computing home serves.
const SERVED: u64 = 100_000_000;
/// Requests of a served home.
const SERVED_BYTES: usize = 32 << 10;

/// A job of a worker; all three do the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct DistantJob {
    pub(crate) dir: PathBuf,
    /// Bytes of the home's file.
    pub(crate) file_bytes: u64,
    /// Bytes of one measurement at the speed of memory.
    pub(crate) bytes: u64,
    pub(crate) pairs: usize,
    /// Time without requests.
    pub(crate) idle_seconds: u64,
}

/// A home with a store of limited speed.
struct LimitedStore {
    name: &'static str,
    /// Bytes per second.
    rate: u64,
    /// Requests, in KiB.
    sizes: &'static [u64],
    /// Requests under way.
    under_way: usize,
    /// Bytes of one measurement.
    bytes: u64,
}

/// One member of the measurement.
struct DistantRank<'a> {
    group: Arc<dyn Group>,
    job: &'a DistantJob,
    outcome: JobOutcome,
}

/// Access of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AccessKind {
    Read,
    Write,
}

impl AccessKind {
    fn word(self) -> &'static str {
        match self {
            AccessKind::Read => "read",
            AccessKind::Write => "write",
        }
    }
}

/// Runs the job.
pub(crate) fn run(job: &DistantJob) -> Result<JobOutcome, BenchError> {
    let group = pario::group::from_env()?
        .ok_or_else(|| BenchError::Worker("a worker of `bench distant` without a group".into()))?;
    let mut rank = DistantRank { group, job, outcome: JobOutcome::default() };
    rank.idle()?;
    rank.unlimited()?;
    rank.limited(&LimitedStore {
        name: "500",
        rate: 500_000_000,
        sizes: &[32],
        under_way: 4,
        bytes: 64 << 20,
    })?;
    rank.limited(&LimitedStore {
        name: "disk",
        rate: 10_000_000,
        sizes: &[4, 32],
        under_way: 1,
        bytes: 2 << 20,
    })?;
    rank.group.leave();
    Ok(rank.outcome)
}

/// Places in random order, each once.
fn places(count: u64, seed: u64) -> Vec<u64> {
    let mut chance = SeededRandom::new(seed);
    let mut places: Vec<u64> = (0..count).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, chance.index(at + 1));
    }
    places
}

fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<u64, BenchError> {
    let began = BenchTimer::now();
    work()?;
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Computes for about so many rounds; returns a value that depends on all of them.
fn compute(rounds: u64) -> u64 {
    (0..rounds)
        .fold(1, |number: u64, round| black_box(number.wrapping_mul(6_364_136_223_846_793_005) ^ round))
}

impl DistantRank<'_> {
    fn note(&mut self, name: &str, ns: u64) {
        self.outcome.counts.insert(name.to_owned(), ns);
    }

    /// Joins, with a registered file of rank 0.
    fn join(
        &self,
        limit: Option<u64>,
        bytes: u64,
    ) -> Result<(Distant, DistantFiles, Option<File>), BenchError> {
        let options = DistantOptions::serving();
        let options = limit.into_iter().fold(options, DistantOptions::limited_to);
        let distant = Distant::join(&self.group, &options)?;
        let own = (self.group.rank() == 0).then(|| self.fill(bytes)).transpose()?;
        let served = own.as_ref().map(File::try_clone).transpose();
        let files = distant.register(served.map_err(BenchError::when("duplicating a descriptor"))?)?;
        Ok((distant, files, own))
    }

    /// A file without a name, full of bytes.
    fn fill(&self, bytes: u64) -> Result<File, BenchError> {
        let path = self.job.dir.join("distant");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(BenchError::at("creating", &path))?;
        std::fs::remove_file(&path).map_err(BenchError::at("removing", &path))?;
        let block = vec![0x5a; 1 << 20];
        for at in (0..bytes).step_by(block.len()) {
            file.write_all_at(&block, at).map_err(BenchError::when("filling a file"))?;
        }
        Ok(file)
    }

    /// Runs `work` on one rank while the others wait; its time under a name.
    fn alone(
        &mut self,
        rank: usize,
        name: &str,
        work: impl FnOnce() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        self.group.barrier()?;
        if self.group.rank() == rank {
            let ns = timed(work)?;
            self.note(name, ns);
        }
        self.group.barrier()?;
        Ok(())
    }

    /// Memory and wake-ups of a home without requests.
    fn idle(&mut self) -> Result<(), BenchError> {
        let before = private_kib()?;
        let distant = Distant::join(&self.group, &DistantOptions::serving())?;
        let shared = distant.create(
            &SharedFileOptions::default().path(self.job.dir.join("idle")).place(FilePlace::Distant),
        )?;
        self.group.barrier()?;
        // Threads that served the creation go to sleep.
        sleep(Duration::from_secs(2));
        let (memory, switches) = (private_kib()?.saturating_sub(before), switches()?);
        sleep(Duration::from_secs(self.job.idle_seconds));
        let woken = self::switches()?.saturating_sub(switches);
        self.outcome.counts.insert("idle_kib".into(), memory);
        self.outcome.counts.insert("idle_wakeups".into(), woken);
        self.group.barrier()?;
        shared.destroy(&distant)?;
        distant.leave()?;
        Ok(())
    }

    fn unlimited(&mut self) -> Result<(), BenchError> {
        let (distant, files, own) = self.join(None, self.job.file_bytes)?;
        for pair in 0..self.job.pairs {
            for kib in COMPARED {
                self.compare(&files, own.as_ref(), kib, pair)?;
            }
            for kib in REPORTED {
                let list = self.list(kib, self.job.bytes, pair);
                for kind in [AccessKind::Read, AccessKind::Write] {
                    let name = format!("far_{} {kib}", kind.word());
                    self.alone(2, &format!("{name} {pair}"), || under_way(&files, kind, &list, 4))?;
                }
            }
            self.overlap(&files, pair)?;
            self.slowdown(&files, pair)?;
        }
        files.unregister(&distant)?;
        distant.leave()?;
        Ok(())
    }

    /// Offsets of requests of so many KiB, and their size.
    fn list(&self, kib: u64, bytes: u64, pair: usize) -> PlacedRequests {
        let size = kib << 10;
        let mut list = places(self.job.file_bytes / size, pair as u64 + kib);
        list.truncate(usize::try_from(bytes / size).unwrap_or(usize::MAX).max(4));
        list.iter_mut().for_each(|place| *place *= size);
        PlacedRequests { places: list, bytes: usize::try_from(size).unwrap_or(usize::MAX) }
    }

    /// Plain calls, own, near: the order of the first two changes from pair to pair.
    fn compare(
        &mut self,
        files: &DistantFiles,
        own: Option<&File>,
        kib: u64,
        pair: usize,
    ) -> Result<(), BenchError> {
        let list = self.list(kib, self.job.bytes, pair);
        let sides = if pair.is_multiple_of(2) { ["plain", "own"] } else { ["own", "plain"] };
        for kind in [AccessKind::Read, AccessKind::Write] {
            let word = kind.word();
            for side in sides {
                self.alone(0, &format!("{side}_{word} {kib} {pair}"), || match (side, own) {
                    ("plain", Some(own)) => plain(own, kind, &list),
                    _ => blocking(files, kind, &list),
                })?;
            }
            self.alone(1, &format!("near_{word} {kib} {pair}"), || blocking(files, kind, &list))?;
        }
        Ok(())
    }

    /// Far transfers of 1 MiB, computing of about the same time, and both at once.
    fn overlap(&mut self, files: &DistantFiles, pair: usize) -> Result<(), BenchError> {
        const TRANSFERS: u64 = 32;
        for kind in [AccessKind::Read, AccessKind::Write] {
            let word = kind.word();
            let list: Vec<u64> = (0..TRANSFERS).map(|number| number * OVERLAPPED as u64).collect();
            let transfer = format!("transfer_{word}");
            let requests = PlacedRequests { places: list.clone(), bytes: OVERLAPPED };
            self.alone(2, &format!("{transfer} {pair}"), || blocking(files, kind, &requests))?;
            let ns = self.outcome.counts.get(&format!("{transfer} {pair}")).copied().unwrap_or(1);
            let rounds = rounds_for(ns / TRANSFERS);
            self.alone(2, &format!("compute_{word} {pair}"), || {
                (0..TRANSFERS).for_each(|_| _ = black_box(compute(rounds)));
                Ok(())
            })?;
            self.alone(2, &format!("both_{word} {pair}"), || {
                let mut buffer = vec![1; OVERLAPPED];
                for at in &list {
                    let pending = match kind {
                        AccessKind::Read => files.start_read_at(0, *at, buffer)?,
                        AccessKind::Write => files.start_write_at(0, *at, buffer)?,
                    };
                    black_box(compute(rounds));
                    (buffer, _) = pending.wait()?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The home computes alone, and while rank 2 reads from it at a fixed rate.
    fn slowdown(&mut self, files: &DistantFiles, pair: usize) -> Result<(), BenchError> {
        const SECONDS: f64 = 0.3;
        let rounds = rounds_for(300_000_000);
        self.alone(0, &format!("home_alone {pair}"), || {
            black_box(compute(rounds));
            Ok(())
        })?;
        self.group.barrier()?;
        match self.group.rank() {
            0 => {
                // The reader is under way.
                sleep(Duration::from_millis(50));
                let ns = timed(|| {
                    black_box(compute(rounds));
                    Ok(())
                })?;
                self.note(&format!("home_serving {pair}"), ns);
            }
            2 => serve_at_rate(files, SECONDS * 2.5)?,
            _ => {}
        }
        self.group.barrier()?;
        Ok(())
    }

    /// Own and far accesses to a home with a limited store.
    fn limited(&mut self, store: &LimitedStore) -> Result<(), BenchError> {
        let LimitedStore { name, rate, sizes, under_way: most, bytes } = *store;
        let (distant, files, _own) = self.join(Some(rate), self.job.file_bytes.min(128 << 20))?;
        for pair in 0..self.job.pairs {
            for kib in sizes {
                let mut list = self.list(*kib, bytes, pair);
                list.places.iter_mut().for_each(|at| *at %= self.job.file_bytes.min(128 << 20));
                for kind in [AccessKind::Read, AccessKind::Write] {
                    let word = kind.word();
                    for (rank, side) in [(0, "own"), (2, "far")] {
                        let name = format!("{side}_{word}_{name} {kib}");
                        self.alone(rank, &format!("{name} {pair}"), || under_way(&files, kind, &list, most))?;
                    }
                }
            }
        }
        files.unregister(&distant)?;
        distant.leave()?;
        Ok(())
    }
}

/// Private memory of this process, in KiB.
fn private_kib() -> Result<u64, BenchError> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path).map_err(BenchError::when("looking at memory"))?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    Ok(lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

/// How often threads of Pario in this process have gone to sleep.
fn switches() -> Result<u64, BenchError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(BenchError::when("looking at threads"))?;
    let of = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        // The first thread has the name of the program, and is the one that waits.
        let is_first = task.file_name().to_str() == Some(&std::process::id().to_string());
        (name.starts_with("pario-") && !is_first).then(|| line.trim().parse::<u64>().unwrap_or(0))
    };
    Ok(tasks.flatten().filter_map(of).sum())
}

/// Rounds of [`compute`] that take about so many nanoseconds.
fn rounds_for(ns: u64) -> u64 {
    const SAMPLE: u64 = 2_000_000;
    let began = BenchTimer::now();
    black_box(compute(SAMPLE));
    let sample = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
    (u128::from(ns) * u128::from(SAMPLE) / u128::from(sample)).try_into().unwrap_or(u64::MAX)
}

/// Requests of one size.
#[derive(Clone, Debug)]
struct PlacedRequests {
    places: Vec<u64>,
    bytes: usize,
}

fn plain(file: &File, kind: AccessKind, requests: &PlacedRequests) -> Result<(), BenchError> {
    let mut buffer = vec![1; requests.bytes];
    for at in &requests.places {
        match kind {
            AccessKind::Read => file.read_exact_at(&mut buffer, *at),
            AccessKind::Write => file.write_all_at(&buffer, *at),
        }
        .map_err(BenchError::when("a plain access"))?;
    }
    Ok(())
}

fn blocking(files: &DistantFiles, kind: AccessKind, requests: &PlacedRequests) -> Result<(), BenchError> {
    let mut buffer = vec![1; requests.bytes];
    for at in &requests.places {
        match kind {
            AccessKind::Read => _ = files.read_at(0, *at, &mut buffer)?,
            AccessKind::Write => files.write_at(0, *at, &buffer)?,
        }
    }
    Ok(())
}

/// The same with several requests under way.
fn under_way(
    files: &DistantFiles,
    kind: AccessKind,
    requests: &PlacedRequests,
    most: usize,
) -> Result<(), BenchError> {
    if most == 1 {
        return blocking(files, kind, requests);
    }
    let mut free: Vec<Vec<u8>> = (0..most).map(|_| vec![1; requests.bytes]).collect();
    let mut open = std::collections::VecDeque::new();
    for at in &requests.places {
        let buffer = match free.pop() {
            Some(buffer) => buffer,
            None => {
                let oldest: pario::distant::DistantRequest<Vec<u8>> =
                    open.pop_front().ok_or_else(|| BenchError::Worker("no request is under way".into()))?;
                oldest.wait()?.0
            }
        };
        open.push_back(match kind {
            AccessKind::Read => files.start_read_at(0, *at, buffer)?,
            AccessKind::Write => files.start_write_at(0, *at, buffer)?,
        });
    }
    for request in open {
        request.wait()?;
    }
    Ok(())
}

/// Reads at the rate of a served home for some time.
fn serve_at_rate(files: &DistantFiles, seconds: f64) -> Result<(), BenchError> {
    let began = BenchTimer::now();
    let mut buffer = vec![0; SERVED_BYTES];
    let mut done = 0u64;
    loop {
        let elapsed = began.elapsed();
        if seconds < elapsed.as_secs_f64() {
            return Ok(());
        }
        let due = Duration::from_nanos(done.saturating_mul(1_000_000_000) / SERVED);
        if elapsed < due {
            sleep(due - elapsed);
        }
        files.read_at(0, done % (64 << 20), &mut buffer)?;
        done += SERVED_BYTES as u64;
    }
}
