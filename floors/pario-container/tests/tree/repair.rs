//! Verification and repair of damaged trees.

use std::fs;

use pario_container::ROOT_ID;
use pario_container::check::check;

use super::scene::{READ, add_dataset, add_group, bytes, create, dataset, find, gzip, line, open, place};

#[test]
fn a_whole_tree_has_no_findings() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let group = add_group(&mut tree, ROOT_ID, "g").unwrap();
    add_dataset(&mut tree, group, "x", line(4)).unwrap();
    tree.close().unwrap();
    let report = check(place(dir.path()), false).unwrap();
    assert_eq!((report.objects, report.findings.len()), (3, 0));
}

#[test]
fn damage_is_named_and_repair_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    for name in ["a", "b", "c"] {
        add_dataset(&mut tree, ROOT_ID, name, line(4)).unwrap();
    }
    tree.close().unwrap();
    let root = dir.path().join("a.h5");
    let mut links = fs::read(root.join(".@links")).unwrap();
    let second = links.iter().position(|byte| *byte == b'\n').unwrap() + 30;
    links[second] ^= 1;
    fs::write(root.join(".@links"), links).unwrap();
    fs::write(root.join("b"), b"short").unwrap();
    fs::write(root.join("notes.txt"), b"mine").unwrap();
    let report = check(place(dir.path()), false).unwrap();
    assert!(report.findings[0].cause.contains("line 2"), "{report:?}");
    let report = check(place(dir.path()), true).unwrap();
    assert!(
        report.findings.iter().any(|finding| finding.repaired && finding.path == ".@links"),
        "{report:?}"
    );
    assert!(
        report.findings.iter().any(|finding| finding.path == "b" && finding.cause.contains("16 bytes")),
        "{report:?}"
    );
    let mut tree = open(dir.path(), READ);
    assert!(
        find(&mut tree, "b").is_some() && find(&mut tree, "c").is_some() && find(&mut tree, "a").is_none()
    );
    assert!(root.join("notes.txt").exists(), "files of others are left alone");
}

#[test]
fn a_damaged_chunk_is_named_and_others_are_readable() {
    let dir = tempfile::tempdir().unwrap();
    let mut tree = create(dir.path());
    let mut new = dataset(&[2000], &[Some(2000)], Some(&[1000]));
    new.filters = vec![gzip()];
    let id = add_dataset(&mut tree, ROOT_ID, "x", new).unwrap();
    let values: Vec<i32> = (0..2000).collect();
    tree.write_elements(id, &[(0, 2000)], &bytes(&values)).unwrap();
    tree.close().unwrap();
    let path = dir.path().join("a.h5/x");
    let mut stored = fs::read(&path).unwrap();
    stored[10] ^= 1;
    fs::write(&path, stored).unwrap();
    let report = check(place(dir.path()), false).unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].cause.contains("chunk [0]"), "{report:?}");
    let mut tree = open(dir.path(), READ);
    let id = find(&mut tree, "x").unwrap();
    let mut buffer = vec![0; 4000];
    assert!(tree.read_elements(id, &[(0, 1000)], &mut buffer).is_err());
    tree.read_elements(id, &[(1000, 1000)], &mut buffer).unwrap();
    assert_eq!(buffer, bytes(&values[1000..]));
}
