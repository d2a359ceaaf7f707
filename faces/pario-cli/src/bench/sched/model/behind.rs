//! Write-behind at the server: a write is done when its bytes are in memory; they go to the disk later, in large pieces.
//!
//! As Linux 2.6 does: beyond a tenth of the memory the server begins to write back, beyond four tenths a writer waits until enough
//! has been written. A close commits: it waits until everything of the file is on the disk, and such a file goes first.
//! Files are written back in turn, some MiB of each in the order of their bytes.
//!
//! Always: a byte is dirty, or on its way, or on the disk.

use std::collections::{BTreeMap, VecDeque};

use super::FileIndex;

/// When and how a server writes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BehindParams {
    /// Dirty bytes from which on it writes back.
    pub(crate) background: u64,
    /// Dirty bytes that it holds at most.
    pub(crate) limit: u64,
    /// Bytes of one piece of work.
    pub(crate) piece: u64,
    /// Bytes of one file before the next one's turn.
    pub(crate) turn: u64,
}

impl BehindParams {
    /// A server with 2 GB of memory under Linux 2.6.
    pub(crate) const PAPER: BehindParams =
        BehindParams { background: 200_000_000, limit: 800_000_000, piece: 512 << 10, turn: 4 << 20 };
}

#[derive(Debug, Default)]
struct File {
    /// Dirty extents, start to end; no two touch.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    going_bytes: u64,
    /// Where its last piece ended.
    cursor: u64,
    is_committing: bool,
}

/// A piece to write back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) file: FileIndex,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Behind {
    params: BehindParams,
    files: Vec<File>,
    dirty_bytes: u64,
    going_bytes: u64,
    /// Files with dirty bytes, the one whose turn it is first.
    turns: VecDeque<FileIndex>,
    turn_left: u64,
}

impl Behind {
    /// Of so many files.
    pub(crate) fn new(params: BehindParams, files: usize) -> Behind {
        let files = (0..files).map(|_| File::default()).collect();
        let turn_left = params.turn;
        Behind { params, files, dirty_bytes: 0, going_bytes: 0, turns: VecDeque::new(), turn_left }
    }

    /// Whether a writer may leave `length` bytes now.
    pub(crate) fn has_room(&self, length: u64) -> bool {
        self.dirty_bytes + self.going_bytes + length <= self.params.limit
    }

    /// Takes written bytes.
    pub(crate) fn write(&mut self, file: FileIndex, start: u64, length: u64) {
        let state = &mut self.files[file.0];
        if state.dirty_bytes == 0 {
            self.turns.push_back(file);
        }
        let added = insert(&mut state.dirty, start, start + length);
        state.dirty_bytes += added;
        self.dirty_bytes += added;
    }

    /// Somebody waits until everything of a file is on the disk.
    pub(crate) fn commit(&mut self, file: FileIndex) {
        self.files[file.0].is_committing = true;
        if let Some(at) = self.turns.iter().position(|other| *other == file) {
            self.turns.remove(at);
            self.turns.push_front(file);
            self.turn_left = self.params.turn;
        }
    }

    /// Whether nothing of a file is missing on the disk.
    pub(crate) fn is_clean(&self, file: FileIndex) -> bool {
        self.files[file.0].dirty_bytes + self.files[file.0].going_bytes == 0
    }

    /// The next piece to write back, if it is time for one.
    pub(crate) fn next(&mut self) -> Option<Piece> {
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
        Some(Piece { file, start, length })
    }

    /// A piece is on the disk.
    pub(crate) fn written(&mut self, piece: Piece) {
        self.files[piece.file.0].going_bytes -= piece.length;
        self.going_bytes -= piece.length;
        if self.is_clean(piece.file) {
            self.files[piece.file.0].is_committing = false;
        }
    }

    /// Whose turn it is: a file that is being committed, or any if much is dirty.
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

/// Adds `start..end` to extents that do not touch; how many bytes are new.
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
