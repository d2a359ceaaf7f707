//! Models of shared memory: the code of outboxes, cursors and shared pointers over loom's memory, in which every order of steps and every
//! value that a processor may still see is tried.
//!
//! Each model must hold, and must fail with each of its deliberate bugs: sites of `pario_sys::sync` that are weakened. Runs with
//! `RUSTFLAGS="--cfg loom" cargo test -p pario-net --test models`; `./test` does so.

#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pario_core::{Generation, InodeId, Layout, ObjectId, ServerIndex};
use pario_net::outbox::{
    Concern, Cursor, CursorPage, Outbox, OutboxReader, RecordKind, RecordMeta, Sleep, write_behind_bit,
};
use pario_net::pointer::PointerPage;
use pario_sys::doorbell::Doorbell;
use pario_sys::shared::known_words;
use pario_sys::sync::{FenceSite, weaken};

const SERVER: ServerIndex = ServerIndex(0);
const FILE: InodeId = InodeId(7);

/// Sites are weakened for all models of the process.
static ONE: Mutex<()> = Mutex::new(());

/// The model holds, and with each bug it does not.
fn check(preemptions: usize, model: fn(), bugs: &[&'static [FenceSite]]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let explore = || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(model);
    };
    // An exploration that touched new words is void.
    let explored = || loop {
        let known = known_words();
        let result = catch_unwind(AssertUnwindSafe(explore));
        if known == known_words() {
            return result;
        }
    };
    weaken(&[]);
    if let Err(panic) = explored() {
        resume_unwind(panic);
    }
    for bug in bugs {
        weaken(bug);
        let found = explored().is_err();
        weaken(&[]);
        assert!(found, "the model does not find {bug:?}");
    }
}

fn meta() -> RecordMeta {
    let object = ObjectId { inode: FILE, generation: Generation(1) };
    let layout = Layout::new(64 << 10, 1, 0, 1).expect("a layout");
    RecordMeta { object, layout, view: 0, displacement: 0, offset: 0, local_writers: 0 }
}

/// A client's outbox and the server's side of it.
struct ModelNode {
    outbox: Outbox,
    reader: OutboxReader,
    page: CursorPage,
    bell: Doorbell,
}

fn node() -> ModelNode {
    let outbox = Outbox::create(0, 1).expect("an outbox");
    let (page, descriptor) = CursorPage::create(0).expect("a cursor");
    let bell = Doorbell::new().expect("a doorbell");
    let rope = bell.duplicate().expect("its rope");
    let attached = outbox.attach(SERVER, |from| {
        assert_eq!(from, 0);
        Cursor::attach(SERVER, descriptor, rope)
    });
    attached.expect("attached");
    let reader = outbox.descriptor().try_clone().expect("its descriptor");
    let reader = OutboxReader::attach(reader).expect("a reader");
    ModelNode { outbox, reader, page, bell }
}

fn commit(outbox: &Outbox, value: u64) -> u64 {
    outbox.commit(meta(), &value.to_le_bytes(), &|_, _| Ok(())).expect("committed")
}

/// Values of the records that a server finds after `taken`.
fn look(reader: &OutboxReader, taken: u64) -> (Vec<u64>, u64) {
    let span = reader.span(taken).expect("an outbox that does not lie");
    let (mut at, mut found) = (span.start, Vec::new());
    while at < span.end {
        let record = reader.record(at, span.end).expect("a whole record").expect("memory that is not reused");
        if record.head.kind == RecordKind::Data {
            let mut bytes = [0; 8];
            reader.data(&record, 0, 8).copy_to(&mut bytes);
            found.push(u64::from_le_bytes(bytes));
        }
        at += record.head.span();
    }
    (found, span.end)
}

#[test]
fn a_record_is_seen_whole_or_not_at_all() {
    fn model() {
        let ModelNode { outbox, reader, .. } = node();
        let server = thread::spawn(move || look(&reader, 0).0);
        commit(&outbox, 11);
        let found = server.join().expect("no panic");
        assert!(found.is_empty() || found == [11], "{found:?}");
    }
    check(3, model, &[&[FenceSite::Tail]]);
}

