//! One connection at the server: bytes in become frames, replies become bytes out, nothing waits.
//!
//! Never: holds more of a client's requests or data than the limits say; such a client is read from again when it has its answers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pario_core::limits::{FRAME_BODY_BYTES_MAX, IN_FLIGHT_MAX};
use pario_net::buffers;
use pario_net::frame::{Assembler, Frame, FrameError, GREETING_BODY_BYTES_MAX};
use pario_net::greeting::{Challenge, Hello};
use pario_net::stream::Stream;
use pario_sys::socket::{self, Blocking};
use rustix::event::epoll::EventFlags;

/// Data of unanswered requests that one client may have here.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;
/// Frames taken from one connection before others get a turn.
const FRAMES_PER_TURN: usize = 64;

/// Descriptors that may wait for the request they belong to.
const DESCRIPTORS_KEPT: usize = 8;

/// Names a connection for its life; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct LinkId(pub(crate) u64);

/// How far the greeting is.
#[derive(Debug)]
pub(crate) enum Greeting {
    /// Nothing heard yet.
    Silent,
    /// Greeted and challenged.
    Challenged(Box<(Hello, Challenge)>),
    /// Proved.
    Ready(Box<Hello>),
}

/// Bytes to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) head: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(crate) greeting: Greeting,
    pub(crate) accepted_at: pario_core::Nanos,
    assembler: Assembler,
    descriptors: VecDeque<OwnedFd>,
    outgoing: VecDeque<Outgoing>,
    sent: usize,
    in_flight: usize,
    in_flight_bytes: usize,
    /// Close as soon as everything is sent.
    pub(crate) closing: bool,
    /// What epoll was last told.
    pub(crate) watched: Cell<EventFlags>,
}

/// What reading a link brought.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) frames: Vec<Frame>,
    /// The peer is gone, or broke the rules.
    pub(crate) end: Option<FrameError>,
}

impl Link {
    pub(crate) fn new(stream: Stream, accepted_at: pario_core::Nanos) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link {
            stream,
            greeting: Greeting::Silent,
            accepted_at,
            assembler: Assembler::default(),
            descriptors: VecDeque::new(),
            outgoing: VecDeque::new(),
            sent: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            closing: false,
            watched: Cell::new(EventFlags::IN),
        })
    }

    pub(crate) fn hello(&self) -> Option<&Hello> {
        match &self.greeting {
            Greeting::Ready(hello) => Some(hello),
            Greeting::Silent | Greeting::Challenged(_) => None,
        }
    }

    /// Reads what is there, in fair portions.
    pub(crate) fn hear(&mut self, scratch: &mut [u8]) -> Heard {
        let mut frames = Vec::new();
        let end = self.hear_into(scratch, &mut frames).err();
        Heard { frames, end }
    }

    fn hear_into(&mut self, scratch: &mut [u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        while frames.len() < FRAMES_PER_TURN && self.wants_input() {
            let mut descriptors = Vec::new();
            let direct = scratch.len() <= self.assembler.target().len();
            let target = if direct { self.assembler.target() } else { &mut *scratch };
            let room = target.len();
            let count = match self.stream.receive(target, &mut descriptors) {
                Ok(0) => return Err(FrameError::Ended),
                Ok(count) => count,
                // A peer that went away without having read all that it was told: nobody is to blame.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
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
                if count < room {
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
            self.accept(frame, frames);
            if bytes.is_empty() {
                return Ok(());
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

    /// A descriptor that came along. Several frames may arrive at once, so it is fetched by the request that needs one.
    pub(crate) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// One of its frames was answered, or needs no answer.
    pub(crate) fn answered(&mut self, data_bytes: usize) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(data_bytes);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn wants_input(&self) -> bool {
        !self.closing && self.in_flight < 2 * IN_FLIGHT_MAX && self.in_flight_bytes < IN_FLIGHT_BYTES_MAX
    }

    pub(crate) fn wants_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.outgoing.push_back(outgoing);
    }

    /// Sends what can be sent now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(front) = self.outgoing.front() {
            let total = front.head.len() + front.data.len();
            let (head, data) = (self.sent.min(front.head.len()), self.sent.saturating_sub(front.head.len()));
            let parts = [IoSlice::new(&front.head[head..]), IoSlice::new(&front.data[data..])];
            let descriptors: Vec<BorrowedFd<'_>> =
                if self.sent == 0 { front.descriptors.iter().map(AsFd::as_fd).collect() } else { Vec::new() };
            match socket::send(self.stream.as_fd(), &parts, &descriptors, Blocking::Never) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if total <= self.sent {
                self.outgoing.pop_front().into_iter().for_each(|sent| buffers::give_back(sent.data));
                self.sent = 0;
            }
        }
        Ok(())
    }
}
