//! Inodes with several names, special files, exchanged names, extended attributes: tables of lines, and random histories against a map
//! from names to inodes, with kills in between.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::limits::{XATTR_BYTES_MAX, XATTR_NAME_BYTES_MAX};
use pario_core::{AttrChange, Code, FileKind, InodeId};
use pario_net::message::{At, Creator, NameReply, NameRequest, XattrHow};
use proptest::prelude::*;

use super::super::mend::mend;
use super::world::{CREATOR, NamesFixture, attr_of, check, code_of, defaults, parse};

#[test]
fn an_inode_has_several_names_that_come_and_go() {
    let mut world = check(&[
        "create a",
        "mkdir d",
        "link a d/b",
        "!Exists link a d/b",
        "!NotFound link x y",
        "!IsDirectory link d e",
        "!NotFound link a e/",
        "symlink a s",
        "link s t",
    ]);
    let inode = world.attr("stat a").inode;
    assert_eq!((world.attr("stat d/b").inode, world.attr("stat a").links), (inode, 2));
    assert_eq!((world.attr("lstat t").kind, world.attr("lstat s").links), (FileKind::Symlink, 2));
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    world.ask(&NameRequest::SetAttr { at: At::root("d/b"), follow: false, change }).unwrap();
    assert_eq!(world.attr("stat a").mode, 0o600);
    assert_eq!(world.list("/").iter().find(|entry| entry.name == b"a").unwrap().attr.mode, 0o600);
    // The same inode under both names: nothing happens.
    world.run("rename a d/b").unwrap();
    assert_eq!(world.attr("stat a").links, 2);
    assert_eq!(world.run("remove a").unwrap().unlinked, None);
    world.reopen();
    assert_eq!((world.attr("stat d/b").links, world.attr("stat d/b").inode), (1, inode));
    assert_eq!(
        attr_of(&world.ask(&NameRequest::Stat { at: At::inode(inode), follow: false }).unwrap()).links,
        1
    );
    world.run("link d/b c").unwrap();
    world.run("rename d/b e").unwrap();
    assert_eq!((world.attr("stat e").links, world.attr("stat d").size), (2, 0));
    world.run("create over").unwrap();
    assert!(world.run("rename over c").unwrap().unlinked.is_none(), "e is left");
    assert_eq!(world.run("remove e").unwrap().unlinked.unwrap().attr.inode, inode);
    world.names().finish_remove(inode).unwrap();
    assert_eq!(code_of(world.ask(&NameRequest::Stat { at: At::inode(inode), follow: false })), Code::Stale);
}

#[test]
fn names_are_exchanged() {
    let mut world = check(&[
        "create f",
        "mkdir d",
        "mkdir d/sub",
        "mkdir e",
        "!NotFound exchange f x",
        "!Invalid exchange d d/sub",
        "!Invalid exchange d/sub d",
        "!Busy exchange f /",
        "exchange f f",
        "exchange f d/sub",
    ]);
    assert_eq!(
        (world.attr("stat f").kind, world.attr("stat d/sub").kind),
        (FileKind::Directory, FileKind::File)
    );
    assert_eq!((world.attr("stat d").links, world.attr("stat d").size), (2, 1));
    assert_eq!((world.attr("stat /").links, world.attr("stat /").size), (5, 3));
    let by_inode = NameRequest::Stat { at: At::inode(world.attr("stat d/sub").inode), follow: false };
    assert_eq!(attr_of(&world.ask(&by_inode).unwrap()).kind, FileKind::File);
}

#[test]
fn special_files_have_a_kind_and_a_number() {
    let mut world = check(&["fifo p", "device c", "!Exists fifo c", "!NotFound fifo x/", "open p"]);
    assert_eq!((world.attr("stat p").kind, world.attr("stat p").size), (FileKind::Fifo, 0));
    assert_eq!((world.attr("stat c").kind, world.attr("stat c").size), (FileKind::CharDevice, 9));
    assert!(world.run("remove p").unwrap().unlinked.is_none());
    let plain =
        NameRequest::MakeNode { at: At::root("x"), kind: FileKind::File, device: 0, creator: CREATOR };
    assert_eq!(code_of(world.ask(&plain)), Code::Invalid);
}

#[test]
fn a_set_group_id_directory_gives_its_group() {
    let mut world = check(&["mkdir d"]);
    let change = AttrChange { mode: Some(0o2775), gid: Some(77), ..AttrChange::default() };
    world.ask(&NameRequest::SetAttr { at: At::root("d"), follow: false, change }).unwrap();
    world.run("create d/f").unwrap();
    world.run("mkdir d/e").unwrap();
    assert_eq!((world.attr("stat d/f").gid, world.attr("stat d/f").mode & 0o2000), (77, 0));
    assert_eq!((world.attr("stat d/e").gid, world.attr("stat d/e").mode), (77, 0o2755));
}

