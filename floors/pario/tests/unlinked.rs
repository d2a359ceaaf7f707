//! A file that one process keeps in its node cache and another process removes: its objects leave the servers' disks immediately, not at
//! the next eviction of the node cache; and not before all handles are closed.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::stage::{Program, Stage, job, mounted, say, until};
use common::{difference, pattern};
use pario::core::{Clock, Code};
use pario::{Alone, Hints, Method};
use pario_sys::clock::MonotonicClock;
use rustix::process::Signal;

const BYTES: usize = 300_000;
/// Path of the signal file for the keeper.
const GO: &str = "PARIO_TEST_GO";

fn hints() -> Hints {
    Hints { method: Some(Method::ClientDirected), ..Hints::default() }
}

/// The process with the node cache that keeps the file.
#[test]
fn keeper() {
    let Some(job) = job() else { return };
    let partition = mounted();
    let options = partition.options().create(true).read(true).write(true);
    let file = options.open_all(&Alone::group(), "kept", &hints()).unwrap();
    let data = pattern(BYTES, 1);
    file.write_at_all(0, &data).unwrap();
    let go = std::env::var(GO).unwrap();
    match job.as_str() {
        "closed" => file.close().unwrap(),
        _ => {
            file.sync().unwrap();
            say(1);
            assert!(until(|| Path::new(&go).exists()));
            let mut found = vec![0; BYTES];
            assert_eq!(file.read_at_all(0, &mut found).unwrap(), BYTES);
            assert_eq!(difference(&data, &found), None, "a process with an open handle reads it");
            file.close().unwrap();
        }
    }
    say(2);
    // The process, its session and its node cache exist until the test has finished.
    assert!(until(|| Path::new(&format!("{go}-home")).exists()));
    drop(partition);
}

/// Objects on all servers' disks.
fn objects(stage: &Stage) -> usize {
    let of = |server: usize| {
        let directories = std::fs::read_dir(stage.server_dir(server).join("objects")).unwrap();
        let files = directories.map(Result::unwrap).map(|directory| std::fs::read_dir(directory.path()));
        files.map(|files| files.map_or(0, Iterator::count)).sum::<usize>()
    };
    (0..2).map(of).sum()
}

fn start(stage: &Stage, job: &str) -> Program {
    let go = stage.dir().join("go");
    Program::start_with(stage, "keeper", job, &[(GO, go.as_os_str())])
}

#[test]
fn what_a_tier_only_keeps_goes_when_another_process_removes_it() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let mut keeper = start(&stage, "closed");
    assert_eq!(keeper.number(), Some(2));
    assert_eq!(objects(&stage), 2, "a part on each server");
    stage.mount().remove_file("kept").unwrap();
    assert!(
        until(|| objects(&stage) == 0),
        "the keeper is running, and its node cache has released the file"
    );
    std::fs::write(stage.dir().join("go-home"), "").unwrap();
    assert!(keeper.end(0).1.success());
}

#[test]
fn a_file_that_a_new_one_replaces_goes_too() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let mut keeper = start(&stage, "closed");
    assert_eq!(keeper.number(), Some(2));
    let partition = stage.mount();
    partition.create("new").unwrap().write_at(0, b"one object").unwrap();
    partition.rename("new", "kept").unwrap();
    assert!(until(|| objects(&stage) == 1), "only the new file's object is there");
    std::fs::write(stage.dir().join("go-home"), "").unwrap();
    assert!(keeper.end(0).1.success());
}

#[test]
fn a_file_that_is_open_in_a_tier_goes_with_its_close() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let mut keeper = start(&stage, "open");
    assert_eq!(keeper.number(), Some(1));
    stage.mount().remove_file("kept").unwrap();
    std::fs::write(stage.dir().join("go"), "").unwrap();
    assert_eq!(keeper.number(), Some(2), "it could read the file to the end");
    assert!(until(|| objects(&stage) == 0));
    std::fs::write(stage.dir().join("go-home"), "").unwrap();
    assert!(keeper.end(0).1.success());
}

/// Formerly a removal waited this long for the servers of a large file.
const FORMER_WAIT: Duration = Duration::from_millis(400);

#[test]
fn the_bytes_of_a_large_file_are_removed_after_its_removal_or_replacement() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let partition = stage.mount();
    for turn in 0..4 {
        let file = partition.create("large").unwrap();
        file.write_at(0, &pattern(4 << 20, turn)).unwrap();
        file.close().unwrap();
        assert_eq!(objects(&stage), 2);
        match turn % 2 {
            0 => partition.remove_file("large").unwrap(),
            _ => {
                partition.create("other").unwrap().close().unwrap();
                partition.rename("other", "large").unwrap();
            }
        }
        assert!(until(|| objects(&stage) == 0), "turn {turn}");
    }
}

/// Removals by several threads: on a busy machine one of them may be slow, but not all.
#[test]
fn the_removal_of_a_large_file_does_not_wait_for_a_stopped_server() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let partition = stage.mount();
    let names: Vec<String> = (0..4).map(|number| format!("large-{number}")).collect();
    for name in &names {
        let file = partition.create(name).unwrap();
        file.write_at(0, &pattern(2 << 20, 1)).unwrap();
        file.close().unwrap();
    }
    stage.signal(1, Signal::STOP);
    let remove = |name: &String| {
        let began = MonotonicClock.now();
        partition.remove_file(name).unwrap();
        MonotonicClock.now().since(began)
    };
    let waits: Vec<Duration> = std::thread::scope(|threads| {
        let running: Vec<_> = names.iter().map(|name| threads.spawn(|| remove(name))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(waits.iter().min().unwrap() < &FORMER_WAIT, "{waits:?}");
    assert_eq!(partition.metadata(&names[0]).unwrap_err().code(), Code::NotFound);
    assert_ne!(objects(&stage), 0, "the stopped server has its part");
    stage.signal(1, Signal::CONT);
    assert!(until(|| objects(&stage) == 0), "it is removed when the server is back");
}
