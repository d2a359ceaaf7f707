//! Writing a range of a view's stream: one record for all servers of the node, one message for each other server.
//!
//! Never: sends or keeps a list of offsets: both ends walk the view. Always: as with plain writes, a record is not overtaken, and in
//! the mixed phase a write returns when the servers have it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, ServerIndex};
use pario_net::message::{Phase, Request, Stream, Want};
use pario_net::outbox::{Concern, Concerned, RecordMeta};
use pario_view::Direction;

use super::lease::Access;
use super::locks::{Guarded, Kind};
use super::memory::Source;
use super::mount::Started;
use super::open_file::OpenFile;
use super::views::NumberedView;

/// Pieces of this size are written one by one, each by the way that suits it.
const LARGE_BYTES: u64 = 512 << 10;
/// So many pieces are looked at together; a view may have small ones behind its large ones.
const PIECES_AT_ONCE_MAX: usize = 4096;

/// A lock that a call needs is asked for as many calls of its size.
const CALLS_AHEAD: u64 = 64;

/// Where in which view.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) view: Arc<NumberedView>,
    pub(crate) stream: Range<u64>,
    /// Bytes in a row are the file's own, whatever the view: here is where they are in the view that the program has set.
    pub(crate) seen: Option<(Arc<NumberedView>, Range<u64>)>,
}

impl Place {
    pub(crate) fn new(view: Arc<NumberedView>, stream: Range<u64>) -> Place {
        Place { view, stream, seen: None }
    }

