//! Real outboxes of several applications, drained by shares: order where writes overlap, counts by weight, no starvation, kills.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pario_core::{Generation, InodeId, Layout, LocalOffset, ObjectId, SessionId};
use pario_net::outbox::{Concern, Outbox, RecordMeta};
use pario_store::{MemoryStore, Store};
use pario_view::View;
use proptest::prelude::*;

use super::super::merge_wait::MergeWait;
use super::super::shares::Shares;
use super::super::worker::tests::{SERVER, attach, session, strided, worker};
use super::super::{ByValue, DrainTask, WriteTarget};
use super::*;
use crate::io_queue::{IoQueue, SchedulerSpec};
use crate::pool::ThreadPool;

const FILE_BYTES: usize = 96;
const FILES: u64 = 3;
/// The application of each writer, and its weight.
const WRITERS: [(&str, u32); 4] = [("heavy", 2), ("heavy", 2), ("light", 1), ("third", 1)];
const OUTBOX_BYTES: usize = 256 << 10;

/// One I/O queue for all tests: the writers are the same everywhere.
fn io_queue() -> Arc<IoQueue> {
    static DESK: OnceLock<Arc<IoQueue>> = OnceLock::new();
    let open = || {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
        let spec = SchedulerSpec { policy: "wfq".into(), ..SchedulerSpec::default() };
        let desk =
            IoQueue::open(&spec, &store, &ThreadPool::start("test", 1).unwrap(), "test").unwrap().unwrap();
        for (writer, (name, weight)) in WRITERS.into_iter().enumerate() {
            desk.joined(session(writer), name, weight);
        }
        desk
    };
    Arc::clone(DESK.get_or_init(open))
}

fn object(file: u64) -> ObjectId {
    ObjectId { inode: InodeId(100 + file), generation: Generation(1) }
}

/// Outboxes, a sharing server, and the expected contents of its store.
struct ShareFixture {
    outboxes: Vec<Outbox>,
    store: Arc<MemoryStore>,
    worker: DrainWorker,
    quantum: u64,
    views: Vec<(usize, u32, View)>,
    model: HashMap<u64, Vec<u8>>,
    writes: u32,
}

impl ShareFixture {
    fn new(quantum: u64) -> ShareFixture {
        let store = Arc::new(MemoryStore::new(64 << 20));
        let outboxes = WRITERS.iter().map(|_| Outbox::create(OUTBOX_BYTES, 1).unwrap()).collect();
        let (worker, views) = (worker(&store), Vec::new());
        let mut world =
            ShareFixture { outboxes, store, worker, quantum, views, model: HashMap::new(), writes: 0 };
        world.restart();
        world
    }

    /// A server that knows the cursors only.
    fn restart(&mut self) {
        self.outboxes.iter().for_each(|outbox| outbox.detach(SERVER));
        self.worker = worker(&self.store);
        self.worker.io_queue = Some(io_queue());
        self.worker.shares = Shares::with_quantum(self.quantum);
        for (writer, number, view) in &self.views {
            self.worker.views.define(session(*writer), *number, &view.encode().unwrap()).unwrap();
        }
        for (writer, outbox) in self.outboxes.iter().enumerate() {
            attach(&mut self.worker, writer, outbox);
        }
    }

    fn value(&mut self) -> u8 {
        self.writes += 1;
        u8::try_from(self.writes % 251 + 1).unwrap()
    }

    fn file(&mut self, file: u64) -> &mut Vec<u8> {
        self.model.entry(file).or_insert_with(|| vec![0; FILE_BYTES])
    }

    /// A record through a view.
    fn write(&mut self, writer: usize, file: u64, view: View, count: usize) {
        let value = self.value();
        let number = self.writes;
        self.worker.views.define(session(writer), number, &view.encode().unwrap()).unwrap();
        self.commit(writer, (file, number, 0), &vec![value; count]);
        for extent in view.extents(0..count as u64) {
            let at = usize::try_from(extent.file_offset).unwrap();
            let bytes = usize::try_from(extent.bytes).unwrap();
            self.file(file)[at..at + bytes].fill(value);
        }
        self.views.push((writer, number, view));
    }

