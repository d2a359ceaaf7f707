//! Clients of a killed server that reconnect one by one, with real outboxes, against bytes written in commit order.
//!
//! A writer may continue for a while before it notices that its server died; it may write directly; others send messages; servers are
//! killed again, also between the store write and the cursor update.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Generation, InodeId, Layout, LocalOffset, ObjectId};
use pario_net::outbox::{Outbox, RecordMeta};
use pario_store::{MemoryDisk, MemoryStore};
use proptest::prelude::*;

use super::super::super::restart_log::{RestartLog, RestartLogSpec};
use super::super::*;
use super::{SERVER, attach, session, worker};

const FILE_BYTES: usize = 64;
const WRITERS: usize = 3;
const OUTBOX_BYTES: usize = 256 << 10;

fn object() -> ObjectId {
    ObjectId { inode: InodeId(9), generation: Generation(1) }
}

fn meta(offset: u64) -> RecordMeta {
    let layout = Layout::new(4096, 1, 0, 1).unwrap();
    RecordMeta { object: object(), layout, view: 0, displacement: 0, offset, local_writers: 0 }
}

#[derive(Clone, Debug)]
enum RestartStep {
    Record {
        writer: usize,
        start: u64,
        count: usize,
    },
    /// A direct write, announced by an intent.
    Direct {
        writer: usize,
        start: u64,
        count: usize,
    },
    Message {
        start: u64,
        count: usize,
    },
    TakeBelow(u64),
    TakeAll,
    Kill,
    /// All records are written to the store, then the server is killed.
    KillBeforeCursors,
    /// A writer notices that its server was replaced, and reconnects.
    Reconnect(usize),
}

fn step() -> impl Strategy<Value = RestartStep> {
    let place = || (0..WRITERS, 0..40u64, 1..20usize);
    prop_oneof![
        6 => place().prop_map(|(writer, start, count)| RestartStep::Record { writer, start, count }),
        1 => place().prop_map(|(writer, start, count)| RestartStep::Direct { writer, start, count }),
        1 => place().prop_map(|(_, start, count)| RestartStep::Message { start, count }),
        1 => (1..FILE_BYTES as u64).prop_map(RestartStep::TakeBelow),
        3 => Just(RestartStep::TakeAll),
        1 => Just(RestartStep::Kill),
        1 => Just(RestartStep::KillBeforeCursors),
        3 => (0..WRITERS).prop_map(RestartStep::Reconnect),
    ]
}

/// When a writer notices that its server died.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoticeTime {
    AtOnce,
    WhenItComesBack,
}

/// Writers, the current server, and the expected contents of its store.
struct RestartFixture {
    outboxes: Vec<Outbox>,
    store: Arc<MemoryStore>,
    spec: RestartLogSpec,
    worker: DrainWorker,
    notices: NoticeTime,
    /// Attached to the current server.
    is_back: [bool; WRITERS],
    /// An error was reported to it.
    reported: [bool; WRITERS],
    model: Vec<u8>,
    /// The last writer of each byte.
    writers: Vec<Option<usize>>,
    writes: u32,
}

impl RestartFixture {
    fn new(notices: NoticeTime) -> RestartFixture {
        let store = Arc::new(MemoryStore::new(1 << 20));
        let disk = Arc::new(MemoryDisk::new(Path::new("/"), 16 << 20));
        let mut world = RestartFixture {
            outboxes: (0..WRITERS).map(|_| Outbox::create(OUTBOX_BYTES, 1).unwrap()).collect(),
            worker: worker(&store),
            store,
            spec: RestartLogSpec { disk, path: PathBuf::from("/ahead") },
            notices,
            is_back: [false; WRITERS],
            reported: [false; WRITERS],
            model: vec![0; FILE_BYTES],
            writers: vec![None; FILE_BYTES],
            writes: 0,
        };
        world.restart();
        (0..WRITERS).for_each(|writer| world.reconnect(writer));
        world
    }

    fn restart(&mut self) {
        self.worker = worker(&self.store);
        self.worker.restart_log = Some(RestartLog::begin(&self.spec, "boot", MonotonicClock.now()).unwrap());
        self.is_back = [false; WRITERS];
    }

