//! Taking names away, and giving things other names.

use pario_core::{Code, Fault, FileAttr, InodeId};
use pario_net::message::{At, NameReply};

use super::edit::Edit;
use super::names::{Answer, Names, Origin, Unlinked};
use super::tree::{AtEnd, Node, Walked, fault, show};

/// What a `Rename` asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenameWish<'a> {
    /// From where.
    pub from: &'a At,
    /// To where.
    pub to: &'a At,
    /// Whether something at `to` may be replaced.
    pub replace: bool,
}

impl Names {
    pub(super) fn remove(&mut self, origin: Origin, at: &At, wall_ns: u64) -> Result<Answer, Fault> {
        let (parent, node) = self.named(at)?;
        if node.is_directory() {
            return Err(fault(Code::IsDirectory, at));
        }
        self.take_name(origin, &parent, &node, wall_ns)
    }

    pub(super) fn remove_dir(&mut self, origin: Origin, at: &At, wall_ns: u64) -> Result<Answer, Fault> {
        let (parent, node) = self.named(at)?;
        if !node.is_directory() {
            return Err(fault(Code::NotDirectory, at));
        }
        if node.attr().size != 0 {
            return Err(fault(Code::NotEmpty, at));
        }
        self.take_name(origin, &parent, &node, wall_ns)
    }

    fn take_name(
        &mut self,
        origin: Origin,
        parent: &Node,
        node: &Node,
        wall_ns: u64,
    ) -> Result<Answer, Fault> {
        let mut edit = Edit::new(self.counters, wall_ns);
        let orphan = edit.unlink(parent, node);
        self.commit(origin, edit, done(orphan))
    }

    pub(super) fn rename(
        &mut self,
        origin: Origin,
        wish: &RenameWish<'_>,
        wall_ns: u64,
    ) -> Result<Answer, Fault> {
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
        let orphan = edit.rename((&from_parent, &node), to, target.replaced.as_ref());
        self.commit(origin, edit, done(orphan))
    }

    /// The entry that a path names, with its directory. The root, and what `.` and `..` lead to, cannot be taken away.
    fn named(&self, at: &At) -> Result<(Node, Node), Fault> {
        match self.tree.walk(at, AtEnd::Stay)? {
            Walked::Missing { .. } => Err(fault(Code::NotFound, at)),
            Walked::Found { node, .. } if node.inode() == InodeId::ROOT => Err(root_is_busy(at)),
            Walked::Found { named: false, .. } => {
                Err(Fault::new(Code::Invalid, format!("{}: the path must end in a name", show(at))))
            }
            Walked::Found { node, named: true } => Ok((self.tree.node(node.place.parent)?, node)),
        }
    }

    fn rename_target(&self, wish: &RenameWish<'_>, node: &Node) -> Result<RenameTarget, Fault> {
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
                parent: self.tree.node(node.place.parent)?,
                name: node.place.name.clone(),
                replaced: Some(node),
            }),
        }
    }
}

/// Where a rename goes.
struct RenameTarget {
    parent: Node,
    name: Vec<u8>,
    replaced: Option<Node>,
}

fn check_replace(wish: &RenameWish<'_>, node: &Node, replaced: &Node) -> Result<(), Fault> {
    match (node.is_directory(), replaced.is_directory()) {
        (false, true) => Err(fault(Code::IsDirectory, wish.to)),
        (true, false) => Err(fault(Code::NotDirectory, wish.to)),
        (true, true) if replaced.attr().size != 0 => Err(fault(Code::NotEmpty, wish.to)),
        (true, true) | (false, false) => Ok(()),
    }
}

fn done(orphan: Option<FileAttr>) -> Answer {
    Answer { unlinked: orphan.map(|attr| Unlinked { attr }), ..Answer::plain(NameReply::Done {}) }
}

fn root_is_busy(at: &At) -> Fault {
    Fault::new(Code::Busy, format!("{}: the root of a partition stays", show(at)))
}