#[test]
fn a_server_that_goes_to_sleep_is_woken_for_what_was_committed() {
    fn model() {
        let ModelNode { outbox, reader, page, bell } = node();
        let server = thread::spawn(move || {
            page.announce_sleep(Sleep::Light);
            if look(&reader, 0).0.is_empty() {
                bell.wait(None).expect("rung");
            }
            page.announce_sleep(Sleep::Awake);
            assert_eq!(look(&reader, 0).0, [5]);
        });
        commit(&outbox, 5);
        outbox.cursor(SERVER).expect("attached").wake();
        server.join().expect("no panic");
    }
    check(3, model, &[&[FenceSite::Wake], &[FenceSite::Asleep]]);
}

#[test]
fn who_waits_for_its_records_is_served_and_woken() {
    fn model() {
        let ModelNode { outbox, reader, page, bell } = node();
        let end = commit(&outbox, 5);
        let server = thread::spawn(move || {
            page.announce_sleep(Sleep::Light);
            // Records that are not urgent are left until a client waits for them.
            if !reader.has_waiters() {
                bell.wait(None).expect("rung");
            }
            page.announce_sleep(Sleep::Awake);
            page.move_to(end, &reader);
        });
        outbox.wait_drained(SERVER, end, &|_, _| Ok(())).expect("taken");
        server.join().expect("no panic");
    }
    // Each side has two fences in a row here, of which one would do.
    check(3, model, &[&[FenceSite::Waiting, FenceSite::Wake], &[FenceSite::Asleep, FenceSite::Moved]]);
}

#[test]
fn a_cursor_that_moves_wakes_who_waits_for_it() {
    fn model() {
        let ModelNode { outbox, reader, page, bell } = node();
        let end = commit(&outbox, 5);
        let server = thread::spawn(move || {
            page.move_to(end, &reader);
            drop(bell);
        });
        outbox.wait_drained(SERVER, end, &|_, _| Ok(())).expect("taken");
        server.join().expect("no panic");
    }
    check(3, model, &[&[FenceSite::Waiting], &[FenceSite::Moved]]);
}

#[test]
fn a_permission_is_seen_to_be_gone_or_the_record_is_seen() {
    fn model() {
        let ModelNode { outbox, reader, page, .. } = node();
        page.set_write_behind(write_behind_bit(FILE));
        let server = thread::spawn(move || {
            page.set_write_behind(0);
            CursorPage::withdrawn();
            !look(&reader, 0).0.is_empty()
        });
        commit(&outbox, 5);
        let returns = outbox.cursor(SERVER).expect("attached").might_write_behind(FILE);
        let seen = server.join().expect("no panic");
        assert!(seen || !returns, "a write returns although no server will drain it");
    }
    check(3, model, &[&[FenceSite::Permission], &[FenceSite::Withdrawn]]);
}

#[test]
fn an_older_record_is_never_taken_over_a_direct_write() {
    fn model() {
        let ModelNode { outbox, reader, page, .. } = node();
        // A byte of the object: an older record of another client writes 2 there, the direct write 1.
        let object = Arc::new(AtomicU64::new(0));
        let taken = Arc::clone(&object);
        let server = thread::spawn(move || {
            page.begin_round();
            let span = reader.span(0).expect("an outbox that does not lie");
            if span.is_empty() {
                taken.store(2, Ordering::Relaxed);
            }
            page.end_round();
        });
        let intent = outbox.announce(meta(), SERVER, 8, &|_, _| Ok(())).expect("announced");
        let writes = intent.is_some();
        if let Some(intent) = intent {
            object.store(1, Ordering::Relaxed);
            intent.done();
        }
        server.join().expect("no panic");
        assert!(!writes || object.load(Ordering::Relaxed) == 1, "an older record wins over a direct write");
    }
    check(3, model, &[&[FenceSite::Announced], &[FenceSite::Round]]);
}

