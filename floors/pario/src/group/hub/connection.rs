//! One connection of the hub: received bytes and the send queue.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use pario_sys::socket::{Blocking, PeerCredentials, send};

use crate::group::wire::FrameBuffer;

/// Limit of the send queue of one member: a few large collectives. A member that reads none of them is disconnected.
const UNSENT_BYTES_MAX: usize = 512 << 20;

/// See the module head.
#[derive(Debug)]
pub(super) struct HubConnection {
    pub(super) stream: UnixStream,
    pub(super) inbox: FrameBuffer,
    pub(super) peer: PeerCredentials,
    /// Rank, when the peer has joined.
    pub(super) rank: Option<usize>,
    /// Process descriptor, readable when the process has ended, also while a child of it holds the socket.
    pub(super) process: Option<OwnedFd>,
    /// Whether epoll waits for space to send.
    pub(super) waits_for_space: bool,
    unsent: VecDeque<Arc<[u8]>>,
    /// Bytes of the first frame that are already sent.
    sent: usize,
    unsent_bytes: usize,
}

impl HubConnection {
    pub(super) fn new(stream: UnixStream, peer: PeerCredentials) -> HubConnection {
        HubConnection {
            stream,
            inbox: FrameBuffer::new(),
            peer,
            rank: None,
            process: None,
            waits_for_space: false,
            unsent: VecDeque::new(),
            sent: 0,
            unsent_bytes: 0,
        }
    }

    /// Sends a frame, as much as the socket accepts; returns whether all was sent.
    pub(super) fn send_frame(&mut self, frame: Arc<[u8]>) -> io::Result<bool> {
        self.unsent_bytes += frame.len();
        if UNSENT_BYTES_MAX < self.unsent_bytes {
            return Err(io::Error::other("the member does not read: its send queue is full"));
        }
        self.unsent.push_back(frame);
        if 1 < self.unsent.len() {
            return Ok(false);
        }
        self.flush()
    }

    /// Sends as much as the socket accepts; returns whether all was sent.
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

    /// Process id, for messages.
    pub(super) fn pid(&self) -> u32 {
        self.peer.pid
    }
}
