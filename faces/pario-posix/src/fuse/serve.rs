//! Requests of the kernel, carried out on the semantics.
//!
//! Never: waits for a lock: that is the session's part. Always: an answer has the layout that its request expects.

use pario::core::{FileAttr, FileKind, InodeId};
use pario::message::{Creator, XattrHow};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::decode::{FuseOperation, MountAttrChange, MountLock, MountRequest};
use super::encode;
use crate::semantics::{
    AttributeChange, DirName, FileSystem, HandleMode, LockCall, LockRange, PosixLockKind, PosixLockWait,
    PosixResult, RenameMode, SpecialFile, WriteOrder,
};

/// Valid fields of a change of attributes.
mod valid {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ACCESSED: u32 = 1 << 4;
    pub(super) const MODIFIED: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
    pub(super) const DROP_PRIVILEGES: u32 = 1 << 11;
}

/// Of a write: it comes from the page cache; set-user-ID and set-group-ID bits are dropped.
const WRITE_CACHED: u32 = 1;
/// Of a read: it has the owner of the calling process; reads for the page cache have none.
const READ_HAS_OWNER: u32 = 1 << 1;
const WRITE_DROPS_PRIVILEGES: u32 = 1 << 2;
/// Of an open: the same for a truncation.
const OPEN_DROPS_PRIVILEGES: u32 = 1;
/// A lock of `flock`.
const LOCK_IS_WHOLE: u32 = 1;
/// Flags of `renameat2`.
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
/// Flags of `setxattr`.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// Carries out a request; returns the data of the answer.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest is about open files")]
pub(super) fn serve(system: &FileSystem, request: &MountRequest<'_>) -> PosixResult<Vec<u8>> {
    let node = InodeId(request.node);
    let creator = |mode: u32| Creator { mode: mode & 0o7777, uid: request.uid, gid: request.gid };
    let place = |name| DirName { dir: node, name };
    match request.operation {
        FuseOperation::Lookup { name } => entry(system.lookup(node, name)),
        FuseOperation::GetAttr => system.attributes(node).map(|attr| encode::attr_out(&attr)),
        FuseOperation::SetAttr(change) => set_attr(system, node, &change),
        FuseOperation::ReadLink => system.read_link(node),
        FuseOperation::Symlink { name, target } => entry(system.symlink(place(name), target, creator(0o777))),
        FuseOperation::MakeNode { mode, device, name } => {
            let special = SpecialFile { kind: kind_of(mode)?, device: u64::from(device) };
            entry(system.make_node(place(name), special, creator(mode)))
        }
        FuseOperation::MakeDir { mode, name } => entry(system.make_dir(place(name), creator(mode))),
        FuseOperation::Unlink { name } => system.unlink(node, name).map(|()| Vec::new()),
        FuseOperation::RemoveDir { name } => system.remove_dir(node, name).map(|()| Vec::new()),
        FuseOperation::Rename { to_dir, flags, from, to } => {
            let to = DirName { dir: InodeId(to_dir), name: to };
            system.rename(place(from), to, rename_mode(flags)?).map(|()| Vec::new())
        }
        FuseOperation::Link { inode, name } => entry(system.link(InodeId(inode), place(name))),
        FuseOperation::Create { flags, mode, name } => {
            let how = HandleMode { write: true, ..open_mode(flags, 0) };
            let (attr, handle) = system.create(place(name), how, creator(mode))?;
            Ok([encode::entry_out(&attr), encode::open_out(handle)].concat())
        }
        FuseOperation::GetXattr { bytes, name } => sized(system.xattr(node, name)?, bytes),
        FuseOperation::ListXattrs { bytes } => sized(system.xattr_names(node)?, bytes),
        FuseOperation::SetXattr { flags, name, value } => {
            system.set_xattr(node, name, value, xattr_how(flags)?).map(|()| Vec::new())
        }
        FuseOperation::RemoveXattr { name } => system.remove_xattr(node, name).map(|()| Vec::new()),
        ref operation => serve_open(system, node, operation),
    }
}

