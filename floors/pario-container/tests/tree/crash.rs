//! Writers that die at every change of storage: the tree opens, and holds what had returned.

use std::path::Path;
use std::sync::Arc;

use pario_container::check::check;
use pario_container::{Hex, LimitedPlace, LinkName, NewLink, ROOT_ID, Result, Tree, TreeAccess};

use super::scene::{
    Random, WRITE, add_dataset, add_group, attribute, bytes, create, dataset, find, gzip, line, open, place,
    read, seed,
};

/// Runs `act` on a tree made by `prepare`, once for every number of changes that succeed, and `judge`s what is left. `judge`
/// gets whether the act had returned.
fn at_every_step(prepare: fn(&mut Tree), act: fn(&mut Tree) -> Result<()>, judge: fn(&mut Tree, bool)) {
    for changes in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = create(dir.path());
        prepare(&mut tree);
        tree.close().unwrap();
        let limited = Arc::new(LimitedPlace::new(dir.path().join("a.h5"), changes));
        // Died while opening: nothing was done.
        let returned = Tree::open(limited, WRITE).and_then(|mut tree| act(&mut tree)).is_ok();
        // A reader that locks comes first; it finishes a journal too.
        std::fs::write(dir.path().join("a.h5/.@lock"), "").unwrap();
        drop(Tree::open(place(dir.path()), TreeAccess { write: false, lock: true }).unwrap());
        let mut tree = open(dir.path(), WRITE);
        judge(&mut tree, returned);
        tree.close().unwrap();
        let report = check(place(dir.path()), false).unwrap();
        assert_eq!(report.findings, [], "after {changes} changes");
        if returned {
            assert!(changes > 2, "the act makes changes");
            return;
        }
    }
    panic!("200 changes were not enough");
}

#[test]
fn create_dataset() {
    at_every_step(
        |_| (),
        |tree| {
            let id = add_dataset(tree, ROOT_ID, "x", line(4))?;
            tree.write_elements(id, &[(0, 4)], &bytes(&[1, 2, 3, 4]))
        },
        |tree, returned| {
            let Some(id) = find(tree, "x") else { return assert!(!returned) };
            let found = read(tree, id, 4);
            if returned {
                assert_eq!(found, [1, 2, 3, 4]);
            }
        },
    );
}

#[test]
fn create_without_a_name_and_link() {
    at_every_step(
        |tree| {
            add_group(tree, ROOT_ID, "g").unwrap();
        },
        |tree| {
            let group = find(tree, "g").unwrap();
            for (name, chunk) in [("x", None), ("y", Some(&[2][..]))] {
                let mut new = dataset(&[4], &[Some(4)], chunk);
                new.filters = chunk.map(|_| gzip()).into_iter().collect();
                let id = tree.create_anonymous(new.body()?, false)?;
                tree.write_elements(id, &[(0, 4)], &bytes(&[1, 2, 3, 4]))?;
                tree.create_attribute(id, attribute("n", 3))?;
                tree.link_hard(NewLink { group, name: &LinkName::from(name), utf8: true }, id)?;
                tree.create_attribute(id, attribute("m", 4))?;
            }
            Ok(())
        },
        |tree, returned| {
            for name in ["g/x", "g/y"] {
                let Some(id) = find(tree, name) else { return assert!(!returned) };
                assert_eq!(read(tree, id, 4), [1, 2, 3, 4], "data came before the name");
                let header = tree.header(id).unwrap();
                assert_eq!(header.links, 1);
                assert_eq!(header.attributes[0].value.0, 3_i32.to_le_bytes());
                assert!(header.attributes.len() == 2 || !returned);
            }
        },
    );
}

#[test]
fn a_name_that_cannot_be_written_leaves_the_object_usable() {
    for changes in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path()).close().unwrap();
        let limited = Arc::new(LimitedPlace::new(dir.path().join("a.h5"), changes));
        let Ok(mut tree) = Tree::open(limited.clone(), WRITE) else { continue };
        let Ok(id) = tree.create_anonymous(line(2).body().unwrap(), false) else { continue };
        let name = LinkName::from("x");
        let named = tree.link_hard(NewLink { group: ROOT_ID, name: &name, utf8: true }, id);
        assert_eq!(named.is_ok(), find(&mut tree, "x").is_some());
        if named.is_ok() {
            return assert!(changes > 2);
        }
        assert_eq!(tree.header(id).unwrap().links, 0);
        assert_eq!(read(&mut tree, id, 2), [0, 0]);
    }
    panic!("60 changes were not enough");
}

