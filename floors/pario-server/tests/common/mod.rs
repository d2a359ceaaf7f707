//! A real server with raw connections to it: an honest client that checks it, and helpers for protocol violations.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of test files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

pub mod proxy;

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;

use pario_core::codec::Encode;
use pario_core::limits::FRAME_BODY_BYTES_MAX;
use pario_core::{
    Clock, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, PartitionId, ServerIndex, SessionId,
};
use pario_net::connection::Connection;
use pario_net::frame::{self, Assembler, DataCheck, Frame, FrameKind, PROTOCOL};
use pario_net::greeting::{self, Challenge, ConnectionPurpose, Hello, Secret, random_number};
use pario_net::message::Request;
use pario_net::outbox::{Cursor, Outbox, RecordMeta};
use pario_net::protect::Protect;
use pario_net::stream::Stream;
use pario_server::stores::{StoreChoice, names_in};
use pario_server::{Server, ServerIdentity, ServerSpec};
use pario_sys::clock::MonotonicClock;

pub const SECRET: Secret = Secret([9; 32]);
pub const PARTITION: PartitionId = PartitionId([4; 16]);
/// Upper bound of the server's reaction to a protocol violation.
pub const LIMIT: Duration = Duration::from_secs(10);

/// A server that is the manager of a partition of its own, in memory.
pub struct ServerFixture {
    pub server: Server,
    _dir: tempfile::TempDir,
}

impl ServerFixture {
    pub fn new() -> ServerFixture {
        ServerFixture::with(Protect::default())
    }

    pub fn with(protect: Protect) -> ServerFixture {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(ServerFixture::spec(dir.path(), protect)).unwrap();
        ServerFixture { server, _dir: dir }
    }

    /// A running server, and the directory that ends with it.
    pub fn of(server: Server, dir: tempfile::TempDir) -> ServerFixture {
        ServerFixture { server, _dir: dir }
    }

    /// Configuration of such a server.
    pub fn spec(dir: &std::path::Path, protect: Protect) -> ServerSpec {
        let store = StoreChoice::Memory { bytes: 64 << 20 }.open().unwrap();
        let identity = ServerIdentity {
            partition: PARTITION,
            name: "test".into(),
            index: ServerIndex(0),
            servers: 1,
            secret: SECRET,
        };
        ServerSpec {
            protect,
            names: Some(names_in(&dir.join("names"), layout())),
            outbox_bytes: 256 << 10,
            tcp: Some(([127, 0, 0, 1], 0).into()),
            ..ServerSpec::new(identity, store)
        }
    }

    pub fn connect(&self) -> Connection {
        let stream = self.server.connect().unwrap();
        Connection::greet(stream, "test".into(), &hello(), &SECRET).unwrap()
    }

    /// A raw connection of frames, greeted.
    pub fn raw(&self) -> Raw {
        let mut raw = Raw::new(self.server.connect().unwrap());
        let hello = hello();
        raw.send(FrameKind::Hello, &hello);
        let challenge: Challenge = raw.frame().unwrap().message().unwrap();
        raw.send(FrameKind::Proof, &greeting::answer(&SECRET, &hello, &challenge).unwrap());
        assert_eq!(raw.frame().unwrap().head.kind, FrameKind::Welcome);
        raw
    }
}

pub fn layout() -> Layout {
    Layout::new(64 << 10, 1, 0, 1).unwrap()
}

pub fn object(inode: u64) -> ObjectId {
    ObjectId { inode: InodeId(inode), generation: Generation(0) }
}

pub fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        partition: PARTITION,
        server: ServerIndex(0),
        session: SessionId(random_number()),
        purpose: ConnectionPurpose::Requests {},
        host: "here".into(),
        pid: std::process::id(),
        start_ticks: 5,
        program: "test".into(),
        application: "test".into(),
        weight: 1,
        relay: false,
        protect: false,
        nonce: greeting::nonce(),
    }
}

