//! Reading: through lent descriptors on the same node, by messages elsewhere, with read-ahead for a reader that continues in equal steps.
//!
//! Never: returns bytes beyond the file's end; returns anything but zeros for a hole. Always: waits for the drain of own records first.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario_core::{Fault, StripePiece};
use pario_net::message::{Phase, Request, Want};
use pario_server::LocalServer;

use super::ahead::RangeReadAhead;
use crate::client::file::atomic_access::read_atomic;
use crate::client::file::lease::LeasedAccess;
use crate::client::file::loans::{Loan, LoanRequest};
use crate::client::file::locks::{AccessKind, Guarded};
use crate::client::file::locks::{access_range, lock_once};
use crate::client::file::read::sieve::ObjectSource;
use crate::client::file::state::OpenFile;
use crate::client::file::summed;
use crate::client::file::write::plan::parts;
use crate::client::session::state::StartedRequest;

/// Reads kept under way by read-ahead for a reader in equal steps.
const READ_AHEAD_COUNT: usize = 4;
/// Requests under way for one read, and of read-ahead for reads of many pieces.
const UNDER_WAY_MAX: usize = 64;

/// A read of one handle.
#[derive(Clone, Copy)]
pub(in crate::client) struct FileReader<'a> {
    pub(in crate::client) file: &'a Arc<OpenFile>,
    pub(in crate::client) guarded: Guarded,
}

impl FileReader<'_> {
    /// Fills `target` from `offset` on as far as the file goes; returns the number of bytes read.
    pub(in crate::client) fn read(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault> {
        self.file.context.session.check_process()?;
        if target.is_empty() {
            return Ok(0);
        }
        let _time = self.file.context.session.timed_access(&self.file.context.session.counters.read_ns);
        let range = offset..offset.saturating_add(target.len() as u64);
        let (lock, access) = access_range(self.file, (&range, None), AccessKind::Read, self.guarded)?;
        if !lock.as_ref().is_some_and(|lock| lock.together) {
            return self.read_under(&access, offset, target);
        }
        if let Some(count) = read_atomic(self.file, &access, offset, target)? {
            return Ok(count);
        }
        drop((access, lock));
        let _lock = lock_once(self.file, &range, AccessKind::Read)?;
        let access = self.file.lease.access(Want::Read {})?;
        self.read_under(&access, offset, target)
    }

    /// The same under an access that was begun.
    pub(in crate::client) fn read_under(
        &self,
        access: &LeasedAccess<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        let size = self.file.size_for(access, offset.saturating_add(target.len() as u64))?;
        let count = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(target.len());
        if count == 0 {
            return Ok(0);
        }
        let range = offset..offset + count as u64;
        if self.file.context.backing.may_be_lent() && self.file.data.unflushed.is_pending(&range) {
            self.file.data.unflushed.drain()?;
        }
        FileRead { file: self.file, access, offset, size }.run(range, &mut target[..count])?;
        Ok(count)
    }
}

struct FileRead<'a> {
    file: &'a Arc<OpenFile>,
    access: &'a LeasedAccess<'a>,
    offset: u64,
    size: u64,
}

