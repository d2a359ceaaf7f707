//! From the log of a recording disk to a directory after a power cut.
//!
//! Always: what a sync covered is there; of the rest, luck decides for each file and each name by itself, so that code which
//! relies on an order that nobody promised is found.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::image::{Change, Image, Luck};
use super::{Event, FileNumber, Node};
use crate::random::Random;

/// A file's durable bytes and what came since.
#[derive(Debug, Default)]
struct FileState<'a> {
    safe: Image,
    pending: Vec<Change<'a>>,
}

/// The durable names and the changes of names since, in order.
#[derive(Debug, Default)]
struct Replay<'a> {
    files: BTreeMap<FileNumber, FileState<'a>>,
    names: BTreeMap<PathBuf, Node>,
    pending: Vec<NameChange>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Add { path: PathBuf, node: Node },
    Rename { from: PathBuf, to: PathBuf, file: FileNumber },
    Remove { path: PathBuf },
}

pub(super) fn power_cut(events: &[Event], seed: u64, target: &Path) -> io::Result<()> {
    let mut replay = Replay::default();
    for event in events {
        replay.take(event);
    }
    let mut random = Random::new(seed);
    // One state in eight has nothing and one everything: the borders deserve their share.
    let luck = match random.below(8) {
        0 => Luck::Nothing,
        1 => Luck::Everything,
        _ => Luck::Some,
    };
    let names = replay.names_after(luck, &mut random);
    for (path, node) in names {
        let place = target.join(&path);
        // Names in a directory that was lost are lost with it.
        if !place.parent().is_some_and(Path::is_dir) {
            continue;
        }
        match node {
            Node::Directory => std::fs::create_dir(place)?,
            Node::File(number) => replay.image_after(number, luck, &mut random).save(&place)?,
        }
    }
    Ok(())
}

impl<'a> Replay<'a> {
    fn take(&mut self, event: &'a Event) {
        match event {
            Event::MakeDir { path } => {
                self.pending.push(NameChange::Add { path: path.clone(), node: Node::Directory });
            }
            Event::Create { path, file } => {
                self.files.insert(*file, FileState::default());
                self.pending.push(NameChange::Add { path: path.clone(), node: Node::File(*file) });
            }
            Event::Rename { from, to, file } => {
                self.pending.push(NameChange::Rename { from: from.clone(), to: to.clone(), file: *file });
            }
            Event::Remove { path } => self.pending.push(NameChange::Remove { path: path.clone() }),
            Event::Write { file, at, bytes } => self.change(*file, Change::Write { at: *at, bytes }),
            Event::SetLength { file, bytes } => self.change(*file, Change::SetLength(*bytes)),
            Event::SyncFile { file } => self.files.entry(*file).or_default().sync(),
            Event::SyncDir { path } => self.sync_dir(path),
            Event::SyncAll => self.sync_all(),
        }
    }

    fn change(&mut self, file: FileNumber, change: Change<'a>) {
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
        self.files.values_mut().for_each(FileState::sync);
    }

    fn names_after(&self, luck: Luck, random: &mut Random) -> BTreeMap<PathBuf, Node> {
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

    fn image_after(&self, number: FileNumber, luck: Luck, random: &mut Random) -> Image {
        let Some(state) = self.files.get(&number) else { return Image::default() };
        let mut image = state.safe.clone();
        image.apply_some(&state.pending, luck, random);
        image
    }
}

impl FileState<'_> {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.safe.apply(&change);
        }
    }
}

impl NameChange {
    /// The directory whose sync makes it durable.
    fn dir(&self) -> &Path {
        let path = match self {
            NameChange::Add { path, .. } | NameChange::Remove { path } => path,
            NameChange::Rename { to, .. } => to,
        };
        path.parent().unwrap_or(Path::new(""))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            NameChange::Add { path, node } => _ = names.insert(path.clone(), *node),
            NameChange::Remove { path } => _ = names.remove(path),
            NameChange::Rename { from, to, file } => {
                // A rename whose file never got its first name on the disk has nothing to rename.
                if names.get(from) == Some(&Node::File(*file)) {
                    names.remove(from);
                    names.insert(to.clone(), Node::File(*file));
                }
            }
        }
    }
}
