//! Servers killed or stopped at any time: clients that need one get an error that names it in time, other files continue, and after `up`
//! all data acknowledged by `sync` or `close` is present; a writer with lost unsynced writes gets an error.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::stage::{Stage, TOLD_LIMIT, told, until};
use common::{SeededRandom, difference, pattern};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 3;

/// A file that lies on one server only.
fn file_on(partition: &Partition, server: usize) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open(format!("only-on-{server}")).unwrap()
}

fn expect(file: &File, offset: u64, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    file.read_exact_at(offset, &mut found).unwrap();
    if let Some(what) = difference(expected, &found) {
        panic!("{file:?} at {offset}: {what}");
    }
}

/// More than the outbox holds: if an unrelated server kept it full, this would not end.
fn write_much(file: &File, seed: u64) {
    let data = pattern(100_000, seed);
    for block in 0..30 {
        file.write_at(block * 100_000, &data).unwrap();
    }
    expect(file, 2_900_000, &data);
    file.sync().unwrap();
}

fn small_outbox(store: &str) -> String {
    format!("stripe = \"16KiB\"\nstore = \"{store}\"\n[cache]\noutbox = \"512KiB\"")
}

#[test]
fn a_killed_server_is_named_and_others_go_on() {
    let Some(stage) = Stage::start(SERVERS, &small_outbox("files")) else { return };
    let partition = stage.mount();
    let files: Vec<File> = (0..SERVERS).map(|server| file_on(&partition, server)).collect();
    let wide = partition.create("wide").unwrap();
    let data = pattern(400_000, 1);
    for file in files.iter().chain([&wide]) {
        file.write_at(0, &data).unwrap();
        // A record: a later record after the kill waits for the server, and a read for that record.
        file.write_at(0, &data[..1000]).unwrap();
        file.sync().unwrap();
    }
    stage.signal(2, Signal::KILL);
    told(2, || files[2].write_at(0, &[1; 1000]).and_then(|()| files[2].sync()));
    told(2, || files[2].read_at(0, &mut [0; 1000]));
    // Lent objects can still be read; new ones need the server.
    told(2, || wide.write_at(0, &data).and_then(|()| wide.sync()));
    for (server, file) in files.iter().enumerate().take(2) {
        write_much(file, server as u64);
    }
    // Names belong to the manager, which is running.
    assert_eq!(partition.metadata("wide").unwrap().size, 400_000);
    stage.up();
    let later = stage.mount();
    expect(&later.open("wide").unwrap(), 0, &data);
    expect(&later.open("only-on-2").unwrap(), 1000, &data[1000..]);
}

#[test]
fn a_stopped_server_is_named_and_others_go_on() {
    let Some(stage) = Stage::start(SERVERS, &small_outbox("files")) else { return };
    let partition = stage.mount();
    let files: Vec<File> = (0..SERVERS).map(|server| file_on(&partition, server)).collect();
    for file in &files {
        file.write_at(0, &[1; 50_000]).unwrap();
        file.sync().unwrap();
    }
    stage.signal(1, Signal::STOP);
    // Writes that fit into the outbox return; a call that needs the server to have them fails.
    let error = told(1, || files[1].write_at(0, &[2; 1000]).and_then(|()| files[1].sync()));
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    told(1, || files[1].read_at(0, &mut [0; 1000]));
    write_much(&files[0], 5);
    write_much(&files[2], 6);
    stage.signal(1, Signal::CONT);
    assert!(until(|| files[1].read_at(0, &mut [0; 1000]).is_ok()), "it is reached again");
    files[1].write_at(0, &[3; 50_000]).unwrap();
    // Its undrained records in the outbox were overwritten by others: that is reported, once.
    if let Err(error) = files[1].sync() {
        assert_eq!(error.code(), Code::Lost, "{error}");
        files[1].sync().unwrap();
    }
    expect(&stage.mount().open("only-on-1").unwrap(), 0, &[3; 50_000]);
}

