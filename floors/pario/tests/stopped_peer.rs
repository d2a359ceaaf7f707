//! A data server is stopped, and many calls that the manager cannot answer without it are under way: calls that do not need it overtake
//! them.
//!
//! Always: overtaking is known from the order of events, not from durations: while the calls that need the server are at the manager and
//! none of them is answered, all others end.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::stage::{Stage, until};
use common::{difference, pattern};
use pario::core::{Code, ServerIndex};
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 3;
const STOPPED: usize = 1;
/// More than the manager ever has under way at one peer.
const CLIENTS: usize = 3;
const CUTS_OF_EACH: usize = 8;
const CUTS: usize = CLIENTS * CUTS_OF_EACH;
/// On a busy machine the overtaking calls may take as long as the timeout of a silent server; then the test repeats.
const ATTEMPTS: usize = 5;

fn file_on(partition: &Partition, name: &str, server: usize) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open(name).unwrap()
}

/// Truncations that the manager has begun and no server has finished.
fn cuts_under_way(partition: &Partition) -> usize {
    let text = partition.mount_handle().server_status(ServerIndex::MANAGER).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    usize::try_from(status["manager"]["unfinished_truncations"].as_u64().unwrap()).unwrap()
}

/// All calls that do not need the stopped server, including those that the manager forwards to a peer.
fn others_go_on(partition: &Partition, attempt: usize) {
    let data = pattern(100_000, 1);
    for server in (0..SERVERS).filter(|server| *server != STOPPED) {
        for number in 0..3 {
            let name = format!("other-{attempt}-{server}-{number}");
            let file = file_on(partition, &name, server);
            file.write_at(0, &data).unwrap();
            file.sync().unwrap();
            assert_eq!(partition.metadata(&name).unwrap().size, 100_000);
            partition.rename(&name, format!("{name}-renamed")).unwrap();
            let mut found = vec![0; data.len()];
            file.read_exact_at(0, &mut found).unwrap();
            assert_eq!(difference(&data, &found), None);
            file.set_len(10).unwrap();
            assert_eq!(file.len().unwrap(), 10);
            file.close().unwrap();
            partition.options().write(true).truncate(true).open(format!("{name}-renamed")).unwrap();
            partition.remove_file(format!("{name}-renamed")).unwrap();
        }
    }
}

/// Whether all calls that do not need the server ended before any call that needs it.
fn goes_by(stage: &Stage, attempt: usize) -> bool {
    let clients: Vec<Partition> = (0..CLIENTS).map(|_| stage.mount()).collect();
    let bystander = stage.mount();
    let name = |cut: usize| format!("needed-{attempt}-{cut}");
    let files: Vec<File> =
        (0..CUTS).map(|cut| file_on(&clients[cut % CLIENTS], &name(cut), STOPPED)).collect();
    for file in &files {
        file.write_at(0, &[1; 50_000]).unwrap();
        file.sync().unwrap();
    }
    assert_eq!(cuts_under_way(&bystander), 0);
    // The bystander's session shares no connection with waiting calls; a client's session does.
    others_go_on(&bystander, 100 + attempt);
    stage.signal(STOPPED, Signal::STOP);
    let answered = AtomicUsize::new(0);
    let went_by = std::thread::scope(|scope| {
        let cuts: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(|| {
                    let error = file.set_len(10).expect_err("a server that it needs is stopped");
                    answered.fetch_add(1, Ordering::SeqCst);
                    error
                })
            })
            .collect();
        let begun = until(|| cuts_under_way(&bystander) == CUTS || 0 < answered.load(Ordering::SeqCst));
        assert!(begun, "the manager begins the cuts");
        others_go_on(&bystander, attempt);
        others_go_on(&clients[0], 200 + attempt);
        let went_by = answered.load(Ordering::SeqCst) == 0;
        for cut in cuts {
            let error = cut.join().unwrap();
            assert_eq!(error.code(), Code::Unreachable, "{error}");
            assert!(error.to_string().contains(&format!("server {STOPPED}")), "{error}");
        }
        went_by
    });
    stage.signal(STOPPED, Signal::CONT);
    // Unfinished work is finished at the next open of the file.
    for file in &files {
        assert!(until(|| file.set_len(10).is_ok()), "the server is asked again");
        assert_eq!(file.len().unwrap(), 10);
    }
    went_by
}

#[test]
fn a_stopped_peer_delays_only_calls_that_need_it() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    assert!(
        (0..ATTEMPTS).any(|attempt| goes_by(&stage, attempt)),
        "calls wait for a server they do not need"
    );
}

/// The same with a killed server, and many calls that need it as long as it is down.
#[test]
fn a_killed_peer_delays_only_calls_that_need_it() {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"16KiB\"") else { return };
    let (client, bystander) = (stage.mount(), stage.mount());
    let files: Vec<File> =
        (0..CUTS_OF_EACH).map(|cut| file_on(&client, &format!("needed-{cut}"), STOPPED)).collect();
    for file in &files {
        file.write_at(0, &[1; 50_000]).unwrap();
        file.sync().unwrap();
    }
    stage.signal(STOPPED, Signal::KILL);
    let others_done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                while others_done.load(Ordering::SeqCst) == 0 {
                    let error = file.set_len(10).expect_err("a server that it needs is gone");
                    assert!(error.to_string().contains(&format!("server {STOPPED}")), "{error}");
                }
            });
        }
        others_go_on(&bystander, 0);
        others_go_on(&client, 1);
        others_done.store(1, Ordering::SeqCst);
    });
    stage.up();
    for file in &files {
        assert!(until(|| file.set_len(10).is_ok()), "the new server is asked");
    }
}
