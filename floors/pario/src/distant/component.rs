//! A file at one home, and the three ways to its bytes.
//!
//! | way | home is | read and write |
//! |---|---|---|
//! | own | this process | its own descriptor |
//! | near | another process of this node | a lent descriptor |
//! | far | on another node | one message |
//!
//! Never: leases, locks, intents, records; caches bytes. Always: a write that is complete is in the home's file.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use pario_core::{Clock, Code, Fault, Generation, InodeId, LocalOffset, ObjectId};
use pario_net::connection::Connection;
use pario_net::message::{Reply, Request};
use pario_server::store::Store;
use pario_sys::piece::PIECES_PER_CALL_MAX;
use pario_sys::{BufferPart, MemoryPiece, MonotonicClock, read_exact_or_end_at, write_pieces_at};
use rustix::io::ReadWriteFlags;

use super::counts::{FileCounters, add};
use super::home_call::{FileAccess, FileRef, HomeCall};
use super::home_store::{AdoptedFile, check_access};
use super::homes::Homes;
use super::request::{PartProgress, SentPart};
use super::workers::{JobEnd, JobResult};

/// Transfers up to this are made by the caller of a start, larger ones by a worker.
pub(super) const BY_CALLER_MAX: usize = 1 << 20;

/// Far writes from this size on are sent by a worker: the copy into the socket is most of their time.
pub(super) const SENT_BEHIND_MIN: usize = 256 << 10;
/// Answers from this size on are received by a worker: smaller ones fit into the buffers of a socket.
const RECEIVED_MIN: usize = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Component {
    homes: Arc<Homes>,
    /// Number of the home; `None`: a plain file that all members share.
    home: Option<usize>,
    object: ObjectId,
    access: FileAccess,
    /// Rank, host and directory, for messages.
    place: String,
    way: OnceLock<Way>,
    counters: Arc<FileCounters>,
}

/// A way to the bytes.
#[derive(Debug)]
enum Way {
    Own(Arc<AdoptedFile>),
    /// The own store, with a limit of its speed.
    OwnLimited(Arc<dyn Store>),
    Near(File),
    Far,
}

/// Data of a write, in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a>(pub(super) &'a [&'a [u8]]);

impl Source<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|piece| piece.len()).sum()
    }
}

impl Component {
    pub(super) fn new(
        homes: &Arc<Homes>,
        file: FileRef,
        counters: &Arc<FileCounters>,
    ) -> Result<Component, Fault> {
        let number = homes.number_of(file.rank)?;
        Ok(Component {
            home: Some(number),
            place: homes.place(number, None),
            homes: Arc::clone(homes),
            object: ObjectId { inode: file.inode(), generation: Generation(0) },
            access: file.access,
            way: OnceLock::new(),
            counters: Arc::clone(counters),
        })
    }

    /// The same file, in this directory of its home.
    pub(super) fn in_dir(mut self, dir: &str) -> Component {
        if let Some(number) = self.home {
            self.place = self.homes.place(number, Some(dir));
        }
        self
    }

    /// A plain file that all members have opened.
    pub(super) fn plain(homes: &Arc<Homes>, file: File, counters: &Arc<FileCounters>) -> Component {
        Component {
            homes: Arc::clone(homes),
            home: None,
            place: format!("rank {}", homes.rank),
            object: ObjectId { inode: InodeId(0), generation: Generation(0) },
            access: FileAccess { readable: true, writable: true },
            way: OnceLock::from(Way::Near(file)),
            counters: Arc::clone(counters),
        }
    }

    pub(super) fn file_ref(&self) -> Option<FileRef> {
        let rank = self.homes.home(self.home?).rank;
        Some(FileRef { rank, number: self.object.inode.0, access: self.access })
    }

    pub(super) fn home_number(&self) -> Option<usize> {
        self.home
    }

    /// The fault with its place and, for an access, the bytes.
    pub(super) fn at(&self, fault: Fault) -> Fault {
        match self.home {
            Some(home) => self.homes.at(home, fault),
            None => fault,
        }
    }

