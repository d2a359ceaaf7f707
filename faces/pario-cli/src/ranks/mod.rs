//! The ranks of `pario run -n N`: copies of one program that are a group.
//!
//! Never: leaves a rank running. Always: when a rank is ended by a signal the others, who are told by the hub, get time to end by
//! themselves before they are made to; the exit code is that of the first rank that failed: of the one that the others missed first,
//! else of the one that ended first.

mod output;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use pario::group::{Hub, NODE_VARIABLE};
use rustix::process::{Resource, Signal};

use self::output::Output;
use crate::clock::Began;
use crate::context::complain;
use crate::error::{CliError, EXIT_FAILED, Outcome};
use crate::job::{Watch, command, exit_code, pid_of, wait_ended};

/// How long the others may take to end by themselves after a rank died, and again after they were told to terminate.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Ranks<'a> {
    /// The program and its arguments.
    pub(crate) words: &'a [OsString],
    /// The environment of every rank.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// How many.
    pub(crate) size: usize,
    /// Labels of the nodes that they play, dealt to them in blocks; none: no labels.
    pub(crate) nodes: Vec<String>,
    /// Whether lines of output begin with the rank.
    pub(crate) tag_output: bool,
    /// Whether to keep still about ranks that fail.
    pub(crate) quiet: bool,
}

/// Labels for `count` nodes of one machine.
pub(crate) fn node_labels(count: usize) -> Vec<String> {
    (0..count).map(|node| format!("node{node}")).collect()
}

impl Ranks<'_> {
    /// Runs all ranks to their end; the exit code.
    pub(crate) fn run(&self, watch: &Watch) -> Outcome<u8> {
        make_room(self.size);
        let hub = Hub::start(self.size)?;
        let commands = (0..self.size).map(|rank| self.command(&hub, rank)).collect();
        let mut children = watch.spawn_all(commands)?;
        let output = Output::start(&mut children, self.tag_output);
        let mut running = Running { ranks: self, watch, hub: &hub, children, ends: Vec::new(), ending: None };
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
        // Input can have one reader only.
        command.stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Raises the limit of descriptors if so many ranks need more: two pipes, a socket and a process each.
fn make_room(size: usize) {
    let wanted = size as u64 * 4 + 256;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "the descriptor limit stays as it is");
        }
    }
}

/// The ranks that have ended, as they end.
fn watch_ends(children: &[Child]) -> Outcome<Receiver<usize>> {
    let (ended, ends) = mpsc::channel();
    for (rank, child) in children.iter().enumerate() {
        let (ended, pid) = (ended.clone(), pid_of(child));
        let thread = std::thread::Builder::new().name(format!("rank-{rank}")).spawn(move || {
            wait_ended(pid);
            // Nobody listens only when everything is over.
            let _ = ended.send(rank);
        });
        thread.map_err(|error| CliError::failed(format!("cannot wait for rank {rank}: {error}")))?;
    }
    Ok(ends)
}

/// What is done about ranks that go on after another died.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// They were told by the hub.
    Told,
    /// They were sent SIGTERM.
    Terminated,
    /// They were sent SIGKILL.
    Killed,
}

struct Running<'a> {
    ranks: &'a Ranks<'a>,
    watch: &'a Watch,
    hub: &'a Hub,
    children: Vec<Child>,
    /// Exit codes of ranks that have ended, in order.
    ends: Vec<(usize, u8)>,
    ending: Option<(Step, Began)>,
}

impl Running<'_> {
    fn wait(&mut self, ends: &Receiver<usize>) {
        while 0 < self.left() {
            let limit = match self.ending {
                None | Some((Step::Killed, _)) => None,
                Some((_, since)) => Some(PATIENCE.saturating_sub(since.elapsed())),
            };
            let ended = match limit {
                None => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(limit) => ends.recv_timeout(limit),
            };
            match ended {
                Ok(rank) => self.ended(rank),
                Err(RecvTimeoutError::Timeout) => self.press(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn left(&self) -> usize {
        self.children.len() - self.ends.len()
    }

    /// A rank that died is often collected after those who ended because of it.
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
            self.ending = Some((Step::Told, Began::now()));
        }
    }

    /// Time is over for the ranks that are left.
    fn press(&mut self) {
        let (step, signal, what) = match self.ending {
            Some((Step::Told, _)) => (Step::Terminated, Signal::TERM, "terminated"),
            _ => (Step::Killed, Signal::KILL, "killed"),
        };
        if !self.ranks.quiet {
            let left = crate::human::count(self.left(), "rank");
            let seconds = PATIENCE.as_secs();
            complain(&CliError::failed(format!("{left} did not end within {seconds} s and will be {what}")));
        }
        self.watch.send(signal);
        self.ending = Some((step, Began::now()));
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

impl Drop for Running<'_> {
    /// Only after a failure of our own is a rank left here.
    fn drop(&mut self) {
        if 0 < self.left() {
            self.watch.send(Signal::KILL);
        }
    }
}
