//! The server below the scheduler: page cache, write-behind, elevator and disk, and which request waits for what.
//!
//! Always: a request that was started is told once as done; one command is at the disk at a time.

use std::collections::VecDeque;

use super::behind::{Behind, Piece};
use super::cache::{Cache, Fetch, PAGE, Stream};
use super::discipline::Posted;
use super::disk::{Disk, Kind};
use super::elevator::{Elevator, Op};
use super::params::Params;
use super::{FileIndex, Nanos, OpId, RequestIndex};

/// What a piece of work at the disk is for.
#[derive(Clone, Debug)]
enum Work {
    Fetch { fetch: Fetch, waiters: Vec<RequestIndex> },
    Piece(Piece),
    None,
}

/// A read that waits.
#[derive(Clone, Copy, Debug)]
struct Reading {
    file: FileIndex,
    /// Pieces of work that are missing.
    missing: usize,
    after: Stream,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    disk: Disk,
    elevator: Elevator,
    cache: Cache,
    behind: Behind,
    /// First byte of each file on the disk.
    places: Vec<u64>,
    work: Vec<Work>,
    work_free: Vec<OpId>,
    at_disk: Vec<OpId>,
    /// Reads that wait for work, by their number.
    reading: Vec<Option<Reading>>,
    /// Writes that wait until enough has been written back.
    held: VecDeque<Posted>,
    done: Vec<RequestIndex>,
    commands: u64,
    busy_ns: Nanos,
}

impl Server {
    /// Of files with these lengths, spread evenly over the disk, as ext3 spreads directories.
    pub(crate) fn new(params: &Params, lengths: &[u64], seed: u64) -> Server {
        let slot = params.disk.capacity / lengths.len().max(1) as u64;
        assert!(lengths.iter().all(|length| *length <= slot), "the files fit on the disk");
        let places = (0..lengths.len() as u64).map(|file| file * slot).collect();
        Server {
            disk: Disk::new(params.disk, seed),
            elevator: Elevator::new(params.elevator),
            cache: Cache::new(params.read_ahead, lengths),
            behind: Behind::new(params.behind, lengths.len()),
            places,
            work: Vec::new(),
            work_free: Vec::new(),
            at_disk: Vec::new(),
            reading: Vec::new(),
            held: VecDeque::new(),
            done: Vec::new(),
            commands: 0,
            busy_ns: 0,
        }
    }

    /// Begins to carry out a request.
    pub(crate) fn start(&mut self, request: Posted) {
        match request.kind {
            Kind::Read => self.read(request),
            Kind::Write if self.held.is_empty() && self.behind.has_room(request.length) => {
                self.write(request)
            }
            Kind::Write => self.held.push_back(request),
        }
    }

    /// Somebody waits until a file is on the disk.
    pub(crate) fn commit(&mut self, file: FileIndex) {
        self.behind.commit(file);
        self.write_back();
    }

    /// Whether everything of a file is on the disk.
    pub(crate) fn is_clean(&self, file: FileIndex) -> bool {
        self.behind.is_clean(file)
    }

    /// Gives the disk its next command if it has none; when that ends.
    pub(crate) fn go(&mut self, now: Nanos) -> Option<Nanos> {
        if !self.at_disk.is_empty() {
            return None;
        }
        let dispatch = self.elevator.next(now, self.disk.at())?;
        self.write_back();
        self.at_disk = dispatch.ops;
        self.commands += 1;
        let end = self.disk.serve(now, dispatch.command);
        self.busy_ns += end - now;
        Some(end)
    }

    /// The command at the disk has ended; the file whose bytes it wrote, if any.
    pub(crate) fn disk_done(&mut self) -> Option<FileIndex> {
        let mut written = None;
        for op in std::mem::take(&mut self.at_disk) {
            self.work_free.push(op);
            match std::mem::replace(&mut self.work[op.0 as usize], Work::None) {
                Work::Fetch { fetch, waiters } => self.fetched(fetch, &waiters),
                Work::Piece(piece) => {
                    self.behind.written(piece);
                    written = Some(piece.file);
                }
                Work::None => unreachable!("work at the disk is known"),
            }
        }
        self.admit_held();
        written
    }

    /// Requests that have been carried out since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<RequestIndex> {
        std::mem::take(&mut self.done)
    }

    /// Commands that the disk was given, and how long it was busy with them.
    pub(crate) fn work(&self) -> (u64, Nanos) {
        (self.commands, self.busy_ns)
    }

    fn read(&mut self, request: Posted) {
        let need =
            self.cache.read(request.file, request.start, request.start + request.length, request.index);
        let own = need.fetches.iter().filter(|fetch| fetch.waiter.is_some()).count();
        let missing = own + need.coming.len();
        if missing == 0 {
            self.cache.read_ended(request.file, need.after);
            self.done.push(request.index);
        } else {
            let at = request.index.0 as usize;
            self.reading.resize(self.reading.len().max(at + 1), None);
            self.reading[at] = Some(Reading { file: request.file, missing, after: need.after });
        }
        for op in need.coming {
            if let Work::Fetch { waiters, .. } = &mut self.work[op.0 as usize] {
                waiters.push(request.index);
            }
        }
        for fetch in need.fetches {
            let op = self.new_work(Work::Fetch { fetch, waiters: fetch.waiter.into_iter().collect() });
            self.cache.set_coming(fetch, op);
            let start = self.places[fetch.file.0] + u64::from(fetch.start) * PAGE;
            let length = u64::from(fetch.end - fetch.start) * PAGE;
            self.elevator.add(Kind::Read, Op { id: op, start, length });
        }
    }

    fn write(&mut self, request: Posted) {
        self.behind.write(request.file, request.start, request.length);
        self.done.push(request.index);
        self.write_back();
    }

    fn fetched(&mut self, fetch: Fetch, waiters: &[RequestIndex]) {
        self.cache.set_present(fetch);
        for waiter in waiters {
            let slot = &mut self.reading[waiter.0 as usize];
            let Some(reading) = slot else { unreachable!("who waits is reading") };
            reading.missing -= 1;
            if reading.missing == 0 {
                self.cache.read_ended(reading.file, reading.after);
                *slot = None;
                self.done.push(*waiter);
            }
        }
    }

    fn admit_held(&mut self) {
        while let Some(request) = self.held.front().copied().filter(|held| self.behind.has_room(held.length))
        {
            self.held.pop_front();
            self.write(request);
        }
    }

    fn write_back(&mut self) {
        while self.elevator.has_room_for_writes() {
            let Some(piece) = self.behind.next() else { break };
            let start = self.places[piece.file.0] + piece.start;
            let op = self.new_work(Work::Piece(piece));
            self.elevator.add(Kind::Write, Op { id: op, start, length: piece.length });
        }
    }

    fn new_work(&mut self, work: Work) -> OpId {
        if let Some(op) = self.work_free.pop() {
            self.work[op.0 as usize] = work;
            return op;
        }
        self.work.push(work);
        OpId(u32::try_from(self.work.len() - 1).expect("work at the disk is bounded by its requests"))
    }
}
