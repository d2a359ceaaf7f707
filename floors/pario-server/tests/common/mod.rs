//! A real server with raw connections to it: an honest client to see that it lives, and whatever a liar needs.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part")]
#![allow(unreachable_pub, reason = "a module of test files")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

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
use pario_net::greeting::{self, Challenge, Hello, Purpose, Secret, random_number};
use pario_net::message::Request;
use pario_net::outbox::{Cursor, Outbox, RecordMeta};
use pario_net::stream::Stream;
use pario_server::stores::{StoreChoice, names_in};
use pario_server::{Server, ServerSpec};
use pario_sys::clock::MonotonicClock;

pub const SECRET: Secret = Secret([9; 32]);
pub const PARTITION: PartitionId = PartitionId([4; 16]);
/// Everything that a server does to a liar is done by then.
pub const LIMIT: Duration = Duration::from_secs(10);

/// A server that is the manager of a partition of its own, in memory.
pub struct World {
    pub server: Server,
    _dir: tempfile::TempDir,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreChoice::Memory { bytes: 64 << 20 }.open().unwrap();
        let layout = layout();
        let server = Server::start(ServerSpec {
            partition: PARTITION,
            name: "test".into(),
            index: ServerIndex(0),
            servers: 1,
            secret: SECRET,
            store: store.store,
            volatile: store.volatile,
            lends: store.lends,
            lends_writing: store.lends_writing,
            names: Some(names_in(&dir.path().join("names"), layout)),
            outbox_bytes: 256 << 10,
            transfer_bytes: 1 << 20,
            lives: None,
            take_before_read: false,
            scheduler: pario_server::SchedulerSpec::default(),
            unix: None,
            tcp: Some(([127, 0, 0, 1], 0).into()),
        })
        .unwrap();
        World { server, _dir: dir }
    }

    pub fn connect(&self) -> Connection {
        let stream = self.server.connect().unwrap();
        Connection::greet(stream, "test".into(), &hello(), &SECRET).unwrap()
    }

    /// A connection of frames, greeted.
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
        purpose: Purpose::Requests {},
        host: "here".into(),
        pid: std::process::id(),
        start_ticks: 5,
        program: "test".into(),
        application: "test".into(),
        weight: 1,
        relay: false,
        nonce: greeting::nonce(),
    }
}

/// A connection whose frames a test makes itself.
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

    /// The next frame; `None` when the server hung up.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            assert!(self.stream.wait_readable(LIMIT).unwrap(), "the server neither answers nor hangs up");
            if let Some(frame) = self.take()? {
                return Some(frame);
            }
        }
    }

    /// What has come, without waiting: `None` at the end of the connection, `Some(None)` when there is no frame yet.
    #[expect(clippy::option_option, reason = "ended, nothing, something")]
    fn take(&mut self) -> Option<Option<Frame>> {
        match self.stream.receive(self.assembler.target(), &mut Vec::new()) {
            Ok(0) => None,
            Ok(count) => Some(self.assembler.advance(count, FRAME_BODY_BYTES_MAX).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(None),
            Err(_) => None,
        }
    }
}

/// A client that keeps the rules, on its own connection and outbox.
pub struct Honest {
    connection: Connection,
    outbox: Outbox,
    inode: u64,
    round: u8,
}

impl Honest {
    pub fn new(world: &World, inode: u64) -> Honest {
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
            moved: 0,
            offset: 0,
            companions: 0,
        };
        let end = self.outbox.commit(meta, &data, &patient).unwrap();
        self.outbox.wait_taken(ServerIndex(0), end, &patient).unwrap();
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

/// A server that does its work does it within the limit.
pub fn patient(server: ServerIndex, waited: Duration) -> Result<(), Fault> {
    assert!(waited < LIMIT, "server {server} takes nothing");
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

/// Chance that can be repeated (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.next() % len as u64).unwrap()
    }
}
