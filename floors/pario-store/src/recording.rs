//! A disk that records its calls, and can produce possible states after a power cut.
//!
//! It works on a real directory and logs every write, every change of a name and every sync. [`RecordingDisk::power_cut`] replays the log
//! up to an event and makes, from a seed, a directory that is a legal state after a power cut at that event: all synced changes are
//! present, any part of the later ones may be, and writes are torn at 512 bytes.
//!
//! Never: gives out descriptors, since writes through them would not be recorded; renames directories (files only). Always: the log has
//! the order of the calls.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pario_core::Space;
use pario_sys::MemoryPiece;

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::real_disk::RealDisk;
use crate::sync::lock;

mod image;
mod replay;
#[cfg(test)]
mod tests;

/// A file for its lifetime, across renames.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct FileNumber(usize);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RecordedNode {
    Directory,
    File(FileNumber),
}

/// One recorded call. Paths are relative to the recorded directory.
#[derive(Clone, Debug)]
enum DiskEvent {
    MakeDir { path: PathBuf },
    Create { path: PathBuf, file: FileNumber },
    Rename { from: PathBuf, to: PathBuf, file: FileNumber },
    Remove { path: PathBuf },
    Write { file: FileNumber, at: u64, bytes: Vec<u8> },
    SetLength { file: FileNumber, bytes: u64 },
    SyncFile { file: FileNumber },
    SyncDir { path: PathBuf },
    SyncAll,
}

#[derive(Debug, Default)]
struct DiskLog {
    events: Vec<DiskEvent>,
    names: BTreeMap<PathBuf, RecordedNode>,
    files: usize,
}

/// A real directory with recorded calls. Share it as an `Arc<dyn Disk>`.
#[derive(Debug)]
pub struct RecordingDisk {
    root: PathBuf,
    log: Arc<Mutex<DiskLog>>,
}

#[derive(Debug)]
struct RecordingFile {
    file: Arc<dyn DiskFile>,
    number: FileNumber,
    log: Arc<Mutex<DiskLog>>,
}

impl RecordingDisk {
    /// Records all calls below `root`, an empty directory.
    pub fn new(root: &Path) -> io::Result<RecordingDisk> {
        if std::fs::read_dir(root)?.next().is_some() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        Ok(RecordingDisk { root: root.to_owned(), log: Arc::default() })
    }

    /// Number of events so far: an argument for [`RecordingDisk::power_cut`].
    #[must_use]
    pub fn events(&self) -> usize {
        lock(&self.log).events.len()
    }

    /// Makes in `target`, an empty directory, a possible state after a power cut after the first `events` events. The same seed gives the
    /// same state.
    pub fn power_cut(&self, events: usize, seed: u64, target: &Path) -> io::Result<()> {
        let log = lock(&self.log);
        assert!(events <= log.events.len(), "{events} events have not been recorded yet");
        replay::power_cut(&log.events[..events], seed, target)
    }

    /// The same after the death of the process: no event is lost.
    pub fn process_death(&self, events: usize, target: &Path) -> io::Result<()> {
        let log = lock(&self.log);
        assert!(events <= log.events.len(), "{events} events have not been recorded yet");
        replay::process_death(&log.events[..events], target)
    }

    fn relative(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix(&self.root);
        relative
            .unwrap_or_else(|_| panic!("{} lies outside the recorded directory", path.display()))
            .to_owned()
    }
}

impl DiskLog {
    fn number_of(&self, path: &Path) -> Option<FileNumber> {
        match self.names.get(path) {
            Some(RecordedNode::File(number)) => Some(*number),
            Some(RecordedNode::Directory) | None => None,
        }
    }
}

impl Disk for RecordingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let relative = self.relative(path);
        let mut log = lock(&self.log);
        let file = RealDisk.open(path, mode)?;
        let number = match log.number_of(&relative) {
            Some(number) => number,
            None => {
                let number = FileNumber(log.files);
                log.files += 1;
                log.names.insert(relative.clone(), RecordedNode::File(number));
                log.events.push(DiskEvent::Create { path: relative, file: number });
                number
            }
        };
        Ok(Arc::new(RecordingFile { file, number, log: Arc::clone(&self.log) }))
    }

    /// Through the page cache all the same: only durability matters here.
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut log = lock(&self.log);
        RealDisk.rename(from, to)?;
        let (from, to) = (self.relative(from), self.relative(to));
        let file = log.number_of(&from).expect("only files are renamed");
        log.names.remove(&from);
        log.names.insert(to.clone(), RecordedNode::File(file));
        log.events.push(DiskEvent::Rename { from, to, file });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut log = lock(&self.log);
        RealDisk.remove(path)?;
        let path = self.relative(path);
        log.names.remove(&path);
        log.events.push(DiskEvent::Remove { path });
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut log = lock(&self.log);
        RealDisk.make_dir(path)?;
        let path = self.relative(path);
        log.names.insert(path.clone(), RecordedNode::Directory);
        log.events.push(DiskEvent::MakeDir { path });
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut log = lock(&self.log);
        RealDisk.remove_dir(path)?;
        let path = self.relative(path);
        log.names.remove(&path);
        log.events.push(DiskEvent::Remove { path });
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut log = lock(&self.log);
        if !path.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        log.events.push(DiskEvent::SyncDir { path: self.relative(path) });
        Ok(())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        RealDisk.list_dir(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        RealDisk.length(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        RealDisk.space(path)
    }

    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        lock(&self.log).events.push(DiskEvent::SyncAll);
        Ok(())
    }
}

/// Syncs are recorded, not done: the real disk is not cut.
impl DiskFile for RecordingFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        // Copied once, so that the recorded bytes are the written ones even if the source changes.
        let mut bytes = vec![0; pieces.iter().map(MemoryPiece::len).sum()];
        let mut rest = &mut bytes[..];
        for piece in pieces {
            let (head, tail) = rest.split_at_mut(piece.len());
            piece.copy_to(head);
            rest = tail;
        }
        let mut log = lock(&self.log);
        self.file.write_at(&bytes, offset)?;
        log.events.push(DiskEvent::Write { file: self.number, at: offset, bytes });
        Ok(())
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut log = lock(&self.log);
        self.file.set_len(bytes)?;
        log.events.push(DiskEvent::SetLength { file: self.number, bytes });
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync_data(&self) -> io::Result<()> {
        lock(&self.log).events.push(DiskEvent::SyncFile { file: self.number });
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
