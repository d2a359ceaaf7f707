//! A stream with encrypted and authenticated records.
//!
//! Never: returns a byte of a record before it was verified; continues after a failed record. Always: buffers are borrowed from a small
//! pool during a record, so an idle connection holds none.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pario_sys::socket::{self, Blocking};

use super::{Keys, LENGTH_BYTES, PROTECTED_BYTES_MAX, RecordError, TAG_BYTES, Traffic};
use crate::stream::Stream;

const RECORD_BYTES: usize = LENGTH_BYTES + PROTECTED_BYTES_MAX + TAG_BYTES;
/// Maximum bytes of records per system call.
const BATCH_BYTES: usize = 4 * RECORD_BYTES;
/// Messages without file data fit; larger ones borrow a buffer of [`BATCH_BYTES`].
const SMALL_BYTES: usize = 4096;
/// Buffers kept by a process for the next use.
const SPARE_MAX: usize = 8;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Vec<u8>>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn borrow() -> Vec<u8> {
    spare().pop().unwrap_or_else(|| vec![0; BATCH_BYTES])
}

/// Releases a buffer; large ones are kept for reuse.
fn give_back(buffer: &mut Vec<u8>) {
    let buffer = std::mem::take(buffer);
    if buffer.len() == BATCH_BYTES {
        let mut spare = spare();
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Protected {
    below: Stream,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

/// Records that are sealed and not sent yet.
#[derive(Debug)]
struct Outgoing {
    traffic: Traffic,
    bytes: Vec<u8>,
    sealed: Range<usize>,
}

/// Received records: `plain` is decrypted, the rest of `raw` is not.
#[derive(Debug)]
struct Incoming {
    traffic: Traffic,
    bytes: Vec<u8>,
    plain: Range<usize>,
    raw: Range<usize>,
    failed: Option<RecordError>,
}

impl Protected {
    /// Protects all bytes sent and received from now on.
    #[must_use]
    pub fn new(below: Stream, keys: Keys) -> Protected {
        let outgoing = Outgoing { traffic: keys.sending, bytes: Vec::new(), sealed: 0..0 };
        let incoming =
            Incoming { traffic: keys.receiving, bytes: Vec::new(), plain: 0..0, raw: 0..0, failed: None };
        Protected { below, outgoing: Mutex::new(outgoing), incoming: Mutex::new(incoming) }
    }

    /// What carries the records.
    #[must_use]
    pub fn below(&self) -> &Stream {
        &self.below
    }

    /// Seals as much as one system call moves, and sends what can be sent now. Sealed bytes count as sent: [`Protected::flush`]
    /// sends the rest.
    pub(crate) fn send_some(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut outgoing = self.outgoing();
        if !outgoing.send(&self.below)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = outgoing.seal(parts);
        outgoing.send(&self.below)?;
        Ok(count)
    }

    /// Sends sealed bytes; whether all were sent.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.outgoing().send(&self.below)
    }

    /// Whether sealed bytes wait for socket space.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outgoing().sealed.is_empty()
    }

    /// Receives available bytes, without waiting.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming();
        loop {
            let count = incoming.copy_out(buffer)?;
            if 0 < count || buffer.is_empty() {
                return Ok(count);
            }
            incoming.reserve_record();
            let end = incoming.raw.end;
            let room = &mut incoming.bytes[end..];
            // A network carries no descriptors; any received are closed with the list.
            match socket::receive(self.below.as_fd(), room, &mut Vec::new(), Blocking::Never) {
                Ok(0) if incoming.raw.is_empty() => return Ok(0),
                Ok(0) => return Err(RecordError::Cut.into()),
                Ok(count) => incoming.raw.end += count,
                Err(error) => {
                    if incoming.raw.is_empty() {
                        give_back(&mut incoming.bytes);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Whether decrypted bytes are available although the socket has none.
    pub(crate) fn has_pending(&self) -> bool {
        let incoming = self.incoming();
        !incoming.plain.is_empty()
            || incoming.failed.is_some()
            || incoming.whole().is_none_or(|whole| whole.is_some())
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outgoing {
    /// Sends without waiting; whether all bytes were sent.
    fn send(&mut self, below: &Stream) -> io::Result<bool> {
        while !self.sealed.is_empty() {
            let rest = IoSlice::new(&self.bytes[self.sealed.clone()]);
            match socket::send(below.as_fd(), &[rest], &[], Blocking::Never) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sealed.start += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if SMALL_BYTES < self.bytes.len() {
            give_back(&mut self.bytes);
        }
        Ok(true)
    }

    /// Seals a prefix of `parts` as records; returns its length. No sealed bytes may be unsent.
    fn seal(&mut self, parts: &[IoSlice<'_>]) -> usize {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if self.bytes.is_empty() {
            let small = total + LENGTH_BYTES + TAG_BYTES <= SMALL_BYTES;
            self.bytes = if small { vec![0; SMALL_BYTES] } else { borrow() };
        } else if self.bytes.len() < total + LENGTH_BYTES + TAG_BYTES && self.bytes.len() < BATCH_BYTES {
            self.bytes = borrow();
        }
        let room = self.bytes.len();
        let (mut at, mut done) = (0, 0);
        let mut source = PartsReader { parts, at: 0 };
        while done < total && LENGTH_BYTES + TAG_BYTES < room - at {
            let plain = (total - done).min(PROTECTED_BYTES_MAX).min(room - at - LENGTH_BYTES - TAG_BYTES);
            let record = &mut self.bytes[at..at + LENGTH_BYTES + plain + TAG_BYTES];
            source.copy_to(&mut record[LENGTH_BYTES..LENGTH_BYTES + plain]);
            self.traffic.seal(record);
            at += record.len();
            done += plain;
        }
        self.sealed = 0..at;
        done
    }
}

/// Bytes in parts, read from the beginning.
struct PartsReader<'a, 'b> {
    parts: &'a [IoSlice<'b>],
    /// Of the first part.
    at: usize,
}

impl PartsReader<'_, '_> {
    fn copy_to(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            let part = &self.parts[0][self.at..];
            let count = part.len().min(target.len());
            target[..count].copy_from_slice(&part[..count]);
            target = &mut target[count..];
            self.at += count;
            if self.at == self.parts[0].len() {
                self.parts = &self.parts[1..];
                self.at = 0;
            }
        }
    }
}

impl Incoming {
    /// Copies out decrypted bytes, and decrypts whole records while there is space for more.
    fn copy_out(&mut self, buffer: &mut [u8]) -> Result<usize, RecordError> {
        let mut count = 0;
        while count < buffer.len() {
            if self.plain.is_empty() && !self.open_next()? {
                break;
            }
            let part = self.plain.len().min(buffer.len() - count);
            let from = self.plain.start..self.plain.start + part;
            buffer[count..count + part].copy_from_slice(&self.bytes[from]);
            self.plain.start += part;
            count += part;
        }
        Ok(count)
    }

    /// The length of the next record, if all of it is here; `None` if it cannot be one.
    fn whole(&self) -> Option<Option<usize>> {
        let length = Traffic::length(&self.bytes[self.raw.clone()]).ok()?;
        Some(length.filter(|length| *length <= self.raw.len()))
    }

    fn open_next(&mut self) -> Result<bool, RecordError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let opened = self.try_open();
        self.failed = opened.err();
        opened
    }

    fn try_open(&mut self) -> Result<bool, RecordError> {
        let Some(length) = Traffic::length(&self.bytes[self.raw.clone()])? else { return Ok(false) };
        if self.raw.len() < length {
            return Ok(false);
        }
        let start = self.raw.start;
        self.traffic.open(&mut self.bytes[start..start + length])?;
        self.plain = start + LENGTH_BYTES..start + length - TAG_BYTES;
        self.raw.start += length;
        Ok(true)
    }

    /// Makes space for the rest of a record; all decrypted bytes were copied out.
    fn reserve_record(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = borrow();
        }
        if 0 < self.raw.start {
            self.bytes.copy_within(self.raw.clone(), 0);
            self.raw = 0..self.raw.len();
        }
        self.plain = 0..0;
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        give_back(&mut self.outgoing().bytes);
        give_back(&mut self.incoming().bytes);
    }
}