    fn commit(&self, writer: usize, (file, view, offset): (u64, u32, u64), data: &[u8]) {
        let layout = Layout::new(4096, 1, 0, 1).unwrap();
        let meta =
            RecordMeta { object: object(file), layout, view, displacement: 0, offset, local_writers: 0 };
        let concerns = [Concern { server: SERVER, bytes: data.len() as u64 }];
        let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| write(0, data);
        self.outboxes[writer].commit_stream(meta, &concerns, (data.len(), fill), &|_, _| Ok(())).unwrap();
    }

    /// A message, and the round that answers it.
    fn message(&mut self, file: u64, start: u64, count: usize) {
        let value = self.value();
        let at = usize::try_from(start).unwrap();
        self.file(file)[at..at + count].fill(value);
        let answered = Arc::new(AtomicU64::new(0));
        let answers = Arc::clone(&answered);
        let write = ByValue {
            object: object(file),
            to: WriteTarget::Bytes(LocalOffset(start)),
            data: vec![value; count],
        };
        let done = move |result: Result<(), pario_core::Fault>| {
            result.unwrap();
            answers.fetch_add(1, Ordering::SeqCst);
        };
        self.worker.accept(DrainTask::Write { write, done: Box::new(done) });
        self.round();
        assert_eq!(answered.load(Ordering::SeqCst), 1, "a message is answered by the next round");
    }

    /// The amount does not depend on the speed of this machine.
    fn round(&mut self) {
        self.worker.shares.set_quantum(self.quantum);
        self.worker.round();
        self.worker.finish_drains();
    }

    fn is_drained(&self, writer: usize) -> bool {
        self.outboxes[writer].is_drained(SERVER, self.outboxes[writer].tail())
    }

    /// Rounds until all records committed by now are drained; returns their number.
    fn drain_all(&mut self) -> usize {
        let finished = Arc::new(AtomicU64::new(0));
        let ends = Arc::clone(&finished);
        let done = move |_| {
            ends.fetch_add(1, Ordering::SeqCst);
        };
        self.worker.accept(DrainTask::DrainAll { done: Box::new(done) });
        for round in 1..100_000 {
            self.round();
            if finished.load(Ordering::SeqCst) == 1 {
                return round;
            }
        }
        panic!("awaited records are never drained");
    }

    fn in_store(&self, file: u64) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        self.store.read(object(file), LocalOffset(0), &mut bytes).unwrap();
        bytes
    }
}

#[derive(Clone, Debug)]
enum ShareStep {
    Write { writer: usize, file: u64, start: u64, stride: u64, count: usize },
    Message { file: u64, start: u64, count: usize },
    Drain(usize),
    Rounds(usize),
    Below { file: u64, place: u64 },
    Kill,
}

fn step() -> impl Strategy<Value = ShareStep> {
    let write = (0..WRITERS.len(), 0..FILES, 0..40u64, 1..5u64, 1..12usize);
    prop_oneof![
        8 => write.prop_map(|(writer, file, start, stride, count)| ShareStep::Write { writer, file, start, stride, count }),
        1 => (0..FILES, 0..40u64, 1..50usize)
            .prop_map(|(file, start, count)| ShareStep::Message { file, start, count }),
        2 => (0..WRITERS.len()).prop_map(ShareStep::Drain),
        4 => (1..4usize).prop_map(ShareStep::Rounds),
        2 => (0..FILES, 1..FILE_BYTES as u64).prop_map(|(file, place)| ShareStep::Below { file, place }),
        1 => Just(ShareStep::Kill),
    ]
}

impl ShareFixture {
    /// Drains a conflict group with a single object up to an offset, independent of the merge wait.
    fn drain_below(&mut self, file: u64, place: u64) {
        self.worker.outboxes.begin_round();
        let scan = self.worker.outboxes.scan(SERVER, &self.worker.views);
        let Some(circles) = self.worker.conflict_groups(&scan) else { return };
        let Some(circle) = circles.of_object(object(file)) else { return };
        let due = scan.pending(&|place| circles.has(circle, place));
        if due.iter().all(|due| due.object == object(file)) {
            let portion = circles.limit(&[(circle, Cutoff::Below(place))]);
            self.worker.drain(scan, &portion);
        }
    }
}