impl FileRead<'_> {
    fn run(&self, range: Range<u64>, target: &mut [u8]) -> Result<(), Fault> {
        if let Some(near) = self.file.local_server_for(target.len() as u64)?
            && (self.access.phase == (Phase::Mixed {})
                || near.has(self.file.context.inode, self.local(&range)))
        {
            return self.read_local_server(near, range.start, target);
        }
        let mut by_message = Vec::new();
        let wish = LoanRequest::for_reading(self.access);
        let (layout, loans) = (&self.file.context.layout, &self.file.data.loans);
        let pieces = || parts(layout, range.clone());
        // Neighbouring pieces are on different servers. A single server is asked at its first use.
        if pieces().nth(1).is_some() {
            let servers = pieces().take(usize::from(layout.count())).map(|piece| piece.server);
            loans.borrow_together(servers, wish);
        }
        for piece in pieces() {
            let part = self.part(&piece, target);
            let is_read = match loans.loan(piece.server, wish) {
                Ok(Loan::Descriptor(descriptor)) => self.read_direct(&piece, descriptor.as_fd(), part)?,
                Ok(Loan::Summed(object)) => self.read_direct(&piece, object.reader(), part)?,
                Ok(Loan::Absent) => {
                    part.fill(0);
                    true
                }
                Ok(Loan::Refused) => false,
                Err(fault) => return Err(fault.at(self.file.context.describe())),
            };
            if !is_read {
                by_message.push(piece);
            }
        }
        if by_message.is_empty() {
            return Ok(());
        }
        let step = self.step()?;
        let pieces = by_message.into_iter().flat_map(|piece| split(piece, step)).collect();
        self.read_by_message(pieces, range, target).map_err(|fault| fault.at(self.file.context.describe()))
    }

    /// The object range of a file range on the server that has the whole file.
    fn local(&self, range: &Range<u64>) -> Range<u64> {
        let at = self.file.context.layout.locate(range.start).1.0;
        at..at.saturating_add(range.end - range.start)
    }

    /// Reads from the server in this process, without a message. Data of other servers is prefetched by messages, where read-ahead is
    /// allowed.
    fn read_local_server(&self, near: &LocalServer, offset: u64, target: &mut [u8]) -> Result<(), Fault> {
        let (object, local) =
            (self.file.context.object(self.access.generation), self.file.context.layout.locate(offset).1);
        let count =
            near.read(object, local, target).map_err(|fault| fault.at(self.file.context.describe()))?;
        target[count..].fill(0);
        Ok(())
    }

    /// Data bytes of one message; the same for all servers of a partition.
    fn step(&self) -> Result<u64, Fault> {
        Ok(self.file.context.session.transfer_bytes(pario_core::ServerIndex::MANAGER)? as u64)
    }

    fn part<'t>(&self, piece: &StripePiece, target: &'t mut [u8]) -> &'t mut [u8] {
        let start = usize::try_from(piece.file_offset - self.offset).expect("inside the caller's slice");
        let bytes = usize::try_from(piece.bytes).expect("inside the caller's slice");
        &mut target[start..start + bytes]
    }

    /// False: the server must read this piece.
    fn read_direct(
        &self,
        piece: &StripePiece,
        mut object: impl ObjectSource,
        part: &mut [u8],
    ) -> Result<bool, Fault> {
        let count = match object.read_at(part, piece.local.0) {
            Err(error) if summed::is_doubtful(&error) => return Ok(false),
            count => count.map_err(|error| {
                let doing = format!(
                    "{}: reading {} bytes at {} from server {}",
                    self.file.context.describe(),
                    piece.bytes,
                    piece.file_offset,
                    piece.server
                );
                Fault::from_io(&error, doing)
            })?,
        };
        // Fewer bytes than the file has: a hole, or lost data. The server knows how far the object was written.
        if count < part.len() && !self.file.context.session.serves_plain_files() {
            return Ok(false);
        }
        part[count..].fill(0);
        let counters = &self.file.context.session.counters;
        counters.direct_reads.fetch_add(1, Ordering::Relaxed);
        counters.direct_read_bytes.fetch_add(piece.bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// Pieces are taken from prefetched requests or requested now; then the next ones are requested.
    fn read_by_message(
        &self,
        pieces: Vec<StripePiece>,
        range: Range<u64>,
        target: &mut [u8],
    ) -> Result<(), Fault> {
        let mut ahead = self.file.data.read_ahead.range();
        let step = ahead.step(&range).filter(|_| self.access.phase != (Phase::Mixed {}));
        let mut under_way: VecDeque<(StripePiece, StartedRequest)> = VecDeque::new();
        let mut result = Ok(());
        for piece in pieces {
            if UNDER_WAY_MAX <= under_way.len()
                && let Some(oldest) = under_way.pop_front()
            {
                result = result.and(self.fetch(oldest, target));
            }
            match self.prefetched_or_requested(&mut ahead, piece) {
                Ok(started) => under_way.push_back((piece, started)),
                Err(fault) => {
                    result = result.and(Err(fault));
                    break;
                }
            }
        }
        if let Some(step) = step.filter(|_| result.is_ok()) {
            result = self.prefetch(&mut ahead, &range, step);
        }
        // All replies are fetched even after an error: an unfetched reply would stay on its connection.
        under_way.into_iter().fold(result, |result, started| result.and(self.fetch(started, target)))
    }

    fn prefetched_or_requested(
        &self,
        ahead: &mut RangeReadAhead,
        piece: StripePiece,
    ) -> Result<StartedRequest, Fault> {
        if ahead.started.front().is_some_and(|(front, _)| *front == piece)
            && let Some((_, started)) = ahead.started.pop_front()
        {
            return Ok(started);
        }
        for (_, stale) in ahead.started.drain(..) {
            let _ = self.file.context.session.finish(stale, None);
        }
        self.request(&piece)
    }

    fn fetch(&self, (piece, started): (StripePiece, StartedRequest), target: &mut [u8]) -> Result<(), Fault> {
        let part = self.part(&piece, target);
        let answer = self.file.context.session.finish(started, Some(&mut *part))?;
        part[answer.data_bytes.min(piece_len(&piece))..].fill(0);
        Ok(())
    }

    fn request(&self, piece: &StripePiece) -> Result<StartedRequest, Fault> {
        let object = self.file.context.object(self.access.generation);
        let bytes = u32::try_from(piece.bytes).expect("pieces are split to what a message carries");
        self.file.context.session.start(piece.server, &Request::Read { object, at: piece.local, bytes }, &[])
    }

    /// Prefetches the next reads of a reader that advances by `step`, in the sizes that it reads.
    fn prefetch(&self, ahead: &mut RangeReadAhead, last: &Range<u64>, step: u64) -> Result<(), Fault> {
        let (bytes, transfer) = (last.end - last.start, self.step()?);
        let from = if ahead.started.is_empty() { last.start } else { ahead.prefetched_to };
        let mut at = from.saturating_add(step);
        while ahead.started.len() < READ_AHEAD_COUNT && at < self.size {
            let next = at..self.size.min(at.saturating_add(bytes));
            if self.file.data.unflushed.is_pending(&next) {
                return Ok(());
            }
            let pieces: Vec<StripePiece> =
                parts(&self.file.context.layout, next).flat_map(|piece| split(piece, transfer)).collect();
            if UNDER_WAY_MAX < ahead.started.len() + pieces.len() {
                return Ok(());
            }
            for piece in pieces {
                let connection = self.file.context.session.connection(piece.server)?;
                let lent = connection.shares_memory() && connection.welcome().lends;
                if lent && !self.file.data.loans.is_refused(piece.server) {
                    return Ok(());
                }
                ahead.started.push_back((piece, self.request(&piece)?));
            }
            ahead.prefetched_to = at;
            at = at.saturating_add(step);
        }
        Ok(())
    }
}

fn piece_len(piece: &StripePiece) -> usize {
    usize::try_from(piece.bytes).expect("pieces are split to what a message carries")
}

/// A piece in transfers of `step` bytes.
fn split(piece: StripePiece, step: u64) -> impl Iterator<Item = StripePiece> {
    (0..piece.bytes.div_ceil(step)).map(move |n| StripePiece {
        local: pario_core::LocalOffset(piece.local.0 + n * step),
        file_offset: piece.file_offset + n * step,
        bytes: step.min(piece.bytes - n * step),
        ..piece
    })
}
