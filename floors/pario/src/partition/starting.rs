//! Servers being started: their processes, and the protocol with all of them concurrently.
//!
//! Never: blocks on one server while others could progress; waits past its deadline. Always: an order is sent without SIGPIPE,
//! since this also runs inside applications.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use pario_core::{PartitionId, ServerIndex};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::disk::{Deadline, pause};
use super::protocol::{Ready, StartAnswer, to_line};

/// Longest answer of a server, and longest line of other output.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Time limit for a process to exit after it closed its output.
const EXIT_LIMIT: Duration = Duration::from_millis(500);
/// Time limit for abandoned servers to undo their start.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(3);

/// Why one server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// Its command could not be run.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// Which program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It reported the cause.
    #[error("{text}")]
    Reported {
        /// The report.
        text: String,
        /// The identity that its directory has under the same partition name.
        found: Option<PartitionId>,
    },
    /// It exited without a report.
    #[error("ended with {status}{}", last_words(.last_line))]
    Exited {
        /// Its exit status.
        status: String,
        /// The last line that it, or its launch command, printed.
        last_line: Option<String>,
    },
    /// It did not answer in time.
    #[error("no answer within {} s{}", .limit.as_secs_f32(), last_words(.last_line))]
    Silent {
        /// Time waited.
        limit: Duration,
        /// The last line that it, or its launch command, printed.
        last_line: Option<String>,
    },
}

fn last_words(line: &Option<String>) -> String {
    line.as_ref().map_or_else(String::new, |line| format!(": {line}"))
}

/// Progress of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum StartStep {
    Started,
    Ready,
    Up,
}

/// One server being started.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) index: ServerIndex,
    pub(super) step: StartStep,
    pub(super) ready: Option<Ready>,
    pub(super) cause: Option<Cause>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
    process: Option<ServerChannel>,
}

/// Its process and buffered messages.
#[derive(Debug)]
struct ServerChannel {
    child: Child,
    orders: OwnedFd,
    unsent: Vec<u8>,
    answers: ChildStdout,
    unread: Vec<u8>,
    errors: File,
    noise: Option<String>,
}

impl Starting {
    /// Runs a command and queues its first order; a command that cannot be run is a server with a cause.
    pub(super) fn spawn(
        index: ServerIndex,
        words: &[String],
        dir: Option<&Path>,
        first: Vec<u8>,
    ) -> Starting {
        let spawned = ServerChannel::spawn(words, dir, first);
        let (process, cause) = match spawned {
            Ok(talk) => (Some(talk), None),
            Err(source) => (None, Some(Cause::Spawn { program: words[0].clone(), source })),
        };
        Starting { index, step: StartStep::Started, ready: None, cause, notes: Vec::new(), process }
    }

    pub(super) fn order(&mut self, message: &impl serde::Serialize) {
        if let Some(talk) = &mut self.process {
            talk.unsent.extend_from_slice(&to_line(message));
        }
    }

    /// The process, once no more orders follow.
    pub(super) fn into_child(self) -> Option<Child> {
        self.process.map(|talk| talk.child)
    }

    /// Whether to wait for it: it has not reached the goal, or an order is not yet sent.
    fn is_awaited(&self, goal: StartStep) -> bool {
        let unsent = self.process.as_ref().is_some_and(|talk| !talk.unsent.is_empty());
        self.cause.is_none() && (self.step < goal || unsent)
    }

    fn exchange(&mut self) {
        let Some(talk) = &mut self.process else { return };
        let sent = talk.send();
        let open = talk.receive();
        while let Some(line) = self.process.as_mut().and_then(ServerChannel::next_line) {
            self.read_answers(&line);
        }
        let Some(talk) = self.process.as_mut().filter(|_| self.cause.is_none()) else { return };
        if sent.is_err() || !matches!(open, Ok(true)) {
            let status = talk
                .wait(EXIT_LIMIT)
                .map_or_else(|| "its output closed".to_owned(), |status| status.to_string());
            self.cause = Some(Cause::Exited { status, last_line: talk.last_line() });
        }
    }

    fn read_answers(&mut self, line: &str) {
        match (StartAnswer::from_line(line), self.step) {
            (Some(StartAnswer::Ready(ready)), StartStep::Started) if ready.index == self.index => {
                self.step = StartStep::Ready;
                self.ready = Some(ready);
            }
            (Some(StartAnswer::Note(note)), _) => self.notes.push(note.text),
            (Some(StartAnswer::Up), StartStep::Ready) => self.step = StartStep::Up,
            (Some(StartAnswer::Failed(failed)), _) => {
                self.cause = Some(Cause::Reported { text: failed.text, found: failed.found });
            }
            (Some(StartAnswer::Ready(_) | StartAnswer::Up), _) => {
                let text = format!("it answered out of turn: {line}");
                self.cause = Some(Cause::Reported { text, found: None });
            }
            (None, _) => {
                if let Some(talk) = self.process.as_mut().filter(|_| !line.trim().is_empty()) {
                    talk.noise = Some(short(line));
                }
            }
        }
    }
}

