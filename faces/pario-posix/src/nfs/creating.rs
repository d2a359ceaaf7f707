//! Procedures that make names: CREATE, MKDIR, SYMLINK, MKNOD, LINK.
//!
//! Always: an exclusive creation that is sent twice succeeds twice: its verifier is kept in the file's times until the client sets them.

use pario::core::limits::PATH_BYTES_MAX;
use pario::core::{FileAttr, FileKind, InodeId};
use pario::message::Creator;
use rustix::io::Errno;

use super::attributes::{
    AroundChange, WantedAttributes, WantedTime, device_number, read_wanted, special_kind,
};
use super::exported::{Changed, Exported, about_a_handle, check_new_name};
use super::objects::apply;
use super::rpc::Credential;
use super::status::{NFS_OK, NfsResult, NfsStatus};
use super::xdr::{Decoded, MalformedXdr, XdrReader, XdrWriter};
use super::{NAME_BYTES_READ, handle, permission};
use crate::semantics::{AttributeChange, DirName, HandleMode, SpecialFile};

/// Permission bits of a new inode, if the client names none.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
const LINK_MODE: u32 = 0o777;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// `createhow3`
enum CreateHow {
    Unchecked(WantedAttributes),
    Guarded(WantedAttributes),
    Exclusive([u8; 8]),
}

/// A directory's handle, and a name to make in it.
#[derive(Clone, Copy)]
struct WantedName<'a> {
    dir: &'a [u8],
    name: &'a [u8],
}

fn read_place<'a>(args: &mut XdrReader<'a>) -> Decoded<WantedName<'a>> {
    Ok(WantedName { dir: handle::read(args)?, name: args.opaque(NAME_BYTES_READ)? })
}

fn creator(user: &Credential, mode: u32) -> Creator {
    Creator { mode, uid: user.uid, gid: user.gid }
}