/// The handle of a request for the kernel's page cache.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others have none")]
pub(super) fn page_request(operation: &FuseOperation<'_>) -> Option<u64> {
    match *operation {
        FuseOperation::Read { handle, read_flags, .. } if read_flags & READ_HAS_OWNER == 0 => Some(handle),
        FuseOperation::Write { handle, write_flags, .. } if write_flags & WRITE_CACHED != 0 => Some(handle),
        _ => None,
    }
}

/// Requests about open files and directories.
#[expect(clippy::wildcard_enum_match_arm, reason = "everything else is not supported, and is told so")]
fn serve_open(system: &FileSystem, node: InodeId, operation: &FuseOperation<'_>) -> PosixResult<Vec<u8>> {
    match *operation {
        FuseOperation::Open { flags, open_flags } => {
            system.open(node, open_mode(flags, open_flags)).map(encode::open_out)
        }
        FuseOperation::Read { handle, offset, bytes, .. } => read(system, handle, offset, bytes),
        FuseOperation::Write { handle, offset, write_flags, flags, data } => {
            let appends = has(flags, OFlags::APPEND) && write_flags & WRITE_CACHED == 0;
            let order = if appends { WriteOrder::Append } else { WriteOrder::At(offset) };
            let drops = write_flags & WRITE_DROPS_PRIVILEGES != 0;
            system.write(handle, order, data, drops).map(|()| encode::write_out(data.len()))
        }
        FuseOperation::Flush { handle, owner } => system.flush(handle, owner).map(|()| Vec::new()),
        FuseOperation::Release { handle } => system.release(handle).map(|()| Vec::new()),
        FuseOperation::Sync { handle } => system.sync(handle).map(|()| Vec::new()),
        FuseOperation::StatFs => system.space().map(|space| encode::space_out(&space)),
        FuseOperation::OpenDir => Ok(encode::open_dir_out(system.open_dir(node))),
        FuseOperation::ReadDir { handle, offset, bytes } => {
            let (mut data, limit) = (Vec::new(), usize::try_from(bytes).map_err(|_| Errno::INVAL)?);
            let limit = limit.min(encode::DATA_BYTES_MAX);
            system
                .read_dir(handle, offset, |entry, next| encode::push_entry(&mut data, limit, entry, next))?;
            Ok(data)
        }
        FuseOperation::ReleaseDir { handle } => system.release_dir(handle).map(|()| Vec::new()),
        FuseOperation::SyncDir => system.sync_names().map(|()| Vec::new()),
        FuseOperation::GetLock(lock) => {
            let found = system.find_lock(lock.handle, &lock_call(&lock)?)?;
            Ok(encode::lock_out(found.as_ref()))
        }
        FuseOperation::SetLock { lock, .. } => {
            system.set_lock(lock.handle, &lock_call(&lock)?, PosixLockWait::No).map(|()| Vec::new())
        }
        FuseOperation::Allocate => Err(Errno::OPNOTSUPP),
        _ => Err(Errno::NOSYS),
    }
}

fn entry(found: PosixResult<FileAttr>) -> PosixResult<Vec<u8>> {
    found.map(|attr| encode::entry_out(&attr))
}

fn read(system: &FileSystem, handle: u64, offset: u64, bytes: u32) -> PosixResult<Vec<u8>> {
    let wanted = usize::try_from(bytes).map_err(|_| Errno::INVAL)?.min(encode::DATA_BYTES_MAX);
    let mut data = vec![0; wanted];
    let count = system.read(handle, offset, &mut data)?;
    data.truncate(count);
    Ok(data)
}

fn has(flags: u32, flag: OFlags) -> bool {
    OFlags::from_bits_retain(flags).contains(flag)
}

