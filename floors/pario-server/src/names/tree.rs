//! The tree of names, for reading: inodes, names, and walking a path. Changes are in `make`, `unmake`, `rename`, `length`.
//!
//! Never: changes a row. Always: a symbolic link in the middle of a path is followed, a link at its end as the caller requests; `..` of the
//! root is the root; at most `LINKS_FOLLOWED_MAX` links are followed in one walk.

use pario_core::limits::{LINKS_FOLLOWED_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
use pario_core::{Code, Fault, FileAttr, FileKind, InodeId};
use pario_net::message::At;

use super::ledger::Ledger;
use super::rows::{self, NameEntry, NameLocation};

/// An inode that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedInode {
    /// Its name.
    pub location: NameLocation,
    /// Its entry, with its current attributes.
    pub entry: NameEntry,
    /// Whether its attributes are in a row of their own: it has, or had, two names.
    pub linked: bool,
}

impl NamedInode {
    /// Its attributes.
    #[must_use]
    pub fn attr(&self) -> &FileAttr {
        &self.entry.attr
    }

    /// Its number.
    #[must_use]
    pub fn inode(&self) -> InodeId {
        self.entry.attr.inode
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.entry.attr.kind == FileKind::Directory
    }
}

/// Location of an inode's attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttrLocation {
    /// In the entry of its name.
    Named(NamedInode),
    /// Among the orphans.
    Orphan(FileAttr),
}

impl AttrLocation {
    /// The attributes.
    #[must_use]
    pub fn attr(&self) -> &FileAttr {
        match self {
            AttrLocation::Named(node) => node.attr(),
            AttrLocation::Orphan(attr) => attr,
        }
    }
}

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// Follow it.
    Follow,
    /// Return the link itself.
    Stay,
}

/// Result of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Walked {
    /// An inode.
    Found {
        /// The inode.
        node: NamedInode,
        /// Whether the path ended in its name, rather than in `.`, `..` or nothing.
        named: bool,
    },
    /// A directory without such a name.
    Missing {
        /// The directory.
        parent: NamedInode,
        /// The name.
        name: Vec<u8>,
        /// Whether a slash followed, so that only a directory can be meant.
        slash: bool,
    },
}

/// The ledger as a tree of names.
#[derive(Debug)]
pub struct NameTree {
    /// The rows.
    pub ledger: Ledger,
}

impl NameTree {
    /// The inode's attributes, also if it has no name and is not dropped yet.
    pub fn attr(&self, inode: InodeId) -> Result<FileAttr, Fault> {
        self.attr_location(inode).map(|home| *home.attr())
    }

    /// Location of the inode's attributes; `Stale` if it was removed.
    pub fn attr_location(&self, inode: InodeId) -> Result<AttrLocation, Fault> {
        if let Some(node) = self.find(inode)? {
            return Ok(AttrLocation::Named(node));
        }
        let key = rows::orphan(inode);
        let value = self.ledger.get(&key)?.ok_or_else(|| gone(inode))?;
        rows::decode(&key, &value).map(AttrLocation::Orphan)
    }

    /// The inode by its number, if it has a name.
    pub fn find(&self, inode: InodeId) -> Result<Option<NamedInode>, Fault> {
        let key = rows::location(inode);
        let Some(value) = self.ledger.get(&key)? else { return Ok(None) };
        let place: NameLocation = rows::decode(&key, &value)?;
        match self.lookup(place.parent, &place.name)? {
            Some(node) if node.inode() == inode => Ok(Some(node)),
            _ => Err(Fault::new(
                Code::Corrupt,
                format!("names: inode {inode} is not at the name that it claims"),
            )),
        }
    }

    /// The inode by its number; `Stale` if it has no name any more.
    pub fn node(&self, inode: InodeId) -> Result<NamedInode, Fault> {
        self.find(inode)?.ok_or_else(|| gone(inode))
    }

    /// The inode of a name in a directory.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Option<NamedInode>, Fault> {
        let key = rows::entry(parent, name);
        let Some(value) = self.ledger.get(&key)? else { return Ok(None) };
        let mut entry: NameEntry = rows::decode(&key, &value)?;
        let linked = rows::is_linked(&entry.attr);
        entry.attr = self.current(entry.attr)?;
        Ok(Some(NamedInode { location: NameLocation { parent, name: name.to_vec() }, entry, linked }))
    }

    /// The attributes of an entry's inode, which are elsewhere if it has, or had, two names.
    pub fn current(&self, stored: FileAttr) -> Result<FileAttr, Fault> {
        if !rows::is_linked(&stored) {
            return Ok(stored);
        }
        let key = rows::inode(stored.inode);
        let value = self.ledger.get(&key)?.ok_or_else(|| {
            let text = format!("names: inode {} has two names and no attributes", stored.inode);
            Fault::new(Code::Corrupt, text)
        })?;
        rows::decode(&key, &value)
    }

    /// A name of an inode with several, other than `place`.
    pub fn another_name(&self, inode: InodeId, place: &NameLocation) -> Result<Option<NameLocation>, Fault> {
        let page = self.ledger.page(&rows::names(inode), None, 2)?;
        let mut names = page.rows.iter().map(|(key, _)| rows::location_of_name(key));
        names.find(|name| name.as_ref() != Ok(place)).transpose()
    }

    /// The inode of a path; `NotFound` if there is none.
    pub fn resolve(&self, at: &At, end: AtEnd) -> Result<NamedInode, Fault> {
        match self.walk(at, end)? {
            Walked::Found { node, .. } => Ok(node),
            Walked::Missing { .. } => Err(fault(Code::NotFound, at)),
        }
    }

    /// Walks a path.
    pub fn walk(&self, at: &At, end: AtEnd) -> Result<Walked, Fault> {
        if PATH_BYTES_MAX < at.path.len() {
            let text = format!("a path of {} bytes: at most {PATH_BYTES_MAX} are allowed", at.path.len());
            return Err(Fault::new(Code::NameTooLong, text));
        }
        let start = if at.path.starts_with(b"/") { InodeId::ROOT } else { at.base };
        let node = self.node(start).map_err(|fault| fault.at(show(at)))?;
        PathWalk { tree: self, at, end, node, rest: at.path.clone(), links: 0 }.run()
    }

    /// Whether `inode` is `below` or an ancestor of it.
    pub fn is_above(&self, inode: InodeId, below: InodeId) -> Result<bool, Fault> {
        let mut at = below;
        while at != InodeId::ROOT {
            if at == inode {
                return Ok(true);
            }
            at = self.node(at)?.location.parent;
        }
        Ok(inode == InodeId::ROOT)
    }
}

