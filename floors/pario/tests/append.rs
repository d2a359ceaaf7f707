//! Appends of several clients: every line is present once and complete, in the order of each appender, in every phase of the file, with
//! concurrent readers, truncation, and a killed appender.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::TRANSPORTS;
use common::stage::{Program, Stage, job, mounted, say, until};
use pario::{EmbedOptions, File, Partition};

/// Lines of different lengths, some of which lie on two servers.
fn line(appender: usize, number: usize) -> String {
    format!("{appender} {number} {}\n", "x".repeat((appender * 31 + number * 17) % 257))
}

fn open(partition: &Partition, path: &str) -> File {
    partition.options().read(true).write(true).create(true).open(path).unwrap()
}

/// Number of lines of each appender; all complete, each once, in order.
#[track_caller]
fn check(bytes: &[u8]) -> BTreeMap<usize, usize> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    let mut counts = BTreeMap::new();
    for found in text.split_inclusive('\n') {
        let appender = found.split(' ').next().unwrap().parse::<usize>().unwrap();
        let number = counts.entry(appender).or_insert(0);
        assert_eq!(found, line(appender, *number), "a line is lost, or twice there, or torn");
        *number += 1;
    }
    counts
}

#[test]
fn appends_of_several_clients_are_all_there_on_every_transport() {
    const LINES: usize = 500;
    for transport in TRANSPORTS {
        for appenders in [1, 2, 4] {
            let options =
                EmbedOptions { servers: 2, transport, stripe_bytes: 4096, ..EmbedOptions::default() };
            let partition = Partition::embed(&options).unwrap();
            std::thread::scope(|scope| {
                for appender in 0..appenders {
                    let client = partition.another_client();
                    scope.spawn(move || {
                        let file = open(&client, "log");
                        let mut last = None;
                        for number in 0..LINES {
                            let at = file.append(line(appender, number).as_bytes()).unwrap();
                            assert!(last < Some(at), "{last:?}, then {at}");
                            last = Some(at);
                        }
                        file.close().unwrap();
                    });
                }
            });
            let counts = check(&common::read_all(&partition, "log"));
            assert_eq!(counts, (0..appenders).map(|appender| (appender, LINES)).collect(), "{transport:?}");
        }
    }
}

#[test]
fn threads_of_one_client_append_without_messages() {
    const LINES: usize = 500;
    let partition = Partition::in_process(2).unwrap();
    let file = open(&partition, "log");
    file.append(b"").unwrap();
    file.append(line(9, 0).as_bytes()).unwrap();
    let before = partition.counts();
    std::thread::scope(|scope| {
        for appender in 0..3 {
            let file = &file;
            scope.spawn(move || {
                for number in 0..LINES {
                    file.append(line(appender, number).as_bytes()).unwrap();
                }
            });
        }
    });
    assert_eq!(partition.counts().since(&before).lock_messages, 0);
    let counts = check(&common::read_all(&partition, "log"));
    assert_eq!(counts, [(0, LINES), (1, LINES), (2, LINES), (9, 1)].into());
}

/// A reader sees complete lines only, never bytes that are reserved by an appender and not written yet.
#[test]
fn a_reader_beside_appenders_finds_no_holes() {
    const LINES: usize = 300;
    let partition = Partition::in_process(2).unwrap();
    let (running, first) = (AtomicUsize::new(2), open(&partition, "log"));
    std::thread::scope(|scope| {
        for appender in 0..2 {
            let (client, running) = (partition.another_client(), &running);
            scope.spawn(move || {
                let file = open(&client, "log");
                for number in 0..LINES {
                    file.append(line(appender, number).as_bytes()).unwrap();
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        while 0 < running.load(Ordering::SeqCst) {
            let mut bytes = vec![1; usize::try_from(first.len().unwrap()).unwrap()];
            first.read_exact_at(0, &mut bytes).unwrap();
            check(&bytes);
        }
    });
    assert_eq!(check(&common::read_all(&partition, "log")), [(0, LINES), (1, LINES)].into());
}

/// After a truncation the next append is at the new end: there is no hole before it.
#[test]
fn appends_to_a_file_that_is_cut_beside_go_to_its_new_end() {
    let partition = Partition::in_process(2).unwrap();
    let (cutter, over, cuts) = (partition.another_client(), AtomicBool::new(false), AtomicUsize::new(0));
    let file = open(&partition, "log");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = open(&cutter, "log");
            while !over.load(Ordering::SeqCst) {
                file.set_len(0).unwrap();
                cuts.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert!(until(|| {
            file.append(&[7; 100]).unwrap();
            50 <= cuts.load(Ordering::SeqCst)
        }));
        over.store(true, Ordering::SeqCst);
    });
    let bytes = common::read_all(&partition, "log");
    assert!(bytes.len().is_multiple_of(100) && bytes.iter().all(|byte| *byte == 7), "{} bytes", bytes.len());
}

/// The program that is killed: appends, and prints how many appends have returned.
#[test]
fn appends_until_it_is_killed() {
    let Some(appender) = job() else { return };
    let file = open(&mounted(), "log");
    for number in 0.. {
        file.append(line(appender.parse().unwrap(), number).as_bytes()).unwrap();
        say(number as u64 + 1);
    }
}

/// Every append of a killed process that returned is complete; the others continue after it.
#[test]
fn one_of_the_appenders_is_killed() {
    let Some(stage) = Stage::start(2, "stripe = \"64KiB\"") else { return };
    let mut victim = Program::start(&stage, "appends_until_it_is_killed", "0");
    let mut other = Program::start(&stage, "appends_until_it_is_killed", "1");
    let partition = stage.mount();
    let file = open(&partition, "log");
    let mut own = 0;
    let mut told = 0;
    while told < 200 {
        told = victim.number().unwrap();
        file.append(line(2, own).as_bytes()).unwrap();
        own += 1;
    }
    let told = victim.kill(told);
    for _ in 0..200 {
        file.append(line(2, own).as_bytes()).unwrap();
        own += 1;
    }
    let mut others = 0;
    assert!(until(|| {
        others = other.number().unwrap();
        200 <= others
    }));
    let others = other.kill(others);
    file.close().unwrap();
    let counts = check(&common::read_all(&partition, "log"));
    assert_eq!(counts[&2], own);
    let one_more = |told: u64, found: usize| told <= found as u64 && found as u64 <= told + 1;
    assert!(one_more(told, counts[&0]) && one_more(others, counts[&1]), "{told}, {others}: {counts:?}");
}
