//! A full outbox, and servers that die while a writer waits for space in it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Generation, InodeId, Layout, Nanos, ObjectId, ServerIndex};
use pario_net::outbox::{
    Attached, CollectiveWait, Concern, Cursor, CursorPage, Outbox, OutboxReader, RecordKind, RecordMeta,
    Sleep,
};
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;

const SERVERS: u16 = 3;
const CAPACITY: usize = 256 << 10;
const RECORD: usize = 32 << 10;

/// A client's outbox with the servers' ends of it.
struct OutboxNode {
    outbox: Outbox,
    pages: Vec<CursorPage>,
}

impl OutboxNode {
    fn new() -> OutboxNode {
        OutboxNode::of(CAPACITY)
    }

    fn of(capacity: usize) -> OutboxNode {
        let outbox = Outbox::create(capacity, usize::from(SERVERS)).unwrap();
        let mut node = OutboxNode { outbox, pages: Vec::new() };
        for server in 0..SERVERS {
            let (page, attached) = node.attach(server);
            assert_eq!(attached.lost, None);
            node.pages.push(page);
        }
        node
    }

    fn attach(&self, server: u16) -> (CursorPage, Attached) {
        let mut made = None;
        let attached = self.outbox.attach(ServerIndex(server), |from| {
            let (page, descriptor) = CursorPage::create(from).unwrap();
            made = Some(page);
            Cursor::attach(ServerIndex(server), descriptor, Doorbell::new().unwrap().duplicate().unwrap())
        });
        (made.unwrap(), attached.unwrap())
    }

    /// Drains all records as a server does.
    fn drain_all(&self, server: u16) {
        let reader = OutboxReader::attach(self.outbox.descriptor().try_clone().unwrap()).unwrap();
        self.pages[usize::from(server)].move_to(self.outbox.tail(), &reader);
    }

    fn commit(
        &self,
        server: u16,
        progress: &dyn Fn(ServerIndex, Duration) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        let object = ObjectId { inode: InodeId(u64::from(server)), generation: Generation(0) };
        let layout = Layout::new(1 << 20, 1, server, SERVERS).unwrap();
        self.outbox.commit(
            RecordMeta { object, layout, view: 0, displacement: 0, offset: 0, local_writers: 0 },
            &[1; RECORD],
            progress,
        )
    }
}

fn no_check_expected(server: ServerIndex, _: Duration) -> Result<(), Fault> {
    panic!("no thread waits for server {server}")
}

fn server_dead(server: ServerIndex, _: Duration) -> Result<(), Fault> {
    Err(Fault::new(Code::Unreachable, format!("server {server} is gone")))
}

/// Server 1 has drained none of its records, and the ring has no space.
fn full_for_server_1() -> (OutboxNode, u64) {
    let node = OutboxNode::new();
    let first = node.commit(1, &no_check_expected).unwrap();
    while node.outbox.tail() + (RECORD as u64) * 3 / 2 < CAPACITY as u64 {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
    }
    (node, first)
}

#[test]
fn a_server_that_went_keeps_records_of_others_not_waiting() {
    let (node, first) = full_for_server_1();
    let mut lapped = 0;
    let asked = Cell::new(0);
    while lapped < 2 * CAPACITY {
        let progress = |server: ServerIndex, waited| {
            assert_eq!(server, ServerIndex(1));
            asked.set(asked.get() + 1);
            server_dead(server, waited)
        };
        node.commit(0, &progress).unwrap();
        node.drain_all(0);
        lapped += RECORD;
    }
    assert_eq!(asked.get(), 1, "a dead server is not checked again");
    // It returns: the overwritten records are reported, and it starts after them.
    assert!(!node.outbox.is_drained(ServerIndex(1), first));
    let (_page, attached) = node.attach(1);
    assert_eq!(attached.lost, Some(0..first));
    assert_eq!(attached.cursor.drained(), node.outbox.tail());
}

