//! Clients of a killed server that come back one by one, with real outboxes, against bytes written one after the other.
//!
//! A writer may go on for a while before it sees that its server is gone; it may write directly; others send messages; servers are killed
//! again, also between the store and the cursors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Generation, Layout};
use pario_net::outbox::{Outbox, RecordMeta};
use pario_store::{MemoryDisk, MemoryStore};
use proptest::prelude::*;

use super::super::lives::{Lives, LivesSpec};
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
    RecordMeta { object: object(), layout, view: 0, moved: 0, offset, companions: 0 }
}

#[derive(Clone, Debug)]
enum Step {
    Record {
        writer: usize,
        start: u64,
        count: usize,
    },
    /// Past the server, announced by an intent.
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
    /// Everything gets into the store, and then the server is killed.
    KillBeforeCursors,
    /// A writer sees that its server was replaced, and comes back.
    ComeBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..WRITERS, 0..40u64, 1..20usize);
    prop_oneof![
        6 => place().prop_map(|(writer, start, count)| Step::Record { writer, start, count }),
        1 => place().prop_map(|(writer, start, count)| Step::Direct { writer, start, count }),
        1 => place().prop_map(|(_, start, count)| Step::Message { start, count }),
        1 => (1..FILE_BYTES as u64).prop_map(Step::TakeBelow),
        3 => Just(Step::TakeAll),
        1 => Just(Step::Kill),
        1 => Just(Step::KillBeforeCursors),
        3 => (0..WRITERS).prop_map(Step::ComeBack),
    ]
}

/// When a writer sees that its server is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notices {
    AtOnce,
    WhenItComesBack,
}

/// Writers, the server's present life, and what should be in its store.
struct World {
    outboxes: Vec<Outbox>,
    store: Arc<MemoryStore>,
    spec: LivesSpec,
    worker: Worker,
    notices: Notices,
    /// It is with the present life.
    is_back: [bool; WRITERS],
    /// It was told of an error.
    told: [bool; WRITERS],
    model: Vec<u8>,
    /// Whose a byte is.
    writers: Vec<Option<usize>>,
    writes: u32,
}

impl World {
    fn new(notices: Notices) -> World {
        let store = Arc::new(MemoryStore::new(1 << 20));
        let disk = Arc::new(MemoryDisk::new(Path::new("/"), 16 << 20));
        let mut world = World {
            outboxes: (0..WRITERS).map(|_| Outbox::create(OUTBOX_BYTES, 1).unwrap()).collect(),
            worker: worker(&store),
            store,
            spec: LivesSpec { disk, path: PathBuf::from("/ahead") },
            notices,
            is_back: [false; WRITERS],
            told: [false; WRITERS],
            model: vec![0; FILE_BYTES],
            writers: vec![None; FILE_BYTES],
            writes: 0,
        };
        world.begin_life();
        (0..WRITERS).for_each(|writer| world.come_back(writer));
        world
    }

    fn begin_life(&mut self) {
        self.worker = worker(&self.store);
        self.worker.lives = Some(Lives::begin(&self.spec, "boot", MonotonicClock.now()).unwrap());
        self.is_back = [false; WRITERS];
    }

    fn kill(&mut self) {
        self.listen();
        if self.notices == Notices::AtOnce {
            self.outboxes.iter().for_each(|outbox| outbox.detach(SERVER));
        }
        self.begin_life();
    }

    fn kill_before_cursors(&mut self) {
        let scan = self.worker.outboxes.scan(SERVER, &self.worker.views);
        let mut batch = Batch::new(SERVER);
        let ahead = self.worker.lives.as_ref().and_then(Lives::ahead);
        scan.fill(&self.worker.outboxes, &Portion::Same(Upto::ALL), (&mut batch, ahead));
        let ground = Ground {
            store: self.worker.store.as_ref(),
            desk: None,
            stats: &self.worker.stats,
            outboxes: Some(&self.worker.outboxes),
            ahead,
        };
        batch.apply(&ground);
        drop(batch);
        self.kill();
    }

    fn come_back(&mut self, writer: usize) {
        if self.is_back[writer] {
            return;
        }
        self.listen();
        self.outboxes[writer].detach(SERVER);
        attach(&mut self.worker, writer, &self.outboxes[writer]);
        self.worker.lives.as_mut().unwrap().came(session(writer), MonotonicClock.now());
        self.is_back[writer] = true;
    }

