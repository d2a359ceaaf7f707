//! Costs around a transfer: start of a partition, memory of its servers, latency of commands.

use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use pario::partition::RegistryEntry;
use pario::partition::binary::find_binary;

use super::super::error::BenchError;
use super::super::figures::{Figure, Goal, mib};
use super::super::footprint::Footprint;
use super::super::job::BenchJob;
use super::compare::Comparison;
use super::{IoBench, MANY_SERVERS};
use crate::clock::BenchTimer;

/// Largest memory of an idle server.
const IDLE_MIB_MAX: f64 = 32.0;
/// Largest memory of a server under load, without a cache of its own.
const LOAD_MIB_MAX: f64 = 64.0;
/// Poll interval of the servers' memory.
const MEMORY_POLL: Duration = Duration::from_millis(10);

impl IoBench<'_> {
    /// `up_s`: from the command until all servers have answered; `memory_idle_mib`: the largest server then.
    pub(super) fn start_many(&mut self) -> Result<(), BenchError> {
        let (mut took_s, mut idle_mib) = (Vec::new(), Vec::new());
        for run in 0..self.plan.pairs {
            self.progress.step(&format!("starting {MANY_SERVERS} servers, run"), run, self.plan.pairs);
            let up = self.testbed.up("many", MANY_SERVERS)?;
            took_s.push(up.took.as_secs_f64());
            idle_mib.push(mib(Footprint::largest(&pids(&up.entry)).own_bytes));
            self.testbed.down("many")?;
        }
        self.figures.add(
            "up_s",
            Figure::of(&took_s, "s"),
            Goal::AtMost(0.5),
            format!("{MANY_SERVERS} servers"),
        );
        let idle = Figure::of(&idle_mib, "MiB");
        self.figures.add("memory_idle_mib", idle, Goal::AtMost(IDLE_MIB_MAX), "largest server, just up");
        Ok(())
    }

    /// `memory_load_mib`: the largest server during small writes.
    pub(super) fn load_memory(
        &mut self,
        entry: &RegistryEntry,
        what: &Comparison<'_>,
    ) -> Result<(), BenchError> {
        let pids = pids(entry);
        let mut worker = what.worker(&self.testbed)?;
        let (done, is_done) = channel::<()>();
        let (outcome, peak) = std::thread::scope(|scope| {
            let pids = &pids;
            let watching = scope.spawn(move || watch(pids, &is_done));
            let outcome = worker.run_job(&BenchJob::Write(what.pario()));
            drop(done);
            (outcome, watching.join().unwrap_or_default())
        });
        outcome?;
        worker.run_job(&BenchJob::Remove(what.pario()))?;
        self.testbed.wait_idle(what.partition)?;
        let note =
            format!("largest server; clients' outboxes mapped besides: {:.1} MiB", mib(peak.outbox_bytes));
        self.figures.add(
            "memory_load_mib",
            Figure::of(&[mib(peak.own_bytes)], "MiB"),
            Goal::AtMost(LOAD_MIB_MAX),
            note,
        );
        Ok(())
    }

    /// `ls_ms`, `stat_ms`, `status_ms`: whole commands on a running partition.
    pub(super) fn commands(&mut self, partition: &str) -> Result<(), BenchError> {
        let root = format!("pario://{partition}/");
        let commands =
            [("ls_ms", vec!["ls", &root]), ("stat_ms", vec!["stat", &root]), ("status_ms", vec!["status"])];
        for (name, arguments) in commands {
            self.progress.show(&format!("pario {}", arguments.join(" ")));
            let runs: Result<Vec<f64>, BenchError> =
                (0..self.plan.pairs).map(|_| self.command_ms(&arguments)).collect();
            self.figures.add(
                name,
                Figure::of(&runs?, "ms"),
                Goal::AtMost(50.0),
                format!("`pario {}`", arguments[0]),
            );
        }
        Ok(())
    }

    fn command_ms(&self, arguments: &[&str]) -> Result<f64, BenchError> {
        let program = find_binary().map_err(|error| pario::Error::Setup(error.to_string()))?;
        let mut command = Command::new(program);
        command.args(arguments).env("PARIO_REGISTRY", self.testbed.registry_path()).stdin(Stdio::null());
        let began = BenchTimer::now();
        let output = command.output().map_err(BenchError::when("running a command"))?;
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        if output.status.success() {
            return Ok(took_ms);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(BenchError::Worker(format!(
            "`pario {}` failed with {}: {said}",
            arguments.join(" "),
            output.status
        )))
    }
}

fn pids(entry: &RegistryEntry) -> Vec<u32> {
    entry.servers.iter().map(|server| server.pid).collect()
}

/// Polls the processes until the other end is dropped; returns the maximum.
fn watch(pids: &[u32], is_done: &std::sync::mpsc::Receiver<()>) -> Footprint {
    let mut peak = Footprint::largest(pids);
    while is_done.recv_timeout(MEMORY_POLL) == Err(RecvTimeoutError::Timeout) {
        peak = peak.max(Footprint::largest(pids));
    }
    peak
}
