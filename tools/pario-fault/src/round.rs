//! Rounds: writers run, faults are injected and repaired, writers end, and all acknowledged writes are verified by a separate client.
//! Files of the last rounds are kept and verified again, so that late damage is found too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pario::core::{Clock, Nanos, SeededRandom};
use pario::{MonotonicClock, Partition};
use rustix::process::Signal;

use crate::cluster::{Cluster, ClusterArgs, pause, signal_process, until};
use crate::faults::{FAULTS_MAX, FaultCounts, FaultPlan, FaultStep, InjectedFault, plan};
use crate::journal::{self, CallResult, JournalContents};
use crate::model::{Acknowledged, ByteSeed};
use crate::names::{self, KnownFile};

/// Rounds with files that are kept and verified again.
const ROUNDS_KEPT: usize = 3;
/// A writer ends within this after the order to stop, once all faults are repaired.
const END_LIMIT: Duration = Duration::from_secs(30);
/// A call ends within this under any fault; a process is stopped for at most 5 s.
const CALL_MS_MAX: u64 = 20_000;
/// The file that writers of a round share.
const SHARED: &str = "shared";

/// What a run has counted.
#[derive(Clone, Default, Debug)]
pub struct RoundCounts {
    /// Rounds that were right.
    pub rounds: u64,
    /// Faults by kind.
    pub faults: FaultCounts,
    /// Calls of writers.
    pub calls: u64,
    /// Calls that failed, by code.
    pub failed: BTreeMap<String, u64>,
    /// Files with verified bytes.
    pub files: u64,
    /// Bytes that were verified.
    pub bytes: u64,
    /// The longest call.
    pub longest_ms: u64,
}

/// A run of rounds.
#[derive(Debug)]
pub struct FaultRounds {
    cluster: Cluster,
    args: ClusterArgs,
    seed: u64,
    /// Counters so far.
    pub counts: RoundCounts,
    kept_rounds: VecDeque<Finished>,
}

/// The journals of a round that is over.
#[derive(Debug)]
struct Finished {
    dir: String,
    promise: Acknowledged,
    stories: Vec<(u64, JournalContents)>,
}

#[derive(Debug)]
struct RunningWriter {
    number: u64,
    journal: PathBuf,
    child: Child,
}

impl Drop for RunningWriter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl FaultRounds {
    /// A partition for a run.
    pub fn start(args: ClusterArgs, seed: u64) -> Result<FaultRounds, String> {
        let cluster = Cluster::start(&args)?;
        Ok(FaultRounds { cluster, args, seed, counts: RoundCounts::default(), kept_rounds: VecDeque::new() })
    }

    /// The partition.
    pub fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// One round. The plan follows from the seed and the number of the round alone.
    pub fn run(&mut self, round: u64) -> Result<(), String> {
        let mut random = SeededRandom::new(self.seed ^ pario::core::random::mix(round));
        let plan = plan(&mut random, self.args.servers, self.args.writers);
        let judged = self.run_round(round, &plan).and_then(|finished| self.verify_kept(finished));
        judged.map_err(|what| format!("seed {} round {round}: {what}\nthe plan: {plan:?}", self.seed))
    }

    fn run_round(&mut self, round: u64, plan: &FaultPlan) -> Result<Finished, String> {
        let dir = format!("round{round}");
        let partition = self.cluster.mount()?;
        partition.create_dir(&dir).map_err(|error| format!("the round's directory: {error}"))?;
        let mut crew = Vec::new();
        for number in 0..self.args.writers {
            crew.push(self.start_writer(&dir, number, plan)?);
        }
        let mut next = self.args.writers;
        let began: Nanos = MonotonicClock.now();
        for (at_ms, step) in &plan.steps {
            let passed = MonotonicClock.now().since(began);
            pause(Duration::from_millis(*at_ms).saturating_sub(passed));
            self.step(*step, &crew)?;
            if matches!(step, FaultStep::Strike(InjectedFault::KillWriter(_))) {
                crew.push(self.start_writer(&dir, next, plan)?);
                next += 1;
            }
        }
        pause(Duration::from_millis(plan.ends_ms).saturating_sub(MonotonicClock.now().since(began)));
        self.cluster.up()?;
        self.end(crew, plan, dir)
    }

