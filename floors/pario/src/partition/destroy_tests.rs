//! What goes and what stays.

use super::*;
use crate::partition::entry::tests::sample;
use crate::partition::identity::{DirectoryRole, StartMode};
use pario_core::ServerIndex;

const ID: PartitionId = PartitionId([1; 16]);

fn hold(dir: &Path, server: u16, missing: u32) -> HeldDirectory {
    let wanted = Identity::wanted(&sample("x", 4).settings, ID, ServerIndex(server), DirectoryRole::Store);
    Identity { made_directories: missing, ..wanted }.hold(dir, StartMode::Fresh).unwrap()
}

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("objects/ab")).unwrap();
    fs::write(dir.join("objects/ab/1"), "data").unwrap();
    fs::create_dir_all(dir.join("sums/ab")).unwrap();
    fs::write(dir.join("sums/ab/1"), "checksums").unwrap();
    fs::create_dir(dir.join("names")).unwrap();
    fs::write(dir.join("log"), "").unwrap();
}

#[test]
fn nothing_is_left_of_directories_that_were_made() {
    let root = tempfile::tempdir().unwrap();
    let dirs: Vec<PathBuf> = (0..4).map(|server| root.path().join(format!("new/x/{server}"))).collect();
    for (dir, server) in dirs.iter().zip(0..) {
        drop(hold(dir, server, 3));
        fill(dir);
    }
    destroy_all(&dirs, ID).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    destroy_all(&dirs, ID).unwrap();
}

#[test]
fn the_last_server_to_go_takes_the_directories_above_along() {
    let root = tempfile::tempdir().unwrap();
    let holds: Vec<HeldDirectory> =
        (0..3).map(|server| hold(&root.path().join(format!("new/{server}")), server, 2)).collect();
    for hold in holds {
        hold.undo().unwrap();
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn what_others_put_there_stays() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("d");
    drop(hold(&dir, 0, 1));
    fill(&dir);
    fs::write(dir.join("notes.txt"), "mine").unwrap();
    destroy(&dir, ID).unwrap();
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn a_directory_that_was_there_before_stays() {
    let root = tempfile::tempdir().unwrap();
    let held = hold(root.path(), 0, 0);
    fill(root.path());
    held.destroy().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn links_go_but_not_what_they_lead_to() {
    let root = tempfile::tempdir().unwrap();
    let precious = root.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("thesis"), "").unwrap();
    let dir = root.path().join("d");
    drop(hold(&dir, 0, 1));
    std::os::unix::fs::symlink(&precious, dir.join("objects")).unwrap();
    destroy(&dir, ID).unwrap();
    assert!(precious.join("thesis").exists());
    assert!(!dir.exists());
}

#[test]
fn another_partition_and_a_served_directory_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let held = hold(root.path(), 0, 0);
    fill(root.path());
    assert!(matches!(destroy(root.path(), ID), Err(IdentityError::Served { .. })));
    drop(held);
    let error = destroy(root.path(), PartitionId([9; 16])).unwrap_err();
    assert!(matches!(error, IdentityError::Foreign { .. }));
    assert!(root.path().join("objects/ab/1").exists());
}

#[test]
fn undo_leaves_alone_what_was_found() {
    let root = tempfile::tempdir().unwrap();
    drop(hold(root.path(), 0, 0));
    fill(root.path());
    let found = hold(root.path(), 0, 0);
    assert!(!found.created);
    found.undo().unwrap();
    assert!(root.path().join("objects/ab/1").exists());
    assert!(root.path().join(IDENTITY_FILE).exists());
}
