//! Direct writes through lent descriptors: one copy, from the caller's memory to the server's page cache, in runs of neighbouring bytes.
//!
//! Never: overtakes a record; a run that meets a server during a drain round is written by records. Always: in the write phase a run is
//! announced before its first byte, and ends as done or void.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pario_core::{Clock, Code, Fault, ServerIndex, StripePiece};
use pario_net::message::Phase;
use pario_net::outbox::{Intent, Outbox, RecordMeta};
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::{PIECES_PER_CALL_MAX, write_pieces_at};
use pario_sys::preallocation::{self, PREALLOCATE_BYTES_MIN};

use crate::client::file::lease::LeasedAccess;
use crate::client::file::loans::{Loan, LoanRequest};
use crate::client::file::state::OpenFile;
use crate::client::file::summed;
use crate::client::file::write::range::RangeWrite;

/// A server that needs the bytes of a run as records waits for all of it; larger calls gain nothing.
const RUN_BYTES_MAX: u64 = 16 << 20;

/// Longest wait for the end of a drain round: about the time to write a run.
const ROUND_WAIT_MAX: Duration = Duration::from_millis(2);

/// A part of a write that is written directly.
#[derive(Clone, Copy)]
pub(in crate::client) struct DirectPart<'a> {
    pub(in crate::client) write: &'a RangeWrite<'a>,
    pub(in crate::client) piece: StripePiece,
}

impl DirectPart<'_> {
    fn range(&self) -> Range<u64> {
        self.piece.file_offset..self.piece.file_offset + self.piece.bytes
    }

    fn local_end(&self) -> u64 {
        self.piece.local.0 + self.piece.bytes
    }

    /// Writes it by records instead.
    pub(in crate::client) fn commit(&self) -> Result<(), Fault> {
        self.write.commit(self.range()).map(|_| ())
    }
}

/// Parts that are neighbours in one object, in order; at least one.
pub(in crate::client) struct DirectRun<'a> {
    parts: Vec<DirectPart<'a>>,
}

fn loan_request(access: &LeasedAccess<'_>) -> LoanRequest {
    LoanRequest { generation: access.generation, under: access.number, write: true }
}

