//! One of several servers is full: the writer gets ENOSPC from the write, or from sync or close, once per handle; others continue; after
//! space is freed the same handle works.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::pattern;
use common::stage::{Stage, timed, until};
use pario::core::Code;
use pario::{File, Partition};

const MIB: u64 = 1 << 20;
const FULL: usize = 1;
/// No writer needs a tenth of it.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// A small file system of its own; unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(path: &Path, bytes: u64) -> Tmpfs {
        std::fs::create_dir_all(path).unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("{size},mode=0700"), "pario-test"])
            .arg(path)
            .status();
        assert!(mounted.unwrap().success(), "root mounts a file system");
        Tmpfs(path.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A server that just ended may hold it for a short time; a lazy unmount succeeds in any case.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn only_on(partition: &Partition, name: &str, server: usize) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open(name).unwrap()
}

/// Fills a file until a write is refused; returns how many bytes were accepted.
fn fill(file: &File, call_bytes: usize) -> (u64, Option<pario::Error>) {
    let data = vec![5; call_bytes];
    for call in 0..(64 * MIB / call_bytes as u64) {
        if let Err(error) = file.write_at(call * call_bytes as u64, &data) {
            return (call * call_bytes as u64, Some(error));
        }
    }
    (64 * MIB, None)
}

/// One kind of writer on a partition with 16 MiB on server 1.
fn full(store: &str, call_bytes: usize) {
    let settings =
        format!("stripe = \"1MiB\"\nstore = \"{store}\"\n[cache]\noutbox = \"1MiB\"\nserver = \"4MiB\"");
    let Some(mut stage) = Stage::prepare(4, &settings) else { return };
    stage.keep(Tmpfs::new(&stage.server_dir(FULL), 16 * MIB));
    stage.up();
    let (partition, late) = (stage.mount(), stage.mount());
    let store = store.to_owned();
    let (done, over) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let _done = done;
        fill_and_free(&partition, &late, &store, call_bytes);
    });
    // A hanging writer is a failure too; dropping the fixture ends its servers and with them the wait.
    let hangs = over.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "a writer to a full disk waits for ever");
    if let Err(panic) = writer.join() {
        std::panic::resume_unwind(panic);
    }
}

fn fill_and_free(partition: &Partition, late: &Partition, store: &str, call_bytes: usize) {
    let bystander = only_on(partition, "bystander", 2);
    let file = only_on(partition, "full", FULL);
    let (accepted, refused) = fill(&file, call_bytes);
    // 16 MiB on the disk, and the contents of cache and outbox.
    assert!(accepted < 22 * MIB, "{store} {call_bytes}: {accepted} bytes do not fit");
    let error = match refused {
        Some(error) => error,
        None => file.sync().expect_err("the write or the sync reports that the data does not fit"),
    };
    assert_eq!(error.code(), Code::NoSpace, "{store} {call_bytes}: {error}");
    assert!(error.to_string().contains("server 1"), "{store} {call_bytes}: {error}");
    assert_eq!(error.errno(), 28);
    // The others are not affected.
    let data = pattern(8 << 20, 1);
    bystander.write_at(0, &data).unwrap();
    bystander.sync().unwrap();
    let small = partition.create("small").unwrap();
    small.write_at(0, &data[..900_000]).unwrap();
    small.close().unwrap();
    // Once per handle, unless the store still holds data that it cannot write back: then every sync reports it.
    if let Err(error) = file.sync() {
        assert_eq!(error.code(), Code::NoSpace, "{store} {call_bytes}: {error}");
        if let Err(error) = file.sync() {
            assert_eq!(error.code(), Code::NoSpace, "{store} {call_bytes}: {error}");
        }
    }
    // Space is freed: the same handle works.
    file.set_len(0).unwrap();
    let data = pattern(2 << 20, 2);
    let (written, took) = timed(|| file.write_at(0, &data).and_then(|()| file.sync()));
    written.unwrap_or_else(|error| panic!("{store} {call_bytes}: after {took:?}: {error}"));
    file.close().unwrap();
    let mut found = vec![0; data.len()];
    late.open("full").unwrap().read_exact_at(0, &mut found).unwrap();
    assert!(found == data, "{store} {call_bytes}");
}

#[test]
fn needs_root_a_full_disk_is_told_to_small_writes() {
    full("files", 8 << 10);
}

#[test]
fn needs_root_a_full_disk_is_told_to_large_writes() {
    full("files", 1 << 20);
}

#[test]
fn needs_root_a_full_disk_is_told_with_a_cache() {
    full("direct", 64 << 10);
}

/// Data synced before the disk was full survives.
#[test]
fn needs_root_what_was_synced_survives_a_full_disk() {
    let settings = "stripe = \"64KiB\"\n[cache]\noutbox = \"1MiB\"";
    let Some(mut stage) = Stage::prepare(4, settings) else { return };
    stage.keep(Tmpfs::new(&stage.server_dir(FULL), 16 * MIB));
    stage.up();
    let partition = stage.mount();
    let synced = partition.create("synced").unwrap();
    let data = pattern(3 << 20, 4);
    synced.write_at(0, &data).unwrap();
    synced.sync().unwrap();
    let big = partition.create("big").unwrap();
    let (_, refused) = fill(&big, 100_000);
    let error = refused.unwrap_or_else(|| big.sync().unwrap_err());
    assert_eq!(error.code(), Code::NoSpace, "{error}");
    let mut found = vec![0; data.len()];
    partition.another_client().open("synced").unwrap().read_exact_at(0, &mut found).unwrap();
    assert!(found == data);
    drop(big);
    partition.remove_file("big").unwrap();
    // The servers free the space after the removal has returned.
    let write = || synced.write_at(0, &data[..1 << 20]).and_then(|()| synced.sync());
    assert!(until(|| write().is_ok()), "the space of a removed file is freed");
    synced.close().unwrap();
}
