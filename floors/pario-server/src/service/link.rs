//! One connection at the server: received bytes become frames, replies become bytes to send, nothing blocks.
//!
//! Never: holds more of a client's requests or data than its limits; such a client is read again after its requests are answered.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pario_core::limits::{FRAME_BODY_BYTES_MAX, IN_FLIGHT_MAX};
use pario_net::buffers;
use pario_net::frame::{Assembler, Frame, FrameError, GREETING_BODY_BYTES_MAX};
use pario_net::greeting::{Challenge, Hello};
use pario_net::protect::Keys;
use pario_net::stream::Stream;
use rustix::event::epoll::EventFlags;

use super::park::ParkedRequest;

/// Data of one client's unanswered requests, in bytes.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;
/// Frames read from one connection before the others get a turn.
const FRAMES_PER_TURN: usize = 64;

/// Descriptors that may wait for their request.
const DESCRIPTORS_KEPT: usize = 8;

/// Names a connection for its life; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LinkId(pub(crate) u64);

/// Progress of the handshake.
#[derive(Debug)]
pub(crate) enum Greeting {
    /// No message yet.
    Unauthenticated,
    /// Hello received, challenge sent.
    Challenged(Box<(Hello, Challenge)>),
    /// Authenticated.
    Ready(Box<Hello>),
}

/// Bytes to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingFrame {
    pub(crate) head: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ServiceLink {
    pub(crate) stream: Stream,
    pub(crate) greeting: Greeting,
    assembler: Assembler,
    descriptors: VecDeque<OwnedFd>,
    outgoing: VecDeque<OutgoingFrame>,
    sent: usize,
    /// Requests that wait for room in a queue.
    parked: VecDeque<ParkedRequest>,
    in_flight: usize,
    in_flight_bytes: usize,
    /// Bytes of answers not yet accepted by the peer.
    unsent_bytes: usize,
    /// The connection was reset, not closed by the peer.
    reset: bool,
    /// Close after everything is sent.
    pub(crate) closing: bool,
    /// Event flags last passed to epoll.
    pub(crate) watched: Cell<EventFlags>,
}

/// Frames read from a link.
#[derive(Debug)]
pub(crate) struct LinkInput {
    pub(crate) frames: Vec<Frame>,
    /// The peer closed the connection or violated the protocol.
    pub(crate) end: Option<FrameError>,
}

impl ServiceLink {
    pub(crate) fn new(stream: Stream) -> io::Result<ServiceLink> {
        stream.set_nonblocking(true)?;
        Ok(ServiceLink {
            stream,
            greeting: Greeting::Unauthenticated,
            assembler: Assembler::default(),
            descriptors: VecDeque::new(),
            outgoing: VecDeque::new(),
            sent: 0,
            parked: VecDeque::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            unsent_bytes: 0,
            reset: false,
            closing: false,
            watched: Cell::new(EventFlags::IN),
        })
    }

    pub(crate) fn hello(&self) -> Option<&Hello> {
        match &self.greeting {
            Greeting::Ready(hello) => Some(hello),
            Greeting::Unauthenticated | Greeting::Challenged(_) => None,
        }
    }

    /// Reads available data, in fair portions.
    pub(crate) fn read_frames(&mut self, scratch: &mut [u8]) -> LinkInput {
        let mut frames = Vec::new();
        let end = self.read_into(scratch, &mut frames).err();
        LinkInput { frames, end }
    }

