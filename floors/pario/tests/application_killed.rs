//! Applications killed at any time, also inside a write, with servers on their node: every write that had returned is visible to later
//! readers, and a partly made record leaves no trace.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::stage::{Program, Stage, job, mounted, pause, say};
use common::{SeededRandom, difference, pattern};
use pario::Partition;

/// Offset and length of a chunk; the same for writer and reader.
fn chunks(seed: u64) -> impl Iterator<Item = (u64, usize)> {
    let (mut chance, mut at) = (SeededRandom::new(seed), 0);
    std::iter::from_fn(move || {
        let most = chance.pick(&[1u64, 100, 8192, 8192, 70_000, 600_000]);
        let bytes = 1 + chance.below(most);
        at += bytes;
        Some((at - bytes, usize::try_from(bytes).unwrap()))
    })
}

/// Bytes of a version that is never zero.
fn version(number: u64, bytes: usize) -> Vec<u8> {
    vec![u8::try_from(1 + number % 255).unwrap(); bytes]
}

/// One record, on all servers.
const REGION: usize = 50_000;

/// Not a test of its own: writes until it is killed, and prints which writes had returned.
#[test]
fn child_writes() {
    let Some(job) = job() else { return };
    let (kind, seed) = job.split_once(' ').unwrap();
    let seed: u64 = seed.parse().unwrap();
    let partition = mounted();
    let file = partition.options().write(true).create(true).open(format!("f-{seed}")).unwrap();
    match kind {
        "append" => {
            for (number, (at, bytes)) in chunks(seed).enumerate() {
                file.write_at(at, &pattern(bytes, seed ^ number as u64)).unwrap();
                say(number as u64 + 1);
            }
        }
        "overwrite" => {
            for number in 0.. {
                file.write_at(1000, &version(number, REGION)).unwrap();
                say(number + 1);
            }
        }
        other => panic!("{other}"),
    }
}

/// Starts a writer and kills it during its work; returns how many of its writes had returned.
fn kill_a_writer(stage: &Stage, kind: &str, seed: u64) -> u64 {
    let mut chance = SeededRandom::new(seed ^ 0xdead);
    let mut program = Program::start(stage, "child_writes", &format!("{kind} {seed}"));
    let enough = 1 + chance.below(60);
    let mut known = 0;
    while known < enough {
        known = program.number().expect("it writes until it is killed");
    }
    // A short random delay, so that it dies at any instruction of a write.
    pause(std::time::Duration::from_micros(chance.below(3000)));
    program.kill(known)
}

fn read_all(partition: &Partition, seed: u64) -> Vec<u8> {
    let file = partition.open(format!("f-{seed}")).unwrap();
    let bytes = usize::try_from(file.len().unwrap()).unwrap();
    let mut found = vec![0; bytes];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(partition.metadata(format!("f-{seed}")).unwrap().size, bytes as u64);
    found
}

fn check_append(partition: &Partition, seed: u64, returned: u64) {
    let found = read_all(partition, seed);
    let mut all = chunks(seed).enumerate();
    for (number, (at, bytes)) in all.by_ref().take(usize::try_from(returned).unwrap()) {
        let at = usize::try_from(at).unwrap();
        let expected = pattern(bytes, seed ^ number as u64);
        let there = found.get(at..at + bytes).unwrap_or(&[]);
        if let Some(what) = difference(&expected, there) {
            panic!("seed {seed}: write {number} of {returned} that returned, at {at}: {what}");
        }
    }
    // The write under way may be present in parts, since its blocks are on several servers; no other bytes follow.
    let (number, (at, bytes)) = all.next().unwrap();
    let at = usize::try_from(at).unwrap();
    let expected = pattern(bytes, seed ^ number as u64);
    assert!(found.len() <= at + bytes, "seed {seed}: nothing behind the write under way");
    for (place, byte) in found.iter().enumerate().skip(at) {
        assert!(*byte == 0 || *byte == expected[place - at], "seed {seed}: byte {place} was never written");
    }
}

fn check_overwrite(partition: &Partition, seed: u64, returned: u64, way: WriterTransport) {
    let found = read_all(partition, seed);
    assert_eq!(found.len(), 1000 + REGION, "seed {seed}");
    assert!(found[..1000].iter().all(|byte| *byte == 0));
    let last = version(returned - 1, REGION);
    let next = version(returned, REGION);
    let region = &found[1000..];
    let of_either = region.iter().all(|byte| [last[0], next[0]].contains(byte));
    assert!(of_either, "seed {seed}: {:?} is neither {} nor {}", &region[..10], last[0], next[0]);
    // On the same node it is one record: the next write is complete or absent.
    if way == WriterTransport::SameNode {
        assert!(region == last || region == next, "seed {seed}: half of a record");
    }
}

/// How the writers reach the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriterTransport {
    SameNode,
    Network,
}

fn killed_at_random(settings: &str, seeds: std::ops::Range<u64>) {
    let Some(stage) = Stage::start(3, settings) else { return };
    let way = if settings.contains("tcp") { WriterTransport::Network } else { WriterTransport::SameNode };
    let bystander = stage.mount();
    let file = bystander.create("bystander").unwrap();
    for seed in seeds {
        let kind = if seed % 2 == 0 { "append" } else { "overwrite" };
        let returned = kill_a_writer(&stage, kind, seed);
        file.write_at(seed * 1000, &[1; 1000]).unwrap();
        // Checked by a client mounted before, and by one mounted after the kill.
        for reader in [&bystander, &stage.mount()] {
            match kind {
                "append" => check_append(reader, seed, returned),
                _ => check_overwrite(reader, seed, returned, way),
            }
        }
    }
    file.close().unwrap();
    assert_eq!(bystander.metadata("bystander").unwrap().size % 1000, 0);
}

#[test]
fn nothing_that_returned_is_lost_files() {
    killed_at_random("stripe = \"16KiB\"\nstore = \"files\"", 0..8);
}

#[test]
fn nothing_that_returned_is_lost_large_stripes() {
    killed_at_random("stripe = \"256KiB\"\nstore = \"files\"\n[cache]\noutbox = \"512KiB\"", 20..26);
}

#[test]
fn nothing_that_returned_is_lost_direct() {
    killed_at_random("stripe = \"16KiB\"\nstore = \"direct\"", 40..44);
}

#[test]
fn nothing_that_returned_is_lost_over_the_network() {
    killed_at_random("stripe = \"16KiB\"\nstore = \"files\"\ntransport = \"tcp\"", 60..64);
}

/// A killed writer's file also survives a stop and start of the partition.
#[test]
fn what_a_killed_writer_wrote_survives_a_restart() {
    let Some(stage) = Stage::start(2, "stripe = \"16KiB\"") else { return };
    let returned = kill_a_writer(&stage, "append", 100);
    let overwritten = kill_a_writer(&stage, "overwrite", 101);
    stage.down();
    stage.up();
    check_append(&stage.mount(), 100, returned);
    check_overwrite(&stage.mount(), 101, overwritten, WriterTransport::SameNode);
}