#[test]
fn a_record_for_a_server_that_went_is_refused() {
    let (node, _) = full_for_server_1();
    let refused = node.commit(1, &server_dead).unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
}

/// While a record for server 2 waits for space that server 1 does not free, server 2 dies: no server will drain the record, so it must
/// not be accepted.
#[test]
fn a_server_that_goes_during_the_wait_takes_no_record() {
    let (node, _) = full_for_server_1();
    let progress = |server: ServerIndex, waited| {
        node.outbox.detach(ServerIndex(2));
        server_dead(server, waited)
    };
    let tail = node.outbox.tail();
    let refused = node.commit(2, &progress).unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert!(refused.text.contains("server 2"), "{}", refused.text);
    assert_eq!(node.outbox.tail(), tail, "nothing was committed");
}

/// Bytes of memory that the outbox has.
fn memory(node: &OutboxNode) -> u64 {
    let descriptor = node.outbox.descriptor().try_clone().unwrap();
    std::os::unix::fs::MetadataExt::blocks(&std::fs::File::from(descriptor).metadata().unwrap()) * 512
}

#[test]
fn memory_comes_as_it_is_used_and_stays() {
    const MIB: u64 = 1 << 20;
    let node = OutboxNode::of(8 << 20);
    assert_eq!(memory(&node), 2 * MIB, "a large page");
    let mut seen = Vec::new();
    // Twice around.
    for _ in 0..(16 << 20) / (RECORD + 64) {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
        let memory = memory(&node);
        if seen.last() != Some(&memory) {
            seen.push(memory);
        }
    }
    assert_eq!(seen, [2 * MIB, 4 * MIB, 8 * MIB, 8 * MIB + 4096], "as much again, and the head");
}

/// Bytes of memory that an outbox has.
fn memory_bytes(outbox: &Outbox) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::from(outbox.descriptor().try_clone().unwrap());
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn memory_is_made_for_as_much_again_as_was_written() {
    const STEP: u64 = 2 << 20;
    let node = OutboxNode::of(16 << 20);
    assert!(!node.outbox.needs_memory(), "nothing is made for a process that writes nothing");
    while node.outbox.tail() <= STEP + STEP / 2 {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
    }
    assert!(node.outbox.needs_memory());
    node.outbox.preallocate();
    assert!(!node.outbox.needs_memory());
    let (written, memory) = (node.outbox.tail(), memory_bytes(&node.outbox));
    assert!((2 * written..2 * written + 2 * STEP).contains(&memory), "{memory} for {written}");
    // The writer finds it present.
    while node.outbox.tail() + RECORD as u64 * 2 < 2 * written {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
    }
    assert_eq!(memory_bytes(&node.outbox), memory);
    // And never more than the outbox.
    for _ in 0..800 {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
        node.outbox.preallocate();
    }
    assert!(!node.outbox.needs_memory());
    assert!(memory_bytes(&node.outbox) <= (16 << 20) + (1 << 16));
}

#[test]
fn servers_that_are_new_are_asked_before_the_first_answer_is_waited_for() {
    let outbox = Outbox::create(CAPACITY, usize::from(SERVERS)).unwrap();
    let all: Vec<ServerIndex> = (0..SERVERS).map(ServerIndex).collect();
    let (mut pages, said) = (Vec::new(), std::cell::RefCell::new(Vec::new()));
    let mut introduce = |refused: u16| {
        outbox.attach_new(
            &all,
            |server, from| {
                said.borrow_mut().push(('?', server.0));
                Ok(from)
            },
            |server, from| {
                said.borrow_mut().push(('!', server.0));
                if server.0 == refused {
                    return server_dead(server, Duration::ZERO).map(|()| unreachable!("it is gone"));
                }
                let (page, descriptor) = CursorPage::create(from).unwrap();
                pages.push(page);
                Cursor::attach(server, descriptor, Doorbell::new().unwrap().duplicate().unwrap())
            },
        )
    };
    assert_eq!(introduce(1), [ServerIndex(0), ServerIndex(2)]);
    assert_eq!(said.take(), [('?', 0), ('?', 1), ('?', 2), ('!', 0), ('!', 1), ('!', 2)]);
    assert_eq!(introduce(SERVERS), [ServerIndex(1)], "the others have it");
    assert_eq!(said.take(), [('?', 1), ('!', 1)]);
    assert!(all.iter().all(|server| outbox.cursor(*server).is_some()));
}