/// Drives all servers until each has reached `goal` with all orders sent, has failed, or `limit` has passed.
pub(super) fn drive(servers: &mut [Starting], goal: StartStep, limit: Duration) {
    let end = Deadline::after(limit);
    while servers.iter().any(|server| server.is_awaited(goal)) && !end.has_passed() {
        let mut waiting: Vec<PollFd<'_>> = Vec::new();
        for server in servers.iter().filter(|server| server.is_awaited(goal)) {
            let Some(talk) = &server.process else { continue };
            waiting.push(PollFd::from_borrowed_fd(talk.answers.as_fd(), PollFlags::IN));
            if !talk.unsent.is_empty() {
                waiting.push(PollFd::from_borrowed_fd(talk.orders.as_fd(), PollFlags::OUT));
            }
        }
        // A signal that interrupts the wait only means one more poll.
        let _ = rustix::event::poll(&mut waiting, Some(&end.left()));
        for server in servers.iter_mut().filter(|server| server.is_awaited(goal)) {
            server.exchange();
        }
    }
    for server in servers.iter_mut().filter(|server| server.is_awaited(goal)) {
        let last_line = server.process.as_ref().and_then(ServerChannel::last_line);
        server.cause = Some(Cause::Silent { limit, last_line });
    }
}

/// Sends the remaining orders without reading answers: the servers close their output now, which is no error.
pub(super) fn send_last(servers: &mut [Starting], limit: Duration) {
    let end = Deadline::after(limit);
    for talk in servers.iter_mut().filter_map(|server| server.process.as_mut()) {
        // A server that dies now is detected by its next user, as if it died later.
        while talk.send().is_ok() && !talk.unsent.is_empty() && !end.has_passed() {
            let mut room = [PollFd::from_borrowed_fd(talk.orders.as_fd(), PollFlags::OUT)];
            let _ = rustix::event::poll(&mut room, Some(&end.left()));
        }
    }
}

/// Ends all servers: closes their input, on which they undo their start and end; kills the others.
pub(super) fn give_up(servers: Vec<Starting>) {
    // Closing all inputs first lets the servers end concurrently.
    let children: Vec<Child> = servers.into_iter().filter_map(Starting::into_child).collect();
    let end = Deadline::after(GIVE_UP_LIMIT);
    for mut child in children {
        while matches!(child.try_wait(), Ok(None)) {
            if end.has_passed() {
                let _ = child.kill();
                let _ = child.wait();
                break;
            }
            pause(Duration::from_millis(2));
        }
    }
}

impl ServerChannel {
    fn spawn(words: &[String], dir: Option<&Path>, first: Vec<u8>) -> io::Result<ServerChannel> {
        // A socket, not a pipe: only a socket can be written without the risk of SIGPIPE.
        let (orders, input) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // A memory file, not a pipe: it needs no reader, and a later writer gets no SIGPIPE.
        let errors = File::from(rustix::fs::memfd_create("pario-launch", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(input).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        if let Some(dir) = dir {
            command.current_dir(dir);
        }
        let mut child = command.spawn()?;
        let answers = child.stdout.take().expect("it was asked to be piped");
        let flags = rustix::fs::fcntl_getfl(&answers)?;
        rustix::fs::fcntl_setfl(&answers, flags | OFlags::NONBLOCK)?;
        Ok(ServerChannel { child, orders, unsent: first, answers, unread: Vec::new(), errors, noise: None })
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.orders, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives available bytes; returns whether more may follow.
    fn receive(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        loop {
            match self.answers.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(count) => self.unread.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if ANSWER_BYTES_MAX < self.unread.len() {
                // A full buffer without a line end is no answer; the caller has already consumed complete lines.
                if !self.unread.contains(&b'\n') {
                    self.unread.clear();
                }
                return Ok(true);
            }
        }
    }

    fn next_line(&mut self) -> Option<String> {
        let end = self.unread.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Deadline::after(limit);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if !end.has_passed() => pause(Duration::from_millis(1)),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// The last line of its standard error, else of its other output.
    fn last_line(&self) -> Option<String> {
        const TAIL_BYTES: u64 = 4096;
        let length = self.errors.metadata().map_or(0, |metadata| metadata.len());
        let mut tail = vec![0; usize::try_from(length.min(TAIL_BYTES)).unwrap_or(0)];
        let read = self.errors.read_exact_at(&mut tail, length.saturating_sub(TAIL_BYTES));
        let text = String::from_utf8_lossy(&tail);
        let line = text.lines().rev().find(|line| read.is_ok() && !line.trim().is_empty());
        line.map(short).or_else(|| self.noise.clone())
    }
}

fn short(line: &str) -> String {
    line.trim().chars().filter(|c| !c.is_control()).take(300).collect()
}
