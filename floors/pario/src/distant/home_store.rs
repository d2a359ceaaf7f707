//! The store of a home: open files, each under a number. A file is adopted as a descriptor, or opened below the home's directory.
//!
//! Never: follows a path out of the home's directory; changes the flags of an adopted descriptor; makes a file for an unknown number.
//! Always: an operation that the descriptor does not allow is refused.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_server::store::{LendAccess, Lent, Store, StoreError, StoreLayer, StoreStats};
use pario_sys::dir::{Dir, PRIVATE_FILE};
use pario_sys::mutex::lock;
use pario_sys::{MemoryPiece, read_exact_or_end_at, write_pieces_at};
use rustix::fs::{Mode, OFlags};

use super::home_call::{DistantOpen, FileAccess, FileRef, HomeAnswer, HomeCall, decode, encode};
use crate::fleet::FleetStore;

/// Open files of one home at most.
const FILES_MAX: usize = 4096;
/// Published names at most.
const NAMES_MAX: usize = 1 << 16;
/// Numbers of files opened by path; lower ones are agreed on by the group.
const OPENED_FROM: u64 = 1 << 62;

/// An open file of a home.
#[derive(Debug)]
pub(super) struct AdoptedFile {
    file: File,
    pub(super) access: FileAccess,
}

/// See the module.
#[derive(Debug)]
pub(super) struct HomeStore {
    rank: usize,
    dir: Option<Dir>,
    files: RwLock<HashMap<InodeId, Arc<AdoptedFile>>>,
    opened: Mutex<FilesByPath>,
    names: Mutex<HashMap<String, FileRef>>,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Files opened by path, with the number of their users.
#[derive(Debug, Default)]
struct FilesByPath {
    by_identity: HashMap<(u64, u64, bool), u64>,
    users: HashMap<u64, (usize, (u64, u64, bool))>,
    next: u64,
}

/// A store that counts or limits nothing, above the shared one.
#[derive(Debug)]
pub(super) struct HomeLayer(pub(super) Arc<HomeStore>);

impl StoreLayer for HomeLayer {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    fn before(&self, _: &pario_server::store::StoreCall) -> Result<(), StoreError> {
        Ok(())
    }
}

impl FleetStore for HomeStore {
    fn shut(&self) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl HomeStore {
    pub(super) fn new(rank: usize, dir: Option<&Path>) -> Result<HomeStore, Fault> {
        let open = |dir: &Path| {
            Dir::open(dir).map_err(|error| Fault::from_io(&error, format!("directory {}", dir.display())))
        };
        Ok(HomeStore {
            rank,
            dir: dir.map(open).transpose()?,
            files: RwLock::default(),
            opened: Mutex::default(),
            names: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    /// Serves an open file under a number.
    pub(super) fn adopt(&self, number: u64, file: File, access: FileAccess) -> Result<(), Fault> {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if FILES_MAX <= files.len() {
            let text = format!("{FILES_MAX} distant files of rank {} are open: unregister some", self.rank);
            return Err(Fault::new(Code::TooMany, text));
        }
        files.insert(InodeId(number), Arc::new(AdoptedFile { file, access }));
        Ok(())
    }

    /// Ends the service of a file.
    pub(super) fn forget(&self, number: u64) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&InodeId(number));
    }

    /// An open file.
    pub(super) fn file(&self, inode: InodeId) -> Result<Arc<AdoptedFile>, Fault> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.get(&inode).cloned().ok_or_else(|| {
            Fault::new(Code::Closed, format!("rank {} serves no file {}: it was closed", self.rank, inode.0))
        })
    }

    /// Sets the length of a file.
    pub(super) fn set_length(&self, number: u64, bytes: u64) -> Result<(), Fault> {
        let open = self.file(InodeId(number))?;
        open.check_writing()?;
        open.file.set_len(bytes).map_err(|error| Fault::from_io(&error, format!("cutting to {bytes} bytes")))
    }

    /// Path of the home's directory.
    pub(super) fn dir_path(&self) -> Option<&Path> {
        self.dir.as_ref().map(Dir::path)
    }

    /// Serves an operation.
    pub(super) fn serve(&self, call: HomeCall) -> Result<HomeAnswer, Fault> {
        match call {
            HomeCall::Open { path, how } => self.open(&path, how).map(HomeAnswer::File),
            HomeCall::Retain { number } => self.retain(number),
            HomeCall::Release { number } => self.release(number),
            HomeCall::Truncate { number, bytes } => {
                self.set_length(number, bytes)?;
                Ok(HomeAnswer::Done)
            }
            HomeCall::Remove { path } => self.remove_path(&path),
            HomeCall::Publish { name, file } => self.publish(name, file),
            HomeCall::Unpublish { name } => {
                let found = lock(&self.names).remove(&name);
                found.map(HomeAnswer::File).ok_or_else(|| not_published(&name))
            }
            HomeCall::Lookup { name } => {
                let found = lock(&self.names).get(&name).copied();
                found.map(HomeAnswer::File).ok_or_else(|| not_published(&name))
            }
        }
    }

    fn directory(&self) -> Result<&Dir, Fault> {
        let missing = || {
            let text = format!("rank {} has no directory: it joined without one", self.rank);
            Fault::new(Code::Unsupported, text)
        };
        self.dir.as_ref().ok_or_else(missing)
    }

    fn open(&self, path: &[u8], how: DistantOpen) -> Result<FileRef, Fault> {
        let (dir, path) = (self.directory()?, Path::new(OsStr::from_bytes(path)));
        let flags = match how {
            DistantOpen::Read => OFlags::RDONLY,
            DistantOpen::Write => OFlags::RDWR,
            DistantOpen::Create => OFlags::RDWR | OFlags::CREATE,
        };
        let failed = |error: &std::io::Error| {
            Fault::from_io(error, format!("{}: {}", dir.path().display(), path.display()))
        };
        let file = dir.open_file(path, flags | OFlags::NONBLOCK, PRIVATE_FILE).map_err(|e| failed(&e))?;
        let found = file.metadata().map_err(|e| failed(&e))?;
        check_regular(&found, &path.display().to_string())?;
        let access = FileAccess { readable: true, writable: how != DistantOpen::Read };
        let identity = (found.dev(), found.ino(), access.writable);
        let mut opened = lock(&self.opened);
        if let Some(number) = opened.by_identity.get(&identity).copied() {
            if let Some((users, _)) = opened.users.get_mut(&number) {
                *users += 1;
            }
            return Ok(FileRef { rank: self.rank, number, access });
        }
        let number = OPENED_FROM + opened.next;
        self.adopt(number, file, access)?;
        opened.next += 1;
        opened.by_identity.insert(identity, number);
        opened.users.insert(number, (1, identity));
        Ok(FileRef { rank: self.rank, number, access })
    }

    fn retain(&self, number: u64) -> Result<HomeAnswer, Fault> {
        // A registered file lives until all members unregister it.
        if let Some((users, _)) = lock(&self.opened).users.get_mut(&number) {
            *users += 1;
        }
        self.file(InodeId(number)).map(|_| HomeAnswer::Done)
    }

    fn release(&self, number: u64) -> Result<HomeAnswer, Fault> {
        let mut opened = lock(&self.opened);
        let Some((users, identity)) = opened.users.get_mut(&number) else { return Ok(HomeAnswer::Done) };
        *users -= 1;
        if *users == 0 {
            let identity = *identity;
            opened.users.remove(&number);
            opened.by_identity.remove(&identity);
            self.forget(number);
        }
        Ok(HomeAnswer::Done)
    }

    fn remove_path(&self, path: &[u8]) -> Result<HomeAnswer, Fault> {
        let (dir, path) = (self.directory()?, Path::new(OsStr::from_bytes(path)));
        let failed = |error: &std::io::Error| {
            Fault::from_io(error, format!("{}: {}", dir.path().display(), path.display()))
        };
        dir.remove_file(path).map_err(|error| failed(&error))?;
        Ok(HomeAnswer::Done)
    }

    fn publish(&self, name: String, file: FileRef) -> Result<HomeAnswer, Fault> {
        let mut names = lock(&self.names);
        if names.contains_key(&name) {
            return Err(Fault::new(Code::Exists, format!("a file is published as {name:?} already")));
        }
        if NAMES_MAX <= names.len() {
            return Err(Fault::new(Code::TooMany, format!("{NAMES_MAX} names are published")));
        }
        names.insert(name, file);
        Ok(HomeAnswer::Done)
    }
}

fn not_published(name: &str) -> Fault {
    Fault::new(Code::NotFound, format!("no file is published as {name:?}"))
}

/// Only regular files have bytes at offsets.
pub(super) fn check_regular(found: &std::fs::Metadata, name: &str) -> Result<(), Fault> {
    if found.is_file() {
        return Ok(());
    }
    let code = if found.is_dir() { Code::IsDirectory } else { Code::Invalid };
    Err(Fault::new(code, format!("{name} is not a regular file")))
}

impl AdoptedFile {
    pub(super) fn check_reading(&self) -> Result<(), Fault> {
        check_access(self.access.readable, Code::NotReadable, "reading")
    }

