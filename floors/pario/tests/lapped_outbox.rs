//! A server is stopped while it may be draining records, and its client, which considers it dead, reuses the memory of those records. When
//! the server resumes it finds other files' bytes where it was reading.
//!
//! Always: no byte of one file is found in another; every byte of a file that a sync acknowledged is present; a writer with dropped
//! records gets an error.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::stage::{Stage, until};
use common::{SeededRandom, Trace, histories};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 3;
const STOPPED: usize = 1;
/// Of the victim and of each bystander, overwritten repeatedly.
const FILE_BYTES: u64 = 256 << 10;
/// Small, so that it wraps around early.
const OUTBOX_BYTES: u64 = 256 << 10;

/// A file with words that hold file, iteration and offset of their write.
struct Marked {
    file: File,
    number: u64,
    /// The iteration of the last returned write to each slot.
    rounds: Vec<AtomicU64>,
}

const RECORD: u64 = 4096;

fn word(number: u64, round: u64, at: u64) -> u64 {
    number << 56 | round << 32 | at
}

impl Marked {
    fn create(partition: &Partition, name: &str, server: usize, number: u64) -> Marked {
        let options = partition.options().read(true).write(true).create(true).stripe_count(1);
        let file = options.first_server(u16::try_from(server).unwrap()).open(name).unwrap();
        let rounds = (0..FILE_BYTES / RECORD).map(|_| AtomicU64::new(0)).collect();
        Marked { file, number, rounds }
    }

    fn write(&self, place: usize, round: u64) -> pario::Result<()> {
        let at = place as u64 * RECORD;
        let data: Vec<u8> =
            (0..RECORD / 8).flat_map(|step| word(self.number, round, at + step * 8).to_le_bytes()).collect();
        self.file.write_at(at, &data)?;
        self.rounds[place].store(round, Ordering::SeqCst);
        Ok(())
    }

    fn write_all(&self, round: u64) -> pario::Result<()> {
        (0..self.rounds.len()).try_for_each(|place| self.write(place, round))
    }

    /// Reads it from another client: every word belongs to this file and offset, or was never written; where a slot is `held`, also to the
    /// last iteration.
    fn check(&self, elsewhere: &File, held: impl Fn(usize) -> bool) {
        let mut bytes = vec![0; usize::try_from(FILE_BYTES).unwrap()];
        assert_eq!(elsewhere.read_at(0, &mut bytes).unwrap(), bytes.len());
        for (step, found) in bytes.chunks_exact(8).enumerate() {
            let (at, found) = (step as u64 * 8, u64::from_le_bytes(found.try_into().unwrap()));
            let place = usize::try_from(at / RECORD).unwrap();
            let round = match held(place) {
                true => self.rounds[place].load(Ordering::SeqCst),
                false if found == 0 => continue,
                false => found >> 32 & 0xff_ffff,
            };
            assert_eq!(found, word(self.number, round, at), "file {} at {at}: {found:#x}", self.number);
        }
    }
}

/// Overwrites files on the other servers until the ring was lapped more than once.
fn lap(bystanders: &[Marked], partition: &Partition) {
    let before = partition.counts().record_bytes;
    for round in 1.. {
        for bystander in bystanders {
            bystander.write_all(round).unwrap();
        }
        if before + 3 * OUTBOX_BYTES <= partition.counts().record_bytes {
            return;
        }
    }
}

fn lapped(seed: u64, trace: &Trace) {
    let settings = "stripe = \"64KiB\"\n[cache]\noutbox = \"256KiB\"";
    let Some(stage) = Stage::start(SERVERS, settings) else { return };
    let mut chance = SeededRandom::new(seed);
    let partition = stage.mount();
    let victim = Marked::create(&partition, "victim", STOPPED, 1);
    let bystanders: Vec<Marked> = (0..SERVERS)
        .filter(|server| *server != STOPPED)
        .map(|server| Marked::create(&partition, &format!("bystander-{server}"), server, 2 + server as u64))
        .collect();
    victim.write_all(1).unwrap();
    victim.file.sync().unwrap();
    trace.step("stopped while records are on their way");
    let unsure = write_and_stop(&stage, &victim, &mut chance);
    trace.step(format!("the ring is lapped; a write failed: {unsure:?}"));
    lap(&bystanders, &partition);
    stage.signal(STOPPED, Signal::CONT);
    trace.step("the server wakes up");
    let told = first_sync(&victim.file);
    trace.step(format!("the sync said {told:?}"));
    eprintln!("seed {seed:#x}: a write failed: {unsure:?}; told: {told:?}");
    let other = stage.mount();
    // A failed write may be present or not; returned writes are, unless a loss was reported.
    victim.check(&other.open("victim").unwrap(), |place| told.is_none() && unsure != Some(place));
    check_bystanders(&bystanders, &other);
    // Reported once; then the same handle works.
    victim.write_all(9).unwrap();
    victim.file.sync().unwrap();
    victim.check(&other.open("victim").unwrap(), |_| true);
    check_bystanders(&bystanders, &other);
}

/// Writes, and stops the server during it: it may be reading any of the records. Some writers continue until they are refused; the slot of
/// that write is returned.
fn write_and_stop(stage: &Stage, victim: &Marked, chance: &mut SeededRandom) -> Option<usize> {
    let places = victim.rounds.len();
    let stop_at = places + chance.index(2 * places);
    // Fewer than the outbox holds, or more.
    let more = if chance.once_in(2) { chance.index(places / 2) } else { 2 * places };
    for step in 0..stop_at + more {
        if step == stop_at {
            stage.signal(STOPPED, Signal::STOP);
        }
        let (place, round) = (step % places, 2 + (step / places) as u64);
        if let Err(error) = victim.write(place, round) {
            assert_eq!(error.code(), Code::Unreachable, "{error}");
            assert!(error.to_string().contains(&format!("server {STOPPED}")), "{error}");
            assert!(stop_at <= step, "{error}");
            return Some(place);
        }
    }
    None
}

/// The first sync that reaches the server reports whether data was lost.
fn first_sync(file: &File) -> Option<pario::Error> {
    let mut told = None;
    assert!(until(|| match file.sync() {
        Ok(()) => true,
        Err(error) if error.code() == Code::Unreachable => false,
        Err(error) => {
            assert_eq!(error.code(), Code::Lost, "{error}");
            assert!(error.to_string().contains(&format!("server {STOPPED}")), "{error}");
            told = Some(error);
            true
        }
    }));
    told
}

fn check_bystanders(bystanders: &[Marked], other: &Partition) {
    for (bystander, server) in bystanders.iter().zip((0..SERVERS).filter(|server| *server != STOPPED)) {
        bystander.file.sync().unwrap();
        bystander.check(&other.open(format!("bystander-{server}")).unwrap(), |_| true);
    }
}

#[test]
fn a_server_that_wakes_up_brings_nothing_into_the_wrong_file() {
    histories(4, lapped);
}