    fn step(&mut self, step: FaultStep, crew: &[RunningWriter]) -> Result<(), String> {
        if let FaultStep::Strike(fault) = step {
            *self.counts.faults.entry(fault.name()).or_default() += 1;
        }
        match step {
            FaultStep::Strike(InjectedFault::KillServer(server)) => self.cluster.signal(server, Signal::KILL),
            FaultStep::Strike(InjectedFault::KillManager) => self.cluster.signal(0, Signal::KILL),
            FaultStep::Strike(InjectedFault::KillAllServers) => {
                (0..self.args.servers).for_each(|server| self.cluster.signal(server, Signal::KILL));
            }
            FaultStep::Strike(InjectedFault::StopServer(server)) => self.cluster.signal(server, Signal::STOP),
            FaultStep::Heal(InjectedFault::StopServer(server)) => self.cluster.signal(server, Signal::CONT),
            FaultStep::Strike(InjectedFault::StopWriter(writer)) => signal_writer(crew, writer, Signal::STOP),
            FaultStep::Heal(InjectedFault::StopWriter(writer)) => signal_writer(crew, writer, Signal::CONT),
            FaultStep::Strike(InjectedFault::KillWriter(writer)) => signal_writer(crew, writer, Signal::KILL),
            // A server that another fault of the round has stopped keeps `up` waiting: heal that first.
            FaultStep::Strike(InjectedFault::UpAgain)
            | FaultStep::Heal(
                InjectedFault::KillServer(_) | InjectedFault::KillManager | InjectedFault::KillAllServers,
            ) => {
                (0..self.args.servers).for_each(|server| self.cluster.signal(server, Signal::CONT));
                self.cluster.up()?;
            }
            FaultStep::Heal(InjectedFault::KillWriter(_) | InjectedFault::UpAgain) => {}
        }
        Ok(())
    }

    fn start_writer(&self, dir: &str, number: u64, plan: &FaultPlan) -> Result<RunningWriter, String> {
        let journal = self.cluster.dir().join(format!("{dir}-writer{number}.journal"));
        let mut command = Command::new(writer_binary()?);
        command.arg("writer").arg("--registry").arg(self.cluster.registry().path());
        command.arg("--journal").arg(&journal).arg("--dir").arg(dir);
        let most = self.args.writers + FAULTS_MAX;
        for (name, value) in [("--seed", self.seed), ("--writer", number), ("--writers", most)] {
            command.arg(name).arg(value.to_string());
        }
        if !plan.strikes_servers {
            command.arg("--strict");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("cannot start a writer: {error}"))?;
        Ok(RunningWriter { number, journal, child })
    }

    /// Stops the writers, waits for them, and reads their journals.
    fn end(
        &mut self,
        mut crew: Vec<RunningWriter>,
        plan: &FaultPlan,
        dir: String,
    ) -> Result<Finished, String> {
        for running in &mut crew {
            signal_process(running.child.id(), Signal::CONT);
            drop(running.child.stdin.take());
        }
        let mut stories = Vec::new();
        for mut running in crew {
            let number = running.number;
            let mut status = None;
            until(END_LIMIT, || {
                status = running.child.try_wait().ok().flatten();
                status.is_some()
            });
            let story = read_journal(&running.journal)?;
            let last =
                || story.entries.last().map_or("no call".to_owned(), |entry| format!("{:?}", entry.call));
            let Some(status) = status else {
                let threads = threads_of(running.child.id());
                return Err(format!("writer {number} does not end; its last call: {}\n{threads}", last()));
            };
            let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
            if !status.success() && !killed {
                return Err(format!("writer {number} ended with {status}; its last call: {}", last()));
            }
            self.count(number, &story, plan)?;
            stories.push((number, story));
        }
        let promise = if plan.strikes_servers { Acknowledged::Synced } else { Acknowledged::Returned };
        Ok(Finished { dir, promise, stories })
    }

    fn count(&mut self, writer: u64, story: &JournalContents, plan: &FaultPlan) -> Result<(), String> {
        if let Some(wrong) = story.violations.first() {
            return Err(format!("writer {writer} saw: {wrong}"));
        }
        self.counts.calls += story.entries.len() as u64;
        for entry in &story.entries {
            if entry.outcome == CallResult::Open {
                continue;
            }
            self.counts.longest_ms = self.counts.longest_ms.max(entry.duration_ms);
            if CALL_MS_MAX < entry.duration_ms {
                return Err(format!("writer {writer}: {:?} took {} ms", entry.call, entry.duration_ms));
            }
            let CallResult::Failed { code, text } = &entry.outcome else { continue };
            *self.counts.failed.entry(code.clone()).or_default() += 1;
            if !plan.strikes_servers {
                return Err(format!(
                    "writer {writer}: {:?} failed, though no server was struck: {text}",
                    entry.call
                ));
            }
        }
        Ok(())
    }

    /// Verifies the files of the last rounds again, with a separate client.
    pub fn verify(&mut self) -> Result<(), String> {
        let partition = self.cluster.mount()?;
        self.kept_rounds
            .iter()
            .try_for_each(|finished| verify(&partition, finished, self.seed, &mut self.counts))
    }

