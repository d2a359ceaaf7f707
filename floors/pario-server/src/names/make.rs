//! Creation of names: files, directories, symbolic links; and opening existing ones.

use pario_core::limits::{LINKS_MAX, PATH_BYTES_MAX, STRIPE_BYTES_MAX, STRIPE_BYTES_MIN};
use pario_core::{Code, Fault, FileAttr, FileKind, Generation, InodeId, Layout, Striping};
use pario_net::message::{At, Creator, NameReply, OpenHow};

use super::edit::Edit;
use super::name_space::{NameAnswer, Names, RequestOrigin};
use super::rows::NameEntry;
use super::tree::{AtEnd, NamedInode, Walked, fault};

/// Bits of a mode that are kept.
const MODE_BITS: u32 = 0o7777;
/// The bit of a directory that gives its group to new inodes.
const SET_GROUP_ID: u32 = 0o2000;

/// Arguments of an `Open`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRequest<'a> {
    /// The path.
    pub at: &'a At,
    /// Mode of opening.
    pub how: OpenHow,
    /// Owner of a new file.
    pub creator: Creator,
    /// Striping of a new file.
    pub striping: Striping,
}

/// A new inode, without number and times.
struct New<'a> {
    kind: FileKind,
    creator: Creator,
    layout: Layout,
    target: &'a [u8],
    device: u64,
}

/// Arguments of a `MakeNode`.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRequest<'a> {
    /// The path.
    pub at: &'a At,
    /// Pipe, socket or device.
    pub kind: FileKind,
    /// Number of a device.
    pub device: u64,
    /// Owner of the new inode.
    pub creator: Creator,
}

impl Names {
    pub(super) fn open_file(
        &mut self,
        origin: RequestOrigin,
        wish: &OpenRequest<'_>,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (at, how) = (wish.at, wish.how);
        if at.path.is_empty() {
            // By its number, also if it has no name any more.
            return open_found(&self.tree.attr(at.base)?, wish);
        }
        let end = if how.create && how.exclusive { AtEnd::Stay } else { AtEnd::Follow };
        let (parent, name) = match self.tree.walk(at, end)? {
            Walked::Found { node, .. } => return open_found(node.attr(), wish),
            Walked::Missing { .. } if !how.create => return Err(fault(Code::NotFound, at)),
            Walked::Missing { slash: true, .. } => return Err(fault(Code::IsDirectory, at)),
            Walked::Missing { parent, name, .. } => (parent, name),
        };
        let mut edit = Edit::new(self.counters, wall_ns);
        let layout = self
            .layout(edit.counters.next_inode, &wish.striping)
            .map_err(|fault| fault.at(super::tree::show(at)))?;
        let new = New { kind: FileKind::File, creator: wish.creator, layout, target: b"", device: 0 };
        self.make(origin, edit_with(&mut edit, &parent, &name, &new)?, edit)
    }

    pub(super) fn make_dir(
        &mut self,
        origin: RequestOrigin,
        at: &At,
        creator: Creator,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let (parent, name) = match self.tree.walk(at, AtEnd::Stay)? {
            Walked::Found { .. } => return Err(fault(Code::Exists, at)),
            Walked::Missing { parent, name, .. } => (parent, name),
        };
        let mut edit = Edit::new(self.counters, wall_ns);
        let new = New { kind: FileKind::Directory, creator, layout: self.defaults, target: b"", device: 0 };
        self.make(origin, edit_with(&mut edit, &parent, &name, &new)?, edit)
    }

    pub(super) fn make_link(
        &mut self,
        origin: RequestOrigin,
        (at, target): (&At, &[u8]),
        creator: Creator,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        check_target(at, target)?;
        let (parent, name) = self.free_name(at)?;
        let mut edit = Edit::new(self.counters, wall_ns);
        let creator = Creator { mode: 0o777, ..creator };
        let new = New { kind: FileKind::Symlink, creator, layout: self.defaults, target, device: 0 };
        self.make(origin, edit_with(&mut edit, &parent, &name, &new)?, edit)
    }

