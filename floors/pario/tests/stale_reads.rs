//! A sequential reader over TCP with prefetched blocks when another client rewrites the file or every server is replaced: later reads
//! return the current data, never the old.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::stage::{Stage, until};
use common::{SeededRandom, Trace, histories};
use pario::core::Code;
use pario::{File, Partition};
use rustix::process::Signal;

const SERVERS: usize = 2;
const CHUNK: u64 = 64 << 10;
const CHUNKS: u64 = 40;
/// Requests that read-ahead keeps under way for a sequential reader.
const AHEAD: u64 = 4;

/// Every word holds its version and offset.
fn content(version: u64, chunk: u64) -> Vec<u8> {
    (0..CHUNK / 8).flat_map(|step| (version << 40 | (chunk * CHUNK + step * 8)).to_le_bytes()).collect()
}

fn write_version(file: &File, version: u64) {
    for chunk in 0..CHUNKS {
        file.write_at(chunk * CHUNK, &content(version, chunk)).unwrap();
    }
    file.sync().unwrap();
}

/// The event between two reads.
#[derive(Clone, Copy, Debug)]
enum Between {
    Rewritten,
    CutAndRewritten,
    Restarted,
    RestartedAndRewritten,
}

struct ReadEvent {
    stage: Stage,
    writer: Partition,
    version: u64,
}

impl ReadEvent {
    fn happen(&mut self, what: Between) {
        match what {
            Between::Rewritten => self.rewrite(),
            Between::CutAndRewritten => {
                self.writer.options().write(true).truncate(true).open("f").unwrap().close().unwrap();
                self.rewrite();
            }
            Between::Restarted => self.restart(),
            Between::RestartedAndRewritten => {
                self.restart();
                // An older client may notice first that the servers were replaced.
                self.writer = self.stage.mount();
                self.rewrite();
            }
        }
    }

    fn rewrite(&mut self) {
        self.version += 1;
        let file = self.writer.options().read(true).write(true).create(true).open("f").unwrap();
        write_version(&file, self.version);
    }

    fn restart(&self) {
        for server in 0..SERVERS {
            self.stage.signal(server, Signal::KILL);
        }
        self.stage.up();
    }
}

/// Reads a chunk as soon as the servers are running.
fn read(file: &File, chunk: u64) -> Vec<u8> {
    let mut found = vec![0; usize::try_from(CHUNK).unwrap()];
    assert!(until(|| match file.read_at(chunk * CHUNK, &mut found) {
        Ok(count) => {
            assert_eq!(count as u64, CHUNK);
            true
        }
        Err(error) => {
            assert_eq!(error.code(), Code::Unreachable, "{error}");
            false
        }
    }));
    found
}

fn never_stale(seed: u64, trace: &Trace) {
    let settings = "stripe = \"64KiB\"\ntransport = \"tcp\"";
    let Some(stage) = Stage::start(SERVERS, settings) else { return };
    let writer = stage.mount();
    let mut scene = ReadEvent { stage, writer, version: 0 };
    scene.rewrite();
    let mut chance = SeededRandom::new(seed);
    let reader = scene.stage.mount();
    let file = reader.open("f").unwrap();
    let before = reader.counts().messages;
    read(&file, 0);
    let asked = reader.counts().messages - before;
    // The read itself, and the prefetched ones.
    assert!(AHEAD < asked, "{asked} requests for the first of a row: none ahead");
    let mut next = 1;
    for _ in 0..8 {
        let reads = 2 + chance.below(4);
        for _ in 0..reads {
            let found = read(&file, next);
            assert!(
                found == content(scene.version, next),
                "chunk {next} is not of version {}",
                scene.version
            );
            next += 1;
        }
        let what = chance.pick(&[
            Between::Rewritten,
            Between::CutAndRewritten,
            Between::Restarted,
            Between::RestartedAndRewritten,
        ]);
        trace.step(format!("{what:?} before chunk {next}, version {}", scene.version));
        scene.happen(what);
        if CHUNKS < next + 10 {
            next = 0;
            // The reader starts again, sequentially.
            let found = read(&file, next);
            assert!(
                found == content(scene.version, next),
                "the first chunk is not of version {}",
                scene.version
            );
            next += 1;
        }
    }
}

#[test]
fn a_reader_ahead_sees_no_stale_bytes() {
    histories(6, never_stale);
}