    fn read_into(&mut self, scratch: &mut [u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        // During the handshake one frame at a time: the frames after a proof are encrypted or not as that proof says.
        let most = if self.hello().is_some() { FRAMES_PER_TURN } else { 1 };
        while frames.len() < most && self.wants_input() {
            let mut descriptors = Vec::new();
            let direct = scratch.len() <= self.assembler.target().len();
            let target = if direct { self.assembler.target() } else { &mut *scratch };
            let room = target.len();
            let count = match self.stream.receive(target, &mut descriptors) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(count) => count,
                // The peer closed without reading all its answers: not an error of the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.note_reset();
                    return Err(FrameError::Ended);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.descriptors.extend(descriptors);
            if DESCRIPTORS_KEPT < self.descriptors.len() {
                return Err(FrameError::TooLong {
                    part: "descriptors",
                    got: self.descriptors.len(),
                    limit: DESCRIPTORS_KEPT,
                });
            }
            if direct {
                let frame = self.assembler.advance(count, self.body_limit())?;
                self.accept(frame, frames);
            } else {
                self.feed(&scratch[..count], frames)?;
                if count < room && !self.stream.has_pending() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn feed(&mut self, mut bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        loop {
            let limit = self.body_limit();
            let target = self.assembler.target();
            let count = target.len().min(bytes.len());
            target[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let frame = self.assembler.advance(count, limit)?;
            let is_whole = frame.is_some();
            self.accept(frame, frames);
            if bytes.is_empty() {
                return Ok(());
            }
            if is_whole && self.hello().is_none() {
                return Err(FrameError::TooLong { part: "greeting", got: bytes.len(), limit: 0 });
            }
        }
    }

    fn accept(&mut self, frame: Option<Frame>, frames: &mut Vec<Frame>) {
        if let Some(frame) = frame {
            self.in_flight += 1;
            self.in_flight_bytes += frame.data.len();
            frames.push(frame);
        }
    }

    fn body_limit(&self) -> usize {
        if self.hello().is_some() { FRAME_BODY_BYTES_MAX } else { GREETING_BODY_BYTES_MAX }
    }

    /// A received descriptor. Several frames may arrive in one read: the request that needs a descriptor fetches it.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Keeps a request behind the parked ones; the link is not read until all are dispatched.
    pub(crate) fn park(&mut self, parked: ParkedRequest) {
        self.parked.push_back(parked);
    }

    /// Keeps the oldest request again.
    pub(crate) fn park_first(&mut self, parked: ParkedRequest) {
        self.parked.push_front(parked);
    }

    /// The oldest parked request.
    pub(crate) fn unpark(&mut self) -> Option<ParkedRequest> {
        self.parked.pop_front()
    }

    /// A frame was answered, or needs no answer.
    pub(crate) fn answered(&mut self, data_bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(data_bytes);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn wants_input(&self) -> bool {
        !self.closing
            && self.parked.is_empty()
            && self.in_flight < 2 * IN_FLIGHT_MAX
            && self.in_flight_bytes.max(self.unsent_bytes) < IN_FLIGHT_BYTES_MAX
    }

    /// The connection failed. On a unix socket a peer ends so if it has not read everything; a network may fail by itself.
    pub(crate) fn note_reset(&mut self) {
        self.reset |= self.stream.crosses_network();
    }

    pub(crate) fn was_reset(&self) -> bool {
        self.reset
    }

    pub(crate) fn wants_output(&self) -> bool {
        !self.outgoing.is_empty() || self.stream.has_unsent()
    }

    pub(crate) fn push(&mut self, outgoing: OutgoingFrame) {
        self.unsent_bytes += outgoing.head.len() + outgoing.data.len();
        self.outgoing.push_back(outgoing);
    }

    /// Sends without blocking.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(front) = self.outgoing.front() {
            let total = front.head.len() + front.data.len();
            let (head, data) = (self.sent.min(front.head.len()), self.sent.saturating_sub(front.head.len()));
            let parts = [IoSlice::new(&front.head[head..]), IoSlice::new(&front.data[data..])];
            let descriptors: Vec<BorrowedFd<'_>> =
                if self.sent == 0 { front.descriptors.iter().map(AsFd::as_fd).collect() } else { Vec::new() };
            match self.stream.send_some(&parts, &descriptors) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if total <= self.sent {
                self.outgoing.pop_front().into_iter().for_each(|sent| buffers::give_back(sent.data));
                self.unsent_bytes -= total;
                self.sent = 0;
            }
        }
        self.stream.flush().map(drop)
    }

    /// The same link with protection from here on.
    pub(crate) fn protected(self, keys: Keys) -> ServiceLink {
        ServiceLink { stream: self.stream.protected(keys), ..self }
    }
}