/// Sorts parts of one file by server, in the order of this process, and joins neighbours.
pub(in crate::client) fn runs(mut parts: Vec<DirectPart<'_>>) -> Vec<DirectRun<'_>> {
    if let [first, _, ..] = parts.as_slice() {
        let (file, access) = (first.write.file, first.write.access);
        let mut turns = vec![usize::MAX; usize::from(file.context.layout.total())];
        for (turn, server) in file.context.servers_in_order().enumerate() {
            turns[server.at()] = turn;
        }
        parts.sort_by_key(|part| (turns[part.piece.server.at()], part.piece.local.0));
        let servers = parts.chunk_by(|one, next| one.piece.server == next.piece.server);
        file.data.loans.borrow_together(servers.map(|parts| parts[0].piece.server), loan_request(access));
    }
    let mut runs: Vec<DirectRun<'_>> = Vec::new();
    for part in parts {
        match runs.last_mut().filter(|run| run.is_followed_by(&part)) {
            Some(run) => run.parts.push(part),
            None => runs.push(DirectRun { parts: vec![part] }),
        }
    }
    runs
}

impl<'a> DirectRun<'a> {
    pub(in crate::client) fn parts(&self) -> &[DirectPart<'a>] {
        &self.parts
    }

    pub(in crate::client) fn access(&self) -> &'a LeasedAccess<'a> {
        self.parts[0].write.access
    }

    fn file(&self) -> &'a OpenFile {
        self.parts[0].write.file
    }

    fn server(&self) -> ServerIndex {
        self.parts[0].piece.server
    }

    fn is_followed_by(&self, part: &DirectPart<'_>) -> bool {
        let (start, end) = (self.local().start, self.local().end);
        part.piece.server == self.server()
            && part.piece.local.0 == end
            && part.local_end() - start <= RUN_BYTES_MAX
            && self.parts.len() < PIECES_PER_CALL_MAX
    }

    /// Its range in the object.
    fn local(&self) -> Range<u64> {
        self.parts[0].piece.local.0..self.parts[self.parts.len() - 1].local_end()
    }

    /// From its first to its last byte in the file. No other bytes of the server lie in between.
    fn span(&self) -> Range<u64> {
        self.parts[0].range().start..self.parts[self.parts.len() - 1].range().end
    }

    /// False: it must be written by records.
    pub(in crate::client) fn write(&self) -> Result<bool, Fault> {
        let (file, server, access) = (self.file(), self.server(), self.access());
        let loan = file.data.loans.loan(server, loan_request(access))?;
        let descriptor = match &loan {
            Loan::Descriptor(descriptor) => descriptor.as_fd(),
            Loan::Summed(summed) if summed::is_whole(&self.local()) => summed.object.as_fd(),
            Loan::Summed(_) | Loan::Absent | Loan::Refused => return Ok(false),
        };
        file.data.unflushed.note_unsynced(server);
        let outbox = file.context.session.outbox()?;
        let mut intent = None;
        if access.phase == (Phase::Write {}) {
            self.wait_for_round(&outbox);
            match self.announce(&outbox)? {
                Some(announced) => intent = Some(announced),
                None => return Ok(false),
            }
        }
        let (local, span) = (self.local(), self.span());
        let bytes = local.end - local.start;
        // Only the members of a group know how far others have extended the file: allocating space twice costs little.
        if PREALLOCATE_BYTES_MIN <= bytes
            && file.data.length.known() < span.end
            && preallocation::gains_by_preallocation(descriptor)
            && let Err(error) = preallocation::preallocate(descriptor, local.clone())
        {
            // The write itself reports the error.
            tracing::debug!(%error, "blocks cannot be allocated before they are written");
        }
        let written = self.write_to(&loan, local.start).map_err(|error| {
            let doing =
                format!("{}: bytes {}..{} on server {server}", file.context.describe(), span.start, span.end);
            Fault::from_io(&error, doing)
        })?;
        if !written {
            return Ok(false);
        }
        reach(Point::DirectWritten);
        if let Some(intent) = intent {
            intent.done();
        }
        let counters = &file.context.session.counters;
        counters.direct_writes.fetch_add(1, Ordering::Relaxed);
        counters.direct_write_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// False: this loan cannot be used, and no byte was written.
    fn write_to(&self, loan: &Loan, at: u64) -> std::io::Result<bool> {
        let pieces = self.parts.iter().map(|part| part.write.bytes(&part.range()));
        match loan {
            Loan::Descriptor(descriptor) => {
                let pieces: Vec<pario_sys::MemoryPiece<'_>> = pieces.map(Into::into).collect();
                write_pieces_at(descriptor.as_fd(), &pieces, at).map(|()| true)
            }
            Loan::Summed(summed) => summed.write(&pieces.collect::<Vec<&[u8]>>(), at),
            Loan::Absent | Loan::Refused => Ok(false),
        }
    }

    /// Waits for a drain round that is nearly complete: a record instead would cause another round, which would delay the next direct
    /// write.
    fn wait_for_round(&self, outbox: &Outbox) {
        let clock = &self.file().context.session.clock;
        let started = clock.now();
        while outbox.is_draining(self.server()) && clock.now().since(started) < ROUND_WAIT_MAX {
            std::thread::yield_now();
        }
    }

    /// Other clients may have older undrained records for the same bytes: the server must not write those over this data.
    fn announce<'o>(&self, outbox: &'o Outbox) -> Result<Option<Intent<'o>>, Fault> {
        let (file, server, span) = (self.file(), self.server(), self.span());
        let meta = RecordMeta {
            object: file.context.object(self.access().generation),
            layout: file.context.layout,
            view: 0,
            displacement: 0,
            offset: span.start,
            local_writers: file.context.local_writers(),
        };
        let announce = || {
            file.context.session.cursor(server)?;
            outbox.announce(meta, server, span.end - span.start, &file.context.session.alive_check())
        };
        file.context.session.ensure_watchdog();
        match file.context.session.retry_once(announce) {
            Err(fault) if fault.code == Code::Busy => Ok(None),
            other => other.map_err(|fault| fault.at(file.context.describe())),
        }
    }
}
