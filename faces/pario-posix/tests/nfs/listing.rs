//! READDIR and READDIRPLUS.

use std::collections::BTreeSet;

use nfs3_client::nfs3_types::nfs3::{
    LINK3args, Nfs3Option, READDIR3args, READDIRPLUS3args, cookieverf3, nfs_fh3, nfsstat3,
};
use pario_posix::Export;

use crate::client::{ExportedPartition, NfsUser, now, options, place, plain, stale};

struct Listed {
    names: Vec<String>,
    cookie: u64,
    is_end: bool,
}

fn list(user: &mut NfsUser, dir: &nfs_fh3, cookie: u64, count: u32) -> Result<Listed, nfsstat3> {
    let args = READDIR3args { dir: dir.clone(), cookie, cookieverf: cookieverf3::default(), count };
    let page = plain(now(user.nfs.readdir(&args)).unwrap())?.reply;
    let entries = page.entries.into_inner();
    let names = entries.iter().map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap()).collect();
    let cookie = entries.last().map_or(cookie, |entry| entry.cookie);
    Ok(Listed { names, cookie, is_end: page.eof })
}

fn all(user: &mut NfsUser, dir: &nfs_fh3, mut cookie: u64, count: u32) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let page = list(user, dir, cookie, count).unwrap();
        names.extend(page.names);
        cookie = page.cookie;
        if page.is_end {
            return names;
        }
    }
}

#[test]
fn listings_are_complete_at_every_page_size() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let root = user.root.clone();
    for number in 0..300 {
        exported.partition.create(format!("/file-{number:04}")).unwrap();
    }
    // Two names of one inode in one directory.
    let file = user.lookup(&root, "file-0000").unwrap();
    plain(now(user.nfs.link(&LINK3args { file, link: place(&root, "second") })).unwrap()).unwrap();
    for count in [300, 512, 4096, 1 << 20] {
        let names = all(&mut user, &root, 0, count);
        let different: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), different.len()), (303, 303), "pages of {count} bytes");
        assert_eq!(names[..2], [".", ".."]);
    }
    assert_eq!(list(&mut user, &root, 0, 16).err(), Some(nfsstat3::NFS3ERR_TOOSMALL));
    assert_eq!(list(&mut user, &stale(&root), 0, 512).err(), Some(nfsstat3::NFS3ERR_STALE));
    let file = user.lookup(&root, "second").unwrap();
    assert_eq!(list(&mut user, &file, 0, 512).err(), Some(nfsstat3::NFS3ERR_NOTDIR));
    assert_eq!(list(&mut user, &root, 12_345, 512).err(), Some(nfsstat3::NFS3ERR_BAD_COOKIE));
}

#[test]
fn cookies_stay_valid_while_names_come_and_go_and_after_a_restart() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let root = user.root.clone();
    for number in 0..100 {
        exported.partition.create(format!("/f{number:03}")).unwrap();
    }
    let first = list(&mut user, &root, 0, 1024).unwrap();
    assert!(!first.is_end && 5 < first.names.len());
    let (last, second) = (first.names.last().unwrap(), first.names.iter().rev().nth(1).unwrap());
    for name in [second.as_str(), "f099"] {
        exported.partition.remove_file(format!("/{name}")).unwrap();
    }
    exported.partition.create("/a-new-first-name").unwrap();
    let rest = all(&mut user, &root, first.cookie, 1024);
    let expected: Vec<String> =
        (0..99).map(|number| format!("f{number:03}")).filter(|name| last < name).collect();
    assert_eq!(rest, expected);
    // Another export of the partition knows nothing of this one, as after a restart.
    let again = Export::new(&exported.partition, options()).unwrap();
    let mut user = NfsUser::new(again.address(), 0, 0, &[]);
    assert_eq!(user.root, root);
    assert_eq!(all(&mut user, &root, first.cookie, 1024), expected);
    // The export that gave the cookie goes on also without its name.
    exported.partition.remove_file(format!("/{last}")).unwrap();
    assert_eq!(all(&mut exported.root(), &root, first.cookie, 1024), expected);
}

#[test]
fn entries_have_attributes_and_handles() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let root = user.root.clone();
    for number in 0..50_u64 {
        let file = exported.partition.create(format!("/f{number:02}")).unwrap();
        file.write_at(0, &vec![1; usize::try_from(number).unwrap()]).unwrap();
        file.close().unwrap();
    }
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let args = READDIRPLUS3args {
            dir: root.clone(),
            cookie,
            cookieverf: cookieverf3::default(),
            dircount: 512,
            maxcount: 2048,
        };
        let page = plain(now(user.nfs.readdirplus(&args)).unwrap()).unwrap().reply;
        for entry in page.entries.into_inner() {
            cookie = entry.cookie;
            let (Nfs3Option::Some(attr), Nfs3Option::Some(handle)) =
                (entry.name_attributes, entry.name_handle)
            else {
                panic!("an entry without attributes");
            };
            assert_eq!(attr.fileid, entry.fileid);
            let name = String::from_utf8(entry.name.0.to_vec()).unwrap();
            if let Some(number) = name.strip_prefix('f') {
                assert_eq!(attr.size, number.parse::<u64>().unwrap());
                assert_eq!(user.lookup(&root, &name).unwrap(), handle);
                seen += 1;
            }
        }
        if page.eof {
            break;
        }
    }
    assert_eq!(seen, 50);
    let args = READDIRPLUS3args {
        dir: stale(&root),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 512,
        maxcount: 2048,
    };
    assert_eq!(plain(now(user.nfs.readdirplus(&args)).unwrap()).err(), Some(nfsstat3::NFS3ERR_STALE));
}
