//! LOOKUP, CREATE, MKDIR, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use nfs3_client::nfs3_types::nfs3::{
    CREATE3args, LINK3args, LOOKUP3args, MKNOD3args, Nfs3Option, REMOVE3args, RENAME3args, RMDIR3args,
    createhow3, createverf3, devicedata3, ftype3, mknoddata3, nfs_fh3, nfsstat3, sattr3, specdata3,
    stable_how,
};

use crate::client::{ExportedPartition, NfsUser, now, place, plain, stale, with_mode};

fn create(user: &mut NfsUser, name: &str, how: createhow3) -> Result<nfs_fh3, nfsstat3> {
    let args = CREATE3args { where_: place(&user.root, name), how };
    plain(now(user.nfs.create(&args)).unwrap()).map(|made| made.obj.unwrap())
}

fn remove(user: &mut NfsUser, name: &str) -> Result<(), nfsstat3> {
    let object = place(&user.root, name);
    plain(now(user.nfs.remove(&REMOVE3args { object })).unwrap()).map(drop)
}

fn remove_dir(user: &mut NfsUser, name: &str) -> Result<(), nfsstat3> {
    let object = place(&user.root, name);
    plain(now(user.nfs.rmdir(&RMDIR3args { object })).unwrap()).map(drop)
}

fn rename(
    user: &mut NfsUser,
    (from_dir, from): (&nfs_fh3, &str),
    (to_dir, to): (&nfs_fh3, &str),
) -> Result<(), nfsstat3> {
    let args = RENAME3args { from: place(from_dir, from), to: place(to_dir, to) };
    plain(now(user.nfs.rename(&args)).unwrap()).map(drop)
}

#[test]
fn names_are_looked_up() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let (root, dir) = (user.root.clone(), user.make_dir("d", 0o755).unwrap());
    let file = user.create_in(&dir, "f", 0o644).unwrap();
    assert_eq!(user.lookup(&dir, "f").unwrap(), file);
    assert_eq!(user.lookup(&dir, ".").unwrap(), dir);
    assert_eq!(user.lookup(&dir, "..").unwrap(), root);
    assert_eq!(user.lookup(&root, "..").unwrap(), root);
    let found = now(user.nfs.lookup(&LOOKUP3args { what: place(&dir, "f") })).unwrap();
    let found = plain(found).unwrap();
    assert_eq!(
        (found.obj_attributes.unwrap().mode, found.dir_attributes.unwrap().type_),
        (0o644, ftype3::NF3DIR)
    );
    for (dir, name, status) in [
        (&dir, "none", nfsstat3::NFS3ERR_NOENT),
        (&dir, "a/b", nfsstat3::NFS3ERR_INVAL),
        (&dir, "", nfsstat3::NFS3ERR_INVAL),
        (&file, "f", nfsstat3::NFS3ERR_NOTDIR),
        (&stale(&root), "f", nfsstat3::NFS3ERR_STALE),
    ] {
        assert_eq!(user.lookup(dir, name).unwrap_err(), status, "{name}");
    }
    let long = "n".repeat(256);
    assert_eq!(user.lookup(&dir, &long).unwrap_err(), nfsstat3::NFS3ERR_NAMETOOLONG);
}

