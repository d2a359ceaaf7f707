//! An edit: the rows that one name operation changes, gathered into one batch.
//!
//! Always: a directory that changes several times in one edit is written once, at the end; nothing is changed before the
//! batch is appended, so that a refused append leaves no trace.

use pario_core::{FileAttr, FileKind, InodeId};

use super::batch::Batch;
use super::rows::{self, Counters, Entry, Place};
use super::tree::{Home, Node};

/// See the module.
#[derive(Debug)]
pub struct Edit {
    /// The rows so far.
    pub batch: Batch,
    /// Counters as they will be.
    pub counters: Counters,
    before: Counters,
    wall_ns: u64,
    directories: Vec<Node>,
}

impl Edit {
    /// An edit that changes nothing yet.
    #[must_use]
    pub fn new(counters: Counters, wall_ns: u64) -> Edit {
        Edit { batch: Batch::default(), counters, before: counters, wall_ns, directories: Vec::new() }
    }

    /// The time of the edit.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// A number for a new inode.
    pub fn new_inode(&mut self) -> InodeId {
        let inode = self.counters.next_inode;
        self.counters.next_inode = InodeId(inode.0 + 1);
        inode
    }

    /// Sets what a name leads to.
    pub fn put(&mut self, place: &Place, entry: &Entry) {
        self.batch.put(&rows::entry(place.parent, &place.name), &rows::encode(entry));
    }

    /// Sets attributes where they are kept.
    pub fn put_attr(&mut self, home: &Home, attr: FileAttr) {
        match home {
            Home::Named(node) => self.put(&node.place, &Entry { attr, target: node.entry.target.clone() }),
            Home::Orphan(old) => self.batch.put(&rows::orphan(old.inode), &rows::encode(&attr)),
        }
    }

    /// Gives an inode its first name.
    pub fn link(&mut self, parent: &Node, name: &[u8], entry: &Entry) {
        self.counters.inodes += 1;
        self.arrive(parent, name, entry);
    }

    /// Takes an inode's last name. A file stays as an orphan until its objects are removed; all else is forgotten.
    pub fn unlink(&mut self, parent: &Node, node: &Node) -> Option<FileAttr> {
        self.batch.set_frees();
        self.counters.inodes -= 1;
        self.leave(parent, node);
        self.forget(node)
    }

    /// Puts an inode under another name, taking the place of `replaced`.
    pub fn rename(
        &mut self,
        from: (&Node, &Node),
        to: (&Node, &[u8]),
        replaced: Option<&Node>,
    ) -> Option<FileAttr> {
        let ((from_parent, node), (to_parent, name)) = (from, to);
        self.leave(from_parent, node);
        let orphan = replaced.and_then(|replaced| {
            self.counters.inodes -= 1;
            self.leave(to_parent, replaced);
            self.forget(replaced)
        });
        let mut entry = node.entry.clone();
        entry.attr.changed_ns = self.wall_ns;
        self.arrive(to_parent, name, &entry);
        orphan
    }

    /// The batch, with the directories and counters that changed.
    #[must_use]
    pub fn finish(mut self) -> (Batch, Counters) {
        for node in std::mem::take(&mut self.directories) {
            self.put(&node.place, &node.entry);
        }
        if self.counters != self.before {
            self.batch.put(&rows::counters(), &rows::encode(&self.counters));
        }
        (self.batch, self.counters)
    }

    fn arrive(&mut self, parent: &Node, name: &[u8], entry: &Entry) {
        let place = Place { parent: parent.inode(), name: name.to_vec() };
        self.put(&place, entry);
        self.batch.put(&rows::place(entry.attr.inode), &rows::encode(&place));
        let directory = self.directory(parent);
        directory.size += 1;
        directory.links += u32::from(entry.attr.kind == FileKind::Directory);
    }

    fn leave(&mut self, parent: &Node, node: &Node) {
        self.batch.delete(&rows::entry(node.place.parent, &node.place.name));
        let directory = self.directory(parent);
        assert!(0 < directory.size, "directory {} had fewer entries than names", directory.inode);
        directory.size -= 1;
        directory.links -= u32::from(node.is_directory());
    }

    fn forget(&mut self, node: &Node) -> Option<FileAttr> {
        self.batch.delete(&rows::place(node.inode()));
        if node.attr().kind != FileKind::File {
            return None;
        }
        let attr = FileAttr { links: 0, changed_ns: self.wall_ns, ..*node.attr() };
        self.batch.put(&rows::orphan(attr.inode), &rows::encode(&attr));
        Some(attr)
    }

    /// The attributes of a directory whose names change, as this edit leaves them.
    fn directory(&mut self, node: &Node) -> &mut FileAttr {
        let known = self.directories.iter().position(|known| known.inode() == node.inode());
        let index = known.unwrap_or_else(|| {
            self.directories.push(node.clone());
            self.directories.len() - 1
        });
        let attr = &mut self.directories[index].entry.attr;
        attr.modified_ns = self.wall_ns;
        attr.changed_ns = self.wall_ns;
        attr
    }
}
