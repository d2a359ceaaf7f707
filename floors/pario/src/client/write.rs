//! Writing: each part of a write takes the cheapest way that is right for it.
//!
//! | way | when | costs |
//! |---|---|---|
//! | direct | same node, a large part of a block (any in the mixed phase; in the write phase with an intent), none of our own records pending there | one copy, one system call |
//! | record | same node | two copies, no system call |
//! | message | another node, blocks without a fixed place, or a store that is reached by message only | the network |
//!
//! Never: overtakes one of our own records. Always: in the mixed phase, or when a server has no room to reserve, a write
//! returns when the servers have it.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, LocalOffset, Piece, ServerIndex};
use pario_net::message::{Phase, Request};
use pario_net::outbox::{Intent, Outbox, RecordMeta};
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::write_pieces_at;

use super::lease::Access;
use super::locks::{Guarded, Kind};
use super::mount::Started;
use super::open_file::{Loan, OpenFile};

/// Smallest part that is written directly: below, the system call costs more than the second copy.
const DIRECT_BYTES_MIN: u64 = 128 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Direct,
    Record,
    Message,
}

/// Whom a message goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    /// Servers that share no memory with us.
    OtherNodes,
    /// All servers that the range lies on.
    Everyone,
}

impl OpenFile {
    /// Writes all of `data` at `offset`. `heard` are the faults that the handle was told of: one that this write meets is told
    /// by it, and not again.
    pub(super) fn write(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
        (heard, guarded): (&AtomicU64, Guarded),
    ) -> Result<(), Fault> {
        self.mount.check_process()?;
        if data.is_empty() {
            return Ok(());
        }
        let end =
            offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(|| {
                Fault::new(
                    Code::TooLarge,
                    format!("{}: {} bytes at {offset} end beyond every file", self.describe(), data.len()),
                )
            })?;
        let _time = self.mount.timed(&self.mount.counters.write_ns);
        let (_lock, access) = self.access_range(&(offset..end), Kind::Write, guarded)?;
        self.write_under(&access, offset..end, data, heard)
    }

    /// The same to a range that was checked, under an access that was begun.
    pub(super) fn write_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        Range { start: offset, end }: Range<u64>,
        data: &[u8],
        heard: &AtomicU64,
    ) -> Result<(), Fault> {
        let written = Write { file: self, access, offset, data, heard }.run();
        // Behind the write: what another thread asked for ahead meanwhile may not have it.
        self.discard_ahead();
        self.note_written(offset..end);
        written?;
        if access.phase == (Phase::Mixed {}) && self.size.load(Ordering::Acquire) < end {
            self.mount.call(ServerIndex::MANAGER, &Request::Extend { inode: self.inode, end })?;
        }
        self.wrote_to(end);
        Ok(())
    }
}

struct Write<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a Access<'a>,
    offset: u64,
    data: &'a [u8],
    heard: &'a AtomicU64,
}