    /// From its first to its last byte in the file; `None` if it has no byte.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        if self.stream.is_empty() {
            return None;
        }
        let view = self.view.view();
        let first = view.file_offset(self.stream.start)?;
        let last = view.file_offset(self.stream.end.checked_sub(1)?)?;
        Some(first..last.checked_add(1)?)
    }

    /// The same in the view that the program has set, if that is another one.
    pub(super) fn as_seen(&self) -> Option<Place> {
        let (view, stream) = self.seen.clone()?;
        Some(Place::new(view, stream))
    }

    /// The same with what a program that goes on as it began will touch next; `None` where a view has no gaps: what comes next there may be
    /// anybody's.
    pub(super) fn with_next(&self) -> Option<Place> {
        let view = self.view.view();
        let bytes = self.stream.end - self.stream.start;
        let mut ahead = bytes.checked_mul(CALLS_AHEAD)?;
        while bytes < ahead {
            let stream = self.stream.start..self.stream.start.checked_add(ahead)?;
            let place = Place::new(Arc::clone(&self.view), stream);
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

    /// Whether it is one piece of the file.
    pub(crate) fn is_one_piece(&self) -> bool {
        let forward = self.view.view().direction() == Direction::Increasing;
        forward
            && self.span().is_some_and(|span| span.end - span.start == self.stream.end - self.stream.start)
    }

    /// How many pieces of the file a typical part of the stream lies in, judged by its beginning.
    pub(super) fn piece_bytes(&self) -> u64 {
        const LOOK: usize = 8;
        let extents = self.view.view().extents(self.stream.clone()).take(LOOK);
        let (bytes, count) = extents.fold((0, 0), |(bytes, count), extent| (bytes + extent.bytes, count + 1));
        bytes / u64::max(count, 1)
    }
}

impl OpenFile {
    /// Writes all of `source` to a range of a stream; its length is the source's.
    pub(super) fn write_stream(
        self: &Arc<Self>,
        place: &Place,
        source: &Source<'_>,
        (heard, guarded): (&AtomicU64, Guarded),
    ) -> Result<(), Fault> {
        self.mount.check_process()?;
        let Some(span) = place.span() else { return Ok(()) };
        if FILE_BYTES_MAX < span.end {
            return Err(Fault::new(
                Code::TooLarge,
                format!("{}: a write beyond every file", self.describe()),
            ));
        }
        // What must be there as a whole or not at all goes as one record, if it fits into one.
        let one_record = guarded != Guarded::No
            && self.placed.is_none()
            && source.len() <= self.mount.outbox()?.whole_bytes_max();
        if !one_record && (place.is_one_piece() || LARGE_BYTES <= place.piece_bytes()) {
            return self.write_pieces(place, source, (heard, guarded));
        }
        let _time = self.mount.timed(&self.mount.counters.write_ns);
        let (_lock, access) = match place.is_one_piece() {
            true => self.access_range((&span, Some(place)), Kind::Write, guarded)?,
            false => (None, self.access(Want::Write {})?),
        };
        self.write_stream_as(&access, place, source, (heard, guarded))
    }

    /// The same under an access that was begun, whatever the size of the pieces.
    pub(super) fn write_stream_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        place: &Place,
        source: &Source<'_>,
        heard: &AtomicU64,
    ) -> Result<(), Fault> {
        self.write_stream_as(access, place, source, (heard, Guarded::No))
    }

    fn write_stream_as(
        self: &Arc<Self>,
        access: &Access<'_>,
        place: &Place,
        source: &Source<'_>,
        (heard, guarded): (&AtomicU64, Guarded),
    ) -> Result<(), Fault> {
        let Some(span) = place.span() else { return Ok(()) };
        let written = StreamWrite { file: self, access, place, source, heard, guarded, span: &span }.run();
        self.discard_ahead();
        written?;
        if access.phase == (Phase::Mixed {}) && self.size.load(Ordering::Acquire) < span.end {
            self.mount.call(ServerIndex::MANAGER, &Request::Extend { inode: self.inode, end: span.end })?;
        }
        self.wrote_to(span.end);
        Ok(())
    }

    /// Large pieces, each by the way that suits it.
    fn write_pieces(
        self: &Arc<Self>,
        place: &Place,
        source: &Source<'_>,
        (heard, guarded): (&AtomicU64, Guarded),
    ) -> Result<(), Fault> {
        let bytes = source.in_a_row();
        let (mut rest, mut extents): (&[u8], _) = (&bytes, place.view.view().extents(place.stream.clone()));
        loop {
            let mut pieces: Vec<(u64, &[u8])> = Vec::new();
            for extent in extents.by_ref().take(PIECES_AT_ONCE_MAX) {
                let length = usize::try_from(extent.bytes).expect("inside the caller's memory");
                let (piece, behind) = rest.split_at(length);
                pieces.push((extent.file_offset, piece));
                rest = behind;
            }
            match pieces.as_slice() {
                [] => return Ok(()),
                [(offset, data)] => {
                    let whole = Some(place).filter(|place| place.is_one_piece());
                    self.write_within((*offset, data), whole, (heard, guarded))?;
                }
                _ => {
                    let _time = self.mount.timed(&self.mount.counters.write_ns);
                    let access = self.access(Want::Write {})?;
                    self.write_ranges_under(&access, &pieces, heard)?;
                }
            }
        }
    }

    /// The servers that a range of a stream concerns, in the order in which this process turns to them.
    pub(super) fn concerns(&self, place: &Place) -> Vec<Concern> {
        let view = place.view.view();
        let bytes_on = |server| Concern {
            server,
            bytes: view.bytes_on_server(&self.layout, server, place.stream.clone()),
        };
        self.servers_in_turn().map(bytes_on).filter(|concern| 0 < concern.bytes).collect()
    }
}

#[derive(Clone, Copy)]
struct StreamWrite<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a Access<'a>,
    place: &'a Place,
    source: &'a Source<'a>,
    heard: &'a AtomicU64,
    guarded: Guarded,
    span: &'a Range<u64>,
}

