//! Procedures about one inode: GETATTR, SETATTR, ACCESS, READLINK; and about the file system: FSSTAT, FSINFO, PATHCONF.

use pario::core::limits::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX};
use pario::core::{FileAttr, FileKind};

use super::attributes::{
    AroundChange, WantedAttributes, WantedTime, read_time, read_wanted, write_attributes,
};
use super::exported::{Exported, about_a_handle};
use super::permission::{self, EXECUTE, READ, WRITE};
use super::rpc::Credential;
use super::status::{NFS_OK, NfsResult, NfsStatus};
use super::xdr::{Decoded, XdrReader, XdrWriter};
use super::{DATA_BYTES_MAX, handle};
use crate::semantics::AttributeChange;

/// Bits of ACCESS.
const MAY_READ: u32 = 1;
const MAY_LOOK_UP: u32 = 2;
const MAY_MODIFY: u32 = 4;
const MAY_EXTEND: u32 = 8;
const MAY_DELETE: u32 = 16;
const MAY_EXECUTE: u32 = 32;
/// Properties of FSINFO: hard links, symbolic links, PATHCONF is the same everywhere, times can be set.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;
const SET_GROUP_ID: u32 = 0o2000;
/// Sizes that a client prefers for directories.
const LISTING_BYTES: usize = 64 << 10;
/// Transfers should be multiples of this.
const TRANSFER_UNIT: u32 = 4096;

/// GETATTR (1)
pub(super) fn get_attributes(
    export: &Exported,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let file = handle::read(args)?;
    match export.inode(file).and_then(|inode| export.attributes(inode)) {
        Ok(attr) => {
            out.u32(NFS_OK);
            write_attributes(out, export.partition, &attr);
        }
        Err(status) => out.u32(status.code()),
    }
    Ok(())
}

/// SETATTR (2)
pub(super) fn set_attributes(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, wanted) = (handle::read(args)?, read_wanted(args)?);
    let guard = args.optional(read_time)?;
    let (result, around) = match export.inode(file) {
        Ok(inode) => {
            let changed = export.change(inode, |attr| {
                if guard.is_some_and(|guard| guard != attr.changed_ns) {
                    return Err(NfsStatus::NotSync);
                }
                apply(export, user, attr, &wanted)
            });
            (changed.result, changed.around)
        }
        Err(status) => (Err(status), AroundChange::default()),
    };
    out.u32(result.map_or_else(NfsStatus::code, |()| NFS_OK));
    export.write_around(out, &around);
    Ok(())
}

/// Sets attributes of an inode, if the user may.
pub(super) fn apply(
    export: &Exported,
    user: &Credential,
    attr: &FileAttr,
    wanted: &WantedAttributes,
) -> NfsResult<()> {
    check_owner_changes(user, attr, wanted)?;
    if wanted.size.is_some() {
        match attr.kind {
            FileKind::File => permission::require_write(attr, user)?,
            FileKind::Directory => return Err(NfsStatus::IsDirectory),
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => return Err(NfsStatus::Invalid),
        }
    }
    if wanted.size.is_some_and(|size| FILE_BYTES_MAX < size) {
        return Err(NfsStatus::TooBig);
    }
    let time = |wanted| match wanted {
        WantedTime::Keep => None,
        WantedTime::Now => Some(AttributeChange::now_ns()),
        WantedTime::At(ns) => Some(ns),
    };
    let is_unprivileged = user.uid != 0;
    let keeps_group_id = !is_unprivileged || user.has_group(wanted.gid.unwrap_or(attr.gid));
    let changes_owner = wanted.uid.is_some() || wanted.gid.is_some();
    let change = AttributeChange {
        size: wanted.size,
        mode: wanted.mode.map(|mode| if keeps_group_id { mode } else { mode & !SET_GROUP_ID }),
        uid: wanted.uid,
        gid: wanted.gid,
        accessed_ns: time(wanted.accessed),
        modified_ns: time(wanted.modified),
        drop_privileges: is_unprivileged && (changes_owner || wanted.size.is_some()),
    };
    if change == AttributeChange::default() {
        return Ok(());
    }
    let open = export.open.find(attr.inode, true);
    let number = open.as_ref().map(|file| file.number);
    export.system.set_attributes(attr.inode, number, &change).map(drop).map_err(about_a_handle)
}