#[test]
fn memory_is_not_used_again_while_a_server_that_seems_gone_reads_it() {
    const LONG: usize = 100 << 10;
    fn put(outbox: &Outbox, value: u64) -> bool {
        let concerns: &[Concern] = &[];
        let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| write(0, &value.to_le_bytes());
        outbox.commit_stream(meta(), concerns, (LONG, fill), &|_, _| Ok(())).is_ok()
    }
    fn model() {
        let ModelNode { outbox, reader, page, .. } = node();
        assert!(put(&outbox, 1) && put(&outbox, 2));
        outbox.detach(SERVER);
        let server = thread::spawn(move || {
            page.begin_round();
            let span = reader.span(0).expect("an outbox that does not lie");
            let (mut bytes, mut holds) = ([0; 8], false);
            if span.start == 0
                && let Ok(Some(record)) = reader.record(0, span.end)
            {
                holds = reader.still_holds(0);
                // As a system call would, after the last check.
                reader.data(&record, 0, 8).copy_to(&mut bytes);
            }
            page.end_round();
            assert!(!holds || u64::from_le_bytes(bytes) == 1, "another record's bytes are taken");
        });
        // A third does not fit beside both.
        put(&outbox, 3);
        server.join().expect("no panic");
    }
    check(2, model, &[&[FenceSite::Floor], &[FenceSite::Round, FenceSite::Holds]]);
}

/// Each of two threads finds its own record committed when its commit returns, and both records are whole.
#[test]
fn records_of_two_threads_are_committed_in_order() {
    fn model() {
        let ModelNode { outbox, reader, .. } = node();
        let (outbox, reader) = (Arc::new(outbox), Arc::new(reader));
        let commit_and_look = |outbox: &Outbox, reader: &OutboxReader, value| {
            let end = commit(outbox, value);
            let (found, tail) = look(reader, 0);
            assert!(
                found.contains(&value) && end <= tail,
                "a commit returns before a server sees its record"
            );
        };
        let (other, server) = (Arc::clone(&outbox), Arc::clone(&reader));
        let thread = thread::spawn(move || commit_and_look(&other, &server, 1));
        commit_and_look(&outbox, &reader, 2);
        thread.join().expect("no panic");
        let (mut found, _) = look(&reader, 0);
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
    }
    check(3, model, &[&[FenceSite::InOrder], &[FenceSite::Returned], &[FenceSite::Committed]]);
}

/// The thread that commits a record need not be the thread that wakes the server for it.
#[test]
fn a_server_is_woken_for_the_records_of_both_threads() {
    fn model() {
        let ModelNode { outbox, reader, page, bell } = node();
        let server = thread::spawn(move || {
            loop {
                page.announce_sleep(Sleep::Light);
                if look(&reader, 0).0.len() == 2 {
                    break;
                }
                bell.wait(None).expect("rung");
                assert!(bell.take());
            }
        });
        fn commit_and_wake(outbox: &Outbox, value: u64) {
            commit(outbox, value);
            outbox.cursor(SERVER).expect("attached").wake();
        }
        let outbox = Arc::new(outbox);
        let other = Arc::clone(&outbox);
        let thread = thread::spawn(move || commit_and_wake(&other, 1));
        commit_and_wake(&outbox, 2);
        thread.join().expect("no panic");
        server.join().expect("no panic");
    }
    check(2, model, &[&[FenceSite::Wake], &[FenceSite::Asleep], &[FenceSite::Committed]]);
}