    /// Writers look at the errors that are counted for them.
    fn listen(&mut self) {
        for (told, outbox) in self.told.iter_mut().zip(&self.outboxes) {
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
        if self.notices == Notices::AtOnce {
            return;
        }
        let data = self.next(Some(writer), start, count);
        let intent = self.outboxes[writer].announce(meta(start), SERVER, count as u64, &|_, _| Ok(()));
        let intent = intent.unwrap().expect("between rounds");
        self.store.write(object(), LocalOffset(start), &[Piece::from(data.as_slice())]).unwrap();
        intent.done();
    }

    fn message(&mut self, start: u64, count: usize) {
        let data = self.next(None, start, count);
        let (done, answered) = crossbeam_channel::bounded(1);
        let write = ByValue { object: object(), to: Target::Bytes(LocalOffset(start)), data };
        let done = Box::new(move |result| done.send(result).unwrap());
        self.worker.writes.push((write, done, MonotonicClock.now()));
        self.take(Upto::ALL);
        answered.try_recv().unwrap().unwrap();
    }

    fn take(&mut self, upto: Upto) {
        self.worker.outboxes.begin_round();
        let scan = self.worker.outboxes.scan(SERVER, &self.worker.views);
        let upto = if self.worker.hurry { Upto::ALL } else { upto };
        self.worker.take(scan, &Portion::Same(upto));
    }

    fn play(&mut self, step: &Step) {
        match *step {
            Step::Record { writer, start, count } => self.record(writer, start, count),
            Step::Direct { writer, start, count } => self.direct(writer, start, count),
            Step::Message { start, count } => self.message(start, count),
            Step::TakeBelow(below) => self.take(Upto::Below(below)),
            Step::TakeAll => self.take(Upto::ALL),
            Step::Kill => self.kill(),
            Step::KillBeforeCursors => self.kill_before_cursors(),
            Step::ComeBack(writer) => self.come_back(writer),
        }
    }

    fn end(&mut self) -> Vec<u8> {
        for writer in 0..WRITERS {
            self.come_back(writer);
            self.take(Upto::ALL);
        }
        self.take(Upto::ALL);
        self.listen();
        for outbox in &self.outboxes {
            assert!(outbox.is_taken(SERVER, outbox.tail()), "everything is over");
        }
        let mut bytes = vec![0; FILE_BYTES];
        self.store.read(object(), LocalOffset(0), &mut bytes).unwrap();
        bytes
    }
}

proptest! {
    /// Nothing is lost and nobody is told of anything, whoever comes back first.
    #[test]
    fn the_order_of_coming_back_does_not_matter(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new(Notices::AtOnce);
        steps.iter().for_each(|step| world.play(step));
        let found = world.end();
        prop_assert_eq!(world.told, [false; WRITERS]);
        prop_assert_eq!(found, world.model);
    }

    /// Where nobody can tell what is newer, or a direct write did not last, its writer is told.
    #[test]
    fn what_is_not_there_was_told(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new(Notices::WhenItComesBack);
        steps.iter().for_each(|step| world.play(step));
        let found = world.end();
        for (at, (found, expected)) in found.iter().zip(&world.model).enumerate() {
            let told = world.writers[at].is_some_and(|writer| world.told[writer]);
            prop_assert!(found == expected || told, "byte {} is {}, not {}", at, found, expected);
        }
    }
}

fn played(notices: Notices, steps: &[Step]) -> (World, Vec<u8>) {
    let mut world = World::new(notices);
    steps.iter().for_each(|step| world.play(step));
    let found = world.end();
    (world, found)
}

fn record(writer: usize, start: u64, count: usize) -> Step {
    Step::Record { writer, start, count }
}

/// The first writer's older record is offered when the second's is in the store, in the life of another server than the one that took it.
#[test]
fn an_older_record_that_comes_late_covers_nothing_newer() {
    let older_and_newer = [record(0, 0, 10), record(1, 5, 10), Step::Kill, Step::ComeBack(1), Step::TakeAll];
    let others = [[Step::ComeBack(0), Step::TakeAll], [Step::Kill, Step::ComeBack(0)]];
    for rest in others {
        let (world, found) = played(Notices::AtOnce, &[&older_and_newer[..], &rest].concat());
        assert_eq!(found, world.model, "{rest:?}");
        assert_eq!(found[..15], [[2; 5].as_slice(), &[3; 10]].concat(), "{rest:?}");
        assert_eq!(world.told, [false; WRITERS]);
    }
}

#[test]
fn an_older_record_that_comes_late_does_not_cover_a_message() {
    let steps = [record(0, 0, 10), Step::Kill, Step::Message { start: 5, count: 10 }, Step::ComeBack(0)];
    let (world, found) = played(Notices::AtOnce, &steps);
    assert_eq!(found, world.model);
    assert_eq!(world.told, [false; WRITERS]);
}

/// The bytes of a direct write are in the store only. If an older record comes over them before its intent is known, nothing can bring
/// them back.
#[test]
fn a_direct_write_that_did_not_last_is_told() {
    let writes = [record(0, 0, 10), Step::Direct { writer: 1, start: 5, count: 10 }, Step::Kill];
    let (world, found) = played(Notices::WhenItComesBack, &[&writes[..], &[Step::ComeBack(1)]].concat());
    assert_eq!((found, world.told), (world.model, [false; WRITERS]), "its writer came first");
    let late = [Step::ComeBack(0), Step::TakeAll, Step::ComeBack(1)];
    let (world, found) = played(Notices::WhenItComesBack, &[&writes[..], &late].concat());
    assert_ne!(found, world.model);
    assert_eq!(world.told, [false, true, false]);
}
