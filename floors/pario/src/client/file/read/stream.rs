//! Reading a range of a view's stream: from lent objects, small pieces together, or through a mapping if they are read again; by one
//! message per server on another node, which packs its part; the next range is prefetched.
//!
//! Never: returns bytes beyond the file's end; returns anything but zeros for a hole; maps an object that may be truncated while its lease
//! is held. Always: waits for the drain of own records first.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Fault, ServerIndex};
use pario_net::message::{Phase, Request, ViewStream, Want};
use pario_net::outbox::Concern;
use pario_sys::file_map::FileIdentity;
use pario_view::ServerRow;

use super::ahead::{PartRequest, StreamReadAhead};
use super::range::FileReader;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::loans::{Loan, LoanRequest};
use crate::client::file::read::sieve::{self, Cost, WantedRow};
use crate::client::file::state::OpenFile;
use crate::client::file::summed;
use crate::client::file::write::stream::StreamRange;

/// Pieces of this size are separate reads.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// A mapping is used if at least one byte in this many is wanted.
const MAPPED_SPAN_MAX: u64 = 64;
/// Longer ranges are not prefetched.
const PREFETCH_BYTES_MAX: u64 = 32 << 20;

impl FileReader<'_> {
    /// Fills `target` from a range of a stream as far as the file goes; returns the number of bytes read.
    pub(in crate::client) fn read_stream(
        &self,
        place: &StreamRange,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        self.file.context.session.check_process()?;
        let view = place.view.view();
        let Some(span) = place.span() else { return Ok(0) };
        if place.is_non_monotonic() {
            return self.read_non_monotonic(place, target);
        }
        if place.is_one_piece() {
            return self.read(span.start, target);
        }
        if PIECE_BYTES_MIN <= place.piece_bytes() {
            return self.read_pieces(place, target);
        }
        let _time = self.file.context.session.timed_access(&self.file.context.session.counters.read_ns);
        let access = self.file.lease.access(Want::Read {})?;
        let size = self.file.size_for(&access, span.end)?;
        let count = view.bytes_in(place.stream.clone(), 0..size);
        if count == 0 {
            return Ok(0);
        }
        let stream = place.stream.start..place.stream.start + count;
        let place = StreamRange::new(Arc::clone(&place.view), stream);
        if self.file.context.backing.may_be_lent() && self.file.data.unflushed.is_pending(&span) {
            self.file.data.unflushed.drain()?;
        }
        let count = usize::try_from(count).expect("inside the caller's memory");
        let read = StreamRead { file: self.file, access: &access, range: &place, size };
        read.run(&mut target[..count]).map_err(|fault| fault.at(self.file.context.describe()))?;
        Ok(count)
    }

    /// Large pieces, each as a separate read.
    fn read_pieces(&self, place: &StreamRange, target: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        for extent in place.view.view().extents(place.stream.clone()) {
            let length = usize::try_from(extent.bytes).expect("inside the caller's memory");
            let count = self.read(extent.file_offset, &mut target[done..done + length])?;
            done += count;
            if count < length {
                break;
            }
        }
        Ok(done)
    }
}

struct StreamRead<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a LeasedAccess<'a>,
    range: &'a StreamRange,
    size: u64,
}

