//! Rights of users, root squash, read-only exports, networks of clients, kinds of credentials.

use nfs3_client::nfs3_types::nfs3::{
    Nfs3Option, REMOVE3args, SETATTR3args, nfs_fh3, nfsstat3, sattr3, stable_how,
};
use nfs3_client::nfs3_types::rpc::{auth_flavor, auth_stat, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::{Nfs3Client, RpcError};
use pario::core::AttrChange;
use pario_posix::{Export, ExportError, ExportOptions};

use crate::client::{
    BlockingStream, ExportedPartition, NfsUser, credential, now, options, place, plain, with_mode,
};

fn set(user: &mut NfsUser, file: &nfs_fh3, new: sattr3) -> Result<(), nfsstat3> {
    let args = SETATTR3args { object: file.clone(), new_attributes: new, guard: Nfs3Option::None };
    plain(now(user.nfs.setattr(&args)).unwrap()).map(drop)
}

fn remove(user: &mut NfsUser, dir: &nfs_fh3, name: &str) -> Result<(), nfsstat3> {
    plain(now(user.nfs.remove(&REMOVE3args { object: place(dir, name) })).unwrap()).map(drop)
}

fn open_to_all(exported: &ExportedPartition) {
    let change = AttrChange { mode: Some(0o777), ..AttrChange::default() };
    exported.partition.set_attr("/", change).unwrap();
}

#[test]
fn users_have_the_rights_of_the_permission_bits() {
    let exported = ExportedPartition::new();
    open_to_all(&exported);
    let (mut owner, mut member, mut other) =
        (exported.user(5, 50, &[]), exported.user(6, 60, &[50]), exported.user(7, 70, &[]));
    let file = owner.create("f", 0o640).unwrap();
    assert_eq!((owner.attributes(&file).unwrap().uid, owner.attributes(&file).unwrap().gid), (5, 50));
    owner.write(&file, 0, b"abc", stable_how::UNSTABLE).unwrap();
    assert_eq!(member.read(&file, 0, 3).unwrap().0, b"abc");
    assert_eq!(member.write(&file, 0, b"x", stable_how::UNSTABLE), Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(other.read(&file, 0, 3), Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(member.attributes(&file).unwrap().size, 3);
    assert_eq!(set(&mut member, &file, with_mode(0o666)), Err(nfsstat3::NFS3ERR_PERM));
    let given = sattr3 { uid: Nfs3Option::Some(6), ..sattr3::default() };
    assert_eq!(set(&mut owner, &file, given), Err(nfsstat3::NFS3ERR_PERM));
    let cut = || sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() };
    assert_eq!(set(&mut other, &file, cut()), Err(nfsstat3::NFS3ERR_ACCES));
    // The owner's client has checked the bits when it opened the file.
    set(&mut owner, &file, with_mode(0o000)).unwrap();
    assert_eq!(owner.read(&file, 0, 3).unwrap().0, b"abc");
    set(&mut owner, &file, cut()).unwrap();
    let dir = owner.make_dir("d", 0o700).unwrap();
    assert_eq!(other.lookup(&dir, "x"), Err(nfsstat3::NFS3ERR_ACCES));
    assert_eq!(other.create_in(&dir, "x", 0o600), Err(nfsstat3::NFS3ERR_ACCES));
}

#[test]
fn sticky_directories_and_set_user_id_bits_are_kept() {
    let exported = ExportedPartition::new();
    open_to_all(&exported);
    let (mut owner, mut other) = (exported.user(5, 50, &[]), exported.user(7, 70, &[]));
    let dir = exported.root().make_dir("d", 0o1777).unwrap();
    let file = owner.create_in(&dir, "f", 0o666).unwrap();
    assert_eq!(remove(&mut other, &dir, "f"), Err(nfsstat3::NFS3ERR_PERM));
    set(&mut owner, &file, with_mode(0o4777)).unwrap();
    other.write(&file, 0, b"x", stable_how::FILE_SYNC).unwrap();
    assert_eq!(owner.attributes(&file).unwrap().mode, 0o777, "a foreign write drops the bit");
    remove(&mut owner, &dir, "f").unwrap();
}

#[test]
fn root_is_squashed() {
    let exported = ExportedPartition::with(ExportOptions { root_squash: true, ..options() });
    let mut root = exported.root();
    assert_eq!(root.create("f", 0o644), Err(nfsstat3::NFS3ERR_ACCES));
    open_to_all(&exported);
    let file = root.create("f", 0o644).unwrap();
    let attr = root.attributes(&file).unwrap();
    assert_eq!((attr.uid, attr.gid), (65_534, 65_534));
}

#[test]
fn a_read_only_export_changes_nothing() {
    let exported = ExportedPartition::with(ExportOptions { read_only: true, ..options() });
    let written = exported.partition.create("/f").unwrap();
    written.write_at(0, b"abc").unwrap();
    written.close().unwrap();
    let mut user = exported.root();
    let root = user.root.clone();
    let file = user.lookup(&root, "f").unwrap();
    assert_eq!(user.read(&file, 0, 9).unwrap(), (b"abc".to_vec(), true));
    assert_eq!(user.write(&file, 0, b"x", stable_how::UNSTABLE), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(user.create("g", 0o600), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(user.make_dir("g", 0o700), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(remove(&mut user, &root, "f"), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(set(&mut user, &file, with_mode(0)), Err(nfsstat3::NFS3ERR_ROFS));
}

#[test]
fn addresses_are_allowed_by_name() {
    let exported =
        ExportedPartition::with(ExportOptions { allow: vec!["10.9.8.0/24".parse().unwrap()], ..options() });
    let mut foreign = Nfs3Client::new(BlockingStream::new(exported.export.address()));
    assert!(now(foreign.null()).is_err(), "this machine is not in the network");
    let everywhere = ExportOptions { address: "0.0.0.0:0".parse().unwrap(), ..options() };
    let refused = Export::new(&exported.partition, everywhere.clone());
    assert!(matches!(refused, Err(ExportError::Open { .. })), "{refused:?}");
    let named = ExportOptions { allow: vec!["127.0.0.0/8".parse().unwrap()], ..everywhere };
    let export = Export::new(&exported.partition, named).unwrap();
    let here = format!("127.0.0.1:{}", export.address().port()).parse().unwrap();
    now(Nfs3Client::new(BlockingStream::new(here)).null()).unwrap();
    let taken = ExportOptions { address: exported.export.address(), ..options() };
    let refused = Export::new(&exported.partition, taken);
    assert!(matches!(refused, Err(ExportError::Listen { .. })), "{refused:?}");
}

#[test]
fn credentials_of_other_kinds_are_rejected() {
    let exported = ExportedPartition::new();
    let root = exported.root().root;
    let call = |credential| {
        let io = BlockingStream::new(exported.export.address());
        let mut client = Nfs3Client::new_with_auth(io, credential, opaque_auth::default());
        let args = nfs3_client::nfs3_types::nfs3::GETATTR3args { object: root.clone() };
        now(client.getattr(&args)).map(drop)
    };
    call(opaque_auth::default()).unwrap();
    call(credential(1, 2, &[3; 16])).unwrap();
    let other = opaque_auth { flavor: auth_flavor::AUTH_DES, body: Opaque::borrowed(b"") };
    assert!(matches!(call(other), Err(RpcError::Auth(auth_stat::AUTH_REJECTEDCRED))));
    let cut = opaque_auth { flavor: auth_flavor::AUTH_UNIX, body: Opaque::borrowed(b"cut") };
    assert!(matches!(call(cut), Err(RpcError::Auth(auth_stat::AUTH_BADCRED))));
    assert!(matches!(call(credential(1, 2, &[3; 17])), Err(RpcError::Auth(auth_stat::AUTH_BADCRED))));
}
