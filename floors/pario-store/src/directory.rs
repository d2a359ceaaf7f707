//! Objects as files of a directory: `DIR/objects/xx/<inode>-<generation>`, with a bounded number of them open. Disk format:
//! `docs/formats/store.md`.
//!
//! Never: keeps bytes; opens an object twice at a time. Always: an object in use is in its shard, so that truncation and removal can wait
//! for its users; shards are chosen by inode, so that all generations of an inode share a lock.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pario_core::{Generation, InodeId, ObjectId, Space};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{Doing, StoreError};
use crate::listing::ObjectListing;
use crate::lru::Lru;
use crate::marks::{LengthMark, Life, MarkTimer, Reached};
use crate::names::NameChanges;
use crate::store::{LendAccess, Lent};
use crate::sync::{ObjectGate, lock};

const SHARDS: usize = 16;
/// Objects kept open per shard: 512 in all.
const OPEN_PER_SHARD: usize = 32;

/// Whether objects are also opened with O_DIRECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffering {
    System,
    Direct,
}

/// Purpose of an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenWant {
    /// Reading; a missing object stays missing.
    Existing,
    /// Writing; a missing object stays missing.
    ExistingForWriting,
    /// Writing; a missing object is created.
    Made,
}

/// An open object; use it inside [`ObjectDirectory::with`] only.
#[derive(Debug)]
pub(crate) struct OpenObject {
    pub(crate) plain: Arc<dyn DiskFile>,
    /// The same file opened with O_DIRECT; present with [`Buffering::Direct`].
    pub(crate) direct: Option<Arc<dyn DiskFile>>,
    writable: bool,
    gate: ObjectGate,
    /// Length of the file as known to large writes: writes beyond it allocate disk blocks.
    end: AtomicU64,
    /// The file's mark, once it was read.
    pub(crate) marked: Mutex<Option<LengthMark>>,
    /// Remaining marking passes that check it: two after each write, since one may run in the middle of the write.
    rounds: AtomicU8,
    /// Whether borrowers may write it directly.
    lent: AtomicBool,
}

impl OpenObject {
    /// Whether it may have grown since its length was last marked.
    fn may_have_grown(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) != 0 || self.lent.load(Ordering::Relaxed)
    }

    /// One marking pass ends; returns whether another one follows.
    fn end_round(&self) -> bool {
        let left = |rounds: u8| rounds.checked_sub(1);
        let before = self.rounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        before.is_ok_and(|rounds| 1 < rounds) || self.lent.load(Ordering::Relaxed)
    }

    /// Whether a write of these bytes extends the object; records its new end.
    pub(crate) fn lengthens(&self, range: &Range<u64>) -> bool {
        if self.end.load(Ordering::Relaxed) == UNKNOWN {
            // Without a known length no write counts as extending.
            self.end.store(self.plain.length().unwrap_or(UNKNOWN - 1), Ordering::Relaxed);
        }
        self.end.fetch_max(range.end, Ordering::Relaxed) < range.end
    }
}

/// No large write has needed the length yet.
const UNKNOWN: u64 = u64::MAX;

type Shard = Lru<ObjectId, Arc<OpenObject>>;

#[derive(Debug)]
pub(crate) struct ObjectDirectory {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    buffering: Buffering,
    shards: [Mutex<Shard>; SHARDS],
    names: NameChanges,
    listing: Mutex<ObjectListing>,
    life: Life,
    /// Whether the file system supports marks.
    keeps_marks: AtomicBool,
    /// Whether a failed mark was logged.
    logged_unmarked: AtomicBool,
    timer: MarkTimer,
}

impl ObjectDirectory {
    /// Opens the objects below `dir`, which must exist.
    pub(crate) fn open(disk: Arc<dyn Disk>, dir: &Path, buffering: Buffering) -> Result<Self, StoreError> {
        ObjectDirectory::open_at(disk, (dir, "objects"), buffering)
    }

