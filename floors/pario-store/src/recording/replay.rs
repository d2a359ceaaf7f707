//! From the log of a recording disk to a directory after a power cut.
//!
//! Always: synced changes are present; of the others, chance decides for each file and each name separately, so that code which relies on
//! an unspecified order is found.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use pario_core::SeededRandom;

use super::image::{FileChange, FileImage, Luck};
use super::{DiskEvent, FileNumber, RecordedNode};

/// A file's durable bytes and the changes since.
#[derive(Debug, Default)]
struct ReplayedFile<'a> {
    safe: FileImage,
    pending: Vec<FileChange<'a>>,
}

/// The durable names and the changes of names since, in order.
#[derive(Debug, Default)]
struct Replay<'a> {
    files: BTreeMap<FileNumber, ReplayedFile<'a>>,
    names: BTreeMap<PathBuf, RecordedNode>,
    pending: Vec<NameChange>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Add { path: PathBuf, node: RecordedNode },
    Rename { from: PathBuf, to: PathBuf, file: FileNumber },
    Remove { path: PathBuf },
}

pub(super) fn power_cut(events: &[DiskEvent], seed: u64, target: &Path) -> io::Result<()> {
    let mut random = SeededRandom::new(seed);
    // One state in eight has none of the changes and one has all of them.
    let luck = match random.below(8) {
        0 => Luck::Nothing,
        1 => Luck::Everything,
        _ => Luck::Some,
    };
    save(events, luck, &mut random, target)
}

/// The page cache after its process died: everything.
pub(super) fn process_death(events: &[DiskEvent], target: &Path) -> io::Result<()> {
    save(events, Luck::Everything, &mut SeededRandom::new(0), target)
}

fn save(events: &[DiskEvent], luck: Luck, random: &mut SeededRandom, target: &Path) -> io::Result<()> {
    let mut replay = Replay::default();
    for event in events {
        replay.take(event);
    }
    let names = replay.names_after(luck, random);
    for (path, node) in names {
        let place = target.join(&path);
        // Names in a lost directory are lost with it.
        if !place.parent().is_some_and(Path::is_dir) {
            continue;
        }
        match node {
            RecordedNode::Directory => std::fs::create_dir(place)?,
            RecordedNode::File(number) => replay.image_after(number, luck, random).save(&place)?,
        }
    }
    Ok(())
}

impl<'a> Replay<'a> {
    fn take(&mut self, event: &'a DiskEvent) {
        match event {
            DiskEvent::MakeDir { path } => {
                self.pending.push(NameChange::Add { path: path.clone(), node: RecordedNode::Directory });
            }
            DiskEvent::Create { path, file } => {
                self.files.insert(*file, ReplayedFile::default());
                self.pending.push(NameChange::Add { path: path.clone(), node: RecordedNode::File(*file) });
            }
            DiskEvent::Rename { from, to, file } => {
                self.pending.push(NameChange::Rename { from: from.clone(), to: to.clone(), file: *file });
            }
            DiskEvent::Remove { path } => self.pending.push(NameChange::Remove { path: path.clone() }),
            DiskEvent::Write { file, at, bytes } => self.change(*file, FileChange::Write { at: *at, bytes }),
            DiskEvent::SetLength { file, bytes } => self.change(*file, FileChange::SetLength(*bytes)),
            DiskEvent::SyncFile { file } => self.files.entry(*file).or_default().sync(),
            DiskEvent::SyncDir { path } => self.sync_dir(path),
            DiskEvent::SyncAll => self.sync_all(),
        }
    }

    fn change(&mut self, file: FileNumber, change: FileChange<'a>) {
        self.files.entry(file).or_default().pending.push(change);
    }

    fn sync_dir(&mut self, dir: &Path) {
        let (synced, rest) =
            std::mem::take(&mut self.pending).into_iter().partition(|change| change.dir() == dir);
        self.pending = rest;
        let synced: Vec<NameChange> = synced;
        for change in &synced {
            change.apply(&mut self.names);
        }
    }

    fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.names);
        }
        self.files.values_mut().for_each(ReplayedFile::sync);
    }

    fn names_after(&self, luck: Luck, random: &mut SeededRandom) -> BTreeMap<PathBuf, RecordedNode> {
        let mut names = self.names.clone();
        for change in &self.pending {
            let happens = match luck {
                Luck::Nothing => false,
                Luck::Everything => true,
                Luck::Some => random.coin(),
            };
            if happens {
                change.apply(&mut names);
            }
        }
        names
    }

    fn image_after(&self, number: FileNumber, luck: Luck, random: &mut SeededRandom) -> FileImage {
        let Some(state) = self.files.get(&number) else { return FileImage::default() };
        let mut image = state.safe.clone();
        image.apply_some(&state.pending, luck, random);
        image
    }
}

impl ReplayedFile<'_> {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.safe.apply(&change);
        }
    }
}

impl NameChange {
    /// The directory to sync to make it durable.
    fn dir(&self) -> &Path {
        let path = match self {
            NameChange::Add { path, .. } | NameChange::Remove { path } => path,
            NameChange::Rename { to, .. } => to,
        };
        path.parent().unwrap_or(Path::new(""))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, RecordedNode>) {
        match self {
            NameChange::Add { path, node } => _ = names.insert(path.clone(), *node),
            NameChange::Remove { path } => _ = names.remove(path),
            NameChange::Rename { from, to, file } => {
                // A rename has no effect if the file's first name never reached the disk.
                if names.get(from) == Some(&RecordedNode::File(*file)) {
                    names.remove(from);
                    names.insert(to.clone(), RecordedNode::File(*file));
                }
            }
        }
    }
}
