//! A scripted peer, over every transport.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of test files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::IoSlice;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use pario_core::codec::Encode;
use pario_core::limits::FRAME_BODY_BYTES_MAX;
use pario_core::{Clock, Incarnation, Nanos, PartitionId, ServerIndex, SessionId};
use pario_net::connection::Connection;
use pario_net::frame::{self, Assembler, DataCheck, Frame, FrameKind, PROTOCOL};
use pario_net::greeting::{self, ConnectionPurpose, Hello, Proof, Secret, Welcome};
use pario_net::message::{Reply, Request};
use pario_net::stream::{Address, Stream};
use pario_sys::clock::MonotonicClock;

/// A dead or silent server is reported within this.
pub const LIMIT: Duration = Duration::from_secs(5);
pub const SECRET: Secret = Secret([7; 32]);
pub const ME: (PartitionId, ServerIndex) = (PartitionId([1; 16]), ServerIndex(2));

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Pair,
    Unix,
    Tcp,
    /// Through a server that relays.
    Relayed,
}

pub const KINDS: [Transport; 3] = [Transport::Pair, Transport::Unix, Transport::Tcp];

/// Client's and server's end of a connection.
pub fn ends(kind: Transport) -> (Stream, Stream) {
    match kind {
        Transport::Pair => Stream::pair().unwrap(),
        Transport::Relayed => {
            let (client, server) = Stream::pair().unwrap();
            (client.relayed(), server.relayed())
        }
        Transport::Unix => {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("socket");
            let listener = UnixListener::bind(&path).unwrap();
            let client = Stream::connect(&Address::Unix(path)).unwrap();
            (client, Stream::Unix(listener.accept().unwrap().0))
        }
        Transport::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = Stream::connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
            (client, Stream::Tcp(listener.accept().unwrap().0))
        }
    }
}

pub fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        partition: ME.0,
        server: ME.1,
        session: SessionId(3),
        purpose: ConnectionPurpose::Requests {},
        host: "here".into(),
        pid: 4,
        start_ticks: 5,
        program: "test".into(),
        application: "test".into(),
        weight: 1,
        relay: false,
        protect: false,
        nonce: greeting::nonce(),
    }
}

/// The server's end, scripted by a test.
pub struct ScriptedPeer {
    pub stream: Stream,
    assembler: Assembler,
    pub descriptors: Vec<OwnedFd>,
}

impl ScriptedPeer {
    pub fn new(stream: Stream) -> ScriptedPeer {
        ScriptedPeer { stream, assembler: Assembler::default(), descriptors: Vec::new() }
    }

    /// The next frame; `None` when the client hung up.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            assert!(self.stream.wait_readable(Duration::from_secs(20)).unwrap(), "the client sends nothing");
            let count = match self.stream.receive(self.assembler.target(), &mut self.descriptors) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => return None,
            };
            if let Some(frame) = self.assembler.advance(count, FRAME_BODY_BYTES_MAX).unwrap() {
                return Some(frame);
            }
        }
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        self.stream.send_all(&mut [IoSlice::new(bytes)], &[]).unwrap();
    }

    pub fn send<T: Encode>(&self, kind: FrameKind, request: u64, message: &T) {
        self.send_bytes(&frame::seal(kind, request, message, &[], DataCheck::None));
    }

    pub fn reply(&self, request: u64, reply: &Reply, data: &[u8]) {
        self.send_bytes(&sealed_reply(request, reply, data, self.stream.data_check()));
    }

    pub fn reply_with(&self, request: u64, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        let bytes = frame::seal(FrameKind::Reply, request, reply, &[], DataCheck::None);
        self.stream.send_all(&mut [IoSlice::new(&bytes)], descriptors).unwrap();
    }

    /// The server's half of an honest handshake.
    pub fn welcome(&mut self) {
        let hello: Hello = self.frame().unwrap().message().unwrap();
        let challenge = greeting::challenge(&SECRET, &hello, ME).unwrap();
        self.send(FrameKind::Challenge, 0, &challenge);
        let proof: Proof = self.frame().unwrap().message().unwrap();
        greeting::verify(&SECRET, &hello, &challenge, &proof).unwrap();
        self.send(FrameKind::Welcome, 0, &welcome());
    }

    /// The next request and its number.
    pub fn request(&mut self) -> Option<(u64, Request, Vec<u8>)> {
        let frame = self.frame()?;
        Some((frame.head.request, frame.message().unwrap(), frame.data))
    }
}

pub fn welcome() -> Welcome {
    Welcome { incarnation: Incarnation(1), volatile: false, lends: true, ..any_welcome() }
}

/// A welcome with any fields: decoded from zeros, so that new fields need no change here.
fn any_welcome() -> Welcome {
    (0..64)
        .find_map(|bytes| pario_core::codec::from_bytes(&vec![0; bytes]).ok())
        .expect("zeros of the right length are a welcome")
}

pub fn sealed_reply(request: u64, reply: &Reply, data: &[u8], check: DataCheck) -> Vec<u8> {
    let mut bytes = frame::seal(FrameKind::Reply, request, reply, &[data], check);
    bytes.extend_from_slice(data);
    bytes
}

/// A greeted connection with a server's end that runs `serve` on a separate thread.
pub fn connect(
    kind: Transport,
    serve: impl FnOnce(ScriptedPeer) + Send + 'static,
) -> (Connection, std::thread::JoinHandle<()>) {
    let (ours, theirs) = ends(kind);
    let thread = std::thread::spawn(move || {
        let mut peer = ScriptedPeer::new(theirs);
        peer.welcome();
        serve(peer);
    });
    let connection = Connection::greet(ours, format!("{kind:?} place"), &hello(), &SECRET).unwrap();
    (connection, thread)
}

/// Duration of `work`.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started: Nanos = MonotonicClock.now();
    let result = work();
    (result, MonotonicClock.now().since(started))
}