impl Write<'_> {
    fn run(&self) -> Result<(), Fault> {
        let range = self.offset..self.offset + self.data.len() as u64;
        let direct_allowed = self.file.homeless.is_none() && !self.file.is_pending(&range);
        let mut record: Option<Range<u64>> = None;
        let mut messages = false;
        for piece in self.parts(range.clone()) {
            self.access.check()?;
            let way = self.way(&piece, direct_allowed)?;
            let part = piece.file_offset..piece.file_offset + piece.bytes;
            match way {
                Way::Record => {
                    record = Some(record.map_or(part.clone(), |record| record.start..part.end));
                    continue;
                }
                Way::Direct => self.write_direct(&piece)?,
                Way::Message => messages = true,
            }
            if let Some(record) = record.take() {
                self.commit(record)?;
            }
        }
        if let Some(record) = record {
            self.commit(record)?;
        }
        let to = if self.file.placed.is_some() { To::Everyone } else { To::OtherNodes };
        if messages { self.send(range, to) } else { Ok(()) }
    }

    /// Pieces of blocks; on one server neighbouring blocks are one piece.
    fn parts(&self, range: Range<u64>) -> Vec<Piece> {
        if self.file.layout.count() == 1 {
            let (server, local) = self.file.layout.locate(range.start);
            return vec![Piece { server, local, file_offset: range.start, bytes: range.end - range.start }];
        }
        self.file.layout.pieces(range).collect()
    }

    fn way(&self, piece: &Piece, direct_allowed: bool) -> Result<Way, Fault> {
        let connection =
            self.file.mount.connection(piece.server).map_err(|fault| fault.at(self.file.describe()))?;
        if !connection.shares_memory() || self.file.placed.is_some() {
            return Ok(Way::Message);
        }
        // In the mixed phase a record would have to be waited for.
        let large = DIRECT_BYTES_MIN <= piece.bytes || self.access.phase == (Phase::Mixed {});
        if direct_allowed && large && connection.welcome().lends_writing {
            return Ok(Way::Direct);
        }
        Ok(Way::Record)
    }

    fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let place = |at: u64| usize::try_from(at - self.offset).expect("inside the caller's slice");
        &self.data[place(range.start)..place(range.end)]
    }

    fn write_direct(&self, piece: &Piece) -> Result<(), Fault> {
        let part = piece.file_offset..piece.file_offset + piece.bytes;
        let loan = self.file.loan(piece.server, self.access.generation, self.access.number, true)?;
        let Loan::Descriptor(descriptor) = loan else { return self.commit(part) };
        self.file.note_unsynced(piece.server);
        let outbox = self.file.mount.outbox()?;
        let mut intent = None;
        if self.access.phase == (Phase::Write {}) {
            match self.announce(&outbox, piece)? {
                Some(announced) => intent = Some(announced),
                None => return self.commit(part),
            }
        }
        write_pieces_at(descriptor.as_fd(), &[self.bytes(&part).into()], piece.local.0).map_err(|error| {
            let doing = format!(
                "{}: bytes {}..{} on server {}",
                self.file.describe(),
                part.start,
                part.end,
                piece.server
            );
            Fault::from_io(&error, doing)
        })?;
        reach(Point::DirectWritten);
        if let Some(intent) = intent {
            intent.done();
        }
        let counters = &self.file.mount.counters;
        counters.direct_writes.fetch_add(1, Ordering::Relaxed);
        counters.direct_write_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Others may have older records for the same bytes that are not taken yet: the server must not write those over ours.
    fn announce<'o>(&self, outbox: &'o Outbox, piece: &Piece) -> Result<Option<Intent<'o>>, Fault> {
        let file = self.file;
        let meta = RecordMeta {
            object: file.object(self.access.generation),
            layout: file.layout,
            view: 0,
            moved: 0,
            offset: piece.file_offset,
            companions: file.companions(),
        };
        let announce = || {
            file.mount.cursor(piece.server)?;
            outbox.announce(meta, piece.server, piece.bytes, &file.mount.minded())
        };
        file.mount.keep_minding();
        match file.mount.twice_if_quick(announce) {
            Err(fault) if fault.code == Code::Busy => Ok(None),
            other => other.map_err(|fault| fault.at(file.describe())),
        }
    }

    /// Puts a range into the outbox, in records; waits for the servers where writing behind is not allowed.
    fn commit(&self, range: Range<u64>) -> Result<(), Fault> {
        let file = self.file;
        let mut through = self.access.phase == (Phase::Mixed {});
        for piece in file.layout.pieces(range.clone()) {
            let (_, cursor) = file.mount.cursor(piece.server).map_err(|fault| fault.at(file.describe()))?;
            through |= file.homeless.is_none() && !cursor.may_write_behind(file.inode);
            file.note_unsynced(piece.server);
        }
        let outbox = file.mount.outbox()?;
        file.mount.keep_minding();
        let record_max = outbox.record_bytes_max() as u64;
        let mut at = range.start;
        let mut position = 0;
        while at < range.end {
            let part = at..range.end.min(at + record_max);
            let meta = RecordMeta {
                object: file.object(self.access.generation),
                layout: file.layout,
                view: 0,
                moved: 0,
                offset: at,
                companions: file.companions(),
            };
            let commit = || {
                for piece in file.layout.pieces(part.clone()) {
                    file.mount.cursor(piece.server)?;
                }
                outbox.commit(meta, self.bytes(&part), &file.mount.minded())
            };
            position = match file.mount.twice_if_quick(commit) {
                Ok(position) => position,
                // The ring is held by a server that is stopped in the middle of reading it.
                Err(fault) if fault.code == Code::Busy => return self.send(at..range.end, To::Everyone),
                Err(fault) => return Err(fault.at(file.describe())),
            };
            file.note_record(part.clone(), position);
            let counters = &file.mount.counters;
            counters.records.fetch_add(1, Ordering::Relaxed);
            counters.record_bytes.fetch_add(part.end - part.start, Ordering::Relaxed);
            at = part.end;
        }
        through |= file.must_settle(file.layout.pieces(range.clone()).map(|piece| piece.server));
        if through { self.write_through(range, position) } else { Ok(()) }
    }

    fn write_through(&self, range: Range<u64>, position: u64) -> Result<(), Fault> {
        if self.file.homeless.is_some() {
            let pieces = self.file.layout.pieces(range);
            let near: Vec<ServerIndex> =
                pieces.take(usize::from(self.file.layout.count())).map(|piece| piece.server).collect();
            return self.file.settle(&near, self.heard);
        }
        for piece in self.file.layout.pieces(range) {
            self.file.wait_taken(piece.server, position)?;
        }
        self.file.collect_errors();
        self.file.tell_fault(self.heard)
    }

    /// Sends the parts on servers that are reached by message; all servers work at the same time.
    fn send(&self, range: Range<u64>, to: To) -> Result<(), Fault> {
        let mut started: Vec<Started> = Vec::new();
        let mut result = Ok(());
        for server in self.file.servers_in_turn() {
            if to == To::OtherNodes && self.file.mount.connection(server)?.shares_memory() {
                continue;
            }
            self.file.note_unsynced(server);
            if let Err(fault) = self.send_to(server, range.clone(), &mut started) {
                result = Err(fault);
                break;
            }
        }
        for started in started {
            let answer = self.file.mount.finish(started, None);
            result = result.and(answer.map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.file.describe()))
    }

    fn send_to(
        &self,
        server: ServerIndex,
        range: Range<u64>,
        started: &mut Vec<Started>,
    ) -> Result<(), Fault> {
        let transfer_bytes = self.file.mount.transfer_bytes(server)?;
        let (mut parts, mut bytes, mut first) = (Vec::new(), 0usize, LocalOffset(0));
        for piece in self.file.layout.pieces_on(server, range) {
            let mut rest = self.bytes(&(piece.file_offset..piece.file_offset + piece.bytes));
            let mut local = piece.local.0;
            while !rest.is_empty() {
                if parts.is_empty() {
                    first = LocalOffset(local);
                }
                let (part, left) = rest.split_at(rest.len().min(transfer_bytes - bytes));
                parts.push(part);
                bytes += part.len();
                local += part.len() as u64;
                rest = left;
                if bytes == transfer_bytes {
                    self.flush(server, first, &mut parts, started)?;
                    bytes = 0;
                }
            }
        }
        if parts.is_empty() { Ok(()) } else { self.flush(server, first, &mut parts, started) }
    }

    fn flush(
        &self,
        server: ServerIndex,
        at: LocalOffset,
        parts: &mut Vec<&[u8]>,
        started: &mut Vec<Started>,
    ) -> Result<(), Fault> {
        let request = Request::Write { object: self.file.object(self.access.generation), at };
        started.push(self.file.mount.start(server, &request, parts)?);
        parts.clear();
        // A server answers in order, so the oldest is the next to be free.
        if 8 < started.len() {
            let oldest = started.remove(0);
            self.file.mount.finish(oldest, None)?;
        }
        Ok(())
    }
}