    /// A fault of an access, in one line: what, where, how much. `at`: the offset in the whole file.
    pub(super) fn access_fault(&self, fault: Fault, bytes: usize, at: u64) -> Fault {
        let Fault { code, text } = fault;
        let text = text.replace(&format!("{}: ", self.place), "");
        Fault::new(code, format!("{}: {}, {bytes} bytes at {at}: {text}", code.text(), self.place))
    }

    /// Prepares the way, so that later accesses need the home for data only.
    pub(super) fn prepare(&self) -> Result<(), Fault> {
        self.way().map(|_| ()).map_err(|fault| self.at(fault))
    }

    fn way(&self) -> Result<&Way, Fault> {
        self.homes.check_process()?;
        if let Some(way) = self.way.get() {
            return Ok(way);
        }
        let found = self.find_way()?;
        Ok(self.way.get_or_init(|| found))
    }

    fn find_way(&self) -> Result<Way, Fault> {
        let Some(number) = self.home else { return Ok(Way::Far) };
        let home = self.homes.home(number);
        if home.rank == self.homes.rank
            && let (Some(own), Some(store)) = (self.homes.own(), self.homes.own_store())
        {
            return match self.homes.is_limited {
                true => Ok(Way::OwnLimited(Arc::clone(store))),
                false => Ok(Way::Own(own.file(self.object.inode)?)),
            };
        }
        if !home.is_near {
            return Ok(Way::Far);
        }
        let link = self.homes.link(number)?;
        if !link.shares_memory() || !link.welcome().lends {
            return Ok(Way::Far);
        }
        add(&self.counters.lend_messages, 1);
        let mut lent = link.call(&Request::Lend { object: self.object, write: self.access.writable })?;
        match lent.descriptors.pop() {
            Some(fd) if lent.reply == (Reply::Lent {}) => Ok(Way::Near(File::from(fd))),
            Some(_) | None => Ok(Way::Far),
        }
    }

