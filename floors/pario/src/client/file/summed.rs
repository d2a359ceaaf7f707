//! Lent objects with their checksum table: bytes read are verified before they are returned, bytes written are summed.
//!
//! Never: reports damage: a concurrent writer may have changed either the bytes or the checksum, so on a mismatch the server reads the
//! bytes, and its result counts. Always: whole granules are read, so that every known checksum is compared.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use pario_net::buffers;
use pario_server::store::checksummed::{
    GRANULE, GRANULE_BYTES, GranuleSum, decode_sums, encode_sums, granule_crc, lock_entries, place_of,
    unlock_entries,
};
use pario_sys::file_lock::{LockFile, LockKind};
use pario_sys::piece::{MemoryPiece, read_exact_or_end_at, write_pieces_at};

use crate::client::file::read::sieve::ObjectSource;

/// Read and compared in one step: the size of a second-level cache.
const STEP_BYTES: usize = 256 << 10;

/// An object and its checksum table, as lent.
#[derive(Debug)]
pub(in crate::client) struct Summed {
    pub(in crate::client) object: OwnedFd,
    sums: OwnedFd,
    /// Locks entries, created at the first write; threads of this process use it one at a time.
    writer: Mutex<Option<LockFile>>,
}

/// Reads an object in granules, and keeps the last ones.
pub(in crate::client) struct SummedReader<'a> {
    of: &'a Summed,
    /// Verified granules, from `start` on.
    kept: Vec<u8>,
    start: u64,
}

/// Whether a range of an object is whole granules: only those are written with their checksums without the server.
pub(in crate::client) fn is_whole(range: &Range<u64>) -> bool {
    range.start.is_multiple_of(GRANULE_BYTES) && range.end.is_multiple_of(GRANULE_BYTES)
}

/// Bytes do not match their checksum, or are fewer than requested.
pub(in crate::client) fn is_doubtful(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

fn doubtful() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl Summed {
    pub(in crate::client) fn new(object: OwnedFd, sums: OwnedFd) -> Summed {
        Summed { object, sums, writer: Mutex::default() }
    }

    /// Writes pieces, which are whole granules together, one after the other from `at` on, with their checksums. False: another process is
    /// writing one of them, and no byte is written.
    pub(in crate::client) fn write(&self, pieces: &[&[u8]], at: u64) -> io::Result<bool> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let first = at / GRANULE_BYTES;
        assert!(is_whole(&(at..at + bytes as u64)), "{bytes} bytes at {at} are not whole granules");
        let granules = first..first + (bytes / GRANULE) as u64;
        let sums = sums_of(pieces);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = match &mut *writer {
            Some(lock) => lock,
            none => none.insert(LockFile::open_again(&self.sums)?),
        };
        if !lock_entries(lock, LockKind::Write, &granules)? {
            return Ok(false);
        }
        let written = self.write_locked(pieces, at, &sums);
        unlock_entries(lock, &granules)?;
        written.map(|()| true)
    }

    fn write_locked(&self, pieces: &[&[u8]], at: u64, sums: &[GranuleSum]) -> io::Result<()> {
        let place = place_of(at / GRANULE_BYTES);
        let note = |sums: &[GranuleSum]| {
            write_pieces_at(self.sums.as_fd(), &[MemoryPiece::from(&encode_sums(sums)[..])], place)
        };
        // A process killed from here on leaves granules with an unknown checksum.
        note(&vec![GranuleSum::Unknown; sums.len()])?;
        let pieces: Vec<MemoryPiece<'_>> = pieces.iter().map(|piece| MemoryPiece::from(*piece)).collect();
        write_pieces_at(self.object.as_fd(), &pieces, at)?;
        note(sums)
    }

    pub(in crate::client) fn reader(&self) -> SummedReader<'_> {
        SummedReader { of: self, kept: Vec::new(), start: 0 }
    }

    /// Fills `target` with whole granules from `at` on, zeros beyond the object's end; returns the number of bytes.
    fn read_granules(&self, target: &mut [u8], at: u64) -> io::Result<usize> {
        let count = read_exact_or_end_at(self.object.as_fd(), target, at)?;
        target[count..].fill(0);
        let granules = target.len() / GRANULE;
        let mut table = vec![0; granules * 8];
        let known = read_exact_or_end_at(self.sums.as_fd(), &mut table, place_of(at / GRANULE_BYTES))?;
        let sums: Vec<GranuleSum> = decode_sums(&table[..known], granules);
        let agree = target.chunks_exact(GRANULE).zip(sums).all(|(bytes, sum)| sum.allows(bytes));
        if agree { Ok(count) } else { Err(doubtful()) }
    }
}

/// The checksums of pieces that are whole granules together.
fn sums_of(pieces: &[&[u8]]) -> Vec<GranuleSum> {
    let (mut sums, mut crc, mut filled) = (Vec::new(), 0, 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(GRANULE - filled));
            // A granule inside one piece is summed in one call, which is faster.
            crc = if head.len() == GRANULE { granule_crc(head) } else { crc32c::crc32c_append(crc, head) };
            filled += head.len();
            rest = tail;
            if filled == GRANULE {
                sums.push(GranuleSum::Known(crc));
                (crc, filled) = (0, 0);
            }
        }
    }
    sums
}

impl SummedReader<'_> {
    /// Copies kept bytes from `at` on; returns their number.
    fn copy_kept(&self, target: &mut [u8], at: u64) -> usize {
        let Some(from) = at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok()) else {
            return 0;
        };
        let Some(kept) = self.kept.get(from..) else { return 0 };
        let count = kept.len().min(target.len());
        target[..count].copy_from_slice(&kept[..count]);
        count
    }

    /// Keeps the granules of `bytes` bytes from `at` on, or as many of them as one step reads.
    fn keep(&mut self, at: u64, bytes: usize) -> io::Result<()> {
        self.start = at / GRANULE_BYTES * GRANULE_BYTES;
        let lead = usize::try_from(at - self.start).expect("inside a granule");
        let wanted = (lead + bytes).next_multiple_of(GRANULE).min(STEP_BYTES);
        if self.kept.capacity() < STEP_BYTES {
            self.kept = buffers::take(STEP_BYTES);
        }
        self.kept.resize(wanted, 0);
        let count = self.of.read_granules(&mut self.kept, self.start);
        self.kept.truncate(*count.as_ref().unwrap_or(&0));
        count.map(drop)
    }
}

impl ObjectSource for SummedReader<'_> {
    fn read_at(&mut self, target: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < target.len() {
            let (rest, at) = (&mut target[done..], at + done as u64);
            if at.is_multiple_of(GRANULE_BYTES) && GRANULE * 4 <= rest.len() {
                let whole = rest.len().min(STEP_BYTES) / GRANULE * GRANULE;
                if self.of.read_granules(&mut rest[..whole], at)? < whole {
                    return Err(doubtful());
                }
                done += whole;
                continue;
            }
            let count = match self.copy_kept(rest, at) {
                0 => {
                    self.keep(at, rest.len())?;
                    self.copy_kept(rest, at)
                }
                count => count,
            };
            // Fewer bytes than the file has: a hole, or lost data. The server knows.
            if count == 0 {
                return Err(doubtful());
            }
            done += count;
        }
        Ok(done)
    }
}

impl Drop for SummedReader<'_> {
    fn drop(&mut self) {
        buffers::give_back(std::mem::take(&mut self.kept));
    }
}
