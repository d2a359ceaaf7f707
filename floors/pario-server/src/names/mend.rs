//! Mending: makes the rows of names consistent after some were lost.
//!
//! Each row is self-contained, so that a lost one leaves others that contradict it: a file in a missing directory, two names of one inode,
//! a directory with a wrong count. Never: removes a name with attributes. Always: afterwards every inode has one name that leads to the
//! root, or several if all of them say so; unreachable inodes are in `/lost+found`; no inode number is reused.

use std::collections::{BTreeMap, HashMap, HashSet};

use pario_core::{Fault, FileAttr, FileKind, Generation, InodeId, Layout};

use super::batch::Batch;
use super::ledger::Ledger;
use super::rows::{self, NameCounters, NameEntry, NameLocation};
use super::sessions::scan;

const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Inode numbers that are skipped, since lost changes may have used them.
const SKIPPED_INODES: u64 = 1 << 20;
/// Approximate size of a batch.
const BATCH_BYTES: usize = 1 << 20;

type EntryMap = BTreeMap<Vec<u8>, Vec<u8>>;
type Name = (InodeId, Vec<u8>);

/// Makes the rows consistent; returns the number of changed rows.
pub(super) fn mend(ledger: &mut Ledger, defaults: Layout) -> Result<u64, Fault> {
    let mut before = EntryMap::new();
    for prefix in [b'c', b'e', b'i', b'n', b'o', b'p', b'x'] {
        scan(ledger, &[prefix], |key, value| {
            before.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
    }
    let mut tree = Mending::load(&before, defaults);
    tree.give_one_name_each();
    tree.restore_directories();
    tree.reach_all();
    tree.count();
    let after = tree.rows(&before);
    let mut changed = 0;
    let mut batch = Batch::default();
    for key in before.keys().chain(after.keys().filter(|key| !before.contains_key(*key))) {
        match after.get(key) {
            value if value == before.get(key) => continue,
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        changed += 1;
        if BATCH_BYTES <= batch.as_bytes().len() {
            ledger.append(&std::mem::take(&mut batch))?;
        }
    }
    ledger.append(&batch)?;
    Ok(changed)
}

struct Mending {
    entries: BTreeMap<Name, NameEntry>,
    /// Attributes of inodes with several names.
    linked: HashMap<InodeId, FileAttr>,
    /// Known names of inodes.
    locations: HashMap<InodeId, NameLocation>,
    orphans: HashSet<InodeId>,
    next_inode: u64,
    next_stamp: u64,
    defaults: Layout,
}

impl Mending {
    fn load(before: &EntryMap, defaults: Layout) -> Mending {
        let mut tree = Mending {
            entries: BTreeMap::new(),
            linked: HashMap::new(),
            locations: HashMap::new(),
            orphans: HashSet::new(),
            next_inode: InodeId::ROOT.0 + 1,
            next_stamp: 1,
            defaults,
        };
        for (key, value) in before {
            let Ok(number) = rows::number_of(key).or(if key == &rows::counters() { Ok(0) } else { Err(()) })
            else {
                continue;
            };
            let inode = InodeId(number);
            match key[0] {
                b'e' => {
                    if let Ok(entry) = rows::decode::<NameEntry>(key, value) {
                        tree.next_inode = tree.next_inode.max(entry.attr.inode.0 + 1);
                        tree.entries.insert((inode, rows::name_of_entry(key).to_vec()), entry);
                    }
                }
                b'p' => {
                    if let Ok(place) = rows::decode(key, value) {
                        tree.locations.insert(inode, place);
                    }
                }
                b'i' => {
                    if let Ok(attr) = rows::decode(key, value) {
                        tree.linked.insert(inode, attr);
                    }
                }
                b'n' | b'x' => {}
                b'o' => drop(tree.orphans.insert(inode)),
                _ => {
                    if let Ok(NameCounters { next_inode, next_stamp, .. }) = rows::decode(key, value) {
                        tree.next_inode = tree.next_inode.max(next_inode.0);
                        tree.next_stamp = next_stamp;
                    }
                }
            }
            tree.next_inode = tree.next_inode.max(number + 1);
        }
        tree.next_inode += SKIPPED_INODES;
        tree.next_stamp += SKIPPED_INODES;
        tree
    }

    /// Of several names of an inode that has one the name in its name row stays, else the one changed last.
    fn give_one_name_each(&mut self) {
        let mut best: HashMap<InodeId, (bool, u64, Name)> = HashMap::new();
        for ((parent, name), entry) in &self.entries {
            let inode = entry.attr.inode;
            if rows::is_linked(&entry.attr) {
                continue;
            }
            let place = NameLocation { parent: *parent, name: name.clone() };
            let this =
                (self.locations.get(&inode) == Some(&place), entry.attr.changed_ns, (*parent, name.clone()));
            match best.get(&inode) {
                Some(other) if (other.0, other.1) >= (this.0, this.1) => {}
                _ => drop(best.insert(inode, this)),
            }
        }
        let stays = |name: &Name, inode| best.get(&inode).is_none_or(|best| best.2 == *name);
        self.entries.retain(|name, entry| rows::is_linked(&entry.attr) || stays(name, entry.attr.inode));
    }

    /// Recreates missing directories that have entries, at their old name if that is known.
    fn restore_directories(&mut self) {
        let root = (InodeId(0), Vec::new());
        if self.entries.get(&root).is_none_or(|entry| entry.attr.inode != InodeId::ROOT) {
            self.entries.retain(|_, entry| entry.attr.inode != InodeId::ROOT);
            self.entries.insert(root, NameEntry { attr: self.directory(InodeId::ROOT), target: Vec::new() });
        }
        loop {
            let known: HashSet<InodeId> = self
                .entries
                .values()
                .filter(|entry| entry.attr.kind == FileKind::Directory)
                .map(|entry| entry.attr.inode)
                .collect();
            let gone: HashSet<InodeId> = self
                .entries
                .keys()
                .map(|(parent, _)| *parent)
                .filter(|parent| parent.0 != 0 && !known.contains(parent))
                .collect();
            if gone.is_empty() {
                return;
            }
            for inode in gone {
                // Another inode of that number cannot have had entries.
                self.entries.retain(|_, entry| entry.attr.inode != inode);
                let place = self.locations.get(&inode).map(|place| (place.parent, place.name.clone()));
                let place = place.filter(|place| place.0.0 != 0 && !self.entries.contains_key(place));
                let name = place.unwrap_or_else(|| self.lost_and_found(inode));
                let attr = self.directory(inode);
                self.entries.insert(name, NameEntry { attr, target: Vec::new() });
            }
        }
    }

    /// Moves inodes that are unreachable from the root to `/lost+found`.
    fn reach_all(&mut self) {
        loop {
            let parents: HashMap<InodeId, InodeId> =
                self.entries.iter().map(|((parent, _), entry)| (entry.attr.inode, *parent)).collect();
            let strays = |inode: InodeId| {
                let (mut at, mut seen) = (inode, HashSet::new());
                while at != InodeId::ROOT {
                    if !seen.insert(at) {
                        return Some(at);
                    }
                    at = *parents.get(&at)?;
                }
                None
            };
            let Some(stray) = parents.keys().find_map(|inode| strays(*inode)) else { return };
            let Some(old) = self
                .entries
                .iter()
                .find(|(_, entry)| entry.attr.inode == stray)
                .map(|(name, _)| name.clone())
            else {
                return;
            };
            let name = self.lost_and_found(stray);
            if let Some(entry) = self.entries.remove(&old) {
                self.entries.insert(name, entry);
            }
        }
    }

    /// Directories count their entries and subdirectories.
    fn count(&mut self) {
        let mut counts: HashMap<InodeId, (u64, u32)> = HashMap::new();
        for ((parent, _), entry) in &self.entries {
            let count = counts.entry(*parent).or_default();
            count.0 += 1;
            count.1 += u32::from(entry.attr.kind == FileKind::Directory);
        }
        for entry in self.entries.values_mut().filter(|entry| entry.attr.kind == FileKind::Directory) {
            let (size, directories) = counts.get(&entry.attr.inode).copied().unwrap_or_default();
            (entry.attr.size, entry.attr.links) = (size, 2 + directories);
        }
    }

    fn rows(&self, before: &EntryMap) -> EntryMap {
        let mut after = EntryMap::new();
        let mut counts: HashMap<InodeId, u32> = HashMap::new();
        for entry in self.entries.values() {
            *counts.entry(entry.attr.inode).or_default() += 1;
        }
        for ((parent, name), entry) in &self.entries {
            let (inode, count) = (entry.attr.inode, counts[&entry.attr.inode]);
            let place = NameLocation { parent: *parent, name: name.clone() };
            after.insert(rows::location(inode), rows::encode(&place));
            let mut entry = entry.clone();
            if rows::is_linked(&entry.attr) || 1 < count {
                let attr = self.linked.get(&inode).copied().unwrap_or(entry.attr);
                if 1 < count {
                    after.insert(rows::inode(inode), rows::encode(&FileAttr { links: count, ..attr }));
                    after.insert(rows::name(inode, &place), Vec::new());
                }
                entry.attr = FileAttr { links: count, ..attr };
            }
            after.insert(rows::entry(*parent, name), rows::encode(&entry));
        }
        for inode in self.orphans.iter().filter(|inode| !counts.contains_key(inode)) {
            let key = rows::orphan(*inode);
            if let Some(value) = before.get(&key) {
                after.insert(key, value.clone());
            }
        }
        for (key, value) in before.iter().filter(|(key, _)| key.starts_with(&rows::all_xattrs())) {
            let exists = |inode: InodeId| counts.contains_key(&inode) || self.orphans.contains(&inode);
            if rows::number_of(key).is_ok_and(|number| exists(InodeId(number))) {
                after.insert(key.clone(), value.clone());
            }
        }
        let counters = NameCounters {
            next_inode: InodeId(self.next_inode),
            inodes: counts.len() as u64,
            next_stamp: self.next_stamp,
        };
        after.insert(rows::counters(), rows::encode(&counters));
        after
    }

    /// A name for an inode in `/lost+found`, which is created if missing.
    fn lost_and_found(&mut self, inode: InodeId) -> Name {
        let at = (InodeId::ROOT, LOST_AND_FOUND.to_vec());
        let found = self.entries.get(&at).filter(|entry| entry.attr.kind == FileKind::Directory);
        let dir = found.map(|entry| entry.attr.inode).unwrap_or_else(|| {
            let dir = InodeId(self.next_inode);
            self.next_inode += 1;
            let mut name = at;
            while self.entries.contains_key(&name) {
                name.1.push(b'_');
            }
            let attr = self.directory(dir);
            self.entries.insert(name, NameEntry { attr, target: Vec::new() });
            dir
        });
        (dir, format!("inode-{inode}").into_bytes())
    }

    fn directory(&self, inode: InodeId) -> FileAttr {
        let now = pario_sys::clock::wall_ns();
        FileAttr {
            inode,
            kind: FileKind::Directory,
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            links: 2,
            size: 0,
            generation: Generation(0),
            layout: self.defaults,
            accessed_ns: now,
            modified_ns: now,
            changed_ns: now,
        }
    }
}