/// A walk in progress: `node` is the current inode, `rest` the remaining path.
struct PathWalk<'a> {
    tree: &'a NameTree,
    at: &'a At,
    end: AtEnd,
    node: NamedInode,
    rest: Vec<u8>,
    links: usize,
}

/// The next component of a path.
struct PathComponent {
    name: Vec<u8>,
    /// The path after the name, its leading slashes included.
    after: Vec<u8>,
}

impl PathComponent {
    /// Whether only slashes follow.
    fn is_last(&self) -> bool {
        self.after.iter().all(|byte| *byte == b'/')
    }

    fn needs_directory(&self) -> bool {
        !self.after.is_empty()
    }
}

impl PathWalk<'_> {
    fn run(mut self) -> Result<Walked, Fault> {
        let mut named = false;
        if !self.rest.is_empty() {
            self.must_be_directory()?;
        }
        while let Some(step) = next_step(&self.rest) {
            self.must_be_directory()?;
            named = false;
            match step.name.as_slice() {
                b"." => self.rest = step.after,
                b".." => self.up(step)?,
                _ => {
                    named = true;
                    if let Some(missing) = self.down(step)? {
                        return Ok(missing);
                    }
                }
            }
        }
        Ok(Walked::Found { node: self.node, named })
    }

    fn up(&mut self, step: PathComponent) -> Result<(), Fault> {
        if self.node.inode() != InodeId::ROOT {
            self.node = self.tree.node(self.node.location.parent)?;
        }
        self.rest = step.after;
        Ok(())
    }

    /// Descends to a name of the current directory; returns the missing name if there is none.
    fn down(&mut self, step: PathComponent) -> Result<Option<Walked>, Fault> {
        check_name_length(&step.name)?;
        let Some(node) = self.tree.lookup(self.node.inode(), &step.name)? else {
            if !step.is_last() {
                return Err(fault(Code::NotFound, self.at));
            }
            let slash = step.needs_directory();
            return Ok(Some(Walked::Missing { parent: self.node.clone(), name: step.name, slash }));
        };
        if node.attr().kind == FileKind::Symlink && (step.needs_directory() || self.end == AtEnd::Follow) {
            return self.follow(node.entry.target, &step.after).map(|()| None);
        }
        self.node = node;
        if step.needs_directory() {
            self.must_be_directory()?;
        }
        self.rest = step.after;
        Ok(None)
    }

    fn follow(&mut self, target: Vec<u8>, behind: &[u8]) -> Result<(), Fault> {
        self.links += 1;
        if LINKS_FOLLOWED_MAX < self.links {
            return Err(fault(Code::LinkLoop, self.at));
        }
        if target.starts_with(b"/") {
            self.node = self.tree.node(InodeId::ROOT)?;
        }
        self.rest = target;
        self.rest.extend_from_slice(behind);
        Ok(())
    }

    fn must_be_directory(&self) -> Result<(), Fault> {
        if self.node.is_directory() { Ok(()) } else { Err(fault(Code::NotDirectory, self.at)) }
    }
}

fn next_step(rest: &[u8]) -> Option<PathComponent> {
    let start = rest.iter().position(|byte| *byte != b'/')?;
    let rest = &rest[start..];
    let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    Some(PathComponent { name: rest[..length].to_vec(), after: rest[length..].to_vec() })
}

fn check_name_length(name: &[u8]) -> Result<(), Fault> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let start = String::from_utf8_lossy(&name[..32]).into_owned();
    let text = format!("{start}…: a name of {} bytes: at most {NAME_BYTES_MAX} are allowed", name.len());
    Err(Fault::new(Code::NameTooLong, text))
}

/// A path for messages.
pub fn show(at: &At) -> String {
    let path = String::from_utf8_lossy(&at.path);
    match (at.base, path.as_ref()) {
        (InodeId::ROOT, "") => "/".to_owned(),
        (InodeId::ROOT, path) => path.to_owned(),
        (_, path) if path.starts_with('/') => path.to_owned(),
        (base, "") => format!("inode {base}"),
        (base, path) => format!("{path} (in inode {base})"),
    }
}

/// A fault about a path, in the words of its code.
pub fn fault(code: Code, at: &At) -> Fault {
    Fault::new(code, format!("{}: {}", show(at), code.text()))
}

/// The fault of a removed inode.
pub fn gone(inode: InodeId) -> Fault {
    Fault::new(Code::Stale, format!("inode {inode} was removed"))
}
