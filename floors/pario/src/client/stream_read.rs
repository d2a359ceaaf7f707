//! Reading a range of a view's stream: from lent objects, small pieces together, or through a mapping where they are read again; by one
//! message for each other server, which gathers its part; the next range is asked for before it is wanted.
//!
//! Never: returns bytes beyond the file's end, or a hole as anything but zeros; maps what may be cut while its lease is held. Always: waits
//! for our own records first.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use pario_core::{Fault, ServerIndex};
use pario_net::message::{Phase, Request, Stream, Want};
use pario_net::outbox::Concern;
use pario_view::{Direction, ServerRow};

use super::lease::Access;
use super::loans::{Loan, Wish};
use super::locks::Guarded;
use super::mount::Started;
use super::open_file::OpenFile;
use super::sieve::{self, Cost, WantedRow};
use super::stream_write::Place;

/// Pieces of this size are reads of their own.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// A mapping is used where at least one byte in so many is wanted.
const MAPPED_SPAN_MAX: u64 = 64;
/// Ranges longer than this are not asked for ahead.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// A range that was asked for before it was wanted.
pub(super) struct StreamAhead {
    /// The number of its shape, and how far that is moved.
    view: (u32, u64),
    stream: Range<u64>,
    started: Vec<Asked>,
}

/// A request under way for a server's part of a range.
struct Asked {
    server: ServerIndex,
    stream: Range<u64>,
    started: Started,
}

