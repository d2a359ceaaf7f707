//! One writer of a container: a data log that is only appended to, and an index of its entries.
//!
//! Never: changes a byte of its log, or an entry that is in its index. Always: data is in the log before its entry is in the index, and
//! on stable storage before an entry says so. Entries wait in memory for a mebibyte of data, a sync or the close, so that pieces at equal
//! distances become one entry.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use pario_sys::MemoryPiece;
use pario_sys::file_lock::{LockFile, LockKind};
use pario_sys::file_map::Scattered;

use super::container::{ContainerCore, ContainerState};
use super::entry::{DataEntry, EntryBody, FILE_BYTES_MAX, LogEntry, Order, WriterNumber};
use super::error::{LogError, at};
use super::marker::{WriterFiles, data_path, index_path};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::sync::lock;

/// Data after which the index is written.
const FLUSH_BYTES: u64 = 1 << 20;
/// Larger pieces have an entry of their own.
const JOIN_BYTES_MAX: usize = 16 << 10;
/// Piece of memory that is summed at a time.
const SUM_BYTES: usize = 8 << 10;

/// When the entries of a write are in the index file: from then on they survive the death of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexFlush {
    /// After each mebibyte of a writer, at sync and at close.
    #[default]
    PerMebibyte,
    /// When the write returns.
    EachWrite,
}

/// A handle to write to a container; one for each thread.
#[derive(Debug)]
pub struct LogWriter {
    pub(super) core: Arc<ContainerCore>,
    pub(super) log: Arc<WriterLog>,
}

impl LogWriter {
    /// Writes `bytes` at `offset` of the file: all of them, or an error.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), LogError> {
        self.write(&[LogPiece { at: offset, memory: MemoryPiece::from(bytes) }])
    }

    /// Writes the pieces one after the other from `offset` of the file on: all of them, or an error.
    pub fn write_vectored_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> Result<(), LogError> {
        let mut next = offset;
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            parts.push(LogPiece { at: next, memory: *piece });
            next = next.saturating_add(piece.len() as u64);
        }
        self.write(&parts)
    }

    /// Writes each piece at its own offset of the file, in one call to the data log: all of them, or an error.
    pub fn write_scattered(&self, pieces: &[Scattered<'_>]) -> Result<(), LogError> {
        let parts =
            pieces.iter().map(|piece| LogPiece { at: piece.at, memory: MemoryPiece::from(piece.bytes) });
        self.write(&parts.collect::<Vec<_>>())
    }

    fn write(&self, pieces: &[LogPiece<'_>]) -> Result<(), LogError> {
        self.core.check_open()?;
        for piece in pieces {
            let end = piece.at.checked_add(piece.memory.len() as u64);
            if end.is_none_or(|end| FILE_BYTES_MAX < end) {
                return Err(LogError::TooLarge { path: self.core.dir.clone(), offset: piece.at });
            }
        }
        self.log.write(&self.core, pieces)
    }
}

/// Bytes in memory and their offset in the file.
#[derive(Clone, Copy, Debug)]
struct LogPiece<'a> {
    at: u64,
    memory: MemoryPiece<'a>,
}

impl LogPiece<'_> {
    fn range(&self) -> Range<u64> {
        self.at..self.at + self.memory.len() as u64
    }
}

/// The open files of a writer.
#[derive(Debug)]
pub(super) struct WriterHandles {
    pub(super) number: WriterNumber,
    nonce: u32,
    pub(super) data: Arc<dyn DiskFile>,
    index: Arc<dyn DiskFile>,
    /// Tells other processes that this writer lives.
    #[expect(dead_code, reason = "held, never read")]
    lock: Option<LockFile>,
}

impl WriterHandles {
    /// Files of a number that no writer has: the data log is made exclusively, and so belongs to one writer only.
    fn make(core: &ContainerCore) -> Result<WriterHandles, LogError> {
        let (disk, dir) = (&*core.disk, &*core.dir);
        let mut number = WriterFiles::list(disk, dir)?.next();
        let (data, number) = loop {
            let path = data_path(dir, number);
            match disk.open(&path, OpenMode::CreateNew) {
                Ok(data) => break (data, number),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    number = WriterNumber(number.0.saturating_add(1));
                }
                Err(error) => return Err(at("making", &path)(error)),
            }
        };
        let path = index_path(dir, number);
        let index = disk.open(&path, OpenMode::Create).map_err(at("making", &path))?;
        let lock = index.as_fd().filter(|_| core.is_shared).and_then(|fd| LockFile::open_again(fd).ok());
        // A file system without locks has no protection against a flattening beside a writer.
        let lock = lock.filter(|lock| lock.try_lock(LockKind::Write, &(0..u64::MAX)).unwrap_or(false));
        let nonce = u32::try_from(pario_sys::wall_ns() & 0xFFFF_FFFF).unwrap_or(0) ^ std::process::id();
        Ok(WriterHandles { number, nonce, data, index, lock })
    }
}

