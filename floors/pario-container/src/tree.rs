//! An open tree: identity, ids, and the objects that were used so far.
//!
//! Never: two writers, or a writer beside readers, unless locking is off. Always: ids are never reused.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::error::{Result, TreeError};
use crate::header::{Header, HeaderRecord, Kind, ObjectBody};
use crate::journal;
use crate::links::LinkTable;
use crate::log::Log;
use crate::node::{Home, OBJECTS, Paths, TreeNode};
use crate::place::{Place, PlaceEntry};
use crate::sweep;

/// Id of the root group.
pub const ROOT_ID: u64 = 1;
/// Version of the layout of docs/formats/hdf5-tree.md.
const FORMAT: u32 = 1;
/// The file that makes a directory a tree.
pub(crate) const CONTAINER: &str = ".@container";
/// Exists while a writer is at work.
pub(crate) const OPEN: &str = ".@open";
/// Ids are handed out in blocks, so that one line pays for many objects.
const ID_BLOCK: u64 = 1024;

/// How a tree is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeAccess {
    /// Objects can be changed.
    pub write: bool,
    /// Other processes are kept out as HDF5 does it.
    pub lock: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TreeRecord {
    Tree {
        format: u32,
        identity: Hex,
    },
    /// Ids below are used.
    Ids(u64),
}

/// An open HDF5 tree.
#[derive(Debug)]
pub struct Tree {
    pub(crate) place: Arc<dyn Place>,
    pub(crate) nodes: HashMap<u64, TreeNode>,
    access: TreeAccess,
    identity: Vec<u8>,
    log: Log,
    next_id: u64,
    ids_end: u64,
}

/// Whether a place holds a tree.
pub fn is_tree(place: &dyn Place) -> Result<bool> {
    Ok(place.read(CONTAINER)?.is_some())
}

impl Tree {
    /// Creates a tree. `properties` are those of the root group, in HDF5's encoding.
    pub fn create(place: Arc<dyn Place>, lock: bool, properties: Hex) -> Result<Tree> {
        place.create_dir("")?;
        if is_tree(&*place)? {
            return Err(TreeError::Exists(place.root()));
        }
        if lock {
            place.lock(true)?;
        }
        place.write_new(OPEN, b"")?;
        place.create_dir(OBJECTS)?;
        let paths = root_paths();
        let header = Header {
            id: ROOT_ID,
            body: ObjectBody::Group { properties },
            created: 0,
            links: 1,
            comment: None,
            attributes: Vec::new(),
            next_order: 0,
        };
        LinkTable::create(&*place, &paths.links())?;
        Log::create(&*place, &paths.header(), &[HeaderRecord::Object(Box::new(header))])?;
        let mut identity = vec![0; 16];
        getrandom::fill(&mut identity)
            .map_err(|_| TreeError::Invalid("the system has no random numbers".into()))?;
        // Last: a directory with this file is a whole tree.
        let records =
            [TreeRecord::Tree { format: FORMAT, identity: Hex(identity) }, TreeRecord::Ids(ROOT_ID + 1)];
        Log::create(&*place, CONTAINER, &records)?;
        Tree::load(place, TreeAccess { write: true, lock })
    }

    /// Opens a tree. What a dead writer left unfinished is finished or removed.
    pub fn open(place: Arc<dyn Place>, access: TreeAccess) -> Result<Tree> {
        if !is_tree(&*place)? {
            let cause = "it has no file .@container".into();
            return Err(TreeError::NotATree { path: place.root(), cause });
        }
        if access.write {
            if access.lock {
                place.lock(true)?;
            }
            let unclean = place.kind(OPEN)?.is_some();
            journal::replay(&*place)?;
            place.write_new(OPEN, b"")?;
            let mut tree = Tree::load(place, access)?;
            if unclean {
                sweep::remove_leftovers(&mut tree)?;
            }
            return Ok(tree);
        }
        if place.kind(journal::JOURNAL)?.is_some() {
            // With the lock held, a journal is that of a dead writer.
            if let Err(error) = place.lock(true).and_then(|()| journal::replay(&*place)) {
                let advice = format!(
                    "{}: a change is unfinished; wait for its writer, or open the file for writing once ({error})",
                    place.root()
                );
                return Err(TreeError::Invalid(advice));
            }
        }
        if access.lock {
            place.lock(false)?;
        }
        Tree::load(place, access)
    }

    fn load(place: Arc<dyn Place>, access: TreeAccess) -> Result<Tree> {
        let Some((log, records)) = Log::load(&*place, CONTAINER)? else {
            return Err(TreeError::NotATree {
                path: place.root(),
                cause: "it has no file .@container".into(),
            });
        };
        let (mut found, mut next_id) = (None, ROOT_ID + 1);
        for record in records {
            match record {
                TreeRecord::Tree { format, identity } => found = Some((format, identity.0)),
                TreeRecord::Ids(end) => next_id = end.max(next_id),
            }
        }
        let identity = match found {
            Some((FORMAT, identity)) => identity,
            Some((format, _)) => {
                let cause = format!("its format is {format}, this version reads {FORMAT}; update Pario");
                return Err(TreeError::NotATree { path: place.root(), cause });
            }
            None => {
                return Err(TreeError::NotATree {
                    path: place.root(),
                    cause: ".@container names no format".into(),
                });
            }
        };
        let mut tree =
            Tree { place, nodes: HashMap::new(), access, identity, log, next_id, ids_end: next_id };
        tree.load_node(ROOT_ID, Home::Root, root_paths())?;
        Ok(tree)
    }

