//! Records of closed files when their server dies: they are offered again as soon as it is back, every client sees the same length, and a
//! loss is reported by the next call and by a line at the end of the process.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::stage::{Stage, job, mounted, pause, say, timed, until};
use common::{difference, pattern};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 2;
const RECORD: usize = 8 << 10;
const STRIPE: &str = "stripe = \"16KiB\"";

fn file_on(partition: &Partition, name: &str, server: u16) -> File {
    let options = partition.options().read(true).write(true).create(true).stripe_count(1);
    options.first_server(server).open(name).unwrap()
}

/// Writes records of `data` one after the other until one fails; returns how many bytes were acknowledged.
fn write_until_told(file: &File, data: &[u8]) -> usize {
    for (number, part) in data.chunks(RECORD).enumerate() {
        if file.write_at((number * RECORD) as u64, part).is_err() {
            return number * RECORD;
        }
    }
    data.len()
}

fn expect(partition: &Partition, name: &str, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    partition.open(name).unwrap().read_exact_at(0, &mut found).unwrap();
    if let Some(what) = difference(expected, &found) {
        panic!("{name}: {what}");
    }
}

/// A writer that computes between two records, and drops its handle on request: its own process must not consider the file empty.
#[test]
fn a_writer_sees_the_length_that_all_see_after_a_managers_restart() {
    let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
    for round in 0..4u64 {
        let partition = stage.mount();
        let name = format!("f{round}");
        let file = partition.create(&name).unwrap();
        let data = pattern(1 << 20, round);
        for (number, part) in data[..512 << 10].chunks(RECORD).enumerate() {
            file.write_at((number * RECORD) as u64, part).unwrap();
        }
        stage.signal(0, Signal::KILL);
        let written = write_until_told(&file, &data);
        drop(file);
        stage.up();
        let own = partition.metadata(&name).unwrap().size;
        let others = stage.mount().metadata(&name).unwrap().size;
        assert!(written as u64 <= own, "round {round}: {written} bytes were written, the writer sees {own}");
        assert_eq!(own, others, "round {round}: the writer sees {own} bytes, others {others}");
        let again = partition.options().read(true).write(true).open(&name).unwrap();
        assert_eq!(again.len().unwrap(), own, "round {round}: a new handle");
        expect(&stage.mount(), &name, &data[..written]);
    }
}

/// The handle is dropped while the records wait for a server; no call follows.
#[test]
fn records_are_offered_again_without_a_call() {
    for server in 0..2u16 {
        let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
        let partition = stage.mount();
        let file = file_on(&partition, "f", server);
        let data = pattern(64 * RECORD, 7);
        file.write_at(0, &data[..RECORD]).unwrap();
        file.sync().unwrap();
        // Records that a stopped server has not drained, its successor has not either.
        stage.signal(server.into(), Signal::STOP);
        for (number, part) in data.chunks(RECORD).enumerate() {
            file.write_at((number * RECORD) as u64, part).unwrap();
        }
        stage.signal(server.into(), Signal::KILL);
        drop(file);
        stage.up();
        let other = stage.mount();
        expect(&other, "f", &data);
        assert_eq!(other.metadata("f").unwrap().size, data.len() as u64);
        assert_eq!(partition.metadata("f").unwrap().size, data.len() as u64);
        // The use of the file has ended: it can be truncated and removed.
        other.options().write(true).truncate(true).open("f").unwrap().close().unwrap();
        assert_eq!(partition.metadata("f").unwrap().size, 0, "what was closed says nothing about a cut file");
        partition.remove_file("f").unwrap();
    }
}

/// A file that is opened again while its close waits for a server continues to be used.
#[test]
fn a_file_whose_close_waits_can_be_opened_again() {
    let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
    let partition = stage.mount();
    let file = file_on(&partition, "f", 1);
    let data = pattern(8 * RECORD, 9);
    file.write_at(0, &data[..RECORD]).unwrap();
    file.sync().unwrap();
    stage.signal(1, Signal::STOP);
    file.write_at(0, &data).unwrap();
    stage.signal(1, Signal::KILL);
    file.close().unwrap_err();
    let again = file_on(&partition, "f", 1);
    assert_eq!(again.len().unwrap(), data.len() as u64);
    stage.up();
    assert!(until(|| again.write_at(data.len() as u64, &[3; 100]).is_ok()), "the server is back");
    again.close().unwrap();
    expect(&stage.mount(), "f", &[&data[..], &[3; 100]].concat());
}

