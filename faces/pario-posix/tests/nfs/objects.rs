//! GETATTR, SETATTR, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF, MOUNT.

use nfs3_client::nfs3_types::mount::{dirpath, mountstat3};
use nfs3_client::nfs3_types::nfs3::{
    ACCESS3args, FSINFO3args, FSSTAT3args, Nfs3Option, PATHCONF3args, READLINK3args, SETATTR3args,
    SYMLINK3args, ftype3, nfs_fh3, nfspath3, nfsstat3, nfstime3, sattr3, set_atime, set_mtime, symlinkdata3,
};
use nfs3_client::nfs3_types::rpc::opaque_auth;
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{MountClient, MountError};

use crate::client::{
    BlockingStream, ExportedPartition, NfsUser, credential, now, place, plain, stale, with_mode,
};

fn set(user: &mut NfsUser, file: &nfs_fh3, new: sattr3, guard: Option<nfstime3>) -> Result<(), nfsstat3> {
    let guard = guard.map_or(Nfs3Option::None, Nfs3Option::Some);
    let args = SETATTR3args { object: file.clone(), new_attributes: new, guard };
    let set = plain(now(user.nfs.setattr(&args)).unwrap())?;
    let (Nfs3Option::Some(_), Nfs3Option::Some(_)) = (set.obj_wcc.before, set.obj_wcc.after) else {
        panic!("a lone change has attributes before and after");
    };
    Ok(())
}

#[test]
fn attributes_are_those_of_the_partition() {
    let exported = ExportedPartition::new();
    let mut user = exported.user(7, 8, &[]);
    now(user.nfs.null()).unwrap();
    let root = user.root.clone();
    let attr = user.attributes(&root).unwrap();
    assert_eq!((attr.type_, attr.fileid), (ftype3::NF3DIR, 1));
    let mut root_user = exported.root();
    let file = root_user.create("f", 0o640).unwrap();
    let attr = user.attributes(&file).unwrap();
    let known = exported.partition.metadata("/f").unwrap();
    assert_eq!((attr.type_, attr.mode, attr.nlink, attr.size), (ftype3::NF3REG, 0o640, 1, 0));
    assert_eq!(attr.fileid, known.inode.0);
    assert_eq!(u64::from(attr.mtime.seconds), known.modified_ns / 1_000_000_000);
    assert_eq!(user.attributes(&stale(&root)).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let bad = nfs_fh3 { data: Opaque::borrowed(b"short") };
    assert_eq!(user.attributes(&bad).unwrap_err(), nfsstat3::NFS3ERR_BADHANDLE);
}

#[test]
fn attributes_are_set_and_guarded() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let file = user.create("f", 0o600).unwrap();
    let time = nfstime3 { seconds: 1000, nseconds: 5 };
    let new = sattr3 {
        mode: Nfs3Option::Some(0o751),
        uid: Nfs3Option::Some(3),
        gid: Nfs3Option::Some(4),
        size: Nfs3Option::Some(10_000),
        atime: set_atime::SET_TO_CLIENT_TIME(time),
        mtime: set_mtime::SET_TO_CLIENT_TIME(time),
    };
    set(&mut user, &file, new, None).unwrap();
    let attr = user.attributes(&file).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), (0o751, 3, 4, 10_000));
    assert_eq!((attr.atime, attr.mtime), (time, time));
    set(&mut user, &file, with_mode(0o700), Some(attr.ctime)).unwrap();
    let late = set(&mut user, &file, with_mode(0o777), Some(time));
    assert_eq!(late, Err(nfsstat3::NFS3ERR_NOT_SYNC));
    assert_eq!(user.attributes(&file).unwrap().mode, 0o700);
    let sized = sattr3 { size: Nfs3Option::Some(1), ..sattr3::default() };
    let root = user.root.clone();
    assert_eq!(set(&mut user, &root, sized, None), Err(nfsstat3::NFS3ERR_ISDIR));
    let huge = sattr3 { size: Nfs3Option::Some(u64::MAX), ..sattr3::default() };
    assert_eq!(set(&mut user, &file, huge, None), Err(nfsstat3::NFS3ERR_FBIG));
    assert_eq!(set(&mut user, &stale(&root), with_mode(0), None), Err(nfsstat3::NFS3ERR_STALE));
}

