//! Writing a range of a view's stream: one record for all servers of the node, one message for each other server.
//!
//! Never: sends or keeps a list of offsets: both ends walk the view. Always: as with plain writes, a record is not overtaken, and in the
//! mixed phase a write returns after the servers have it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, Layout, ServerIndex};
use pario_net::message::{Phase, Request, ViewStream, Want};
use pario_net::outbox::{Concern, Concerned, RecordMeta};
use pario_view::Direction;

use super::range::FileWriter;
use crate::client::file::confirmed::{confirm, must_confirm};
use crate::client::file::context::FileContext;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::locks::access_range;
use crate::client::file::locks::{AccessKind, Guarded};
use crate::client::file::state::OpenFile;
use crate::client::file::write::memory::WriteSource;
use crate::client::session::state::StartedRequest;
use crate::client::session::views::NumberedView;

/// Pieces of this size are written one by one, each by its cheapest path.
const LARGE_BYTES: u64 = 512 << 10;
/// Pieces examined together; a view may have small pieces after its large ones.
const PIECES_PER_PASS_MAX: usize = 4096;

/// A lock that a call needs is requested for this many calls of its size.
const LOCK_AHEAD_CALLS: u64 = 64;

/// A range of a view's stream.
#[derive(Clone, Debug)]
pub(crate) struct StreamRange {
    pub(crate) view: Arc<NumberedView>,
    pub(crate) stream: Range<u64>,
    /// For a contiguous range given in file offsets: the same range in the view that the program has set.
    pub(crate) in_view: Option<(Arc<NumberedView>, Range<u64>)>,
}

impl StreamRange {
    pub(crate) fn new(view: Arc<NumberedView>, stream: Range<u64>) -> StreamRange {
        StreamRange { view, stream, in_view: None }
    }

    /// From its first to its last byte in the file; `None` if it is empty.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        self.view.view().span(self.stream.clone())
    }

    /// The same range in the view that the program has set, if it is another view.
    pub(in crate::client) fn in_program_view(&self) -> Option<StreamRange> {
        let (view, stream) = self.in_view.clone()?;
        Some(StreamRange::new(view, stream))
    }

    /// The same range, extended by the next accesses of a program that continues its pattern; `None` for a view without gaps: there the
    /// following bytes may belong to any process.
    pub(in crate::client) fn with_next(&self) -> Option<StreamRange> {
        let view = self.view.view();
        let bytes = self.stream.end - self.stream.start;
        let mut ahead = bytes.checked_mul(LOCK_AHEAD_CALLS)?;
        while bytes < ahead {
            let stream = self.stream.start..self.stream.start.checked_add(ahead)?;
            let place = StreamRange::new(Arc::clone(&self.view), stream);
            match place.span().filter(|span| span.end <= FILE_BYTES_MAX) {
                Some(span) => {
                    let gaps = span.end - span.start != ahead && view.direction() == Direction::Increasing;
                    return gaps.then_some(place);
                }
                None => ahead /= 2,
            }
        }
        None
    }

    /// Whether it is one contiguous piece of the file.
    pub(crate) fn is_one_piece(&self) -> bool {
        let forward = self.view.view().direction() == Direction::Increasing;
        forward
            && self.span().is_some_and(|span| span.end - span.start == self.stream.end - self.stream.start)
    }

    /// Typical piece size of the range in bytes, estimated from its beginning.
    pub(in crate::client) fn piece_bytes(&self) -> u64 {
        const LOOK: usize = 8;
        let extents = self.view.view().extents(self.stream.clone()).take(LOOK);
        let (bytes, count) = extents.fold((0, 0), |(bytes, count), extent| (bytes + extent.bytes, count + 1));
        bytes / u64::max(count, 1)
    }

    /// The servers that it concerns, in the order of this process.
    pub(in crate::client) fn concerns(&self, context: &FileContext) -> Vec<Concern> {
        let view = self.view.view();
        let bytes_on = |server| Concern {
            server,
            bytes: view.bytes_on_server(&context.layout, server, self.stream.clone()),
        };
        context.servers_in_order().map(bytes_on).filter(|concern| 0 < concern.bytes).collect()
    }

    /// Splits it so that a server's part of each is at most `limit` bytes.
    pub(in crate::client) fn transfers(
        &self,
        layout: &Layout,
        concern: &Concern,
        limit: u64,
    ) -> Vec<Range<u64>> {
        let parts = concern.bytes.div_ceil(limit).max(1);
        let (start, length) = (self.stream.start, self.stream.end - self.stream.start);
        let mut cuts = Vec::new();
        let mut at = start;
        while at < self.stream.end {
            // A view may map a long stretch to one server, so each split is checked and made smaller if needed.
            let mut bytes = length.div_ceil(parts).max(1).min(self.stream.end - at);
            let view = self.view.view();
            while limit < view.bytes_on_server(layout, concern.server, at..at + bytes) {
                bytes = (bytes / 2).max(1);
            }
            if view.touches_server(layout, concern.server, at..at + bytes) {
                cuts.push(at..at + bytes);
            }
            at += bytes;
        }
        cuts
    }
}

