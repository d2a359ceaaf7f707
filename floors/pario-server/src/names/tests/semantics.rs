//! Results, errors and side effects of each name operation, as tables of lines.

use pario_core::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use pario_core::{AttrChange, Code, FileKind, Generation, InodeId, Striping};
use pario_net::message::{At, NameReply, NameRequest, OpenHow};

use super::world::{CREATOR, NamesFixture, attr_of, check, code_of, defaults, inode_of, parse};
use crate::names::{PendingObjectChange, Truncation};

#[test]
fn opening_finds_makes_or_refuses() {
    check(&[
        "!NotFound open f",
        "create f",
        "open f",
        "write f",
        "create f",
        "!Exists exclusive f",
        "!NotFound create d/f",
        "!NotDirectory create f/g",
        "!NotDirectory open f/",
        "!IsDirectory create new/",
        "mkdir d",
        "open d",
        "!IsDirectory write d",
        "!IsDirectory truncate d",
        "!IsDirectory create d",
        "!Exists exclusive d",
    ]);
}

#[test]
fn directories_are_made_and_removed() {
    check(&[
        "mkdir a/",
        "!Exists mkdir a",
        "!Exists mkdir a/.",
        "!Exists mkdir a/..",
        "!NotFound mkdir x/y",
        "create a/f",
        "!NotDirectory mkdir a/f/g",
        "!Exists mkdir a/f",
        "!NotEmpty rmdir a",
        "!IsDirectory remove a",
        "!NotDirectory rmdir a/f",
        "remove a/f",
        "!Invalid rmdir a/.",
        "mkdir a/b",
        "!Invalid rmdir a/b/..",
        "rmdir a/b/",
        "rmdir a",
        "!NotFound rmdir a",
        "!NotFound remove a",
        "!Busy rmdir /",
        "!Exists mkdir /",
    ]);
}

#[test]
fn dots_and_slashes_are_resolved() {
    let mut world =
        check(&["mkdir a", "mkdir a/b", "create a/b/f", "stat //a///b/./../b//f", "stat a/../../../a/b/f"]);
    assert_eq!(world.attr("stat a/b/..").inode, world.attr("stat a").inode);
    assert_eq!(world.attr("stat ..").inode, InodeId::ROOT);
    assert_eq!(world.attr("stat ").inode, InodeId::ROOT);
    let b = world.attr("stat a/b").inode;
    let from_b = |path: &str| NameRequest::Stat { at: At { base: b, path: path.into() }, follow: true };
    assert_eq!(world.ask(&from_b("../b/f")).unwrap(), world.ask(&from_b("f")).unwrap());
    assert_eq!(inode_of(&world.ask(&from_b("/a")).unwrap()), world.attr("stat a").inode);
    assert_eq!(code_of(world.ask(&from_b("f/."))), Code::NotDirectory);
}

#[test]
fn links_lead_on() {
    let mut world = check(&[
        "mkdir d",
        "create d/f",
        "symlink d l",
        "symlink /d/f d/abs",
        "symlink f d/rel",
        "symlink nowhere dangling",
        "symlink loop loop",
        "stat l/f",
        "stat l/abs",
        "stat l/rel",
        "!NotFound stat dangling",
        "lstat dangling",
        "!LinkLoop stat loop",
        "!LinkLoop stat loop/x",
        "lstat loop",
        "!Exists symlink x l",
        "!Exists exclusive dangling",
        "!NotDirectory lstat d/rel/",
        "!Invalid readlink d/f",
        "!NotDirectory rmdir l",
        "create dangling",
        "stat nowhere",
        "remove l",
        "stat d/f",
    ]);
    assert_eq!(world.attr("lstat d/rel").kind, FileKind::Symlink);
    assert_eq!(world.attr("lstat d/rel").size, 1);
    assert_eq!(world.run("readlink d/abs").unwrap().reply, NameReply::Target { target: b"/d/f".to_vec() });
    let empty = NameRequest::Symlink { at: At::root("e"), target: Vec::new(), creator: CREATOR };
    assert_eq!(code_of(world.ask(&empty)), Code::Invalid);
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let mut world = NamesFixture::new();
    world.run("create l0").unwrap();
    for number in 1..=41 {
        world.run(&format!("symlink l{} l{number}", number - 1)).unwrap();
    }
    world.run("stat l40").unwrap();
    assert_eq!(code_of(world.run("stat l41")), Code::LinkLoop);
}

