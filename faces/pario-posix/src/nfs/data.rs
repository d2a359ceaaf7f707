//! READ, WRITE and COMMIT.
//!
//! Always: a write is visible to every client of the partition before its reply; a stable write, and every write before a COMMIT, is on
//! stable storage before its reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pario::core::limits::FILE_BYTES_MAX;
use pario::core::{FileAttr, FileKind, InodeId};

use super::exported::{Exported, about_a_handle};
use super::open_files::OpenInode;
use super::rpc::Credential;
use super::status::{NFS_OK, NfsResult, NfsStatus};
use super::xdr::{Decoded, MalformedXdr, XdrReader, XdrWriter};
use super::{DATA_BYTES_MAX, handle, permission};
use crate::semantics::WriteOrder;

/// `stable_how`
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

fn require_file(attr: &FileAttr) -> NfsResult<()> {
    match attr.kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(NfsStatus::IsDirectory),
        FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => Err(NfsStatus::Invalid),
    }
}

/// READ (6)
pub(super) fn read(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, offset, count) = (handle::read(args)?, args.u64()?, args.u32()?);
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(DATA_BYTES_MAX);
    let attr = export.inode(file).and_then(|inode| export.attributes(inode));
    let data = attr.and_then(|attr| {
        require_file(&attr)?;
        permission::require_read(&attr, user)?;
        read_data(export, &attr, offset, wanted)
    });
    match data {
        Ok(data) => {
            // The length may have grown since: then a client reads on.
            let size = attr.as_ref().map_or(0, |attr| attr.size);
            let is_end = size <= offset.saturating_add(data.len() as u64);
            out.u32(NFS_OK);
            export.write_after(out, attr.ok().as_ref());
            out.count(data.len());
            out.bool(is_end);
            out.opaque(&data);
        }
        Err(status) => {
            out.u32(status.code());
            export.write_after(out, attr.ok().as_ref());
        }
    }
    Ok(())
}

fn read_data(export: &Exported, attr: &FileAttr, offset: u64, wanted: usize) -> NfsResult<Vec<u8>> {
    let left = usize::try_from(attr.size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut data = vec![0; wanted.min(left)];
    if data.is_empty() {
        return Ok(data);
    }
    let file = export.open.get(attr.inode, false).map_err(about_a_handle)?;
    let count = export.system.read(file.number, offset, &mut data)?;
    data.truncate(count);
    Ok(data)
}

/// WRITE (7)
pub(super) fn write(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, offset, count, stable) = (handle::read(args)?, args.u64()?, args.u32()?, args.u32()?);
    let data = args.opaque(DATA_BYTES_MAX)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if FILE_SYNC < stable || data.len() < count {
        return Err(MalformedXdr);
    }
    let data = &data[..count];
    let inode = match export.inode(file) {
        Ok(inode) => inode,
        Err(status) => return refuse_write(export, status, out),
    };
    // Before the write: a server that restarts meanwhile changes it.
    let verifier = export.write_verifier();
    let changed = export.change(inode, |attr| {
        require_file(attr)?;
        permission::require_write(attr, user)?;
        if FILE_BYTES_MAX.checked_sub(data.len() as u64).is_none_or(|most| most < offset) {
            return Err(NfsStatus::TooBig);
        }
        let order = WriteOrder::At(offset);
        let file = write_data(export, inode, order, data, user)?;
        if stable == UNSTABLE { Ok(()) } else { sync(export, &file) }
    });
    match changed.result {
        Ok(()) => {
            out.u32(NFS_OK);
            export.write_around(out, &changed.around);
            out.count(data.len());
            out.u32(if stable == UNSTABLE { UNSTABLE } else { FILE_SYNC });
            out.u64(verifier);
        }
        Err(status) => {
            out.u32(status.code());
            export.write_around(out, &changed.around);
        }
    }
    Ok(())
}

fn refuse_write(export: &Exported, status: NfsStatus, out: &mut XdrWriter) -> Decoded<()> {
    out.u32(status.code());
    export.write_around(out, &super::attributes::AroundChange::default());
    Ok(())
}

fn write_data(
    export: &Exported,
    inode: InodeId,
    order: WriteOrder,
    data: &[u8],
    user: &Credential,
) -> NfsResult<Arc<OpenInode>> {
    let file = export.open.get(inode, true).map_err(about_a_handle)?;
    if !data.is_empty() {
        let written = export.system.write(file.number, order, data, user.uid != 0);
        // After the write: a sync that runs meanwhile may not cover it.
        file.is_unstable.store(true, Ordering::Release);
        written?;
    }
    Ok(file)
}

/// Puts the writes of an open file on stable storage.
fn sync(export: &Exported, file: &OpenInode) -> NfsResult<()> {
    // Before: writes of other requests meanwhile set it again.
    file.is_unstable.store(false, Ordering::Release);
    export.system.sync(file.number).map_err(|error| {
        file.is_unstable.store(true, Ordering::Release);
        error.into()
    })
}

/// COMMIT (21): the whole file, for every range.
pub(super) fn commit(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, _offset, _count) = (handle::read(args)?, args.u64()?, args.u32()?);
    let inode = match export.inode(file) {
        Ok(inode) => inode,
        Err(status) => return refuse_write(export, status, out),
    };
    let changed = export.change(inode, |attr| {
        require_file(attr)?;
        permission::require_write(attr, user)?;
        // A file that is not open was synced when it was closed.
        let Some(file) = export.open.find(inode, true) else { return Ok(()) };
        sync(export, &file)
    });
    match changed.result {
        Ok(()) => {
            out.u32(NFS_OK);
            export.write_around(out, &changed.around);
            // After the sync, which finds out about servers that restarted.
            out.u64(export.write_verifier());
        }
        Err(status) => {
            out.u32(status.code());
            export.write_around(out, &changed.around);
        }
    }
    Ok(())
}
