//! The heap of an object: variable-length values, appended.
//!
//! Always: a blob is written before the element that names it; all blobs of one call are one write.

use std::sync::Arc;

use crate::bytes::{index, length};
use crate::error::{Result, TreeError};
use crate::place::{Place, PlaceFile};

/// Bytes read at once for neighbouring blobs.
const WINDOW: u64 = 1 << 20;
/// Pending bytes that are written before the call ends.
const PENDING_MAX: usize = 8 << 20;

/// Name of a blob: position, length, checksum. All zero is the null value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobId {
    /// Position in the heap.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// CRC32C of the bytes.
    pub sum: u32,
}

impl BlobId {
    /// Stored size.
    pub const SIZE: usize = 16;

    /// Stored bytes.
    pub fn bytes(self) -> [u8; BlobId::SIZE] {
        let mut bytes = [0; BlobId::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    /// The id of stored bytes.
    pub fn parse(bytes: &[u8; BlobId::SIZE]) -> BlobId {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        BlobId { offset: u64::from(word(0)) | u64::from(word(4)) << 32, length: word(8), sum: word(12) }
    }

    /// No value.
    pub fn is_null(self) -> bool {
        self == BlobId::default()
    }
}

/// The open heap of an object.
#[derive(Debug)]
pub(crate) struct Heap {
    path: String,
    file: Option<Arc<dyn PlaceFile>>,
    /// Bytes in the file.
    end: u64,
    pending: Vec<u8>,
    window: (u64, Vec<u8>),
    /// Writes so far.
    pub(crate) appends: u64,
}

impl Heap {
    pub(crate) fn open(place: &dyn Place, path: String) -> Result<Heap> {
        let file = if place.kind(&path)?.is_some() { Some(place.open(&path, false)?) } else { None };
        let end = file.as_ref().map_or(Ok(0), |file| file.size())?;
        Ok(Heap { path, file, end, pending: Vec::new(), window: (0, Vec::new()), appends: 0 })
    }

    pub(crate) fn put(&mut self, place: &dyn Place, bytes: &[u8]) -> Result<BlobId> {
        let too_long = || TreeError::Unsupported("a variable-length value of more than 4 GiB".into());
        let size = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        let id = BlobId {
            offset: self.end + length(self.pending.len()),
            length: size,
            sum: crc32c::crc32c(bytes),
        };
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > PENDING_MAX {
            self.flush(place)?;
        }
        Ok(id)
    }

    /// Writes what was put since the last flush, at once.
    pub(crate) fn flush(&mut self, place: &dyn Place) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let file = place.open(&self.path, true)?;
        file.write_at(self.end, &self.pending)?;
        self.end += length(self.pending.len());
        self.pending.clear();
        self.appends += 1;
        self.file = Some(file);
        Ok(())
    }

    pub(crate) fn get(&mut self, id: BlobId) -> Result<Vec<u8>> {
        let bytes = self.bytes_of(id)?;
        if crc32c::crc32c(&bytes) != id.sum {
            return Err(self.damaged(format!("the value at byte {} does not match its checksum", id.offset)));
        }
        Ok(bytes)
    }

    fn damaged(&self, cause: String) -> TreeError {
        TreeError::DamagedData { path: self.path.clone(), cause }
    }

    pub(crate) fn bytes_of(&mut self, id: BlobId) -> Result<Vec<u8>> {
        let (start, size) = (id.offset, u64::from(id.length));
        let Some(stop) =
            start.checked_add(size).filter(|stop| *stop <= self.end + length(self.pending.len()))
        else {
            return Err(self.damaged(format!("a value at byte {start} is beyond its end")));
        };
        if start >= self.end {
            let at = index(start - self.end);
            return Ok(self.pending[at..at + index(size)].to_vec());
        }
        let held = self.window.0..self.window.0 + length(self.window.1.len());
        if !(held.contains(&start) && stop <= held.end) {
            let wanted = size.max(WINDOW).min(self.end - start);
            let mut bytes = vec![0; index(wanted)];
            let file = self.file.clone().ok_or_else(|| self.damaged("the file is missing".into()))?;
            let read = file.read_at(start, &mut bytes)?;
            bytes.truncate(read);
            self.window = (start, bytes);
        }
        let at = index(start - self.window.0);
        let found = self.window.1.get(at..at + index(size));
        found.map(<[u8]>::to_vec).ok_or_else(|| self.damaged(format!("a value at byte {start} is cut")))
    }
}
