//! Processes that die: the export, servers, the whole partition. Handles stay valid, errors come in time.

use std::time::Duration;

use nfs3_client::nfs3_types::nfs3::{COMMIT3args, nfs_fh3, nfsstat3, stable_how};
use rustix::process::Signal;
use rustix::time::ClockId;

use crate::client::{NfsUser, now, plain};
use crate::fixture::{ExportProcess, NAME, partition, small_partition};
use crate::support::{kill, until};

/// An error comes within 5 s; a loaded machine gets as much again.
const ERROR_LIMIT: Duration = Duration::from_secs(10);

fn commit(user: &mut NfsUser, file: &nfs_fh3) -> Result<[u8; 8], nfsstat3> {
    let args = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    plain(now(user.nfs.commit(&args)).unwrap()).map(|done| done.verf.0)
}

fn clock() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// The result of a call that must end in time.
#[track_caller]
fn in_time<T>(call: impl FnOnce() -> T) -> T {
    let began = clock();
    let result = call();
    let took = clock() - began;
    assert!(took < ERROR_LIMIT, "it took {took:?}");
    result
}

#[test]
fn handles_outlive_an_export_that_is_killed() {
    let cli = partition();
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let mut user = export.user();
    let (root, dir) = (user.root.clone(), user.make_dir("dir", 0o755).unwrap());
    let file = user.create_in(&dir, "file", 0o644).unwrap();
    user.write(&file, 0, b"stable", stable_how::FILE_SYNC).unwrap();
    let first = user.write(&file, 6, b" and unstable", stable_how::UNSTABLE).unwrap();
    let address = export.address.to_string();
    assert_eq!(export.end(Signal::KILL), -9);
    let again = ExportProcess::start(&cli, &address);
    let mut user = again.user();
    assert_eq!(user.root, root);
    assert_eq!(user.lookup(&dir, "file").unwrap(), file);
    // The client sends its unstable writes again, since the verifier is another one.
    assert_ne!(user.write(&file, 6, b" and unstable", stable_how::UNSTABLE).unwrap(), first);
    commit(&mut user, &file).unwrap();
    assert_eq!(user.read(&file, 0, 100).unwrap(), (b"stable and unstable".to_vec(), true));
    assert_eq!(again.end(Signal::INT), 0);
}

#[test]
fn a_partition_that_is_down_gives_errors_in_time_and_comes_back() {
    let cli = partition();
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let mut user = export.user();
    let root = user.root.clone();
    let file = user.create("file", 0o644).unwrap();
    user.write(&file, 0, b"kept", stable_how::FILE_SYNC).unwrap();
    for round in ["killed", "taken down"] {
        if round == "killed" {
            cli.server_pids(NAME).into_iter().for_each(|pid| kill(pid, Signal::KILL));
        } else {
            cli.ok(&["down", NAME]);
        }
        fails_in_time(&mut user, &file);
        cli.ok(&["up", NAME]);
        // The same connection and the same handles.
        assert!(until(|| user.attributes(&file).is_ok()), "the export does not find the partition again");
        assert_eq!(user.lookup(&root, "file").unwrap(), file);
        assert_eq!(user.read(&file, 0, 100).unwrap(), (b"kept".to_vec(), true));
        user.write(&file, 4, b" on", stable_how::FILE_SYNC).unwrap();
        assert_eq!(cli.ok(&["cat", &format!("pario://{NAME}/file")]), "kept on");
        cli.ok(&["truncate", "-s", "4", &format!("pario://{NAME}/file")]);
    }
    assert_eq!(export.end(Signal::TERM), 0);
}

#[track_caller]
fn fails_in_time(user: &mut NfsUser, file: &nfs_fh3) {
    let root = user.root.clone();
    assert_eq!(in_time(|| user.attributes(file)).unwrap_err(), nfsstat3::NFS3ERR_IO);
    assert_eq!(in_time(|| user.lookup(&root, "file")).unwrap_err(), nfsstat3::NFS3ERR_IO);
    assert_eq!(in_time(|| user.read(file, 0, 4)).unwrap_err(), nfsstat3::NFS3ERR_IO);
    assert_eq!(
        in_time(|| user.write(file, 0, b"x", stable_how::UNSTABLE)).unwrap_err(),
        nfsstat3::NFS3ERR_IO
    );
    assert_eq!(in_time(|| user.create("other", 0o644)).unwrap_err(), nfsstat3::NFS3ERR_IO);
}

#[test]
fn a_full_partition_is_told_and_loses_nothing() {
    let cli = small_partition();
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let mut user = export.user();
    let small = user.create("small", 0o644).unwrap();
    user.write(&small, 0, b"kept", stable_how::FILE_SYNC).unwrap();
    let large = user.create("large", 0o644).unwrap();
    let mut failure = None;
    for number in 0..64_u64 {
        let written = user.write(&large, number << 20, &vec![1; 1 << 20], stable_how::UNSTABLE);
        failure = written.and_then(|_| commit(&mut user, &large)).err();
        if failure.is_some() {
            break;
        }
    }
    assert_eq!(failure, Some(nfsstat3::NFS3ERR_NOSPC));
    assert_eq!(user.read(&small, 0, 9).unwrap(), (b"kept".to_vec(), true));
}

#[test]
fn the_write_verifier_changes_when_a_server_is_restarted() {
    let cli = partition();
    let export = ExportProcess::start(&cli, "127.0.0.1:0");
    let mut user = export.user();
    let file = user.create("file", 0o644).unwrap();
    let data = vec![7; 1 << 20];
    let before = user.write(&file, 0, &data, stable_how::UNSTABLE).unwrap();
    assert_eq!(commit(&mut user, &file).unwrap(), before);
    user.write(&file, 0, &data, stable_how::UNSTABLE).unwrap();
    for pid in cli.server_pids(NAME) {
        kill(pid, Signal::KILL);
    }
    cli.ok(&["up", NAME]);
    let mut after = Err(nfsstat3::NFS3ERR_IO);
    assert!(
        until(|| {
            after = commit(&mut user, &file);
            after.is_ok()
        }),
        "{after:?}"
    );
    assert_ne!(after.unwrap(), before);
    // The client sends its writes again.
    let again = user.write(&file, 0, &data, stable_how::UNSTABLE).unwrap();
    assert_eq!(commit(&mut user, &file).unwrap(), again);
    assert!(user.read(&file, 0, 1 << 20).unwrap().0 == data);
}
