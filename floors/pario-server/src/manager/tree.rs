//! The tree of names, for reading: inodes, names, and walking a path. What changes it is in `make`, `unmake`, `rename`, `length`.
//!
//! Never: changes a row. Always: a symbolic link in the middle of a path is followed, one at its end as the caller says;
//! `..` of the root is the root; at most `LINKS_FOLLOWED_MAX` links are followed in one walk.

use pario_core::limits::{LINKS_FOLLOWED_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX};
use pario_core::{Code, Fault, FileAttr, FileKind, InodeId};
use pario_net::message::At;

use super::ledger::Ledger;
use super::rows::{self, Entry, Place};

/// An inode that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its name.
    pub place: Place,
    /// What is there.
    pub entry: Entry,
}

impl Node {
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

/// Where an inode's attributes are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Home {
    /// With its name.
    Named(Node),
    /// Among the files that lost theirs.
    Orphan(FileAttr),
}

impl Home {
    /// The attributes.
    #[must_use]
    pub fn attr(&self) -> &FileAttr {
        match self {
            Home::Named(node) => node.attr(),
            Home::Orphan(attr) => attr,
        }
    }
}

/// What to do with a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// Go where it leads.
    Follow,
    /// Stop at it.
    Stay,
}

/// Where a path led.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Walked {
    /// To something.
    Found {
        /// It.
        node: Node,
        /// Whether the path ended in its name, rather than in `.`, `..` or nothing.
        named: bool,
    },
    /// To a directory that has no such name.
    Missing {
        /// The directory.
        parent: Node,
        /// The name.
        name: Vec<u8>,
        /// Whether a slash followed, so that only a directory can be meant.
        slash: bool,
    },
}

/// The ledger, read as a tree of names.
#[derive(Debug)]
pub struct Tree {
    /// The rows.
    pub ledger: Ledger,
}

impl Tree {
    /// The inode's attributes, also when it has lost its name and is not forgotten yet.
    pub fn attr(&self, inode: InodeId) -> Result<FileAttr, Fault> {
        self.home(inode).map(|home| *home.attr())
    }

    /// Where the inode's attributes are; `Stale` if it is gone.
    pub fn home(&self, inode: InodeId) -> Result<Home, Fault> {
        if let Some(node) = self.find(inode)? {
            return Ok(Home::Named(node));
        }
        let key = rows::orphan(inode);
        let value = self.ledger.get(&key)?.ok_or_else(|| gone(inode))?;
        rows::decode(&key, &value).map(Home::Orphan)
    }

    /// The inode by its number, if it has a name.
    pub fn find(&self, inode: InodeId) -> Result<Option<Node>, Fault> {
        let key = rows::place(inode);
        let Some(value) = self.ledger.get(&key)? else { return Ok(None) };
        let place: Place = rows::decode(&key, &value)?;
        match self.lookup(place.parent, &place.name)? {
            Some(node) if node.inode() == inode => Ok(Some(node)),
            _ => Err(Fault::new(
                Code::Corrupt,
                format!("names: inode {inode} is not at the name that it claims"),
            )),
        }
    }

    /// The inode by its number; `Stale` if it has no name any more.
    pub fn node(&self, inode: InodeId) -> Result<Node, Fault> {
        self.find(inode)?.ok_or_else(|| gone(inode))
    }

    /// What a name of a directory leads to.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Option<Node>, Fault> {
        let key = rows::entry(parent, name);
        let Some(value) = self.ledger.get(&key)? else { return Ok(None) };
        let entry = rows::decode(&key, &value)?;
        Ok(Some(Node { place: Place { parent, name: name.to_vec() }, entry }))
    }

    /// What a path leads to; `NotFound` if nothing is there.
    pub fn resolve(&self, at: &At, end: AtEnd) -> Result<Node, Fault> {
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
        Walk { tree: self, at, end, node, rest: at.path.clone(), links: 0 }.run()
    }

    /// Whether `inode` is `below` or lies above it.
    pub fn is_above(&self, inode: InodeId, below: InodeId) -> Result<bool, Fault> {
        let mut at = below;
        while at != InodeId::ROOT {
            if at == inode {
                return Ok(true);
            }
            at = self.node(at)?.place.parent;
        }
        Ok(inode == InodeId::ROOT)
    }
}

/// A walk under way: `node` is where it is, `rest` where it still has to go.
struct Walk<'a> {
    tree: &'a Tree,
    at: &'a At,
    end: AtEnd,
    node: Node,
    rest: Vec<u8>,
    links: usize,
}

/// The next step of a path.
struct Step {
    name: Vec<u8>,
    /// What follows the name, its leading slashes included.
    behind: Vec<u8>,
}

impl Step {
    /// Whether nothing but slashes follows.
    fn is_last(&self) -> bool {
        self.behind.iter().all(|byte| *byte == b'/')
    }

    fn needs_directory(&self) -> bool {
        !self.behind.is_empty()
    }
}

impl Walk<'_> {
    fn run(mut self) -> Result<Walked, Fault> {
        let mut named = false;
        if !self.rest.is_empty() {
            self.must_be_directory()?;
        }
        while let Some(step) = next_step(&self.rest) {
            self.must_be_directory()?;
            named = false;
            match step.name.as_slice() {
                b"." => self.rest = step.behind,
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

    fn up(&mut self, step: Step) -> Result<(), Fault> {
        if self.node.inode() != InodeId::ROOT {
            self.node = self.tree.node(self.node.place.parent)?;
        }
        self.rest = step.behind;
        Ok(())
    }

    /// Goes to a name of the directory it is in; returns what is missing there.
    fn down(&mut self, step: Step) -> Result<Option<Walked>, Fault> {
        check_name_length(&step.name)?;
        let Some(node) = self.tree.lookup(self.node.inode(), &step.name)? else {
            if !step.is_last() {
                return Err(fault(Code::NotFound, self.at));
            }
            let slash = step.needs_directory();
            return Ok(Some(Walked::Missing { parent: self.node.clone(), name: step.name, slash }));
        };
        if node.attr().kind == FileKind::Symlink && (step.needs_directory() || self.end == AtEnd::Follow) {
            return self.follow(node.entry.target, &step.behind).map(|()| None);
        }
        self.node = node;
        if step.needs_directory() {
            self.must_be_directory()?;
        }
        self.rest = step.behind;
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

fn next_step(rest: &[u8]) -> Option<Step> {
    let start = rest.iter().position(|byte| *byte != b'/')?;
    let rest = &rest[start..];
    let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    Some(Step { name: rest[..length].to_vec(), behind: rest[length..].to_vec() })
}

fn check_name_length(name: &[u8]) -> Result<(), Fault> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let start = String::from_utf8_lossy(&name[..32]).into_owned();
    let text = format!("{start}…: a name of {} bytes: at most {NAME_BYTES_MAX} are allowed", name.len());
    Err(Fault::new(Code::NameTooLong, text))
}

/// A path for people.
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

/// The fault of an inode that is no more.
pub fn gone(inode: InodeId) -> Fault {
    Fault::new(Code::Stale, format!("inode {inode} was removed"))
}
