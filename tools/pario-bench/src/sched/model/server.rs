//! The server below the scheduler: page cache, write-behind, elevator and disk, and the dependencies of requests.
//!
//! Always: a started request is reported once as done; one command is at the disk at a time.

use std::collections::VecDeque;

use super::cache::{Fetch, PAGE, PageCache, ReadAheadState};
use super::discipline::Posted;
use super::disk::{DiskDirection, ModelDisk};
use super::elevator::{DiskOp, Elevator};
use super::params::Params;
use super::write_behind::{ModelWriteBehind, WriteBackPiece};
use super::{FileIndex, OpId, RequestIndex, VirtualNanos};

/// Purpose of a disk operation.
#[derive(Clone, Debug)]
enum DiskWork {
    Fetch { fetch: Fetch, waiters: Vec<RequestIndex> },
    Piece(WriteBackPiece),
    None,
}

/// A waiting read.
#[derive(Clone, Copy, Debug)]
struct WaitingRead {
    file: FileIndex,
    /// Missing operations.
    missing: usize,
    after: ReadAheadState,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ModelServer {
    disk: ModelDisk,
    elevator: Elevator,
    cache: PageCache,
    behind: ModelWriteBehind,
    /// First byte of each file on the disk.
    disk_offsets: Vec<u64>,
    work: Vec<DiskWork>,
    work_free: Vec<OpId>,
    at_disk: Vec<OpId>,
    /// Waiting reads, by request number.
    reading: Vec<Option<WaitingRead>>,
    /// Writes that wait for write-back.
    held: VecDeque<Posted>,
    done: Vec<RequestIndex>,
    commands: u64,
    busy_ns: VirtualNanos,
}

impl ModelServer {
    /// Of files with these lengths, spread evenly over the disk, as ext3 spreads directories.
    pub(crate) fn new(params: &Params, lengths: &[u64], seed: u64) -> ModelServer {
        let slot = params.disk.capacity / lengths.len().max(1) as u64;
        assert!(lengths.iter().all(|length| *length <= slot), "the files fit on the disk");
        let places = (0..lengths.len() as u64).map(|file| file * slot).collect();
        ModelServer {
            disk: ModelDisk::new(params.disk, seed),
            elevator: Elevator::new(params.elevator),
            cache: PageCache::new(params.read_ahead, lengths),
            behind: ModelWriteBehind::new(params.behind, lengths.len()),
            disk_offsets: places,
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

    /// Starts a request.
    pub(crate) fn start(&mut self, request: Posted) {
        match request.kind {
            DiskDirection::Read => self.read(request),
            DiskDirection::Write if self.held.is_empty() && self.behind.has_space(request.length) => {
                self.write(request)
            }
            DiskDirection::Write => self.held.push_back(request),
        }
    }

    /// A close waits until the file is on the disk.
    pub(crate) fn commit(&mut self, file: FileIndex) {
        self.behind.commit(file);
        self.write_back();
    }

    /// Whether everything of a file is on the disk.
    pub(crate) fn is_clean(&self, file: FileIndex) -> bool {
        self.behind.is_clean(file)
    }

    /// Gives an idle disk its next command; returns its end.
    pub(crate) fn go(&mut self, now: VirtualNanos) -> Option<VirtualNanos> {
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

    /// The command at the disk has completed; the written file, if any.
    pub(crate) fn disk_done(&mut self) -> Option<FileIndex> {
        let mut written = None;
        for op in std::mem::take(&mut self.at_disk) {
            self.work_free.push(op);
            match std::mem::replace(&mut self.work[op.0 as usize], DiskWork::None) {
                DiskWork::Fetch { fetch, waiters } => self.fetched(fetch, &waiters),
                DiskWork::Piece(piece) => {
                    self.behind.written(piece);
                    written = Some(piece.file);
                }
                DiskWork::None => unreachable!("work at the disk is known"),
            }
        }
        self.admit_held();
        written
    }

    /// Requests completed since the last call.
    pub(crate) fn take_done(&mut self) -> Vec<RequestIndex> {
        std::mem::take(&mut self.done)
    }

    /// Number of disk commands, and busy time.
    pub(crate) fn work(&self) -> (u64, VirtualNanos) {
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
            self.reading[at] = Some(WaitingRead { file: request.file, missing, after: need.after });
        }
        for op in need.coming {
            if let DiskWork::Fetch { waiters, .. } = &mut self.work[op.0 as usize] {
                waiters.push(request.index);
            }
        }
        for fetch in need.fetches {
            let op = self.new_work(DiskWork::Fetch { fetch, waiters: fetch.waiter.into_iter().collect() });
            self.cache.set_coming(fetch, op);
            let start = self.disk_offsets[fetch.file.0] + u64::from(fetch.start) * PAGE;
            let length = u64::from(fetch.end - fetch.start) * PAGE;
            self.elevator.add(DiskDirection::Read, DiskOp { id: op, start, length });
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
            let Some(reading) = slot else { unreachable!("a waiting request is a read") };
            reading.missing -= 1;
            if reading.missing == 0 {
                self.cache.read_ended(reading.file, reading.after);
                *slot = None;
                self.done.push(*waiter);
            }
        }
    }

    fn admit_held(&mut self) {
        while let Some(request) = self.held.front().copied().filter(|held| self.behind.has_space(held.length))
        {
            self.held.pop_front();
            self.write(request);
        }
    }

    fn write_back(&mut self) {
        while self.elevator.has_space_for_writes() {
            let Some(piece) = self.behind.next() else { break };
            let start = self.disk_offsets[piece.file.0] + piece.start;
            let op = self.new_work(DiskWork::Piece(piece));
            self.elevator.add(DiskDirection::Write, DiskOp { id: op, start, length: piece.length });
        }
    }

    fn new_work(&mut self, work: DiskWork) -> OpId {
        if let Some(op) = self.work_free.pop() {
            self.work[op.0 as usize] = work;
            return op;
        }
        self.work.push(work);
        OpId(u32::try_from(self.work.len() - 1).expect("work at the disk is bounded by its requests"))
    }
}