#[test]
fn renaming_moves_replaces_or_refuses() {
    check(&[
        "create f",
        "mkdir d",
        "mkdir d/sub",
        "mkdir empty",
        "create d/g",
        "!NotFound rename x y",
        "!NotFound rename f x/y",
        "!NotDirectory rename f g/",
        "!Invalid rename d d/sub/d",
        "!Invalid rename d d/d",
        "!IsDirectory rename f empty",
        "!NotDirectory rename d f",
        "!NotEmpty rename empty d",
        "!NotEmpty rename d/sub d",
        "!Exists move f d/g",
        "!Busy rename / x",
        "!Busy rename d /",
        "!Invalid rename d/. x",
        "rename f f",
        "rename d d",
        "rename d empty/",
        "!NotFound stat d",
        "stat empty/sub",
        "move f empty/sub/f",
        "rename empty/sub/f empty/g",
        "!NotFound stat empty/sub/f",
        "rename empty/sub sub/",
        "stat sub",
        "stat sub/..",
    ]);
}

#[test]
fn renaming_a_link_moves_the_link() {
    let mut world = check(&["create f", "symlink f l", "rename l m", "!NotFound lstat l", "rename m f"]);
    assert_eq!(world.attr("lstat f").kind, FileKind::Symlink);
    assert_eq!(world.run("readlink f").unwrap().reply, NameReply::Target { target: b"f".to_vec() });
}

#[test]
fn too_long_is_refused() {
    let mut world = NamesFixture::new();
    let longest = "n".repeat(NAME_BYTES_MAX);
    world.run(&format!("create {longest}")).unwrap();
    world.run(&format!("stat {longest}")).unwrap();
    for verb in ["create", "mkdir", "stat", "rename f", "remove"] {
        world.run("create f").unwrap();
        let fault = world.run(&format!("{verb} {longest}n")).unwrap_err();
        assert_eq!(fault.code, Code::NameTooLong, "{verb}");
        assert!(fault.text.contains("256 bytes"), "{fault}");
    }
    let deep = format!("{}f", "./".repeat(PATH_BYTES_MAX / 2));
    world.run(&format!("stat {deep}")).unwrap();
    assert_eq!(code_of(world.run(&format!("stat ./{deep}"))), Code::NameTooLong);
    let target = "t".repeat(PATH_BYTES_MAX + 1);
    assert_eq!(code_of(world.run(&format!("symlink {target} l"))), Code::NameTooLong);
}

#[test]
fn names_are_bytes() {
    let mut world = NamesFixture::new();
    for name in [&b"\xff\xfe"[..], b"b c", b"\xc3\xa4"] {
        let create = OpenHow { create: true, ..OpenHow::default() };
        let at = At::root(name);
        world
            .ask(&NameRequest::Open { at, how: create, creator: CREATOR, striping: Striping::default() })
            .unwrap();
    }
    let names: Vec<_> = world.list("/").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"b c"[..], b"\xc3\xa4", b"\xff\xfe"]);
    let fault = world.ask(&NameRequest::RemoveDir { at: At::root(&b"\xff\xfe"[..]) }).unwrap_err();
    assert_eq!(fault.text, "\u{fffd}\u{fffd}: not a directory");
    let zero = NameRequest::MakeDir { at: At::root(&b"a\0b"[..]), creator: CREATOR };
    assert_eq!(code_of(world.ask(&zero)), Code::Invalid);
    world.run("create f").unwrap();
    let zero = NameRequest::Rename { from: At::root("f"), to: At::root(&b"a\0b"[..]), replace: true };
    assert_eq!(code_of(world.ask(&zero)), Code::Invalid);
}

#[test]
fn counts_and_times_of_directories_are_kept() {
    let mut world = NamesFixture::new();
    let facts = |world: &mut NamesFixture, path: &str| {
        let attr = world.attr(&format!("stat {path}"));
        (attr.size, attr.links, attr.modified_ns, attr.changed_ns)
    };
    world.run("mkdir d").unwrap();
    let made = world.wall_ns;
    assert_eq!(facts(&mut world, "/"), (1, 3, made, made));
    assert_eq!(facts(&mut world, "d"), (0, 2, made, made));
    world.run("create d/f").unwrap();
    world.run("mkdir d/s").unwrap();
    let made = world.wall_ns;
    assert_eq!(facts(&mut world, "d"), (2, 3, made, made));
    world.run("rename d/s s").unwrap();
    let moved = world.wall_ns;
    assert_eq!(facts(&mut world, "d"), (1, 2, moved, moved));
    assert_eq!(facts(&mut world, "/"), (2, 4, moved, moved));
    world.run("mkdir e").unwrap();
    world.run("rename s e").unwrap();
    let replaced = world.wall_ns;
    assert_eq!(facts(&mut world, "/"), (2, 4, replaced, replaced));
    world.run("rmdir e").unwrap();
    world.run("remove d/f").unwrap();
    let removed = world.wall_ns;
    assert_eq!(facts(&mut world, "d"), (0, 2, removed, removed));
    assert_eq!(world.names().stats().inodes, 2);
    world.reopen();
    assert_eq!(world.names().stats().inodes, 2);
}

