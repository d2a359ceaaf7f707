//! The I/O queue over a store that stops on command: bypass, joint reads, and absence of deadlocks.

use std::sync::atomic::AtomicU64;

use crossbeam_channel::{Receiver, Sender};
use pario_core::{Generation, InodeId, LocalOffset};
use pario_sched::policy_names;
use pario_store::faulty::Operation;
use pario_store::{Faulty, MemoryStore, StoreError};
use pario_sys::piece::MemoryPiece;

use super::*;

/// Upper bound of every wait.
const LIMIT: Duration = Duration::from_secs(20);
const PAGE: u64 = 4096;

/// A queue over a store with reads that wait for a signal each, while the gate is shut.
struct QueueFixture {
    io_queue: Arc<IoQueue>,
    reads: Arc<AtomicU64>,
    gate: Sender<()>,
    answered: Sender<(u64, Vec<u8>)>,
    answers: Receiver<(u64, Vec<u8>)>,
}

fn object() -> ObjectId {
    ObjectId { inode: InodeId(7), generation: Generation(0) }
}

fn page(number: u64) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); usize::try_from(PAGE).unwrap()]
}

impl QueueFixture {
    /// The first `free` reads do not wait.
    fn new(policy: &str, weights: &[(&str, u32)], free: u64) -> QueueFixture {
        QueueFixture::failing(policy, weights, free, u64::MAX)
    }

    /// The read of this number fails.
    fn failing(policy: &str, weights: &[(&str, u32)], free: u64, fails: u64) -> QueueFixture {
        QueueFixture::meeting(policy, weights, free, move |number| {
            (number == fails).then(|| StoreError::Unsupported { what: "it fails".into() })
        })
    }

    /// What `fate` does to the read of each number happens.
    fn meeting(
        policy: &str,
        weights: &[(&str, u32)],
        free: u64,
        fate: impl Fn(u64) -> Option<StoreError> + Send + Sync + 'static,
    ) -> QueueFixture {
        let store = Faulty::new(Box::new(MemoryStore::new(64 << 20)));
        for number in 0..1024 {
            store
                .write(object(), LocalOffset(number * PAGE), &[MemoryPiece::from(page(number).as_slice())])
                .unwrap();
        }
        let reads = Arc::new(AtomicU64::new(0));
        let (gate, words) = crossbeam_channel::unbounded::<()>();
        let counted = Arc::clone(&reads);
        store.fail_when(move |operation, _| {
            if operation != Operation::Read {
                return None;
            }
            let number = counted.fetch_add(1, Ordering::SeqCst);
            if free <= number {
                words.recv_timeout(LIMIT).expect("the gate opens");
            }
            fate(number)
        });
        let spec = SchedulerSpec {
            policy: policy.to_owned(),
            weights: weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            trace: None,
        };
        let store: Arc<dyn Store> = Arc::new(store);
        let pool = ThreadPool::start("test", 3).unwrap();
        let desk = IoQueue::open(&spec, &store, &pool, "test").unwrap().expect("not fifo");
        let (answered, answers) = crossbeam_channel::unbounded();
        QueueFixture { io_queue: desk, reads, gate, answered, answers }
    }

    fn read(&self, session: u64, number: u64) {
        let answered = self.answered.clone();
        let bytes = number * PAGE..(number + 1) * PAGE;
        let wish = IoRequest { session: SessionId(session), object: object(), bytes };
        let done = move |result: Result<Vec<u8>, StoreError>| {
            // The receiver is dropped at the end of a test.
            let _ = answered.send((number, result.unwrap_or_default()));
        };
        self.io_queue.read(&wish, Box::new(done));
    }

    /// The next answer, checked; returns its page.
    #[track_caller]
    fn answer(&self) -> u64 {
        let (number, data) = self.answers.recv_timeout(LIMIT).expect("an answer comes");
        assert_eq!(data, page(number), "page {number}");
        number
    }

    fn open_gate(&self, times: usize) {
        (0..times).for_each(|_| self.gate.send(()).unwrap());
    }

    fn figure(&self, path: &str) -> u64 {
        self.io_queue.status().pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX)
    }
}

impl Drop for QueueFixture {
    fn drop(&mut self) {
        self.open_gate(100);
        self.io_queue.close();
    }
}

#[test]
fn what_meets_an_idle_store_is_never_posted() {
    for policy in policy_names().into_iter().filter(|policy| *policy != FIFO) {
        let world = QueueFixture::new(policy, &[], u64::MAX);
        world.io_queue.joined(SessionId(1), "lone", 1);
        for number in 0..200 {
            world.read(1, number);
            assert_eq!(world.answer(), number);
            // The answer arrives shortly before the store counts as idle.
            while world.io_queue.in_progress.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
        }
        let facts = (world.figure("/bypassed"), world.figure("/decisions"), world.figure("/total/requests"));
        assert_eq!(facts, (200, 0, 0), "{policy}: bypassed, decisions, posted");
        assert_eq!(world.figure("/applications/0/bypassed"), 200);
    }
}

