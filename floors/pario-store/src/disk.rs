//! The file-system interface of stores and logs, small enough that a power cut can be replayed.
//!
//! Never: decides what is written. Always: a directory entry is durable only after [`Disk::sync_dir`] of its directory, bytes only after
//! a sync of their file; neither implies the other.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use pario_core::Space;
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use crate::marks::Life;

/// How a file is opened; always for reading, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// Reading only; the file must exist.
    Read,
    /// Writing too; the file must exist.
    Write,
    /// Writing too; created if missing.
    Create,
    /// Writing too; the file must not exist.
    CreateNew,
}

/// Type of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// Any other type.
    Other,
}

/// A file system, or a recorder of file-system calls.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file. New ones have mode 0600.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file with O_DIRECT: buffers, offsets and lengths must be aligned.
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing the target. Atomic.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory (mode 0700) in an existing parent; an existing one is [`io::ErrorKind::AlreadyExists`].
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Exchanges the names of two entries of any type. Atomic.
    fn exchange(&self, _one: &Path, _two: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Flushes the directory's entries to stable storage.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Names and kinds of the directory's entries, in no order.
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>>;
    /// Length of a file; `None` if there is no file of that name.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Whether an entry of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Capacity and free space of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Flushes the file system that holds `path` to stable storage.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Whether a large write below `path` is cheaper after [`DiskFile::make_room`].
    fn gains_by_room(&self, _path: &Path) -> bool {
        false
    }
    /// Identity of the period in which unsynced data survives: the machine's boot.
    fn life(&self) -> Life {
        Life::default()
    }
}

/// An open file. Offsets are explicit, so that threads can share it.
pub trait DiskFile: Send + Sync + Debug {
    /// Writes the pieces one after the other from `offset` on: all of them, or an error.
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()>;
    /// Fills `target` from `offset` on up to the file's end; returns how many bytes there were.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Truncates the file or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Its length.
    fn length(&self) -> io::Result<u64>;
    /// Allocates disk blocks for a write that follows; changes neither bytes nor length.
    fn make_room(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    /// Flushes its bytes and its length to stable storage.
    fn sync_data(&self) -> io::Result<()>;
    /// Flushes its bytes and all its attributes to stable storage.
    fn sync_all(&self) -> io::Result<()>;
    /// The mark that was last set; renames keep it. `None`: no mark. A file system without marks reports so here, or when a mark is set:
    /// [`io::ErrorKind::Unsupported`], or the system's number for it.
    fn mark(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    /// Sets a short mark beside the bytes; survives the process, and a power cut after a sync.
    fn set_mark(&self, _mark: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes the mark, if there is one.
    fn remove_mark(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The descriptor, if direct use of it need not be recorded.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Writes pieces that ascend and do not overlap, each at its offset: all of them, or an error.
    fn write_scattered(&self, pieces: &[Scattered<'_>]) -> io::Result<()> {
        pieces.iter().try_for_each(|piece| self.write_at(piece.bytes, piece.at))
    }

    /// Writes `bytes` at `offset`: all of them, or an error.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_pieces_at(&[MemoryPiece::from(bytes)], offset)
    }
}
