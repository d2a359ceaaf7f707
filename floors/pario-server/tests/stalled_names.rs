//! A disk of names that does not complete a write delays requests for names only: reads and writes of an open file, probes and new
//! connections of the same server are answered meanwhile.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use common::{LIMIT, ServerFixture, layout};
use pario_core::limits::{IN_FLIGHT_MAX, TASKS_WAITING_MAX};
use pario_core::{Fault, FileAttr, LocalOffset, ObjectId, Space, Striping};
use pario_net::connection::Connection;
use pario_net::message::{At, Creator, NameReply, NameRequest, OpenHow, Reply, Request};
use pario_net::protect::Protect;
use pario_server::store::disk::{Disk, DiskFile, EntryKind, OpenMode};
use pario_server::stores::names_in;
use pario_server::{NamesSpec, Server, ServerSpec};
use pario_sys::MemoryPiece;

/// Writes wait while it is closed.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    waiting: usize,
}

impl Gate {
    fn set_closed(&self, closed: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.changed.notify_all();
        while state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    /// Waits until a write waits.
    fn await_writer(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| state.waiting == 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[derive(Debug)]
struct StalledDisk {
    disk: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct StalledFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl StalledDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(StalledFile { file, gate: Arc::clone(&self.gate) })
    }
}

impl Disk for StalledDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.disk.open(path, mode)?))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.disk.open_direct(path, mode)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.make_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        self.disk.list_dir(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        self.disk.length(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_all(path)
    }
}

impl DiskFile for StalledFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.write_pieces_at(pieces, offset)
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn create(connection: &Connection, name: &str) -> Result<FileAttr, Fault> {
    let how = OpenHow { create: true, write: true, ..OpenHow::default() };
    let creator = Creator { mode: 0o600, uid: 1, gid: 1 };
    let request = NameRequest::Open { at: At::root(name), how, creator, striping: Striping::default() };
    let reply = connection.call(&Request::Name { request })?.reply;
    let Reply::Name { reply: NameReply::Attr { attr } } = reply else { panic!("{reply:?}") };
    Ok(attr)
}

fn write(connection: &Connection, object: ObjectId, bytes: &[u8]) -> Result<(), Fault> {
    let ticket = connection.start(&Request::Write { object, at: LocalOffset(0) }, &[bytes], &[])?;
    connection.wait(ticket, None).map(drop)
}

/// A probe, a write, a read and a new connection.
fn use_server(fixture: &ServerFixture, user: &Connection, object: ObjectId) -> Result<Vec<u8>, Fault> {
    user.call(&Request::Ping {})?;
    write(user, object, b"new bytes")?;
    let read = user.call(&Request::Read { object, at: LocalOffset(0), bytes: 64 })?;
    fixture.connect().call(&Request::Ping {})?;
    Ok(read.data)
}

/// A server with a gate before the disk of its names.
fn gated() -> (ServerFixture, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let dir = tempfile::tempdir().unwrap();
    let names = names_in(&dir.path().join("names"), layout());
    let disk = Arc::new(StalledDisk { disk: Arc::clone(&names.disk), gate: Arc::clone(&gate) });
    let spec = ServerSpec {
        names: Some(NamesSpec { disk, ..names }),
        ..ServerFixture::spec(dir.path(), Protect::default())
    };
    (ServerFixture::of(Server::start(spec).unwrap(), dir), gate)
}

#[test]
fn a_stalled_disk_of_names_delays_no_open_file_and_no_probe() {
    let (fixture, gate) = gated();
    let (user, other) = (fixture.connect(), fixture.connect());
    let attr = create(&user, "open").unwrap();
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    write(&user, object, b"old bytes").unwrap();
    gate.set_closed(true);
    let (done, result) = crossbeam_channel::bounded(1);
    let (used, made) = std::thread::scope(|threads| {
        let making = threads.spawn(|| create(&other, "new"));
        let stalled = gate.await_writer();
        threads.spawn(|| done.send(use_server(&fixture, &user, object)));
        let used = result.recv_timeout(LIMIT);
        let waits = !making.is_finished();
        // Opened before any check: the server ends only with its disk.
        gate.set_closed(false);
        assert!(stalled && waits, "the new name waits for the disk");
        (used, making.join().unwrap())
    });
    let used = used.expect("the server answers while the disk of the names is stalled");
    assert_eq!(used.unwrap(), b"new bytes");
    assert_ne!(made.unwrap().inode, attr.inode);
    let twice = create(&other, "open").map(|found| found.inode);
    assert_eq!(twice, Ok(attr.inode), "names are served again");
}

/// More requests than the manager's queue may hold: the rest waits in the connections, other clients are served, and all are answered.
#[test]
fn a_full_queue_of_the_manager_delays_no_other_client_and_loses_no_request() {
    let (fixture, gate) = gated();
    let (user, first) = (fixture.connect(), fixture.connect());
    let attr = create(&user, "open").unwrap();
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    let flood: Vec<Connection> =
        (0..2 * TASKS_WAITING_MAX / IN_FLIGHT_MAX).map(|_| fixture.connect()).collect();
    gate.set_closed(true);
    let stat = Request::Name { request: NameRequest::Stat { at: At::root("open"), follow: true } };
    std::thread::scope(|threads| {
        let making = threads.spawn(|| create(&first, "new"));
        let stalled = gate.await_writer();
        let start = |client: &Connection| -> Vec<_> {
            (0..IN_FLIGHT_MAX).map(|_| client.start(&stat, &[], &[]).unwrap()).collect()
        };
        let tickets: Vec<_> = flood.iter().map(start).collect();
        let used = use_server(&fixture, &user, object);
        gate.set_closed(false);
        assert!(stalled, "the new name waits for the disk");
        assert_eq!(used.unwrap(), b"new bytes");
        for (client, tickets) in flood.iter().zip(tickets) {
            for ticket in tickets {
                let reply = client.wait(ticket, None).unwrap().reply;
                assert!(
                    matches!(reply, Reply::Name { reply: NameReply::Attr { attr: found } } if found.inode == attr.inode)
                );
            }
        }
        making.join().unwrap().unwrap();
    });
}