#[test]
fn under_fifo_there_is_no_desk_and_no_other_name_is_taken() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
    let pool = ThreadPool::start("test", 1).unwrap();
    assert!(IoQueue::open(&SchedulerSpec::default(), &store, &pool, "test").unwrap().is_none());
    let spec = SchedulerSpec { policy: "cfq".into(), ..SchedulerSpec::default() };
    let fault = IoQueue::open(&spec, &store, &pool, "test").map(|_| ()).unwrap_err();
    assert_eq!(
        fault.text,
        "no scheduling policy is called `cfq`; there are fifo, mlf, wsjf, sjf, deadline, tbf, wfq"
    );
}

#[test]
fn neighbours_that_wait_become_one_read() {
    let world = QueueFixture::new("mlf", &[], 0);
    world.io_queue.joined(SessionId(1), "one", 1);
    // The first bypasses the queue; nine wait behind it, in an order that is not that of their offsets.
    world.read(1, 500);
    for number in [8, 2, 4, 6, 0, 7, 3, 5, 1] {
        world.read(1, number);
    }
    world.open_gate(2);
    assert_eq!(world.answer(), 500);
    let mut others: Vec<u64> = (0..9).map(|_| world.answer()).collect();
    others.sort_unstable();
    assert_eq!(others, (0..9).collect::<Vec<_>>());
    assert_eq!(world.reads.load(Ordering::SeqCst), 2, "calls of the store");
    assert_eq!((world.figure("/total/served"), world.figure("/total/operations")), (9, 1));
}

#[test]
fn a_joint_read_that_fails_is_repeated_one_by_one() {
    let world = QueueFixture::failing("mlf", &[], 0, 1);
    world.read(1, 500);
    (0..4).for_each(|number| world.read(1, number));
    world.open_gate(6);
    let mut all: Vec<u64> = (0..5).map(|_| world.answer()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 500]);
    assert_eq!(world.reads.load(Ordering::SeqCst), 6, "alone, together, and each of the four");
}

/// A store that panics, for a read that goes ahead and for reads that waited: callers are answered, the desk goes on. The first panic
/// poisons the store's lock, so that every later read panics too.
#[test]
fn a_read_that_panics_is_answered() {
    let world = QueueFixture::meeting("mlf", &[], 0, |_| panic!("on purpose"));
    (0..3).for_each(|number| world.read(1, number));
    world.open_gate(1);
    let answer = || world.answers.recv_timeout(LIMIT).expect("an answer comes");
    let mut answers: Vec<(u64, Vec<u8>)> = (0..3).map(|_| answer()).collect();
    answers.sort_unstable();
    assert_eq!(answers, [0, 1, 2].map(|number| (number, Vec::new())));
    // More than the desk has threads.
    for number in 10..10 + 2 * THREADS as u64 {
        world.read(1, number);
        assert_eq!(answer(), (number, Vec::new()));
    }
    while world.io_queue.in_progress.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

#[test]
fn reads_beyond_the_end_get_what_there_is() {
    let world = QueueFixture::new("mlf", &[], 0);
    world.read(1, 500);
    world.read(1, 1023);
    world.read(1, 1024);
    world.open_gate(2);
    assert_eq!(world.answer(), 500);
    let mut lengths: Vec<(u64, usize)> = (0..2)
        .map(|_| world.answers.recv_timeout(LIMIT).map(|(number, data)| (number, data.len())).unwrap())
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [(1023, 4096), (1024, 0)]);
}

#[test]
fn an_application_that_floods_waits_and_others_do_not() {
    let world = QueueFixture::new("wfq", &[], 0);
    world.io_queue.joined(SessionId(1), "flood", 1);
    world.io_queue.joined(SessionId(2), "small", 1);
    let floods = 6000;
    world.read(1, 500);
    (0..floods).for_each(|number| world.read(1, number % 1024));
    assert!(
        world.figure("/total/refused") < u64::MAX && 0 < world.figure("/total/refused"),
        "its queue is bounded"
    );
    world.read(2, 700);
    world.open_gate(3);
    let mut before: u64 = 0;
    while world.answer() != 700 {
        before += 1;
    }
    // The flood is some ninety calls of 64 requests each.
    let calls = world.reads.load(Ordering::SeqCst);
    assert!(calls <= 8, "the small one waits for what is under way and one more: {calls} calls");
    world.open_gate(usize::try_from(floods).unwrap());
    (before..floods + 1).for_each(|_| {
        world.answer();
    });
    assert_eq!(world.figure("/waiting"), 0);
}

#[test]
fn weights_share_the_service() {
    let world = QueueFixture::new("wfq", &[("heavy", 2)], 0);
    world.io_queue.joined(SessionId(1), "heavy", 1);
    world.io_queue.joined(SessionId(2), "light", 1);
    world.read(3, 1000);
    // Far apart, so that nothing is joined: 16 pages are 64 KiB.
    for number in 0..30 {
        world.read(1, number * 32);
        world.read(2, number * 32 + 16);
    }
    world.open_gate(31);
    assert_eq!(world.answer(), 1000);
    let heavy = (0..30).filter(|_| world.answer().is_multiple_of(32)).count();
    assert!((19..=21).contains(&heavy), "{heavy} of 30 for two thirds");
}