/// What only the owner, or only the superuser, may do.
fn check_owner_changes(user: &Credential, attr: &FileAttr, wanted: &WantedAttributes) -> NfsResult<()> {
    let owns = permission::owns(attr, user);
    let is_now = |time| matches!(time, WantedTime::Keep | WantedTime::Now);
    let sets_times = wanted.accessed != WantedTime::Keep || wanted.modified != WantedTime::Keep;
    let gives_away = wanted.uid.is_some_and(|uid| uid != attr.uid);
    let changes_group = wanted.gid.is_some_and(|gid| gid != attr.gid && !user.has_group(gid));
    if user.uid != 0 && (gives_away || changes_group) {
        return Err(NfsStatus::Perm);
    }
    if !owns && (wanted.mode.is_some() || wanted.uid.is_some() || wanted.gid.is_some()) {
        return Err(NfsStatus::Perm);
    }
    if sets_times && !owns {
        if !is_now(wanted.accessed) || !is_now(wanted.modified) {
            return Err(NfsStatus::Perm);
        }
        permission::require(attr, user, WRITE)?;
    }
    Ok(())
}

/// ACCESS (4)
pub(super) fn access(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, asked) = (handle::read(args)?, args.u32()?);
    match export.inode(file).and_then(|inode| export.attributes(inode)) {
        Ok(attr) => {
            out.u32(NFS_OK);
            export.write_after(out, Some(&attr));
            out.u32(asked & allowed(export, user, &attr));
        }
        Err(status) => {
            out.u32(status.code());
            export.write_after(out, None);
        }
    }
    Ok(())
}

fn allowed(export: &Exported, user: &Credential, attr: &FileAttr) -> u32 {
    let is_directory = attr.kind == FileKind::Directory;
    let granted = permission::granted(attr, user);
    let mut allowed = if granted & READ == 0 { 0 } else { MAY_READ };
    if granted & WRITE != 0 && !export.options.read_only {
        allowed |= MAY_MODIFY | MAY_EXTEND | if is_directory { MAY_DELETE } else { 0 };
    }
    if granted & EXECUTE != 0 {
        allowed |= if is_directory { MAY_LOOK_UP } else { MAY_EXECUTE };
    }
    allowed
}

/// READLINK (5)
pub(super) fn read_link(export: &Exported, args: &mut XdrReader<'_>, out: &mut XdrWriter) -> Decoded<()> {
    let link = handle::read(args)?;
    let attr = export.inode(link).and_then(|inode| export.attributes(inode));
    let target = attr.and_then(|attr| match attr.kind {
        FileKind::Symlink => export.system.read_link(attr.inode).map_err(about_a_handle),
        FileKind::File
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => Err(NfsStatus::Invalid),
    });
    out.u32(target.as_ref().map_or_else(|status| status.code(), |_| NFS_OK));
    export.write_after(out, attr.ok().as_ref());
    if let Ok(target) = target {
        out.opaque(&target);
    }
    Ok(())
}

/// Attributes of any inode, with the rest of the answer if they are found.
fn about_file_system(
    export: &Exported,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
    rest: impl FnOnce(&mut XdrWriter) -> NfsResult<()>,
) -> Decoded<()> {
    let file = handle::read(args)?;
    let attr = export.inode(file).and_then(|inode| export.attributes(inode));
    let begin = out.len();
    let result = attr.and_then(|attr| {
        out.u32(NFS_OK);
        export.write_after(out, Some(&attr));
        rest(out)
    });
    if let Err(status) = result {
        out.truncate(begin);
        out.u32(status.code());
        export.write_after(out, attr.ok().as_ref());
    }
    Ok(())
}

/// FSSTAT (18)
pub(super) fn file_system_space(
    export: &Exported,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    about_file_system(export, args, out, |out| {
        let space = export.system.space()?;
        for bytes in [space.total_bytes, space.free_bytes, space.free_bytes] {
            out.u64(bytes);
        }
        // The number of inodes is not limited.
        for files in [u64::MAX, u64::MAX, u64::MAX] {
            out.u64(files);
        }
        // Seconds for which the answer does not change.
        out.u32(0);
        Ok(())
    })
}

/// FSINFO (19)
pub(super) fn file_system_limits(
    export: &Exported,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    about_file_system(export, args, out, |out| {
        for _ in ["reading", "writing"] {
            out.count(DATA_BYTES_MAX);
            out.count(DATA_BYTES_MAX);
            out.u32(TRANSFER_UNIT);
        }
        out.count(LISTING_BYTES);
        out.u64(FILE_BYTES_MAX);
        // Granularity of times: 1 ns.
        out.u32(0);
        out.u32(1);
        out.u32(PROPERTIES);
        Ok(())
    })
}

/// PATHCONF (20)
pub(super) fn path_limits(export: &Exported, args: &mut XdrReader<'_>, out: &mut XdrWriter) -> Decoded<()> {
    about_file_system(export, args, out, |out| {
        out.u32(LINKS_MAX);
        out.count(NAME_BYTES_MAX);
        // Names are not truncated, owners are not given away, case counts and is kept.
        for flag in [true, true, false, true] {
            out.bool(flag);
        }
        Ok(())
    })
}