    /// The descriptor of this process, and whether the file is its own.
    fn descriptor(&self) -> Result<Option<BorrowedFd<'_>>, Fault> {
        Ok(match self.way()? {
            Way::Own(file) => Some(file.as_fd()),
            Way::Near(file) => Some(file.as_fd()),
            Way::OwnLimited(_) | Way::Far => None,
        })
    }

    fn count_way(&self, way: &Way) {
        match way {
            Way::Own(_) | Way::OwnLimited(_) => add(&self.counters.own, 1),
            Way::Near(_) => add(&self.counters.near, 1),
            Way::Far => {
                add(&self.counters.far, 1);
                add(&self.counters.data_messages, 1);
            }
        }
    }

    /// Reads into one buffer without a message, if the way allows that.
    pub(super) fn read_here(&self, at: u64, target: &mut [u8]) -> Result<Option<usize>, Fault> {
        check_access(self.access.readable, Code::NotReadable, "reading")?;
        let way = self.way()?;
        let fd = match way {
            Way::Own(file) => file.as_fd(),
            Way::Near(file) => file.as_fd(),
            Way::OwnLimited(store) => {
                self.count_way(way);
                return Ok(Some(store.read(self.object, LocalOffset(at), target)?));
            }
            Way::Far => return Ok(None),
        };
        self.count_way(way);
        read_exact_or_end_at(fd, target, at).map(Some).map_err(|error| Fault::from_io(&error, "reading"))
    }

    /// Writes without a message, if the way allows that.
    pub(super) fn write_here(&self, at: u64, source: Source<'_>) -> Result<bool, Fault> {
        check_access(self.access.writable, Code::NotWritable, "writing")?;
        let way = self.way()?;
        let fd = match way {
            Way::Own(file) => file.as_fd(),
            Way::Near(file) => file.as_fd(),
            Way::OwnLimited(store) => {
                self.count_way(way);
                let pieces: Vec<MemoryPiece<'_>> = source.0.iter().map(|piece| (*piece).into()).collect();
                store.write(self.object, LocalOffset(at), &pieces)?;
                return Ok(true);
            }
            Way::Far => return Ok(false),
        };
        self.count_way(way);
        let failed = |error: std::io::Error| Fault::from_io(&error, "writing");
        match source.0 {
            [one] => write_pieces_at(fd, &[MemoryPiece::from(*one)], at).map_err(failed)?,
            several => {
                let pieces: Vec<MemoryPiece<'_>> = several.iter().map(|piece| (*piece).into()).collect();
                write_pieces_at(fd, &pieces, at).map_err(failed)?;
            }
        }
        Ok(true)
    }

    /// Starts a read that the caller waits for later: a worker receives a large answer meanwhile.
    pub(super) fn start_behind(self: &Arc<Self>, at: u64, part: BufferPart) -> Result<PartProgress, Fault> {
        let is_large = RECEIVED_MIN <= part.len();
        let started = self.start_read(at, part)?;
        if let PartProgress::Sent(sent) = &started
            && is_large
        {
            let (link, number) = (Arc::clone(&sent.link), Connection::number_of(&sent.ticket));
            self.homes.workers.run(Box::new(move || link.read_answer(number)))?;
        }
        Ok(started)
    }

    /// Starts a read; does not wait for a disk or a home.
    pub(super) fn start_read(self: &Arc<Self>, at: u64, mut part: BufferPart) -> Result<PartProgress, Fault> {
        check_access(self.access.readable, Code::NotReadable, "reading")?;
        let way = self.way()?;
        if let Way::Far = way {
            let number = self.home.ok_or_else(|| Fault::from(Code::Closed))?;
            let link = self.homes.link(number)?;
            self.homes.wait_for_room(&link)?;
            let bytes = u32::try_from(part.len()).map_err(|_| Fault::from(Code::TooLarge))?;
            self.count_way(way);
            let began = MonotonicClock.now();
            let request = Request::Read { object: self.object, at: LocalOffset(at), bytes };
            let ticket = link.start_into(&request, part)?;
            return Ok(PartProgress::Sent(SentPart { link, ticket, began }));
        }
        if part.len() <= BY_CALLER_MAX
            && let Some(fd) = self.descriptor()?
            && let Some(count) = read_now(fd, &mut part, at)
        {
            self.count_way(way);
            return Ok(PartProgress::Done(Ok(count)));
        }
        let (result, component) = (Arc::new(JobResult::default()), Arc::clone(self));
        let end = JobEnd(Arc::clone(&result));
        self.homes.workers.run(Box::new(move || {
            let read = component.read_part(at, &mut part);
            // The buffer is complete, and its owner may take it back, before the result is seen.
            drop(part);
            end.set(read);
        }))?;
        Ok(PartProgress::Job(result))
    }

    /// Reads a part, not by message; one system call unless the file ends in it.
    pub(super) fn read_part(&self, at: u64, part: &mut BufferPart) -> Result<usize, Fault> {
        check_access(self.access.readable, Code::NotReadable, "reading")?;
        let Some(fd) = self.descriptor()? else {
            let mut count = 0;
            for piece in part.pieces() {
                let read = self.read_here(at + count as u64, piece)?;
                let read = read.ok_or_else(|| Fault::new(Code::Io, "a far part on a worker"))?;
                count += read;
                if read < piece.len() {
                    break;
                }
            }
            return Ok(count);
        };
        self.count_way(self.way()?);
        read_vectors(fd, part, at).map_err(|error| Fault::from_io(&error, "reading"))
    }

    /// Sends a write; the caller waits for the answer.
    pub(super) fn send_write(&self, at: u64, source: Source<'_>) -> Result<SentPart, Fault> {
        let number = self.home.ok_or_else(|| Fault::from(Code::Closed))?;
        let link = self.homes.link(number)?;
        self.homes.wait_for_room(&link)?;
        self.count_way(&Way::Far);
        let began = MonotonicClock.now();
        let ticket =
            link.start(&Request::Write { object: self.object, at: LocalOffset(at) }, source.0, &[])?;
        Ok(SentPart { link, ticket, began })
    }

    /// Runs a write on a worker.
    pub(super) fn write_behind(
        self: &Arc<Self>,
        work: impl FnOnce(&Component) -> Result<usize, Fault> + Send + 'static,
    ) -> Result<PartProgress, Fault> {
        let (result, component) = (Arc::new(JobResult::default()), Arc::clone(self));
        let end = JobEnd(Arc::clone(&result));
        self.homes.workers.run(Box::new(move || end.set(work(&component))))?;
        Ok(PartProgress::Job(result))
    }

    /// The length of the file at its home, or the question for it.
    pub(super) fn start_length(&self) -> Result<Result<u64, SentPart>, Fault> {
        let failed = |error: std::io::Error| Fault::from_io(&error, "examining");
        match self.way()? {
            Way::Own(file) => length_of(file.as_fd()).map(Ok).map_err(failed),
            Way::Near(file) => length_of(file.as_fd()).map(Ok).map_err(failed),
            Way::OwnLimited(store) => Ok(Ok(store.length(self.object)?.unwrap_or(0))),
            Way::Far => {
                let number = self.home.ok_or_else(|| Fault::from(Code::Closed))?;
                let link = self.homes.link(number)?;
                add(&self.counters.other_messages, 1);
                let began = MonotonicClock.now();
                let ticket = link.start(&Request::Measure { object: self.object }, &[], &[])?;
                Ok(Err(SentPart { link, ticket, began }))
            }
        }
    }

    /// The answer to [`Component::start_length`].
    pub(super) fn finish_length(&self, started: Result<u64, SentPart>) -> Result<u64, Fault> {
        let sent = match started {
            Ok(length) => return Ok(length),
            Err(sent) => sent,
        };
        let reply = sent.link.wait(sent.ticket, None)?.reply;
        let Reply::Length { bytes, .. } = reply else {
            return Err(Fault::new(Code::Protocol, format!("unexpected reply {reply:?} to a length")));
        };
        Ok(bytes)
    }

    /// Sets the length.
    pub(super) fn truncate(&self, bytes: u64) -> Result<(), Fault> {
        check_access(self.access.writable, Code::NotWritable, "writing")?;
        if let Some(fd) = self.descriptor()? {
            let cut = rustix::fs::ftruncate(fd, bytes);
            return cut.map_err(|error| self.at(Fault::from_io(&error.into(), "cutting")));
        }
        let number = self.home.ok_or_else(|| Fault::from(Code::Closed))?;
        add(&self.counters.other_messages, 1);
        self.homes.call(number, HomeCall::Truncate { number: self.object.inode.0, bytes }).map(|_| ())
    }

    /// Puts the bytes on stable storage.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        if let Some(fd) = self.descriptor()? {
            let synced = rustix::fs::fdatasync(fd);
            return synced.map_err(|error| self.at(Fault::from_io(&error.into(), "syncing")));
        }
        if let Way::OwnLimited(store) = self.way()? {
            return store.sync(self.object).map_err(|error| self.at(Fault::from(error)));
        }
        let number = self.home.ok_or_else(|| Fault::from(Code::Closed))?;
        add(&self.counters.other_messages, 1);
        self.homes.ask(number, &Request::SyncObject { object: self.object }).map(|_| ())
    }

    pub(super) fn is_far(&self) -> Result<bool, Fault> {
        Ok(matches!(self.way()?, Way::Far))
    }
}

