//! A file system in memory, for files that must leave nothing behind: the names of a cache that exists while a program has files open.
//!
//! Never: gives out descriptors; survives its process. Always: no more bytes than its limit; a sync has nothing to do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::Space;
use pario_sys::MemoryPiece;
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::sync::lock;

/// Largest number of names.
const NAMES_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub struct MemoryDisk {
    nodes: Mutex<BTreeMap<PathBuf, MemoryNode>>,
    room: Arc<DiskCapacity>,
}

#[derive(Clone, Debug)]
enum MemoryNode {
    Directory,
    File(Arc<FileContents>),
}

/// The bytes of a file for its lifetime, across renames.
#[derive(Debug)]
struct FileContents {
    bytes: Mutex<Vec<u8>>,
    room: Arc<DiskCapacity>,
}

/// An open file.
#[derive(Debug)]
struct MemoryFile {
    contents: Arc<FileContents>,
    writable: bool,
}

#[derive(Debug)]
struct DiskCapacity {
    limit: u64,
    used: AtomicU64,
}

impl DiskCapacity {
    fn change(&self, from: usize, to: usize) -> io::Result<()> {
        let change = |used: u64| {
            let used = used - (from as u64).min(used) + to as u64;
            (used <= self.limit || to < from).then_some(used)
        };
        let changed = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        changed.map(|_| ()).map_err(|_| Errno::NOSPC.into())
    }
}

impl Drop for FileContents {
    fn drop(&mut self) {
        let bytes = lock(&self.bytes).len();
        let _ = self.room.change(bytes, 0);
    }
}

impl MemoryDisk {
    /// A disk for at most `limit` bytes, with the directory `root` in it.
    #[must_use]
    pub fn new(root: &Path, limit: u64) -> MemoryDisk {
        let nodes = root.ancestors().map(|dir| (dir.to_owned(), MemoryNode::Directory)).collect();
        MemoryDisk {
            nodes: Mutex::new(nodes),
            room: Arc::new(DiskCapacity { limit, used: AtomicU64::new(0) }),
        }
    }
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut nodes = lock(&self.nodes);
        let contents = match (nodes.get(path), mode) {
            (Some(MemoryNode::Directory), _) => return Err(Errno::ISDIR.into()),
            (Some(MemoryNode::File(_)), OpenMode::CreateNew) => return Err(Errno::EXIST.into()),
            (Some(MemoryNode::File(contents)), OpenMode::Read | OpenMode::Write | OpenMode::Create) => {
                Arc::clone(contents)
            }
            (None, OpenMode::Read | OpenMode::Write) => return Err(Errno::NOENT.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                check_parent(&nodes, path)?;
                let contents = FileContents { bytes: Mutex::default(), room: Arc::clone(&self.room) };
                let contents = Arc::new(contents);
                nodes.insert(path.to_owned(), MemoryNode::File(Arc::clone(&contents)));
                contents
            }
        };
        Ok(Arc::new(MemoryFile { contents, writable: mode != OpenMode::Read }))
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        check_parent(&nodes, to)?;
        match nodes.remove(from) {
            Some(MemoryNode::File(contents)) => {
                nodes.insert(to.to_owned(), MemoryNode::File(contents));
                Ok(())
            }
            Some(MemoryNode::Directory) => {
                nodes.insert(from.to_owned(), MemoryNode::Directory);
                Err(Errno::ISDIR.into())
            }
            None => Err(Errno::NOENT.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        match nodes.get(path) {
            Some(MemoryNode::File(_)) => _ = nodes.remove(path),
            Some(MemoryNode::Directory) => return Err(Errno::ISDIR.into()),
            None => return Err(Errno::NOENT.into()),
        }
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        if nodes.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        check_parent(&nodes, path)?;
        nodes.insert(path.to_owned(), MemoryNode::Directory);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut nodes = lock(&self.nodes);
        match nodes.get(path) {
            Some(MemoryNode::Directory) if nodes.keys().any(|name| name.parent() == Some(path)) => {
                return Err(Errno::NOTEMPTY.into());
            }
            Some(MemoryNode::Directory) => _ = nodes.remove(path),
            Some(MemoryNode::File(_)) => return Err(Errno::NOTDIR.into()),
            None => return Err(Errno::NOENT.into()),
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.list_dir(path).map(|_| ())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let nodes = lock(&self.nodes);
        if !matches!(nodes.get(path), Some(MemoryNode::Directory)) {
            return Err(Errno::NOENT.into());
        }
        let children = nodes.iter().filter(|(name, _)| name.parent() == Some(path));
        Ok(children
            .filter_map(|(name, node)| {
                let kind = match node {
                    MemoryNode::Directory => EntryKind::Directory,
                    MemoryNode::File(_) => EntryKind::File,
                };
                Some((name.file_name()?.to_owned(), kind))
            })
            .collect())
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        Ok(match lock(&self.nodes).get(path) {
            Some(MemoryNode::File(contents)) => Some(lock(&contents.bytes).len() as u64),
            Some(MemoryNode::Directory) | None => None,
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(lock(&self.nodes).contains_key(path))
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        let used = self.room.used.load(Ordering::Acquire);
        let total_bytes = self.room.limit;
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(used), pool: 0 })
    }

    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// A new name needs a parent directory, and the number of names is limited.
fn check_parent(nodes: &BTreeMap<PathBuf, MemoryNode>, path: &Path) -> io::Result<()> {
    let parent = path.parent().and_then(|parent| nodes.get(parent));
    match parent {
        Some(MemoryNode::Directory) if nodes.len() < NAMES_MAX => Ok(()),
        Some(MemoryNode::Directory) => Err(Errno::NOSPC.into()),
        Some(MemoryNode::File(_)) => Err(Errno::NOTDIR.into()),
        None => Err(Errno::NOENT.into()),
    }
}

impl MemoryFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(Errno::BADF.into()) }
    }

