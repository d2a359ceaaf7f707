//! Random name operations against a plain tree in memory, with kills, restarts and repeated requests in between.

use std::collections::BTreeMap;

use pario_core::limits::LINKS_FOLLOWED_MAX;
use pario_core::{Code, FileKind};
use pario_net::message::{NameReply, NameRequest};
use pario_store::RealDisk;
use proptest::prelude::*;

use super::world::{LAZY, NamesFixture, parse};
use crate::names::{LedgerPace, NameAnswer};

/// The inode at a name of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Thing {
    File,
    Link(String),
    Directory(BTreeMap<String, Thing>),
}

/// A path in the model: the names from the root.
type ModelPath = Vec<String>;

/// Result of a walk: an inode at a path, or a free name in an existing directory.
enum Led {
    There { way: ModelPath, named: bool },
    Nowhere { way: ModelPath, slash: bool },
}

#[derive(Default)]
pub(super) struct TreeModel {
    pub(super) root: BTreeMap<String, Thing>,
}

impl TreeModel {
    fn at(&self, way: &[String]) -> Option<Thing> {
        let mut thing = Thing::Directory(self.root.clone());
        for name in way {
            let Thing::Directory(names) = thing else { return None };
            thing = names.get(name)?.clone();
        }
        Some(thing)
    }

    fn names_mut(&mut self, way: &[String]) -> &mut BTreeMap<String, Thing> {
        way.iter().fold(&mut self.root, |names, name| match names.get_mut(name) {
            Some(Thing::Directory(inner)) => inner,
            other => panic!("{other:?} is no directory"),
        })
    }

    fn take(&mut self, way: &[String]) -> Thing {
        let (name, parent) = way.split_last().unwrap();
        self.names_mut(parent).remove(name).unwrap()
    }

    fn put(&mut self, way: &[String], thing: Thing) {
        let (name, parent) = way.split_last().unwrap();
        self.names_mut(parent).insert(name.clone(), thing);
    }

