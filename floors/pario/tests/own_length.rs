//! A writer's own view of its file's length: after a returned write it never shrinks, whichever process dies; and it includes the writes
//! of others as soon as they returned.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::stage::{Stage, until};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 3;
const DATA: &[u8] = &[7; 5000];
const RECORD: u64 = DATA.len() as u64;
const RESTARTS: usize = 4;

/// The result of one query, if the server that knows it was reachable.
fn look(said: pario::Result<u64>) -> Option<u64> {
    match said {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            assert_eq!(error.code(), Code::Unreachable, "{error}");
            None
        }
    }
}

/// Appends until it is stopped; checks the length by every method after each write.
fn append(partition: &Partition, file: &File, written: &AtomicU64, over: &AtomicBool) {
    let (mut end, mut seen) = (0, 0);
    while !over.load(Ordering::SeqCst) {
        match file.write_at(end, DATA) {
            Ok(()) => end += RECORD,
            // It may be present or not; the next write has the same offset.
            Err(error) => assert_eq!(error.code(), Code::Unreachable, "{error}"),
        }
        let looks = [
            ("len", look(file.len())),
            ("attr", look(file.attr().map(|attr| attr.size))),
            ("stat", look(partition.metadata("log").map(|attr| attr.size))),
        ];
        for (way, bytes) in looks.into_iter().filter_map(|(way, bytes)| Some((way, bytes?))) {
            assert!(end <= bytes, "{way} says {bytes} after {end} were written");
            assert!(bytes <= end + RECORD, "{way} says {bytes} although only {end} were written");
            assert!(seen <= bytes, "{way} returns {bytes} after {seen} was returned");
            seen = bytes;
        }
        written.store(end, Ordering::SeqCst);
    }
}

fn never_goes_back(settings: &str, victims: &[usize]) {
    let Some(stage) = Stage::start(SERVERS, settings) else { return };
    let partition = stage.mount();
    let file = partition.create("log").unwrap();
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| append(&partition, &file, &written, &over));
        for _ in 0..RESTARTS {
            let before = written.load(Ordering::SeqCst);
            let goes_on = || before + 20 * RECORD < written.load(Ordering::SeqCst) || writer.is_finished();
            assert!(until(goes_on), "the writer goes on");
            for victim in victims {
                stage.signal(*victim, Signal::KILL);
            }
            stage.up();
        }
        let before = written.load(Ordering::SeqCst);
        assert!(until(|| before < written.load(Ordering::SeqCst) || writer.is_finished()), "and in the end");
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    let end = written.load(Ordering::SeqCst);
    file.close().unwrap();
    // A failed last write may be present all the same.
    let bytes = stage.mount().metadata("log").unwrap().size;
    assert!(end <= bytes && bytes <= end + RECORD, "{bytes} of {end}");
}

#[test]
fn it_never_goes_back_when_the_manager_is_replaced() {
    never_goes_back("stripe = \"16KiB\"", &[0]);
}

#[test]
fn it_never_goes_back_when_all_servers_are_replaced() {
    never_goes_back("stripe = \"16KiB\"", &[0, 1, 2]);
}

#[test]
fn it_never_goes_back_over_tcp() {
    never_goes_back("stripe = \"16KiB\"\ntransport = \"tcp\"", &[0]);
}

/// The lease of one client is returned on its own thread, while another client's write is already granted, done and returned: a query at
/// the first client must not return the length that it knew before.
#[test]
fn what_another_wrote_counts_though_our_lease_is_still_on_its_way_back() {
    const FILES: usize = 400;
    let partition = Partition::in_process(1).unwrap();
    let other = partition.another_client();
    for number in 0..FILES {
        let name = format!("f{number}");
        let file = partition.create(&name).unwrap();
        file.write_at(0, b"alone").unwrap();
        let theirs = other.options().write(true).open(&name).unwrap();
        theirs.write_at(5, b"and more").unwrap();
        assert_eq!(file.len().unwrap(), 13, "{name}: the other's write has returned");
    }
}