/// State of one writer.
#[derive(Debug, Default)]
pub(super) struct WriterLog {
    state: Mutex<WriterState>,
}

/// The same, locked. Lock order: writers in their order, then the container's state.
#[derive(Debug, Default)]
pub(super) struct WriterState {
    /// Made with the first write.
    handles: Option<Arc<WriterHandles>>,
    /// End of the data log, with space that is reserved for writes in progress.
    end: u64,
    /// Entries that are not in the index file yet.
    pending: Vec<LogEntry>,
    /// Whether the last pending entry may grow.
    is_tail_open: bool,
    /// End of the index file.
    index_end: u64,
    /// Data written since the index was.
    unflushed_bytes: u64,
    is_synced: bool,
}

impl WriterLog {
    pub(super) fn lock(&self) -> MutexGuard<'_, WriterState> {
        lock(&self.state)
    }

    fn write(&self, core: &ContainerCore, pieces: &[LogPiece<'_>]) -> Result<(), LogError> {
        let bytes: u64 = pieces.iter().map(|piece| piece.memory.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        let handles = state.handles(core)?;
        let start = state.end;
        state.end += bytes;
        drop(state);
        let memory: Vec<MemoryPiece<'_>> = pieces.iter().map(|piece| piece.memory).collect();
        if let Err(error) = handles.data.write_pieces_at(&memory, start) {
            let mut state = self.lock();
            // What was written of it is overwritten by the next write, unless one follows it already.
            if state.end == start + bytes {
                state.end = start;
            }
            return Err(at("writing", &data_path(&core.dir, handles.number))(error));
        }
        let large = |piece: &LogPiece<'_>| JOIN_BYTES_MAX < piece.memory.len();
        let sums: Vec<u32> =
            pieces.iter().map(|piece| if large(piece) { sum(0, piece.memory) } else { 0 }).collect();
        let mut state = self.lock();
        let mut shared = core.state();
        let mut place = start;
        for (piece, sum) in pieces.iter().zip(sums).filter(|(piece, _)| !piece.memory.is_empty()) {
            if large(piece) {
                state.append(&mut shared, piece, PiecePlace { handles: &handles, place, sum });
            } else {
                state.join_or_append(&mut shared, piece, &handles, place);
            }
            place += piece.memory.len() as u64;
        }
        drop(shared);
        state.unflushed_bytes += bytes;
        if core.flush == IndexFlush::EachWrite || FLUSH_BYTES <= state.unflushed_bytes {
            state.flush(core)?;
        }
        Ok(())
    }

    /// Truncates the file, or extends it with zeros.
    pub(super) fn cut(&self, core: &ContainerCore, bytes: u64) -> Result<(), LogError> {
        let mut state = self.lock();
        let handles = state.handles(core)?;
        let mut shared = core.state();
        let order = shared.next_order();
        shared.index.cut(bytes, order);
        drop(shared);
        state.push(LogEntry { order, nonce: handles.nonce, body: EntryBody::Cut { bytes } });
        state.is_tail_open = false;
        if core.flush == IndexFlush::EachWrite { state.flush(core) } else { Ok(()) }
    }

    /// Flushes data, then entries, to stable storage.
    pub(super) fn sync(&self, core: &ContainerCore) -> Result<(), LogError> {
        let mut state = self.lock();
        let Some(handles) = state.handles.clone().filter(|_| !state.is_synced) else { return Ok(()) };
        // Writes that end from here on are newer than this order, and are not covered.
        let order = core.state().newest;
        state.is_tail_open = false;
        state.is_synced = true;
        drop(state);
        let synced = || {
            let data = data_path(&core.dir, handles.number);
            handles.data.sync_data().map_err(at("syncing", &data))?;
            let mut state = self.lock();
            state.pending.push(LogEntry { order, nonce: handles.nonce, body: EntryBody::Synced });
            state.is_tail_open = false;
            state.flush(core)?;
            drop(state);
            let index = index_path(&core.dir, handles.number);
            handles.index.sync_data().map_err(at("syncing", &index))
        };
        let done = synced();
        if done.is_err() {
            self.lock().is_synced = false;
        }
        done
    }
}

/// Where a piece lies.
#[derive(Clone, Copy, Debug)]
struct PiecePlace<'a> {
    handles: &'a WriterHandles,
    place: u64,
    sum: u32,
}

impl WriterState {
    /// The files of this writer, if it has written.
    pub(super) fn opened(&self) -> Option<&Arc<WriterHandles>> {
        self.handles.as_ref()
    }

    pub(super) fn is_synced(&self) -> bool {
        self.is_synced || self.handles.is_none()
    }

    fn handles(&mut self, core: &ContainerCore) -> Result<Arc<WriterHandles>, LogError> {
        if let Some(handles) = &self.handles {
            return Ok(Arc::clone(handles));
        }
        let handles = Arc::new(WriterHandles::make(core)?);
        core.note_new_log(&handles);
        let head = EntryBody::Head { writer: handles.number, life: core.disk.life() };
        self.pending.push(LogEntry { order: Order(0), nonce: handles.nonce, body: head });
        self.handles = Some(Arc::clone(&handles));
        Ok(handles)
    }