/// A server that leaves the processors to busy writers is not rung for every mebibyte, but before a writer would run out of space.
#[test]
fn a_server_that_rests_is_rung_when_half_of_the_outbox_is_used() {
    const MIB: u64 = 1 << 20;
    let outbox = Outbox::create(8 << 20, 1).unwrap();
    let bell = Doorbell::new().unwrap();
    let mut made = None;
    let attached = outbox.attach(ServerIndex(0), |from| {
        let (page, descriptor) = CursorPage::create(from).unwrap();
        made = Some(page);
        Cursor::attach(ServerIndex(0), descriptor, bell.duplicate().unwrap())
    });
    let (page, _attached) = (made.unwrap(), attached.unwrap());
    let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
    let layout = Layout::new(1 << 20, 1, 0, 1).unwrap();
    let meta = |offset| RecordMeta { object, layout, view: 0, displacement: 0, offset, local_writers: 0 };
    let commit = || {
        let offset = outbox.tail();
        outbox.commit(meta(offset), &[7; RECORD], &no_check_expected).unwrap()
    };
    page.announce_sleep(Sleep::Resting);
    while commit() < 4 * MIB {
        assert!(!bell.take(), "less than half is used");
    }
    assert!(bell.take(), "half is used");
    page.announce_sleep(Sleep::Light);
    let asleep = commit();
    while commit() < asleep + MIB {}
    assert!(bell.take(), "a sleeping server is rung for a mebibyte");
    page.announce_sleep(Sleep::Resting);
    outbox.cursor(ServerIndex(0)).unwrap().wake();
    assert!(bell.take(), "and a waiting client rings in any case");
}

/// Whether the condition holds within some seconds.
fn happens(condition: &dyn Fn() -> bool) -> bool {
    let began = MonotonicClock.now();
    while !condition() {
        if Duration::from_secs(10) < MonotonicClock.now().since(began) {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A thread in a collective call announces that, and that it waits in it, so that a thread waiting alone is distinguished from it.
#[test]
fn who_waits_with_its_group_is_told_from_who_waits_alone() {
    let outbox = Arc::new(Outbox::create(256 << 10, 1).unwrap());
    let reader = OutboxReader::attach(outbox.descriptor().try_clone().unwrap()).unwrap();
    let attached = outbox.attach(ServerIndex(0), |from| {
        let (_page, descriptor) = CursorPage::create(from).unwrap();
        Cursor::attach(ServerIndex(0), descriptor, Doorbell::new().unwrap().duplicate().unwrap())
    });
    attached.unwrap();
    let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
    let layout = Layout::new(1 << 20, 1, 0, 1).unwrap();
    let meta = RecordMeta { object, layout, view: 0, displacement: 0, offset: 0, local_writers: 2 };
    let end = outbox.commit(meta, &[7; 100], &no_check_expected).unwrap();
    // No server drains it: a wait ends when the condition was seen.
    let wait_until = |gathering: Option<&CollectiveWait>, is_seen: &(dyn Fn() -> bool + Sync)| {
        let (over, seen) = (AtomicBool::new(false), AtomicBool::new(false));
        let progress = |_, _| match over.load(Ordering::Acquire) {
            true => Err(Fault::new(Code::Unreachable, "seen, or never")),
            false => Ok(()),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                seen.store(happens(is_seen), Ordering::Relaxed);
                over.store(true, Ordering::Release);
            });
            match gathering {
                Some(gathering) => gathering.wait_drained(ServerIndex(0), end, &progress).unwrap_err(),
                None => outbox.wait_drained(ServerIndex(0), end, &progress).unwrap_err(),
            };
        });
        seen.into_inner()
    };
    assert!(wait_until(None, &|| reader.is_urgent()
        && reader.waits_outside_collective()
        && !reader.in_collective()));
    let gathering = outbox.begin_collective_wait();
    assert!(reader.in_collective() && !reader.is_urgent());
    assert!(wait_until(Some(&gathering), &|| {
        let together = happens(&|| reader.is_urgent() && !reader.waits_outside_collective());
        // Another thread waits for itself meanwhile.
        together && wait_until(None, &|| reader.waits_outside_collective())
    }));
    drop(gathering);
    assert!(!reader.in_collective() && !reader.waits_outside_collective());
}

