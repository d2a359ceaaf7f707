//! Conformance of [`FileTree`]: the same checks for a local tree, a confined one and a partition.

use std::path::Path;

use pario_core::{AttrChange, FileKind};

use super::*;
use crate::Partition;

/// Runs a check on every implementation, in an empty directory of each.
fn on_every_tree(check: impl Fn(&TreePath)) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["local", "confined"] {
        let root = TreePath::local(dir.path().join(name));
        root.create_dir().unwrap();
        check(&if name == "local" { root } else { root.as_target().unwrap() });
    }
    let root = TreePath::in_partition(&Partition::in_process(2).unwrap(), "/dir");
    root.create_dir().unwrap();
    check(&root);
}

fn child(dir: &TreePath, name: &str) -> TreePath {
    dir.child(name.as_ref())
}

fn write(path: &TreePath, data: &[u8]) {
    let file = NewFile::create(path).unwrap();
    file.write_at(0, data).unwrap();
    file.finish(data.len() as u64, Durability::Closed).unwrap();
    file.publish().unwrap();
}

fn read(path: &TreePath) -> Vec<u8> {
    let file = SourceFile::open(path).unwrap();
    let mut data = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    file.read_exact_at(0, &mut data).unwrap();
    data
}

fn names(dir: &TreePath) -> Vec<String> {
    let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap().name.into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// The result is an error that names the path.
#[track_caller]
fn check_fails<T>(result: TransferResult<T>, path: &TreePath) {
    let Err(error) = result else { panic!("{path}: no error") };
    assert!(error.to_string().contains(&path.to_string()), "{path}: {error}");
}

#[test]
fn a_new_file_appears_whole_and_reads_back() {
    on_every_tree(|dir| {
        let (path, tree) = (child(dir, "file"), &dir.tree);
        assert_eq!(path.stat_if_exists(LinkPolicy::Follow).unwrap(), None);
        let file = NewFile::create(&path).unwrap();
        file.write_at(5, b"world").unwrap();
        file.write_at(0, b"hello").unwrap();
        assert_eq!(path.stat_if_exists(LinkPolicy::Stay).unwrap(), None);
        file.finish(1 << 20, Durability::Stable).unwrap();
        file.publish().unwrap();
        drop(file);
        let stat = path.stat(LinkPolicy::Stay).unwrap();
        assert_eq!((stat.kind, stat.size, stat.mode), (Some(FileKind::File), 1 << 20, 0o600));
        assert_eq!(&read(&path)[..11], b"helloworld\0");
        assert_eq!(SourceFile::open(&path).unwrap().read_at((1 << 20) - 3, &mut [1; 10]).unwrap(), 3);
        assert_eq!(names(dir), ["file"]);
        check_fails(tree.create_new(&path.path), &path);
        check_fails(SourceFile::open(&path).unwrap().read_exact_at(1 << 20, &mut [0]), &path);
    });
}

#[test]
fn directories_are_made_listed_and_removed() {
    on_every_tree(|dir| {
        let (deep, tree) = (child(dir, "a").child("b".as_ref()), &dir.tree);
        check_fails(deep.create_dir(), &deep);
        deep.create_dir_all().unwrap();
        deep.create_dir_all().unwrap();
        deep.create_dir().unwrap();
        check_fails(tree.create_dir(&deep.path), &deep);
        assert!(deep.is_directory().unwrap());
        write(&deep.child("file".as_ref()), b"x");
        let entry = deep.read_dir().unwrap().next().unwrap().unwrap();
        assert_eq!((entry.stat.kind, entry.stat.size), (Some(FileKind::File), 1));
        check_fails(deep.remove_dir(), &deep);
        deep.child("file".as_ref()).remove_file().unwrap();
        deep.remove_dir().unwrap();
        assert_eq!(names(dir), ["a"]);
        let missing = child(dir, "missing");
        check_fails(missing.read_dir(), &missing);
        check_fails(missing.remove_file(), &missing);
        check_fails(missing.stat(LinkPolicy::Stay), &missing);
    });
}

#[test]
fn a_rename_replaces_unless_told_otherwise() {
    on_every_tree(|dir| {
        let (one, two) = (child(dir, "one"), child(dir, "two"));
        write(&one, b"1");
        write(&two, b"2");
        check_fails(one.rename_new(&two), &two);
        one.rename(&two).unwrap();
        assert_eq!((names(dir), read(&two)), (vec!["two".to_owned()], b"1".to_vec()));
        two.rename_new(&one).unwrap();
        assert_eq!(names(dir), ["one"]);
    });
}

#[test]
fn links_say_what_they_were_told_and_are_followed_where_asked() {
    on_every_tree(|dir| {
        let (file, link) = (child(dir, "file"), child(dir, "link"));
        write(&file, b"data");
        link.symlink(Path::new("file")).unwrap();
        assert_eq!(link.read_link().unwrap(), Path::new("file"));
        assert!(link.stat(LinkPolicy::Stay).unwrap().is_link());
        if dir.tree.follows_links() {
            assert_eq!(link.stat(LinkPolicy::Follow).unwrap().size, 4);
            assert!(
                link.behind_links()
                    .unwrap()
                    .stat(LinkPolicy::Stay)
                    .unwrap()
                    .is_same_file(&file.stat(LinkPolicy::Stay).unwrap())
            );
            assert_eq!(read(&link), b"data");
        } else {
            check_fails(SourceFile::open(&link), &link);
            check_fails(link.behind_links(), &link);
        }
        link.remove_file().unwrap();
        assert_eq!(names(dir), ["file"]);
    });
}

#[test]
fn attributes_are_set_and_a_link_keeps_its_bits() {
    on_every_tree(|dir| {
        let (file, link) = (child(dir, "file"), child(dir, "link"));
        write(&file, b"data");
        link.symlink(Path::new("file")).unwrap();
        let before = file.stat(LinkPolicy::Stay).unwrap();
        let times = AttrChange {
            accessed_ns: Some(1_000_000_001),
            modified_ns: Some(2_000_000_002),
            ..AttrChange::default()
        };
        link.set_attr(AttrChange { mode: Some(0o700), ..times }, LinkPolicy::Stay).unwrap();
        assert_eq!(link.stat(LinkPolicy::Stay).unwrap().modified_ns, 2_000_000_002);
        assert_eq!(file.stat(LinkPolicy::Stay).unwrap(), before);
        let wanted = FileStat { mode: 0o640, accessed_ns: 3, modified_ns: 4, ..before };
        file.set_attr(wanted.as_change(), LinkPolicy::Follow).unwrap();
        assert_eq!(file.stat(LinkPolicy::Stay).unwrap(), wanted);
        file.set_mode(0o400).unwrap();
        assert_eq!(file.stat(LinkPolicy::Stay).unwrap(), FileStat { mode: 0o400, ..wanted });
    });
}

#[test]
fn trees_go_between_all_trees_and_are_the_same() {
    on_every_tree(|dir| {
        let (from, to) = (child(dir, "from"), child(dir, "to"));
        child(&from, "sub").create_dir_all().unwrap();
        write(&child(&from, "sub").child("file".as_ref()), &[7; 100_000]);
        child(&from, "link").symlink(Path::new("sub/file")).unwrap();
        let other = TreePath::in_partition(&Partition::in_process(1).unwrap(), "/copy");
        for pair in
            [CopyPair { from: from.clone(), to: other.clone() }, CopyPair { from: other, to: to.clone() }]
        {
            let copied = copy_verified(&pair, &Unobserved).unwrap();
            assert_eq!((copied.files, copied.directories, copied.links, copied.bytes), (1, 2, 1, 100_000));
        }
        let verified = verify(&CopyPair { from, to }, 2, &Unobserved).unwrap();
        assert!(verified.failures.is_empty(), "{:?}", verified.failures);
    });
}

struct StoppingObserver;

impl Observer for StoppingObserver {
    fn is_stopped(&self) -> bool {
        true
    }
}

#[test]
fn a_copy_that_is_stopped_says_so_and_leaves_no_file() {
    on_every_tree(|dir| {
        let (from, to) = (child(dir, "from"), child(dir, "to"));
        write(&from, b"data");
        let stopped = copy(&[CopyPair { from, to }], CopyOptions::default(), &StoppingObserver);
        assert!(matches!(stopped, Err(TransferError::Stopped)), "{stopped:?}");
        assert_eq!(names(dir), ["from"]);
    });
}
