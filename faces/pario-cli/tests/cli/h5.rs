//! HDF5 trees on this machine: `pario h5 ls`, `show`, `cat`, `check`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pario_container::{
    Attribute, ByteOrder, DataSpace, DirectoryPlace, ElementType, Hex, LinkName, LinkTarget, NewDataset,
    NewLink, ObjectBody, ROOT_ID, Tree, TypeRecord,
};

use crate::support::CliFixture;

/// A tree with a group `g`, a dataset `g/x` of 1, -2, 3 with an attribute, and a soft link.
fn make(path: &Path) {
    let mut tree =
        Tree::create(Arc::new(DirectoryPlace::new(path)), true, Hex::default()).expect("a new tree");
    let description = ElementType::Integer { size: 4, signed: true, order: ByteOrder::Little };
    let element = TypeRecord { encoded: Hex(vec![1]), description, size: 4, committed: None };
    let names = [LinkName::from("g"), LinkName::from("x"), LinkName::from("s")];
    let group = ObjectBody::Group { properties: Hex::default() };
    let link = |group, at: usize| NewLink { group, name: &names[at], utf8: true };
    let group = tree.create_named(link(ROOT_ID, 0), group, false).expect("room");
    let new = NewDataset {
        element: element.clone(),
        space: DataSpace::Simple { extent: vec![3], maximum: vec![Some(3)] },
        chunk: None,
        fill: None,
        filters: vec![],
        properties: Hex::default(),
        fill_follows: false,
    };
    let body = new.body().expect("a dataset");
    let id = tree.create_named(link(group, 1), body, false).expect("room");
    let bytes: Vec<u8> = [1_i32, -2, 3].iter().flat_map(|value| value.to_le_bytes()).collect();
    tree.write_elements(id, &[(0, 3)], &bytes).expect("room");
    let value = Hex(7_i32.to_le_bytes().to_vec());
    let attribute = Attribute {
        name: LinkName::from("n"),
        utf8: true,
        order: 0,
        element,
        space: DataSpace::Scalar,
        value,
    };
    tree.create_attribute(id, attribute).expect("room");
    tree.link_other(link(ROOT_ID, 2), LinkTarget::Soft(LinkName::from("/g/x"))).expect("room");
    tree.close().expect("room");
}

#[test]
fn a_tree_is_listed_shown_and_printed() {
    let world = CliFixture::new();
    make(&world.path("a.h5"));
    let text = world.ok(&["h5", "ls", "-r", "a.h5"]);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words,
        [vec!["g", "group"], vec!["g/x", "dataset", "int32", "(3)"], vec!["s", "->", "/g/x"]],
        "{text}"
    );
    assert_eq!(world.ok(&["h5", "cat", "a.h5/s"]), "1\n-2\n3\n");
    assert_eq!(world.ok(&["h5", "cat", "-n", "1", "a.h5/g/x"]), "1\n");
    let text = world.ok(&["h5", "show", "a.h5/g/x"]);
    assert!(text.contains("contiguous") && text.contains("@n (int32) = 7"), "{text}");
    let facts = world.json(&["h5", "cat", "a.h5/g/x"]);
    assert_eq!((facts["extent"][0].as_u64(), facts["elements"][1].as_str()), (Some(3), Some("-2")));
    let told = world.fails(1, &["h5", "cat", "a.h5/g"]);
    assert!(told.contains("not a dataset"), "{told}");
    world.fails(1, &["h5", "ls", "a.h5/none"]);
    let told = world.fails(1, &["h5", "ls", "elsewhere"]);
    assert!(told.contains("not in an HDF5 tree"), "{told}");
}

#[test]
fn damage_of_a_tree_is_told_and_repaired() {
    let world = CliFixture::new();
    make(&world.path("a.h5"));
    world.ok(&["h5", "check", "a.h5"]);
    let links = world.path("a.h5/.@links");
    let mut bytes = fs::read(&links).unwrap();
    let end = bytes.len();
    bytes[end - 20] ^= 1;
    fs::write(&links, bytes).unwrap();
    let output = world.command().args(["h5", "check", "a.h5"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(3) && told.contains("line 3"), "{told}");
    world.ok(&["h5", "check", "--repair", "a.h5"]);
    world.ok(&["h5", "check", "a.h5"]);
    assert!(world.ok(&["h5", "ls", "a.h5"]).starts_with("g "), "what is intact stays");
}
