//! What every place does, on a plain directory and in a partition.

use std::sync::Arc;

use pario_container::check::check;
use pario_container::{
    DirectoryPlace, Hex, LimitedPlace, LinkName, NewLink, PartitionPlace, Place, PlaceEntry, ROOT_ID, Tree,
    TreeError,
};

use super::scene::{WRITE, add_dataset, add_group, bytes, find, line, read};

/// Runs a test on both places; `make` gives a place of the same directory each time.
fn on_both(test: fn(&dyn Fn() -> Arc<dyn Place>)) {
    let dir = tempfile::tempdir().unwrap();
    test(&|| Arc::new(DirectoryPlace::new(dir.path().join("a.h5"))));
    let partition = pario::Partition::in_process(2).unwrap();
    test(&|| Arc::new(PartitionPlace::new(partition.clone(), "/a.h5")));
}

#[test]
fn files_names_and_locks() {
    on_both(|make| {
        let place = make();
        assert!(place.identity().unwrap().is_none() && place.kind("").unwrap().is_none());
        place.create_dir("").unwrap();
        place.create_dir("").unwrap();
        assert_eq!(place.identity().unwrap(), make().identity().unwrap());
        assert_eq!(place.read("x").unwrap(), None);
        assert!(place.open("x", false).is_err());
        place.write_new("x", b"old").unwrap();
        place.write_new("x", b"new!").unwrap();
        assert_eq!(place.read("x").unwrap().unwrap(), b"new!");
        let file = place.create("x").unwrap();
        file.write_at(2, b"ab").unwrap();
        place.rename("x", "y").unwrap();
        file.write_at(4, b"c").unwrap();
        assert_eq!(make().read("y").unwrap().unwrap(), b"\0\0abc", "an open file stays open");
        file.set_size(8).unwrap();
        let mut buffer = [9; 10];
        assert_eq!((file.read_at(1, &mut buffer).unwrap(), file.size().unwrap()), (7, 8));
        place.create_dir("d").unwrap();
        place.write_new("d/z", b"").unwrap();
        place.symlink("d/z", "s").unwrap();
        place.symlink("y", "s").unwrap();
        let names = [("d", PlaceEntry::Directory), ("s", PlaceEntry::Symlink), ("y", PlaceEntry::File)];
        assert_eq!(place.list("").unwrap(), names.map(|(name, kind)| (name.to_owned(), kind)));
        place.remove_tree("d").unwrap();
        place.remove_tree("d").unwrap();
        place.remove_file("s").unwrap();
        place.remove_file("s").unwrap();
        assert_eq!(place.list("").unwrap().len(), 1);
        place.lock(true).unwrap();
        let other = make();
        assert!(
            matches!(other.lock(false), Err(TreeError::Busy { holder, .. }) if holder.contains("process"))
        );
        place.lock(false).unwrap();
        other.lock(false).unwrap();
        assert!(matches!(make().lock(true), Err(TreeError::Busy { .. })));
    });
}

#[test]
fn a_writer_that_dies_at_any_change_leaves_a_whole_tree() {
    on_both(|make| {
        Tree::create(make(), false, Hex::default()).unwrap().close().unwrap();
        let act = |tree: &mut Tree, round: u64| {
            let name = LinkName::from(format!("g{round}").as_str());
            let group = add_group(tree, ROOT_ID, "new")?;
            let id = add_dataset(tree, group, "x", line(2))?;
            tree.write_elements(id, &[(0, 2)], &bytes(&[7, 8]))?;
            tree.link_hard(NewLink { group: ROOT_ID, name: &name, utf8: true }, id)?;
            tree.remove_link(ROOT_ID, &LinkName::from("new"))
        };
        for changes in 0..100 {
            let limited = Arc::new(LimitedPlace::over(make(), changes));
            let done = Tree::open(limited, WRITE).and_then(|mut tree| act(&mut tree, changes)).is_ok();
            let mut tree = Tree::open(make(), WRITE).unwrap();
            if let Some(id) = find(&mut tree, &format!("g{changes}")) {
                assert_eq!(read(&mut tree, id, 2), [7, 8]);
            }
            if find(&mut tree, "new").is_some() {
                tree.remove_link(ROOT_ID, &LinkName::from("new")).unwrap();
            }
            tree.close().unwrap();
            assert_eq!(check(make(), false).unwrap().findings, [], "after {changes} changes");
            if done {
                return assert!(changes > 5);
            }
        }
        panic!("100 changes were not enough");
    });
}