    pub(super) fn check_writing(&self) -> Result<(), Fault> {
        check_access(self.access.writable, Code::NotWritable, "writing")
    }

    /// A descriptor of its own for a borrower: it could change the flags of a copy.
    fn lend(&self) -> std::io::Result<Lent> {
        let flags = match (self.access.readable, self.access.writable) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        // Without /proc, accesses go through the home.
        match rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
            Ok(fd) => Ok(Lent::Descriptor(fd)),
            Err(_) => Ok(Lent::NotLent),
        }
    }
}

pub(super) fn check_access(allowed: bool, code: Code, what: &str) -> Result<(), Fault> {
    if allowed {
        return Ok(());
    }
    Err(Fault::new(code, format!("the file was not opened for {what} by its home")))
}

impl AsFd for AdoptedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn below(fault: Fault) -> StoreError {
    StoreError::Below(fault)
}

fn io_below(doing: &'static str) -> impl Fn(std::io::Error) -> StoreError {
    move |error| StoreError::Below(Fault::from_io(&error, doing))
}

impl Store for HomeStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let open = self.file(object.inode).map_err(below)?;
        open.check_writing().map_err(below)?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        write_pieces_at(open.file.as_fd(), pieces, at.0).map_err(io_below("writing"))
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let open = self.file(object.inode).map_err(below)?;
        open.check_reading().map_err(below)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        read_exact_or_end_at(open.file.as_fd(), target, at.0).map_err(io_below("reading"))
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        let open = self.file(object.inode).map_err(below)?;
        open.file.metadata().map(|found| Some(found.len())).map_err(io_below("examining"))
    }

    fn truncate(&self, inode: InodeId, _: Generation, _: Generation, bytes: u64) -> Result<(), StoreError> {
        self.set_length(inode.0, bytes).map_err(below)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        self.forget(object.inode.0);
        Ok(())
    }

    fn flush(&self, _: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        let open = self.file(object.inode).map_err(below)?;
        open.file.sync_data().map_err(io_below("syncing"))
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        // Called at the end of the server: users ask for stable storage file by file.
        Ok(())
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let open = self.file(object.inode).map_err(below)?;
        if access == LendAccess::Write {
            open.check_writing().map_err(below)?;
        }
        open.lend().map_err(io_below("lending"))
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let mut numbers: Vec<InodeId> = files.keys().copied().collect();
        numbers.sort_unstable();
        numbers.retain(|inode| after.is_none_or(|after| after.inode < *inode));
        let entry = |inode: &InodeId| {
            let length = files[inode].file.metadata().map_or(0, |found| found.len());
            (ObjectId { inode: *inode, generation: Generation(0) }, length)
        };
        Ok(numbers.iter().take(limit).map(entry).collect())
    }

    fn space(&self) -> Result<Space, StoreError> {
        Err(StoreError::Unsupported { what: "the space of a home is that of its file systems".into() })
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            ..StoreStats::default()
        }
    }

    fn call(&self, operation: &[u8]) -> Result<Vec<u8>, StoreError> {
        let answer = decode(operation).and_then(|call| self.serve(call));
        answer.and_then(|answer| encode(&answer)).map_err(below)
    }
}