    /// Walks by rewriting the whole path as text at every link.
    fn walk(&self, path: &str, follow: bool) -> Result<Led, Code> {
        let mut text = path.to_owned();
        'again: for _ in 0..=LINKS_FOLLOWED_MAX {
            let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
            let mut way = ModelPath::new();
            let mut named = false;
            for (index, part) in parts.iter().enumerate() {
                let slash = index + 1 < parts.len() || text.ends_with('/');
                named = !matches!(*part, "." | "..");
                match *part {
                    "." => continue,
                    ".." => {
                        way.pop();
                        continue;
                    }
                    name => way.push(name.to_owned()),
                }
                match self.at(&way) {
                    None if index + 1 < parts.len() => return Err(Code::NotFound),
                    None => return Ok(Led::Nowhere { way, slash }),
                    Some(Thing::Link(target)) if slash || follow => {
                        let rest = parts[index + 1..].join("/");
                        let tail = if slash { format!("/{rest}") } else { String::new() };
                        let tail =
                            if text.ends_with('/') && !tail.ends_with('/') { tail + "/" } else { tail };
                        let start = if target.starts_with('/') {
                            String::new()
                        } else {
                            way[..way.len() - 1].join("/")
                        };
                        text = format!("{start}/{target}{tail}");
                        continue 'again;
                    }
                    Some(Thing::File | Thing::Link(_)) if slash => return Err(Code::NotDirectory),
                    Some(_) => {}
                }
            }
            return Ok(Led::There { way, named });
        }
        Err(Code::LinkLoop)
    }

    pub(super) fn run(&mut self, line: &str) -> Result<(), Code> {
        let words: Vec<&str> = line.split(' ').collect();
        match (words[0], words[1]) {
            ("create", path) => self.make(path, true, Thing::File),
            ("exclusive", path) => self.make(path, false, Thing::File),
            ("mkdir", path) => self.make(path, false, Thing::Directory(BTreeMap::new())),
            ("symlink", target) => self.make(words[2], false, Thing::Link(target.to_owned())),
            ("stat", path) => self.find(path, true).map(|_| ()),
            ("lstat", path) => self.find(path, false).map(|_| ()),
            ("remove", path) => self.remove(path, false),
            ("rmdir", path) => self.remove(path, true),
            ("rename", from) => self.rename(from, words[2], true),
            ("move", from) => self.rename(from, words[2], false),
            other => panic!("{other:?}"),
        }
    }

    fn find(&self, path: &str, follow: bool) -> Result<Thing, Code> {
        match self.walk(path, follow)? {
            Led::There { way, .. } => Ok(self.at(&way).unwrap()),
            Led::Nowhere { .. } => Err(Code::NotFound),
        }
    }

    /// `or_open`: an existing file is opened for writing instead.
    fn make(&mut self, path: &str, or_open: bool, thing: Thing) -> Result<(), Code> {
        let is_directory = |thing: &Thing| matches!(thing, Thing::Directory(_));
        match self.walk(path, or_open)? {
            Led::There { way, .. } if or_open && is_directory(&self.at(&way).unwrap()) => {
                Err(Code::IsDirectory)
            }
            Led::There { .. } if or_open => Ok(()),
            Led::There { .. } => Err(Code::Exists),
            Led::Nowhere { slash: true, .. } if thing == Thing::File => Err(Code::IsDirectory),
            Led::Nowhere { slash: true, .. } if !is_directory(&thing) => Err(Code::NotFound),
            Led::Nowhere { way, .. } => {
                self.put(&way, thing);
                Ok(())
            }
        }
    }

    fn named(&self, path: &str) -> Result<(ModelPath, Thing), Code> {
        match self.walk(path, false)? {
            Led::Nowhere { .. } => Err(Code::NotFound),
            Led::There { way, .. } if way.is_empty() => Err(Code::Busy),
            Led::There { named: false, .. } => Err(Code::Invalid),
            Led::There { way, .. } => {
                let thing = self.at(&way).unwrap();
                Ok((way, thing))
            }
        }
    }

    fn remove(&mut self, path: &str, directory: bool) -> Result<(), Code> {
        let (way, thing) = self.named(path)?;
        match thing {
            Thing::Directory(_) if !directory => return Err(Code::IsDirectory),
            Thing::Directory(names) if !names.is_empty() => return Err(Code::NotEmpty),
            Thing::File | Thing::Link(_) if directory => return Err(Code::NotDirectory),
            Thing::Directory(_) | Thing::File | Thing::Link(_) => {}
        }
        self.take(&way);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<(), Code> {
        let (from, thing) = self.named(from)?;
        let is_directory = matches!(thing, Thing::Directory(_));
        let to = match self.walk(to, false)? {
            Led::Nowhere { slash: true, .. } if !is_directory => return Err(Code::NotDirectory),
            Led::Nowhere { way, .. } => way,
            Led::There { .. } if !replace => return Err(Code::Exists),
            Led::There { way, .. } if way.is_empty() => return Err(Code::Busy),
            Led::There { named: false, .. } => return Err(Code::Invalid),
            Led::There { way, .. } => way,
        };
        if from == to {
            return Ok(());
        }
        if is_directory && to.starts_with(&from) {
            return Err(Code::Invalid);
        }
        match self.at(&to) {
            Some(Thing::Directory(_)) if !is_directory => return Err(Code::IsDirectory),
            Some(Thing::Directory(names)) if !names.is_empty() => return Err(Code::NotEmpty),
            Some(Thing::File | Thing::Link(_)) if is_directory => return Err(Code::NotDirectory),
            _ => {}
        }
        let thing = self.take(&from);
        self.put(&to, thing);
        Ok(())
    }
}

/// The whole name space, read through requests, in the model's form; counts are checked in passing.
pub(super) fn read_tree(world: &mut NamesFixture, path: &str, inodes: &mut u64) -> BTreeMap<String, Thing> {
    let entries = world.list_in_pages(path, 2);
    let attr = world.attr(&format!("stat {path}"));
    let directories = entries.iter().filter(|entry| entry.attr.kind == FileKind::Directory).count();
    assert_eq!((attr.size, attr.links as usize), (entries.len() as u64, 2 + directories), "counts of {path}");
    *inodes += 1;
    let mut names = BTreeMap::new();
    for entry in entries {
        let name = String::from_utf8(entry.name).unwrap();
        let path = format!("{path}{name}");
        assert_eq!(world.names().attr(entry.attr.inode).unwrap(), entry.attr);
        let thing = match entry.attr.kind {
            FileKind::Directory => Thing::Directory(read_tree(world, &format!("{path}/"), inodes)),
            FileKind::File => Thing::File,
            FileKind::Symlink => Thing::Link(read_link(world, &path)),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                panic!("{path}: the model makes no special files")
            }
        };
        *inodes += u64::from(entry.attr.kind != FileKind::Directory);
        names.insert(name, thing);
    }
    names
}