proptest! {
    /// In any drain order, the final bytes are those of writes in commit order.
    #[test]
    fn shares_keep_the_order_of_commits_where_bytes_meet(
        quantum in 1..40u64,
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = ShareFixture::new(quantum);
        for step in steps {
            match step {
                ShareStep::Write { writer, file, start, stride, count } => {
                    world.write(writer, file, strided(start, stride), count);
                }
                ShareStep::Message { file, start, count } => world.message(file, start, count),
                ShareStep::Drain(writer) => {
                    world.worker.accept(DrainTask::Drain { session: session(writer), done: Box::new(|_| ()) });
                }
                ShareStep::Rounds(rounds) => {
                    (0..rounds).for_each(|_| world.round());
                }
                ShareStep::Below { file, place } => world.drain_below(file, place),
                ShareStep::Kill => world.restart(),
            }
        }
        world.drain_all();
        for file in 0..FILES {
            let expected = world.file(file).clone();
            prop_assert_eq!(world.in_store(file), expected, "file {}", file);
        }
        for writer in 0..WRITERS.len() {
            prop_assert!(world.is_drained(writer), "writer {}", writer);
        }
    }
}

/// Two applications that write more than can be drained, each to its own file; bytes drained of each after `rounds` rounds.
fn race(quantum: u64, rounds: usize) -> [u64; 2] {
    const RECORD: usize = 1000;
    let mut world = ShareFixture::new(quantum);
    world.worker.merge_wait = MergeWait::new(99);
    let (writers, mut ends) = ([0, 2], [0u64; 2]);
    let taken =
        |world: &ShareFixture, of: usize| world.worker.outboxes.drained(session(writers[of])).unwrap();
    let mut data = vec![0; RECORD];
    let mut fill = |world: &ShareFixture| {
        for of in 0..2 {
            while world.outboxes[writers[of]].tail() - taken(world, of) < OUTBOX_BYTES as u64 / 2 {
                data.fill(u8::try_from(ends[of] % 251).unwrap());
                world.commit(writers[of], (of as u64, 0, ends[of]), &data);
                ends[of] += RECORD as u64;
            }
        }
    };
    for _ in 0..rounds {
        fill(&world);
        world.round();
        assert!(world.worker.more, "the next round comes at once");
    }
    [taken(&world, 0), taken(&world, 1)]
}

#[test]
fn records_are_taken_two_to_one() {
    for quantum in [1, 10_000, 50_000] {
        let [heavy, light] = race(quantum, 300);
        let (heavy, light) = (heavy * 100, light * 100);
        assert!((light * 2).abs_diff(heavy) <= heavy / 50, "quantum {quantum}: {heavy} to {light}");
    }
}

#[test]
fn an_older_record_of_another_application_goes_first() {
    let mut world = ShareFixture::new(1);
    // The light one has the lower clock: it goes first where their files differ.
    world.write(2, 0, strided(0, 1), 10);
    world.write(0, 1, strided(0, 1), 10);
    world.worker.accept(DrainTask::Drain { session: SessionId(999), done: Box::new(|_| ()) });
    let circles = |world: &mut ShareFixture| {
        let scan = world.worker.outboxes.scan(SERVER, &world.worker.views);
        world.worker.conflict_groups(&scan).map(|circles| circles.list.len())
    };
    assert_eq!(circles(&mut world), Some(2));
    world.drain_all();
    // One file: independent of the clocks.
    world.worker.shares = Shares::with_quantum(1);
    for _ in 0..5 {
        world.write(2, 2, strided(0, 1), 10);
        world.write(0, 2, strided(0, 1), 5);
        assert_eq!(circles(&mut world), Some(1));
        world.worker.accept(DrainTask::Drain { session: session(0), done: Box::new(|_| ()) });
        world.round();
        assert_eq!((world.is_drained(2), world.is_drained(0)), (true, false), "a quantum is one record here");
        world.round();
        assert!(world.is_drained(0));
        let expected = world.file(2).clone();
        assert_eq!(world.in_store(2), expected);
    }
}