#[test]
fn a_removal_that_died_leaves_no_elements_to_the_next_dataset_of_that_name() {
    at_every_step(
        |tree| {
            let id = add_dataset(tree, ROOT_ID, "x", line(2)).unwrap();
            tree.write_elements(id, &[(0, 2)], &bytes(&[7, 8])).unwrap();
        },
        |tree| tree.remove_link(ROOT_ID, &LinkName::from("x")),
        |tree, returned| {
            if find(tree, "x").is_none() {
                let id = add_dataset(tree, ROOT_ID, "x", line(2)).unwrap();
                assert_eq!(read(tree, id, 2), [0, 0]);
            } else {
                assert!(!returned);
            }
        },
    );
}

#[test]
fn remove_group_with_contents() {
    at_every_step(
        |tree| {
            let group = add_group(tree, ROOT_ID, "g").unwrap();
            add_dataset(tree, group, "x", line(4)).unwrap();
            let inner = add_group(tree, group, "inner").unwrap();
            let shared = add_dataset(tree, inner, "y", line(4)).unwrap();
            tree.link_hard(NewLink { group: ROOT_ID, name: &LinkName::from("also y"), utf8: true }, shared)
                .unwrap();
        },
        |tree| tree.remove_link(ROOT_ID, &LinkName::from("g")),
        |tree, returned| {
            let there = find(tree, "g").is_some();
            assert!(!(there && returned));
            assert!(find(tree, "also y").is_some(), "a second name keeps the object");
            if there {
                assert!(find(tree, "g/x").is_some() && find(tree, "g/inner/y").is_some(), "all or nothing");
            }
        },
    );
}

#[test]
fn move_group() {
    at_every_step(
        |tree| {
            let group = add_group(tree, ROOT_ID, "g").unwrap();
            add_dataset(tree, group, "x", line(2)).unwrap();
            add_group(tree, ROOT_ID, "target").unwrap();
        },
        |tree| {
            let target = find(tree, "target").unwrap();
            tree.move_link((ROOT_ID, &LinkName::from("g")), (target, &LinkName::from("new")))
        },
        |tree, returned| {
            let (old, new) = (find(tree, "g/x").is_some(), find(tree, "target/new/x").is_some());
            assert!(old != new, "one name exactly: old {old}, new {new}");
            assert!(new || !returned);
        },
    );
}

#[test]
fn second_name() {
    at_every_step(
        |tree| {
            let group = add_group(tree, ROOT_ID, "g").unwrap();
            let id = add_dataset(tree, group, "x", line(2)).unwrap();
            tree.write_elements(id, &[(0, 2)], &bytes(&[7, 8])).unwrap();
        },
        |tree| {
            let id = find(tree, "g/x").unwrap();
            tree.link_hard(NewLink { group: ROOT_ID, name: &LinkName::from("y"), utf8: true }, id)
        },
        |tree, returned| {
            let first = find(tree, "g/x").expect("the first name stays");
            assert_eq!(read(tree, first, 2), [7, 8]);
            let second = find(tree, "y");
            assert!(second.is_none() || second == Some(first));
            assert!(second.is_some() || !returned);
            assert_eq!(tree.header(first).unwrap().links, if second.is_some() { 2 } else { 1 });
        },
    );
}

#[test]
fn chunks_with_filters() {
    at_every_step(
        |tree| {
            let mut new = dataset(&[8], &[None], Some(&[4]));
            new.filters = vec![gzip()];
            let id = add_dataset(tree, ROOT_ID, "x", new).unwrap();
            tree.write_elements(id, &[(0, 8)], &bytes(&[1; 8])).unwrap();
        },
        |tree| {
            let id = find(tree, "x").unwrap();
            tree.write_elements(id, &[(0, 8)], &bytes(&[2; 8]))?;
            tree.flush()
        },
        |tree, returned| {
            let id = find(tree, "x").unwrap();
            for chunk in read(tree, id, 8).chunks(4) {
                assert!(chunk == [1; 4] || chunk == [2; 4], "old or new, never half: {chunk:?}");
                assert!(chunk == [2; 4] || !returned);
            }
        },
    );
}

#[test]
fn shrink_and_grow() {
    at_every_step(
        |tree| {
            let id = add_dataset(tree, ROOT_ID, "x", dataset(&[10], &[None], Some(&[4]))).unwrap();
            tree.write_elements(id, &[(0, 10)], &bytes(&[5; 10])).unwrap();
        },
        |tree| {
            let id = find(tree, "x").unwrap();
            tree.set_extent(id, &[3])
        },
        |tree, returned| {
            let id = find(tree, "x").unwrap();
            let extent = tree.header(id).unwrap().dataset().unwrap().space.elements();
            assert!(extent == 3 || (extent == 10 && !returned));
            assert_eq!(read(tree, id, extent), vec![5; usize::try_from(extent).unwrap()]);
            tree.set_extent(id, &[10]).unwrap();
            if extent == 3 {
                assert_eq!(read(tree, id, 10)[3..], [0; 7], "what was outside reads as the fill value");
            }
        },
    );
}

