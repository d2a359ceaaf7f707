//! One connection to the hub: what was read of it and what is still to be sent.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pario_sys::socket::{Blocking, PeerCredentials, send};

use crate::group::wire::Inbox;

/// What may wait for one member: the ends of a few large rounds. A member that takes none of it is no member.
const UNSENT_BYTES_MAX: usize = 512 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) stream: UnixStream,
    pub(super) inbox: Inbox,
    pub(super) peer: PeerCredentials,
    /// Its place, once it has joined.
    pub(super) rank: Option<usize>,
    /// Readable when the process has ended, also while a child of its holds the socket.
    pub(super) process: Option<OwnedFd>,
    /// Whether the loop looks for room to send.
    pub(super) waits_for_room: bool,
    unsent: VecDeque<Arc<[u8]>>,
    /// Bytes of the first that are gone.
    sent: usize,
    unsent_bytes: usize,
}

impl Guest {
    pub(super) fn new(stream: UnixStream, peer: PeerCredentials) -> Guest {
        Guest {
            stream,
            inbox: Inbox::new(),
            peer,
            rank: None,
            process: None,
            waits_for_room: false,
            unsent: VecDeque::new(),
            sent: 0,
            unsent_bytes: 0,
        }
    }

    /// Sends a frame, or what goes of it; whether all of it went.
    pub(super) fn tell(&mut self, frame: Arc<[u8]>) -> io::Result<bool> {
        self.unsent_bytes += frame.len();
        if UNSENT_BYTES_MAX < self.unsent_bytes {
            return Err(io::Error::other("it does not read what it is told"));
        }
        self.unsent.push_back(frame);
        if 1 < self.unsent.len() {
            return Ok(false);
        }
        self.flush()
    }

    /// Sends what goes; whether all of it went.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        while let Some(first) = self.unsent.front() {
            let rest = IoSlice::new(&first[self.sent..]);
            match send(self.stream.as_fd(), &[rest], &[], Blocking::Never) {
                Ok(count) => {
                    self.sent += count;
                    self.unsent_bytes -= count;
                    if self.sent == first.len() {
                        self.unsent.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Its process's number, for people.
    pub(super) fn pid(&self) -> u32 {
        self.peer.pid
    }
}
