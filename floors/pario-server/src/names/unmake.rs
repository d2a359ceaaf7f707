//! Removal and renaming of names.
//!
//! Always: the root and the targets of `.` and `..` are never removed.

use pario_core::{Code, Fault, FileAttr, FileKind, InodeId};
use pario_net::message::{At, NameReply};

use super::edit::Edit;
use super::name_space::{NameAnswer, Names, RequestOrigin, Unlinked};
use super::rows::NameLocation;
use super::tree::{AtEnd, NamedInode, Walked, fault, show};

/// Arguments of a `Rename`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenameRequest<'a> {
    /// The old path.
    pub from: &'a At,
    /// The new path.
    pub to: &'a At,
    /// Whether an existing inode at `to` may be replaced.
    pub replace: bool,
}

impl Names {
    pub(super) fn remove(
        &mut self,
        origin: RequestOrigin,
        at: &At,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (parent, node) = self.named(at)?;
        if node.is_directory() {
            return Err(fault(Code::IsDirectory, at));
        }
        self.remove_name(origin, &parent, &node, wall_ns)
    }

    pub(super) fn remove_dir(
        &mut self,
        origin: RequestOrigin,
        at: &At,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (parent, node) = self.named(at)?;
        if !node.is_directory() {
            return Err(fault(Code::NotDirectory, at));
        }
        if node.attr().size != 0 {
            return Err(fault(Code::NotEmpty, at));
        }
        self.remove_name(origin, &parent, &node, wall_ns)
    }

    fn remove_name(
        &mut self,
        origin: RequestOrigin,
        parent: &NamedInode,
        node: &NamedInode,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let mut edit = Edit::new(self.counters, wall_ns);
        let heir = self.heir(node)?;
        let orphan = edit.unlink(parent, node, heir.as_ref());
        self.drop_xattrs_of(&mut edit, node)?;
        self.commit(origin, edit, done(orphan))
    }

    /// Another name of an inode with several.
    fn heir(&self, node: &NamedInode) -> Result<Option<NameLocation>, Fault> {
        if !node.linked || node.attr().links < 2 {
            return Ok(None);
        }
        self.tree.another_name(node.inode(), &node.location)
    }

    /// The inode of a removed name goes with its last one; that of a file stays as an orphan until its objects are removed.
    fn drop_xattrs_of(&self, edit: &mut Edit, node: &NamedInode) -> Result<(), Fault> {
        let stays = node.attr().kind == FileKind::File || (node.linked && 1 < node.attr().links);
        if stays { Ok(()) } else { self.xattrs.drop_all(&self.tree.ledger, node.inode(), &mut edit.batch) }
    }

    pub(super) fn rename(
        &mut self,
        origin: RequestOrigin,
        wish: &RenameRequest<'_>,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (from_parent, node) = self.named(wish.from)?;
        let target = self.rename_target(wish, &node)?;
        if target.replaced.as_ref().is_some_and(|replaced| replaced.inode() == node.inode()) {
            return Ok(done(None));
        }
        if node.is_directory() && self.tree.is_above(node.inode(), target.parent.inode())? {
            let text = format!("{}: cannot be moved below itself, to {}", show(wish.from), show(wish.to));
            return Err(Fault::new(Code::Invalid, text));
        }
        if let Some(replaced) = &target.replaced {
            check_replace(wish, &node, replaced)?;
        }
        let mut edit = Edit::new(self.counters, wall_ns);
        let to = (&target.parent, target.name.as_slice());
        let replaced = match &target.replaced {
            Some(replaced) => {
                self.drop_xattrs_of(&mut edit, replaced)?;
                Some((replaced, self.heir(replaced)?))
            }
            None => None,
        };
        let orphan = edit.rename((&from_parent, &node), to, replaced);
        self.commit(origin, edit, done(orphan))
    }

    pub(super) fn exchange(
        &mut self,
        origin: RequestOrigin,
        (one, two): (&At, &At),
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (one_parent, first) = self.named(one)?;
        let (two_parent, second) = self.named(two)?;
        if first.inode() == second.inode() {
            return Ok(done(None));
        }
        for ((node, from), (parent, to)) in
            [((&first, one), (&two_parent, two)), ((&second, two), (&one_parent, one))]
        {
            if node.is_directory() && self.tree.is_above(node.inode(), parent.inode())? {
                let text = format!("{}: cannot be moved below itself, to {}", show(from), show(to));
                return Err(Fault::new(Code::Invalid, text));
            }
        }
        let mut edit = Edit::new(self.counters, wall_ns);
        edit.exchange((&one_parent, &first), (&two_parent, &second));
        self.commit(origin, edit, done(None))
    }

    /// The entry that a path names, with its directory. The root, and the targets of `.` and `..`, cannot be removed.
    fn named(&self, at: &At) -> Result<(NamedInode, NamedInode), Fault> {
        match self.tree.walk(at, AtEnd::Stay)? {
            Walked::Missing { .. } => Err(fault(Code::NotFound, at)),
            Walked::Found { node, .. } if node.inode() == InodeId::ROOT => Err(root_is_busy(at)),
            Walked::Found { named: false, .. } => {
                Err(Fault::new(Code::Invalid, format!("{}: the path must end in a name", show(at))))
            }
            Walked::Found { node, named: true } => Ok((self.tree.node(node.location.parent)?, node)),
        }
    }

    fn rename_target(&self, wish: &RenameRequest<'_>, node: &NamedInode) -> Result<RenameTarget, Fault> {
        match self.tree.walk(wish.to, AtEnd::Stay)? {
            Walked::Missing { slash: true, .. } if !node.is_directory() => {
                Err(fault(Code::NotDirectory, wish.to))
            }
            Walked::Missing { name, .. } if name.contains(&0) => Err(Fault::new(
                Code::Invalid,
                format!("{}: a name must not contain a zero byte", show(wish.to)),
            )),
            Walked::Missing { parent, name, .. } => Ok(RenameTarget { parent, name, replaced: None }),
            Walked::Found { .. } if !wish.replace => Err(fault(Code::Exists, wish.to)),
            Walked::Found { node, .. } if node.inode() == InodeId::ROOT => Err(root_is_busy(wish.to)),
            Walked::Found { named: false, .. } => {
                Err(Fault::new(Code::Invalid, format!("{}: the path must end in a name", show(wish.to))))
            }
            Walked::Found { node, named: true } => Ok(RenameTarget {
                parent: self.tree.node(node.location.parent)?,
                name: node.location.name.clone(),
                replaced: Some(node),
            }),
        }
    }
}

/// Target of a rename.
struct RenameTarget {
    parent: NamedInode,
    name: Vec<u8>,
    replaced: Option<NamedInode>,
}

fn check_replace(wish: &RenameRequest<'_>, node: &NamedInode, replaced: &NamedInode) -> Result<(), Fault> {
    match (node.is_directory(), replaced.is_directory()) {
        (false, true) => Err(fault(Code::IsDirectory, wish.to)),
        (true, false) => Err(fault(Code::NotDirectory, wish.to)),
        (true, true) if replaced.attr().size != 0 => Err(fault(Code::NotEmpty, wish.to)),
        (true, true) | (false, false) => Ok(()),
    }
}

fn done(orphan: Option<FileAttr>) -> NameAnswer {
    NameAnswer { unlinked: orphan.map(|attr| Unlinked { attr }), ..NameAnswer::plain(NameReply::Done {}) }
}

fn root_is_busy(at: &At) -> Fault {
    Fault::new(Code::Busy, format!("{}: the root of a partition stays", show(at)))
}
