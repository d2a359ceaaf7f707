//! Writing through lent objects: one copy, from the caller's memory to the server's page cache, in runs of neighbouring bytes.
//!
//! Never: overtakes a record; a run that meets a server in the middle of a round goes by records. Always: in the write phase a run is
//! announced before its first byte, and ends as done or void.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Piece, ServerIndex};
use pario_net::message::Phase;
use pario_net::outbox::{Intent, Outbox, RecordMeta};
use pario_sys::kill_point::{Point, reach};
use pario_sys::piece::{PIECES_PER_CALL_MAX, write_pieces_at};
use pario_sys::room::{self, ROOM_BYTES_MIN};

use super::lease::Access;
use super::loans::{Loan, Wish};
use super::open_file::OpenFile;
use super::write::Write;

/// A server that needs the bytes of a run as records waits for all of it; larger calls gain nothing.
const RUN_BYTES_MAX: u64 = 16 << 20;

/// How long a round is waited for: about as long as writing a run takes.
const ROUND_PATIENCE: Duration = Duration::from_millis(2);

/// A part of a write that goes directly.
#[derive(Clone, Copy)]
pub(super) struct DirectPart<'a> {
    pub(super) write: &'a Write<'a>,
    pub(super) piece: Piece,
}

impl DirectPart<'_> {
    fn range(&self) -> Range<u64> {
        self.piece.file_offset..self.piece.file_offset + self.piece.bytes
    }

    fn local_end(&self) -> u64 {
        self.piece.local.0 + self.piece.bytes
    }

    /// Writes it by records instead.
    pub(super) fn commit(&self) -> Result<(), Fault> {
        self.write.commit(self.range())
    }
}

/// Parts that are neighbours in one object, in order; at least one.
pub(super) struct Run<'a> {
    parts: Vec<DirectPart<'a>>,
}

fn wish(access: &Access<'_>) -> Wish {
    Wish { generation: access.generation, under: access.number, write: true }
}

/// Sorts parts of one file by server, in the order in which this process turns to them, and joins neighbours.
pub(super) fn runs(mut parts: Vec<DirectPart<'_>>) -> Vec<Run<'_>> {
    if let [first, _, ..] = parts.as_slice() {
        let (file, access) = (first.write.file, first.write.access);
        let mut turns = vec![usize::MAX; usize::from(file.layout.total())];
        for (turn, server) in file.servers_in_turn().enumerate() {
            turns[server.at()] = turn;
        }
        parts.sort_by_key(|part| (turns[part.piece.server.at()], part.piece.local.0));
        let servers = parts.chunk_by(|one, next| one.piece.server == next.piece.server);
        file.borrow_together(servers.map(|parts| parts[0].piece.server), wish(access));
    }
    let mut runs: Vec<Run<'_>> = Vec::new();
    for part in parts {
        match runs.last_mut().filter(|run| run.is_followed_by(&part)) {
            Some(run) => run.parts.push(part),
            None => runs.push(Run { parts: vec![part] }),
        }
    }
    runs
}

impl<'a> Run<'a> {
    pub(super) fn parts(&self) -> &[DirectPart<'a>] {
        &self.parts
    }

    pub(super) fn access(&self) -> &'a Access<'a> {
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

    /// Its place in the object.
    fn local(&self) -> Range<u64> {
        self.parts[0].piece.local.0..self.parts[self.parts.len() - 1].local_end()
    }

    /// From its first to its last byte in the file. Of what lies between them nothing else is the server's.
    fn span(&self) -> Range<u64> {
        self.parts[0].range().start..self.parts[self.parts.len() - 1].range().end
    }

    /// False: it must go by records.
    pub(super) fn write(&self) -> Result<bool, Fault> {
        let (file, server, access) = (self.file(), self.server(), self.access());
        let loan = file.loan(server, wish(access))?;
        let Loan::Descriptor(descriptor) = loan else { return Ok(false) };
        file.note_unsynced(server);
        let outbox = file.mount.outbox()?;
        let mut intent = None;
        if access.phase == (Phase::Write {}) {
            self.let_round_end(&outbox);
            match self.announce(&outbox)? {
                Some(announced) => intent = Some(announced),
                None => return Ok(false),
            }
        }
        let (local, span) = (self.local(), self.span());
        let bytes = local.end - local.start;
        // Nobody but the members of a group knows what others have lengthened meanwhile: room that is there already costs little.
        if ROOM_BYTES_MIN <= bytes
            && file.size.load(Ordering::Acquire) < span.end
            && room::gains_by_room(descriptor.as_fd())
            && let Err(error) = room::make_room(descriptor.as_fd(), local.clone())
        {
            // The write says what is true for it.
            tracing::debug!(%error, "blocks cannot be allotted before they are written");
        }
        let pieces: Vec<pario_sys::Piece<'_>> =
            self.parts.iter().map(|part| part.write.bytes(&part.range()).into()).collect();
        write_pieces_at(descriptor.as_fd(), &pieces, local.start).map_err(|error| {
            let doing = format!("{}: bytes {}..{} on server {server}", file.describe(), span.start, span.end);
            Fault::from_io(&error, doing)
        })?;
        reach(Point::DirectWritten);
        if let Some(intent) = intent {
            intent.done();
        }
        let counters = &file.mount.counters;
        counters.direct_writes.fetch_add(1, Ordering::Relaxed);
        counters.direct_write_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// A record instead would make another round, and that one would be in the way of the next direct write: a round that is nearly over
    /// is waited for.
    fn let_round_end(&self, outbox: &Outbox) {
        let clock = &self.file().mount.clock;
        let started = clock.now();
        while outbox.is_taking(self.server()) && clock.now().since(started) < ROUND_PATIENCE {
            std::thread::yield_now();
        }
    }

    /// Others may have older records for the same bytes that are not taken yet: the server must not write those over ours.
    fn announce<'o>(&self, outbox: &'o Outbox) -> Result<Option<Intent<'o>>, Fault> {
        let (file, server, span) = (self.file(), self.server(), self.span());
        let meta = RecordMeta {
            object: file.object(self.access().generation),
            layout: file.layout,
            view: 0,
            moved: 0,
            offset: span.start,
            companions: file.companions(),
        };
        let announce = || {
            file.mount.cursor(server)?;
            outbox.announce(meta, server, span.end - span.start, &file.mount.minded())
        };
        file.mount.keep_minding();
        match file.mount.twice_if_quick(announce) {
            Err(fault) if fault.code == Code::Busy => Ok(None),
            other => other.map_err(|fault| fault.at(file.describe())),
        }
    }
}
