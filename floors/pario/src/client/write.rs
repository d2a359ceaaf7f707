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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, LocalOffset, Piece, ServerIndex};
use pario_net::message::{Phase, Request};
use pario_net::outbox::RecordMeta;
use pario_server::Near;

use super::direct::{self, DirectPart};
use super::lease::Access;
use super::locks::{Guarded, Kind};
use super::mount::Started;
use super::open_file::OpenFile;
use super::stream_write::Place;

/// Smallest run that is written directly: below, the system call costs more than the second copy.
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
        how: (&AtomicU64, Guarded),
    ) -> Result<(), Fault> {
        self.write_within((offset, data), None, how)
    }

    /// The same; `place` is where it lies in a view, if it is all of that.
    pub(super) fn write_within(
        self: &Arc<Self>,
        (offset, data): (u64, &[u8]),
        place: Option<&Place>,
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
        let (lock, access) = self.access_range((&(offset..end), place), Kind::Write, guarded)?;
        let at_once = lock.as_ref().is_some_and(|lock| lock.together);
        self.write_all_under(&access, &[(offset, data)], (heard, at_once))
    }

    /// The same to a range that was checked, under an access that was begun.
    pub(super) fn write_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        range: Range<u64>,
        data: &[u8],
        heard: &AtomicU64,
    ) -> Result<(), Fault> {
        self.write_all_under(access, &[(range.start, data)], (heard, false))
    }

    /// The same to several ranges that share no byte; all go one way, since records among direct writes would be in their way.
    pub(super) fn write_ranges_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        ranges: &[(u64, &[u8])],
        heard: &AtomicU64,
    ) -> Result<(), Fault> {
        self.write_all_under(access, ranges, (heard, false))
    }

    /// `at_once`: it is one call, of whole blocks, and others are to see it as a whole.
    fn write_all_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        ranges: &[(u64, &[u8])],
        (heard, at_once): (&AtomicU64, bool),
    ) -> Result<(), Fault> {
        // Several are here because they are large.
        let large = match ranges {
            [(offset, data)] => self.is_large(*offset, data.len() as u64),
            _ => true,
        };
        let to_write =
            |&(offset, data): &_| Write { file: self, access, offset, data, heard, large, at_once };
        let writes: Vec<Write<'_>> = ranges.iter().map(to_write).collect();
        let written = write_ranges(&writes);
        // Behind the write: what another thread asked for ahead meanwhile may not have it.
        self.discard_ahead();
        let mut end = 0;
        for write in &writes {
            self.note_written(write.range());
            end = end.max(write.range().end);
        }
        written?;
        if access.phase == (Phase::Mixed {}) && self.size.load(Ordering::Acquire) < end {
            self.mount.call(ServerIndex::MANAGER, &Request::Extend { inode: self.inode, end })?;
        }
        self.wrote_to(end);
        Ok(())
    }

    /// Whether servers have their parts of a range in large runs.
    fn is_large(&self, offset: u64, bytes: u64) -> bool {
        let stripe = self.layout.stripe_bytes();
        let blocks = (offset + bytes.saturating_sub(1)) / stripe - offset / stripe + 1;
        DIRECT_BYTES_MIN * blocks.min(u64::from(self.layout.count())) <= bytes
    }
}

/// One range of the file that is written.
pub(super) struct Write<'a> {
    pub(super) file: &'a Arc<OpenFile>,
    pub(super) access: &'a Access<'a>,
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
    pub(super) heard: &'a AtomicU64,
    /// Whether what is written together lies in large parts.
    large: bool,
    /// Whether it is all that a call writes, and others are to see it as a whole.
    at_once: bool,
}

/// What of a write does not go directly.
struct Rest {
    records: Vec<Range<u64>>,
    messages: bool,
}

/// Writes ranges that share no byte. What goes directly is written server by server, so that processes that write together keep out of
/// each other's way, and neighbouring blocks of a server go with one call.
fn write_ranges(writes: &[Write<'_>]) -> Result<(), Fault> {
    let mut direct = Vec::new();
    let mut rests = Vec::with_capacity(writes.len());
    for write in writes {
        rests.push(write.sort(&mut direct)?);
    }
    for run in direct::runs(direct) {
        run.access().check()?;
        if !run.write()? {
            run.parts().iter().try_for_each(DirectPart::commit)?;
        }
    }
    for (write, rest) in writes.iter().zip(rests) {
        for record in rest.records {
            write.access.check()?;
            write.commit(record)?;
        }
        if rest.messages {
            if let Some(near) = write.file.near_for(write.data.len() as u64)? {
                write.write_near(near)?;
                continue;
            }
            let to = if write.file.placed.is_some() { To::Everyone } else { To::OtherNodes };
            write.send(write.range(), to)?;
        }
    }
    Ok(())
}

impl Write<'_> {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }

    /// Finds the way of each part; what goes directly is added to `direct`.
    fn sort<'w>(&'w self, direct: &mut Vec<DirectPart<'w>>) -> Result<Rest, Fault> {
        let direct_allowed = self.file.homeless.is_none() && !self.file.is_pending(&self.range());
        let mut rest = Rest { records: Vec::new(), messages: false };
        for piece in self.parts(self.range()) {
            match self.way(&piece, direct_allowed)? {
                Way::Direct => direct.push(DirectPart { write: self, piece }),
                Way::Message => rest.messages = true,
                Way::Record => {
                    let part = piece.file_offset..piece.file_offset + piece.bytes;
                    match rest.records.last_mut().filter(|record| record.end == part.start) {
                        Some(record) => record.end = part.end,
                        None => rest.records.push(part),
                    }
                }
            }
        }
        Ok(rest)
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
        let suits = self.large || self.access.phase == (Phase::Mixed {});
        if direct_allowed && suits && connection.welcome().lends_writing {
            return Ok(Way::Direct);
        }
        Ok(Way::Record)
    }

    pub(super) fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let place = |at: u64| usize::try_from(at - self.offset).expect("inside the caller's slice");
        &self.data[place(range.start)..place(range.end)]
    }

    /// Puts a range into the outbox, in records; waits for the servers where writing behind is not allowed.
    pub(super) fn commit(&self, range: Range<u64>) -> Result<(), Fault> {
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

    /// To the server in this process, without a message.
    fn write_near(&self, near: &Near) -> Result<(), Fault> {
        let (session, object) = (self.file.mount.session(), self.file.object(self.access.generation));
        self.file.note_unsynced(near.index());
        let local = self.file.layout.locate(self.offset).1;
        near.write(session, (object, self.at_once), (local, self.data))
            .map_err(|fault| fault.at(self.file.describe()))
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
        let object = self.file.object(self.access.generation);
        let request = match self.at_once {
            true => Request::WriteAtOnce { object, at },
            false => Request::Write { object, at },
        };
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
