//! Write-behind at the server: a write completes when its bytes are in memory; they are written to the disk later, in large pieces.
//!
//! As in Linux 2.6: beyond a tenth of the memory the server starts write-back, beyond four tenths a writer waits. A close
//! commits: it waits until the whole file is on the disk, and such a file is written first. Files are written back round-robin,
//! some MiB of each in offset order.
//!
//! Always: a byte is dirty, in flight, or on the disk.

use std::collections::{BTreeMap, VecDeque};

use super::FileIndex;

/// Parameters of write-back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteBehindParams {
    /// Dirty bytes at which write-back starts.
    pub(crate) background: u64,
    /// Maximum of dirty bytes.
    pub(crate) limit: u64,
    /// Bytes of one write.
    pub(crate) piece: u64,
    /// Bytes of one file per turn.
    pub(crate) turn: u64,
}

impl WriteBehindParams {
    /// A server with 2 GB of memory under Linux 2.6.
    pub(crate) const PAPER: WriteBehindParams =
        WriteBehindParams { background: 200_000_000, limit: 800_000_000, piece: 512 << 10, turn: 4 << 20 };
}

#[derive(Debug, Default)]
struct DirtyFile {
    /// Dirty extents, start to end; no two touch.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    going_bytes: u64,
    /// End of its last write.
    cursor: u64,
    is_committing: bool,
}

/// A piece to write back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteBackPiece {
    pub(crate) file: FileIndex,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ModelWriteBehind {
    params: WriteBehindParams,
    files: Vec<DirtyFile>,
    dirty_bytes: u64,
    going_bytes: u64,
    /// Files with dirty bytes, in round-robin order.
    turns: VecDeque<FileIndex>,
    turn_left: u64,
}

impl ModelWriteBehind {
    /// For `files` files.
    pub(crate) fn new(params: WriteBehindParams, files: usize) -> ModelWriteBehind {
        let files = (0..files).map(|_| DirtyFile::default()).collect();
        let turn_left = params.turn;
        ModelWriteBehind { params, files, dirty_bytes: 0, going_bytes: 0, turns: VecDeque::new(), turn_left }
    }

    /// Whether a writer may add `length` bytes now.
    pub(crate) fn has_space(&self, length: u64) -> bool {
        self.dirty_bytes + self.going_bytes + length <= self.params.limit
    }

    /// Adds written bytes.
    pub(crate) fn write(&mut self, file: FileIndex, start: u64, length: u64) {
        let state = &mut self.files[file.0];
        if state.dirty_bytes == 0 {
            self.turns.push_back(file);
        }
        let added = insert(&mut state.dirty, start, start + length);
        state.dirty_bytes += added;
        self.dirty_bytes += added;
    }

    /// A close waits until the whole file is on the disk.
    pub(crate) fn commit(&mut self, file: FileIndex) {
        self.files[file.0].is_committing = true;
        if let Some(at) = self.turns.iter().position(|other| *other == file) {
            self.turns.remove(at);
            self.turns.push_front(file);
            self.turn_left = self.params.turn;
        }
    }

    /// Whether the whole file is on the disk.
    pub(crate) fn is_clean(&self, file: FileIndex) -> bool {
        self.files[file.0].dirty_bytes + self.files[file.0].going_bytes == 0
    }

    /// The next piece to write back, if due.
    pub(crate) fn next(&mut self) -> Option<WriteBackPiece> {
        let file = self.choose()?;
        let state = &mut self.files[file.0];
        let after = state.dirty.range(state.cursor..).next();
        let (start, end) = after.or_else(|| state.dirty.iter().next()).map(|(start, end)| (*start, *end))?;
        let length = (end - start).min(self.params.piece);
        state.dirty.remove(&start);
        if start + length < end {
            state.dirty.insert(start + length, end);
        }
        state.cursor = start + length;
        self.account(file, length);
        Some(WriteBackPiece { file, start, length })
    }

    /// A piece was written to the disk.
    pub(crate) fn written(&mut self, piece: WriteBackPiece) {
        self.files[piece.file.0].going_bytes -= piece.length;
        self.going_bytes -= piece.length;
        if self.is_clean(piece.file) {
            self.files[piece.file.0].is_committing = false;
        }
    }

    /// The next file: one that is being committed, or any above the threshold.
    fn choose(&mut self) -> Option<FileIndex> {
        let committing = self.turns.iter().position(|file| self.files[file.0].is_committing);
        if self.turn_left == 0 {
            self.turn_left = self.params.turn;
            self.turns.rotate_left(usize::from(!self.turns.is_empty()));
        }
        match committing {
            _ if self.params.background <= self.dirty_bytes => self.turns.front().copied(),
            Some(_) => self.turns.iter().find(|file| self.files[file.0].is_committing).copied(),
            None => None,
        }
    }

    fn account(&mut self, file: FileIndex, length: u64) {
        let state = &mut self.files[file.0];
        state.dirty_bytes -= length;
        state.going_bytes += length;
        self.dirty_bytes -= length;
        self.going_bytes += length;
        self.turn_left = self.turn_left.saturating_sub(length);
        if state.dirty_bytes == 0 {
            self.turns.retain(|other| *other != file);
            self.turn_left = self.params.turn;
        }
    }
}

/// Adds `start..end` to non-adjacent extents; returns the number of new bytes.
fn insert(extents: &mut BTreeMap<u64, u64>, mut start: u64, mut end: u64) -> u64 {
    let length = end - start;
    let mut known = 0;
    while let Some((&other_start, &other_end)) = extents.range(..=end).next_back() {
        if other_end < start {
            break;
        }
        known += other_end.min(end).saturating_sub(other_start.max(start));
        extents.remove(&other_start);
        start = start.min(other_start);
        end = end.max(other_end);
    }
    extents.insert(start, end);
    length - known.min(length)
}
