//! Open files: reading, writing, appending, flushing.
//!
//! Positions are the kernel's. Never: returns from `close` (the kernel's flush) before every server's store has the handle's writes.
//! Always: an append goes to the end of the file, not to the offset that the kernel expects.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pario::core::{FileAttr, InodeId};
use pario::message::{Creator, NameRequest};
use pario::{File, OpenOptions, Partition};
use rustix::io::Errno;

use super::attributes::without_privileges;
use super::error::{PosixResult, errno_of};
use super::pages::KeptPages;
use super::{FileSystem, at};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandleMode {
    /// Writing is allowed.
    pub write: bool,
    /// With creation: fail if it exists.
    pub exclusive: bool,
    /// Truncate it.
    pub truncate: bool,
    /// The caller may not keep set-user-ID and set-group-ID bits of a file that it truncates.
    pub drop_privileges: bool,
}

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// To an offset.
    At(u64),
    /// To the end of the file.
    Append,
}

/// An open file.
#[derive(Debug)]
pub(super) struct MountedFile {
    file: File,
    inode: InodeId,
    mode: HandleMode,
    /// Written since the last flush.
    wrote: AtomicBool,
    /// The file is known to have no set-user-ID or set-group-ID bit.
    is_unprivileged: AtomicBool,
    /// Owners of locks that were taken through this handle.
    pub(super) lock_owners: Mutex<HashSet<u64>>,
    /// Pages that the kernel keeps, since the first fault of a mapping.
    pub(super) pages: OnceLock<Arc<KeptPages>>,
}

impl HandleMode {
    pub(super) fn options(self, partition: &Partition) -> OpenOptions {
        // The kernel checks the access mode; pages of a mapping are read also through a handle for writing.
        partition.options().read(true).write(self.write).truncate(self.truncate)
    }
}

impl MountedFile {
    pub(super) fn new(file: File, attr: &FileAttr, mode: HandleMode) -> MountedFile {
        MountedFile {
            file,
            inode: attr.inode,
            mode,
            wrote: AtomicBool::new(false),
            is_unprivileged: AtomicBool::new(without_privileges(attr) == attr.mode),
            lock_owners: Mutex::default(),
            pages: OnceLock::new(),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn inode(&self) -> InodeId {
        self.inode
    }

    pub(super) fn writes(&self) -> bool {
        self.mode.write
    }

    pub(super) fn lock_owners(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.lock_owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem {
    /// `open`: a handle.
    pub fn open(&self, inode: InodeId, mode: HandleMode) -> PosixResult<u64> {
        let unused = Creator { mode: 0, uid: 0, gid: 0 };
        let opened = mode.options(&self.partition).open_at(at(inode, b""), unused, &format!("inode {inode}"));
        let (file, attr) = opened.map_err(|error| errno_of(&error))?;
        let handle = MountedFile::new(file, &attr, mode);
        if mode.truncate && mode.drop_privileges {
            self.drop_privileges(&handle)?;
        }
        Ok(self.files.add(handle))
    }

    /// `pread`: fills `target` up to the end of the file; returns the number of bytes.
    pub fn read(&self, handle: u64, offset: u64, target: &mut [u8]) -> PosixResult<usize> {
        self.files.get(handle)?.file.read_at(offset, target).map_err(|error| errno_of(&error))
    }

    /// `pwrite`, or `write` with `O_APPEND`. `drop_privileges`: the writer may not keep set-user-ID and set-group-ID bits.
    pub fn write(
        &self,
        handle: u64,
        order: WriteOrder,
        data: &[u8],
        drop_privileges: bool,
    ) -> PosixResult<()> {
        let handle = self.files.get(handle)?;
        if !handle.writes() {
            return Err(Errno::BADF);
        }
        if drop_privileges {
            self.drop_privileges(&handle)?;
        }
        handle.wrote.store(true, Ordering::Release);
        let written = match order {
            WriteOrder::At(offset) => handle.file.write_at(offset, data),
            WriteOrder::Append => handle.file.append(data).map(drop),
        };
        written.map_err(|error| errno_of(&error))
    }

    /// A descriptor of the handle is closed by a process: every server's store has its writes, and their errors are returned; the
    /// process's record locks on the file end.
    pub fn flush(&self, handle: u64, owner: u64) -> PosixResult<()> {
        let handle = self.files.get(handle)?;
        self.drop_locks(&handle, owner);
        if !handle.wrote.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        handle.file.settle().map_err(|error| errno_of(&error))
    }

    /// `fsync`
    pub fn sync(&self, handle: u64) -> PosixResult<()> {
        self.files.get(handle)?.file.sync().map_err(|error| errno_of(&error))
    }

    /// The last descriptor of the handle is closed: every lock that was taken through it ends.
    pub fn release(&self, handle: u64) -> PosixResult<()> {
        let handle = self.files.take(handle)?;
        self.close(&handle)
    }

    /// Number of open files.
    pub fn open_files(&self) -> usize {
        self.files.count()
    }

    /// Ends a handle that is in the table no more. The file is closed when the last reference goes: a wait for a lock may have one.
    pub(super) fn close(&self, handle: &Arc<MountedFile>) -> PosixResult<()> {
        let owners: Vec<u64> = handle.lock_owners().drain().collect();
        for owner in owners {
            self.drop_locks(handle, owner);
        }
        if handle.wrote.swap(false, Ordering::AcqRel) {
            return handle.file.settle().map_err(|error| errno_of(&error));
        }
        Ok(())
    }

    /// Tells the manager the ends of this mount's writes to a file.
    pub(super) fn report_writes(&self, inode: InodeId) -> PosixResult<()> {
        pario::client::report_end_of(self.session(), inode).map_err(|error| errno_of(&error))
    }

    /// The mode was changed: handles look at it again before the next write.
    pub(super) fn forget_privilege_checks(&self, inode: InodeId) {
        self.files.for_each(|handle| {
            if handle.inode == inode {
                handle.is_unprivileged.store(false, Ordering::Release);
            }
        });
    }

    fn drop_privileges(&self, handle: &MountedFile) -> PosixResult<()> {
        if handle.is_unprivileged.load(Ordering::Acquire) {
            return Ok(());
        }
        let attr = self.call_attr(NameRequest::Find { at: at(handle.inode, b""), follow: false })?;
        let mode = without_privileges(&attr);
        if mode != attr.mode {
            let change = pario::core::AttrChange { mode: Some(mode), ..Default::default() };
            self.call_attr(NameRequest::SetAttr { at: at(handle.inode, b""), follow: false, change })?;
        }
        handle.is_unprivileged.store(true, Ordering::Release);
        Ok(())
    }
}