impl OpenFile {
    /// Fills `target` from a range of a stream as far as the file goes; returns how many bytes that was.
    pub(super) fn read_stream(
        self: &Arc<Self>,
        place: &Place,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize, Fault> {
        self.mount.check_process()?;
        let view = place.view.view();
        let Some(span) = place.span() else { return Ok(0) };
        if view.direction() == Direction::Increasing && place.is_one_piece() {
            return self.read(span.start, target, guarded);
        }
        if view.direction() != Direction::Increasing || PIECE_BYTES_MIN <= place.piece_bytes() {
            return self.read_pieces(place, target, guarded);
        }
        let _time = self.mount.timed(&self.mount.counters.read_ns);
        let access = self.access(Want::Read {})?;
        let size = self.size_for(&access, span.end)?;
        let count = view.bytes_in(place.stream.clone(), 0..size);
        if count == 0 {
            return Ok(0);
        }
        let stream = place.stream.start..place.stream.start + count;
        let place = Place::new(Arc::clone(&place.view), stream);
        if self.homeless.is_none() && self.is_pending(&span) {
            self.drain()?;
        }
        let count = usize::try_from(count).expect("inside the caller's memory");
        let read = StreamRead { file: self, access: &access, place: &place, size };
        read.run(&mut target[..count]).map_err(|fault| fault.at(self.describe()))?;
        Ok(count)
    }

    /// Large pieces, each as a read of its own.
    fn read_pieces(
        self: &Arc<Self>,
        place: &Place,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize, Fault> {
        let mut done = 0;
        for extent in place.view.view().extents(place.stream.clone()) {
            let length = usize::try_from(extent.bytes).expect("inside the caller's memory");
            let count = self.read(extent.file_offset, &mut target[done..done + length], guarded)?;
            done += count;
            if count < length {
                break;
            }
        }
        Ok(done)
    }

    /// Forgets what was asked for ahead.
    pub(super) fn discard_stream_ahead(&self) {
        let ahead = self.stream_ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        for asked in ahead.into_iter().flat_map(|ahead| ahead.started) {
            // The answer is not wanted, but it must not be left on the connection.
            let _ = self.mount.finish(asked.started, None);
        }
    }
}

struct StreamRead<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a Access<'a>,
    place: &'a Place,
    size: u64,
}

impl StreamRead<'_> {
    fn run(&self, target: &mut [u8]) -> Result<(), Fault> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        // Only while nobody writes does an object that is not there stay away.
        let under = if self.access.phase == (Phase::Read {}) { self.access.number } else { 0 };
        let wish = Wish { generation: self.access.generation, under, write: false };
        let concerns = self.file.concerns(self.place);
        self.file.borrow_together(concerns.iter().map(|concern| concern.server), wish);
        for concern in concerns {
            match self.file.loan(concern.server, wish)? {
                Loan::Refused => far.push(concern),
                loan @ (Loan::Descriptor(_) | Loan::Absent) => near.push((concern, loan)),
            }
        }
        // Messages first: servers work while lent objects are read.
        let asked = if far.is_empty() { Vec::new() } else { self.ahead_or_asked(&far)? };
        let mut result = Ok(());
        for (concern, loan) in near {
            result = result.and_then(|()| self.read_lent(&concern, &loan, target));
        }
        for asked in asked {
            // All are fetched whatever happened: an answer that nobody fetches would stay on its connection.
            let fetched = self.fetch(asked, target);
            result = result.and(fetched);
        }
        result?;
        if far.is_empty() { Ok(()) } else { self.ask_ahead() }
    }

    fn read_lent(&self, concern: &Concern, loan: &Loan, target: &mut [u8]) -> Result<(), Fault> {
        let counters = &self.file.mount.counters;
        match loan {
            Loan::Descriptor(descriptor)
                if self.maps(concern)
                    && self.is_read_again(concern.server, descriptor)?
                    && self.read_mapped(concern, descriptor, target)? =>
            {
                counters.mapped_reads.fetch_add(1, Ordering::Relaxed);
                counters.mapped_read_bytes.fetch_add(concern.bytes, Ordering::Relaxed);
            }
            Loan::Descriptor(descriptor) => {
                let cost = self.read_sieved(concern.server, descriptor, target)?;
                counters.direct_reads.fetch_add(cost.calls, Ordering::Relaxed);
                counters.direct_read_bytes.fetch_add(concern.bytes, Ordering::Relaxed);
            }
            Loan::Absent | Loan::Refused => {
                self.wanted(concern.server).for_each(|row| target[row.places()].fill(0));
            }
        }
        Ok(())
    }

    /// Whether the pieces lie so close together that whole pages of them are worth mapping.
    fn maps(&self, concern: &Concern) -> bool {
        // A plain file may be cut by anybody, and memory behind its end kills who touches it.
        if self.file.mount.serves_plain_files() {
            return false;
        }
        let Some(span) = self.place.span() else { return false };
        let here = (span.end - span.start) / u64::from(self.file.layout.count());
        here <= concern.bytes.saturating_mul(MAPPED_SPAN_MAX)
    }

    /// What a server has of the range that is wanted, from the first to the last byte.
    fn local(&self, server: ServerIndex) -> Range<u64> {
        let (layout, span) = (&self.file.layout, self.place.span().unwrap_or_default());
        layout.local_length(server, span.start)..layout.local_length(server, span.end)
    }

    /// Whether this process has read so far into an object before.
    fn is_read_again(&self, server: ServerIndex, descriptor: &Arc<OwnedFd>) -> Result<bool, Fault> {
        let end = self.local(server).end;
        if self.file.window(server, descriptor, end).is_some() {
            return Ok(true);
        }
        let again = self.file.mount.windows.is_worth(descriptor, end);
        again.map_err(|error| Fault::from_io(&error, "looking at a lent object"))
    }

    fn read_sieved(
        &self,
        server: ServerIndex,
        descriptor: &Arc<OwnedFd>,
        target: &mut [u8],
    ) -> Result<Cost, Fault> {
        let cost = sieve::read(descriptor.as_fd(), self.wanted(server), target).map_err(|error| {
            let stream = &self.place.stream;
            let doing = format!("reading bytes {stream:?} of a view from server {server}");
            Fault::from_io(&error, doing)
        })?;
        self.file.mount.windows.note_read(descriptor, self.local(server).end);
        Ok(cost)
    }

    /// False: it is not in memory, and calls read it sooner.
    fn read_mapped(
        &self,
        concern: &Concern,
        descriptor: &Arc<OwnedFd>,
        target: &mut [u8],
    ) -> Result<bool, Fault> {
        let server = concern.server;
        let range = self.local(server);
        let at = |error| Fault::from_io(&error, format!("mapping server {server}'s object"));
        let window = self.file.map(server, descriptor, range.end).map_err(at)?;
        if !window.is_ready(descriptor, &range).map_err(at)? {
            return Ok(false);
        }
        window.read(self.wanted(server), target);
        Ok(true)
    }

    /// The pieces that lie on a server.
    fn wanted(&self, server: ServerIndex) -> impl Iterator<Item = WantedRow> {
        let start = self.place.stream.start;
        let rows =
            self.place.view.view().rows_on_server(&self.file.layout, server, self.place.stream.clone());
        rows.map(move |ServerRow { first, stride, count }| {
            let [place, bytes, count] = [first.stream_offset - start, first.bytes, count]
                .map(|number| usize::try_from(number).expect("inside the caller's memory"));
            WantedRow { at: first.local.0, place, bytes, stride, count }
        })
    }

    fn ahead_or_asked(&self, far: &[Concern]) -> Result<Vec<Asked>, Fault> {
        let ahead = self.file.stream_ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        match ahead {
            Some(ahead) if ahead.view == which(self.place) && ahead.stream == self.place.stream => {
                return Ok(ahead.started);
            }
            Some(ahead) => {
                for asked in ahead.started {
                    let _ = self.file.mount.finish(asked.started, None);
                }
            }
            None => {}
        }
        self.ask(self.place, far)
    }

    fn ask(&self, place: &Place, far: &[Concern]) -> Result<Vec<Asked>, Fault> {
        let mut all = Vec::new();
        for concern in far {
            let asked = self.ask_one(place, concern, &mut all);
            if let Err(fault) = asked {
                for asked in all {
                    let _ = self.file.mount.finish(asked.started, None);
                }
                return Err(fault);
            }
        }
        Ok(all)
    }

    fn ask_one(&self, place: &Place, concern: &Concern, all: &mut Vec<Asked>) -> Result<(), Fault> {
        let (mount, server) = (&self.file.mount, concern.server);
        mount.tell_view(server, &place.view)?;
        let limit = mount.transfer_bytes(server)? as u64;
        let object = self.file.object(self.access.generation);
        for range in self.file.transfers(place, concern, limit) {
            let stream = Stream {
                view: place.view.number(),
                moved: place.view.moved(),
                layout: self.file.layout,
                offset: range.start,
                bytes: range.end - range.start,
            };
            let started = mount.start(server, &Request::ReadStream { object, stream }, &[])?;
            all.push(Asked { server, stream: range, started });
        }
        Ok(())
    }

    /// Scatters a server's part into the caller's memory.
    fn fetch(&self, asked: Asked, target: &mut [u8]) -> Result<(), Fault> {
        let Asked { server, stream, started } = asked;
        let answer = self.file.mount.finish(started, None)?;
        let (start, mut done) = (self.place.stream.start, 0);
        for part in self.place.view.view().on_server(&self.file.layout, server, stream) {
            let at = usize::try_from(part.stream_offset - start).expect("inside the caller's memory");
            let bytes = usize::try_from(part.bytes).expect("inside the caller's memory");
            let Some(source) = answer.data.get(done..done + bytes) else {
                let text =
                    format!("server {server} sent {} bytes, less than the view asks for", answer.data.len());
                return Err(Fault::new(pario_core::Code::Protocol, text));
            };
            target[at..at + bytes].copy_from_slice(source);
            done += bytes;
        }
        pario_net::buffers::give_back(answer.data);
        Ok(())
    }

    /// Asks for the range behind this one, as long as this one: a reader that goes through its stream wants it next.
    fn ask_ahead(&self) -> Result<(), Fault> {
        let length = self.place.stream.end - self.place.stream.start;
        let first = self.file.last_stream_end.swap(self.place.stream.end, Ordering::AcqRel);
        let sequential = first == self.place.stream.start && self.access.phase != (Phase::Mixed {});
        let stream = self.place.stream.end..self.place.stream.end.saturating_add(length);
        let place = Place::new(Arc::clone(&self.place.view), stream);
        let Some(span) = place.span().filter(|_| sequential && length <= AHEAD_BYTES_MAX) else {
            return Ok(());
        };
        if self.size < span.end || self.file.is_pending(&span) {
            return Ok(());
        }
        let mut far = Vec::new();
        for concern in self.file.concerns(&place) {
            let connection = self.file.mount.connection(concern.server)?;
            let lent = connection.shares_memory() && connection.welcome().lends;
            if !lent || self.file.is_refused(concern.server) {
                far.push(concern);
            }
        }
        let started = self.ask(&place, &far)?;
        let ahead = StreamAhead { view: which(&place), stream: place.stream, started };
        let before = self.file.stream_ahead.lock().unwrap_or_else(PoisonError::into_inner).replace(ahead);
        for asked in before.into_iter().flat_map(|ahead| ahead.started) {
            let _ = self.file.mount.finish(asked.started, None);
        }
        Ok(())
    }
}

/// What a view is known by.
fn which(place: &Place) -> (u32, u64) {
    (place.view.number(), place.view.moved())
}