impl StreamWrite<'_> {
    fn run(&self) -> Result<(), Fault> {
        let at = |fault: Fault| fault.at(self.file.describe());
        let concerns = self.file.concerns(self.place);
        let (mut near, mut far) = (Vec::new(), Vec::new());
        let mount = &self.file.mount;
        if self.file.placed.is_none()
            && concerns.iter().any(|one| !mount.is_told(one.server, &self.place.view))
        {
            mount.introduce(concerns.iter().map(|concern| concern.server));
            mount.tell_view_together(concerns.iter().map(|concern| concern.server), &self.place.view);
        }
        for concern in concerns {
            let connection = self.file.mount.connection(concern.server).map_err(at)?;
            self.file.mount.tell_view(concern.server, &self.place.view).map_err(at)?;
            self.file.note_unsynced(concern.server);
            let by_record = connection.shares_memory() && self.file.placed.is_none();
            if by_record { near.push(concern) } else { far.push(concern) }
        }
        // Messages first: the network works while records are copied.
        let started = self.send(&far);
        let committed = if near.is_empty() { Ok(()) } else { self.commit(&near) };
        let mut result = Ok(());
        for started in started? {
            result = result.and(self.file.mount.finish(started, None).map(|_| ()));
        }
        committed.and(result.map_err(at))
    }

    /// Puts the stream into the outbox, in records.
    fn commit(&self, near: &[Concern]) -> Result<(), Fault> {
        let file = self.file;
        let mut through = self.access.phase == (Phase::Mixed {});
        for concern in near {
            let (_, cursor) = file.mount.cursor(concern.server).map_err(|fault| fault.at(file.describe()))?;
            through |= file.homeless.is_none() && !cursor.may_write_behind(file.inode);
        }
        let outbox = file.mount.outbox()?;
        file.mount.keep_minding();
        let record_max = match self.guarded {
            Guarded::No => outbox.record_bytes_max(),
            Guarded::Whole | Guarded::Locked => outbox.whole_bytes_max(),
        };
        let (mut done, total, mut position) = (0, self.source.len(), 0);
        while done < total {
            self.access.check()?;
            let bytes = record_max.min(total - done);
            let offset = self.place.stream.start + done as u64;
            let part = Place::new(Arc::clone(&self.place.view), offset..offset + bytes as u64);
            let all = if bytes == total { near.to_vec() } else { file.concerns(&part) };
            let concerns: Vec<Concern> =
                all.into_iter().filter(|some| near.iter().any(|one| one.server == some.server)).collect();
            position = match self.commit_one(&part, &concerns, done..done + bytes) {
                Ok(position) => position,
                // The ring is held by a server that is stopped in the middle of reading it.
                Err(fault) if fault.code == Code::Busy => return self.send_rest(near, done),
                Err(fault) => return Err(fault.at(file.describe())),
            };
            file.note_stream(self.span, &concerns, position);
            done += bytes;
        }
        file.mount.want_memory();
        through |= file.must_settle(near.iter().map(|concern| concern.server));
        if through { self.write_through(near, position) } else { Ok(()) }
    }

    /// Sends what is left, from byte `done` on, by message.
    fn send_rest(&self, near: &[Concern], done: usize) -> Result<(), Fault> {
        let stream = self.place.stream.start + done as u64..self.place.stream.end;
        let rest = Place::new(Arc::clone(&self.place.view), stream);
        let bytes = &self.source.in_a_row()[done..];
        let write = StreamWrite { place: &rest, source: &Source::Bytes(bytes), ..*self };
        let all = self.file.concerns(&rest);
        let servers: Vec<Concern> =
            all.into_iter().filter(|some| near.iter().any(|one| one.server == some.server)).collect();
        let mut result = Ok(());
        for started in write.send(&servers)? {
            result = result.and(self.file.mount.finish(started, None).map(|_| ()));
        }
        result.map_err(|fault| fault.at(self.file.describe()))
    }

    fn commit_one(&self, part: &Place, concerns: &[Concern], range: Range<usize>) -> Result<u64, Fault> {
        let file = self.file;
        let outbox = file.mount.outbox()?;
        let meta = RecordMeta {
            object: file.object(self.access.generation),
            layout: file.layout,
            view: part.view.number(),
            moved: part.view.moved(),
            offset: part.stream.start,
            companions: file.companions(),
        };
        let commit = || {
            for concern in concerns {
                file.mount.cursor(concern.server)?;
                file.mount.tell_view(concern.server, &part.view)?;
            }
            self.tell_namesakes(concerns)?;
            let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| self.source.visit(range.clone(), write);
            outbox.commit_stream(meta, concerns, (range.len(), fill), &file.mount.minded())
        };
        let position = file.mount.twice_if_quick(commit)?;
        part.view.needed_to(position);
        let counters = &file.mount.counters;
        counters.records.fetch_add(1, Ordering::Relaxed);
        counters.record_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
        Ok(position)
    }

    /// Servers that share a bit with one that a record concerns look at it too, and must know its view.
    fn tell_namesakes(&self, concerns: &[Concern]) -> Result<(), Fault> {
        let concerned = Concerned::of(concerns.iter().map(|concern| concern.server));
        let mount = &self.file.mount;
        for server in mount.server_indices().filter(|server| concerned.includes(*server)) {
            let attached = mount.outbox_if_made().is_some_and(|outbox| outbox.cursor(server).is_some());
            if attached {
                mount.tell_view(server, &self.place.view)?;
            }
        }
        Ok(())
    }

    fn write_through(&self, near: &[Concern], position: u64) -> Result<(), Fault> {
        if self.file.homeless.is_some() {
            let near: Vec<ServerIndex> = near.iter().map(|concern| concern.server).collect();
            return self.file.settle(&near, self.heard);
        }
        for concern in near {
            self.file.wait_taken(concern.server, position)?;
        }
        self.file.collect_errors();
        self.file.tell_fault(self.heard)
    }

    /// Sends each server on another node its part; all work at the same time.
    fn send(&self, far: &[Concern]) -> Result<Vec<Started>, Fault> {
        let mut started = Vec::new();
        if far.is_empty() {
            return Ok(started);
        }
        let bytes = self.source.in_a_row();
        for concern in far {
            let limit = self.file.mount.transfer_bytes(concern.server)? as u64;
            for stream in self.file.transfers(self.place, concern, limit) {
                match self.send_one(concern.server, stream, &bytes) {
                    Ok(one) => started.push(one),
                    Err(fault) => {
                        // What is under way must not be left on its connections.
                        started.into_iter().for_each(|one| drop(self.file.mount.finish(one, None)));
                        return Err(fault.at(self.file.describe()));
                    }
                }
            }
        }
        Ok(started)
    }

    fn send_one(&self, server: ServerIndex, stream: Range<u64>, bytes: &[u8]) -> Result<Started, Fault> {
        let view = self.place.view.view();
        let mut part = pario_net::buffers::take(0);
        for piece in view.on_server(&self.file.layout, server, stream.clone()) {
            let from = usize::try_from(piece.stream_offset - self.place.stream.start).expect("inside memory");
            let length = usize::try_from(piece.bytes).expect("inside memory");
            part.extend_from_slice(&bytes[from..from + length]);
        }
        let stream = Stream {
            view: self.place.view.number(),
            moved: self.place.view.moved(),
            layout: self.file.layout,
            offset: stream.start,
            bytes: stream.end - stream.start,
        };
        let object = self.file.object(self.access.generation);
        let started = self.file.mount.start(server, &Request::WriteStream { object, stream }, &[&part]);
        pario_net::buffers::give_back(part);
        started
    }
}

impl OpenFile {
    /// Cuts a range of a stream so that a server's part of each is at most `limit` bytes.
    pub(super) fn transfers(&self, place: &Place, concern: &Concern, limit: u64) -> Vec<Range<u64>> {
        let parts = concern.bytes.div_ceil(limit).max(1);
        let (start, length) = (place.stream.start, place.stream.end - place.stream.start);
        let mut cuts = Vec::new();
        let mut at = start;
        while at < place.stream.end {
            // A view may put all of a stretch on one server, so a cut is checked and made smaller where it must be.
            let mut bytes = length.div_ceil(parts).max(1).min(place.stream.end - at);
            let view = place.view.view();
            while limit < view.bytes_on_server(&self.layout, concern.server, at..at + bytes) {
                bytes = (bytes / 2).max(1);
            }
            if view.touches_server(&self.layout, concern.server, at..at + bytes) {
                cuts.push(at..at + bytes);
            }
            at += bytes;
        }
        cuts
    }
}
