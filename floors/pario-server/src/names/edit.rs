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
            AttrLocation::Named(node) if node.linked => {
                self.batch.put(&rows::inode(attr.inode), &rows::encode(&attr));
            }
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

    /// Gives an inode one more name. Its attributes move to a row of their own with the second one.
    pub fn add_name(&mut self, node: &NamedInode, parent: &NamedInode, name: &[u8]) -> FileAttr {
        let links = node.attr().links + 1;
        let attr = FileAttr { links, changed_ns: self.wall_ns, ..*node.attr() };
        let target = node.entry.target.clone();
        // Marks the entry; the value is of the moment and not used.
        let marked = NameEntry { attr: FileAttr { links: links.max(2), ..attr }, target };
        if !node.linked {
            self.put(&node.location, &marked);
            self.batch.put(&rows::name(attr.inode, &node.location), b"");
        }
        self.batch.put(&rows::inode(attr.inode), &rows::encode(&attr));
        let place = NameLocation { parent: parent.inode(), name: name.to_vec() };
        self.put(&place, &marked);
        self.batch.put(&rows::name(attr.inode, &place), b"");
        self.directory(parent).size += 1;
        attr
    }

    /// Removes a name. `heir` is another name of the inode, if it has one. The last name of a file leaves an orphan until its objects
    /// are removed; other inodes are dropped.
    pub fn unlink(
        &mut self,
        parent: &NamedInode,
        node: &NamedInode,
        heir: Option<&NameLocation>,
    ) -> Option<FileAttr> {
        self.batch.set_frees();
        self.leave(parent, node);
        self.forget(node, heir)
    }

    /// Moves an inode to another name, replacing `replaced` (with its heir, see [`Edit::unlink`]).
    pub fn rename(
        &mut self,
        from: (&NamedInode, &NamedInode),
        to: (&NamedInode, &[u8]),
        replaced: Option<(&NamedInode, Option<NameLocation>)>,
    ) -> Option<FileAttr> {
        let ((from_parent, node), (to_parent, name)) = (from, to);
        self.leave(from_parent, node);
        let orphan = replaced.and_then(|(replaced, heir)| {
            self.leave(to_parent, replaced);
            self.forget(replaced, heir.as_ref())
        });
        self.settle(node, to_parent, name);
        orphan
    }

    /// Exchanges the inodes of two names.
    pub fn exchange(&mut self, one: (&NamedInode, &NamedInode), two: (&NamedInode, &NamedInode)) {
        let ((one_parent, one), (two_parent, two)) = (one, two);
        self.leave(one_parent, one);
        self.leave(two_parent, two);
        self.settle(one, two_parent, &two.location.name);
        self.settle(two, one_parent, &one.location.name);
    }

    /// A moved inode arrives at its new name.
    fn settle(&mut self, node: &NamedInode, parent: &NamedInode, name: &[u8]) {
        let mut entry = node.entry.clone();
        entry.attr.changed_ns = self.wall_ns;
        if node.linked {
            self.batch.put(&rows::inode(node.inode()), &rows::encode(&entry.attr));
            let place = NameLocation { parent: parent.inode(), name: name.to_vec() };
            self.batch.put(&rows::name(node.inode(), &place), b"");
            entry.attr.links = entry.attr.links.max(2);
        }
        self.arrive(parent, name, &entry);
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
        if node.linked {
            self.batch.delete(&rows::name(node.inode(), &node.location));
        }
        let directory = self.directory(parent);
        assert!(0 < directory.size, "directory {} had fewer entries than names", directory.inode);
        directory.size -= 1;
        directory.links -= u32::from(node.is_directory());
    }

    fn forget(&mut self, node: &NamedInode, heir: Option<&NameLocation>) -> Option<FileAttr> {
        let attr = FileAttr { links: node.attr().links - 1, changed_ns: self.wall_ns, ..*node.attr() };
        if let (true, Some(heir)) = (0 < attr.links && node.linked, heir) {
            self.batch.put(&rows::inode(attr.inode), &rows::encode(&attr));
            self.batch.put(&rows::location(attr.inode), &rows::encode(heir));
            return None;
        }
        self.counters.inodes -= 1;
        self.batch.delete(&rows::location(node.inode()));
        if node.linked {
            self.batch.delete(&rows::inode(node.inode()));
        }
        if node.attr().kind != FileKind::File {
            return None;
        }
        let attr = FileAttr { links: 0, ..attr };
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