fn length_of(fd: BorrowedFd<'_>) -> std::io::Result<u64> {
    let found = rustix::fs::fstat(fd)?;
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

/// Fills the pieces one after the other up to the end of the file.
fn read_vectors(fd: BorrowedFd<'_>, part: &mut BufferPart, at: u64) -> std::io::Result<usize> {
    let mut vectors: Vec<IoSliceMut<'_>> = part.pieces().map(IoSliceMut::new).collect();
    let (mut rest, mut count) = (&mut vectors[..], 0);
    while !rest.is_empty() {
        let group = rest.len().min(PIECES_PER_CALL_MAX);
        match rustix::io::preadv(fd, &mut rest[..group], at + count as u64) {
            Ok(0) => break,
            Ok(read) => {
                count += read;
                IoSliceMut::advance_slices(&mut rest, read);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

/// Reads what the page cache has; `None` if not all of it is there, or the file system cannot tell.
fn read_now(fd: BorrowedFd<'_>, part: &mut BufferPart, at: u64) -> Option<usize> {
    let mut count = 0;
    for piece in part.pieces() {
        let bytes = piece.len();
        let mut vector = [IoSliceMut::new(piece)];
        let read = rustix::io::preadv2(fd, &mut vector, at + count as u64, ReadWriteFlags::NOWAIT).ok()?;
        if read < bytes {
            return None;
        }
        count += read;
    }
    Some(count)
}
