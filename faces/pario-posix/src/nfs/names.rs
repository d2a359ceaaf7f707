//! Procedures that find, remove and change names: LOOKUP, REMOVE, RMDIR, RENAME.

use pario::core::{FileAttr, FileKind, InodeId};
use rustix::io::Errno;

use super::attributes::AroundChange;
use super::exported::{Changed, Exported, check_name, check_old_name};
use super::permission::{self, EXECUTE, WRITE};
use super::rpc::Credential;
use super::status::{NFS_OK, NfsResult, NfsStatus};
use super::xdr::{Decoded, XdrReader, XdrWriter};
use super::{NAME_BYTES_READ, handle};
use crate::semantics::{DirName, RenameMode};

/// LOOKUP (3)
pub(super) fn lookup(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (dir, name) = (handle::read(args)?, args.opaque(NAME_BYTES_READ)?);
    let dir = export.inode(dir).and_then(|dir| export.directory(dir));
    let found = dir.and_then(|dir| {
        permission::require(&dir, user, EXECUTE)?;
        find(export, dir.inode, name)
    });
    out.u32(found.as_ref().map_or_else(|status| status.code(), |_| NFS_OK));
    if let Ok(attr) = &found {
        export.write_handle(out, attr.inode);
        export.write_after(out, Some(attr));
    }
    export.write_after(out, dir.ok().as_ref());
    Ok(())
}

/// An entry of a directory with its current length, which clients keep.
pub(super) fn find(export: &Exported, dir: InodeId, name: &[u8]) -> NfsResult<FileAttr> {
    check_name(name)?;
    if name == b"." || (name == b".." && dir == InodeId::ROOT) {
        return export.attributes(dir);
    }
    let attr = export.system.lookup(dir, name)?;
    if attr.kind == FileKind::File { export.attributes(attr.inode) } else { Ok(attr) }
}

/// REMOVE (12)
pub(super) fn remove(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    remove_name(export, user, args, out, |dir, name, attr| {
        if attr.kind == FileKind::Directory {
            return Err(NfsStatus::IsDirectory);
        }
        let _change = export.mark_change(attr.inode);
        export.system.unlink(dir, name)?;
        forget_unnamed(export, attr);
        Ok(())
    })
}

/// RMDIR (13)
pub(super) fn remove_dir(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    remove_name(export, user, args, out, |dir, name, attr| {
        if attr.kind != FileKind::Directory {
            return Err(NfsStatus::NotDirectory);
        }
        Ok(export.system.remove_dir(dir, name)?)
    })
}

fn remove_name(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
    remove: impl FnOnce(InodeId, &[u8], &FileAttr) -> NfsResult<()>,
) -> Decoded<()> {
    let (dir, name) = (handle::read(args)?, args.opaque(NAME_BYTES_READ)?);
    let changed = match export.inode(dir) {
        Ok(dir) => export.change_names(dir, user, |dir_attr| {
            check_old_name(name)?;
            let attr = export.system.lookup(dir, name)?;
            permission::require_removal(dir_attr, &attr, user)?;
            remove(dir, name, &attr)
        }),
        Err(status) => Changed { result: Err(status), around: AroundChange::default() },
    };
    out.u32(changed.result.map_or_else(NfsStatus::code, |()| NFS_OK));
    export.write_around(out, &changed.around);
    Ok(())
}

/// A file that had one name is closed, so that its space is freed.
fn forget_unnamed(export: &Exported, attr: &FileAttr) {
    if attr.kind == FileKind::File && attr.links == 1 {
        export.open.forget(attr.inode);
    }
}

/// RENAME (14)
pub(super) fn rename(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (from_dir, from) = (handle::read(args)?, args.opaque(NAME_BYTES_READ)?);
    let (to_dir, to) = (handle::read(args)?, args.opaque(NAME_BYTES_READ)?);
    let inodes = export.inode(from_dir).and_then(|from_dir| Ok((from_dir, export.inode(to_dir)?)));
    let mut to_around = AroundChange::default();
    let changed = match inodes {
        Ok((from_dir, to_dir)) => {
            let (from, to) = (DirName { dir: from_dir, name: from }, DirName { dir: to_dir, name: to });
            let changed = export.change_names(from_dir, user, |from_attr| {
                if from_dir == to_dir {
                    return rename_between(
                        export,
                        user,
                        RenamedName { place: from, dir: from_attr },
                        RenamedName { place: to, dir: from_attr },
                    );
                }
                let changed = export.change_names(to_dir, user, |to_attr| {
                    rename_between(
                        export,
                        user,
                        RenamedName { place: from, dir: from_attr },
                        RenamedName { place: to, dir: to_attr },
                    )
                });
                to_around = changed.around;
                changed.result
            });
            if from_dir == to_dir {
                to_around = changed.around.clone();
            }
            changed
        }
        Err(status) => Changed { result: Err(status), around: AroundChange::default() },
    };
    out.u32(changed.result.map_or_else(NfsStatus::code, |()| NFS_OK));
    export.write_around(out, &changed.around);
    export.write_around(out, &to_around);
    Ok(())
}

/// A name, and the attributes of its directory.
struct RenamedName<'a> {
    place: DirName<'a>,
    dir: &'a FileAttr,
}

fn rename_between(
    export: &Exported,
    user: &Credential,
    from: RenamedName<'_>,
    to: RenamedName<'_>,
) -> NfsResult<()> {
    check_old_name(from.place.name)?;
    check_old_name(to.place.name)?;
    let source = export.system.lookup(from.place.dir, from.place.name)?;
    permission::require_removal(from.dir, &source, user)?;
    if source.kind == FileKind::Directory && from.place.dir != to.place.dir {
        // Its entry `..` changes.
        permission::require(&source, user, WRITE)?;
    }
    let target = match export.system.lookup(to.place.dir, to.place.name) {
        Ok(target) => {
            permission::require_removal(to.dir, &target, user)?;
            Some(target)
        }
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    let _changes = [Some(source), target].map(|attr| attr.map(|attr| export.mark_change(attr.inode)));
    export.system.rename(from.place, to.place, RenameMode::Replace)?;
    if let Some(target) = target.filter(|target| target.inode != source.inode) {
        forget_unnamed(export, &target);
    }
    Ok(())
}
