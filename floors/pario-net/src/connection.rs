//! The client's end of a connection: many threads ask, each waits for its own answer.
//!
//! Whoever waits also reads: one waiting thread at a time takes frames from the stream and hands the others theirs, so an
//! answer reaches its caller without passing through another thread, and file data lands where it belongs.
//!
//! Never: waits for a silent server longer than `SILENCE_MS_MAX`. Always: after a failure every waiting and later call fails with
//! the same fault, which names the server.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pario_core::codec::Encode;
use pario_core::limits::{FRAME_BODY_BYTES_MAX, IN_FLIGHT_MAX, PING_MS, SILENCE_MS_MAX};
use pario_core::{Clock, Code, Fault, Nanos, ServerIndex};
use pario_sys::clock::MonotonicClock;

use crate::frame::{self, DataCheck, FrameError, FrameKind, HEAD_BYTES, Head};
use crate::greeting::{self, Challenge, Hello, Secret, Welcome};
use crate::message::{Notice, Reply, Request};
use crate::stream::{Address, Stream};

/// Small answers are received in one piece; file data beyond this goes straight to its place.
const INBOX_BYTES: usize = 4096;

/// An answer with what came along.
#[derive(Debug)]
pub struct Answer {
    /// The reply.
    pub reply: Reply,
    /// File data, unless it went into the caller's own memory.
    pub data: Vec<u8>,
    /// Bytes of file data, wherever they went.
    pub data_bytes: usize,
    /// Descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// A request under way. Must be waited for.
#[derive(Debug)]
#[must_use = "an answer that nobody waits for is kept for ever"]
pub struct Ticket(u64);

/// A connection to a server, greeted and ready.
#[derive(Debug)]
pub struct Connection {
    server: ServerIndex,
    place: String,
    stream: Stream,
    check: DataCheck,
    welcome: Welcome,
    clock: MonotonicClock,
    next: AtomicU64,
    sending: Mutex<()>,
    reading: Mutex<Inbox>,
    resting: AtomicUsize,
    heard: AtomicU64,
    pinged: AtomicU64,
    waiting: AtomicUsize,
    /// Since when somebody has been waiting all the time: silence counts from then.
    waiting_since: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// Bytes that came with earlier ones, and descriptors that wait for the answer they belong to.
#[derive(Debug)]
struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    descriptors: Vec<OwnedFd>,
}

impl Inbox {
    fn new() -> Inbox {
        Inbox { bytes: vec![0; INBOX_BYTES].into(), start: 0, end: 0, descriptors: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Several answers may come at once, so descriptors go to the kind of answer that brings them.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer brings none")]
    fn descriptors_for(&mut self, reply: &Reply) -> Vec<OwnedFd> {
        let count = match reply {
            Reply::Lent {} | Reply::Pointer {} => 1,
            Reply::OutboxTaken {} => 2,
            _ => 0,
        };
        self.descriptors.drain(..count.min(self.descriptors.len())).collect()
    }
}

/// A thread that waits for an answer.
struct Waiting<'a>(&'a Connection);

impl<'a> Waiting<'a> {
    fn begin(connection: &'a Connection) -> Waiting<'a> {
        if connection.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
            connection.waiting_since.store(connection.clock.now().0, Ordering::Relaxed);
        }
        Waiting(connection)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct State {
    /// Requests without an answer yet, and answers not yet fetched.
    answers: HashMap<u64, Option<Answer>>,
    /// Requests without an answer yet.
    unanswered: usize,
    waiting_on: HashMap<u64, String>,
    broken: Option<Fault>,
    /// It was given up because it said nothing.
    silent: bool,
}

/// What a thread reads for.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// The answer to a request.
    Answer(u64),
    /// A place among the requests under way.
    Place,
}

impl State {
    fn lacks(&self, goal: Goal) -> bool {
        match goal {
            Goal::Answer(number) => matches!(self.answers.get(&number), Some(None)),
            Goal::Place => IN_FLIGHT_MAX <= self.unanswered,
        }
    }

    fn enter(&mut self, number: u64) {
        self.unanswered += 1;
        self.answers.insert(number, None);
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        // An answer to a ping, or to a request whose caller gave up, has no place.
        if let Some(slot) = self.answers.get_mut(&number) {
            self.unanswered -= usize::from(slot.is_none());
            *slot = Some(answer);
        }
    }

