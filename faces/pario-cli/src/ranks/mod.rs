//! The ranks of `pario run -n N`: processes of one program that form a group.
//!
//! Never: leaves a rank running. Always: when a signal ends a rank, the hub informs the others, and they get time to end before
//! they are terminated; the exit code is that of the first rank that failed: the one reported missing first, else the one that
//! ended first.

mod output;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use pario::group::{Hub, NODE_VARIABLE};
use rustix::process::{Resource, Signal};

use self::output::Output;
use crate::clock::Stopwatch;
use crate::context::complain;
use crate::error::{CliError, CliResult, EXIT_FAILED};
use crate::job::{SignalWatch, command, exit_code, pid_of, wait_ended};

/// Time for the other ranks to end after a rank died, and again after SIGTERM.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// Specification of the ranks.
#[derive(Debug)]
pub(crate) struct Ranks<'a> {
    /// The program and its arguments.
    pub(crate) words: &'a [OsString],
    /// The environment of every rank.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// Number of ranks.
    pub(crate) size: usize,
    /// Node labels, assigned to the ranks in blocks; empty: no labels.
    pub(crate) nodes: Vec<String>,
    /// Whether output lines begin with the rank.
    pub(crate) tag_output: bool,
    /// Suppresses messages about failed ranks.
    pub(crate) quiet: bool,
    /// Receives the ranks' output lines instead of standard output.
    pub(crate) lines: Option<Sender<Vec<u8>>>,
}

/// Labels for `count` nodes of one machine.
pub(crate) fn node_labels(count: usize) -> Vec<String> {
    (0..count).map(|node| format!("node{node}")).collect()
}

impl Ranks<'_> {
    /// Runs all ranks to their end; returns the exit code.
    pub(crate) fn run(&self, watch: &SignalWatch) -> CliResult<u8> {
        raise_descriptor_limit(self.size);
        let hub = Hub::start(self.size)?;
        let commands = (0..self.size).map(|rank| self.command(&hub, rank)).collect();
        let mut children = watch.spawn_all(commands)?;
        let output = Output::start(&mut children, self.tag_output, self.lines.as_ref());
        let mut running =
            RunningRanks { ranks: self, watch, hub: &hub, children, ends: Vec::new(), ending: None };
        let ends = watch_ends(&running.children)?;
        running.wait(&ends);
        let code = running.code();
        watch.stage_out();
        output.finish();
        Ok(code)
    }

    fn command(&self, hub: &Hub, rank: usize) -> Command {
        let mut command = command(self.words);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.envs(hub.invitation(rank).variables());
        if let Some(node) = self.nodes.get(rank * self.nodes.len() / self.size) {
            command.env(NODE_VARIABLE, node);
        }
        // Only rank 0 reads standard input.
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Raises the descriptor limit for many ranks: two pipes, a socket and a process each.
fn raise_descriptor_limit(size: usize) {
    let wanted = size as u64 * 4 + 256;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the descriptor limit stays as it is");
        }
    }
}

/// Receives the ranks that have ended, in order.
fn watch_ends(children: &[Child]) -> CliResult<Receiver<usize>> {
    let (ended, ends) = mpsc::channel();
    for (rank, child) in children.iter().enumerate() {
        let (ended, pid) = (ended.clone(), pid_of(child));
        let thread = std::thread::Builder::new().name(format!("rank-{rank}")).spawn(move || {
            wait_ended(pid);
            // The receiver is closed only after all ranks have ended.
            let _ = ended.send(rank);
        });
        thread.map_err(|error| CliError::failed(format!("cannot wait for rank {rank}: {error}")))?;
    }
    Ok(ends)
}

/// Escalation against ranks that run on after another died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escalation {
    /// The hub has informed them.
    HubInformed,
    /// They were sent SIGTERM.
    Terminated,
    /// They were sent SIGKILL.
    Killed,
}

struct RunningRanks<'a> {
    ranks: &'a Ranks<'a>,
    watch: &'a SignalWatch,
    hub: &'a Hub,
    children: Vec<Child>,
    /// Exit codes of ended ranks, in order.
    ends: Vec<(usize, u8)>,
    ending: Option<(Escalation, Stopwatch)>,
}

impl RunningRanks<'_> {
    fn wait(&mut self, ends: &Receiver<usize>) {
        while 0 < self.left() {
            let limit = match self.ending {
                None | Some((Escalation::Killed, _)) => None,
                Some((_, since)) => Some(EXIT_WAIT.saturating_sub(since.elapsed())),
            };
            let ended = match limit {
                None => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(limit) => ends.recv_timeout(limit),
            };
            match ended {
                Ok(rank) => self.ended(rank),
                Err(RecvTimeoutError::Timeout) => self.escalate(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn left(&self) -> usize {
        self.children.len() - self.ends.len()
    }

    /// A rank that died is often reaped after the ranks that ended because of it.
    fn code(&self) -> u8 {
        let failed = |wanted: Option<usize>| {
            let mut failed = self.ends.iter().filter(|(_, code)| *code != 0);
            failed.find(|(rank, _)| wanted.is_none_or(|wanted| wanted == *rank)).map(|(_, code)| *code)
        };
        self.hub.first_lost().and_then(|rank| failed(Some(rank))).or_else(|| failed(None)).unwrap_or(0)
    }

    fn ended(&mut self, rank: usize) {
        let pid = self.children[rank].id();
        let status = match self.watch.collect(&mut self.children[rank]) {
            Ok(status) => status,
            Err(error) => {
                complain(&CliError::failed(format!("rank {rank} (process {pid}) is lost: {error}")));
                self.ends.push((rank, EXIT_FAILED));
                return;
            }
        };
        let how = describe(status);
        self.hub.ended(rank, &how);
        let code = exit_code(status);
        let first = self.code() == 0 || self.hub.first_lost() == Some(rank);
        if code != 0 && first && !self.ranks.quiet {
            complain(&CliError::failed(format!("rank {rank} (process {pid}) {how}")));
        }
        self.ends.push((rank, code));
        if status.signal().is_some() && self.ending.is_none() {
            self.ending = Some((Escalation::HubInformed, Stopwatch::now()));
        }
    }

    /// The time limit of the remaining ranks has passed.
    fn escalate(&mut self) {
        let (step, signal, what) = match self.ending {
            Some((Escalation::HubInformed, _)) => (Escalation::Terminated, Signal::TERM, "terminated"),
            _ => (Escalation::Killed, Signal::KILL, "killed"),
        };
        if !self.ranks.quiet {
            let left = crate::human::count(self.left(), "rank");
            let seconds = EXIT_WAIT.as_secs();
            complain(&CliError::failed(format!("{left} did not end within {seconds} s and will be {what}")));
        }
        self.watch.send(signal);
        self.ending = Some((step, Stopwatch::now()));
    }
}

/// Completes "rank 2 ".
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

impl Drop for RunningRanks<'_> {
    /// A rank is left here only after an internal error.
    fn drop(&mut self) {
        if 0 < self.left() {
            self.watch.send(Signal::KILL);
        }
    }
}