fn open_mode(flags: u32, open_flags: u32) -> HandleMode {
    let access = OFlags::from_bits_retain(flags) & OFlags::RWMODE;
    HandleMode {
        write: access != OFlags::RDONLY,
        exclusive: has(flags, OFlags::EXCL),
        truncate: has(flags, OFlags::TRUNC),
        drop_privileges: open_flags & OPEN_DROPS_PRIVILEGES != 0,
    }
}

fn kind_of(mode: u32) -> PosixResult<FileKind> {
    match mode & 0o170_000 {
        0 | 0o100_000 => Ok(FileKind::File),
        0o010_000 => Ok(FileKind::Fifo),
        0o020_000 => Ok(FileKind::CharDevice),
        0o060_000 => Ok(FileKind::BlockDevice),
        0o140_000 => Ok(FileKind::Socket),
        _ => Err(Errno::INVAL),
    }
}

fn rename_mode(flags: u32) -> PosixResult<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        NO_REPLACE => Ok(RenameMode::NoReplace),
        EXCHANGE => Ok(RenameMode::Exchange),
        _ => Err(Errno::INVAL),
    }
}

fn xattr_how(flags: u32) -> PosixResult<XattrHow> {
    match flags {
        0 => Ok(XattrHow::Any {}),
        XATTR_CREATE => Ok(XattrHow::Create {}),
        XATTR_REPLACE => Ok(XattrHow::Replace {}),
        _ => Err(Errno::INVAL),
    }
}

/// A value for a buffer of `bytes`; 0 asks for its size.
fn sized(value: Vec<u8>, bytes: u32) -> PosixResult<Vec<u8>> {
    match usize::try_from(bytes) {
        Ok(0) => Ok(encode::xattr_size_out(value.len())),
        Ok(bytes) if value.len() <= bytes => Ok(value),
        _ => Err(Errno::RANGE),
    }
}

fn set_attr(system: &FileSystem, node: InodeId, change: &MountAttrChange) -> PosixResult<Vec<u8>> {
    let is_set = |bit: u32| change.valid & bit != 0;
    let time = |(set, now), at: (u64, u32)| match (is_set(set), is_set(now)) {
        (_, true) => Ok(Some(AttributeChange::now_ns())),
        (true, false) => nanoseconds(at.0, at.1).map(Some),
        (false, false) => Ok(None),
    };
    let wanted = AttributeChange {
        size: is_set(valid::SIZE).then_some(change.size),
        mode: is_set(valid::MODE).then_some(change.mode & 0o7777),
        uid: is_set(valid::UID).then_some(change.uid),
        gid: is_set(valid::GID).then_some(change.gid),
        accessed_ns: time((valid::ACCESSED, valid::ACCESSED_NOW), change.accessed)?,
        modified_ns: time((valid::MODIFIED, valid::MODIFIED_NOW), change.modified)?,
        drop_privileges: is_set(valid::DROP_PRIVILEGES),
    };
    let handle = is_set(valid::HANDLE).then_some(change.handle);
    system.set_attributes(node, handle, &wanted).map(|attr| encode::attr_out(&attr))
}

/// A time before 1970, or too far behind it, cannot be stored.
fn nanoseconds(seconds: u64, rest: u32) -> PosixResult<u64> {
    let seconds = u64::try_from(seconds.cast_signed()).map_err(|_| Errno::INVAL)?;
    let ns = seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(u64::from(rest)));
    ns.ok_or(Errno::INVAL)
}

/// A lock as the semantics know it.
pub(super) fn lock_call(lock: &MountLock) -> PosixResult<LockCall> {
    let kind = match lock.kind {
        0 => PosixLockKind::Shared,
        1 => PosixLockKind::Exclusive,
        2 => PosixLockKind::Unlock,
        _ => return Err(Errno::INVAL),
    };
    let is_whole = lock.flags & LOCK_IS_WHOLE != 0;
    let range = if is_whole { LockRange::Whole } else { LockRange::Record(lock.start..lock.end) };
    Ok(LockCall { owner: lock.owner, pid: lock.pid, range, kind })
}
