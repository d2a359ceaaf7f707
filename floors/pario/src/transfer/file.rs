//! One file of a copy: opened, moved piece by piece by several workers, then renamed.
//!
//! Always: the worker of the last piece finishes the file; if any piece failed, it removes the temporary file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pario_core::{AttrChange, FileKind};

use super::copy::{CopyRun, PLAIN_MODE_BITS};
use super::holes::data_parts;
use super::map::DataMap;
use super::tree::{Durability, FileStat, LinkPolicy};
use super::{CopyPair, NewFile, PIECE_BYTES, SourceFile, TransferError, TransferResult, TreePath};

/// A file to copy.
#[derive(Debug)]
pub(super) struct FileJob {
    pub(super) pair: CopyPair,
    pub(super) stat: FileStat,
    /// Whether it is in a copied tree, where no symbolic link of the target is followed.
    pub(super) is_inside: bool,
}

/// A file that is being copied.
#[derive(Debug)]
pub(super) struct FileCopy {
    job: FileJob,
    source: SourceFile,
    target: NewFile,
    bytes: u64,
    map: DataMap,
    next: AtomicU64,
    unfinished: AtomicU64,
    /// Bytes of completed pieces; the rest of the file is holes.
    moved: AtomicU64,
    /// Bytes that were written.
    written: AtomicU64,
    failure: Mutex<Option<TransferError>>,
}

/// A worker's next action after a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AfterPiece {
    /// It was the last one.
    Last,
    /// Other pieces are in flight.
    More,
}

impl FileCopy {
    /// Opens the source, and the target under a temporary name.
    pub(super) fn open(mut job: FileJob) -> TransferResult<FileCopy> {
        let source = SourceFile::open(&job.pair.from)?;
        job.pair.to = final_path(&job)?;
        let bytes = source.length()?;
        let map = DataMap::new(source.data_in(0..bytes)?);
        let target = NewFile::create(&job.pair.to)?;
        let pieces = map.pieces();
        Ok(FileCopy {
            job,
            source,
            target,
            bytes,
            map,
            next: AtomicU64::new(0),
            unfinished: AtomicU64::new(pieces),
            moved: AtomicU64::new(0),
            written: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    /// How many pieces have data.
    pub(super) fn pieces(&self) -> u64 {
        self.map.pieces()
    }

    /// The next unassigned piece. Called under the board's lock.
    pub(super) fn take_piece(&self) -> Option<u64> {
        let piece = self.map.next(self.next.load(Ordering::Relaxed))?;
        self.next.store(piece + 1, Ordering::Relaxed);
        Some(piece)
    }

    /// Moves the bytes of one piece.
    pub(super) fn move_piece(&self, run: &CopyRun<'_>, piece: u64, buffer: &mut Vec<u8>) -> TransferResult {
        if self.has_failed() {
            return Ok(());
        }
        let start = piece * PIECE_BYTES;
        let end = (start + PIECE_BYTES).min(self.bytes);
        let mut written = 0;
        for part in self.map.within(&(start..end)) {
            let data = self.source.read_into(part.start, part.end - part.start, buffer)?;
            let inner = if self.source.may_be_zeros() { data_parts(data) } else { whole(data) };
            for inner in inner {
                written += inner.len() as u64;
                self.target.write_at(part.start + inner.start as u64, &data[inner])?;
            }
        }
        self.written.fetch_add(written, Ordering::Relaxed);
        self.moved.fetch_add(end - start, Ordering::Relaxed);
        run.observer.moved(end - start);
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Records the result of a piece.
    pub(super) fn piece_done(&self, moved: TransferResult) -> AfterPiece {
        if let Err(error) = moved {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 { AfterPiece::Last } else { AfterPiece::More }
    }

    /// Renames the file, or removes its temporary file.
    pub(super) fn finish(&self, run: &CopyRun<'_>) -> TransferResult {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let named = failure.map_or(Ok(()), Err).and_then(|()| self.publish(run));
        if named.is_err() {
            self.target.abandon();
        }
        named
    }

    fn publish(&self, run: &CopyRun<'_>) -> TransferResult {
        let durability = if run.options.durable { Durability::Stable } else { Durability::Closed };
        self.target.finish(self.bytes, durability)?;
        run.observer.moved(self.bytes - self.moved.load(Ordering::Relaxed));
        let mode = Some(self.job.stat.mode & PLAIN_MODE_BITS);
        self.target.set_attr(match run.options.preserve {
            true => self.job.stat.as_change(),
            false => AttrChange { mode, ..AttrChange::default() },
        })?;
        run.check_stopped()?;
        self.target.publish()?;
        run.count.files.fetch_add(1, Ordering::Relaxed);
        run.count.bytes.fetch_add(self.bytes, Ordering::Relaxed);
        let holes = self.bytes - self.written.load(Ordering::Relaxed);
        run.count.hole_bytes.fetch_add(holes, Ordering::Relaxed);
        run.observer.copied(&self.job.pair.from, &self.job.pair.to);
        Ok(())
    }
}

/// The whole of it.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one part")]
fn whole(data: &[u8]) -> Vec<std::ops::Range<usize>> {
    vec![0..data.len()]
}

/// The path to write: through symbolic links if the user named it; not a directory and not the source itself.
fn final_path(job: &FileJob) -> TransferResult<TreePath> {
    let (from, to) = (&job.pair.from, &job.pair.to);
    if job.is_inside && to.stat_if_exists(LinkPolicy::Stay)?.is_some_and(|stat| stat.is_link()) {
        return Err(TransferError::link_in_target(to));
    }
    let to = to.behind_links()?;
    let Some(there) = to.stat_if_exists(LinkPolicy::Stay)? else { return Ok(to) };
    let refused = |text: String| Err(TransferError::refused(text));
    match there.kind {
        Some(FileKind::Directory) => refused(format!("{to}: is a directory, and {from} is a file")),
        Some(FileKind::File) if from.shares_tree(&to) && there.is_same_file(&job.stat) => {
            refused(format!("{from} and {to} are the same file"))
        }
        Some(FileKind::File) => Ok(to),
        Some(
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice,
        )
        | None => refused(format!("{to}: is neither a file nor a directory, and is not replaced")),
    }
}