/// Meta of a record for server 0.
fn meta_at(offset: u64) -> RecordMeta {
    let object = ObjectId { inode: InodeId(0), generation: Generation(0) };
    let layout = Layout::new(1 << 20, 1, 0, SERVERS).unwrap();
    RecordMeta { object, layout, view: 0, displacement: 0, offset, local_writers: 0 }
}

/// Commits a record for server 0; `during` runs while it is copied.
fn commit_during(node: &OutboxNode, offset: u64, during: &dyn Fn()) -> Result<u64, Fault> {
    let concerns = [Concern { server: ServerIndex(0), bytes: RECORD as u64 }];
    let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| {
        write(0, &[3; RECORD / 2]);
        during();
        write(RECORD / 2, &[3; RECORD / 2]);
    };
    node.outbox.commit_stream(meta_at(offset), &concerns, (RECORD, fill), &no_check_expected)
}

/// Offsets of the records that a server finds, in order; their commit times ascend.
fn offsets(node: &OutboxNode) -> Vec<u64> {
    let reader = OutboxReader::attach(node.outbox.descriptor().try_clone().unwrap()).unwrap();
    let span = reader.span(0).unwrap();
    let (mut at, mut last, mut found) = (span.start, Nanos(0), Vec::new());
    while at < span.end {
        let head = reader.record(at, span.end).unwrap().unwrap().head;
        assert!(last <= head.committed && head.committed <= MonotonicClock.now());
        last = head.committed;
        if head.kind == RecordKind::Data {
            found.push(head.offset);
        }
        at += head.span();
    }
    found
}

#[test]
fn threads_copy_at_the_same_time_and_commit_in_order() {
    const THREADS: u64 = 4;
    let node = OutboxNode::new();
    let (copying, committed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (node, copying, committed) = (&node, &copying, &committed);
            scope.spawn(move || {
                let during = || {
                    assert_eq!(node.outbox.tail(), 0, "no record is committed while the first is copied");
                    copying.fetch_add(1, Ordering::AcqRel);
                    assert!(happens(&|| copying.load(Ordering::Acquire) == THREADS), "all copy at once");
                };
                let end = commit_during(node, thread, &during).unwrap();
                assert!(end <= node.outbox.tail(), "a commit returns when its record is committed");
                committed.fetch_add(1, Ordering::AcqRel);
            });
        }
    });
    let mut found = offsets(&node);
    found.sort_unstable();
    assert_eq!((found, committed.into_inner()), (vec![0, 1, 2, 3], THREADS));
}