#[test]
fn files_are_created_in_three_ways() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let file = create(&mut user, "f", createhow3::UNCHECKED(with_mode(0o604))).unwrap();
    assert_eq!(user.attributes(&file).unwrap().mode, 0o604);
    user.write(&file, 0, b"abc", stable_how::FILE_SYNC).unwrap();
    // Again: the same file; with a length of 0 it is truncated.
    assert_eq!(create(&mut user, "f", createhow3::UNCHECKED(with_mode(0o777))).unwrap(), file);
    assert_eq!((user.attributes(&file).unwrap().mode, user.attributes(&file).unwrap().size), (0o604, 3));
    let empty = sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() };
    assert_eq!(create(&mut user, "f", createhow3::UNCHECKED(empty)).unwrap(), file);
    assert_eq!(user.attributes(&file).unwrap().size, 0);
    let guarded = create(&mut user, "f", createhow3::GUARDED(with_mode(0o600)));
    assert_eq!(guarded.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    let exclusive = |verifier| createhow3::EXCLUSIVE(createverf3(verifier));
    let one = create(&mut user, "x", exclusive([1, 2, 3, 4, 5, 6, 7, 8])).unwrap();
    assert_eq!(create(&mut user, "x", exclusive([1, 2, 3, 4, 5, 6, 7, 8])).unwrap(), one, "sent again");
    let other = create(&mut user, "x", exclusive([1, 2, 3, 4, 5, 6, 7, 9]));
    assert_eq!(other.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    user.make_dir("d", 0o755).unwrap();
    let over = create(&mut user, "d", createhow3::UNCHECKED(with_mode(0o600)));
    assert_eq!(over.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(create(&mut user, "..", exclusive([0; 8])).unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(create(&mut user, "a/b", exclusive([0; 8])).unwrap_err(), nfsstat3::NFS3ERR_INVAL);
}

#[test]
fn attributes_around_a_creation_enclose_it() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let root = user.root.clone();
    for name in ["one", "two"] {
        let known = user.attributes(&root).unwrap();
        let args = CREATE3args { where_: place(&root, name), how: createhow3::GUARDED(with_mode(0o600)) };
        let around = plain(now(user.nfs.create(&args)).unwrap()).unwrap().dir_wcc;
        let (Nfs3Option::Some(before), Nfs3Option::Some(after)) = (around.before, around.after) else {
            panic!("a lone creation has attributes before and after");
        };
        assert_eq!((before.size, before.mtime, before.ctime), (known.size, known.mtime, known.ctime));
        assert!(before.mtime != after.mtime && after.size == before.size + 1);
    }
}

#[test]
fn directories_and_special_files_are_made() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let dir = user.make_dir("d", 0o1777).unwrap();
    assert_eq!(
        (user.attributes(&dir).unwrap().type_, user.attributes(&dir).unwrap().mode),
        (ftype3::NF3DIR, 0o1777)
    );
    assert_eq!(user.make_dir("d", 0o755).unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    let device =
        || devicedata3 { dev_attributes: with_mode(0o600), spec: specdata3 { specdata1: 8, specdata2: 300 } };
    let make = |user: &mut NfsUser, name, what| {
        let args = MKNOD3args { where_: place(&dir, name), what };
        plain(now(user.nfs.mknod(&args)).unwrap()).map(|made| made.obj.unwrap())
    };
    for (name, what, kind) in [
        ("pipe", mknoddata3::NF3FIFO(with_mode(0o600)), ftype3::NF3FIFO),
        ("socket", mknoddata3::NF3SOCK(with_mode(0o600)), ftype3::NF3SOCK),
        ("block", mknoddata3::NF3BLK(device()), ftype3::NF3BLK),
        ("char", mknoddata3::NF3CHR(device()), ftype3::NF3CHR),
    ] {
        let made = make(&mut user, name, what).unwrap();
        let attr = user.attributes(&made).unwrap();
        let is_device = matches!(kind, ftype3::NF3BLK | ftype3::NF3CHR);
        let number = if is_device { device().spec } else { specdata3::default() };
        assert_eq!((attr.type_, attr.size, attr.rdev), (kind, 0, number));
    }
    let again = make(&mut user, "pipe", mknoddata3::NF3FIFO(with_mode(0o600)));
    assert_eq!(again.unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    let mut other = exported.user(5, 5, &[]);
    let refused = make(&mut other, "mine", mknoddata3::NF3BLK(device()));
    assert_eq!(refused.unwrap_err(), nfsstat3::NFS3ERR_PERM);
}

#[test]
fn names_are_removed() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let dir = user.make_dir("d", 0o755).unwrap();
    let file = user.create_in(&dir, "inner", 0o644).unwrap();
    let top = user.create("f", 0o644).unwrap();
    user.write(&top, 0, b"abc", stable_how::UNSTABLE).unwrap();
    assert_eq!(remove(&mut user, "d"), Err(nfsstat3::NFS3ERR_ISDIR));
    assert_eq!(remove_dir(&mut user, "f"), Err(nfsstat3::NFS3ERR_NOTDIR));
    assert_eq!(remove_dir(&mut user, "d"), Err(nfsstat3::NFS3ERR_NOTEMPTY));
    assert_eq!(remove_dir(&mut user, "."), Err(nfsstat3::NFS3ERR_INVAL));
    assert_eq!(remove(&mut user, "none"), Err(nfsstat3::NFS3ERR_NOENT));
    remove(&mut user, "f").unwrap();
    assert_eq!(user.lookup(&user.root.clone(), "f").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
    exported.partition.remove_file("/d/inner").unwrap();
    remove_dir(&mut user, "d").unwrap();
    assert_eq!(user.attributes(&dir).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(user.attributes(&file).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn names_are_changed() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let (root, dir) = (user.root.clone(), user.make_dir("d", 0o755).unwrap());
    let file = user.create("f", 0o644).unwrap();
    let replaced = user.create_in(&dir, "g", 0o644).unwrap();
    user.write(&replaced, 0, b"old", stable_how::UNSTABLE).unwrap();
    rename(&mut user, (&root, "f"), (&dir, "g")).unwrap();
    assert_eq!(user.lookup(&dir, "g").unwrap(), file);
    assert_eq!(user.lookup(&root, "f").unwrap_err(), nfsstat3::NFS3ERR_NOENT);
    rename(&mut user, (&dir, "g"), (&dir, "h")).unwrap();
    assert!(exported.partition.metadata("/d/h").is_ok());
    for (from, to, status) in [
        ((&root, "none"), (&root, "x"), nfsstat3::NFS3ERR_NOENT),
        ((&dir, "h"), (&root, "d"), nfsstat3::NFS3ERR_ISDIR),
        ((&root, "d"), (&dir, "h"), nfsstat3::NFS3ERR_INVAL),
        ((&root, "."), (&root, "x"), nfsstat3::NFS3ERR_INVAL),
        ((&dir, "h"), (&file, "x"), nfsstat3::NFS3ERR_NOTDIR),
    ] {
        assert_eq!(rename(&mut user, from, to), Err(status), "{} to {}", from.1, to.1);
    }
}

#[test]
fn hard_links_are_made() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let (root, dir) = (user.root.clone(), user.make_dir("d", 0o755).unwrap());
    let file = user.create("f", 0o644).unwrap();
    let link = |user: &mut NfsUser, file: &nfs_fh3, name| {
        let args = LINK3args { file: file.clone(), link: place(&dir, name) };
        plain(now(user.nfs.link(&args)).unwrap()).map(|made| made.file_attributes.unwrap().nlink)
    };
    assert_eq!(link(&mut user, &file, "g"), Ok(2));
    assert_eq!(user.lookup(&dir, "g").unwrap(), file);
    assert_eq!(link(&mut user, &file, "g"), Err(nfsstat3::NFS3ERR_EXIST));
    assert_eq!(link(&mut user, &root, "h"), Err(nfsstat3::NFS3ERR_ISDIR));
    // One of two names goes: the open file stays usable.
    user.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    remove(&mut user, "f").unwrap();
    assert_eq!(user.read(&file, 0, 10).unwrap(), (b"abc".to_vec(), true));
    assert_eq!(user.attributes(&file).unwrap().nlink, 1);
}