/// Every call there is, with the server stopped: none exceeds its limit.
#[test]
fn every_call_that_needs_a_stopped_server_fails_in_time() {
    let Some(stage) = Stage::start(SERVERS, &small_outbox("files")) else { return };
    let names = ["write", "read", "sync", "close", "set_len"];
    let mounts: Vec<Partition> = names.iter().map(|_| stage.mount()).collect();
    let files: Vec<File> = names
        .iter()
        .zip(&mounts)
        .map(|(name, partition)| {
            let options = partition.options().read(true).write(true).create(true);
            let file = options.stripe_count(1).first_server(1).open(name).unwrap();
            file.write_at(0, &[1; 50_000]).unwrap();
            file.sync().unwrap();
            file
        })
        .collect();
    stage.signal(1, Signal::STOP);
    std::thread::scope(|scope| {
        for (name, file) in names.into_iter().zip(files) {
            scope.spawn(move || match name {
                "write" => drop(told(1, || {
                    // At the latest when the outbox is full.
                    (0..20).try_for_each(|block| file.write_at(block * 50_000, &[2; 50_000]))
                })),
                "read" => drop(told(1, || file.read_at(0, &mut [0; 10]))),
                "sync" => {
                    file.write_at(0, &[2; 10]).unwrap();
                    drop(told(1, || file.sync()));
                }
                "close" => {
                    file.write_at(0, &[2; 10]).unwrap();
                    drop(told(1, || file.close()));
                }
                "set_len" => drop(told(1, || file.set_len(10))),
                other => panic!("{other}"),
            });
        }
    });
    stage.signal(1, Signal::CONT);
}

#[test]
fn a_stopped_manager_is_named_in_time() {
    let Some(stage) = Stage::start(SERVERS, &small_outbox("files")) else { return };
    let names = ["open", "stat", "close", "sync"];
    let mounts: Vec<Partition> = names.iter().map(|_| stage.mount()).collect();
    let files: Vec<File> = names
        .iter()
        .zip(&mounts)
        .map(|(name, partition)| {
            let file = partition.create(name).unwrap();
            file.write_at(0, &[1; 50_000]).unwrap();
            file
        })
        .collect();
    stage.signal(0, Signal::STOP);
    std::thread::scope(|scope| {
        for ((name, file), partition) in names.into_iter().zip(files).zip(&mounts) {
            scope.spawn(move || match name {
                "open" => drop(told(0, || partition.create("another"))),
                "stat" => drop(told(0, || partition.metadata("stat"))),
                "close" => drop(told(0, || file.close())),
                "sync" => drop(told(0, || file.sync())),
                other => panic!("{other}"),
            });
        }
    });
    stage.signal(0, Signal::CONT);
    let partition = stage.mount();
    assert!(until(|| partition.metadata("stat").is_ok()), "it is reached again");
}

/// Data in a killed server's own memory is lost, and the writer gets an error, once.
#[test]
fn lost_writes_are_told() {
    let Some(stage) = Stage::start(2, &small_outbox("direct")) else { return };
    let partition = stage.mount();
    let (synced, unsynced) = (partition.create("synced").unwrap(), partition.create("unsynced").unwrap());
    let data = pattern(300_000, 9);
    synced.write_at(0, &data).unwrap();
    synced.sync().unwrap();
    unsynced.write_at(0, &data).unwrap();
    // Drained from the outbox into the server's cache: now the server can lose it.
    unsynced.read_at(0, &mut vec![0; 300_000]).unwrap();
    stage.signal(1, Signal::KILL);
    stage.up();
    let error = told_lost(&unsynced);
    assert!(error.to_string().contains("server 1") || error.to_string().contains("server 0"), "{error}");
    expect(&stage.mount().open("synced").unwrap(), 0, &data);
    // The same handle works.
    assert!(until(|| unsynced.write_at(0, &data).is_ok()), "the file can be written again");
    unsynced.sync().unwrap();
    expect(&stage.mount().open("unsynced").unwrap(), 0, &data);
}

/// Records of several files wait for a dead server. Returning the lease of one of them drops all of them, and every file reports it
/// (simulated as `client-abandon-quietly`).
#[test]
fn records_that_are_given_up_are_told_to_each_of_their_files() {
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let only = |name: &str| {
        let options = partition.options().read(true).write(true).create(true).stripe_count(1);
        options.first_server(1).open(name).unwrap()
    };
    let (wanted, other) = (only("wanted"), only("other"));
    for file in [&wanted, &other] {
        file.write_at(0, &[1; 100]).unwrap();
        file.sync().unwrap();
    }
    // Stopped first, so that it drains nothing any more.
    stage.signal(1, Signal::STOP);
    wanted.write_at(0, &[2; 100]).unwrap();
    other.write_at(0, &[2; 100]).unwrap();
    stage.signal(1, Signal::KILL);
    let reader = stage.mount();
    // In both cases the lease is back at the manager, and the records are dropped.
    let _ = reader.open("wanted").unwrap().read_at(0, &mut [0; 100]);
    stage.up();
    for file in [wanted, other] {
        let error = told_lost(&file);
        assert!(error.to_string().contains("server 1"), "{error}");
    }
}