impl FileWriter<'_> {
    /// Writes all of `source` to a range of a stream; its length is the source's.
    pub(in crate::client) fn write_stream(
        &self,
        place: &StreamRange,
        source: &WriteSource<'_>,
    ) -> Result<(), Fault> {
        self.file.context.session.check_process()?;
        let Some(span) = place.span() else { return Ok(()) };
        if FILE_BYTES_MAX < span.end {
            return Err(Fault::new(
                Code::TooLarge,
                format!("{}: the write ends beyond the largest file offset", self.file.context.describe()),
            ));
        }
        if place.is_non_monotonic() {
            return self.write_non_monotonic(place, source);
        }
        // A write that must be atomic is one record, if it fits into one.
        let one_record = self.guarded != Guarded::No
            && self.file.context.backing.takes_records()
            && source.len() <= self.file.context.session.outbox()?.whole_bytes_max();
        if !one_record && (place.is_one_piece() || LARGE_BYTES <= place.piece_bytes()) {
            return self.write_pieces(place, source);
        }
        let _time = self.file.context.session.timed_access(&self.file.context.session.counters.write_ns);
        let (_lock, access) = match place.is_one_piece() {
            true => access_range(self.file, (&span, Some(place)), AccessKind::Write, self.guarded)?,
            false => (None, self.file.lease.access(Want::Write {})?),
        };
        self.write_stream_as(&access, place, source)
    }

    /// The same under an access that was begun, for any piece size.
    pub(in crate::client) fn write_stream_under(
        &self,
        access: &LeasedAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
    ) -> Result<(), Fault> {
        FileWriter { guarded: Guarded::No, ..*self }.write_stream_as(access, place, source)
    }

    fn write_stream_as(
        &self,
        access: &LeasedAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
    ) -> Result<(), Fault> {
        let Some(span) = place.span() else { return Ok(()) };
        let written = StreamWrite {
            file: self.file,
            access,
            range: place,
            source,
            reported: self.reported,
            guarded: self.guarded,
            span: &span,
        }
        .run();
        self.file.data.read_ahead.discard();
        written?;
        if access.phase == (Phase::Mixed {}) && self.file.data.length.known() < span.end {
            self.file.context.session.call(
                ServerIndex::MANAGER,
                &Request::Extend { inode: self.file.context.inode, end: span.end },
            )?;
        }
        self.file.data.length.note_write_end(span.end);
        Ok(())
    }

    /// Large pieces, each by its cheapest path.
    fn write_pieces(&self, place: &StreamRange, source: &WriteSource<'_>) -> Result<(), Fault> {
        let bytes = source.contiguous();
        let (mut rest, mut extents): (&[u8], _) = (&bytes, place.view.view().extents(place.stream.clone()));
        loop {
            let mut pieces: Vec<(u64, &[u8])> = Vec::new();
            for extent in extents.by_ref().take(PIECES_PER_PASS_MAX) {
                let length = usize::try_from(extent.bytes).expect("inside the caller's memory");
                let (piece, behind) = rest.split_at(length);
                pieces.push((extent.file_offset, piece));
                rest = behind;
            }
            match pieces.as_slice() {
                [] => return Ok(()),
                [(offset, data)] => {
                    let whole = Some(place).filter(|place| place.is_one_piece());
                    self.write_within(*offset, data, whole)?;
                }
                _ => {
                    let _time =
                        self.file.context.session.timed_access(&self.file.context.session.counters.write_ns);
                    let access = self.file.lease.access(Want::Write {})?;
                    self.write_ranges_under(&access, &pieces)?;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct StreamWrite<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a LeasedAccess<'a>,
    range: &'a StreamRange,
    source: &'a WriteSource<'a>,
    reported: &'a AtomicU64,
    guarded: Guarded,
    span: &'a Range<u64>,
}

impl StreamWrite<'_> {
    fn run(&self) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(self.file.context.describe());
        let concerns = self.range.concerns(&self.file.context);
        let (mut near, mut far) = (Vec::new(), Vec::new());
        let mount = &self.file.context.session;
        if self.file.context.backing.takes_records()
            && concerns.iter().any(|one| !mount.is_sent(one.server, &self.range.view))
        {
            mount.attach_servers(concerns.iter().map(|concern| concern.server));
            mount.send_view_to_all(concerns.iter().map(|concern| concern.server), &self.range.view);
        }
        for concern in concerns {
            let connection = self.file.context.session.connection(concern.server).map_err(at)?;
            self.file.context.session.send_view(concern.server, &self.range.view).map_err(at)?;
            self.file.data.unflushed.note_unsynced(concern.server);
            let by_record = connection.shares_memory() && self.file.context.backing.takes_records();
            if by_record { near.push(concern) } else { far.push(concern) }
        }
        // Messages first: the network works while records are copied.
        let started = self.send(&far);
        let committed = if near.is_empty() { Ok(()) } else { self.commit(&near) };
        let mut result = Ok(());
        for started in started? {
            result = result.and(self.file.context.session.finish(started, None).map(|_| ()));
        }
        committed.and(result.map_err(at))
    }

    /// Commits the stream to the outbox, in records.
    fn commit(&self, near: &[Concern]) -> Result<(), Fault> {
        let file = self.file;
        let mut through = self.access.phase == (Phase::Mixed {});
        for concern in near {
            let (_, cursor) = file
                .context
                .session
                .cursor(concern.server)
                .map_err(|fault| fault.at(file.context.describe()))?;
            through |= file.context.backing.has_leases() && !cursor.may_write_behind(file.context.inode);
        }
        // A record that a server refused meanwhile is reported by the next write, not only by sync or close.
        file.data.unflushed.collect_errors();
        file.data.faults.report_once(self.reported)?;
        let outbox = file.context.session.outbox()?;
        file.context.session.ensure_watchdog();
        let record_max = match self.guarded {
            Guarded::No => outbox.record_bytes_max(),
            Guarded::Whole | Guarded::Locked => outbox.whole_bytes_max(),
        };
        let (mut done, total, mut position) = (0, self.source.len(), 0);
        while done < total {
            self.access.check()?;
            let bytes = record_max.min(total - done);
            let offset = self.range.stream.start + done as u64;
            let part = StreamRange::new(Arc::clone(&self.range.view), offset..offset + bytes as u64);
            let all = if bytes == total { near.to_vec() } else { part.concerns(&self.file.context) };
            let concerns: Vec<Concern> =
                all.into_iter().filter(|some| near.iter().any(|one| one.server == some.server)).collect();
            position = match self.commit_one(&part, &concerns, done..done + bytes) {
                Ok(position) => position,
                // The ring is held by a server that is stopped in the middle of reading it.
                Err(fault) if fault.code == Code::Busy => return self.send_rest(near, done),
                Err(fault) => return Err(fault.at(file.context.describe())),
            };
            file.data.unflushed.note_stream(self.span, &concerns, position);
            done += bytes;
        }
        file.context.session.request_memory();
        through |= must_confirm(file, near.iter().map(|concern| concern.server));
        if through { self.write_through(near, position) } else { Ok(()) }
    }

    /// Sends the rest, from byte `done` on, by message.
    fn send_rest(&self, near: &[Concern], done: usize) -> Result<(), Fault> {
        let stream = self.range.stream.start + done as u64..self.range.stream.end;
        let rest = StreamRange::new(Arc::clone(&self.range.view), stream);
        let bytes = &self.source.contiguous()[done..];
        let write = StreamWrite { range: &rest, source: &WriteSource::Bytes(bytes), ..*self };
        let all = rest.concerns(&self.file.context);
        let servers: Vec<Concern> =
            all.into_iter().filter(|some| near.iter().any(|one| one.server == some.server)).collect();
        let mut result = Ok(());
        for started in write.send(&servers)? {
            result = result.and(self.file.context.session.finish(started, None).map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.file.context.describe()))
    }

    fn commit_one(
        &self,
        part: &StreamRange,
        concerns: &[Concern],
        range: Range<usize>,
    ) -> Result<u64, Fault> {
        let file = self.file;
        let outbox = file.context.session.outbox()?;
        let meta = RecordMeta {
            object: file.context.object(self.access.generation),
            layout: file.context.layout,
            view: part.view.number(),
            displacement: part.view.displacement(),
            offset: part.stream.start,
            local_writers: file.context.local_writers(),
        };
        let commit = || {
            for concern in concerns {
                file.context.session.cursor(concern.server)?;
                file.context.session.send_view(concern.server, &part.view)?;
            }
            self.send_view_to_sharers(concerns)?;
            let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| self.source.visit(range.clone(), write);
            outbox.commit_stream(meta, concerns, (range.len(), fill), &file.context.session.alive_check())
        };
        let position = file.context.session.retry_once(commit)?;
        part.view.needed_to(position);
        let counters = &file.context.session.counters;
        counters.records.fetch_add(1, Ordering::Relaxed);
        counters.record_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
        Ok(position)
    }

    /// Servers that share a bit with a concerned server also read the record, and must know its view.
    fn send_view_to_sharers(&self, concerns: &[Concern]) -> Result<(), Fault> {
        let concerned = Concerned::of(concerns.iter().map(|concern| concern.server));
        let mount = &self.file.context.session;
        for server in mount.server_indices().filter(|server| concerned.includes(*server)) {
            let attached = mount.outbox_if_made().is_some_and(|outbox| outbox.cursor(server).is_some());
            if attached {
                mount.send_view(server, &self.range.view)?;
            }
        }
        Ok(())
    }

    fn write_through(&self, near: &[Concern], position: u64) -> Result<(), Fault> {
        if !self.file.context.backing.has_leases() {
            let near: Vec<ServerIndex> = near.iter().map(|concern| concern.server).collect();
            return confirm(self.file, &near, self.reported);
        }
        for concern in near {
            self.file.data.unflushed.wait_drained(concern.server, position)?;
        }
        self.file.data.unflushed.collect_errors();
        self.file.data.faults.report_once(self.reported)
    }

    /// Sends each server on another node its part; all work concurrently.
    fn send(&self, far: &[Concern]) -> Result<Vec<StartedRequest>, Fault> {
        let mut started = Vec::new();
        if far.is_empty() {
            return Ok(started);
        }
        let bytes = self.source.contiguous();
        for concern in far {
            let limit = self.file.context.session.transfer_bytes(concern.server)? as u64;
            for stream in self.range.transfers(&self.file.context.layout, concern, limit) {
                match self.send_one(concern.server, stream, &bytes) {
                    Ok(one) => started.push(one),
                    Err(fault) => {
                        // Requests under way must not stay on their connections.
                        started.into_iter().for_each(|one| drop(self.file.context.session.finish(one, None)));
                        return Err(fault.at(self.file.context.describe()));
                    }
                }
            }
        }
        Ok(started)
    }

    fn send_one(
        &self,
        server: ServerIndex,
        stream: Range<u64>,
        bytes: &[u8],
    ) -> Result<StartedRequest, Fault> {
        let view = self.range.view.view();
        let mut part = pario_net::buffers::take(0);
        for piece in view.on_server(&self.file.context.layout, server, stream.clone()) {
            let from = usize::try_from(piece.stream_offset - self.range.stream.start).expect("inside memory");
            let length = usize::try_from(piece.bytes).expect("inside memory");
            part.extend_from_slice(&bytes[from..from + length]);
        }
        let stream = ViewStream {
            view: self.range.view.number(),
            displacement: self.range.view.displacement(),
            layout: self.file.context.layout,
            offset: stream.start,
            bytes: stream.end - stream.start,
        };
        let object = self.file.context.object(self.access.generation);
        let started =
            self.file.context.session.start(server, &Request::WriteStream { object, stream }, &[&part]);
        pario_net::buffers::give_back(part);
        started
    }
}
