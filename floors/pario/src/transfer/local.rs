//! This machine's file system as a [`FileTree`], by paths; also the code shared with [`ConfinedTree`].

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{AttrChange, FileKind};
use pario_server::store::log::is_container;
use pario_sys::dir::PRIVATE_FILE;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timestamps, UTIME_OMIT, Uid,
};
use rustix::time::Timespec;

use super::container::{ContainerFile, stat_as_file};
use super::tree::{
    Durability, FileStat, FileTree, LinkPolicy, ReadFile, TreeEntries, TreeEntry, TreeId, WriteFile,
};
use super::{ConfinedTree, TransferError, TransferResult};

/// This machine's file system. Paths may be relative to the working directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalTree;

/// Adds the path to an error.
fn named<T>(path: &Path, done: io::Result<T>) -> TransferResult<T> {
    done.map_err(|error| TransferError::Local { path: path.to_owned(), error })
}

impl FileTree for LocalTree {
    fn id(&self) -> TreeId {
        TreeId::Local
    }

    fn location(&self, path: &Path) -> OsString {
        path.into()
    }

    fn confined(&self, path: &Path) -> TransferResult<Option<Arc<dyn FileTree>>> {
        Ok(Some(Arc::new(ConfinedTree::open(path)?)))
    }

    fn stat(&self, path: &Path, links: LinkPolicy) -> TransferResult<Option<FileStat>> {
        let found = match links {
            LinkPolicy::Follow => rustix::fs::stat(path),
            LinkPolicy::Stay => rustix::fs::lstat(path),
        };
        match found {
            Ok(found) => stat_as_file(path, FileStat::from(&found)).map(Some),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => named(path, Err(error.into())),
        }
    }

