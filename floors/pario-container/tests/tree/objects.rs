//! Objects, links and handles.

use pario_container::{Found, LinkName, LinkTarget, NewLink, ROOT_ID, Tree, TreeError};

use super::scene::{
    READ, WRITE, add_dataset, add_group, attribute, bytes, create, find, line, open, place, read,
};

#[test]
fn a_deleted_object_lives_as_long_as_its_handles() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let group = add_group(&mut tree, ROOT_ID, "g").unwrap();
    let id = add_dataset(&mut tree, group, "x", line(2)).unwrap();
    tree.write_elements(id, &[(0, 2)], &bytes(&[4, 5])).unwrap();
    tree.hold(id).unwrap();
    tree.remove_link(ROOT_ID, &LinkName::from("g")).unwrap();
    assert_eq!(read(&mut tree, id, 2), [4, 5]);
    assert_eq!(tree.header(id).unwrap().links, 0);
    tree.release(id).unwrap();
    assert!(tree.header(id).is_err());
    assert_eq!(std::fs::read_dir(dir.path().join("a.h5/.@objects")).unwrap().count(), 0);
}

#[test]
fn hard_links_share_one_object_and_are_visible_in_storage() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let group = add_group(&mut tree, ROOT_ID, "g").unwrap();
    let id = add_dataset(&mut tree, group, "x", line(2)).unwrap();
    tree.link_hard(NewLink { group: ROOT_ID, name: &LinkName::from("y"), utf8: true }, id).unwrap();
    tree.write_elements(id, &[(0, 2)], &bytes(&[1, 2])).unwrap();
    assert_eq!(find(&mut tree, "g/x"), find(&mut tree, "y"));
    for name in ["a.h5/y", "a.h5/g/x"] {
        assert_eq!(
            std::fs::read(dir.path().join(name)).unwrap(),
            bytes(&[1, 2]),
            "{name} leads to the elements"
        );
    }
    tree.remove_link(group, &LinkName::from("x")).unwrap();
    tree.close().unwrap();
    let mut tree = open(dir.path(), READ);
    let id = find(&mut tree, "y").unwrap();
    assert_eq!((read(&mut tree, id, 2), tree.header(id).unwrap().links), (vec![1, 2], 1));
}

#[test]
fn soft_links_are_followed_and_circles_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    add_dataset(&mut tree, ROOT_ID, "x", line(2)).unwrap();
    let mut soft = |name: &str, to: &str| {
        tree.link_other(
            NewLink { group: ROOT_ID, name: &LinkName::from(name), utf8: true },
            LinkTarget::Soft(LinkName::from(to)),
        )
        .unwrap();
    };
    soft("s", "/x");
    soft("a", "b");
    soft("b", "a");
    soft("gone", "nowhere");
    let external = LinkTarget::External { file: LinkName::from("b.h5"), path: LinkName::from("/q") };
    tree.link_other(NewLink { group: ROOT_ID, name: &LinkName::from("e"), utf8: true }, external).unwrap();
    assert_eq!(find(&mut tree, "s"), find(&mut tree, "x"));
    assert!(tree.find(ROOT_ID, b"a").unwrap_err().to_string().contains("circle"));
    assert!(matches!(tree.find(ROOT_ID, b"gone"), Err(TreeError::NoObject(_))));
    let found = tree.find(ROOT_ID, b"e/r").unwrap();
    assert_eq!(found, Found::External { file: LinkName::from("b.h5"), path: LinkName::from("/q/r") });
}

#[test]
fn an_id_leads_to_an_object_after_it_was_moved() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let group = add_group(&mut tree, ROOT_ID, "g").unwrap();
    let id = add_dataset(&mut tree, group, "x", line(2)).unwrap();
    tree.move_link((ROOT_ID, &LinkName::from("g")), (ROOT_ID, &LinkName::from("h"))).unwrap();
    tree.close().unwrap();
    let mut tree = open(dir.path(), WRITE);
    assert_eq!(tree.find_id(id).unwrap(), id);
    assert_eq!(tree.path_of(id), Some(LinkName::from("/h/x")));
    tree.remove_link(ROOT_ID, &LinkName::from("h")).unwrap();
    let new = add_group(&mut tree, ROOT_ID, "new").unwrap();
    assert!(new > id, "ids are never used again");
    assert!(matches!(tree.find_id(id), Err(TreeError::NoId(_))));
}

#[test]
fn names_of_all_kinds_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let long = "n".repeat(5000);
    let names: Vec<LinkName> =
        [".hidden", "a@b", "..", "50%", "new\nline", "höhe", ".@self", ".@links", "x", ".x", long.as_str()]
            .into_iter()
            .map(LinkName::from)
            .chain([LinkName(vec![0xff, 0xfe])])
            .collect();
    for name in &names {
        tree.create_named(NewLink { group: ROOT_ID, name, utf8: true }, line(1).body().unwrap(), false)
            .unwrap();
    }
    tree.close().unwrap();
    let mut tree = open(dir.path(), READ);
    let mut found: Vec<LinkName> = tree.links(ROOT_ID).unwrap().into_iter().map(|row| row.name).collect();
    let mut expected = names.clone();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for name in &names {
        assert!(matches!(tree.find(ROOT_ID, &name.0), Ok(Found::Object(_))), "{name}");
    }
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Tree::create(place(dir.path()), true, pario_container::Hex::default()).unwrap();
    let locked = |write| pario_container::TreeAccess { write, lock: true };
    let error = Tree::open(place(dir.path()), locked(false)).unwrap_err();
    assert_eq!(error.errno(), 11);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    writer.close().unwrap();
    let _first = Tree::open(place(dir.path()), locked(false)).unwrap();
    let _second = Tree::open(place(dir.path()), locked(false)).unwrap();
    assert!(Tree::open(place(dir.path()), locked(true)).is_err());
}

#[test]
fn a_copy_by_files_is_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let id = add_dataset(&mut tree, ROOT_ID, "x", line(2)).unwrap();
    tree.create_attribute(id, attribute("n", 1)).unwrap();
    tree.link_hard(NewLink { group: ROOT_ID, name: &LinkName::from("y"), utf8: true }, id).unwrap();
    tree.write_elements(id, &[(0, 2)], &bytes(&[3, 4])).unwrap();
    tree.close().unwrap();
    let (from, to) = (dir.path().join("a.h5"), tempfile::tempdir().unwrap());
    let done =
        std::process::Command::new("cp").arg("-r").arg(from).arg(to.path().join("a.h5")).status().unwrap();
    assert!(done.success());
    let mut copy = open(to.path(), WRITE);
    let id = find(&mut copy, "y").unwrap();
    assert_eq!(read(&mut copy, id, 2), [3, 4]);
}