    /// The same below another name.
    pub(crate) fn open_at(
        disk: Arc<dyn Disk>,
        (dir, name): (&Path, &str),
        buffering: Buffering,
    ) -> Result<Self, StoreError> {
        let root = dir.join(name);
        match disk.make_dir(&root) {
            Ok(()) => disk.sync_dir(dir).map_err(|e| StoreError::from_dir(e, Doing::Syncing, dir))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // A read-only store with objects can still be read.
            Err(_) if disk.exists(&root).unwrap_or(false) => {}
            Err(error) => return Err(StoreError::from_dir(error, Doing::Opening, dir)),
        }
        let life = disk.life();
        Ok(ObjectDirectory {
            life,
            keeps_marks: AtomicBool::new(true),
            logged_unmarked: AtomicBool::new(false),
            timer: MarkTimer::default(),
            disk,
            root,
            buffering,
            shards: Default::default(),
            names: NameChanges::default(),
            listing: Mutex::default(),
        })
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    pub(crate) fn timer(&self) -> &MarkTimer {
        &self.timer
    }

    pub(crate) fn keeps_marks(&self) -> bool {
        self.keeps_marks.load(Ordering::Relaxed)
    }

    /// The file system does not support marks; `pario doctor` reports it.
    pub(crate) fn no_marks(&self) {
        self.keeps_marks.store(false, Ordering::Relaxed);
    }

    /// A mark failed and will be retried; logs the first failure.
    pub(crate) fn log_unmarked(&self, error: &io::Error) {
        if !self.logged_unmarked.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "{}: cannot mark the lengths of objects; retrying", self.root.display());
        }
    }

    /// Marks the lengths of objects that were written or lent for writing.
    pub(crate) fn keep_marks(&self) {
        for shard in &self.shards {
            let open = lock(shard).values().cloned().collect::<Vec<_>>();
            self.keep_marks_of(&open);
        }
    }

    pub(crate) fn keep_marks_of(&self, objects: &[Arc<OpenObject>]) {
        for open in objects.iter().filter(|open| open.may_have_grown()) {
            // Not between a truncation and the lowering of its mark; an object with a closed gate is renamed or removed.
            let Some(_inside) = open.gate.enter() else { continue };
            if !self.keep_mark(open, Reached::Cached) || open.end_round() {
                self.timer.want();
            }
        }
    }

    /// Runs `work` on the open object, which is neither truncated nor removed meanwhile. `None`: there is no such object.
    pub(crate) fn with<T>(
        &self,
        object: ObjectId,
        want: OpenWant,
        mut work: impl FnMut(&OpenObject) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let Some(open) = self.open_object(object, want)? else { return Ok(None) };
            // Closed between lookup and entry: it was renamed or removed, so look it up again.
            let Some(_inside) = open.gate.enter() else { continue };
            return work(&open).map(Some);
        }
    }

    pub(crate) fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        let length = self.disk.length(&self.path(object));
        length.map_err(|e| self.error(e, Doing::Examining, object))
    }

    /// See [`crate::store::Store::truncate`].
    pub(crate) fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (from, to) = (ObjectId { inode, generation: from }, ObjectId { inode, generation: to });
        let mut shard = lock(self.shard(inode));
        if from != to {
            retire(&mut shard, from);
            if !self.replace(from, to)? {
                return Ok(());
            }
        }
        let Some(open) = self.open_in(&mut shard, to, OpenWant::ExistingForWriting)? else { return Ok(()) };
        // A write through a mapping beyond the object's end would kill this process.
        let Some(_alone) = open.gate.alone() else { return Ok(()) };
        self.lower_mark(&open, bytes)
            .and_then(|()| cut(&*open.plain, bytes))
            .map_err(|e| self.error(e, Doing::Truncating, to))
    }

    pub(crate) fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        let mut shard = lock(self.shard(object.inode));
        retire(&mut shard, object);
        self.remove_name(object)?;
        Ok(())
    }

    pub(crate) fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        let synced = self.with(object, OpenWant::Existing, |open| {
            let sync = || {
                // Bytes written during the sync are not covered by it.
                let length = open.plain.length()?;
                open.plain.sync_data().map(|()| length)
            };
            let length = sync().map_err(|e| self.error(e, Doing::Syncing, object))?;
            if !self.keep_mark(open, Reached::Synced(length)) {
                self.touch(open, OpenWant::Made);
            }
            Ok(())
        })?;
        match synced {
            Some(()) => self.names.sync(&*self.disk, &self.root, object.inode),
            None => Ok(()),
        }
    }

    pub(crate) fn sync_all(&self) -> Result<(), StoreError> {
        self.disk.sync_all(&self.root).map_err(|e| StoreError::from_dir(e, Doing::Syncing, &self.root))
    }

    pub(crate) fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let (want, mode) = match access {
            LendAccess::Read => (OpenWant::Existing, OpenMode::Read),
            LendAccess::Write => (OpenWant::Made, OpenMode::Write),
        };
        let lent = self.with(object, want, |open| {
            if access == LendAccess::Write {
                open.lent.store(true, Ordering::Relaxed);
            }
            if open.plain.as_fd().is_none() {
                return Ok(Lent::NotLent);
            }
            // Not a copy of the store's descriptor: the borrower could change its flags (O_APPEND, for example).
            let error = |e| self.error(e, Doing::Opening, object);
            let file = self.disk.open(&self.path(object), mode).map_err(error)?;
            let Some(fd) = file.as_fd() else { return Ok(Lent::NotLent) };
            fd.try_clone_to_owned().map(Lent::Descriptor).map_err(error)
        })?;
        Ok(lent.unwrap_or(Lent::NoObject))
    }

    pub(crate) fn list(
        &self,
        after: Option<ObjectId>,
        limit: usize,
    ) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        let mut listing = lock(&self.listing);
        listing.start_after(after, &*self.disk, &self.root)?;
        let mut page = Vec::new();
        while page.len() < limit {
            let Some(object) = listing.next() else { break };
            if let Some(bytes) = self.length(object)? {
                page.push((object, bytes));
            }
        }
        Ok(page)
    }

    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        self.disk.space(&self.root).map_err(|e| StoreError::from_dir(e, Doing::Examining, &self.root))
    }

    /// Makes `to` out of `from`, or removes `from` if `to` exists; returns whether `to` exists now.
    fn replace(&self, from: ObjectId, to: ObjectId) -> Result<bool, StoreError> {
        let there = self.disk.exists(&self.path(to)).map_err(|e| self.error(e, Doing::Examining, to))?;
        if there {
            self.remove_name(from)?;
            return Ok(true);
        }
        match self.disk.rename(&self.path(from), &self.path(to)) {
            Ok(()) => {
                self.names.note(from.inode);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.error(error, Doing::Truncating, from)),
        }
    }

    fn remove_name(&self, object: ObjectId) -> Result<(), StoreError> {
        match self.disk.remove(&self.path(object)) {
            Ok(()) => {
                self.names.note(object.inode);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.error(error, Doing::Removing, object)),
        }
    }

    pub(crate) fn open_object(
        &self,
        object: ObjectId,
        want: OpenWant,
    ) -> Result<Option<Arc<OpenObject>>, StoreError> {
        self.open_in(&mut lock(self.shard(object.inode)), object, want)
    }

    fn open_in(
        &self,
        shard: &mut Shard,
        object: ObjectId,
        want: OpenWant,
    ) -> Result<Option<Arc<OpenObject>>, StoreError> {
        if let Some(open) = shard.get(&object)
            && (open.writable || want == OpenWant::Existing)
        {
            self.touch(open, want);
            return Ok(Some(Arc::clone(open)));
        }
        let Some(open) = self.open_files(object, want).map_err(|e| self.error(e, Doing::Opening, object))?
        else {
            return Ok(None);
        };
        retire(shard, object);
        let open = Arc::new(open);
        self.touch(&open, want);
        shard.insert(object, Arc::clone(&open));
        while OPEN_PER_SHARD < shard.len() {
            // Objects in use stay: truncation and removal must find them here to wait for their users.
            match shard.pop_oldest_where(|open| Arc::strong_count(open) == 1) {
                Some((_, gone)) if gone.may_have_grown() => _ = self.keep_mark(&gone, Reached::Cached),
                Some(_) => {}
                None => break,
            }
        }
        Ok(Some(open))
    }

    fn touch(&self, open: &OpenObject, want: OpenWant) {
        if want != OpenWant::Existing && open.rounds.swap(2, Ordering::Relaxed) == 0 {
            self.timer.want();
        }
    }

    fn open_files(&self, object: ObjectId, want: OpenWant) -> io::Result<Option<OpenObject>> {
        let path = self.path(object);
        let (plain, writable) = match self.disk.open(&path, OpenMode::Write) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match want {
                OpenWant::Existing | OpenWant::ExistingForWriting => return Ok(None),
                OpenWant::Made => (self.make(object, &path)?, true),
            },
            Err(error) if want == OpenWant::Existing && refuses_writing(&error) => {
                (self.disk.open(&path, OpenMode::Read)?, false)
            }
            Err(error) => return Err(error),
        };
        let direct = match (self.buffering, writable) {
            (Buffering::System, _) => None,
            (Buffering::Direct, true) => Some(self.disk.open_direct(&path, OpenMode::Write)?),
            (Buffering::Direct, false) => Some(self.disk.open_direct(&path, OpenMode::Read)?),
        };
        Ok(Some(OpenObject {
            plain,
            direct,
            writable,
            gate: ObjectGate::default(),
            end: AtomicU64::new(UNKNOWN),
            marked: Mutex::default(),
            rounds: AtomicU8::new(0),
            lent: AtomicBool::new(false),
        }))
    }

    fn make(&self, object: ObjectId, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let made = match self.disk.open(path, OpenMode::Create) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let dir = self.root.join(names_dir(object.inode));
                match self.disk.make_dir(&dir) {
                    Ok(()) => self.names.note_dir(),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
                self.disk.open(path, OpenMode::Create)
            }
            other => other,
        }?;
        self.names.note(object.inode);
        Ok(made)
    }

    fn path(&self, object: ObjectId) -> PathBuf {
        self.root.join(names_dir(object.inode)).join(object.to_string())
    }

    fn shard(&self, inode: InodeId) -> &Mutex<Shard> {
        &self.shards[usize::from(inode.0.to_le_bytes()[0]) % SHARDS]
    }

    pub(crate) fn error(&self, source: io::Error, doing: Doing, object: ObjectId) -> StoreError {
        StoreError::from_io(source, doing, object, 0..0, &self.root)
    }
}

/// The directory of an inode's objects: the low byte of its number.
pub(crate) fn names_dir(inode: InodeId) -> String {
    format!("{:02x}", inode.0.to_le_bytes()[0])
}

fn retire(shard: &mut Shard, object: ObjectId) {
    if let Some(open) = shard.remove(&object) {
        open.gate.close();
    }
}

fn cut(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    if bytes < file.length()? { file.set_len(bytes) } else { Ok(()) }
}

fn refuses_writing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}
