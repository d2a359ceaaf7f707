//! A server without free descriptors: it does not spin over connections that it cannot accept, serves its existing connections, and
//! accepts new ones as soon as it can.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::unix::net::UnixStream;

use common::stage::{Stage, until};
use common::{difference, pattern};
use pario::core::ServerIndex;
use pario::{File, Partition};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

const SERVERS: usize = 2;
/// Descriptors that a server may still open when connections flood it; it reserves some of them for its own work.
const SPARE: u64 = 60;
/// Connections of the flood; none greets.
const STORM: usize = 100;
/// Each refusal is one check of the queue of connections, and checks are half a second apart: a server that spun would count thousands
/// while the test waits for three.
const REFUSALS_MAX: u64 = 60;

fn server(stage: &Stage, server: usize) -> (Pid, std::path::PathBuf) {
    let entry = stage.registry().find("stage").unwrap();
    let entry = &entry.servers[server];
    (Pid::from_raw(i32::try_from(entry.pid).unwrap()).unwrap(), entry.unix.clone().unwrap())
}

fn descriptors(pid: Pid) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64
}

fn refused(partition: &Partition, server: usize) -> u64 {
    let index = ServerIndex(u16::try_from(server).unwrap());
    let text = partition.mount_handle().server_status(index).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    status["counters"]["refused"].as_u64().unwrap()
}

fn file_on(partition: &Partition, name: &str, server: usize) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(u16::try_from(server).unwrap()).open(name).unwrap()
}

/// A client with all resources it needs continues unaffected.
fn works_on(partition: &Partition, file: &File, seed: u64) {
    let data = pattern(300_000, seed);
    for part in data.chunks(3000).enumerate() {
        file.write_at(part.0 as u64 * 3000, part.1).unwrap();
    }
    file.sync().unwrap();
    let mut found = vec![0; data.len()];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(difference(&data, &found), None);
    assert_eq!(partition.metadata("before").unwrap().size, 300_000);
}

fn out_of_descriptors(victim: usize) {
    let Some(stage) = Stage::start(SERVERS, "stripe = \"64KiB\"") else { return };
    let partition = stage.mount();
    let file = file_on(&partition, "before", victim);
    works_on(&partition, &file, 1);
    let (pid, socket) = server(&stage, victim);
    let limit = descriptors(pid) + SPARE;
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).unwrap();
    let before = refused(&partition, victim);
    let storm: Vec<UnixStream> = (0..STORM).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert!(until(|| before + 3 <= refused(&partition, victim)), "it looks again now and then");
    let spun = refused(&partition, victim) - before;
    assert!(spun <= REFUSALS_MAX, "{spun} refusals: it spins");
    assert!(limit / 2 < descriptors(pid), "it took what it could");
    // Its own work needs descriptors too: logs of names, objects of files.
    for round in 0..10 {
        works_on(&partition, &file, 2);
        let other = file_on(&partition, &format!("other-{}", round % 4), victim);
        other.write_at(0, &[1; 1000]).unwrap();
        other.close().unwrap();
    }
    // A new client waits in the queue and is served when a descriptor is free.
    drop(storm);
    let late = stage.mount();
    assert!(until(|| late.metadata("before").is_ok()), "it takes connections again");
    let mut found = vec![0; 300_000];
    assert!(until(|| late.open("before").and_then(|file| file.read_exact_at(0, &mut found)).is_ok()));
    assert_eq!(difference(&pattern(300_000, 2), &found), None);
    works_on(&partition, &file, 3);
}

#[test]
fn a_data_server_out_of_descriptors_serves_on() {
    out_of_descriptors(1);
}

#[test]
fn a_manager_out_of_descriptors_serves_on() {
    out_of_descriptors(0);
}
