//! Writing: each part of a write uses the cheapest correct path.
//!
//! | path | when | cost |
//! |---|---|---|
//! | direct | same node, large part of a block (mixed phase: any; write phase: with an intent), no own record pending | 1 copy, 1 call |
//! | record | same node | 2 copies, no system call |
//! | message | another node, a cached file, or a store that is reached by message only | the network |
//!
//! Never: overtakes a record of this client. Always: in the mixed phase, or when a server has no space to reserve, a write returns after
//! the servers have it.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, LocalOffset, Nanos, ServerIndex};
use pario_net::message::{Phase, Request};
use pario_net::outbox::{CommittedRecord, Outbox, RecordMeta};
use pario_server::LocalServer;

use crate::client::file::confirmed::{confirm, must_confirm};
use crate::client::file::lease::LeasedAccess;
use crate::client::file::locks::access_range;
use crate::client::file::locks::{AccessKind, Guarded};
use crate::client::file::state::OpenFile;
use crate::client::file::write::direct::{self, DirectPart};
use crate::client::file::write::plan::{self, RecordRanges, WriteRoute, WriteRule};
use crate::client::file::write::stream::StreamRange;
use crate::client::session::state::StartedRequest;

/// Destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Destination {
    /// Servers that share no memory with this process.
    OtherNodes,
    /// All servers that hold parts of the range.
    AllServers,
}

/// A write of one handle.
#[derive(Clone, Copy)]
pub(in crate::client) struct FileWriter<'a> {
    pub(in crate::client) file: &'a Arc<OpenFile>,
    /// The faults already reported to the handle: a fault that this write meets is returned by it, and not reported again.
    pub(in crate::client) reported: &'a AtomicU64,
    pub(in crate::client) guarded: Guarded,
}