    fn push(&mut self, entry: LogEntry) {
        self.pending.push(entry);
        self.is_synced = false;
    }

    fn append(&mut self, shared: &mut ContainerState, piece: &LogPiece<'_>, place: PiecePlace<'_>) {
        let PiecePlace { handles, place, sum } = place;
        let order = shared.next_order();
        let length = piece.memory.len() as u64;
        let data = DataEntry { offset: piece.at, place, length, stride: 0, count: 1, sum };
        shared.index.insert(piece.range(), order, handles.number, place);
        self.push(LogEntry { order, nonce: handles.nonce, body: EntryBody::Data(data) });
        self.is_tail_open = true;
    }

    /// A small piece is added to the last entry, if it continues it and nothing else was written there since.
    fn join_or_append(
        &mut self,
        shared: &mut ContainerState,
        piece: &LogPiece<'_>,
        handles: &WriterHandles,
        place: u64,
    ) {
        let range = piece.range();
        if let Some(LogEntry { order, body: EntryBody::Data(tail), .. }) = self.pending.last_mut()
            && self.is_tail_open
            && let Some(joined) = tail.join(&range, place)
            && shared.index.is_unchanged_since(&range, *order)
        {
            *tail = DataEntry { sum: sum(tail.sum, piece.memory), ..joined };
            shared.index.insert(range, *order, handles.number, place);
            self.is_synced = false;
            return;
        }
        self.append(shared, piece, PiecePlace { handles, place, sum: sum(0, piece.memory) });
    }

    /// Writes the pending entries to the index file.
    pub(super) fn flush(&mut self, core: &ContainerCore) -> Result<(), LogError> {
        let Some(handles) = &self.handles else { return Ok(()) };
        let bytes: Vec<u8> = self.pending.iter().flat_map(LogEntry::encode).collect();
        let path = index_path(&core.dir, handles.number);
        handles.index.write_at(&bytes, self.index_end).map_err(at("writing", &path))?;
        self.index_end += bytes.len() as u64;
        self.pending.clear();
        self.is_tail_open = false;
        self.unflushed_bytes = 0;
        Ok(())
    }
}

impl DataEntry {
    /// This entry with one more piece behind its bytes in the log; `None` if the piece does not continue it in the file.
    fn join(&self, range: &Range<u64>, place: u64) -> Option<DataEntry> {
        if self.log_end() != place {
            return None;
        }
        let bytes = range.end - range.start;
        if self.count == 1 && self.file_end() == range.start {
            return Some(DataEntry { length: self.length + bytes, ..*self });
        }
        let stride = if self.count == 1 { range.start.checked_sub(self.offset)? } else { self.stride };
        let next = stride.checked_mul(self.count).and_then(|distance| distance.checked_add(self.offset));
        let continues = bytes == self.length && self.length <= stride && next == Some(range.start);
        continues.then_some(DataEntry { stride, count: self.count + 1, ..*self })
    }
}

/// CRC32C of the bytes of a piece, behind others with the sum `before`.
fn sum(before: u32, memory: MemoryPiece<'_>) -> u32 {
    let mut buffer = [0; SUM_BYTES];
    let mut sum = before;
    let mut at = 0;
    while at < memory.len() {
        let bytes = SUM_BYTES.min(memory.len() - at);
        memory.part(at, bytes).copy_to(&mut buffer[..bytes]);
        sum = crc32c::crc32c_append(sum, &buffer[..bytes]);
        at += bytes;
    }
    sum
}

/// Whether a living process writes to the index of this writer.
pub(super) fn is_locked(disk: &dyn Disk, dir: &std::path::Path, number: WriterNumber) -> bool {
    let Ok(index) = disk.open(&index_path(dir, number), OpenMode::Write) else { return false };
    let again = index.as_fd().and_then(|fd| LockFile::open_again(fd).ok());
    again.is_some_and(|again| matches!(again.try_lock(LockKind::Write, &(0..u64::MAX)), Ok(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_equal_distances_are_one_entry() {
        let one = DataEntry { offset: 100, place: 0, length: 8, stride: 0, count: 1, sum: 0 };
        assert_eq!(
            one.join(&(108..120), 8),
            Some(DataEntry { length: 20, ..one }),
            "a neighbour of any length"
        );
        let two = one.join(&(140..148), 8).unwrap();
        assert_eq!(two, DataEntry { stride: 40, count: 2, ..one });
        assert_eq!(two.join(&(180..188), 16).unwrap().count, 3);
        for (range, place, why) in [
            (181..189, 16, "another distance"),
            (180..187, 16, "another length"),
            (180..188, 17, "another place"),
            (148..156, 16, "a neighbour of the last of several"),
        ] {
            assert_eq!(two.join(&range, place), None, "{why}");
        }
        assert_eq!(one.join(&(96..104), 8), None, "backwards");
        assert_eq!(one.join(&(104..112), 8), None, "overlapping");
    }
}