    fn kill(&mut self) {
        self.poll_errors();
        if self.notices == NoticeTime::AtOnce {
            self.outboxes.iter().for_each(|outbox| outbox.detach(SERVER));
        }
        self.restart();
    }

    fn kill_before_cursors(&mut self) {
        let scan = self.worker.outboxes.scan(SERVER, &self.worker.views);
        let mut batch = RoundBatch::new(SERVER);
        let ahead = self.worker.restart_log.as_ref().and_then(RestartLog::overwrites);
        scan.fill(&self.worker.outboxes, &DrainLimit::Same(Cutoff::ALL), (&mut batch, ahead));
        let ground = RoundContext {
            store: self.worker.store.as_ref(),
            io_queue: None,
            stats: &self.worker.stats,
            outboxes: Some(&self.worker.outboxes),
            overwrites: ahead,
        };
        batch.apply(&ground);
        drop(batch);
        self.kill();
    }

    fn reconnect(&mut self, writer: usize) {
        if self.is_back[writer] {
            return;
        }
        self.poll_errors();
        self.outboxes[writer].detach(SERVER);
        attach(&mut self.worker, writer, &self.outboxes[writer]);
        self.worker.restart_log.as_mut().unwrap().attached(session(writer), MonotonicClock.now());
        self.is_back[writer] = true;
    }

    /// Writers poll their error counts.
    fn poll_errors(&mut self) {
        for (told, outbox) in self.reported.iter_mut().zip(&self.outboxes) {
            *told |= outbox.counted_errors(SERVER).is_some_and(|(_, errors)| 0 < errors);
        }
    }

    fn next(&mut self, writer: Option<usize>, start: u64, count: usize) -> Vec<u8> {
        self.writes += 1;
        let value = u8::try_from(self.writes % 251 + 1).unwrap();
        let at = usize::try_from(start).unwrap();
        self.model[at..at + count].fill(value);
        self.writers[at..at + count].fill(writer);
        vec![value; count]
    }

    fn record(&mut self, writer: usize, start: u64, count: usize) {
        if self.outboxes[writer].cursor(SERVER).is_none() {
            return;
        }
        let data = self.next(Some(writer), start, count);
        self.outboxes[writer].commit(meta(start), &data, &|_, _| Ok(())).unwrap();
    }

    fn direct(&mut self, writer: usize, start: u64, count: usize) {
        if self.notices == NoticeTime::AtOnce {
            return;
        }
        let data = self.next(Some(writer), start, count);
        let intent = self.outboxes[writer].announce(meta(start), SERVER, count as u64, &|_, _| Ok(()));
        let intent = intent.unwrap().expect("between rounds");
        self.store.write(object(), LocalOffset(start), &[MemoryPiece::from(data.as_slice())]).unwrap();
        intent.done();
    }

    fn message(&mut self, start: u64, count: usize) {
        let data = self.next(None, start, count);
        let (done, answered) = crossbeam_channel::bounded(1);
        let write = ByValue { object: object(), to: WriteTarget::Bytes(LocalOffset(start)), data };
        let done = Box::new(move |result| done.send(result).unwrap());
        self.worker.writes.push((write, done, MonotonicClock.now()));
        self.drain(Cutoff::ALL);
        answered.try_recv().unwrap().unwrap();
    }

    fn drain(&mut self, upto: Cutoff) {
        self.worker.outboxes.begin_round();
        let scan = self.worker.outboxes.scan(SERVER, &self.worker.views);
        let upto = if self.worker.must_complete { Cutoff::ALL } else { upto };
        self.worker.drain(scan, &DrainLimit::Same(upto));
    }

    fn run(&mut self, step: &RestartStep) {
        match *step {
            RestartStep::Record { writer, start, count } => self.record(writer, start, count),
            RestartStep::Direct { writer, start, count } => self.direct(writer, start, count),
            RestartStep::Message { start, count } => self.message(start, count),
            RestartStep::TakeBelow(below) => self.drain(Cutoff::Below(below)),
            RestartStep::TakeAll => self.drain(Cutoff::ALL),
            RestartStep::Kill => self.kill(),
            RestartStep::KillBeforeCursors => self.kill_before_cursors(),
            RestartStep::Reconnect(writer) => self.reconnect(writer),
        }
    }