/// The record of a thread that panics while it is copied is none, and no thread and no server waits for it.
#[test]
fn a_record_whose_copy_fails_is_skipped() {
    let node = OutboxNode::new();
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let fails = || {
                begun.store(true, Ordering::Release);
                // The other record is in the ring, behind this one, when this copy fails.
                std::thread::yield_now();
                std::panic::resume_unwind(Box::new("given up"))
            };
            commit_during(&node, 1, &fails)
        });
        assert!(happens(&|| begun.load(Ordering::Acquire)));
        commit_during(&node, 2, &|| ()).unwrap();
        failing.join().unwrap_err();
    });
    assert_eq!(offsets(&node), [2]);
    // The last record is given up: a server that drains all there is has drained it too.
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        commit_during(&node, 3, &|| std::panic::resume_unwind(Box::new("given up")))
    }));
    assert!(failed.is_err());
    assert!(!node.outbox.is_drained(ServerIndex(0), u64::MAX));
    node.drain_all(0);
    assert!(node.outbox.is_drained(ServerIndex(0), u64::MAX));
    // And the ring goes on, also past its end.
    for offset in 0..20 {
        commit_during(&node, offset, &|| ()).unwrap();
        node.drain_all(0);
    }
}

/// A thread needs space into which another thread copies: it waits, and writes nothing there before.
#[test]
fn space_that_is_copied_into_is_not_used_again() {
    const LONG: usize = CAPACITY / 2 - 256;
    let node = OutboxNode::new();
    let put = |value: u8, during: &dyn Fn()| {
        let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| {
            during();
            write(0, &[value; LONG]);
        };
        node.outbox.commit_stream(meta_at(value.into()), &[], (LONG, fill), &no_check_expected).unwrap()
    };
    let (begun, third) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            put(1, &|| {
                begun.store(1, Ordering::Release);
                assert!(happens(&|| begun.load(Ordering::Acquire) == 2));
                // The third thread has had time to reserve space, were it free.
                std::thread::park_timeout(Duration::from_millis(50));
                assert!(!third.load(Ordering::Acquire), "the third record begins before the first is copied");
            })
        });
        assert!(happens(&|| begun.load(Ordering::Acquire) == 1));
        scope.spawn(|| put(2, &|| begun.store(2, Ordering::Release)));
        assert!(happens(&|| begun.load(Ordering::Acquire) == 2));
        scope.spawn(|| put(3, &|| third.store(true, Ordering::Release)));
    });
    assert_eq!(offsets(&node), [2, 3]);
}

/// While a server is attached, other threads commit to other servers; a second thread that attaches it waits for the first.
#[test]
fn threads_commit_while_a_server_is_attached() {
    let node = OutboxNode::new();
    node.commit(1, &no_check_expected).unwrap();
    node.outbox.detach(ServerIndex(1));
    let (offers, second) = (AtomicU64::new(0), AtomicBool::new(false));
    let commit_first = || {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
    };
    let attach = |during: &dyn Fn()| {
        node.outbox.attach(ServerIndex(1), |from| {
            offers.fetch_add(1, Ordering::AcqRel);
            during();
            let (_page, descriptor) = CursorPage::create(from).unwrap();
            Cursor::attach(ServerIndex(1), descriptor, Doorbell::new().unwrap().duplicate().unwrap())
        })
    };
    let during = || {
        // As long as the ring has space beside the record that is offered.
        std::thread::scope(|others| drop(others.spawn(|| (0..5).for_each(|_| commit_first()))));
        assert!(happens(&|| second.load(Ordering::Acquire)));
        assert!(node.outbox.cursor(ServerIndex(1)).is_none());
    };
    std::thread::scope(|scope| {
        let attached = scope.spawn(|| attach(&during));
        assert!(happens(&|| offers.load(Ordering::Acquire) == 1));
        let other = scope.spawn(|| {
            second.store(true, Ordering::Release);
            attach(&|| panic!("it is offered twice"))
        });
        let (attached, other) = (attached.join().unwrap().unwrap(), other.join().unwrap().unwrap());
        assert_eq!((attached.lost, other.lost), (None, None), "the record is still there");
        assert!(Arc::ptr_eq(&attached.cursor, &other.cursor));
        assert_eq!(attached.cursor.drained(), 0);
    });
    assert_eq!(offers.into_inner(), 1);
    assert!(!node.outbox.is_drained(ServerIndex(1), u64::MAX), "its record waits for it");
}