    /// Verifies this round and the kept ones; removes the oldest.
    fn verify_kept(&mut self, finished: Finished) -> Result<(), String> {
        self.kept_rounds.push_back(finished);
        self.verify()?;
        let partition = self.cluster.mount()?;
        if ROUNDS_KEPT < self.kept_rounds.len()
            && let Some(oldest) = self.kept_rounds.pop_front()
        {
            remove_dir(&partition, &oldest.dir)?;
            for (number, _) in oldest.stories {
                let journal = self.cluster.dir().join(format!("{}-writer{number}.journal", oldest.dir));
                std::fs::remove_file(&journal).map_err(|error| format!("{}: {error}", journal.display()))?;
            }
        }
        self.counts.rounds += 1;
        Ok(())
    }
}

/// Verifies the files of a round against its journals.
fn verify(
    partition: &Partition,
    finished: &Finished,
    seed: u64,
    counts: &mut RoundCounts,
) -> Result<(), String> {
    let present = list(partition, &finished.dir)?;
    let shared = format!("{}/{SHARED}", finished.dir);
    for (writer, story) in &finished.stories {
        let files = names::known(story);
        let own: BTreeSet<String> = present
            .iter()
            .filter(|path| **path == shared || path.starts_with(&format!("{}/w{writer}-", finished.dir)))
            .cloned()
            .collect();
        // A writer that was killed early may not have got as far as the shared file.
        let own = if files.values().any(|known| known.paths.contains(&shared)) {
            own
        } else {
            own.into_iter().filter(|path| *path != shared).collect()
        };
        let found = names::judge(&files, &own).map_err(|what| format!("writer {writer}: {what}"))?;
        for (path, known) in found {
            let only_own = path != shared;
            verify_file(
                partition,
                path,
                known,
                (ByteSeed::of(seed, *writer), finished.promise, only_own),
                counts,
            )
            .map_err(|what| format!("writer {writer}: {path}: {what}"))?;
        }
    }
    Ok(())
}

fn verify_file(
    partition: &Partition,
    path: &str,
    known: &KnownFile,
    (ink, promise, only_own): (ByteSeed, Acknowledged, bool),
    counts: &mut RoundCounts,
) -> Result<(), String> {
    let file = partition.open(path).map_err(|error| error.to_string())?;
    let length = file.len().map_err(|error| error.to_string())?;
    let (least, most) = known.model.lengths(promise);
    if length < least || only_own && most < length {
        return Err(format!("{length} bytes long; it must have {least} to {most}"));
    }
    let mut bytes = vec![0; usize::try_from(most).expect("fits memory")];
    let read = file.read_at(0, &mut bytes).map_err(|error| error.to_string())?;
    bytes[read..].fill(0);
    let judged = if only_own {
        known.model.judge(ink, promise, 0, &bytes)
    } else {
        known.model.judge_written(ink, promise, &bytes)
    };
    counts.files += 1;
    counts.bytes += most;
    judged.map_err(|wrong| wrong.text)
}

fn list(partition: &Partition, dir: &str) -> Result<BTreeSet<String>, String> {
    let failed = |error: pario::Error| format!("listing {dir}: {error}");
    let mut names = BTreeSet::new();
    for entry in partition.read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        names.insert(format!("{dir}/{}", String::from_utf8_lossy(&entry.name)));
    }
    Ok(names)
}

pub(crate) fn remove_dir(partition: &Partition, dir: &str) -> Result<(), String> {
    for path in list(partition, dir)? {
        partition.remove_file(&path).map_err(|error| format!("removing {path}: {error}"))?;
    }
    partition.remove_dir(dir).map_err(|error| format!("removing {dir}: {error}"))
}

/// A writer that was killed before its journal was made has none.
fn read_journal(path: &std::path::Path) -> Result<JournalContents, String> {
    match journal::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(JournalContents::default()),
        other => other.map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn signal_writer(crew: &[RunningWriter], number: u64, signal: Signal) {
    if let Some(running) = crew.iter().find(|running| running.number == number) {
        signal_process(running.child.id(), signal);
    }
}

/// This program: itself, or beside the test that uses it.
pub(crate) fn writer_binary() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    if own.file_stem().is_some_and(|name| name == "pario-fault") {
        return Ok(own);
    }
    let beside =
        own.ancestors().skip(1).take(2).map(|dir| dir.join("pario-fault")).find(|path| path.exists());
    beside.ok_or_else(|| "pario-fault is not built: cargo build -p pario-fault".to_owned())
}

/// Wait channel of each thread of a process, as far as the kernel reports it.
fn threads_of(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lines = tasks.map(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("  {} waits in {}", read("comm").trim(), read("wchan").trim())
    });
    lines.collect::<Vec<_>>().join("\n")
}