    /// A named pipe, a socket or a device.
    pub(super) fn make_node(
        &mut self,
        origin: RequestOrigin,
        wish: &NodeRequest<'_>,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        if !wish.kind.is_special() {
            let text =
                format!("{}: a {:?} is not made as a special file", super::tree::show(wish.at), wish.kind);
            return Err(Fault::new(Code::Invalid, text));
        }
        let (parent, name) = self.free_name(wish.at)?;
        let is_device = matches!(wish.kind, FileKind::CharDevice | FileKind::BlockDevice);
        let device = if is_device { wish.device } else { 0 };
        let mut edit = Edit::new(self.counters, wall_ns);
        let new = New { kind: wish.kind, creator: wish.creator, layout: self.defaults, target: b"", device };
        self.make(origin, edit_with(&mut edit, &parent, &name, &new)?, edit)
    }

    /// One more name of an inode.
    pub(super) fn link(
        &mut self,
        origin: RequestOrigin,
        (from, to): (&At, &At),
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let node = self.tree.resolve(from, AtEnd::Stay)?;
        if node.is_directory() {
            return Err(fault(Code::IsDirectory, from));
        }
        if LINKS_MAX <= node.attr().links {
            return Err(fault(Code::TooManyLinks, from));
        }
        let (parent, name) = self.free_name(to)?;
        check_name(&name)?;
        let mut edit = Edit::new(self.counters, wall_ns);
        let attr = edit.add_name(&node, &parent, &name);
        self.commit(origin, edit, NameAnswer::plain(NameReply::Attr { attr }))
    }

    /// The directory and the name for a new inode that is no directory.
    fn free_name(&self, at: &At) -> Result<(NamedInode, Vec<u8>), Fault> {
        match self.tree.walk(at, AtEnd::Stay)? {
            Walked::Found { .. } => Err(fault(Code::Exists, at)),
            Walked::Missing { slash: true, .. } => Err(fault(Code::NotFound, at)),
            Walked::Missing { parent, name, .. } => Ok((parent, name)),
        }
    }

    fn make(&mut self, origin: RequestOrigin, attr: FileAttr, edit: Edit) -> Result<NameAnswer, Fault> {
        let answer = NameAnswer { created: true, ..NameAnswer::plain(NameReply::Attr { attr }) };
        self.commit(origin, edit, answer)
    }

    /// The requested striping, completed by the partition's; first servers rotate over all servers.
    fn layout(&self, inode: InodeId, wish: &Striping) -> Result<Layout, Fault> {
        let total = self.defaults.total();
        #[expect(clippy::cast_possible_truncation, reason = "smaller than total, a u16")]
        let turn = (inode.0 % u64::from(total)) as u16;
        let stripe_bytes = wish.stripe_bytes.unwrap_or(self.defaults.stripe_bytes());
        let count = wish.count.unwrap_or(self.defaults.count());
        Layout::new(stripe_bytes, count, wish.first.unwrap_or(turn), total).map_err(|error| {
            let limits = format!(
                "a stripe is a multiple of {STRIPE_BYTES_MIN} bytes up to {STRIPE_BYTES_MAX}, on 1 to {total} servers, the first of them 0 to {}",
                total - 1
            );
            Fault::new(Code::Invalid, format!("{error}; {limits}"))
        })
    }
}

fn open_found(attr: &FileAttr, wish: &OpenRequest<'_>) -> Result<NameAnswer, Fault> {
    let how = wish.how;
    if how.create && how.exclusive {
        return Err(fault(Code::Exists, wish.at));
    }
    if attr.kind == FileKind::Directory && (how.write || how.truncate || how.create) {
        return Err(fault(Code::IsDirectory, wish.at));
    }
    let attr = *attr;
    let needs_truncate = (how.truncate && attr.kind == FileKind::File).then_some(attr.inode);
    Ok(NameAnswer { needs_truncate, ..NameAnswer::plain(NameReply::Attr { attr }) })
}

/// Adds a new inode under a new name to the edit.
fn edit_with(edit: &mut Edit, parent: &NamedInode, name: &[u8], new: &New<'_>) -> Result<FileAttr, Fault> {
    check_name(name)?;
    let now = edit.wall_ns();
    // A directory with the set-group-ID bit gives its group to what is made in it, and the bit to directories.
    let inherits = parent.attr().mode & SET_GROUP_ID != 0;
    let is_directory = new.kind == FileKind::Directory;
    let gid = if inherits { parent.attr().gid } else { new.creator.gid };
    let mode = new.creator.mode & MODE_BITS | if inherits && is_directory { SET_GROUP_ID } else { 0 };
    let attr = FileAttr {
        inode: edit.new_inode(),
        kind: new.kind,
        mode,
        uid: new.creator.uid,
        gid,
        links: if is_directory { 2 } else { 1 },
        size: if new.kind.is_special() { new.device } else { new.target.len() as u64 },
        generation: Generation(0),
        layout: new.layout,
        accessed_ns: now,
        modified_ns: now,
        changed_ns: now,
    };
    edit.link(parent, name, &NameEntry { attr, target: new.target.to_vec() });
    Ok(attr)
}

fn check_name(name: &[u8]) -> Result<(), Fault> {
    if !name.contains(&0) {
        return Ok(());
    }
    let text = format!("{}: a name must not contain a zero byte", name.escape_ascii());
    Err(Fault::new(Code::Invalid, text))
}

fn check_target(at: &At, target: &[u8]) -> Result<(), Fault> {
    let place = super::tree::show(at);
    if target.is_empty() || target.contains(&0) {
        let text = format!("{place}: a symbolic link needs a target without zero bytes");
        return Err(Fault::new(Code::Invalid, text));
    }
    if PATH_BYTES_MAX < target.len() {
        let text =
            format!("{place}: a target of {} bytes: at most {PATH_BYTES_MAX} are allowed", target.len());
        return Err(Fault::new(Code::NameTooLong, text));
    }
    Ok(())
}