#[test]
fn access_follows_the_permission_bits() {
    let exported = ExportedPartition::new();
    let file = exported.root().create("f", 0o640).unwrap();
    let all = 0x3f;
    let asked = |uid, gid, groups: &[u32]| {
        let mut user = exported.user(uid, gid, groups);
        let args = ACCESS3args { object: file.clone(), access: all };
        plain(now(user.nfs.access(&args)).unwrap()).unwrap().access
    };
    assert_eq!(asked(0, 0, &[]), 1 | 4 | 8);
    assert_eq!(asked(5, 6, &[0]), 1);
    assert_eq!(asked(5, 6, &[]), 0);
    let mut user = exported.user(5, 6, &[]);
    let args = ACCESS3args { object: user.root.clone(), access: 2 };
    assert_eq!(plain(now(user.nfs.access(&args)).unwrap()).unwrap().access, 2);
    let args = ACCESS3args { object: stale(&user.root), access: 2 };
    assert_eq!(plain(now(user.nfs.access(&args)).unwrap()).unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn links_are_made_and_read() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let mut link = |name, target: &'static [u8]| {
        let data = symlinkdata3 {
            symlink_attributes: sattr3::default(),
            symlink_data: nfspath3(Opaque::borrowed(target)),
        };
        let args = SYMLINK3args { where_: place(&user.root, name), symlink: data };
        plain(now(user.nfs.symlink(&args)).unwrap()).map(|made| made.obj.unwrap())
    };
    let made = link("l", b"../some/where").unwrap();
    assert_eq!(link("l", b"again").unwrap_err(), nfsstat3::NFS3ERR_EXIST);
    assert_eq!(link("m", b"").unwrap_err(), nfsstat3::NFS3ERR_INVAL);
    assert_eq!(exported.partition.read_link("/l").unwrap().to_str(), Some("../some/where"));
    let read = plain(now(user.nfs.readlink(&READLINK3args { symlink: made })).unwrap()).unwrap();
    assert_eq!(read.data.as_ref(), b"../some/where");
    let wrong = plain(now(user.nfs.readlink(&READLINK3args { symlink: user.root.clone() })).unwrap());
    assert_eq!(wrong.unwrap_err(), nfsstat3::NFS3ERR_INVAL);
}

#[test]
fn the_file_system_tells_its_limits() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let (root, gone) = (user.root.clone(), stale(&user.root));
    let space = plain(now(user.nfs.fsstat(&FSSTAT3args { fsroot: root.clone() })).unwrap()).unwrap();
    assert_eq!(space.tbytes, exported.partition.space().unwrap().total_bytes);
    assert!(space.fbytes <= space.tbytes);
    let info = plain(now(user.nfs.fsinfo(&FSINFO3args { fsroot: root.clone() })).unwrap()).unwrap();
    assert_eq!((info.rtmax, info.wtmax, info.maxfilesize), (1 << 20, 1 << 20, i64::MAX as u64));
    let path = plain(now(user.nfs.pathconf(&PATHCONF3args { object: root })).unwrap()).unwrap();
    assert_eq!((path.name_max, path.no_trunc, path.case_insensitive), (255, true, false));
    let wrong = plain(now(user.nfs.fsstat(&FSSTAT3args { fsroot: gone.clone() })).unwrap());
    assert_eq!(wrong.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let wrong = plain(now(user.nfs.fsinfo(&FSINFO3args { fsroot: gone.clone() })).unwrap());
    assert_eq!(wrong.unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let wrong = plain(now(user.nfs.pathconf(&PATHCONF3args { object: gone })).unwrap());
    assert_eq!(wrong.unwrap_err(), nfsstat3::NFS3ERR_STALE);
}

#[test]
fn a_directory_of_the_partition_is_mounted_by_its_path() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let dir = user.make_dir("d", 0o755).unwrap();
    user.create("f", 0o644).unwrap();
    let name = exported.partition.name().to_owned();
    let io = BlockingStream::new(exported.export.address());
    let mut mount = MountClient::new_with_auth(io, credential(5, 5, &[]), opaque_auth::default());
    now(mount.null()).unwrap();
    let mut mounted = |path: String| {
        now(mount.mnt(dirpath(Opaque::owned(path.into_bytes())))).map(|mounted| mounted.fhandle.0.to_vec())
    };
    let root = user.root.data.to_vec();
    for path in [String::new(), "/".to_owned(), format!("/{name}"), format!("{name}/")] {
        assert_eq!(mounted(path).unwrap(), root);
    }
    assert_eq!(mounted(format!("/{name}/d/")).unwrap(), dir.data.to_vec());
    for (path, status) in [
        ("/elsewhere".to_owned(), mountstat3::MNT3ERR_NOENT),
        (format!("/{name}/none"), mountstat3::MNT3ERR_NOENT),
        (format!("/{name}/f"), mountstat3::MNT3ERR_NOTDIR),
        (format!("/{name}/.."), mountstat3::MNT3ERR_INVAL),
    ] {
        let Err(MountError::Denied(found)) = mounted(path.clone()) else { panic!("{path} is mounted") };
        assert_eq!(found as u32, status as u32, "{path}");
    }
    let exports = now(mount.export()).unwrap().into_inner();
    assert_eq!(exports[0].ex_dir.0.to_vec(), format!("/{name}").into_bytes());
    assert!(now(mount.dump()).unwrap().into_inner().is_empty());
    now(mount.umnt(dirpath(Opaque::borrowed(b"/")))).unwrap();
    now(mount.umntall()).unwrap();
}
