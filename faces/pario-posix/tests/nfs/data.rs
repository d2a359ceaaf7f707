//! READ, WRITE, COMMIT.

use nfs3_client::nfs3_types::nfs3::{COMMIT3args, Nfs3Option, WRITE3args, nfs_fh3, nfsstat3, stable_how};
use nfs3_client::nfs3_types::xdr_codec::Opaque;

use crate::client::{ExportedPartition, NfsUser, now, plain, stale};

fn commit(user: &mut NfsUser, file: &nfs_fh3) -> Result<[u8; 8], nfsstat3> {
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    plain(now(user.nfs.commit(&args)).unwrap()).map(|done| done.verf.0)
}

#[test]
fn data_comes_back_as_it_was_written() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let file = user.create("f", 0o600).unwrap();
    let data: Vec<u8> = (0..3 << 20).map(|byte: u32| byte.to_le_bytes()[0] ^ byte.to_le_bytes()[2]).collect();
    let mut verifiers = Vec::new();
    for (index, piece) in data.chunks(1 << 20).enumerate() {
        let stable = [stable_how::UNSTABLE, stable_how::DATA_SYNC, stable_how::FILE_SYNC][index];
        verifiers.push(user.write(&file, (index as u64) << 20, piece, stable).unwrap());
    }
    verifiers.push(commit(&mut user, &file).unwrap());
    assert!(verifiers.iter().all(|verifier| *verifier == verifiers[0]), "no server was lost");
    assert_eq!(user.attributes(&file).unwrap().size, data.len() as u64);
    let mut back = Vec::new();
    loop {
        let (piece, is_end) = user.read(&file, back.len() as u64, 700_001).unwrap();
        back.extend(piece);
        if is_end {
            break;
        }
    }
    assert!(back == data);
    assert_eq!(user.read(&file, data.len() as u64 + 5, 10).unwrap(), (Vec::new(), true));
    // A hole is read as zeros; the largest read is 1 MiB.
    user.write(&file, 5 << 20, b"end", stable_how::UNSTABLE).unwrap();
    assert_eq!(user.read(&file, 4 << 20, u32::MAX).unwrap(), (vec![0; 1 << 20], false));
    assert_eq!(user.read(&file, 5 << 20, 100).unwrap(), (b"end".to_vec(), true));
}

#[test]
fn mistakes_with_data_are_refused() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let (root, file) = (user.root.clone(), user.create("f", 0o600).unwrap());
    let gone = stale(&root);
    assert_eq!(user.read(&root, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(user.read(&gone, 0, 1).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let unstable = stable_how::UNSTABLE;
    assert_eq!(user.write(&root, 0, b"x", unstable).unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(user.write(&gone, 0, b"x", unstable).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    assert_eq!(user.write(&file, u64::MAX, b"x", unstable).unwrap_err(), nfsstat3::NFS3ERR_FBIG);
    assert_eq!(user.write(&file, i64::MAX as u64, b"x", unstable).unwrap_err(), nfsstat3::NFS3ERR_FBIG);
    assert_eq!(commit(&mut user, &root).unwrap_err(), nfsstat3::NFS3ERR_ISDIR);
    assert_eq!(commit(&mut user, &gone).unwrap_err(), nfsstat3::NFS3ERR_STALE);
    let lies = WRITE3args { file, offset: 0, count: 5, stable: unstable, data: Opaque::borrowed(b"abc") };
    assert!(now(user.nfs.write(&lies)).is_err(), "more bytes announced than sent");
}

#[test]
fn more_files_are_written_than_are_kept_open() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let files: Vec<nfs_fh3> = (0..300)
        .map(|number| {
            let file = user.create(&format!("f{number}"), 0o600).unwrap();
            user.write(&file, 0, number.to_string().as_bytes(), stable_how::UNSTABLE).unwrap();
            file
        })
        .collect();
    let verifier = user.write(&files[0], 0, b"0", stable_how::UNSTABLE).unwrap();
    let other = exported.partition.another_client();
    for (number, file) in files.iter().enumerate() {
        assert_eq!(commit(&mut user, file).unwrap(), verifier, "no close has lost writes");
        let mut back = vec![0; number.to_string().len()];
        other.open(format!("/f{number}")).unwrap().read_exact_at(0, &mut back).unwrap();
        assert_eq!(back, number.to_string().into_bytes());
    }
}

#[test]
fn attributes_around_a_write_enclose_it() {
    let exported = ExportedPartition::new();
    let mut user = exported.root();
    let file = user.create("f", 0o600).unwrap();
    for round in 0..3_u64 {
        let known = user.attributes(&file).unwrap();
        let args = WRITE3args {
            file: file.clone(),
            offset: round * 3,
            count: 3,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(b"abc"),
        };
        let around = plain(now(user.nfs.write(&args)).unwrap()).unwrap().file_wcc;
        let (Nfs3Option::Some(before), Nfs3Option::Some(after)) = (around.before, around.after) else {
            panic!("a lone write has attributes before and after");
        };
        assert_eq!((before.size, before.mtime, before.ctime), (known.size, known.mtime, known.ctime));
        assert_eq!(after.size, known.size + 3);
        let now = user.attributes(&file).unwrap();
        assert_eq!((now.size, now.mtime, now.ctime), (after.size, after.mtime, after.ctime));
    }
}
