//! A store of servers in which an object is a container. Format: docs/formats/log.md.
//!
//! An object's name is a small file `containers/xx/<inode>-<generation>` with the number of its container, a directory beside it: a
//! truncation renames the file, atomically, and the container stays where it is.
//!
//! Never: lends descriptors. Always: entries are in the index file when a write returns, so that acknowledged writes survive the death of
//! this process; a truncation to nothing makes room.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use super::container::{LogContainer, LogOptions};
use super::error::LogError;
use super::marker;
use super::writer::{IndexFlush, LogWriter};
use crate::directory::names_dir;
use crate::disk::{Disk, EntryKind, OpenMode};
use crate::error::{Doing, StoreError};
use crate::files::{scattered_bytes, total_bytes};
use crate::listing::ObjectListing;
use crate::lru::Lru;
use crate::names::NameChanges;
use crate::real_disk::RealDisk;
use crate::store::{LendAccess, Lent, Store, StoreStats};
use crate::sync::{StoreCounters, lock};

const SHARDS: usize = 16;
/// Containers kept open.
const OPEN_MAX: usize = 256;
/// A name: container number, CRC32C of it, zeros.
const NAME_BYTES: usize = 16;
/// Exists while a process uses the store.
const RUNNING: &str = "running";

/// See the module.
#[derive(Debug)]
pub struct LogStore {
    root: PathBuf,
    options: LogOptions,
    /// By inode. Read: use of an object. Write: its truncation or removal.
    shards: [RwLock<()>; SHARDS],
    open: Mutex<Lru<ObjectId, Arc<OpenLog>>>,
    names: NameChanges,
    listing: Mutex<ObjectListing>,
    counters: StoreCounters,
}

/// An open object: one writer, which threads share.
#[derive(Debug)]
struct OpenLog {
    container: LogContainer,
    writer: LogWriter,
}

impl LogStore {
    /// Opens the store in `dir`, which must exist; an empty directory becomes a store.
    pub fn open(dir: &Path) -> Result<LogStore, StoreError> {
        LogStore::open_on(RealDisk::shared(), dir)
    }

