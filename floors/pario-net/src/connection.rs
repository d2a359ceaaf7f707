//! The client's end of a connection: many threads send requests, each waits for its own answer.
//!
//! A waiting thread also reads: one at a time reads frames from the stream and hands the other threads their answers, so an
//! answer reaches its caller without another thread, and file data is read into the caller's memory.
//!
//! Never: gives up a server with a living process (`peer.rs` decides) unless the connection has [`Deadlines`]; waits longer
//! than `SILENCE_MS_MAX` for a silent server without a living process. Always: after a failure every waiting and later call
//! fails with the same fault, which names the server.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pario_core::codec::Encode;
use pario_core::limits::{FRAME_BODY_BYTES_MAX, IN_FLIGHT_MAX, PING_MS};
use pario_core::text::shown_start;
use pario_core::{Clock, Code, Fault, Nanos, ServerIndex};
use pario_sys::BufferPart;
use pario_sys::clock::MonotonicClock;
use pario_sys::mutex::lock;

use crate::deadlines::Deadlines;
use crate::frame::{self, DataCheck, FrameError, FrameHead, FrameKind, HEAD_BYTES};
use crate::greeting::{self, Challenge, Hello, Relayed, Secret, Welcome};
use crate::message::{Notice, Reply, Request};
use crate::peer::{Peer, Verdict};
use crate::protect::{End, Keys};
use crate::stream::{Address, Stream};

/// Request number without a caller: the answer only shows that the server is alive.
const PING_NUMBER: u64 = 0;

/// A call that waits for longer logs its reason, once.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Small answers are received in one read; file data beyond this is read into its target.
const INBOX_BYTES: usize = 4096;

/// An answer with its data and descriptors.
#[derive(Debug)]
pub struct ReceivedReply {
    /// The reply.
    pub reply: Reply,
    /// File data, unless it was read into the caller's memory.
    pub data: Vec<u8>,
    /// Bytes of file data, in either case.
    pub data_bytes: usize,
    /// Descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// A request in flight. Must be waited for.
#[derive(Debug)]
#[must_use = "an answer that is not waited for is kept for ever"]
pub struct Ticket(u64);

/// A connection to a server, after the handshake.
#[derive(Debug)]
pub struct Connection {
    server: ServerIndex,
    place: String,
    stream: Stream,
    peer: Peer,
    deadlines: Deadlines,
    check: DataCheck,
    welcome: Welcome,
    clock: MonotonicClock,
    next: AtomicU64,
    sending: Mutex<()>,
    reading: Mutex<Inbox>,
    resting: AtomicUsize,
    last_received: AtomicU64,
    pinged: AtomicU64,
    /// The server is alive and has not answered for longer than `SILENCE_MS_MAX`.
    is_tolerated: AtomicBool,
    waiting: AtomicUsize,
    /// Start of the current period with at least one waiting thread: silence is measured from here.
    waiting_since: AtomicU64,
    state: Mutex<ConnectionState>,
    /// Set with `ConnectionState::broken`, to be read without the lock.
    is_broken: AtomicBool,
    changed: Condvar,
}

/// Bytes received with earlier ones, and descriptors that wait for their answer.
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

    /// Several answers may arrive in one read: descriptors belong to the next answer of a kind that carries them.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer brings none")]
    fn descriptors_for(&mut self, reply: &Reply) -> Vec<OwnedFd> {
        let count = match reply {
            Reply::Lent {} | Reply::Pointer {} => 1,
            Reply::OutboxAttached {} | Reply::LentSummed {} => 2,
            _ => 0,
        };
        self.descriptors.drain(..count.min(self.descriptors.len())).collect()
    }
}

/// A thread that waits for an answer.
struct WaiterGuard<'a>(&'a Connection);

