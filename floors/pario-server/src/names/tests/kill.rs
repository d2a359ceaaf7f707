//! A process that creates and renames names is killed; every acknowledged change must be present afterwards.
//!
//! The process is this test program itself, started by an environment variable to run [`the_process_that_is_killed`] alone.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use pario_core::SessionId;
use pario_net::message::NameRequest;
use pario_store::RealDisk;

use super::world::{LAZY, defaults, parse};
use crate::names::{LedgerPace, Names, RequestOrigin};

const DIRECTORY: &str = "PARIO_TEST_NAMES_DIRECTORY";
const WORD: &str = "done ";
/// Logs are synced, memtables applied and logs replaced all the time, so that the kill interrupts one of these.
const BUSY: LedgerPace = LedgerPace {
    sync_after: Duration::from_millis(1),
    apply_after: Duration::from_millis(2),
    apply_bytes: 20_000,
    memtable_bytes_max: 60_000,
    ..LAZY
};

fn open(dir: PathBuf) -> Names {
    Names::open_with(RealDisk::shared(), &dir, defaults(), BUSY).unwrap()
}

/// The requests of the process in order: `number` is created as `t`, then renamed.
fn requests(number: u64) -> [NameRequest; 2] {
    [parse("exclusive t"), parse(&format!("move t f{number:06}"))]
}

#[test]
fn the_process_that_is_killed() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let mut names = open(dir.into());
    let mut stdout = std::io::stdout();
    for number in (names.stats().inodes - 1).. {
        for (part, request) in (0..).zip(&requests(number)) {
            let origin = RequestOrigin { session: SessionId(3), request: number * 2 + part };
            names.request(origin, request, 1).unwrap();
        }
        writeln!(stdout, "{WORD}{number}").unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut done = 0;
    for (round, extra) in [1, 40, 333, 1001, 250, 2000].into_iter().enumerate() {
        done = run_and_kill(dir.path().join("names"), done + extra);
        let names = open(dir.path().join("names"));
        let inodes = names.stats().inodes - 1;
        assert!((done..=done + 1).contains(&inodes), "round {round}: {done} told, {inodes} there");
        for number in 0..done {
            names.resolve(&pario_net::message::At::root(format!("f{number:06}")), false).unwrap();
        }
        // The next process continues with its own number.
        done = finish_last(names, inodes, done);
    }
}

/// A kill between creation and rename leaves `t`: repeated, both requests complete the rest, and nothing twice.
fn finish_last(mut names: Names, inodes: u64, done: u64) -> u64 {
    if inodes != done {
        for (part, request) in (0..).zip(&requests(done)) {
            let origin = RequestOrigin { session: SessionId(3), request: done * 2 + part };
            names.request(origin, request, 1).unwrap();
        }
        assert_eq!(names.stats().inodes - 1, inodes);
    }
    inodes
}

/// Kills the process after `until` acknowledgements; returns their number.
fn run_and_kill(dir: PathBuf, until: u64) -> u64 {
    let test = "the_process_that_is_killed";
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([test, "--nocapture"])
        .env(DIRECTORY, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = || loop {
        let line = lines.next()?.ok()?;
        if let Some(at) = line.find(WORD) {
            return line[at + WORD.len()..].parse::<u64>().ok();
        }
    };
    let mut done = 0;
    while done < until {
        done = next().expect("the process goes on until it is killed") + 1;
    }
    process.kill().unwrap();
    while let Some(number) = next() {
        done = number + 1;
    }
    process.wait().unwrap();
    done
}
