//! Reading: through lent descriptors on the same node, by messages elsewhere, several under way for a reader who goes on in equal steps.
//!
//! Never: returns bytes beyond the file's end, or a hole as anything but zeros. Always: waits for our own records first.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use pario_core::{Fault, Piece};
use pario_net::message::{At, NameReply, NameRequest, Phase, Request, Want};
use pario_server::Near;
use pario_sys::piece::read_exact_or_end_at;

use super::lease::Access;
use super::loans::{Loan, Wish};
use super::locks::{Guarded, Kind};
use super::mount::{Started, odd};
use super::open_file::OpenFile;

/// Reads kept under way ahead of a reader in equal steps.
const AHEAD: usize = 4;
/// Requests under way for one read, and ahead of a reader whose reads are of many pieces.
const WINDOW: usize = 64;

/// Requests under way ahead of a reader: one who goes on where the last read ended, or in steps of one length (a column of a matrix, a
/// rank's share of records).
#[derive(Default)]
pub(crate) struct Ahead {
    /// The last read.
    last: Range<u64>,
    /// From the read before to the last one; 0: nothing is known, or it went back.
    stride: u64,
    /// Where the last read that was asked for ahead begins.
    asked: u64,
    started: VecDeque<(Piece, Started)>,
}

impl Ahead {
    /// Takes note of a read. How far the next one begins from it, if there is a next one to be expected.
    fn step(&mut self, range: &Range<u64>) -> Option<u64> {
        let bytes = range.end - range.start;
        let sequential = self.last.end == range.start;
        let stride = range.start.saturating_sub(self.last.start);
        let equal = bytes == self.last.end - self.last.start;
        let strided = equal && bytes < stride && stride == self.stride;
        (self.last, self.stride) = (range.clone(), stride);
        if sequential { Some(bytes) } else { strided.then_some(stride) }
    }
}

impl OpenFile {
    /// Fills `target` from `offset` on as far as the file goes; returns how many bytes that was.
    pub(super) fn read(
        self: &Arc<Self>,
        offset: u64,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize, Fault> {
        self.mount.check_process()?;
        if target.is_empty() {
            return Ok(0);
        }
        let _time = self.mount.timed(&self.mount.counters.read_ns);
        let range = offset..offset.saturating_add(target.len() as u64);
        let (lock, access) = self.access_range((&range, None), Kind::Read, guarded)?;
        if !lock.as_ref().is_some_and(|lock| lock.together) {
            return self.read_under(&access, offset, target);
        }
        if let Some(count) = self.read_at_once(&access, offset, target)? {
            return Ok(count);
        }
        drop((access, lock));
        let _lock = self.lock_passing(&range, Kind::Read)?;
        let access = self.access(Want::Read {})?;
        self.read_under(&access, offset, target)
    }

    /// The same under an access that was begun.
    pub(super) fn read_under(
        self: &Arc<Self>,
        access: &Access<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        let size = self.size_for(access, offset.saturating_add(target.len() as u64))?;
        let count = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(target.len());
        if count == 0 {
            return Ok(0);
        }
        let range = offset..offset + count as u64;
        if self.homeless.is_none() && self.is_pending(&range) {
            self.drain()?;
        }
        Read { file: self, access, offset, size }.run(range, &mut target[..count])?;
        Ok(count)
    }

    /// The file's length; in the mixed phase others may have made it longer, so the manager is asked when it matters.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(super) fn size_for(&self, access: &Access<'_>, end: u64) -> Result<u64, Fault> {
        let known = self.size.load(Ordering::Acquire);
        if access.phase != (Phase::Mixed {}) || end <= known {
            return Ok(known);
        }
        if self.homeless.is_some() {
            return self.measure();
        }
        let request = NameRequest::Stat { at: At::inode(self.inode), follow: false };
        match self.mount.name_call(request)? {
            NameReply::Attr { attr } => {
                self.size.fetch_max(attr.size, Ordering::AcqRel);
                Ok(self.size.load(Ordering::Acquire))
            }
            other => Err(odd(&pario_net::message::Reply::Name { reply: other })),
        }
    }

    /// The server in this process, for an access that one message would carry: larger ones have several under way.
    pub(super) fn near_for(&self, bytes: u64) -> Result<Option<&Near>, Fault> {
        let Some(near) = &self.near else { return Ok(None) };
        let fits = bytes <= self.mount.transfer_bytes(near.index())? as u64;
        Ok(fits.then_some(near))
    }