    /// The same, on the caller's disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<LogStore, StoreError> {
        let root = dir.join("containers");
        match disk.make_dir(&root) {
            Ok(()) => disk.sync_dir(dir).map_err(|e| StoreError::from_dir(e, Doing::Syncing, dir))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StoreError::from_dir(error, Doing::Opening, dir)),
        }
        let store = LogStore {
            root,
            options: LogOptions { disk, flush: IndexFlush::EachWrite, is_shared: false },
            shards: Default::default(),
            open: Mutex::default(),
            names: NameChanges::default(),
            listing: Mutex::default(),
            counters: StoreCounters::default(),
        };
        match store.disk().open(&store.root.join(RUNNING), OpenMode::CreateNew) {
            // The process before this one was killed: a removal, or a creation, may be unfinished.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => store.sweep(),
            Ok(_) | Err(_) => {}
        }
        Ok(store)
    }

    /// Removes containers without a name. What cannot be read stays.
    fn sweep(&self) {
        let Ok(dirs) = self.disk().list_dir(&self.root) else { return };
        for (dir, _) in dirs.iter().filter(|(_, kind)| *kind == EntryKind::Directory) {
            let dir = self.root.join(dir);
            if let Err(error) = self.sweep_dir(&dir) {
                tracing::warn!(%error, "{}: could not look for unfinished containers", dir.display());
            }
        }
    }

    fn sweep_dir(&self, dir: &Path) -> io::Result<()> {
        let (mut named, mut containers) = (Vec::new(), Vec::new());
        for (name, kind) in self.disk().list_dir(dir)? {
            match kind {
                EntryKind::File => {
                    let mut bytes = [0; NAME_BYTES];
                    self.disk().open(&dir.join(&name), OpenMode::Read)?.read_at(&mut bytes, 0)?;
                    named.extend(decode_name(&bytes).map(|number| format!("{number:016x}")));
                }
                EntryKind::Directory => containers.push(name),
                EntryKind::Other => {}
            }
        }
        let is_named = |name: &OsString| named.iter().any(|named| name == named.as_str());
        for container in containers.iter().filter(|name| !is_named(name)) {
            marker::remove_container(self.disk(), &dir.join(container))?;
        }
        Ok(())
    }

    fn disk(&self) -> &dyn Disk {
        &*self.options.disk
    }

    fn shard(&self, inode: InodeId) -> &RwLock<()> {
        &self.shards[usize::from(inode.0.to_le_bytes()[0]) % SHARDS]
    }

    fn enter(&self, inode: InodeId) -> RwLockReadGuard<'_, ()> {
        self.shard(inode).read().expect("another thread panicked while it held this lock")
    }

    fn alone(&self, inode: InodeId) -> RwLockWriteGuard<'_, ()> {
        self.shard(inode).write().expect("another thread panicked while it held this lock")
    }

    fn name_path(&self, object: ObjectId) -> PathBuf {
        self.root.join(names_dir(object.inode)).join(object.to_string())
    }

    fn container_path(&self, inode: InodeId, number: u64) -> PathBuf {
        self.root.join(names_dir(inode)).join(format!("{number:016x}"))
    }

    fn io(&self, doing: Doing, object: ObjectId) -> impl FnOnce(io::Error) -> StoreError + '_ {
        move |source| StoreError::from_io(source, doing, object, 0..0, &self.root)
    }

    /// The container that an object's name refers to. Outer `None`: there is no such object; inner: it has no bytes.
    fn find(&self, object: ObjectId) -> Result<Option<Option<u64>>, StoreError> {
        let file = match self.disk().open(&self.name_path(object), OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(Doing::Opening, object)(error)),
        };
        let mut bytes = [0; NAME_BYTES];
        file.read_at(&mut bytes, 0).map_err(self.io(Doing::Reading, object))?;
        Ok(Some(decode_name(&bytes)))
    }

    /// The open object; `None` if it does not exist, or has no bytes.
    fn existing(&self, object: ObjectId) -> Result<Option<Arc<OpenLog>>, StoreError> {
        if let Some(open) = lock(&self.open).get(&object) {
            return Ok(Some(Arc::clone(open)));
        }
        match self.find(object)? {
            Some(Some(number)) => self.open_container(object, number),
            Some(None) | None => Ok(None),
        }
    }

    /// Opens the container of an object, or the one that another thread has opened meanwhile.
    fn open_container(&self, object: ObjectId, number: u64) -> Result<Option<Arc<OpenLog>>, StoreError> {
        let mut open = lock(&self.open);
        if let Some(open) = open.get(&object) {
            return Ok(Some(Arc::clone(open)));
        }
        let path = self.container_path(object.inode, number);
        let container = match LogContainer::open_with(&self.options, &path) {
            // Its marker was lost in a power cut before the first sync.
            Err(LogError::Damaged { .. }) => {
                marker::mark(self.disk(), &path).and_then(|()| LogContainer::open_with(&self.options, &path))
            }
            other => other,
        };
        match container {
            Ok(container) => Ok(Some(self.keep(&mut open, object, container))),
            // Lost in a power cut before the first sync, or removed by a truncation that was interrupted.
            Err(LogError::Missing { .. }) => Ok(None),
            Err(error) => Err(self.error(error, Doing::Opening, object, 0..0)),
        }
    }

    fn keep(
        &self,
        open: &mut Lru<ObjectId, Arc<OpenLog>>,
        object: ObjectId,
        container: LogContainer,
    ) -> Arc<OpenLog> {
        let writer = container.writer();
        let new = Arc::new(OpenLog { container, writer });
        open.insert(object, Arc::clone(&new));
        while OPEN_MAX < open.len() && open.pop_oldest_where(|open| Arc::strong_count(open) == 1).is_some() {}
        new
    }

    /// The open object; made if it does not exist.
    fn made(&self, object: ObjectId) -> Result<Arc<OpenLog>, StoreError> {
        if let Some(open) = self.existing(object)? {
            return Ok(open);
        }
        // One thread at a time makes containers.
        let mut open = lock(&self.open);
        if let Some(open) = open.get(&object) {
            return Ok(Arc::clone(open));
        }
        let dir = self.root.join(names_dir(object.inode));
        match self.disk().make_dir(&dir) {
            Ok(()) => self.names.note_dir(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.io(Doing::Opening, object)(error)),
        }
        let (number, container) = self.new_container(object)?;
        self.write_name(object, Some(number))?;
        Ok(self.keep(&mut open, object, container))
    }

    fn new_container(&self, object: ObjectId) -> Result<(u64, LogContainer), StoreError> {
        let mut number = pario_sys::wall_ns();
        loop {
            match LogContainer::create_with(&self.options, &self.container_path(object.inode, number)) {
                Ok(container) => return Ok((number, container)),
                Err(LogError::Exists { .. }) => number += 1,
                Err(error) => return Err(self.error(error, Doing::Opening, object, 0..0)),
            }
        }
    }

    /// Makes the name of an object, or changes it.
    fn write_name(&self, object: ObjectId, number: Option<u64>) -> Result<(), StoreError> {
        let file = self.disk().open(&self.name_path(object), OpenMode::Create);
        let file = file.map_err(self.io(Doing::Opening, object))?;
        self.names.note(object.inode);
        file.write_at(&encode_name(number), 0).map_err(self.io(Doing::Writing, object))
    }

    fn sync_object(&self, object: ObjectId) -> Result<(), StoreError> {
        let _inside = self.enter(object.inode);
        if let Some(open) = self.existing(object)? {
            open.container.sync().map_err(|error| self.error(error, Doing::Syncing, object, 0..0))?;
        }
        match self.disk().open(&self.name_path(object), OpenMode::Read) {
            Ok(name) => name.sync_data().map_err(self.io(Doing::Syncing, object))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.io(Doing::Syncing, object)(error)),
        }
        self.names.sync(self.disk(), &self.root, object.inode)
    }

    /// Removes the name of an object, then its bytes.
    fn remove_object(&self, object: ObjectId) -> Result<(), StoreError> {
        let Some(found) = self.find(object)? else { return Ok(()) };
        lock(&self.open).remove(&object);
        self.disk().remove(&self.name_path(object)).map_err(self.io(Doing::Removing, object))?;
        self.names.note(object.inode);
        self.remove_container(object, found)
    }

    fn remove_container(&self, object: ObjectId, number: Option<u64>) -> Result<(), StoreError> {
        let Some(number) = number else { return Ok(()) };
        marker::remove_container(self.disk(), &self.container_path(object.inode, number))
            .map_err(|error| self.error(error, Doing::Removing, object, 0..0))
    }

    fn error(&self, error: LogError, doing: Doing, object: ObjectId, range: Range<u64>) -> StoreError {
        match error {
            LogError::Disk { source, .. } => StoreError::from_io(source, doing, object, range, &self.root),
            LogError::TooLarge { .. } => StoreError::TooLarge { object, range },
            LogError::Short { .. } => StoreError::Corrupt { object, range },
            other @ (LogError::Missing { .. }
            | LogError::Exists { .. }
            | LogError::Foreign { .. }
            | LogError::Damaged { .. }
            | LogError::Newer { .. }
            | LogError::Busy { .. }
            | LogError::NoExchange { .. }
            | LogError::Closed { .. }) => {
                StoreError::Device { doing, object, range, source: Arc::new(io::Error::from(other)) }
            }
        }
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        // Containers are closed first: their entries are all written by then.
        *lock(&self.open) = Lru::default();
        if let Err(error) = self.disk().remove(&self.root.join(RUNNING)) {
            tracing::debug!(%error, "{}: the next start looks for unfinished containers", self.root.display());
        }
    }
}