    fn read_dir(&self, path: &Path) -> TransferResult<TreeEntries> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty());
        let entries = named(path, dir.map_err(io::Error::from).and_then(|dir| entries(dir, path)))?;
        let path = path.to_owned();
        Ok(Box::new(entries.map(move |entry| {
            let TreeEntry { name, stat } = entry?;
            let stat = stat_as_file(&path.join(&name), stat)?;
            Ok(TreeEntry { name, stat })
        })))
    }

    fn open(&self, path: &Path) -> TransferResult<Box<dyn ReadFile>> {
        let file = named(path, File::open(path))?;
        if is_container(path) {
            return Ok(Box::new(ContainerFile::open(path)?));
        }
        Ok(LocalFile::boxed(file, path))
    }

    fn create_new(&self, path: &Path) -> TransferResult<Box<dyn WriteFile>> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(PRIVATE_FILE).open(path);
        Ok(LocalFile::boxed(named(path, file)?, path))
    }

    fn create_dir(&self, path: &Path) -> TransferResult {
        named(path, fs::create_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> TransferResult {
        named(path, fs::create_dir_all(path))
    }

    fn symlink(&self, target: &Path, path: &Path) -> TransferResult {
        named(path, std::os::unix::fs::symlink(target, path))
    }

    fn read_link(&self, path: &Path) -> TransferResult<PathBuf> {
        named(path, fs::read_link(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> TransferResult {
        named(to, fs::rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> TransferResult {
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        named(to, renamed.map_err(io::Error::from))
    }

    fn remove_file(&self, path: &Path) -> TransferResult {
        if is_container(path) {
            return named(path, pario_server::store::log::remove(path).map_err(io::Error::from));
        }
        named(path, fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> TransferResult {
        named(path, fs::remove_dir(path))
    }

    fn set_attr(&self, path: &Path, change: AttrChange, links: LinkPolicy) -> TransferResult {
        let change = match links {
            LinkPolicy::Follow => change,
            LinkPolicy::Stay => AttrChange { mode: None, ..change },
        };
        named(path, change_at(CWD, path, change, links))
    }
}

/// Changes attributes of a name in a directory.
pub(super) fn change_at(
    dir: impl AsFd,
    name: &Path,
    change: AttrChange,
    links: LinkPolicy,
) -> io::Result<()> {
    let flags = if links == LinkPolicy::Stay { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    let owner = |uid, gid| rustix::fs::chownat(&dir, name, uid, gid, flags);
    let times = |times: &Timestamps| rustix::fs::utimensat(&dir, name, times, flags);
    apply(change, owner, times, |mode| rustix::fs::chmodat(&dir, name, mode, AtFlags::empty()))
}

/// Changes attributes in the required order: a new owner clears special bits, new bits may forbid the rest.
pub(super) fn apply(
    change: AttrChange,
    owner: impl FnOnce(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    times: impl FnOnce(&Timestamps) -> rustix::io::Result<()>,
    mode: impl FnOnce(Mode) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let mut bits = change.mode;
    if change.uid.is_some() || change.gid.is_some() {
        match owner(change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw)) {
            Ok(()) => {}
            // Only root may change owners; with another owner, setuid and setgid would grant that user's rights.
            Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
                bits = bits.map(|bits| bits & !0o6000)
            }
            Err(error) => return Err(error.into()),
        }
    }
    if change.accessed_ns.is_some() || change.modified_ns.is_some() {
        times(&Timestamps {
            last_access: time(change.accessed_ns),
            last_modification: time(change.modified_ns),
        })?;
    }
    Ok(bits.map_or(Ok(()), |bits| mode(Mode::from_raw_mode(bits)))?)
}

fn time(ns: Option<u64>) -> Timespec {
    let Some(ns) = ns else { return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } };
    Timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    }
}

/// The entries of an open directory.
pub(super) fn entries(dir: OwnedFd, path: &Path) -> io::Result<TreeEntries> {
    let path = path.to_owned();
    let names = rustix::fs::Dir::read_from(&dir)?;
    let entry = move |entry: rustix::io::Result<rustix::fs::DirEntry>| {
        let read = entry.and_then(|entry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            let found = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(TreeEntry { name, stat: FileStat::from(&found) })
        });
        named(&path, read.map_err(io::Error::from))
    };
    let is_own = |entry: &rustix::io::Result<rustix::fs::DirEntry>| {
        entry.as_ref().is_ok_and(|entry| [&b"."[..], b".."].contains(&entry.file_name().to_bytes()))
    };
    Ok(Box::new(names.filter(move |entry| !is_own(entry)).map(entry)))
}

impl From<&Stat> for FileStat {
    fn from(found: &Stat) -> FileStat {
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Some(FileKind::File),
            FileType::Directory => Some(FileKind::Directory),
            FileType::Symlink => Some(FileKind::Symlink),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        };
        let ns = |seconds: i64, nanos: u64| {
            u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos)
        };
        FileStat {
            kind,
            size: u64::try_from(found.st_size).unwrap_or(0),
            mode: found.st_mode & 0o7777,
            uid: found.st_uid,
            gid: found.st_gid,
            accessed_ns: ns(found.st_atime, found.st_atime_nsec),
            modified_ns: ns(found.st_mtime, found.st_mtime_nsec),
            device: found.st_dev,
            inode: found.st_ino,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct LocalFile {
    file: File,
    path: PathBuf,
}

impl LocalFile {
    pub(super) fn boxed(file: File, path: &Path) -> Box<LocalFile> {
        Box::new(LocalFile { file, path: path.to_owned() })
    }
}

impl ReadFile for LocalFile {
    fn length(&self) -> TransferResult<u64> {
        named(&self.path, self.file.metadata().map(|found| found.len()))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> TransferResult<usize> {
        let mut done = 0;
        while done < target.len() {
            match self.file.read_at(&mut target[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return named(&self.path, Err(error)),
            }
        }
        Ok(done)
    }

    fn data_in(&self, range: Range<u64>) -> TransferResult<Vec<Range<u64>>> {
        let mut parts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            // Only the returned offset counts: nothing reads from the descriptor's own position.
            let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) if start < range.end => start,
                Ok(_) | Err(rustix::io::Errno::NXIO) => break,
                Err(_) => return Ok(vec![range]),
            };
            let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(start));
            let end = hole.unwrap_or(range.end).min(range.end);
            parts.push(start..end);
            at = end;
        }
        Ok(parts)
    }
}

impl WriteFile for LocalFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> TransferResult {
        named(&self.path, self.file.write_all_at(data, offset))
    }

    fn finish(&self, bytes: u64, durability: Durability) -> TransferResult {
        let stable = || if durability == Durability::Stable { self.file.sync_all() } else { Ok(()) };
        named(&self.path, self.file.set_len(bytes).and_then(|()| stable()))
    }

    fn abandon(&self) {}
}