/// Makes a name and writes the answer that CREATE, MKDIR, SYMLINK and MKNOD share.
fn make(
    export: &Exported,
    user: &Credential,
    place: WantedName<'_>,
    out: &mut XdrWriter,
    make: impl FnOnce(DirName<'_>) -> NfsResult<FileAttr>,
) {
    let changed = match export.inode(place.dir) {
        Ok(dir) => export.change_names(dir, user, |_| {
            check_new_name(place.name)?;
            make(DirName { dir, name: place.name })
        }),
        Err(status) => Changed { result: Err(status), around: AroundChange::default() },
    };
    out.u32(changed.result.as_ref().map_or_else(|status| status.code(), |_| NFS_OK));
    if let Ok(attr) = &changed.result {
        out.bool(true);
        export.write_handle(out, attr.inode);
        export.write_after(out, Some(attr));
    }
    export.write_around(out, &changed.around);
}

/// The rest of the attributes that a client wants for a new inode. Only the superuser chooses owners.
fn finish(
    export: &Exported,
    user: &Credential,
    attr: FileAttr,
    wanted: &WantedAttributes,
) -> NfsResult<FileAttr> {
    let (uid, gid) = if user.uid == 0 { (wanted.uid, wanted.gid) } else { (None, None) };
    let size = wanted.size.filter(|size| *size != 0);
    let rest = WantedAttributes { mode: None, uid, gid, size, ..*wanted };
    let times = (rest.accessed, rest.modified);
    if uid.or(gid).is_none() && size.is_none() && times == (WantedTime::Keep, WantedTime::Keep) {
        return Ok(attr);
    }
    apply(export, user, &attr, &rest)?;
    export.attributes(attr.inode)
}

/// CREATE (8)
pub(super) fn create(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let place = read_place(args)?;
    let how = match args.u32()? {
        0 => CreateHow::Unchecked(read_wanted(args)?),
        1 => CreateHow::Guarded(read_wanted(args)?),
        2 => CreateHow::Exclusive(args.array()?),
        _ => return Err(MalformedXdr),
    };
    make(export, user, place, out, |place| match how {
        CreateHow::Unchecked(wanted) => match create_new(export, user, place, &wanted) {
            Err(NfsStatus::Exists) => use_existing(export, user, place, &wanted),
            created => created,
        },
        CreateHow::Guarded(wanted) => create_new(export, user, place, &wanted),
        CreateHow::Exclusive(verifier) => create_exclusive(export, user, place, verifier),
    });
    Ok(())
}

fn create_new(
    export: &Exported,
    user: &Credential,
    place: DirName<'_>,
    wanted: &WantedAttributes,
) -> NfsResult<FileAttr> {
    let mode = HandleMode { write: true, exclusive: true, ..HandleMode::default() };
    let creator = creator(user, wanted.mode.unwrap_or(FILE_MODE));
    let (attr, number) = export.system.create(place, mode, creator)?;
    // The first write finds it open.
    drop(export.open.keep(attr.inode, number, true));
    finish(export, user, attr, wanted)
}

/// An unchecked creation of a name that exists: its length may be changed.
fn use_existing(
    export: &Exported,
    user: &Credential,
    place: DirName<'_>,
    wanted: &WantedAttributes,
) -> NfsResult<FileAttr> {
    let attr = export.system.lookup(place.dir, place.name)?;
    if attr.kind != FileKind::File {
        return Err(NfsStatus::Exists);
    }
    if wanted.size.is_some() {
        permission::require_write(&attr, user)?;
        let _change = export.mark_change(attr.inode);
        let rest = WantedAttributes {
            mode: None,
            uid: None,
            gid: None,
            accessed: WantedTime::Keep,
            modified: WantedTime::Keep,
            ..*wanted
        };
        apply(export, user, &attr, &rest)?;
    }
    export.attributes(attr.inode)
}

fn create_exclusive(
    export: &Exported,
    user: &Credential,
    place: DirName<'_>,
    verifier: [u8; 8],
) -> NfsResult<FileAttr> {
    let verifier = u64::from_be_bytes(verifier);
    let (accessed, modified) = ((verifier >> 32) * NS_PER_SECOND, (verifier & 0xffff_ffff) * NS_PER_SECOND);
    let mode = HandleMode { write: true, exclusive: true, ..HandleMode::default() };
    match export.system.create(place, mode, creator(user, FILE_MODE)) {
        Ok((attr, number)) => {
            let file = export.open.keep(attr.inode, number, true);
            let times = AttributeChange {
                accessed_ns: Some(accessed),
                modified_ns: Some(modified),
                ..AttributeChange::default()
            };
            Ok(export.system.set_attributes(attr.inode, Some(file.number), &times)?)
        }
        Err(Errno::EXIST) => {
            let attr = export.system.lookup(place.dir, place.name)?;
            let is_ours =
                (attr.kind, attr.accessed_ns, attr.modified_ns) == (FileKind::File, accessed, modified);
            if is_ours { Ok(attr) } else { Err(NfsStatus::Exists) }
        }
        Err(error) => Err(error.into()),
    }
}

/// MKDIR (9)
pub(super) fn make_dir(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let place = read_place(args)?;
    let wanted = WantedAttributes { size: None, ..read_wanted(args)? };
    make(export, user, place, out, |place| {
        let attr = export.system.make_dir(place, creator(user, wanted.mode.unwrap_or(DIR_MODE)))?;
        finish(export, user, attr, &wanted)
    });
    Ok(())
}

/// SYMLINK (10)
pub(super) fn symlink(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let place = read_place(args)?;
    let wanted = WantedAttributes { size: None, ..read_wanted(args)? };
    let target = args.opaque(super::rpc::RECORD_BYTES_MAX)?;
    make(export, user, place, out, |place| {
        if target.is_empty() || target.contains(&0) {
            return Err(NfsStatus::Invalid);
        }
        if PATH_BYTES_MAX < target.len() {
            return Err(NfsStatus::NameTooLong);
        }
        let attr = export.system.symlink(place, target, creator(user, LINK_MODE))?;
        finish(export, user, attr, &wanted)
    });
    Ok(())
}

/// MKNOD (11)
pub(super) fn make_node(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let place = read_place(args)?;
    let Some(kind) = special_kind(args.u32()?) else {
        make(export, user, place, out, |_| Err(NfsStatus::BadType));
        return Ok(());
    };
    let wanted = WantedAttributes { size: None, ..read_wanted(args)? };
    let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
    let (major, minor) = if is_device { (args.u32()?, args.u32()?) } else { (0, 0) };
    make(export, user, place, out, |place| {
        if is_device && user.uid != 0 {
            return Err(NfsStatus::Perm);
        }
        let device = device_number(major, minor).ok_or(NfsStatus::Invalid)?;
        let creator = creator(user, wanted.mode.unwrap_or(FILE_MODE));
        let attr = export.system.make_node(place, SpecialFile { kind, device }, creator)?;
        finish(export, user, attr, &wanted)
    });
    Ok(())
}

/// LINK (15)
pub(super) fn link(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (file, dir, name) = (handle::read(args)?, handle::read(args)?, args.opaque(NAME_BYTES_READ)?);
    let inodes = export.inode(file).and_then(|file| Ok((file, export.inode(dir)?)));
    let changed = match inodes {
        Ok((file, dir)) => {
            export.change_names(dir, user, |_| link_inode(export, file, DirName { dir, name }))
        }
        Err(status) => Changed { result: Err(status), around: AroundChange::default() },
    };
    let attr = match &changed.result {
        Ok(attr) => Some(*attr),
        Err(_) => inodes.ok().and_then(|(file, _)| export.attributes(file).ok()),
    };
    out.u32(changed.result.map_or_else(NfsStatus::code, |_| NFS_OK));
    export.write_after(out, attr.as_ref());
    export.write_around(out, &changed.around);
    Ok(())
}

fn link_inode(export: &Exported, file: InodeId, place: DirName<'_>) -> NfsResult<FileAttr> {
    check_new_name(place.name)?;
    let attr = export.system.lookup(file, b"").map_err(about_a_handle)?;
    if attr.kind == FileKind::Directory {
        return Err(NfsStatus::IsDirectory);
    }
    let _change = export.mark_change(file);
    export.system.link(file, place)?;
    export.attributes(file)
}