    fn leave(&mut self, number: u64) -> Option<Answer> {
        self.waiting_on.remove(&number);
        let slot = self.answers.remove(&number)?;
        self.unanswered -= usize::from(slot.is_none());
        slot
    }
}

impl Connection {
    /// Connects and greets.
    pub fn open(address: &Address, hello: &Hello, secret: &Secret) -> Result<Connection, Fault> {
        let stream = Stream::connect(address).map_err(|error| unreachable(hello.server, address, &error))?;
        Connection::greet(stream, address.to_string(), hello, secret)
    }

    /// Greets over a stream that is connected already.
    pub fn greet(stream: Stream, place: String, hello: &Hello, secret: &Secret) -> Result<Connection, Fault> {
        let welcome = greet(&stream, hello, secret)
            .map_err(|fault| fault.at(format!("server {} ({place})", hello.server)))?;
        let check = stream.data_check();
        let clock = MonotonicClock;
        let heard = AtomicU64::new(clock.now().0);
        Ok(Connection {
            server: hello.server,
            place,
            stream,
            check,
            welcome,
            clock,
            next: AtomicU64::new(1),
            sending: Mutex::new(()),
            reading: Mutex::new(Inbox::new()),
            resting: AtomicUsize::new(0),
            heard,
            pinged: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            waiting_since: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// What the server said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether both ends share memory.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.stream.shares_memory()
    }

    /// This end's and the other end's address, on a network.
    #[must_use]
    pub fn network_addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.stream.network_addresses()
    }

    /// The fault that ended the connection, if one did.
    pub fn broken(&self) -> Option<Fault> {
        self.state().broken.clone()
    }

    /// Whether the server has closed its end; looks without waiting.
    pub fn is_dead(&self) -> bool {
        self.broken().is_some()
    }

    /// Looks whether the server has hung up, where nothing is under way; costs a system call.
    pub fn has_ended(&self) -> bool {
        if self.is_dead() {
            return true;
        }
        let idle = self.state().answers.is_empty();
        let Some(_turn) = idle.then(|| self.reading.try_lock().ok()).flatten() else { return false };
        if self.stream.has_ended() {
            self.fail(&FrameError::Ended);
            return true;
        }
        false
    }

    /// The fault of a server that was given up because it said nothing: asking it again at once is no use.
    pub fn silence(&self) -> Option<Fault> {
        let state = self.state();
        state.broken.clone().filter(|_| state.silent)
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.stream.shut();
    }

    /// Asks and waits for the answer; a [`Reply::Failed`] becomes the fault.
    pub fn call(&self, request: &Request) -> Result<Answer, Fault> {
        let ticket = self.start(request, &[], &[])?;
        self.wait(ticket, None)
    }

    /// Sends a request, with file data in parts and descriptors; returns without waiting for the answer.
    pub fn start(
        &self,
        request: &Request,
        data: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Ticket, Fault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.start_as(number, request, data, descriptors)
    }

    /// Like [`Connection::start`] under a number of the caller's, for requests that may have to be repeated.
    pub fn start_as(
        &self,
        number: u64,
        request: &Request,
        data: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Ticket, Fault> {
        self.reserve(number)?;
        if let Err(fault) = self.send(number, request, data, descriptors) {
            self.state().leave(number);
            return Err(fault);
        }
        Ok(Ticket(number))
    }

    /// Takes a place among the requests under way. While there is none it reads answers: those who wait for a place may be
    /// the only ones who could.
    fn reserve(&self, number: u64) -> Result<(), Fault> {
        let mut waiting = None;
        loop {
            {
                let mut state = self.state();
                if let Some(fault) = &state.broken {
                    return Err(fault.clone());
                }
                if !state.lacks(Goal::Place) {
                    state.enter(number);
                    return Ok(());
                }
            }
            waiting.get_or_insert_with(|| Waiting::begin(self));
            self.read_or_rest(Goal::Place, &mut None)?;
        }
    }

    /// Waits for an answer. File data goes into `target` if one is given and the answer fits.
    pub fn wait(&self, ticket: Ticket, mut target: Option<&mut [u8]>) -> Result<Answer, Fault> {
        let _waiting = Waiting::begin(self);
        loop {
            if let Some(mut answer) = self.take(ticket.0)? {
                if let Reply::Failed { fault } = answer.reply {
                    return Err(fault.at(format!("server {}", self.server)));
                }
                if let Some(target) = target.as_deref_mut()
                    && !answer.data.is_empty()
                {
                    let count = answer.data.len().min(target.len());
                    target[..count].copy_from_slice(&answer.data[..count]);
                    answer.data = Vec::new();
                }
                return Ok(answer);
            }
            self.read_or_rest(Goal::Answer(ticket.0), &mut target)?;
        }
    }

    /// Nobody wants the answer: it is dropped when it comes.
    pub fn forget(&self, ticket: Ticket) {
        self.state().leave(ticket.0);
    }

    /// What a request waits for, if the server said so.
    pub fn waits_on(&self) -> Vec<String> {
        self.state().waiting_on.values().cloned().collect()
    }

    /// The next notice of a connection that carries notices; `None` when `limit` passed without one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn notice(&self, limit: Duration) -> Result<Option<Notice>, Fault> {
        let mut inbox = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.is_empty() && !self.stream.wait_readable(limit).map_err(|error| self.fail(&error.into()))? {
            return Ok(None);
        }
        let frame = self.read_frame(&mut inbox, None).map_err(|error| self.fail(&error))?;
        drop(inbox);
        match frame.0.kind {
            FrameKind::Notice => {
                decode::<Notice>(&frame.0, &frame.1).map(Some).map_err(|error| self.fail(&error))
            }
            _ => Err(self.fail(&FrameError::Kind(frame.0.kind as u16))),
        }
    }

    fn send(
        &self,
        number: u64,
        request: &Request,
        data: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Fault> {
        let head = frame::seal(FrameKind::Request, number, request, data, self.check);
        let mut parts = Vec::with_capacity(1 + data.len());
        parts.push(IoSlice::new(&head));
        parts.extend(data.iter().map(|part| IoSlice::new(part)));
        let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.send_all(&mut parts, descriptors).map_err(|error| self.fail(&error.into()))
    }

    fn take(&self, number: u64) -> Result<Option<Answer>, Fault> {
        let mut state = self.state();
        match state.answers.get(&number) {
            Some(Some(_)) => Ok(state.leave(number)),
            Some(None) => match &state.broken {
                Some(fault) => {
                    let fault = fault.clone();
                    state.leave(number);
                    Err(fault)
                }
                None => Ok(None),
            },
            None => Err(Fault::new(Code::Closed, "waited twice for one answer")),
        }
    }

    /// Becomes the thread that reads, or rests until that thread has news.
    fn read_or_rest(&self, goal: Goal, target: &mut Option<&mut [u8]>) -> Result<(), Fault> {
        match self.reading.try_lock() {
            Ok(mut inbox) => {
                let result = self.read_one(&mut inbox, goal, target);
                drop(inbox);
                // Another waiter may have to read now.
                if 0 < self.resting.load(Ordering::SeqCst) {
                    self.changed.notify_all();
                }
                result
            }
            Err(TryLockError::Poisoned(_)) => Err(self.fail(&FrameError::Ended)),
            Err(TryLockError::WouldBlock) => {
                self.resting.fetch_add(1, Ordering::SeqCst);
                let state = self.state();
                if state.lacks(goal) && state.broken.is_none() {
                    let rest = Duration::from_millis(5);
                    drop(self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner));
                }
                self.resting.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn read_one(&self, inbox: &mut Inbox, goal: Goal, target: &mut Option<&mut [u8]>) -> Result<(), Fault> {
        // Between the caller's look and its turn to read, the answer may have come.
        if !self.state().lacks(goal) {
            return Ok(());
        }
        let patience = Duration::from_millis(PING_MS / 2);
        if inbox.is_empty()
            && !self.stream.wait_readable(patience).map_err(|error| self.fail(&error.into()))?
        {
            return self.mind_silence();
        }
        let own = match goal {
            Goal::Answer(number) => Some((number, target)),
            Goal::Place => None,
        };
        let (head, body, data) = self.read_frame(inbox, own).map_err(|error| self.fail(&error))?;
        self.heard.store(self.clock.now().0, Ordering::Relaxed);
        match head.kind {
            FrameKind::Reply => {
                let reply = decode::<Reply>(&head, &body).map_err(|error| self.fail(&error))?;
                let descriptors = inbox.descriptors_for(&reply);
                let answer = Answer { reply, data, data_bytes: head.data_bytes as usize, descriptors };
                self.state().answer(head.request, answer);
                Ok(())
            }
            FrameKind::Notice => match decode::<Notice>(&head, &body).map_err(|error| self.fail(&error))? {
                Notice::Waiting { request, on } => {
                    let mut state = self.state();
                    if state.lacks(Goal::Answer(request)) {
                        state.waiting_on.insert(request, on);
                    }
                    Ok(())
                }
                Notice::Recall { .. }
                | Notice::RecallLock { .. }
                | Notice::Goodbye { .. }
                | Notice::Unlinked { .. } => Ok(()),
            },
            FrameKind::Hello
            | FrameKind::Challenge
            | FrameKind::Proof
            | FrameKind::Welcome
            | FrameKind::Request => Err(self.fail(&FrameError::Kind(head.kind as u16))),
        }
    }

    /// Reads one frame; data that answers `own` goes straight into its target.
    fn read_frame(
        &self,
        inbox: &mut Inbox,
        own: Option<(u64, &mut Option<&mut [u8]>)>,
    ) -> Result<(Head, Vec<u8>, Vec<u8>), FrameError> {
        let mut bytes = [0u8; HEAD_BYTES];
        self.fill(inbox, &mut bytes)?;
        let head = Head::decode(&bytes, FRAME_BODY_BYTES_MAX)?;
        let mut body = vec![0; head.body_bytes as usize];
        self.fill(inbox, &mut body)?;
        head.check_body(&body)?;
        let data_bytes = head.data_bytes as usize;
        if let Some((number, Some(target))) = own
            && number == head.request
            && data_bytes <= target.len()
        {
            self.fill(inbox, &mut target[..data_bytes])?;
            head.check_data(&target[..data_bytes])?;
            return Ok((head, body, Vec::new()));
        }
        let mut data = vec![0; data_bytes];
        self.fill(inbox, &mut data)?;
        head.check_data(&data)?;
        Ok((head, body, data))
    }

    /// Fills a buffer from what has come already, then from the stream; small rests come through the inbox.
    fn fill(&self, inbox: &mut Inbox, mut buffer: &mut [u8]) -> Result<(), FrameError> {
        while !buffer.is_empty() {
            if !inbox.is_empty() {
                let count = buffer.len().min(inbox.end - inbox.start);
                buffer[..count].copy_from_slice(&inbox.bytes[inbox.start..inbox.start + count]);
                inbox.start += count;
                buffer = &mut buffer[count..];
            } else if buffer.len() < INBOX_BYTES {
                inbox.start = 0;
                inbox.end = self.receive(&mut inbox.bytes, &mut inbox.descriptors)?;
            } else {
                let count = self.receive(buffer, &mut inbox.descriptors)?;
                buffer = &mut buffer[count..];
            }
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<usize, FrameError> {
        loop {
            match self.stream.receive(buffer, descriptors) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // Inside a frame the rest is already on its way.
                    if !self.stream.wait_readable(Duration::from_millis(SILENCE_MS_MAX))? {
                        let silent =
                            std::io::Error::new(std::io::ErrorKind::TimedOut, "silent inside a frame");
                        return Err(silent.into());
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks a silent server for a sign of life, and gives up on one that gave none for too long.
    fn mind_silence(&self) -> Result<(), Fault> {
        let now = self.clock.now();
        let heard = self.heard.load(Ordering::Relaxed).max(self.waiting_since.load(Ordering::Relaxed));
        let silent = now.since(Nanos(heard));
        if Duration::from_millis(SILENCE_MS_MAX) <= silent {
            let error = std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("no sign of life for {:.1} s", silent.as_secs_f64()),
            );
            return Err(self.fail(&error.into()));
        }
        let pinged = Nanos(self.pinged.load(Ordering::Relaxed));
        if Duration::from_millis(PING_MS) <= silent && Duration::from_millis(PING_MS) <= now.since(pinged) {
            self.pinged.store(now.0, Ordering::Relaxed);
            // Number 0 belongs to no caller: its answer only shows that the server lives.
            self.send(0, &Request::Ping {}, &[], &[])?;
        }
        Ok(())
    }

    /// Ends the connection for all its users, with one fault.
    fn fail(&self, error: &FrameError) -> Fault {
        let mut state = self.state();
        if state.broken.is_none() {
            state.silent =
                matches!(error, FrameError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
        }
        let fault = state.broken.get_or_insert_with(|| lost(self.server, &self.place, error)).clone();
        drop(state);
        self.stream.shut();
        self.changed.notify_all();
        fault
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode<T: Encode>(head: &Head, body: &[u8]) -> Result<T, FrameError> {
    pario_core::codec::from_bytes(body).map_err(|source| FrameError::Body { request: head.request, source })
}

fn unreachable(server: ServerIndex, address: &Address, error: &std::io::Error) -> Fault {
    Fault::new(Code::Unreachable, format!("server {server} ({address}) is unreachable: {error}"))
}

fn lost(server: ServerIndex, place: &str, error: &FrameError) -> Fault {
    let code = match error {
        FrameError::Ended | FrameError::Io(_) => Code::Unreachable,
        FrameError::Magic(_)
        | FrameError::Kind(_)
        | FrameError::Flags(_)
        | FrameError::TooLong { .. }
        | FrameError::Body { .. } => Code::Protocol,
        FrameError::Checksum { .. } => Code::Corrupt,
    };
    Fault::new(code, format!("lost server {server} ({place}): {error}"))
}

/// The client's half of the handshake.
fn greet(stream: &Stream, hello: &Hello, secret: &Secret) -> Result<Welcome, Fault> {
    let send = |kind, message: Vec<u8>| -> Result<(), Fault> {
        let hung_up = |error| Fault::new(Code::Unreachable, format!("{kind}: {error}"));
        stream.send_all(&mut [IoSlice::new(&message)], &[]).map_err(hung_up)
    };
    send("greeting", frame::seal(FrameKind::Hello, 0, hello, &[], DataCheck::None))?;
    let challenge: Challenge = expect(stream, FrameKind::Challenge)?;
    let proof = greeting::answer(secret, hello, &challenge)?;
    send("proving", frame::seal(FrameKind::Proof, 0, &proof, &[], DataCheck::None))?;
    expect(stream, FrameKind::Welcome)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn expect<T: Encode>(stream: &Stream, kind: FrameKind) -> Result<T, Fault> {
    let limit = Duration::from_millis(pario_core::limits::CONNECT_MS_MAX);
    let mut assembler = frame::Assembler::default();
    let protocol = |error: FrameError| Fault::new(Code::Protocol, format!("greeting: {error}"));
    loop {
        let target = assembler.target();
        let count = match stream.receive(target, &mut Vec::new()) {
            Ok(0) => return Err(Fault::new(Code::Unreachable, "the server hung up during the greeting")),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if !stream.wait_readable(limit).map_err(|error| Fault::from_io(&error, "greeting"))? {
                    return Err(Fault::new(Code::Unreachable, "the server does not answer the greeting"));
                }
                continue;
            }
            Err(error) => {
                return Err(Fault::new(Code::Unreachable, format!("greeting: {error}")));
            }
        };
        let Some(frame) = assembler.advance(count, frame::GREETING_BODY_BYTES_MAX).map_err(protocol)? else {
            continue;
        };
        if frame.head.kind == FrameKind::Reply {
            return match frame.message::<Reply>().map_err(protocol)? {
                Reply::Failed { fault } => Err(fault),
                other => Err(Fault::new(Code::Protocol, format!("greeting answered by {other:?}"))),
            };
        }
        if frame.head.kind != kind {
            return Err(Fault::new(Code::Protocol, format!("greeting answered by {:?}", frame.head.kind)));
        }
        return frame.message().map_err(protocol);
    }
}

/// A connection that several owners share.
pub type SharedConnection = Arc<Connection>;