impl StreamRead<'_> {
    fn run(&self, target: &mut [u8]) -> Result<(), Fault> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        let wish = LoanRequest::for_reading(self.access);
        let concerns = self.range.concerns(&self.file.context);
        self.file.data.loans.borrow_together(concerns.iter().map(|concern| concern.server), wish);
        for concern in concerns {
            match self.file.data.loans.loan(concern.server, wish)? {
                Loan::Refused => far.push(concern),
                loan @ (Loan::Descriptor(_) | Loan::Summed(_) | Loan::Absent) => near.push((concern, loan)),
            }
        }
        // Messages first: servers work while lent objects are read.
        let mut asked = if far.is_empty() { Vec::new() } else { self.prefetched_or_requested(&far)? };
        let mut result = Ok(());
        for (concern, loan) in near {
            result = result.and_then(|()| match self.read_lent(&concern, &loan, target)? {
                true => Ok(()),
                false => self.request_one(self.range, &concern, &mut asked),
            });
        }
        for asked in asked {
            // All replies are fetched even after an error: an unfetched reply would stay on its connection.
            let fetched = self.fetch(asked, target);
            result = result.and(fetched);
        }
        result?;
        if far.is_empty() { Ok(()) } else { self.prefetch() }
    }

    /// False: the server must read its part.
    fn read_lent(&self, concern: &Concern, loan: &Loan, target: &mut [u8]) -> Result<bool, Fault> {
        let counters = &self.file.context.session.counters;
        match loan {
            Loan::Descriptor(descriptor) if self.is_short(concern.server, descriptor)? => return Ok(false),
            Loan::Summed(object) => {
                let Some(cost) = self.read_sieved(concern.server, object.reader(), target)? else {
                    return Ok(false);
                };
                counters.direct_reads.fetch_add(cost.calls, Ordering::Relaxed);
                counters.direct_read_bytes.fetch_add(concern.bytes, Ordering::Relaxed);
            }
            Loan::Descriptor(descriptor)
                if self.maps(concern)
                    && self.is_read_again(concern.server, descriptor)?
                    && self.read_mapped(concern, descriptor, target)? =>
            {
                counters.mapped_reads.fetch_add(1, Ordering::Relaxed);
                counters.mapped_read_bytes.fetch_add(concern.bytes, Ordering::Relaxed);
            }
            Loan::Descriptor(descriptor) => {
                let Some(cost) = self.read_sieved(concern.server, descriptor.as_fd(), target)? else {
                    return Ok(false);
                };
                self.file.context.session.mappings.note_read(descriptor, self.local(concern.server).end);
                counters.direct_reads.fetch_add(cost.calls, Ordering::Relaxed);
                counters.direct_read_bytes.fetch_add(concern.bytes, Ordering::Relaxed);
            }
            Loan::Absent | Loan::Refused => {
                self.wanted(concern.server).for_each(|row| target[row.memory_range()].fill(0));
            }
        }
        Ok(true)
    }

    /// Whether an object ends before the wanted range: a hole, or lost data.
    fn is_short(&self, server: ServerIndex, descriptor: &OwnedFd) -> Result<bool, Fault> {
        if self.file.context.session.serves_plain_files() {
            return Ok(false);
        }
        let (_, length) = FileIdentity::of(descriptor.as_fd())
            .map_err(|error| Fault::from_io(&error, "reading the length of a lent object"))?;
        Ok(length < self.local(server).end)
    }

    /// Whether the pieces lie so close together that mapping whole pages pays.
    fn maps(&self, concern: &Concern) -> bool {
        // A plain file may be truncated by any process, and an access to a mapping beyond its end raises SIGBUS.
        if self.file.context.session.serves_plain_files() {
            return false;
        }
        let Some(span) = self.range.span() else { return false };
        let here = (span.end - span.start) / u64::from(self.file.context.layout.count());
        here <= concern.bytes.saturating_mul(MAPPED_SPAN_MAX)
    }

    /// A server's part of the wanted range, from the first to the last byte.
    fn local(&self, server: ServerIndex) -> Range<u64> {
        let (layout, span) = (&self.file.context.layout, self.range.span().unwrap_or_default());
        layout.local_length(server, span.start)..layout.local_length(server, span.end)
    }

    /// Whether this process has read this far into an object before.
    fn is_read_again(&self, server: ServerIndex, descriptor: &Arc<OwnedFd>) -> Result<bool, Fault> {
        let end = self.local(server).end;
        if self.file.data.loans.mapping(server, descriptor, end).is_some() {
            return Ok(true);
        }
        let again = self.file.context.session.mappings.is_worth(descriptor, end);
        again.map_err(|error| Fault::from_io(&error, "reading the identity of a lent object"))
    }

    /// `None`: bytes do not match their checksums.
    fn read_sieved(
        &self,
        server: ServerIndex,
        object: impl sieve::ObjectSource,
        target: &mut [u8],
    ) -> Result<Option<Cost>, Fault> {
        match sieve::read(object, self.wanted(server), target) {
            Ok(cost) => Ok(Some(cost)),
            Err(error) if summed::is_doubtful(&error) => Ok(None),
            Err(error) => {
                let stream = &self.range.stream;
                let doing = format!("reading bytes {stream:?} of a view from server {server}");
                Err(Fault::from_io(&error, doing))
            }
        }
    }

    /// False: it is not in memory, and system calls read it faster.
    fn read_mapped(
        &self,
        concern: &Concern,
        descriptor: &Arc<OwnedFd>,
        target: &mut [u8],
    ) -> Result<bool, Fault> {
        let server = concern.server;
        let range = self.local(server);
        let at = |error| Fault::from_io(&error, format!("mapping server {server}'s object"));
        let window = self.file.data.loans.map(server, descriptor, range.end).map_err(at)?;
        if !window.is_ready(descriptor, &range).map_err(at)? {
            return Ok(false);
        }
        window.read(self.wanted(server), target);
        Ok(true)
    }

    /// The pieces that are on a server.
    fn wanted(&self, server: ServerIndex) -> impl Iterator<Item = WantedRow> {
        let start = self.range.stream.start;
        let rows = self.range.view.view().rows_on_server(
            &self.file.context.layout,
            server,
            self.range.stream.clone(),
        );
        rows.map(move |ServerRow { first, stride, count }| {
            let [place, bytes, count] = [first.stream_offset - start, first.bytes, count]
                .map(|number| usize::try_from(number).expect("inside the caller's memory"));
            WantedRow { at: first.local.0, memory_start: place, bytes, stride, count }
        })
    }

    fn prefetched_or_requested(&self, far: &[Concern]) -> Result<Vec<PartRequest>, Fault> {
        let ahead = self.file.data.read_ahead.take_stream();
        match ahead {
            Some(ahead) if ahead.view == view_key(self.range) && ahead.stream == self.range.stream => {
                return Ok(ahead.started);
            }
            other => self.file.data.read_ahead.finish_stream(other),
        }
        self.request(self.range, far)
    }

    fn request(&self, place: &StreamRange, far: &[Concern]) -> Result<Vec<PartRequest>, Fault> {
        let mut all = Vec::new();
        for concern in far {
            let asked = self.request_one(place, concern, &mut all);
            if let Err(fault) = asked {
                for asked in all {
                    let _ = self.file.context.session.finish(asked.started, None);
                }
                return Err(fault);
            }
        }
        Ok(all)
    }

    fn request_one(
        &self,
        place: &StreamRange,
        concern: &Concern,
        all: &mut Vec<PartRequest>,
    ) -> Result<(), Fault> {
        let (mount, server) = (&self.file.context.session, concern.server);
        mount.send_view(server, &place.view)?;
        let limit = mount.transfer_bytes(server)? as u64;
        let object = self.file.context.object(self.access.generation);
        for range in place.transfers(&self.file.context.layout, concern, limit) {
            let stream = ViewStream {
                view: place.view.number(),
                displacement: place.view.displacement(),
                layout: self.file.context.layout,
                offset: range.start,
                bytes: range.end - range.start,
            };
            let started = mount.start(server, &Request::ReadStream { object, stream }, &[])?;
            all.push(PartRequest { server, stream: range, started });
        }
        Ok(())
    }

    /// Scatters a server's part into the caller's memory.
    fn fetch(&self, asked: PartRequest, target: &mut [u8]) -> Result<(), Fault> {
        let PartRequest { server, stream, started } = asked;
        let answer = self.file.context.session.finish(started, None)?;
        let (start, mut done) = (self.range.stream.start, 0);
        for part in self.range.view.view().on_server(&self.file.context.layout, server, stream) {
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

    /// Prefetches the following range of the same length: a sequential reader of the stream needs it next.
    fn prefetch(&self) -> Result<(), Fault> {
        let length = self.range.stream.end - self.range.stream.start;
        let first = self.file.data.read_ahead.last_stream_end(self.range.stream.end);
        let sequential = first == self.range.stream.start && self.access.phase != (Phase::Mixed {});
        let stream = self.range.stream.end..self.range.stream.end.saturating_add(length);
        let place = StreamRange::new(Arc::clone(&self.range.view), stream);
        let Some(span) = place.span().filter(|_| sequential && length <= PREFETCH_BYTES_MAX) else {
            return Ok(());
        };
        if self.size < span.end || self.file.data.unflushed.is_pending(&span) {
            return Ok(());
        }
        let mut far = Vec::new();
        for concern in place.concerns(&self.file.context) {
            let connection = self.file.context.session.connection(concern.server)?;
            let lent = connection.shares_memory() && connection.welcome().lends;
            if !lent || self.file.data.loans.is_refused(concern.server) {
                far.push(concern);
            }
        }
        let started = self.request(&place, &far)?;
        let ahead = StreamReadAhead { view: view_key(&place), stream: place.stream, started };
        self.file.data.read_ahead.keep_stream(ahead);
        Ok(())
    }
}

/// The key of a view.
fn view_key(place: &StreamRange) -> (u32, u64) {
    (place.view.number(), place.view.displacement())
}