#[test]
fn a_message_takes_along_what_it_lies_over_and_no_more() {
    let mut world = ShareFixture::new(1);
    for _ in 0..4 {
        world.write(0, 0, strided(0, 1), 10);
        world.write(2, 1, strided(0, 1), 10);
        world.write(3, 2, strided(0, 1), 10);
    }
    world.message(1, 5, 10);
    assert!(world.is_drained(2), "all four, since the message lies over them");
    assert!(!world.is_drained(0) && !world.is_drained(3), "of others not more than a quantum");
    let expected = world.file(1).clone();
    assert_eq!(world.in_store(1), expected);
}

#[test]
fn a_lone_application_is_taken_as_ever() {
    let mut world = ShareFixture::new(1);
    let write = |world: &mut ShareFixture| {
        for file in 0..2 {
            world.write(0, file, strided(0, 1), 10);
            world.write(1, file, strided(20, 1), 10);
        }
    };
    write(&mut world);
    assert_eq!(world.drain_all(), 4, "another that has an outbox could come at any moment");
    (2..4).for_each(|other| world.worker.outboxes.drop_violator(session(other)));
    write(&mut world);
    assert_eq!(world.drain_all(), 1, "one round takes everything");
    world.restart();
    world.worker.io_queue = None;
    for writer in 0..WRITERS.len() {
        world.write(writer, writer as u64 % FILES, strided(0, 1), 10);
    }
    assert_eq!(world.drain_all(), 1, "and without an I/O queue, of all applications");
}

#[test]
fn what_leaves_holes_is_cut_by_place_and_not_by_time() {
    let mut world = ShareFixture::new(8);
    world.write(0, 0, strided(0, 2), 20);
    world.write(1, 0, strided(1, 2), 20);
    world.worker.accept(DrainTask::Drain { session: session(0), done: Box::new(|_| ()) });
    world.round();
    let expected = world.file(0).clone();
    assert_eq!(world.in_store(0)[..8], expected[..8], "of both writers");
    // The number of a record's bytes below an offset is estimated.
    assert_eq!(world.in_store(0)[12..], [0; FILE_BYTES - 12]);
    // Two files have no common offset: all is drained, rather than many small pieces.
    world.drain_all();
    world.write(0, 0, strided(0, 2), 20);
    world.write(1, 1, strided(1, 2), 20);
    assert_eq!(world.drain_all(), 1);
}

#[test]
fn whom_somebody_waits_for_is_served_in_time() {
    let mut world = ShareFixture::new(1);
    for _ in 0..200 {
        world.write(0, 0, strided(0, 1), 10);
    }
    world.write(2, 1, strided(0, 1), 10);
    // As if it had received far more than its share.
    let drain = DrainTask::Drain { session: session(2), done: Box::new(|_| ()) };
    world.worker.accept(drain);
    let scan = world.worker.outboxes.scan(SERVER, &world.worker.views);
    let circles = world.worker.conflict_groups(&scan).unwrap();
    let bytes: Vec<u64> = circles.list.iter().map(|circle| if circle.waited { 1 << 40 } else { 0 }).collect();
    world.worker.shares.charge(&circles.list, &bytes);
    let rounds = (1..).find(|_| {
        world.round();
        world.is_drained(2)
    });
    assert_eq!(rounds, Some(10));
    assert!(!world.is_drained(0));
}

#[test]
fn what_was_taken_is_counted_by_application() {
    let before = |name: &str| {
        let status = io_queue().status();
        let applications = status["applications"].as_array().unwrap().clone();
        let of = applications.into_iter().find(|of| of["name"] == name).unwrap();
        (of["taken_records"].as_u64().unwrap(), of["taken_bytes"].as_u64().unwrap())
    };
    // Other tests drain records concurrently, but none of this application.
    let name = "counted";
    io_queue().joined(SessionId(77), name, 1);
    let amount = |records, bytes| crate::drain::Amount { records, bytes };
    io_queue().count_drained([(SessionId(77), amount(3, 30)), (SessionId(78), amount(9, 9))].into_iter());
    assert_eq!(before(name), (3, 30));
    let records = before("third").0;
    let mut world = ShareFixture::new(1);
    world.write(3, 0, strided(0, 2), 10);
    world.drain_all();
    assert!(records < before("third").0);
}