impl FileWriter<'_> {
    /// Writes all of `data` at `offset`.
    pub(in crate::client) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.write_within(offset, data, None)
    }

    /// The same; `place` is the range in a view, if the write covers exactly that range.
    pub(in crate::client) fn write_within(
        &self,
        offset: u64,
        data: &[u8],
        place: Option<&StreamRange>,
    ) -> Result<(), Fault> {
        self.file.context.session.check_process()?;
        if data.is_empty() {
            return Ok(());
        }
        let end =
            offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(|| {
                Fault::new(
                    Code::TooLarge,
                    format!(
                        "{}: {} bytes at {offset} end beyond the largest file offset",
                        self.file.context.describe(),
                        data.len()
                    ),
                )
            })?;
        let time = self.file.context.session.timed_access(&self.file.context.session.counters.write_ns);
        let (lock, access) =
            access_range(self.file, (&(offset..end), place), AccessKind::Write, self.guarded)?;
        let at_once = lock.as_ref().is_some_and(|lock| lock.together);
        let ended = self.write_all_under(&access, &[(offset, data)], at_once)?;
        drop((access, lock));
        time.end_at(ended);
        Ok(())
    }

    /// The same to a checked range, under an access that was begun.
    pub(in crate::client) fn write_under(
        &self,
        access: &LeasedAccess<'_>,
        range: Range<u64>,
        data: &[u8],
    ) -> Result<(), Fault> {
        self.write_all_under(access, &[(range.start, data)], false).map(|_| ())
    }

    /// The same to several disjoint ranges; all use one path, since records between direct writes would delay them.
    pub(in crate::client) fn write_ranges_under(
        &self,
        access: &LeasedAccess<'_>,
        ranges: &[(u64, &[u8])],
    ) -> Result<(), Fault> {
        self.write_all_under(access, ranges, false).map(|_| ())
    }

    /// Writes neighbouring parts under one access, each from its own memory, if they are large together. False: they are not, and no byte
    /// was written.
    pub(in crate::client) fn write_large_parts(
        &self,
        offset: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<bool, Fault> {
        let context = &self.file.context;
        context.session.check_process()?;
        let total: u64 = parts.iter().map(|part| part.len() as u64).sum();
        // An end beyond the largest file is refused by a write of the parts one by one.
        let end = offset.checked_add(total).filter(|end| *end <= FILE_BYTES_MAX);
        let Some(end) = end.filter(|_| 0 < total && plan::is_large(&context.layout, offset, total)) else {
            return Ok(false);
        };
        let _time = context.session.timed_access(&context.session.counters.write_ns);
        let (lock, access) =
            access_range(self.file, (&(offset..end), None), AccessKind::Write, self.guarded)?;
        // A cached block that must be atomic is one call.
        if lock.as_ref().is_some_and(|lock| lock.together) {
            return Ok(false);
        }
        let mut at = offset;
        let mut ranges = Vec::with_capacity(parts.len());
        for part in parts.iter().filter(|part| !part.is_empty()) {
            ranges.push((at, &**part));
            at += part.len() as u64;
        }
        self.write_ranges_under(&access, &ranges).map(|()| true)
    }

    /// `atomic`: the ranges are one call of whole blocks, and the write must be atomic for readers. Returns the time of the last commit, if
    /// nothing was waited for after it.
    fn write_all_under(
        &self,
        access: &LeasedAccess<'_>,
        ranges: &[(u64, &[u8])],
        atomic: bool,
    ) -> Result<Option<Nanos>, Fault> {
        // Several ranges are passed only if they are large.
        let large = match ranges {
            [(offset, data)] => plan::is_large(&self.file.context.layout, *offset, data.len() as u64),
            _ => true,
        };
        let to_write = |&(offset, data): &_| RangeWrite {
            file: self.file,
            access,
            offset,
            data,
            reported: self.reported,
            large,
            atomic,
        };
        let (written, end) = match ranges {
            [one] => {
                let write = to_write(one);
                (write_ranges(std::slice::from_ref(&write)), write.range().end)
            }
            _ => {
                let writes: Vec<RangeWrite<'_>> = ranges.iter().map(to_write).collect();
                let ends = writes.iter().map(|write| write.range().end);
                (write_ranges(&writes), ends.max().unwrap_or(0))
            }
        };
        self.note_all_written(access, ranges, end, written)
    }

    /// The bookkeeping after a write, successful or not.
    fn note_all_written(
        &self,
        access: &LeasedAccess<'_>,
        ranges: &[(u64, &[u8])],
        end: u64,
        written: Result<Option<Nanos>, Fault>,
    ) -> Result<Option<Nanos>, Fault> {
        let (context, data) = (&self.file.context, &self.file.data);
        // After the write: data prefetched by another thread meanwhile may not include it.
        data.read_ahead.discard();
        for (offset, bytes) in ranges {
            data.unflushed.note_written(*offset..offset + bytes.len() as u64);
        }
        let ended = written?;
        if access.phase == (Phase::Mixed {}) && data.length.known() < end {
            context.session.call(ServerIndex::MANAGER, &Request::Extend { inode: context.inode, end })?;
        }
        data.length.note_write_end(end);
        Ok(ended)
    }
}

/// One file range to write.
pub(in crate::client) struct RangeWrite<'a> {
    pub(in crate::client) file: &'a Arc<OpenFile>,
    pub(in crate::client) access: &'a LeasedAccess<'a>,
    pub(in crate::client) offset: u64,
    pub(in crate::client) data: &'a [u8],
    pub(in crate::client) reported: &'a AtomicU64,
    /// Whether the parts of the whole call are large.
    large: bool,
    /// Whether the call writes only this range, and must be atomic for readers.
    atomic: bool,
}

/// The parts of a write that are not written directly.
struct IndirectParts {
    records: RecordRanges,
    messages: bool,
}