/// Records that are offered to a returning server stay in the ring until the offer ends; when it fails, they make way.
#[test]
fn records_that_are_offered_stay() {
    let (node, first) = full_for_server_1();
    node.outbox.detach(ServerIndex(1));
    let (offered, committed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let refused = node.outbox.attach(ServerIndex(1), |from| {
                assert_eq!(from, 0);
                offered.store(true, Ordering::Release);
                // The other thread has had time to take the space, were it free.
                std::thread::park_timeout(Duration::from_millis(50));
                assert!(!committed.load(Ordering::Acquire), "the offered record is overwritten");
                Err(Fault::new(Code::Unreachable, "server 1 is gone again"))
            });
            refused.unwrap_err();
        });
        assert!(happens(&|| offered.load(Ordering::Acquire)));
        for _ in 0..2 {
            node.commit(0, &no_check_expected).unwrap();
            node.drain_all(0);
        }
        committed.store(true, Ordering::Release);
    });
    assert_eq!(node.attach(1).1.lost, Some(0..first));
}

/// Page faults of this thread that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Bytes passed to the kernel are present: a write that stops at an absent page zeroes the rest of its target first. Also for a server
/// that attaches later, with records in parts of the ring only.
#[test]
fn the_data_of_records_is_present_when_it_is_looked_at() {
    let node = OutboxNode::of(8 << 20);
    let object = ObjectId { inode: InodeId(0), generation: Generation(0) };
    let layout = Layout::new(1 << 20, 1, 0, SERVERS).unwrap();
    let meta = RecordMeta { object, layout, view: 0, displacement: 0, offset: 0, local_writers: 0 };
    let attach = || OutboxReader::attach(node.outbox.descriptor().try_clone().unwrap()).unwrap();
    let (from_the_first, mut from_the_middle) = (attach(), None);
    let mut target = vec![1; 512 << 10];
    let sizes = [512 << 10, 100, 5000, 512 << 10, 512 << 10, 80 << 10, 512 << 10, 300 << 10];
    // Twice around, and a little.
    for (number, bytes) in sizes.into_iter().cycle().enumerate().take(64) {
        let position = node.outbox.commit(meta, &vec![7; bytes], &no_check_expected).unwrap();
        (0..SERVERS).for_each(|server| node.drain_all(server));
        if number == 12 {
            from_the_middle = Some(attach());
        }
        let every_third = from_the_middle.as_ref().filter(|_| number % 3 == 0);
        for reader in [Some(&from_the_first), every_third].into_iter().flatten() {
            // A head, the data, and the rest of a cache line.
            let start = position - (64 + bytes as u64).next_multiple_of(64);
            let record = reader.record(start, position).unwrap().unwrap();
            let piece = reader.data(&record, 0, bytes);
            let before = faults();
            piece.copy_to(&mut target[..bytes]);
            let met = faults() - before;
            assert!(met == 0 || bytes < 4096 && met == 1, "{met}: {bytes} bytes at {start}, record {number}");
        }
    }
}

#[test]
fn a_record_whose_memory_was_reused_during_a_scan_is_no_violation() {
    let node = OutboxNode::new();
    let commit_drained = || {
        node.commit(0, &no_check_expected).unwrap();
        node.drain_all(0);
    };
    commit_drained();
    // Server 1 has read the span; no record concerns it, and the ring goes round meanwhile.
    let reader = OutboxReader::attach(node.outbox.descriptor().try_clone().unwrap()).unwrap();
    let span = reader.span(0).unwrap();
    assert!(reader.record(span.start, span.end).unwrap().is_some());
    for _ in 0..2 * CAPACITY / RECORD {
        commit_drained();
    }
    assert!(reader.record(span.start, span.end).unwrap().is_none());
    // The scan goes on at the oldest record that is there.
    let next = reader.span(span.start).unwrap();
    assert!(span.end < next.start && next.end == node.outbox.tail());
    assert!(reader.record(next.start, next.end).unwrap().is_some());
}