fn encode_name(number: Option<u64>) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    bytes[..8].copy_from_slice(&number.unwrap_or(0).to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..8]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// `None`: no container, or the name was never finished.
fn decode_name(bytes: &[u8; NAME_BYTES]) -> Option<u64> {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[..8]);
    let number = u64::from_le_bytes(number);
    (number != 0 && *bytes == encode_name(Some(number))).then_some(number)
}

impl Store for LogStore {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        let _inside = self.enter(object.inode);
        let bytes = total_bytes(pieces);
        let range = at.0..at.0.saturating_add(bytes);
        let written = self.made(object)?.writer.write_vectored_at(pieces, at.0);
        written.map_err(|error| self.error(error, Doing::Writing, object, range))?;
        self.counters.count_write(bytes);
        Ok(())
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        let _inside = self.enter(object.inode);
        let range = first.at..last.at.saturating_add(last.bytes.len() as u64);
        let written = self.made(object)?.writer.write_scattered(pieces);
        written.map_err(|error| self.error(error, Doing::Writing, object, range))?;
        self.counters.count_write(scattered_bytes(pieces));
        Ok(())
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let _inside = self.enter(object.inode);
        let range = at.0..at.0.saturating_add(target.len() as u64);
        let bytes = match self.existing(object)? {
            Some(open) => open
                .container
                .read_at(target, at.0)
                .map_err(|error| self.error(error, Doing::Reading, object, range))?,
            None => 0,
        };
        self.counters.count_read(bytes);
        Ok(bytes)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        let _inside = self.enter(object.inode);
        match self.existing(object)? {
            Some(open) => Ok(Some(open.container.len())),
            None => Ok(self.find(object)?.map(|_| 0)),
        }
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (from, to) = (ObjectId { inode, generation: from }, ObjectId { inode, generation: to });
        let _alone = self.alone(inode);
        if from != to {
            if self.find(to)?.is_some() {
                self.remove_object(from)?;
            } else if self.find(from)?.is_some() {
                lock(&self.open).remove(&from);
                let renamed = self.disk().rename(&self.name_path(from), &self.name_path(to));
                renamed.map_err(self.io(Doing::Truncating, from))?;
                self.names.note(inode);
            }
        }
        let Some(open) = self.existing(to)? else { return Ok(()) };
        if bytes == 0 {
            let old = self.find(to)?.flatten();
            drop(open);
            lock(&self.open).remove(&to);
            self.write_name(to, None)?;
            return self.remove_container(to, old);
        }
        let length = open.container.len().min(bytes);
        let cut = if length < open.container.len() { open.container.set_len(length) } else { Ok(()) };
        cut.map_err(|error| self.error(error, Doing::Truncating, to, 0..0))
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        let _alone = self.alone(object.inode);
        self.remove_object(object)
    }

    fn flush(&self, _object: ObjectId) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        self.counters.count_sync();
        self.sync_object(object)
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        self.counters.count_sync();
        // Each object by itself first, so that its entries say that they are on stable storage.
        let open = lock(&self.open).keys();
        open.into_iter().try_for_each(|object| self.sync_object(object))?;
        self.disk().sync_all(&self.root).map_err(|e| StoreError::from_dir(e, Doing::Syncing, &self.root))
    }

    fn lend(&self, _object: ObjectId, _access: LendAccess) -> Result<Lent, StoreError> {
        Ok(Lent::NotLent)
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let mut listing = lock(&self.listing);
        listing.start_after(after, self.disk(), &self.root)?;
        let mut page = Vec::new();
        while page.len() < limit {
            let Some(object) = listing.next() else { break };
            if let Some(bytes) = self.length(object)? {
                page.push((object, bytes));
            }
        }
        Ok(page)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.disk().space(&self.root).map_err(|e| StoreError::from_dir(e, Doing::Examining, &self.root))
    }

    fn stats(&self) -> StoreStats {
        self.counters.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::testing::TempDirs;

    fn object(inode: u64, generation: u32) -> ObjectId {
        ObjectId { inode: InodeId(inode), generation: Generation(generation) }
    }

    #[test]
    fn conforms() {
        let dirs = TempDirs::default();
        conformance::all(&|| Box::new(LogStore::open(&dirs.fresh()).unwrap()));
    }

    #[test]
    fn survives_reopening_and_a_truncation_to_nothing_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let id = object(0x1_02ab, 3);
        let piece = [MemoryPiece::from(&b"xy"[..])];
        LogStore::open(dir.path()).unwrap().write(id, LocalOffset(1), &piece).unwrap();
        let below = dir.path().join("containers/ab");
        assert!(below.join("00000000000102ab-00000003").is_file());
        let entries = || std::fs::read_dir(&below).unwrap().count();
        assert_eq!(entries(), 2, "a name and a container");
        let store = LogStore::open(dir.path()).unwrap();
        assert_eq!(store.list(None, 10).unwrap(), [(id, 3)]);
        store.truncate(id.inode, Generation(3), Generation(4), 0).unwrap();
        assert_eq!((store.list(None, 10).unwrap(), entries()), (vec![(object(0x1_02ab, 4), 0)], 1));
        store.write(object(0x1_02ab, 4), LocalOffset(0), &piece).unwrap();
        store.remove(object(0x1_02ab, 4)).unwrap();
        assert_eq!(entries(), 0);
    }

    #[test]
    fn containers_of_an_unfinished_removal_are_removed_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let piece = [MemoryPiece::from(&b"xy"[..])];
        let store = LogStore::open(dir.path()).unwrap();
        store.write(object(1, 0), LocalOffset(0), &piece).unwrap();
        store.write(object(0x101, 0), LocalOffset(0), &piece).unwrap();
        let below = dir.path().join("containers/01");
        let entries = || std::fs::read_dir(&below).unwrap().count();
        std::fs::remove_file(below.join("0000000000000001-00000000")).unwrap();
        assert_eq!(entries(), 3);
        // Opened beside a store that did not end: as after a kill.
        let again = LogStore::open(dir.path()).unwrap();
        assert_eq!(entries(), 2);
        assert_eq!(again.list(None, 10).unwrap(), [(object(0x101, 0), 2)]);
        drop((store, again));
        assert!(!dir.path().join("containers/running").exists());
    }

    #[test]
    fn more_objects_than_stay_open() {
        let dir = tempfile::tempdir().unwrap();
        let store = LogStore::open(dir.path()).unwrap();
        for inode in 0..OPEN_MAX as u64 + 40 {
            store.write(object(inode, 0), LocalOffset(inode), &[MemoryPiece::from(&b"x"[..])]).unwrap();
        }
        assert!(lock(&store.open).len() <= OPEN_MAX);
        for inode in 0..OPEN_MAX as u64 + 40 {
            let mut target = [0; 2];
            assert_eq!(store.read(object(inode, 0), LocalOffset(inode), &mut target).unwrap(), 1);
            assert_eq!(target[0], b'x');
        }
    }
}