/// Syncs until the server is reached again; the first sync that reaches it must report the loss.
fn told_lost(file: &File) -> pario::Error {
    let mut told = None;
    assert!(until(|| match file.sync() {
        Err(error) if error.code() == Code::Lost => {
            told = Some(error);
            true
        }
        Err(error) => {
            assert_eq!(error.code(), Code::Unreachable, "{error}");
            false
        }
        Ok(()) => panic!("a sync succeeded although writes were lost"),
    }));
    told.unwrap()
}

/// A server dies at any time during a writer's work; every returned sync holds.
fn syncs_hold(store: &str, seeds: std::ops::Range<u64>) {
    let Some(stage) = Stage::start(SERVERS, &small_outbox(store)) else { return };
    for seed in seeds {
        let mut chance = SeededRandom::new(seed);
        let (victim, rounds) = (chance.index(SERVERS), 3 + chance.index(8));
        let name = format!("f-{seed}");
        let partition = stage.mount();
        let file = partition.create(&name).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        // Synced regions are not written again.
        let acknowledged = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = 0;
                for region in 0..1000u64 {
                    let base = region * 40_000;
                    let write =
                        |part: u64| file.write_at(base + part * 10_000, &pattern(10_000, region * 4 + part));
                    if (0..4).try_for_each(write).and_then(|()| file.sync()).is_err() {
                        break;
                    }
                    acknowledged = region + 1;
                    if acknowledged == rounds as u64 {
                        let _ = stop.send(());
                    }
                }
                acknowledged
            });
            stopped.recv_timeout(Duration::from_secs(30)).unwrap();
            stage.signal(victim, Signal::KILL);
            writer.join().unwrap()
        });
        drop((file, partition));
        stage.up();
        let file = stage.mount().open(&name).unwrap();
        for region in 0..acknowledged {
            for part in 0..4 {
                let expected = pattern(10_000, region * 4 + part);
                expect(&file, region * 40_000 + part * 10_000, &expected);
            }
        }
    }
}

#[test]
fn every_sync_that_returned_holds_files() {
    syncs_hold("files", 0..5);
}

#[test]
fn every_sync_that_returned_holds_direct() {
    syncs_hold("direct", 10..14);
}

#[test]
fn every_sync_that_returned_holds_log() {
    syncs_hold("log", 20..24);
}

/// Closed files, too, and names: any server dies right after the close.
#[test]
fn every_close_that_returned_holds() {
    let Some(stage) = Stage::start(SERVERS, &small_outbox("direct")) else { return };
    for victim in 0..SERVERS {
        let partition = stage.mount();
        for number in 0..5u64 {
            let file = partition.create(format!("f-{victim}-{number}")).unwrap();
            file.write_at(0, &pattern(100_000, number)).unwrap();
            file.close().unwrap();
        }
        partition.rename(format!("f-{victim}-4"), format!("g-{victim}")).unwrap();
        stage.signal(victim, Signal::KILL);
        stage.up();
        let later = stage.mount();
        for number in 0..4u64 {
            let file = later.open(format!("f-{victim}-{number}")).unwrap();
            expect(&file, 0, &pattern(100_000, number));
        }
        expect(&later.open(format!("g-{victim}")).unwrap(), 0, &pattern(100_000, 4));
        assert_eq!(later.metadata(format!("f-{victim}-4")).unwrap_err().code(), Code::NotFound);
    }
}

/// A client that outlives all servers does not mount again: after `up` it continues.
#[test]
fn a_mount_outlives_its_servers() {
    let Some(stage) = Stage::start(2, &small_outbox("files")) else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    let data = pattern(100_000, 3);
    file.write_at(0, &data).unwrap();
    file.close().unwrap();
    for server in 0..2 {
        stage.signal(server, Signal::KILL);
    }
    let (said, took) = common::stage::timed(|| partition.metadata("f"));
    assert!(said.is_err() && took < TOLD_LIMIT, "{took:?}");
    stage.up();
    assert!(until(|| partition.metadata("f").is_ok()), "it finds the new servers by itself");
    expect(&partition.open("f").unwrap(), 0, &data);
    partition.create("g").unwrap().write_at(0, &data).unwrap();
    expect(&stage.mount().open("g").unwrap(), 0, &data);
}