#[test]
fn attributes_are_set_and_kept() {
    let mut world = NamesFixture::new();
    let made = world.attr("create f");
    assert_eq!((made.mode, made.uid, made.gid, made.links, made.size), (0o644, 10, 20, 1, 0));
    world.run("symlink f l").unwrap();
    let change = AttrChange { mode: Some(0o170_600), modified_ns: Some(5), ..AttrChange::default() };
    let request = NameRequest::SetAttr { at: At::root("l"), follow: true, change };
    let set = attr_of(&world.ask(&request).unwrap());
    assert_eq!((set.inode, set.mode, set.modified_ns, set.changed_ns), (made.inode, 0o600, 5, world.wall_ns));
    let request = NameRequest::SetAttr { at: At::root("l"), follow: false, change };
    assert_eq!(attr_of(&world.ask(&request).unwrap()).kind, FileKind::Symlink);
    assert_eq!(world.run("readlink l").unwrap().reply, NameReply::Target { target: b"f".to_vec() });
    world.reopen();
    assert_eq!(world.attr("stat f"), set);
}

#[test]
fn striping_comes_from_the_wish_then_from_the_partition() {
    let mut world = NamesFixture::new();
    let mut make = |name: &str, striping| {
        let how = OpenHow { create: true, ..OpenHow::default() };
        world.ask(&NameRequest::Open { at: At::root(name), how, creator: CREATOR, striping })
    };
    let default = attr_of(&make("a", Striping::default()).unwrap());
    let next = attr_of(&make("b", Striping::default()).unwrap());
    assert_eq!((default.layout.stripe_bytes(), default.layout.count()), (65536, 2));
    assert_eq!(
        (u64::from(default.layout.first()), u64::from(next.layout.first())),
        (default.inode.0 % 4, next.inode.0 % 4)
    );
    let wish = Striping { stripe_bytes: Some(4096), count: Some(4), first: Some(3) };
    let wished = attr_of(&make("c", wish).unwrap()).layout;
    assert_eq!((wished.stripe_bytes(), wished.count(), wished.first(), wished.total()), (4096, 4, 3, 4));
    let fault = make("d", Striping { count: Some(5), ..wish }).unwrap_err();
    assert_eq!(fault.code, Code::Invalid);
    assert!(
        fault.text.starts_with("d: 5 servers wanted of 4; ") && fault.text.contains("on 1 to 4 servers"),
        "{fault}"
    );
    assert_eq!(code_of(world.run("stat d")), Code::NotFound);
    assert_eq!(world.attr("stat /").layout, defaults());
}

#[test]
fn listing_goes_by_pages_in_the_order_of_names() {
    let mut world = NamesFixture::new();
    world.run("mkdir d").unwrap();
    let mut expected: Vec<_> = (0..25).map(|number| format!("{}", number * 7 % 25)).collect();
    for name in &expected {
        world.run(&format!("create d/{name}")).unwrap();
    }
    expected.sort();
    for limit in [1, 7, 25, 26] {
        let names: Vec<_> = world.list_in_pages("d", limit).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, expected.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>());
    }
    for entry in world.list("d") {
        let name = String::from_utf8(entry.name).unwrap();
        assert_eq!(world.attr(&format!("stat d/{name}")), entry.attr);
    }
    assert_eq!(code_of(world.run("list d/1")), Code::NotDirectory);
    assert_eq!(code_of(world.run("list x")), Code::NotFound);
    // A page that starts after a removed name continues at the same position.
    let after = Some(b"1".to_vec());
    world.run("remove d/1").unwrap();
    let answer = world.ask(&NameRequest::List { at: At::root("d"), after, limit: 1 }).unwrap();
    let NameReply::Entries { entries, more: true } = answer.reply else { panic!("{answer:?}") };
    assert_eq!(entries[0].name, b"10");
}

#[test]
fn inode_numbers_are_used_once() {
    let mut world = NamesFixture::new();
    let mut last = InodeId::ROOT;
    for _ in 0..5 {
        let inode = world.attr("create f").inode;
        assert!(last < inode);
        last = inode;
        world.run("remove f").unwrap();
        world.names().finish_remove(inode).unwrap();
        world.reopen();
    }
}