#[test]
fn extended_attributes_belong_to_the_inode() {
    let mut world = check(&[
        "create f",
        "!NoAttribute get f user.a",
        "!NoAttribute unset f user.a",
        "set f user.a one",
        "set f user.b two",
        "link f g",
        "unset g user.b",
    ]);
    world.reopen();
    let reply = world.run("get g user.a").unwrap().reply;
    assert_eq!(reply, NameReply::Value { value: b"one".to_vec() });
    let list = NameRequest::ListXattrs { at: At::root("f") };
    assert_eq!(world.ask(&list).unwrap().reply, NameReply::XattrNames { names: vec![b"user.a".to_vec()] });
    let set = |name: &[u8], value: Vec<u8>, how| NameRequest::SetXattr {
        at: At::root("f"),
        name: name.to_vec(),
        value,
        how,
    };
    assert_eq!(code_of(world.ask(&set(b"user.a", vec![], XattrHow::Create {}))), Code::Exists);
    assert_eq!(code_of(world.ask(&set(b"user.z", vec![], XattrHow::Replace {}))), Code::NoAttribute);
    let long = [b'u'; XATTR_NAME_BYTES_MAX + 1];
    assert_eq!(code_of(world.ask(&set(&long, vec![], XattrHow::Any {}))), Code::Invalid);
    let full = || vec![7; XATTR_BYTES_MAX];
    for number in 0..15 {
        world.ask(&set(format!("user.{number}").as_bytes(), full(), XattrHow::Any {})).unwrap();
    }
    assert_eq!(code_of(world.ask(&set(b"user.more", full(), XattrHow::Any {}))), Code::NoSpace);
    world.ask(&set(b"user.3", full(), XattrHow::Replace {})).unwrap();
    let inode = world.attr("stat f").inode;
    world.run("remove f").unwrap();
    world.run("remove g").unwrap();
    world.names().finish_remove(inode).unwrap();
    let left = world.names().tree.ledger.page(b"x", None, 1).unwrap();
    assert!(left.rows.is_empty(), "attributes go with their inode");
}

/// One step: two of eight names in two directories, and a verb.
fn step() -> impl Strategy<Value = (u8, u8, u8)> {
    (0..9u8, 0..8u8, 0..8u8)
}

fn path(number: u8) -> String {
    format!("{}/n{}", if number < 4 { "one" } else { "two" }, number % 4)
}

type Map = BTreeMap<String, InodeId>;

/// What POSIX says; `None`: the step must fail.
fn model(map: &mut Map, new: InodeId, verb: u8, (from, to): (&str, &str)) -> Option<()> {
    match verb {
        0 | 1 if map.contains_key(from) => None,
        0 | 1 => {
            map.insert(from.to_owned(), new);
            Some(())
        }
        2 | 3 => {
            let inode = *map.get(from)?;
            if map.contains_key(to) {
                return None;
            }
            map.insert(to.to_owned(), inode);
            Some(())
        }
        4 | 5 => {
            let inode = *map.get(from)?;
            if map.get(to) != Some(&inode) {
                map.remove(from);
                map.insert(to.to_owned(), inode);
            }
            Some(())
        }
        6 => {
            let (one, two) = (*map.get(from)?, *map.get(to)?);
            map.insert(from.to_owned(), two);
            map.insert(to.to_owned(), one);
            Some(())
        }
        _ => map.remove(from).map(drop),
    }
}

#[track_caller]
fn same(world: &mut NamesFixture, map: &Map) {
    for dir in ["one", "two"] {
        let entries = world.list(dir);
        let expected: Vec<_> = map.iter().filter(|(path, _)| path.starts_with(dir)).collect();
        assert_eq!(entries.len(), expected.len());
        assert_eq!(world.attr(&format!("stat {dir}")).size, expected.len() as u64);
        for (entry, (path, inode)) in entries.iter().zip(expected) {
            assert_eq!(path.as_bytes(), [dir.as_bytes(), b"/", &entry.name].concat());
            let names = map.values().filter(|other| *other == inode).count();
            assert_eq!((entry.attr.inode, entry.attr.links as usize), (*inode, names), "{path}");
            let by_inode = NameRequest::Find { at: At::inode(*inode), follow: false };
            assert_eq!(attr_of(&world.ask(&by_inode).unwrap()), entry.attr);
        }
    }
    let inodes: BTreeSet<InodeId> = map.values().copied().collect();
    assert_eq!(world.names().stats().inodes, 3 + inodes.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn random_links_renames_and_exchanges(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = check(&["mkdir one", "mkdir two"]);
        let mut map = Map::new();
        for (number, (verb, one, two)) in steps.iter().enumerate() {
            let (from, to) = (path(*one), path(*two));
            let line = match verb {
                0 => format!("exclusive {from}"),
                1 => format!("fifo {from}"),
                2 | 3 => format!("link {from} {to}"),
                4 | 5 => format!("rename {from} {to}"),
                6 => format!("exchange {from} {to}"),
                _ => format!("remove {from}"),
            };
            let answer = world.run(&line);
            let new = match &answer {
                Ok(answer) => if let NameReply::Attr { attr } = answer.reply { attr.inode } else { InodeId(0) },
                Err(_) => InodeId(0),
            };
            let mut after = map.clone();
            let expected = model(&mut after, new, *verb, (&from, &to));
            prop_assert_eq!(answer.is_ok(), expected.is_some(), "{}: {:?}", line, answer);
            if expected.is_some() {
                let gone = map.values().any(|inode| !after.values().any(|left| left == inode));
                let is_file = answer.as_ref().is_ok_and(|answer| answer.unlinked.is_some());
                prop_assert!(!is_file || gone, "{}: an inode with a name is no orphan", line);
                map = after;
            }
            if number % 13 == 12 {
                world.reopen();
            }
            same(&mut world, &map);
        }
        // Rows that agree mean the same afterwards; a second time only the counters skip numbers.
        mend(&mut world.names().tree.ledger, defaults()).unwrap();
        prop_assert_eq!(mend(&mut world.names().tree.ledger, defaults()).unwrap(), 1);
        world.reopen();
        same(&mut world, &map);
    }
}

#[test]
fn a_node_has_its_creators_mode_and_owner() {
    let mut world = NamesFixture::new();
    let creator = Creator { mode: 0o4751, uid: 12, gid: 34 };
    let request = NameRequest::MakeNode { at: At::root("s"), kind: FileKind::Socket, device: 0, creator };
    let attr = attr_of(&world.ask(&request).unwrap());
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.links), (0o4751, 12, 34, 1));
    assert_eq!(attr_of(&world.ask(&parse("find s")).unwrap()), attr);
}
