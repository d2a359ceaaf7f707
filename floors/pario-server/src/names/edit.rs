//! An edit: the rows that one name operation changes, collected into one batch.
//!
//! Always: a directory that changes several times in one edit is written once, at the end; nothing is changed before the batch is appended,
//! so that a refused append leaves no trace.

use pario_core::{FileAttr, FileKind, InodeId};

use super::batch::Batch;
use super::rows::{self, NameCounters, NameEntry, NameLocation};
use super::tree::{AttrLocation, NamedInode};

/// See the module.
#[derive(Debug)]
pub struct Edit {
    /// The rows so far.
    pub batch: Batch,
    /// Counters after the edit.
    pub counters: NameCounters,
    before: NameCounters,
    wall_ns: u64,
    directories: Vec<NamedInode>,
}

impl Edit {
    /// An edit that changes nothing yet.
    #[must_use]
    pub fn new(counters: NameCounters, wall_ns: u64) -> Edit {
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

    /// Sets the entry of a name.
    pub fn put(&mut self, place: &NameLocation, entry: &NameEntry) {
        self.batch.put(&rows::entry(place.parent, &place.name), &rows::encode(entry));
    }

    /// Sets attributes where they are stored.
    pub fn put_attr(&mut self, home: &AttrLocation, attr: FileAttr) {
        match home {
            AttrLocation::Named(node) => {
                self.put(&node.location, &NameEntry { attr, target: node.entry.target.clone() })
            }
            AttrLocation::Orphan(old) => self.batch.put(&rows::orphan(old.inode), &rows::encode(&attr)),
        }
    }

    /// Gives an inode its first name.
    pub fn link(&mut self, parent: &NamedInode, name: &[u8], entry: &NameEntry) {
        self.counters.inodes += 1;
        self.arrive(parent, name, entry);
    }

    /// Removes an inode's last name. A file stays as an orphan until its objects are removed; other inodes are dropped.
    pub fn unlink(&mut self, parent: &NamedInode, node: &NamedInode) -> Option<FileAttr> {
        self.batch.set_frees();
        self.counters.inodes -= 1;
        self.leave(parent, node);
        self.forget(node)
    }

    /// Moves an inode to another name, replacing `replaced`.
    pub fn rename(
        &mut self,
        from: (&NamedInode, &NamedInode),
        to: (&NamedInode, &[u8]),
        replaced: Option<&NamedInode>,
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
    pub fn finish(mut self) -> (Batch, NameCounters) {
        for node in std::mem::take(&mut self.directories) {
            self.put(&node.location, &node.entry);
        }
        if self.counters != self.before {
            self.batch.put(&rows::counters(), &rows::encode(&self.counters));
        }
        (self.batch, self.counters)
    }

    fn arrive(&mut self, parent: &NamedInode, name: &[u8], entry: &NameEntry) {
        let place = NameLocation { parent: parent.inode(), name: name.to_vec() };
        self.put(&place, entry);
        self.batch.put(&rows::location(entry.attr.inode), &rows::encode(&place));
        let directory = self.directory(parent);
        directory.size += 1;
        directory.links += u32::from(entry.attr.kind == FileKind::Directory);
    }

    fn leave(&mut self, parent: &NamedInode, node: &NamedInode) {
        self.batch.delete(&rows::entry(node.location.parent, &node.location.name));
        let directory = self.directory(parent);
        assert!(0 < directory.size, "directory {} had fewer entries than names", directory.inode);
        directory.size -= 1;
        directory.links -= u32::from(node.is_directory());
    }

    fn forget(&mut self, node: &NamedInode) -> Option<FileAttr> {
        self.batch.delete(&rows::location(node.inode()));
        if node.attr().kind != FileKind::File {
            return None;
        }
        let attr = FileAttr { links: 0, changed_ns: self.wall_ns, ..*node.attr() };
        self.batch.put(&rows::orphan(attr.inode), &rows::encode(&attr));
        Some(attr)
    }

    /// The attributes of a changed directory, as this edit leaves them.
    fn directory(&mut self, node: &NamedInode) -> &mut FileAttr {
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
