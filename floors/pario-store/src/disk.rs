//! The seam below stores and logs: the few things they ask of a file system, so that a power cut can be replayed.
//!
//! Never: decides what is written. Always: an entry is durable only after [`Disk::sync_dir`] of its directory, bytes only
//! after a sync of their file; nobody may rely on one for the other.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use pario_core::Space;
use pario_sys::Piece;
use pario_sys::file_map::Scattered;

/// How a file is opened; always for reading, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reading only; it must be there.
    Read,
    /// Writing too; it must be there.
    Write,
    /// Writing too; made if it is not there.
    Create,
    /// Writing too; it must not be there.
    CreateNew,
}

/// What a directory's entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// Anything else.
    Other,
}

/// A file system, or something that records what is asked of one.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file. New ones have mode 0600.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file past the system's cache (O_DIRECT): buffers, offsets and lengths must be aligned.
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name; what had it before is gone. Atomic.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory (mode 0700) whose parent is there; one that exists is [`io::ErrorKind::AlreadyExists`].
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Puts the directory's entries on stable storage.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Names and kinds of the directory's entries, in no order.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>>;
    /// Length of a file; `None` if there is none of that name.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Whether something has that name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Puts everything on the file system that holds `path` on stable storage.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Whether a large write below `path` is cheaper after [`DiskFile::make_room`].
    fn gains_by_room(&self, _path: &Path) -> bool {
        false
    }
}

/// An open file. Offsets are explicit, so that threads can share it.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes the pieces one after the other from `offset` on: all of them, or an error.
    fn write_pieces_at(&self, pieces: &[Piece<'_>], offset: u64) -> io::Result<()>;
    /// Fills `target` from `offset` on up to the file's end; returns how many bytes there were.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Cuts the file or lengthens it by zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Its length.
    fn length(&self) -> io::Result<u64>;
    /// Has blocks allotted for bytes that are about to be written; changes neither bytes nor length.
    fn make_room(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    /// Puts its bytes and its length on stable storage.
    fn sync_data(&self) -> io::Result<()>;
    /// Puts its bytes and all its attributes on stable storage.
    fn sync_all(&self) -> io::Result<()>;
    /// The descriptor, where others may use it without being recorded.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Writes pieces that ascend and do not overlap, each to its place: all of them, or an error.
    fn write_scattered(&self, pieces: &[Scattered<'_>]) -> io::Result<()> {
        pieces.iter().try_for_each(|piece| self.write_at(piece.bytes, piece.at))
    }

    /// Writes `bytes` at `offset`: all of them, or an error.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_pieces_at(&[Piece::from(bytes)], offset)
    }
}
