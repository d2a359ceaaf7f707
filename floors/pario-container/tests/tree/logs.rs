//! Logs that were cut or changed at any byte.

use std::fs;

use pario_container::{Hex, LinkName, NewLink, ROOT_ID, Tree, TreeError};

use super::scene::{READ, WRITE, add_dataset, add_group, attribute, create, find, line, open, place};

#[test]
fn a_link_table_cut_at_any_byte_gives_the_links_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let names = ["a", "b", "c", "d"];
    let path = dir.path().join("a.h5/.@links");
    let mut ends = vec![fs::metadata(&path).unwrap().len()];
    for name in names {
        add_group(&mut tree, ROOT_ID, name).unwrap();
        ends.push(fs::metadata(&path).unwrap().len());
    }
    tree.close().unwrap();
    let whole = fs::read(&path).unwrap();
    let first = usize::try_from(ends[0]).unwrap();
    for cut in first..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut tree = open(dir.path(), READ);
        let expected = ends[1..].iter().filter(|end| usize::try_from(**end).unwrap() <= cut).count();
        let found: Vec<String> =
            tree.links(ROOT_ID).unwrap().iter().map(|row| row.name.to_string()).collect();
        assert_eq!(found, names[..expected], "cut at {cut}");
    }
}

#[test]
fn a_writer_goes_on_after_a_torn_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    add_group(&mut tree, ROOT_ID, "a").unwrap();
    tree.close().unwrap();
    let path = dir.path().join("a.h5/.@links");
    let whole = fs::read(&path).unwrap();
    for lost in 1..60 {
        fs::write(&path, &whole[..whole.len() - lost]).unwrap();
        let mut tree = open(dir.path(), WRITE);
        add_group(&mut tree, ROOT_ID, "b").unwrap();
        tree.close().unwrap();
        let mut tree = open(dir.path(), READ);
        let found: Vec<String> =
            tree.links(ROOT_ID).unwrap().iter().map(|row| row.name.to_string()).collect();
        assert_eq!(found, ["b"], "{lost} bytes lost");
        fs::remove_dir_all(dir.path().join("a.h5/b")).unwrap();
    }
}

#[test]
fn a_header_cut_at_any_byte_gives_the_attributes_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let id = add_dataset(&mut tree, ROOT_ID, "x", line(3)).unwrap();
    let path = dir.path().join("a.h5/.x");
    let mut ends = vec![fs::metadata(&path).unwrap().len()];
    for number in 0..3 {
        tree.create_attribute(id, attribute(&format!("n{number}"), number)).unwrap();
        ends.push(fs::metadata(&path).unwrap().len());
    }
    tree.close().unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in usize::try_from(ends[0]).unwrap()..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut tree = open(dir.path(), READ);
        let id = find(&mut tree, "x").unwrap();
        let expected = ends[1..].iter().filter(|end| usize::try_from(**end).unwrap() <= cut).count();
        assert_eq!(tree.header(id).unwrap().attributes.len(), expected, "cut at {cut}");
    }
}

#[test]
fn a_changed_byte_is_an_error_that_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    for name in ["a", "b", "c"] {
        add_group(&mut tree, ROOT_ID, name).unwrap();
    }
    tree.close().unwrap();
    let path = dir.path().join("a.h5/.@links");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let mut tree = open(dir.path(), READ);
        let line = 1 + whole[..at].iter().filter(|byte| **byte == b'\n').count();
        match tree.links(ROOT_ID) {
            Err(TreeError::Damaged { path, line: found, .. }) => {
                assert_eq!((path.as_str(), found), (".@links", line), "byte {at}");
            }
            // Without its newline the last line is a torn one.
            Ok(rows) => assert!(damaged[at] != b'\n' && whole[at] == b'\n' && rows.len() == 2, "byte {at}"),
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn a_long_life_does_not_grow_headers_and_tables_without_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let id = add_dataset(&mut tree, ROOT_ID, "x", line(3)).unwrap();
    tree.create_attribute(id, attribute("n", 0)).unwrap();
    for number in 0_i32..2000 {
        tree.write_attribute(id, &LinkName::from("n"), number.to_le_bytes().to_vec()).unwrap();
        let soft = pario_container::LinkTarget::Soft(LinkName::from("x"));
        tree.link_other(NewLink { group: ROOT_ID, name: &LinkName::from("s"), utf8: true }, soft).unwrap();
        tree.remove_link(ROOT_ID, &LinkName::from("s")).unwrap();
    }
    tree.close().unwrap();
    for file in [".x", ".@links"] {
        let size = fs::metadata(dir.path().join("a.h5").join(file)).unwrap().len();
        assert!(size < 100_000, "{file} has {size} bytes");
    }
    let mut tree = open(dir.path(), READ);
    let id = find(&mut tree, "x").unwrap();
    assert_eq!(tree.attribute(id, &LinkName::from("n")).unwrap().value, Hex(1999_i32.to_le_bytes().to_vec()));
}

#[test]
fn a_newer_format_and_a_plain_directory_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("a.h5")).unwrap();
    let error = Tree::open(place(dir.path()), READ).unwrap_err().to_string();
    assert!(error.contains("not an HDF5 tree of Pario"), "{error}");
}