    /// Reads the header of an object.
    pub(crate) fn load_node(&mut self, id: u64, home: Home, paths: Paths) -> Result<()> {
        let path = paths.header();
        let missing =
            || TreeError::Damaged { path: path.clone(), line: 1, cause: "the header is missing".into() };
        let (log, records) = Log::load::<HeaderRecord>(&*self.place, &path)?.ok_or_else(missing)?;
        let header = Header::from_records(records).and_then(|header| {
            let expected = header.id == id;
            expected.then_some(header).ok_or(format!("the header belongs to another object than {id}"))
        });
        let header = header.map_err(|cause| TreeError::Damaged { path, line: 1, cause })?;
        self.nodes.insert(id, TreeNode::new(home, header, log));
        Ok(())
    }

    pub(crate) fn new_id(&mut self) -> Result<u64> {
        if self.next_id == self.ids_end {
            self.log.append(&*self.place, &TreeRecord::Ids(self.ids_end + ID_BLOCK))?;
            self.ids_end += ID_BLOCK;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    pub(crate) fn writable(&self) -> Result<()> {
        if self.access.write { Ok(()) } else { Err(TreeError::ReadOnly) }
    }

    /// Whether objects can be changed.
    pub fn is_writable(&self) -> bool {
        self.access.write
    }

    /// The tree's directory, for messages.
    pub fn root(&self) -> String {
        self.place.root()
    }

    /// Bytes of all files of the tree.
    pub fn stored_size(&self) -> Result<u64> {
        let (mut size, mut dirs) = (0, vec![String::new()]);
        while let Some(dir) = dirs.pop() {
            for (name, kind) in self.place.list(dir.trim_end_matches('/'))? {
                match kind {
                    PlaceEntry::Directory => dirs.push(format!("{dir}{name}/")),
                    PlaceEntry::File => size += self.place.open(&format!("{dir}{name}"), false)?.size()?,
                    PlaceEntry::Symlink | PlaceEntry::Other => (),
                }
            }
        }
        Ok(size)
    }

    /// Random bytes that no other tree has.
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    pub(crate) fn node(&self, id: u64) -> Result<&TreeNode> {
        self.nodes.get(&id).ok_or(TreeError::NoId(id))
    }

    pub(crate) fn node_mut(&mut self, id: u64) -> Result<&mut TreeNode> {
        self.nodes.get_mut(&id).ok_or(TreeError::NoId(id))
    }

    /// The header of an object that was found before.
    pub fn header(&self, id: u64) -> Result<&Header> {
        self.node(id).map(|node| &node.header)
    }

    pub(crate) fn paths(&self, id: u64) -> Result<Paths> {
        let node = self.node(id)?;
        let kind = node.header.kind();
        match &node.home {
            Home::Root => Ok(root_paths()),
            Home::Shared => Ok(Paths::shared(id, kind)),
            Home::Named { parent, name } => Ok(Paths::named(self.paths(*parent)?.inside(), name, kind)),
        }
    }

    /// Writes everything that is held back: chunks and variable-length values.
    pub fn flush(&mut self) -> Result<()> {
        let ids: Vec<u64> = self.nodes.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.flush_object(id))
    }

    /// Writes what is held back of one object.
    pub fn flush_object(&mut self, id: u64) -> Result<()> {
        if !self.access.write {
            return Ok(());
        }
        self.flush_heap(id)?;
        self.flush_data(id)
    }

    /// Counts a handle of the user: a deleted object stays until its last handle is closed.
    pub fn hold(&mut self, id: u64) -> Result<()> {
        self.node_mut(id)?.opened += 1;
        Ok(())
    }

    /// A handle of the user is closed.
    pub fn release(&mut self, id: u64) -> Result<()> {
        let node = self.node_mut(id)?;
        node.opened = node.opened.saturating_sub(1);
        if node.opened > 0 {
            return Ok(());
        }
        if node.header.links == 0 && self.access.write {
            return self.remove_object(id);
        }
        let flushed = self.flush_object(id);
        self.node_mut(id)?.close();
        flushed
    }

    /// Reads an object again, as another process has left it. A writer's own view is the newest.
    pub fn refresh(&mut self, id: u64) -> Result<()> {
        if self.access.write {
            return self.flush_object(id);
        }
        let (paths, home, opened) = (self.paths(id)?, self.node(id)?.home.clone(), self.node(id)?.opened);
        self.load_node(id, home, paths)?;
        self.node_mut(id)?.opened = opened;
        Ok(())
    }

    /// Writes what is held back and marks the tree as whole.
    pub fn close(mut self) -> Result<()> {
        if !self.access.write {
            return Ok(());
        }
        self.flush()?;
        let nameless: Vec<u64> =
            self.nodes.iter().filter(|(_, node)| node.header.links == 0).map(|(id, _)| *id).collect();
        nameless.into_iter().try_for_each(|id| self.remove_object(id))?;
        self.place.remove_file(OPEN)
    }
}

pub(crate) fn root_paths() -> Paths {
    Paths { dir: String::new(), leaf: String::new(), kind: Kind::Group }
}