/// A thread panics while it copies: the record of another thread does not wait for it, and servers skip its space.
#[test]
fn a_record_that_is_given_up_delays_no_other() {
    fn model() {
        let ModelNode { outbox, reader, .. } = node();
        let outbox = Arc::new(outbox);
        let other = Arc::clone(&outbox);
        let thread = thread::spawn(move || {
            let concerns = [Concern { server: SERVER, bytes: 8 }];
            // Not a panic of the model: no hook reports it.
            let fill = &mut |_: &mut dyn FnMut(usize, &[u8])| resume_unwind(Box::new("given up"));
            let given_up = catch_unwind(AssertUnwindSafe(|| {
                other.commit_stream(meta(), &concerns, (8, fill), &|_, _| Ok(()))
            }));
            assert!(given_up.is_err());
        });
        commit(&outbox, 2);
        thread.join().expect("no panic");
        assert_eq!(look(&reader, 0), (vec![2], outbox.tail()));
        assert_eq!(outbox.tail(), 256, "a pad and a record");
    }
    check(3, model, &[&[FenceSite::GivenUp]]);
}

/// Records of three threads do not fit beside each other: the third does not write over the first while that is being copied.
#[test]
fn memory_is_not_used_again_while_a_thread_copies_into_it() {
    const LONG: usize = 100 << 10;
    fn put(outbox: &Outbox, value: u64) {
        let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| write(0, &value.to_le_bytes());
        outbox.commit_stream(meta(), &[], (LONG, fill), &|_, _| Ok(())).expect("committed");
    }
    fn model() {
        let ModelNode { outbox, reader, .. } = node();
        let outbox = Arc::new(outbox);
        let threads: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let outbox = Arc::clone(&outbox);
                thread::spawn(move || put(&outbox, value))
            })
            .collect();
        put(&outbox, 3);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let (found, tail) = look(&reader, 0);
        assert_eq!((found.len(), tail), (2, outbox.tail()), "the oldest is dropped");
    }
    check(2, model, &[&[FenceSite::Copied]]);
}

#[test]
fn additions_to_a_shared_pointer_never_overlap() {
    fn model() {
        let (page, descriptor) = PointerPage::create().expect("a pointer");
        let other = PointerPage::attach(descriptor).expect("its memory");
        let member = thread::spawn(move || (other.add(3), other.add(3)));
        let mine = page.add(3);
        let (first, second) = member.join().expect("no panic");
        let mut all = [mine, first, second];
        all.sort_unstable();
        assert_eq!((all, page.get()), ([0, 3, 6], 9));
    }
    check(3, model, &[&[FenceSite::PointerAdd]]);
}

#[test]
fn turns_come_in_the_order_of_ranks_and_nobody_sleeps_through_its_own() {
    fn model() {
        let (page, descriptor) = PointerPage::create().expect("a pointer");
        let other = PointerPage::attach(descriptor).expect("its memory");
        let in_turn =
            |page: &PointerPage, turn: u64| -> Result<u64, ()> { page.add_in_turn(turn, 10, || Ok(())) };
        // Two members, two ordered calls.
        let second = thread::spawn(move || (in_turn(&other, 1), in_turn(&other, 3)));
        let mine = (in_turn(&page, 0), in_turn(&page, 2));
        let theirs = second.join().expect("no panic");
        assert_eq!((mine, theirs), ((Ok(0), Ok(20)), (Ok(10), Ok(30))));
    }
    check(3, model, &[&[FenceSite::TurnSleep], &[FenceSite::TurnPassed]]);
}

/// Three members: passing the turn on wakes the right one.
#[test]
fn a_turn_is_passed_on_to_the_next_of_three() {
    fn model() {
        let (page, descriptor) = PointerPage::create().expect("a pointer");
        let page = Arc::new(page);
        drop(descriptor);
        let members: Vec<_> = [1, 2]
            .into_iter()
            .map(|turn| {
                let page = Arc::clone(&page);
                thread::spawn(move || page.add_in_turn(turn, 1, || Ok::<(), ()>(())))
            })
            .collect();
        assert_eq!(page.add_in_turn(0, 1, || Ok::<(), ()>(())), Ok(0));
        let rest: Vec<_> = members.into_iter().map(|member| member.join().expect("no panic")).collect();
        assert_eq!(rest, [Ok(1), Ok(2)]);
    }
    check(2, model, &[&[FenceSite::TurnPassed]]);
}