    fn resize(&self, bytes: &mut Vec<u8>, to: usize) -> io::Result<()> {
        self.contents.room.change(bytes.len(), to)?;
        bytes.resize(to, 0);
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let mut at = place(offset)?;
        let end = pieces.iter().try_fold(at, |end, piece| end.checked_add(piece.len()));
        let end = end.ok_or(Errno::FBIG)?;
        let mut bytes = lock(&self.contents.bytes);
        if bytes.len() < end {
            self.resize(&mut bytes, end)?;
        }
        for piece in pieces {
            piece.copy_to(&mut bytes[at..at + piece.len()]);
            at += piece.len();
        }
        Ok(())
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = lock(&self.contents.bytes);
        let rest = bytes.get(place(offset)?..).unwrap_or_default();
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        self.resize(&mut lock(&self.contents.bytes), place(bytes)?)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.contents.bytes).len() as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| Errno::FBIG.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_as_a_file_system_does() {
        let root = Path::new("/names");
        let disk = MemoryDisk::new(root, 100);
        let (one, two) = (root.join("one"), root.join("two"));
        assert!(disk.open(&one, OpenMode::Write).is_err(), "no file exists");
        let file = disk.open(&one, OpenMode::CreateNew).unwrap();
        assert!(disk.open(&one, OpenMode::CreateNew).is_err());
        file.write_at(b"abc", 5).unwrap();
        let mut bytes = [9; 10];
        assert_eq!(file.read_at(&mut bytes, 3).unwrap(), 5);
        assert_eq!(&bytes[..5], b"\0\0abc");
        disk.rename(&one, &two).unwrap();
        assert_eq!((disk.length(&one).unwrap(), disk.length(&two).unwrap()), (None, Some(8)));
        assert_eq!(disk.list_dir(root).unwrap(), [("two".into(), EntryKind::File)]);
        assert!(disk.open(&two, OpenMode::Read).unwrap().write_at(b"x", 0).is_err());
        assert!(disk.make_dir(&root.join("a/b")).is_err());
        disk.make_dir(&root.join("a")).unwrap();
        disk.open(&root.join("a/b"), OpenMode::Create).unwrap();
        assert_eq!(disk.list_dir(root).unwrap().len(), 2);
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let root = Path::new("/r");
        let disk = MemoryDisk::new(root, 100);
        let file = disk.open(&root.join("f"), OpenMode::Create).unwrap();
        file.write_at(&[1; 60], 0).unwrap();
        let other = disk.open(&root.join("g"), OpenMode::Create).unwrap();
        assert_eq!(other.write_at(&[1; 60], 0).unwrap_err().raw_os_error(), Some(28));
        file.set_len(10).unwrap();
        other.write_at(&[1; 60], 0).unwrap();
        assert_eq!(disk.space(root).unwrap().free_bytes, 30);
        disk.remove(&root.join("g")).unwrap();
        assert_eq!(disk.space(root).unwrap().free_bytes, 30, "still open");
        drop(other);
        assert_eq!(disk.space(root).unwrap().free_bytes, 90);
    }
}
