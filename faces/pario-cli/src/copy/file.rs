//! One file of a copy: opened, moved piece by piece by several workers, then given its name.
//!
//! Always: the worker that moved the last piece finishes the file; if any piece failed, it removes what was made.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pario::core::FileKind;
use pario::core::limits::NAME_BYTES_MAX;

use super::data::{Durability, Source, Target};
use super::holes::data_parts;
use super::{PIECE_BYTES, Pair, Run};
use crate::error::{CliError, Outcome};
use crate::place::{Facts, Links, Place};

/// A file to copy.
#[derive(Debug)]
pub(super) struct FileJob {
    pub(super) pair: Pair,
    pub(super) facts: Facts,
}

/// A file that is being copied.
#[derive(Debug)]
pub(super) struct FileCopy {
    job: FileJob,
    source: Source,
    target: Target,
    temporary: Place,
    bytes: u64,
    next: AtomicU64,
    unfinished: AtomicU64,
    holes: AtomicU64,
    failure: Mutex<Option<CliError>>,
}

/// What a worker does after a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It was the last one.
    Last,
    /// Others are under way.
    More,
}

impl FileCopy {
    /// Opens the source, and the target under a temporary name.
    pub(super) fn open(mut job: FileJob) -> Outcome<FileCopy> {
        let source = Source::open(&job.pair.from)?;
        job.pair.to = final_place(&job)?;
        let bytes = source.len()?;
        let temporary = temporary_place(&job.pair.to);
        let target = Target::create(&temporary, &job.pair.to)?;
        let pieces = bytes.div_ceil(PIECE_BYTES);
        Ok(FileCopy {
            job,
            source,
            target,
            temporary,
            bytes,
            next: AtomicU64::new(0),
            unfinished: AtomicU64::new(pieces),
            holes: AtomicU64::new(0),
            failure: Mutex::new(None),
        })
    }

    /// How many pieces it has.
    pub(super) fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PIECE_BYTES)
    }

    /// A piece that nobody has taken yet. Asked under the board's lock.
    pub(super) fn take_piece(&self) -> Option<u64> {
        let piece = self.next.load(Ordering::Relaxed);
        (piece < self.pieces()).then(|| {
            self.next.store(piece + 1, Ordering::Relaxed);
            piece
        })
    }

    /// Moves the bytes of one piece.
    pub(super) fn move_piece(&self, run: &Run<'_>, piece: u64, buffer: &mut Vec<u8>) -> Outcome {
        if self.has_failed() {
            return Ok(());
        }
        let start = piece * PIECE_BYTES;
        let end = (start + PIECE_BYTES).min(self.bytes);
        let mut moved = 0;
        match self.source.data_in(start..end) {
            Some(parts) => {
                for part in parts {
                    let data = self.read(part.start, part.end - part.start, buffer)?;
                    self.target.write_at(part.start, data)?;
                    moved += part.end - part.start;
                }
            }
            None => {
                let data = self.read(start, end - start, buffer)?;
                for part in data_parts(data) {
                    moved += part.len() as u64;
                    self.target.write_at(start + part.start as u64, &data[part])?;
                }
            }
        }
        self.holes.fetch_add(end - start - moved, Ordering::Relaxed);
        run.progress.moved(end - start);
        Ok(())
    }

    fn read<'b>(&self, offset: u64, bytes: u64, buffer: &'b mut Vec<u8>) -> Outcome<&'b [u8]> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        self.source.read_exact_at(offset, &mut buffer[..bytes])?;
        Ok(&buffer[..bytes])
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Notes how a piece went.
    pub(super) fn piece_done(&self, moved: Outcome) -> Step {
        if let Err(error) = moved {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 { Step::Last } else { Step::More }
    }

    /// Gives the file its name, or removes what was made of it.
    pub(super) fn finish(&self, run: &Run<'_>) -> Outcome {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let named = failure.map_or(Ok(()), Err).and_then(|()| self.give_name(run));
        if named.is_err() {
            self.target.abandon();
            // The first error is the one to tell; a server that is gone cannot remove anything now.
            if let Err(error) = self.temporary.remove_file() {
                tracing::info!("{error}: a part of a copy stays behind under this name");
            }
        }
        named.map_err(|error| error.called(&self.temporary, &self.job.pair.to))
    }

    fn give_name(&self, run: &Run<'_>) -> Outcome {
        let durability = if run.options.durable { Durability::Stable } else { Durability::Closed };
        self.target.finish(self.bytes, durability)?;
        match run.options.preserve {
            true => self.temporary.set_like(&self.job.facts)?,
            false => self.temporary.set_mode(self.job.facts.mode & 0o777)?,
        }
        run.stop.check()?;
        self.temporary.rename(&self.job.pair.to)?;
        run.count.files.fetch_add(1, Ordering::Relaxed);
        run.count.bytes.fetch_add(self.bytes, Ordering::Relaxed);
        run.count.hole_bytes.fetch_add(self.holes.load(Ordering::Relaxed), Ordering::Relaxed);
        run.progress.copied(&self.job.pair);
        Ok(())
    }
}

/// Where the file goes: behind symbolic links, not over a directory or onto itself.
fn final_place(job: &FileJob) -> Outcome<Place> {
    let to = job.pair.to.behind_links()?;
    let Some(there) = to.look(Links::Stay)? else { return Ok(to) };
    match there.kind {
        Some(FileKind::Directory) => {
            Err(CliError::failed(format!("{to}: is a directory, and {} is a file", job.pair.from)))
        }
        Some(FileKind::File) if job.pair.from.shares_tree(&to) && there.identity == job.facts.identity => {
            Err(CliError::failed(format!("{} and {to} are the same file", job.pair.from)))
        }
        Some(FileKind::File) => Ok(to),
        Some(FileKind::Symlink) | None => {
            Err(CliError::failed(format!("{to}: is neither a file nor a directory, and is not replaced")))
        }
    }
}

/// Where a file lies while it is written.
pub(super) fn temporary_place(to: &Place) -> Place {
    to.sibling(&temporary_name(to.name().unwrap_or_default().as_bytes()))
}

/// A hidden name in the same directory that nobody takes for the file.
fn temporary_name(name: &[u8]) -> OsString {
    let random = std::hash::RandomState::new().build_hasher().finish();
    let suffix = format!(".pario-{random:016x}");
    let mut hidden = vec![b'.'];
    hidden.extend(name.iter().take(NAME_BYTES_MAX - 1 - suffix.len()));
    hidden.extend(suffix.bytes());
    OsString::from_vec(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_hidden_short_and_differ() {
        let name = temporary_name(b"results.bin");
        assert!(name.as_bytes().starts_with(b".results.bin.pario-"));
        assert_ne!(name, temporary_name(b"results.bin"));
        assert_eq!(temporary_name(&[b'x'; 255]).len(), 255);
    }
}
