//! A writer of small records, which needs no server to return, gets an error about a dead or stopped server early and not only at close;
//! and a writer on a restarted partition loses no data that its servers can still drain.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::pattern;
use common::stage::{Stage, pause, timed};
use pario::core::Code;
use rustix::process::Signal;

const RECORD: usize = 1000;

/// Writes small records until one fails; fails itself if none does within a generous limit.
#[track_caller]
fn told_of(stage: &Stage, signal: Signal) {
    let partition = stage.mount();
    let file = partition.create("log").unwrap();
    for record in 0..50u64 {
        file.write_at(record * RECORD as u64, &[1; RECORD]).unwrap();
    }
    file.sync().unwrap();
    stage.signal(1, signal);
    let (error, took) = timed(|| {
        (50..1000u64).find_map(|record| {
            pause(Duration::from_millis(20));
            file.write_at(record * RECORD as u64, &[2; RECORD]).err()
        })
    });
    let error = error.expect("a write fails long before 19 s are over");
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    assert!(error.to_string().contains("server 1"), "{error}");
    assert!(took < Duration::from_secs(12), "{took:?}");
    if signal == Signal::STOP {
        stage.signal(1, Signal::CONT);
    }
}

#[test]
fn small_writes_fail_soon_after_a_server_was_killed() {
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    told_of(&stage, Signal::KILL);
}

#[test]
fn small_writes_fail_soon_after_a_server_was_stopped() {
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    told_of(&stage, Signal::STOP);
}

/// With plain files below, data that a killed server had drained is in the kernel, and undrained records are in the writer's outbox: when
/// the partition is restarted, the same handle continues and no byte is missing.
#[test]
fn a_partition_that_comes_back_takes_up_where_it_stopped() {
    let Some(stage) = Stage::start(3, "stripe = \"16KiB\"") else { return };
    let partition = stage.mount();
    let file = partition.create("field").unwrap();
    let data = pattern(3_000_000, 7);
    for (number, part) in data[..1_500_000].chunks(RECORD).enumerate() {
        file.write_at((number * RECORD) as u64, part).unwrap();
    }
    stage.signal(2, Signal::KILL);
    stage.up();
    for (number, part) in data.chunks(RECORD).enumerate().skip(1500) {
        file.write_at((number * RECORD) as u64, part).unwrap();
    }
    file.sync().unwrap();
    let mut back = vec![0; data.len()];
    let other = stage.mount();
    other.open("field").unwrap().read_exact_at(0, &mut back).unwrap();
    assert!(
        back == data,
        "the first difference is at {:?}",
        back.iter().zip(&data).position(|(a, b)| a != b)
    );
    file.close().unwrap();
}