fn read_link(world: &mut NamesFixture, path: &str) -> String {
    let reply = world.run(&format!("readlink {path}")).unwrap().reply;
    let NameReply::Target { target } = reply else { panic!("{reply:?}") };
    String::from_utf8(target).unwrap()
}

fn check_tree(world: &mut NamesFixture, model: &TreeModel) {
    let mut inodes = 0;
    assert_eq!(read_tree(world, "/", &mut inodes), model.root);
    assert_eq!(world.names().stats().inodes, inodes);
}

#[derive(Clone, Debug)]
enum NameStep {
    Line(String),
    /// The last change is requested again.
    Repeat,
    Sync,
    Kill,
    ShutDown,
}

pub(super) fn any_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![6 => "[a-c]", 1 => Just("..".to_owned()), 1 => Just(".".to_owned())];
    let parts = proptest::collection::vec(part, 1..4);
    let slash = |likely: u32| prop_oneof![likely => Just(""), 1 => Just("/")];
    (slash(4), parts, slash(6)).prop_map(|(start, parts, end)| format!("{start}{}{end}", parts.join("/")))
}

fn any_step() -> impl Strategy<Value = NameStep> {
    let one = proptest::sample::select(vec![
        "create",
        "exclusive",
        "mkdir",
        "mkdir",
        "stat",
        "lstat",
        "remove",
        "rmdir",
    ]);
    let two = proptest::sample::select(vec!["rename", "rename", "move", "symlink"]);
    prop_oneof![
        12 => (one, any_path()).prop_map(|(verb, path)| NameStep::Line(format!("{verb} {path}"))),
        6 => (two, any_path(), any_path()).prop_map(|(verb, from, to)| NameStep::Line(format!("{verb} {from} {to}"))),
        2 => Just(NameStep::Repeat),
        1 => Just(NameStep::Sync),
        1 => Just(NameStep::Kill),
        1 => Just(NameStep::ShutDown),
    ]
}

fn check_steps(steps: Vec<NameStep>, pace: LedgerPace) {
    let mut world = NamesFixture::with(pace, RealDisk::shared());
    let mut model = TreeModel::default();
    let mut last: Option<(NameRequest, u64, NameAnswer)> = None;
    for step in steps {
        match step {
            NameStep::Line(line) => {
                let (request, appends) = (parse(&line), world.names().stats().ledger.appends);
                let answer = world.ask(&request);
                let result = answer.as_ref().map(|_| ()).map_err(|fault| fault.code);
                assert_eq!(result, model.run(&line), "{line}: {answer:?}");
                let changed = world.names().stats().ledger.appends != appends;
                last =
                    answer.ok().filter(|_| changed).map(|answer| (request, world.request, answer)).or(last);
            }
            NameStep::Repeat => {
                if let Some((request, number, answer)) = &last {
                    let current = std::mem::replace(&mut world.request, *number);
                    let again = world.repeat(request).unwrap();
                    assert_eq!((&again.reply, again.created), (&answer.reply, answer.created));
                    world.request = current;
                }
            }
            NameStep::Sync => world.sync().unwrap(),
            NameStep::Kill => world.reopen(),
            NameStep::ShutDown => {
                world.shut_down();
                world.reopen();
            }
        }
    }
    check_tree(&mut world, &model);
    world.reopen();
    check_tree(&mut world, &model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn does_what_a_plain_tree_does(steps in proptest::collection::vec(any_step(), 1..80), tiny in any::<bool>()) {
        // With tiny memtables most lookups go through redb, and applying runs concurrently.
        let pace = if tiny { LedgerPace { apply_bytes: 1500, memtable_bytes_max: 4000, ..LAZY } } else { LAZY };
        check_steps(steps, pace);
    }
}