    /// Forgets what was asked for ahead: it may not be what is there any more.
    pub(super) fn discard_ahead(&self) {
        self.discard_stream_ahead();
        let mut ahead = self.ahead();
        if ahead.started.is_empty() {
            return;
        }
        for (_, started) in ahead.started.drain(..) {
            // The answer is not wanted, but it must not be left on the connection.
            let _ = self.mount.finish(started, None);
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Read<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a Access<'a>,
    offset: u64,
    size: u64,
}

impl Read<'_> {
    fn run(&self, range: Range<u64>, target: &mut [u8]) -> Result<(), Fault> {
        if let Some(near) = self.file.near_for(target.len() as u64)?
            && (self.access.phase == (Phase::Mixed {}) || near.has(self.file.inode, self.local(&range)))
        {
            return self.read_near(near, range.start, target);
        }
        let mut by_message = Vec::new();
        // Only while nobody writes does an object that is not there stay away.
        let under = if self.access.phase == (Phase::Read {}) { self.access.number } else { 0 };
        let wish = Wish { generation: self.access.generation, under, write: false };
        let pieces = self.parts(range.clone());
        // Neighbouring pieces lie on different servers.
        let servers = pieces.len().min(usize::from(self.file.layout.count()));
        self.file.borrow_together(pieces[..servers].iter().map(|piece| piece.server), wish);
        for piece in pieces {
            let part = self.part(&piece, target);
            match self.file.loan(piece.server, wish) {
                Ok(Loan::Descriptor(descriptor)) => self.read_direct(&piece, descriptor.as_fd(), part)?,
                Ok(Loan::Absent) => part.fill(0),
                Ok(Loan::Refused) => by_message.push(piece),
                Err(fault) => return Err(fault.at(self.file.describe())),
            }
        }
        if by_message.is_empty() {
            return Ok(());
        }
        let step = self.step()?;
        let pieces = by_message.into_iter().flat_map(|piece| split(piece, step)).collect();
        self.read_by_message(pieces, range, target).map_err(|fault| fault.at(self.file.describe()))
    }

    /// Where a range lies on the one server that has all of the file.
    fn local(&self, range: &Range<u64>) -> Range<u64> {
        let at = self.file.layout.locate(range.start).1.0;
        at..at.saturating_add(range.end - range.start)
    }

    /// From the server in this process, without a message. What others have is asked for ahead by messages, unless nothing may be.
    fn read_near(&self, near: &Near, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let (object, local) = (self.file.object(self.access.generation), self.file.layout.locate(offset).1);
        let count = near.read(object, local, target).map_err(|fault| fault.at(self.file.describe()))?;
        target[count..].fill(0);
        Ok(())
    }

    fn parts(&self, range: Range<u64>) -> Vec<Piece> {
        if self.file.layout.count() == 1 {
            let (server, local) = self.file.layout.locate(range.start);
            return vec![Piece { server, local, file_offset: range.start, bytes: range.end - range.start }];
        }
        self.file.layout.pieces(range).collect()
    }

    /// Data that one message carries; the same for all servers of a partition.
    fn step(&self) -> Result<u64, Fault> {
        Ok(self.file.mount.transfer_bytes(pario_core::ServerIndex::MANAGER)? as u64)
    }

    fn part<'t>(&self, piece: &Piece, target: &'t mut [u8]) -> &'t mut [u8] {
        let start = usize::try_from(piece.file_offset - self.offset).expect("inside the caller's slice");
        let bytes = usize::try_from(piece.bytes).expect("inside the caller's slice");
        &mut target[start..start + bytes]
    }

    fn read_direct(
        &self,
        piece: &Piece,
        descriptor: std::os::fd::BorrowedFd<'_>,
        part: &mut [u8],
    ) -> Result<(), Fault> {
        let count = read_exact_or_end_at(descriptor, part, piece.local.0).map_err(|error| {
            let doing = format!(
                "{}: reading {} bytes at {} from server {}",
                self.file.describe(),
                piece.bytes,
                piece.file_offset,
                piece.server
            );
            Fault::from_io(&error, doing)
        })?;
        part[count..].fill(0);
        let counters = &self.file.mount.counters;
        counters.direct_reads.fetch_add(1, Ordering::Relaxed);
        counters.direct_read_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Pieces come from what is already under way, or are asked for now; then the next ones are asked for.
    fn read_by_message(&self, pieces: Vec<Piece>, range: Range<u64>, target: &mut [u8]) -> Result<(), Fault> {
        let mut ahead = self.file.ahead();
        let step = ahead.step(&range).filter(|_| self.access.phase != (Phase::Mixed {}));
        let mut under_way: VecDeque<(Piece, Started)> = VecDeque::new();
        let mut result = Ok(());
        for piece in pieces {
            if WINDOW <= under_way.len()
                && let Some(oldest) = under_way.pop_front()
            {
                result = result.and(self.fetch(oldest, target));
            }
            match self.ahead_or_asked(&mut ahead, piece) {
                Ok(started) => under_way.push_back((piece, started)),
                Err(fault) => {
                    result = result.and(Err(fault));
                    break;
                }
            }
        }
        if let Some(step) = step.filter(|_| result.is_ok()) {
            result = self.ask_ahead(&mut ahead, &range, step);
        }
        // All are fetched whatever happened: an answer that nobody fetches would stay on its connection.
        under_way.into_iter().fold(result, |result, started| result.and(self.fetch(started, target)))
    }

    fn ahead_or_asked(&self, ahead: &mut Ahead, piece: Piece) -> Result<Started, Fault> {
        if ahead.started.front().is_some_and(|(front, _)| *front == piece)
            && let Some((_, started)) = ahead.started.pop_front()
        {
            return Ok(started);
        }
        for (_, stale) in ahead.started.drain(..) {
            let _ = self.file.mount.finish(stale, None);
        }
        self.ask(&piece)
    }

    fn fetch(&self, (piece, started): (Piece, Started), target: &mut [u8]) -> Result<(), Fault> {
        let part = self.part(&piece, target);
        let answer = self.file.mount.finish(started, Some(&mut *part))?;
        part[answer.data_bytes.min(piece_len(&piece))..].fill(0);
        Ok(())
    }

    fn ask(&self, piece: &Piece) -> Result<Started, Fault> {
        let object = self.file.object(self.access.generation);
        let bytes = u32::try_from(piece.bytes).expect("pieces are split to what a message carries");
        self.file.mount.start(piece.server, &Request::Read { object, at: piece.local, bytes }, &[])
    }

    /// Asks for what a reader will want next who goes on by `step`, in the sizes that it reads.
    fn ask_ahead(&self, ahead: &mut Ahead, last: &Range<u64>, step: u64) -> Result<(), Fault> {
        let (bytes, transfer) = (last.end - last.start, self.step()?);
        let from = if ahead.started.is_empty() { last.start } else { ahead.asked };
        let mut at = from.saturating_add(step);
        while ahead.started.len() < AHEAD && at < self.size {
            let next = at..self.size.min(at.saturating_add(bytes));
            if self.file.is_pending(&next) {
                return Ok(());
            }
            let pieces: Vec<Piece> =
                self.parts(next).into_iter().flat_map(|piece| split(piece, transfer)).collect();
            if WINDOW < ahead.started.len() + pieces.len() {
                return Ok(());
            }
            for piece in pieces {
                let connection = self.file.mount.connection(piece.server)?;
                let lent = connection.shares_memory() && connection.welcome().lends;
                if lent && !self.file.is_refused(piece.server) {
                    return Ok(());
                }
                ahead.started.push_back((piece, self.ask(&piece)?));
            }
            ahead.asked = at;
            at = at.saturating_add(step);
        }
        Ok(())
    }
}