/// A connection with frames made by the test itself.
pub struct Raw {
    pub stream: Stream,
    assembler: Assembler,
}

impl Raw {
    pub fn new(stream: Stream) -> Raw {
        Raw { stream, assembler: Assembler::default() }
    }

    pub fn send<T: Encode>(&mut self, kind: FrameKind, message: &T) {
        self.send_bytes(&frame::seal(kind, 1, message, &[], DataCheck::None)).unwrap();
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.send_all(&mut [IoSlice::new(bytes)], &[])
    }

    /// The next frame; `None` when the server closed the connection.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            assert!(self.stream.wait_readable(LIMIT).unwrap(), "the server neither answers nor hangs up");
            if let Some(frame) = self.take()? {
                return Some(frame);
            }
        }
    }

    /// Received frames, without waiting: `None` at the end of the connection, `Some(None)` when there is no frame yet.
    #[expect(clippy::option_option, reason = "ended, no frame yet, a frame")]
    fn take(&mut self) -> Option<Option<Frame>> {
        match self.stream.receive(self.assembler.target(), &mut Vec::new()) {
            Ok(0) => None,
            Ok(count) => Some(self.assembler.advance(count, FRAME_BODY_BYTES_MAX).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(None),
            Err(_) => None,
        }
    }
}

/// A client that keeps the protocol, on its own connection and outbox.
pub struct Honest {
    connection: Connection,
    outbox: Outbox,
    inode: u64,
    round: u8,
}

impl Honest {
    pub fn new(world: &ServerFixture, inode: u64) -> Honest {
        let connection = world.connect();
        let outbox = Outbox::create(256 << 10, 1).unwrap();
        let attached = offer(&connection, &outbox).unwrap();
        assert!(attached.may_write_behind(pario_core::InodeId(1)));
        Honest { connection, outbox, inode, round: 0 }
    }

    /// Writes by record and by message and reads both back.
    pub fn check(&mut self) {
        self.round = self.round.wrapping_add(1);
        let data = vec![self.round; 10_000];
        let meta = RecordMeta {
            object: object(self.inode),
            layout: layout(),
            view: 0,
            displacement: 0,
            offset: 0,
            local_writers: 0,
        };
        let end = self.outbox.commit(meta, &data, &within_limit).unwrap();
        self.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
        let request = Request::Write { object: object(self.inode), at: LocalOffset(20_000) };
        let ticket = self.connection.start(&request, &[&data], &[]).unwrap();
        self.connection.wait(ticket, None).unwrap();
        for at in [0, 20_000] {
            let request = Request::Read { object: object(self.inode), at: LocalOffset(at), bytes: 10_000 };
            let answer = self.connection.call(&request).unwrap();
            assert!(answer.data == data, "the honest client reads what it wrote");
        }
    }
}

/// A working server finishes within the limit.
pub fn within_limit(server: ServerIndex, waited: Duration) -> Result<(), Fault> {
    assert!(waited < LIMIT, "server {server} drains nothing");
    Ok(())
}

pub fn offer(connection: &Connection, outbox: &Outbox) -> Result<std::sync::Arc<Cursor>, Fault> {
    let attached = outbox.attach(ServerIndex(0), |from| {
        let descriptor = outbox.descriptor().as_fd();
        let ticket = connection.start(&Request::OfferOutbox { from }, &[], &[descriptor])?;
        let mut answer = connection.wait(ticket, None)?;
        let doorbell = answer.descriptors.pop().expect("a doorbell");
        let page = answer.descriptors.pop().expect("a cursor");
        Cursor::attach(ServerIndex(0), page, doorbell)
    })?;
    Ok(attached.cursor)
}

/// Waits until the server has ended the connection.
pub fn is_ended(connection: &Connection) -> bool {
    let began = MonotonicClock.now();
    while MonotonicClock.now().since(began) < LIMIT {
        if connection.call(&Request::Ping {}).is_err() {
            return true;
        }
    }
    false
}