impl<'a> WaiterGuard<'a> {
    fn begin(connection: &'a Connection) -> WaiterGuard<'a> {
        if connection.waiting.fetch_add(1, Ordering::SeqCst) == 0 {
            connection.waiting_since.store(connection.clock.now().0, Ordering::Relaxed);
        }
        WaiterGuard(connection)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct ConnectionState {
    /// Requests without an answer yet, and answers not yet fetched.
    answers: HashMap<u64, Option<ReceivedReply>>,
    /// Requests without an answer yet.
    unanswered: usize,
    /// Memory for the data of their answers, where it was given with the request.
    targets: HashMap<u64, BufferPart>,
    waiting_on: HashMap<u64, String>,
    broken: Option<Fault>,
    /// It was given up because of silence.
    silent: bool,
}

/// Condition a thread reads for.
#[derive(Clone, Copy, Debug)]
enum ReadGoal {
    /// The answer to a request.
    Answer(u64),
    /// A free slot among the requests in flight.
    FreeSlot,
    /// Fewer requests in flight than so many.
    Fewer(usize),
}

impl ConnectionState {
    fn lacks(&self, goal: ReadGoal) -> bool {
        match goal {
            ReadGoal::Answer(number) => matches!(self.answers.get(&number), Some(None)),
            ReadGoal::FreeSlot => IN_FLIGHT_MAX <= self.unanswered,
            ReadGoal::Fewer(limit) => limit.max(1) <= self.unanswered,
        }
    }

    fn enter(&mut self, number: u64) {
        self.unanswered += 1;
        self.answers.insert(number, None);
    }

    fn answer(&mut self, number: u64, answer: ReceivedReply) {
        // An answer to a ping, or to a request that its caller abandoned, has no slot.
        if let Some(slot) = self.answers.get_mut(&number) {
            self.unanswered -= usize::from(slot.is_none());
            *slot = Some(answer);
        }
    }

    fn leave(&mut self, number: u64) -> Option<ReceivedReply> {
        self.waiting_on.remove(&number);
        self.targets.remove(&number);
        let slot = self.answers.remove(&number)?;
        self.unanswered -= usize::from(slot.is_none());
        slot
    }
}

impl Connection {
    /// Connects and runs the handshake.
    pub fn open(address: &Address, hello: &Hello, secret: &Secret) -> Result<Connection, Fault> {
        let stream = Stream::connect(address).map_err(|error| unreachable(hello.server, address, &error))?;
        Connection::greet(stream, address.to_string(), hello, secret)
    }

    /// Runs the handshake over a connected stream.
    pub fn greet(stream: Stream, place: String, hello: &Hello, secret: &Secret) -> Result<Connection, Fault> {
        Connection::greet_within(stream, place, hello, secret, Deadlines::NONE)
    }

    /// The same with deadlines that also apply to a living server.
    pub fn greet_within(
        stream: Stream,
        place: String,
        hello: &Hello,
        secret: &Secret,
        deadlines: Deadlines,
    ) -> Result<Connection, Fault> {
        let peer = Peer::of(&stream, hello);
        let (stream, welcome) = greet(stream, (&peer, &deadlines), hello, secret)
            .map_err(|fault| fault.at(format!("server {} ({place})", hello.server)))?;
        let check = stream.data_check();
        let clock = MonotonicClock;
        let heard = AtomicU64::new(clock.now().0);
        Ok(Connection {
            server: hello.server,
            place,
            stream,
            peer,
            deadlines,
            check,
            welcome,
            clock,
            next: AtomicU64::new(1),
            sending: Mutex::new(()),
            reading: Mutex::new(Inbox::new()),
            resting: AtomicUsize::new(0),
            last_received: heard,
            pinged: AtomicU64::new(0),
            is_tolerated: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            waiting_since: AtomicU64::new(0),
            state: Mutex::default(),
            is_broken: AtomicBool::new(false),
            changed: Condvar::new(),
        })
    }

    /// The server's welcome message.
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

    /// Whether the server has closed its end; does not wait.
    pub fn is_dead(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Polls whether the server has closed the connection while no request is in flight; costs a system call.
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

    /// The fault of a server that was given up because of silence: an immediate retry is useless.
    pub fn silence(&self) -> Option<Fault> {
        let state = self.state();
        state.broken.clone().filter(|_| state.silent)
    }

    /// Whether its server is a running process of this node, also if the connection is broken.
    pub fn peer_runs(&self) -> bool {
        self.peer.runs()
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.stream.shut();
    }

    /// Sends a request and waits for the answer; a [`Reply::Failed`] becomes the fault.
    pub fn call(&self, request: &Request) -> Result<ReceivedReply, Fault> {
        let ticket = self.start(request, &[], &[])?;
        self.wait(ticket, None)
    }

    /// Sends a request, with file data in parts and descriptors; does not wait for the answer.
    pub fn start(
        &self,
        request: &Request,
        data: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Ticket, Fault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.start_as(number, request, data, descriptors)
    }

    /// Like [`Connection::start`] with a request number of the caller, for requests that may be repeated.
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

    /// Sends a request. The data of its answer goes to `target`, independent of the thread that reads it; more data than fits is kept with
    /// the answer.
    pub fn start_into(&self, request: &Request, target: BufferPart) -> Result<Ticket, Fault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.reserve(number)?;
        self.state().targets.insert(number, target);
        if let Err(fault) = self.send(number, request, &[], &[]) {
            self.state().leave(number);
            return Err(fault);
        }
        Ok(Ticket(number))
    }

    /// Requests without an answer yet.
    pub fn unanswered(&self) -> usize {
        self.state().unanswered
    }

    /// Whether [`Connection::wait`] for the ticket returns without waiting; reads answers that have arrived. `began`: the time of its start,
    /// from which silence of the server is measured.
    pub fn is_answered(&self, ticket: &Ticket, began: Nanos) -> bool {
        let goal = ReadGoal::Answer(ticket.0);
        loop {
            {
                let state = self.state();
                if !state.lacks(goal) || state.broken.is_some() {
                    return true;
                }
            }
            let Ok(mut inbox) = self.reading.try_lock() else { return false };
            if inbox.is_empty() && matches!(self.stream.wait_readable(Duration::ZERO), Ok(false)) {
                drop(inbox);
                // A fault is kept for the wait.
                return self.check_silence_since(began).is_err();
            }
            let read = self.read_one(&mut inbox, goal, &mut None);
            drop(inbox);
            if 0 < self.resting.load(Ordering::SeqCst) {
                self.changed.notify_all();
            }
            if read.is_err() {
                return true;
            }
        }
    }

    /// Number of a request, for [`Connection::read_answer`].
    #[must_use]
    pub fn number_of(ticket: &Ticket) -> u64 {
        ticket.0
    }

    /// Reads answers until that of a request has arrived, for a thread that does not fetch it: the owner of the ticket computes meanwhile.
    pub fn read_answer(&self, number: u64) {
        let goal = ReadGoal::Answer(number);
        let _waiting = WaiterGuard::begin(self);
        while self.state().lacks(goal) && !self.is_dead() {
            // A fault is kept for the owner.
            if self.read_or_sleep(goal, &mut None).is_err() {
                return;
            }
        }
    }

    /// Reads answers until fewer than `limit` requests are unanswered.
    pub fn wait_for_room(&self, limit: usize) -> Result<(), Fault> {
        let goal = ReadGoal::Fewer(limit);
        let mut waiting = None;
        while self.state().lacks(goal) {
            if let Some(fault) = self.broken() {
                return Err(fault);
            }
            waiting.get_or_insert_with(|| WaiterGuard::begin(self));
            self.read_or_sleep(goal, &mut None)?;
        }
        Ok(())
    }

    /// Reserves a slot among the requests in flight. While none is free it reads answers: the waiting threads may be the only readers.
    fn reserve(&self, number: u64) -> Result<(), Fault> {
        let mut waiting = None;
        loop {
            {
                let mut state = self.state();
                if let Some(fault) = &state.broken {
                    return Err(fault.clone());
                }
                if !state.lacks(ReadGoal::FreeSlot) {
                    state.enter(number);
                    return Ok(());
                }
            }
            waiting.get_or_insert_with(|| WaiterGuard::begin(self));
            self.read_or_sleep(ReadGoal::FreeSlot, &mut None)?;
        }
    }

    /// Waits for an answer. File data is read into `target` if given and large enough.
    pub fn wait(&self, ticket: Ticket, mut target: Option<&mut [u8]>) -> Result<ReceivedReply, Fault> {
        let _waiting = WaiterGuard::begin(self);
        let (began, mut is_logged) = (self.clock.now(), false);
        loop {
            if let Some(mut answer) = self.take_reply(ticket.0)? {
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
            let waited = self.clock.now().since(began);
            if !is_logged && LONG_WAIT <= waited {
                is_logged = self.log_wait(ticket.0);
            }
            if let Err(error) = self.deadlines.check_answer(waited) {
                self.state().leave(ticket.0);
                return Err(self.fail(&error.into()));
            }
            if let Err(fault) = self.read_or_sleep(ReadGoal::Answer(ticket.0), &mut target) {
                // Memory that was given for the answer is let go.
                self.state().leave(ticket.0);
                return Err(fault);
            }
        }
    }

    /// Abandons a request: its answer is dropped on arrival.
    pub fn forget(&self, ticket: Ticket) {
        self.state().leave(ticket.0);
    }

    /// Logs the reason for which a request waits, if the server has reported one.
    fn log_wait(&self, number: u64) -> bool {
        let reason = self.state().waiting_on.get(&number).cloned();
        if let Some(on) = &reason {
            let (server, on) = (self.server, shown_start(on, 500));
            tracing::warn!(%server, "a call to {} waits for more than a second: {on}", self.place);
        }
        reason.is_some()
    }

    /// The next notice of a notice connection; `None` if `limit` passed without one.
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
        let bear = |waited| self.may_wait(waited);
        self.stream.send_all_while(&mut parts, descriptors, &bear).map_err(|error| self.fail(&error.into()))
    }

    fn take_reply(&self, number: u64) -> Result<Option<ReceivedReply>, Fault> {
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

    /// Becomes the reading thread, or sleeps until that thread has news.
    fn read_or_sleep(&self, goal: ReadGoal, target: &mut Option<&mut [u8]>) -> Result<(), Fault> {
        match self.reading.try_lock() {
            Ok(mut inbox) => {
                let result = self.read_one(&mut inbox, goal, target);
                drop(inbox);
                // Another waiting thread may have to read now.
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

    fn read_one(
        &self,
        inbox: &mut Inbox,
        goal: ReadGoal,
        target: &mut Option<&mut [u8]>,
    ) -> Result<(), Fault> {
        // Between the caller's look and its turn to read, the answer may have come.
        if !self.state().lacks(goal) {
            return Ok(());
        }
        let patience = Duration::from_millis(PING_MS / 2);
        if inbox.is_empty()
            && !self.stream.wait_readable(patience).map_err(|error| self.fail(&error.into()))?
        {
            return self.check_silence();
        }
        let own = match goal {
            ReadGoal::Answer(number) => Some((number, target)),
            ReadGoal::FreeSlot | ReadGoal::Fewer(_) => None,
        };
        let (head, body, data) = self.read_frame(inbox, own).map_err(|error| self.fail(&error))?;
        self.note_received();
        match head.kind {
            FrameKind::Reply => {
                let reply = decode::<Reply>(&head, &body).map_err(|error| self.fail(&error))?;
                let descriptors = inbox.descriptors_for(&reply);
                let answer = ReceivedReply { reply, data, data_bytes: head.data_bytes as usize, descriptors };
                self.state().answer(head.request, answer);
                Ok(())
            }
            FrameKind::Notice => match decode::<Notice>(&head, &body).map_err(|error| self.fail(&error))? {
                Notice::Waiting { request, on } => {
                    let mut state = self.state();
                    if state.lacks(ReadGoal::Answer(request)) {
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
            | FrameKind::Relayed
            | FrameKind::Request => Err(self.fail(&FrameError::Kind(head.kind as u16))),
        }
    }

    /// Reads one frame; data that answers `own` is read into its target.
    fn read_frame(
        &self,
        inbox: &mut Inbox,
        own: Option<(u64, &mut Option<&mut [u8]>)>,
    ) -> Result<(FrameHead, Vec<u8>, Vec<u8>), FrameError> {
        let mut bytes = [0u8; HEAD_BYTES];
        self.fill(inbox, &mut bytes)?;
        let head = FrameHead::decode(&bytes, FRAME_BODY_BYTES_MAX)?;
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
        // Bound before the `if`, so that the lock is not held while the data arrives.
        let target = self.state().targets.remove(&head.request);
        if let Some(mut target) = target.filter(|target| data_bytes <= target.len()) {
            let mut left = data_bytes;
            for piece in target.pieces() {
                let count = left.min(piece.len());
                self.fill(inbox, &mut piece[..count])?;
                left -= count;
            }
            let mut left = data_bytes;
            head.check_pieces(target.pieces().map(|piece| {
                let count = left.min(piece.len());
                left -= count;
                &piece[..count]
            }))?;
            return Ok((head, body, Vec::new()));
        }
        let mut data = vec![0; data_bytes];
        self.fill(inbox, &mut data)?;
        head.check_data(&data)?;
        Ok((head, body, data))
    }

    /// Fills a buffer from received bytes, then from the stream; small remainders are read through the inbox.
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
        let began = self.clock.now();
        loop {
            match self.stream.receive(buffer, descriptors) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // Within a frame, the remainder is already in flight.
                    if !self.stream.wait_readable(Duration::from_millis(PING_MS / 2))? {
                        self.may_wait(self.clock.now().since(began))?;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether to wait further for a peer that stopped within a frame.
    fn may_wait(&self, waited: Duration) -> std::io::Result<()> {
        self.peer.tolerate_silence(waited).and_then(|()| self.deadlines.check_answer(waited))
    }

    /// Pings a silent server, and gives it up after its limit.
    fn check_silence(&self) -> Result<(), Fault> {
        self.check_silence_since(Nanos(self.waiting_since.load(Ordering::Relaxed)))
    }

    /// The same with silence from this time on at most.
    fn check_silence_since(&self, since: Nanos) -> Result<(), Fault> {
        let now = self.clock.now();
        let heard = self.last_received.load(Ordering::Relaxed).max(since.0);
        let silent = now.since(Nanos(heard));
        match self.peer.judge(silent) {
            Verdict::Wait => {}
            Verdict::Answered => self.note_received(),
            Verdict::Busy { pid } => self.tolerate(silent, pid),
            Verdict::Lost(why) => {
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, why);
                return Err(self.fail(&error.into()));
            }
        }
        let pinged = Nanos(self.pinged.load(Ordering::Relaxed));
        if Duration::from_millis(PING_MS) <= silent && Duration::from_millis(PING_MS) <= now.since(pinged) {
            self.pinged.store(now.0, Ordering::Relaxed);
            self.send(PING_NUMBER, &Request::Ping {}, &[], &[])?;
        }
        Ok(())
    }

    /// The server gave a sign of life.
    fn note_received(&self) {
        self.last_received.store(self.clock.now().0, Ordering::Relaxed);
        if self.is_tolerated.load(Ordering::Relaxed)
            && self.is_tolerated.swap(false, Ordering::Relaxed)
            && self.deadlines == Deadlines::NONE
        {
            tracing::warn!(server = %self.server, place = self.place, "the server answers again");
        }
    }

    /// The server is alive and does not answer: callers keep waiting, and the wait is logged.
    fn tolerate(&self, silent: Duration, pid: u32) {
        let is_first = !self.is_tolerated.swap(true, Ordering::Relaxed);
        // A call with a deadline ends by an answer or by an error with more detail.
        if is_first && self.deadlines == Deadlines::NONE {
            let (server, place, silent) = (self.server, &self.place, silent.as_secs_f64());
            tracing::warn!(
                "server {server} ({place}) has not answered for {silent:.1} s; its process {pid} lives, so the call waits"
            );
        }
    }

    /// Ends the connection for all its users, with one fault.
    fn fail(&self, error: &FrameError) -> Fault {
        let mut state = self.state();
        if state.broken.is_none() {
            state.silent =
                matches!(error, FrameError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
        }
        let fault = state.broken.get_or_insert_with(|| lost(self.server, &self.place, error)).clone();
        self.is_broken.store(true, Ordering::Release);
        drop(state);
        self.stream.shut();
        self.changed.notify_all();
        fault
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        lock(&self.state)
    }
}

fn decode<T: Encode>(head: &FrameHead, body: &[u8]) -> Result<T, FrameError> {
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

/// Inputs for the time limit of a handshake.
type HandshakeLimits<'a> = (&'a Peer, &'a Deadlines);

/// The client's half of the handshake; run twice where a relay server passes the connection on: once with the relay, once end
/// to end with the target server. After the first proof the relay gets its own time to connect.
fn greet(
    stream: Stream,
    judge: HandshakeLimits<'_>,
    hello: &Hello,
    secret: &Secret,
) -> Result<(Stream, Welcome), Fault> {
    let mut hello = hello.clone();
    let mut limit = Limit::new(judge);
    if hello.relay {
        prove((&stream, &limit), &hello, secret)?;
        limit = Limit::new(judge);
        let relayed: Relayed = expect((&stream, &limit), FrameKind::Relayed)?;
        hello.relay = false;
        hello.protect |= relayed.protect;
        hello.nonce = greeting::nonce();
    }
    let challenge = prove((&stream, &limit), &hello, secret)?;
    let stream = match hello.protect {
        true => stream.protected(Keys::of_greeting(secret, &hello, &challenge, End::Client)),
        false => stream,
    };
    let welcome = expect((&stream, &limit), FrameKind::Welcome)?;
    Ok((stream, welcome))
}

/// Time limit of a handshake, independent of how its bytes arrive.
struct Limit<'a> {
    judge: HandshakeLimits<'a>,
    began: Nanos,
}

impl Limit<'_> {
    fn new(judge: HandshakeLimits<'_>) -> Limit<'_> {
        Limit { judge, began: MonotonicClock.now() }
    }

    /// Waits for more bytes within the limits.
    fn wait(&self, stream: &Stream) -> Result<(), Fault> {
        let (peer, deadlines) = self.judge;
        let waited = MonotonicClock.now().since(self.began);
        let silent = |error: std::io::Error| Fault::new(Code::Unreachable, error.to_string());
        peer.bear_greeting(waited).map_err(silent)?;
        deadlines.check_greeting(waited).map_err(silent)?;
        let look = Duration::from_millis(PING_MS / 2);
        stream.wait_readable(look).map(drop).map_err(|error| Fault::from_io(&error, "greeting"))
    }
}

/// Exchanges both proofs.
fn prove((stream, limit): (&Stream, &Limit<'_>), hello: &Hello, secret: &Secret) -> Result<Challenge, Fault> {
    let send = |kind, message: Vec<u8>| -> Result<(), Fault> {
        let hung_up = |error| Fault::new(Code::Unreachable, format!("{kind}: {error}"));
        stream.send_all(&mut [IoSlice::new(&message)], &[]).map_err(hung_up)
    };
    send("greeting", frame::seal(FrameKind::Hello, 0, hello, &[], DataCheck::None))?;
    let challenge: Challenge = expect((stream, limit), FrameKind::Challenge)?;
    let proof = greeting::answer(secret, hello, &challenge)?;
    send("proving", frame::seal(FrameKind::Proof, 0, &proof, &[], DataCheck::None))?;
    Ok(challenge)
}

/// Characters shown of a peer's message during the handshake, when its sender is not authenticated.
const PEER_TEXT_CHARS_MAX: usize = 500;

#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn expect<T: Encode>((stream, limit): (&Stream, &Limit<'_>), kind: FrameKind) -> Result<T, Fault> {
    let mut assembler = frame::Assembler::default();
    let protocol = |error: FrameError| Fault::new(Code::Protocol, format!("greeting: {error}"));
    loop {
        let target = assembler.target();
        let count = match stream.receive(target, &mut Vec::new()) {
            Ok(0) => {
                return Err(Fault::new(
                    Code::Unreachable,
                    "the server closed the connection during the handshake",
                ));
            }
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                limit.wait(stream)?;
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
            let (code, said) = match frame.message::<Reply>().map_err(protocol)? {
                Reply::Failed { fault } => (fault.code, fault.text),
                other => (Code::Protocol, format!("unexpected answer to the handshake: {other:?}")),
            };
            return Err(Fault::new(code, shown_start(&said, PEER_TEXT_CHARS_MAX)));
        }
        if frame.head.kind != kind {
            return Err(Fault::new(
                Code::Protocol,
                format!("unexpected answer to the handshake: {:?}", frame.head.kind),
            ));
        }
        return frame.message().map_err(protocol);
    }
}

/// A connection that several owners share.
pub type SharedConnection = Arc<Connection>;