/// Another client opens the file while its server is dead: records that could not be offered until then are lost, and their writer gets
/// one error.
#[test]
fn what_is_lost_is_told_by_the_next_call() {
    let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
    let partition = stage.mount();
    partition.create("other").unwrap().close().unwrap();
    let file = file_on(&partition, "f", 1);
    file.write_at(0, &[1; RECORD]).unwrap();
    file.sync().unwrap();
    stage.signal(1, Signal::STOP);
    file.write_at(0, &[2; RECORD]).unwrap();
    stage.signal(1, Signal::KILL);
    drop(file);
    // Recalls the lease; the manager is running.
    let _ = stage.mount().metadata("f");
    let error = (0..200).find_map(|_| {
        pause(Duration::from_millis(20));
        partition.metadata("other").err()
    });
    let error = error.expect("the loss is reported");
    assert_eq!(error.code(), Code::Lost, "{error}");
    assert!(error.to_string().contains("/f") && error.to_string().contains("server 1"), "{error}");
    partition.metadata("other").unwrap();
    stage.up();
    expect(&stage.mount(), "f", &[1; RECORD]);
}

/// Not a test of its own: a program that writes records for a server that is about to die, and ends.
#[test]
fn program() {
    let Some(job) = job() else { return };
    let partition = mounted();
    let file = file_on(&partition, "f", 1);
    file.write_at(0, &[1; RECORD]).unwrap();
    file.sync().unwrap();
    say(1);
    // The server is stopped by then.
    let go = std::env::var("PARIO_TEST_GO").unwrap();
    assert!(until(|| std::path::Path::new(&go).exists()));
    file.write_at(0, &[2; 4 * RECORD]).unwrap();
    say(2);
    if job == "keep" {
        assert!(until(|| file.sync().is_err()), "it hears of the server's death");
        say(3);
        std::process::exit(0);
    }
    assert!(until(|| std::path::Path::new(&format!("{go}-killed")).exists()));
    drop(file);
    say(3);
}

/// Starts the program and kills the server before its records are drained; returns its last output, and the time to its end.
fn end_with_records(stage: &Stage, job: &str, meanwhile: impl FnOnce()) -> (String, Duration) {
    let go = stage.dir().join("go");
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--nocapture"])
        .env("PARIO_TEST_JOB", job)
        .env("PARIO_TEST_GO", &go)
        .env("PARIO_REGISTRY", stage.registry().path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(program.stdout.take().unwrap());
    let mut hear = |wanted: &str| {
        let mut line = String::new();
        while !line.ends_with(wanted) {
            line.clear();
            assert_ne!(std::io::BufRead::read_line(&mut lines, &mut line).unwrap(), 0, "it says {wanted:?}");
        }
    };
    hear("said 1\n");
    stage.signal(1, Signal::STOP);
    std::fs::write(&go, "").unwrap();
    hear("said 2\n");
    stage.signal(1, Signal::KILL);
    std::fs::write(stage.dir().join("go-killed"), "").unwrap();
    hear("said 3\n");
    let (output, took) = timed(|| {
        meanwhile();
        program.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8_lossy(&output.stderr).into_owned(), took)
}

#[test]
fn a_process_that_ends_waits_for_a_server_that_comes_back() {
    for job in ["drop", "keep"] {
        let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
        let (said, _) = end_with_records(&stage, job, || stage.up());
        assert!(!said.contains("server 1 did not drain"), "{job}: {said}");
        expect(&stage.mount(), "f", &[2; 4 * RECORD]);
    }
}

#[test]
fn a_process_that_ends_says_what_was_not_taken() {
    for job in ["drop", "keep"] {
        let Some(stage) = Stage::start(SERVERS, STRIPE) else { return };
        let (said, took) = end_with_records(&stage, job, || ());
        let line = said.lines().find(|line| line.contains("server 1 did not drain"));
        let line = line.unwrap_or_else(|| panic!("{job}: nothing was said: {said}"));
        assert!(line.contains("pario://stage/f") && line.contains("bytes"), "{line}");
        assert!(took < Duration::from_secs(10), "{job}: {took:?}");
        stage.up();
        expect(&stage.mount(), "f", &[1; RECORD]);
    }
}