/// Writes disjoint ranges. Direct parts are written server by server, so that cooperating processes work on different servers, and
/// neighbouring blocks of a server need one system call. Returns the time of the last commit, if nothing was waited for after it.
fn write_ranges(writes: &[RangeWrite<'_>]) -> Result<Option<Nanos>, Fault> {
    let [first, more @ ..] = writes else { return Ok(None) };
    let mut direct = Vec::new();
    let rest = first.sort(&mut direct)?;
    let mut rests = Vec::with_capacity(more.len());
    for write in more {
        rests.push(write.sort(&mut direct)?);
    }
    for run in direct::runs(direct) {
        run.access().check()?;
        if !run.write()? {
            run.parts().iter().try_for_each(DirectPart::commit)?;
        }
    }
    let mut ended = first.write_rest(rest)?;
    for (write, rest) in more.iter().zip(rests) {
        ended = write.write_rest(rest)?;
    }
    Ok(ended)
}

impl RangeWrite<'_> {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }

    /// Plans the range; direct parts are added to `direct`.
    fn sort<'w>(&'w self, direct: &mut Vec<DirectPart<'w>>) -> Result<IndirectParts, Fault> {
        let (context, range) = (&self.file.context, self.range());
        // In the mixed phase the write would have to wait for a record.
        let suits = self.large || self.access.phase == (Phase::Mixed {});
        let prefers_direct = suits && context.backing.may_be_lent();
        let is_pending = prefers_direct && self.file.data.unflushed.is_pending(&range);
        let rule = WriteRule { prefers_direct, is_pending };
        let plan = plan::plan(&context.layout, range, rule, |server| self.route(server))?;
        direct.extend(plan.direct.into_iter().map(|piece| DirectPart { write: self, piece }));
        Ok(IndirectParts { records: plan.records, messages: plan.messages })
    }

    /// How a write reaches a server; connects if there is no connection.
    fn route(&self, server: ServerIndex) -> Result<WriteRoute, Fault> {
        let context = &self.file.context;
        let connection = context.session.connection(server).map_err(|fault| fault.at(context.describe()))?;
        Ok(match (connection.shares_memory(), connection.welcome().lends_writing) {
            _ if !context.backing.takes_records() => WriteRoute::Message,
            (false, _) => WriteRoute::Message,
            (true, true) => WriteRoute::Lent,
            (true, false) => WriteRoute::Record,
        })
    }

    /// Writes what was not written directly.
    fn write_rest(&self, rest: IndirectParts) -> Result<Option<Nanos>, Fault> {
        let mut ended = None;
        for record in rest.records {
            self.access.check()?;
            ended = self.commit(record)?;
        }
        if !rest.messages {
            return Ok(ended);
        }
        if let Some(near) = self.file.local_server_for(self.data.len() as u64)? {
            return self.write_local_server(near).map(|()| None);
        }
        let to = match self.file.context.backing.takes_records() {
            true => Destination::OtherNodes,
            false => Destination::AllServers,
        };
        self.send(self.range(), to).map(|()| None)
    }

    pub(in crate::client) fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let place = |at: u64| usize::try_from(at - self.offset).expect("inside the caller's slice");
        &self.data[place(range.start)..place(range.end)]
    }

    /// Commits a range to the outbox, in records; waits for the servers where write-back is not allowed. Returns the time of the last
    /// commit, if nothing was waited for after it.
    pub(in crate::client) fn commit(&self, range: Range<u64>) -> Result<Option<Nanos>, Fault> {
        let (context, data) = (&self.file.context, &self.file.data);
        let mut through = self.access.phase == (Phase::Mixed {});
        for piece in plan::parts(&context.layout, range.clone()) {
            let cursor = context.session.cursor(piece.server);
            let (_, cursor) = cursor.map_err(|fault| fault.at(context.describe()))?;
            through |= context.backing.has_leases() && !cursor.may_write_behind(context.inode);
            data.unflushed.note_unsynced(piece.server);
        }
        let outbox = context.session.outbox()?;
        context.session.ensure_watchdog();
        let record_max = outbox.record_bytes_max() as u64;
        let mut committed = CommittedRecord { end: 0, at: Nanos(0) };
        let mut at = range.start;
        while at < range.end {
            let part = at..range.end.min(at + record_max);
            committed = match self.commit_part(&outbox, &part) {
                Ok(committed) => committed,
                // The ring is held by a server that is stopped in the middle of reading it.
                Err(fault) if fault.code == Code::Busy => {
                    return self.send(at..range.end, Destination::AllServers).map(|()| None);
                }
                Err(fault) => return Err(fault.at(context.describe())),
            };
            data.unflushed.note_record(part.clone(), committed.end);
            let counters = &context.session.counters;
            counters.records.fetch_add(1, Ordering::Relaxed);
            counters.record_bytes.fetch_add(part.end - part.start, Ordering::Relaxed);
            at = part.end;
        }
        let servers = plan::parts(&context.layout, range.clone()).map(|piece| piece.server);
        through |= must_confirm(self.file, servers);
        if through {
            return self.write_through(range, committed.end).map(|()| None);
        }
        Ok(Some(committed.at))
    }

    /// Commits one record. Its servers were attached by the caller; for a second attempt they are attached again.
    fn commit_part(&self, outbox: &Outbox, part: &Range<u64>) -> Result<CommittedRecord, Fault> {
        let context = &self.file.context;
        let meta = RecordMeta {
            object: context.object(self.access.generation),
            layout: context.layout,
            view: 0,
            displacement: 0,
            offset: part.start,
            local_writers: context.local_writers(),
        };
        context.session.retry_commit(|attempt, check| {
            if 0 < attempt {
                for piece in plan::parts(&context.layout, part.clone()) {
                    context.session.cursor(piece.server)?;
                }
            }
            outbox.commit_range(meta, self.bytes(part), check)
        })
    }

    fn write_through(&self, range: Range<u64>, position: u64) -> Result<(), Fault> {
        if !self.file.context.backing.has_leases() {
            let pieces = self.file.context.layout.pieces(range);
            let near: Vec<ServerIndex> = pieces
                .take(usize::from(self.file.context.layout.count()))
                .map(|piece| piece.server)
                .collect();
            return confirm(self.file, &near, self.reported);
        }
        for piece in self.file.context.layout.pieces(range) {
            self.file.data.unflushed.wait_drained(piece.server, position)?;
        }
        self.file.data.unflushed.collect_errors();
        self.file.data.faults.report_once(self.reported)
    }

    /// Writes to the server in this process, without a message.
    fn write_local_server(&self, near: &LocalServer) -> Result<(), Fault> {
        let (session, object) =
            (self.file.context.session.session(), self.file.context.object(self.access.generation));
        self.file.data.unflushed.note_unsynced(near.index());
        let local = self.file.context.layout.locate(self.offset).1;
        near.write(session, (object, self.atomic), (local, self.data))
            .map_err(|fault| fault.at(self.file.context.describe()))
    }

    /// Sends the parts on servers that are reached by message; all servers work concurrently.
    fn send(&self, range: Range<u64>, to: Destination) -> Result<(), Fault> {
        let mut started: Vec<StartedRequest> = Vec::new();
        let mut result = Ok(());
        for server in self.file.context.servers_in_order() {
            if to == Destination::OtherNodes && self.file.context.session.connection(server)?.shares_memory()
            {
                continue;
            }
            self.file.data.unflushed.note_unsynced(server);
            if let Err(fault) = self.send_to(server, range.clone(), &mut started) {
                result = Err(fault);
                break;
            }
        }
        for started in started {
            let answer = self.file.context.session.finish(started, None);
            result = result.and(answer.map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.file.context.describe()))
    }

    fn send_to(
        &self,
        server: ServerIndex,
        range: Range<u64>,
        started: &mut Vec<StartedRequest>,
    ) -> Result<(), Fault> {
        let transfer_bytes = self.file.context.session.transfer_bytes(server)?;
        let (mut parts, mut bytes, mut first) = (Vec::new(), 0usize, LocalOffset(0));
        for piece in self.file.context.layout.pieces_on(server, range) {
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
        started: &mut Vec<StartedRequest>,
    ) -> Result<(), Fault> {
        let object = self.file.context.object(self.access.generation);
        let request = match self.atomic {
            true => Request::WriteAtomic { object, at },
            false => Request::Write { object, at },
        };
        started.push(self.file.context.session.start(server, &request, parts)?);
        parts.clear();
        // A server replies in order, so the oldest request completes next.
        if 8 < started.len() {
            let oldest = started.remove(0);
            self.file.context.session.finish(oldest, None)?;
        }
        Ok(())
    }
}