#[test]
fn what_an_application_left_is_taken_back() {
    let world = QueueFixture::new("mlf", &[], 0);
    world.io_queue.joined(SessionId(1), "gone", 1);
    world.io_queue.joined(SessionId(3), "gone", 1);
    world.io_queue.joined(SessionId(2), "stays", 1);
    world.read(2, 500);
    (0..5).for_each(|number| world.read(1, 100 + number));
    world.read(2, 501);
    world.io_queue.left(SessionId(3));
    assert_eq!(world.figure("/waiting"), 6, "one of its sessions is still there");
    world.io_queue.left(SessionId(1));
    assert_eq!(world.figure("/waiting"), 1);
    // Requests of unknown sessions are served too, as application 0.
    world.read(1, 502);
    world.open_gate(3);
    let mut all: Vec<u64> = (0..3).map(|_| world.answer()).collect();
    all.sort_unstable();
    assert_eq!(all, [500, 501, 502]);
    world.open_gate(1);
    assert!(world.answers.try_recv().is_err(), "requests of an ended application are not answered");
}

fn write_wish(session: u64, number: u64) -> IoRequest {
    IoRequest { session: SessionId(session), object: object(), bytes: number * PAGE..(number + 1) * PAGE }
}

/// Plays the drain thread, which reaches writes by message only after its own.
#[test]
fn the_taker_and_a_write_by_message_never_wait_for_each_other() {
    for _ in 0..50 {
        let world = QueueFixture::new("mlf", &[], 0);
        let (to_taker, messages) = crossbeam_channel::unbounded::<StoreTurn>();
        // A read keeps the store busy, so that all other requests must wait.
        world.read(1, 500);
        let desk = Arc::clone(&world.io_queue);
        let taker = std::thread::spawn(move || {
            let (mut own, mut taken) = (0, 0);
            while taken < 8 {
                drop(desk.turn(&write_wish(2, 100 + own)));
                own += 1;
                taken += messages.try_iter().count();
            }
            own
        });
        for number in 0..8 {
            let to_taker = to_taker.clone();
            world.io_queue.write(
                &write_wish(3, number * 20),
                Box::new(move |turn| {
                    to_taker.send(turn).unwrap();
                }),
            );
        }
        world.open_gate(1);
        assert_eq!(world.answer(), 500);
        assert!(0 < taker.join().unwrap());
    }
}

/// A view may spread a write over bytes unknown to the queue, so it never reorders the writes of one session.
#[test]
fn writes_of_one_session_keep_their_order() {
    let world = QueueFixture::new("sjf", &[], 0);
    let (to_taker, messages) = crossbeam_channel::unbounded::<(u64, u64, StoreTurn)>();
    world.read(1, 500);
    for number in 0..20 {
        for session in [2, 3] {
            let to_taker = to_taker.clone();
            // Later ones are shorter, and so first by this policy.
            let start = number * 40 * PAGE;
            let wish = IoRequest { bytes: start..start + PAGE * (20 - number), ..write_wish(session, 0) };
            world.io_queue.write(
                &wish,
                Box::new(move |turn| {
                    let _ = to_taker.send((session, number, turn));
                }),
            );
        }
    }
    world.open_gate(1);
    let mut next = [0, 0];
    for _ in 0..40 {
        let (session, number, turn) = messages.recv_timeout(LIMIT).expect("a write has its turn");
        let next = &mut next[usize::try_from(session - 2).unwrap()];
        assert_eq!(number, *next, "session {session}");
        *next += 1;
        drop(turn);
    }
    assert_eq!(world.figure("/waiting"), 0);
}

#[test]
fn a_waiting_taker_is_let_go_when_its_application_is_gone() {
    let world = QueueFixture::new("mlf", &[], 0);
    world.io_queue.joined(SessionId(2), "gone", 1);
    world.read(1, 500);
    let desk = Arc::clone(&world.io_queue);
    let taker = std::thread::spawn(move || drop(desk.turn(&write_wish(2, 3))));
    while world.figure("/waiting") == 0 {
        std::thread::yield_now();
    }
    world.io_queue.left(SessionId(2));
    taker.join().unwrap();
    assert!(world.answers.try_recv().is_err(), "the read is still under way");
}

#[test]
fn a_request_that_never_ends_is_told() {
    let spec = SchedulerSpec { policy: "mlf".into(), ..SchedulerSpec::default() };
    let mut state = QueueState::new(&spec).unwrap();
    state.joined(SessionId(1), "slow", 1);
    let job = ReadJob { object: object(), bytes: 0..PAGE, done: Box::new(|_| ()) };
    state.post(&write_wish(1, 0), IoKind::Read, QueuedJob::Read(job), 0);
    assert!(matches!(state.pick(0, 10), Picked::Run(_)));
    assert!(state.controller.overdue(20_000_000, 4).is_empty());
    let late = state.controller.overdue(40_000_000, 4);
    assert_eq!((late.len(), late[0].since_us), (1, 10));
    assert_eq!(state.applications.name(late[0].request.application), "slow");
}