fn piece_len(piece: &Piece) -> usize {
    usize::try_from(piece.bytes).expect("pieces are split to what a message carries")
}

/// A piece in transfers of `step` bytes.
fn split(piece: Piece, step: u64) -> impl Iterator<Item = Piece> {
    (0..piece.bytes.div_ceil(step)).map(move |n| Piece {
        local: pario_core::LocalOffset(piece.local.0 + n * step),
        file_offset: piece.file_offset + n * step,
        bytes: step.min(piece.bytes - n * step),
        ..piece
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reads: &[(u64, u64)], expected: Option<u64>) {
        let mut ahead = Ahead::default();
        let steps = reads.iter().map(|(at, bytes)| ahead.step(&(*at..at + bytes)));
        assert_eq!(steps.last().flatten(), expected, "{reads:?}");
    }

    #[test]
    fn rows_and_equal_steps_are_followed() {
        check(&[(0, 10)], Some(10));
        check(&[(50, 10)], None);
        check(&[(50, 10), (60, 20)], Some(20));
        check(&[(50, 10), (150, 10)], None);
        check(&[(50, 10), (150, 10), (250, 10)], Some(100));
        check(&[(50, 10), (150, 10), (250, 11)], None);
        check(&[(50, 10), (150, 10), (260, 10)], None);
        check(&[(250, 10), (150, 10), (50, 10)], None);
        check(&[(50, 10), (55, 10), (60, 10)], None);
    }
}