#[test]
fn copy_of_a_group() {
    at_every_step(
        |tree| {
            let group = add_group(tree, ROOT_ID, "g").unwrap();
            let id = add_dataset(tree, group, "x", line(2)).unwrap();
            tree.write_elements(id, &[(0, 2)], &bytes(&[7, 8])).unwrap();
            tree.create_attribute(id, attribute("n", 3)).unwrap();
        },
        |tree| {
            let id = find(tree, "g").unwrap();
            let source = tree.copy_source(id, pario_container::ObjectCopyOptions::default())?;
            tree.paste(NewLink { group: ROOT_ID, name: &LinkName::from("copy"), utf8: true }, &source)
                .map(|_| ())
        },
        |tree, returned| {
            assert!(find(tree, "g/x").is_some());
            let copy = find(tree, "copy");
            assert!(copy.is_some() || !returned);
            if copy.is_some() {
                let id = find(tree, "copy/x").expect("whole or not there");
                assert_eq!(read(tree, id, 2), [7, 8]);
                assert_eq!(tree.header(id).unwrap().attributes.len(), 1);
            }
        },
    );
}

/// Names and first values of all datasets.
fn contents(tree: &mut Tree) -> Vec<(String, i32)> {
    let mut found = Vec::new();
    for row in tree.links(ROOT_ID).unwrap() {
        let id = find(tree, &row.name.to_string()).unwrap();
        let first = read(tree, id, 4)[0];
        found.push((row.name.to_string(), first));
    }
    found
}

fn change(tree: &mut Tree, random: &mut Random, model: &mut Vec<(String, i32)>) -> Result<()> {
    let name = format!("d{}", random.below(6));
    let known = model.iter().position(|(known, _)| *known == name);
    match (random.below(4), known) {
        (0, Some(at)) => {
            tree.remove_link(ROOT_ID, &LinkName::from(name.as_str()))?;
            model.remove(at);
        }
        (1, Some(at)) => {
            let new = format!("m{}", random.below(1000));
            if model.iter().all(|(known, _)| *known != new) {
                tree.move_link(
                    (ROOT_ID, &LinkName::from(name.as_str())),
                    (ROOT_ID, &LinkName::from(new.as_str())),
                )?;
                model[at].0 = new;
            }
        }
        (_, Some(at)) => {
            let value = i32::try_from(random.below(1000)).unwrap();
            let id = find(tree, &name).unwrap();
            tree.write_elements(id, &[(0, 4)], &bytes(&[value; 4]))?;
            model[at].1 = value;
        }
        (_, None) => {
            add_dataset(tree, ROOT_ID, &name, line(4))?;
            model.push((name, 0));
        }
    }
    Ok(())
}

#[test]
fn random_programs_that_die_keep_what_had_returned() {
    let mut random = Random(seed());
    for _ in 0..120 {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path()).close().unwrap();
        let limited = Arc::new(LimitedPlace::new(dir.path().join("a.h5"), 3 + random.below(120)));
        let mut model = Vec::new();
        let mut before = Vec::new();
        let mut tree = Tree::open(limited, WRITE).unwrap();
        while change(&mut tree, &mut random, &mut model).is_ok() {
            before.clone_from(&model);
        }
        drop(tree);
        let mut tree = open(dir.path(), WRITE);
        let mut found = contents(&mut tree);
        found.sort();
        before.sort();
        // The change that failed may have taken effect: at most one name differs.
        let differing = found.iter().filter(|one| !before.contains(one)).count()
            + before.iter().filter(|one| !found.contains(one)).count();
        assert!(differing <= 2, "{before:?} became {found:?}");
        tree.close().unwrap();
        assert_eq!(check(place(dir.path()), false).unwrap().findings, []);
    }
}

#[test]
fn a_tree_whose_creation_died_is_no_tree_and_can_be_created() {
    for changes in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let limited = Arc::new(LimitedPlace::new(dir.path().join("a.h5"), changes));
        if Tree::create(limited, false, Hex::default()).is_ok() {
            return assert!(changes > 2);
        }
        if !is_tree(dir.path()) {
            let mut tree = create(dir.path());
            add_group(&mut tree, ROOT_ID, "g").unwrap();
            tree.close().unwrap();
        }
        assert!(open(dir.path(), WRITE).links(ROOT_ID).is_ok());
    }
    panic!("20 changes were not enough");
}

fn is_tree(dir: &Path) -> bool {
    pario_container::is_tree(&*place(dir)).unwrap()
}