    fn end(&mut self) -> Vec<u8> {
        for writer in 0..WRITERS {
            self.reconnect(writer);
            self.drain(Cutoff::ALL);
        }
        self.drain(Cutoff::ALL);
        self.poll_errors();
        for outbox in &self.outboxes {
            assert!(outbox.is_drained(SERVER, outbox.tail()), "everything is over");
        }
        let mut bytes = vec![0; FILE_BYTES];
        self.store.read(object(), LocalOffset(0), &mut bytes).unwrap();
        bytes
    }
}

proptest! {
    /// Nothing is lost and no error is reported, in any order of reconnection.
    #[test]
    fn the_order_of_coming_back_does_not_matter(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = RestartFixture::new(NoticeTime::AtOnce);
        steps.iter().for_each(|step| world.run(step));
        let found = world.end();
        prop_assert_eq!(world.reported, [false; WRITERS]);
        prop_assert_eq!(found, world.model);
    }

    /// Where the commit order is unknown, or a direct write was overwritten, the error is reported to its writer.
    #[test]
    fn what_is_not_there_was_told(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = RestartFixture::new(NoticeTime::WhenItComesBack);
        steps.iter().for_each(|step| world.run(step));
        let found = world.end();
        for (at, (found, expected)) in found.iter().zip(&world.model).enumerate() {
            let told = world.writers[at].is_some_and(|writer| world.reported[writer]);
            prop_assert!(found == expected || told, "byte {} is {}, not {}", at, found, expected);
        }
    }
}

fn run_steps(notices: NoticeTime, steps: &[RestartStep]) -> (RestartFixture, Vec<u8>) {
    let mut world = RestartFixture::new(notices);
    steps.iter().for_each(|step| world.run(step));
    let found = world.end();
    (world, found)
}

fn record(writer: usize, start: u64, count: usize) -> RestartStep {
    RestartStep::Record { writer, start, count }
}

/// The first writer's older record is offered after the second's is in the store, to another server than the one that drained it.
#[test]
fn an_older_record_that_comes_late_covers_nothing_newer() {
    let older_and_newer = [
        record(0, 0, 10),
        record(1, 5, 10),
        RestartStep::Kill,
        RestartStep::Reconnect(1),
        RestartStep::TakeAll,
    ];
    let others =
        [[RestartStep::Reconnect(0), RestartStep::TakeAll], [RestartStep::Kill, RestartStep::Reconnect(0)]];
    for rest in others {
        let (world, found) = run_steps(NoticeTime::AtOnce, &[&older_and_newer[..], &rest].concat());
        assert_eq!(found, world.model, "{rest:?}");
        assert_eq!(found[..15], [[2; 5].as_slice(), &[3; 10]].concat(), "{rest:?}");
        assert_eq!(world.reported, [false; WRITERS]);
    }
}

#[test]
fn an_older_record_that_comes_late_does_not_cover_a_message() {
    let steps = [
        record(0, 0, 10),
        RestartStep::Kill,
        RestartStep::Message { start: 5, count: 10 },
        RestartStep::Reconnect(0),
    ];
    let (world, found) = run_steps(NoticeTime::AtOnce, &steps);
    assert_eq!(found, world.model);
    assert_eq!(world.reported, [false; WRITERS]);
}

/// The bytes of a direct write are in the store only. If an older record is written over them before the intent is known, they cannot be
/// restored.
#[test]
fn a_direct_write_that_did_not_last_is_told() {
    let writes =
        [record(0, 0, 10), RestartStep::Direct { writer: 1, start: 5, count: 10 }, RestartStep::Kill];
    let (world, found) =
        run_steps(NoticeTime::WhenItComesBack, &[&writes[..], &[RestartStep::Reconnect(1)]].concat());
    assert_eq!((found, world.reported), (world.model, [false; WRITERS]), "its writer came first");
    let late = [RestartStep::Reconnect(0), RestartStep::TakeAll, RestartStep::Reconnect(1)];
    let (world, found) = run_steps(NoticeTime::WhenItComesBack, &[&writes[..], &late].concat());
    assert_ne!(found, world.model);
    assert_eq!(world.reported, [false, true, false]);
}
