//! Handles that stay open while every server is killed and the partition is restarted: what they may still do, what they must not do, and
//! what other clients see.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::pattern;
use common::stage::{Stage, timed, until};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 2;

fn crash(stage: &Stage) {
    for server in 0..SERVERS {
        stage.signal(server, Signal::KILL);
    }
    stage.up();
}

fn file_on(partition: &Partition, name: &str, server: u16) -> File {
    let options =
        partition.options().read(true).write(true).create(true).stripe_count(1).first_server(server);
    options.open(name).unwrap()
}

/// Lease numbers restart with each manager; an old, higher number must not make new leases look returned.
#[test]
fn a_handle_is_used_across_many_restarts() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    for round in 0..6u8 {
        file.write_at(0, &[round; 1000]).unwrap();
        file.set_len(500).unwrap();
        crash(&stage);
        file.write_at(0, &[round + 100; 600]).unwrap();
        let mut back = [0; 600];
        file.read_exact_at(0, &mut back).unwrap();
        assert_eq!(back, [round + 100; 600]);
        file.sync().unwrap();
    }
    let counts = partition.counts();
    assert!(counts.leases < 200, "leases are not asked for in circles: {counts:?}");
    assert!(0 < counts.records, "the outbox was used: {counts:?}");
}

/// Threads that wait for the same server continue when it is replaced.
#[test]
fn several_threads_outlive_restarts() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"\n[cache]\noutbox = \"512KiB\"") else {
        return;
    };
    let partition = stage.mount();
    let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let files = (0..4u64).map(|number| partition.create(format!("f{number}")).unwrap());
    let threads: Vec<_> = files
        .map(|file| {
            let (over, rounds) = (Arc::clone(&over), Arc::clone(&rounds));
            std::thread::spawn(move || {
                for round in 0.. {
                    // While a server is down calls may fail; none may hang.
                    let written = file.write_at(round % 50 * 3000, &[7; 3000]).and_then(|()| file.sync());
                    rounds.fetch_add(u64::from(written.is_ok()), Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        })
        .collect();
    for _ in 0..4 {
        let before = rounds.load(Ordering::Relaxed);
        assert!(until(|| before + 20 < rounds.load(Ordering::Relaxed)), "no thread makes progress");
        crash(&stage);
    }
    over.store(true, Ordering::Relaxed);
    assert!(until(|| threads.iter().all(std::thread::JoinHandle::is_finished)), "a thread hangs");
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A store with a write-back cache loses it with its server; close reports it.
#[test]
fn close_tells_of_writes_that_died_with_a_cache() {
    let Some(stage) = Stage::start(SERVERS, "store = \"direct\"") else { return };
    let partition = stage.mount();
    let file = file_on(&partition, "f", 1);
    file.write_at(0, &[5; 8192]).unwrap();
    let mut back = [0; 8192];
    // Reading waits until the server has drained it.
    file.read_exact_at(0, &mut back).unwrap();
    crash(&stage);
    assert_eq!(file.close().unwrap_err().code(), Code::Lost);
}

/// The length of an older generation does not apply to a file that was truncated since.
#[test]
fn a_cut_file_is_as_long_as_what_was_written_since() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    let (ours, theirs) = (stage.mount(), stage.mount());
    let file = ours.create("f").unwrap();
    file.write_at(0, &pattern(1 << 20, 3)).unwrap();
    crash(&stage);
    ours.metadata("f").unwrap();
    theirs.options().write(true).truncate(true).open("f").unwrap().close().unwrap();
    file.write_at(0, b"ten bytes.").unwrap();
    file.close().unwrap();
    assert_eq!(theirs.metadata("f").unwrap().size, 10);
}

/// Two clients write the same bytes while their server drains nothing, and reconnect to its successor in the opposite order. The last
/// write stays, also if the successor is killed between the two.
#[test]
fn a_writer_that_comes_back_last_covers_nothing_newer() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    let (first, second) = (stage.mount(), stage.mount());
    let (older, newer) = (file_on(&first, "f", 1), file_on(&second, "f", 1));
    for lives in 1..3u8 {
        // Both are writers of the file before the server stops, so that no record needs the manager.
        for file in [&older, &newer, &older, &newer] {
            assert!(until(|| file.write_at(500, &[9; 100]).is_ok()), "it can be written");
        }
        stage.signal(1, Signal::STOP);
        older.write_at(0, &[lives; 100]).unwrap();
        newer.write_at(50, &[lives + 10; 100]).unwrap();
        stage.signal(1, Signal::KILL);
        stage.up();
        assert!(until(|| newer.sync().is_ok()), "the newer one is in the store");
        if lives == 2 {
            stage.signal(1, Signal::KILL);
            stage.up();
        }
        assert!(until(|| older.sync().is_ok()), "the older one is offered late, and lost nothing");
        let mut found = [0; 150];
        stage.mount().open("f").unwrap().read_exact_at(0, &mut found).unwrap();
        assert_eq!(found[..50], [lives; 50]);
        assert_eq!(found[50..], [lives + 10; 100], "life {lives}");
    }
}

/// An idle client does not block others after a restart.
#[test]
fn an_idle_client_blocks_nobody_after_a_restart() {
    let Some(stage) = Stage::start(SERVERS, "") else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    file.write_at(0, &[1; 1000]).unwrap();
    file.sync().unwrap();
    crash(&stage);
    let (size, took) = timed(|| stage.mount().metadata("f").unwrap().size);
    assert_eq!(size, 1000);
    assert!(took.as_secs() < 10, "{took:?}");
    file.write_at(1000, &[2; 1000]).unwrap();
    file.close().unwrap();
}

/// An unlinked file exists as long as it is open, also across a restart.
#[test]
fn an_open_file_without_a_name_outlives_a_restart() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    let data = pattern(100_000, 4);
    file.write_at(0, &data).unwrap();
    file.sync().unwrap();
    partition.remove_file("f").unwrap();
    crash(&stage);
    let mut back = vec![0; data.len()];
    file.read_exact_at(0, &mut back).unwrap();
    assert!(back == data);
    file.close().unwrap();
}

/// Writes that do not concern a stopped server continue, however many there are.
#[test]
fn a_stopped_server_holds_up_nothing_that_does_not_concern_it() {
    let Some(stage) = Stage::start(SERVERS, "[cache]\noutbox = \"512KiB\"") else { return };
    let partition = stage.mount();
    let (here, there) = (file_on(&partition, "here", 0), file_on(&partition, "there", 1));
    there.write_at(0, &[1; 1000]).unwrap();
    there.sync().unwrap();
    stage.signal(1, Signal::STOP);
    let (result, took) =
        timed(|| (0..500u64).try_for_each(|record| here.write_at(record * 8000, &[2; 8000])));
    stage.signal(1, Signal::CONT);
    result.unwrap();
    assert!(took.as_millis() < 3000, "{took:?}");
    here.close().unwrap();
    there.close().unwrap();
}