#[test]
fn a_removed_file_lives_until_its_removal_is_finished() {
    let mut world = NamesFixture::new();
    let inode = world.attr("create f").inode;
    let answer = world.run("remove f").unwrap();
    assert_eq!(answer.unlinked.unwrap().attr.links, 0);
    assert_eq!(world.names().attr(inode).unwrap().inode, inode);
    assert_eq!(world.names().grow(inode, 100, 5).unwrap().size, 100);
    world.reopen();
    let attr = world.names().attr(inode).unwrap();
    assert_eq!((attr.size, attr.links), (100, 0));
    assert_eq!(world.names().pending().unwrap(), [PendingObjectChange::Remove(attr)]);
    let by_inode = NameRequest::Stat { at: At::inode(inode), follow: true };
    assert_eq!(attr_of(&world.ask(&by_inode).unwrap()), attr);
    world.names().finish_remove(inode).unwrap();
    world.names().finish_remove(inode).unwrap();
    assert_eq!(world.names().attr(inode).unwrap_err().code, Code::Stale);
    assert_eq!(world.names().grow(inode, 100, 5).unwrap_err().code, Code::Stale);
    assert_eq!(world.names().pending().unwrap(), []);
    let below = NameRequest::Stat { at: At { base: inode, path: b"x".to_vec() }, follow: true };
    assert_eq!(code_of(world.ask(&below)), Code::Stale);
    let named = world.attr("create g").inode;
    assert_eq!(world.names().finish_remove(named).unwrap_err().code, Code::Busy);
}

#[test]
fn a_replaced_file_is_pending_and_a_replaced_link_is_not() {
    let mut world = check(&["create a", "create b", "symlink a l"]);
    let replaced = world.attr("stat b").inode;
    let answer = world.run("rename a b").unwrap();
    assert_eq!(answer.unlinked.unwrap().attr.inode, replaced);
    assert_eq!(world.run("rename b l").unwrap().unlinked, None);
    assert_eq!(world.names().pending().unwrap().len(), 1);
}

#[test]
fn truncation_takes_two_steps() {
    let mut world = NamesFixture::new();
    let made = world.attr("create f");
    let inode = made.inode;
    world.names().grow(inode, 1000, 50).unwrap();
    assert_eq!(world.names().grow(inode, 10, 51).unwrap().size, 1000);
    assert_eq!(world.names().begin_set_length(inode, 2000, 52).unwrap(), None);
    let expected =
        Truncation { inode, layout: made.layout, from: Generation(0), to: Generation(1), bytes: 10 };
    assert_eq!(world.names().begin_set_length(inode, 10, 53).unwrap(), Some(expected));
    assert_eq!(world.names().begin_set_length(inode, 5, 54).unwrap_err().code, Code::Busy);
    world.reopen();
    assert_eq!(world.names().pending().unwrap(), [PendingObjectChange::Truncate(expected)]);
    let attr = world.names().finish_truncation(inode).unwrap();
    assert_eq!((attr.size, attr.generation, attr.modified_ns), (10, Generation(1), 53));
    assert_eq!(world.names().pending().unwrap(), []);
    assert_eq!(world.attr("stat f"), attr);
    assert_eq!(world.names().begin_set_length(inode, u64::MAX, 55).unwrap_err().code, Code::TooLarge);
    assert_eq!(world.names().grow(inode, u64::MAX, 55).unwrap_err().code, Code::TooLarge);
    assert_eq!(world.names().begin_set_length(InodeId::ROOT, 0, 55).unwrap_err().code, Code::IsDirectory);
}

#[test]
fn an_open_that_cuts_says_so_and_does_not_cut_twice() {
    let mut world = NamesFixture::new();
    let made = world.run("create f").unwrap();
    assert!(made.created && made.needs_truncate.is_none());
    let inode = inode_of(&made);
    world.names().grow(inode, 1000, 50).unwrap();
    let request = parse("truncate f");
    let opened = world.ask(&request).unwrap();
    assert_eq!((opened.created, opened.needs_truncate), (false, Some(inode)));
    let origin = crate::names::RequestOrigin { session: world.session, request: world.request };
    let cut = world.names().begin_set_length_once(origin, inode, 0, 60).unwrap();
    assert!(cut.is_some());
    world.names().finish_truncation(inode).unwrap();
    world.names().grow(inode, 700, 61).unwrap();
    world.reopen();
    let again = world.repeat(&request).unwrap();
    assert_eq!((attr_of(&again).size, again.needs_truncate), (0, None));
    assert_eq!(world.attr("stat f").size, 700);
}

#[test]
fn inodes_come_in_pages() {
    let mut world = check(&["mkdir d", "create d/a", "symlink a d/l", "create b", "remove b"]);
    let mut found = Vec::new();
    let mut after = InodeId(0);
    loop {
        let (attrs, more) = world.names().inodes(after, 2).unwrap();
        found.extend(attrs.iter().map(|attr| attr.inode.0));
        after = *attrs.last().map(|attr| &attr.inode).unwrap();
        if !more {
            break;
        }
    }
    assert_eq!(found, [1, 2, 3, 4]);
}
