//! A full outbox and servers that go while somebody waits for room in it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Generation, InodeId, Layout, ObjectId, ServerIndex};
use pario_net::outbox::{Attached, Cursor, CursorPage, Gathering, Outbox, OutboxReader, RecordMeta, Sleep};
use pario_sys::clock::MonotonicClock;
use pario_sys::doorbell::Doorbell;

const SERVERS: u16 = 3;
const CAPACITY: usize = 256 << 10;
const RECORD: usize = 32 << 10;

/// A client's outbox with the servers' ends of it.
struct Node {
    outbox: Outbox,
    pages: Vec<CursorPage>,
}

impl Node {
    fn new() -> Node {
        Node::of(CAPACITY)
    }

    fn of(capacity: usize) -> Node {
        let outbox = Outbox::create(capacity, usize::from(SERVERS)).unwrap();
        let mut node = Node { outbox, pages: Vec::new() };
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

    /// What a server does that has taken everything.
    fn take_all(&self, server: u16) {
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
            RecordMeta { object, layout, view: 0, moved: 0, offset: 0, companions: 0 },
            &[1; RECORD],
            progress,
        )
    }
}

fn nobody_is_asked(server: ServerIndex, _: Duration) -> Result<(), Fault> {
    panic!("nobody waits for server {server}")
}

fn gone(server: ServerIndex, _: Duration) -> Result<(), Fault> {
    Err(Fault::new(Code::Unreachable, format!("server {server} is gone")))
}

/// Server 1 has taken nothing of what is for it, and the ring has no room.
fn full_for_server_1() -> (Node, u64) {
    let node = Node::new();
    let first = node.commit(1, &nobody_is_asked).unwrap();
    while node.outbox.tail() + (RECORD as u64) * 3 / 2 < CAPACITY as u64 {
        node.commit(0, &nobody_is_asked).unwrap();
        node.take_all(0);
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
            gone(server, waited)
        };
        node.commit(0, &progress).unwrap();
        node.take_all(0);
        lapped += RECORD;
    }
    assert_eq!(asked.get(), 1, "whoever is found to be gone is not asked again");
    // It comes back: what made way is told, and it starts behind it.
    assert!(!node.outbox.is_taken(ServerIndex(1), first));
    let (_page, attached) = node.attach(1);
    assert_eq!(attached.lost, Some(0..first));
    assert_eq!(attached.cursor.taken(), node.outbox.tail());
}

#[test]
fn a_record_for_a_server_that_went_is_refused() {
    let (node, _) = full_for_server_1();
    let refused = node.commit(1, &gone).unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
}

/// While a record for server 2 waits for room that server 1 does not make, server 2 goes: nobody is there to take it, and so
/// it must not be accepted.
#[test]
fn a_server_that_goes_during_the_wait_takes_no_record() {
    let (node, _) = full_for_server_1();
    let progress = |server: ServerIndex, waited| {
        node.outbox.detach(ServerIndex(2));
        gone(server, waited)
    };
    let tail = node.outbox.tail();
    let refused = node.commit(2, &progress).unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert!(refused.text.contains("server 2"), "{}", refused.text);
    assert_eq!(node.outbox.tail(), tail, "nothing was committed");
}

/// Bytes of memory that the outbox has.
fn memory(node: &Node) -> u64 {
    let descriptor = node.outbox.descriptor().try_clone().unwrap();
    std::os::unix::fs::MetadataExt::blocks(&std::fs::File::from(descriptor).metadata().unwrap()) * 512
}

#[test]
fn memory_comes_as_it_is_used_and_stays() {
    const MIB: u64 = 1 << 20;
    let node = Node::of(8 << 20);
    assert_eq!(memory(&node), 2 * MIB, "a large page");
    let mut seen = Vec::new();
    // Twice around.
    for _ in 0..(16 << 20) / (RECORD + 64) {
        node.commit(0, &nobody_is_asked).unwrap();
        node.take_all(0);
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
    let node = Node::of(16 << 20);
    assert!(!node.outbox.wants_memory(), "nothing is made for a process that writes nothing");
    while node.outbox.tail() <= STEP + STEP / 2 {
        node.commit(0, &nobody_is_asked).unwrap();
        node.take_all(0);
    }
    assert!(node.outbox.wants_memory());
    node.outbox.make_memory_ahead();
    assert!(!node.outbox.wants_memory());
    let (written, memory) = (node.outbox.tail(), memory_bytes(&node.outbox));
    assert!((2 * written..2 * written + 2 * STEP).contains(&memory), "{memory} for {written}");
    // Whoever writes finds it there.
    while node.outbox.tail() + RECORD as u64 * 2 < 2 * written {
        node.commit(0, &nobody_is_asked).unwrap();
        node.take_all(0);
    }
    assert_eq!(memory_bytes(&node.outbox), memory);
    // And never more than the outbox.
    for _ in 0..800 {
        node.commit(0, &nobody_is_asked).unwrap();
        node.take_all(0);
        node.outbox.make_memory_ahead();
    }
    assert!(!node.outbox.wants_memory());
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
                    return gone(server, Duration::ZERO).map(|()| unreachable!("it is gone"));
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

/// A server that leaves the processors to busy writers is not rung for every mebibyte, but in time for whoever would run out of room.
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
    let meta = |offset| RecordMeta { object, layout, view: 0, moved: 0, offset, companions: 0 };
    let commit = || {
        let offset = outbox.tail();
        outbox.commit(meta(offset), &[7; RECORD], &nobody_is_asked).unwrap()
    };
    page.fall_asleep(Sleep::Resting);
    while commit() < 4 * MIB {
        assert!(!bell.take(), "less than half is used");
    }
    assert!(bell.take(), "half is used");
    page.fall_asleep(Sleep::Light);
    let asleep = commit();
    while commit() < asleep + MIB {}
    assert!(bell.take(), "who only sleeps is rung for a mebibyte");
    page.fall_asleep(Sleep::Resting);
    outbox.cursor(ServerIndex(0)).unwrap().wake();
    assert!(bell.take(), "and whoever waits rings in any case");
}

/// Whether something happens within some seconds.
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

/// A thread in a call of its group says so as long as it is there, and that it waits in it, so that who waits for itself is told from it.
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
    let meta = RecordMeta { object, layout, view: 0, moved: 0, offset: 0, companions: 2 };
    let end = outbox.commit(meta, &[7; 100], &nobody_is_asked).unwrap();
    // Nobody takes it: a wait ends when something was seen.
    let wait_until = |gathering: Option<&Gathering>, is_seen: &(dyn Fn() -> bool + Sync)| {
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
                Some(gathering) => gathering.wait_taken(ServerIndex(0), end, &progress).unwrap_err(),
                None => outbox.wait_taken(ServerIndex(0), end, &progress).unwrap_err(),
            };
        });
        seen.into_inner()
    };
    assert!(wait_until(None, &|| reader.is_urgent() && reader.waits_alone() && !reader.gathers()));
    let gathering = outbox.gather();
    assert!(reader.gathers() && !reader.is_urgent());
    assert!(wait_until(Some(&gathering), &|| {
        let together = happens(&|| reader.is_urgent() && !reader.waits_alone());
        // Another thread waits for itself meanwhile.
        together && wait_until(None, &|| reader.waits_alone())
    }));
    drop(gathering);
    assert!(!reader.gathers() && !reader.waits_alone());
}

/// Page faults of this thread that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// What a server hands to the kernel is there: a write that stops at a page that is not clears the rest of its place first. Also for a
/// server that comes later, and whose records are not everywhere in the ring.
#[test]
fn the_data_of_records_is_present_when_it_is_looked_at() {
    let node = Node::of(8 << 20);
    let object = ObjectId { inode: InodeId(0), generation: Generation(0) };
    let layout = Layout::new(1 << 20, 1, 0, SERVERS).unwrap();
    let meta = RecordMeta { object, layout, view: 0, moved: 0, offset: 0, companions: 0 };
    let attach = || OutboxReader::attach(node.outbox.descriptor().try_clone().unwrap()).unwrap();
    let (from_the_first, mut from_the_middle) = (attach(), None);
    let mut target = vec![1; 512 << 10];
    let sizes = [512 << 10, 100, 5000, 512 << 10, 512 << 10, 80 << 10, 512 << 10, 300 << 10];
    // Twice around, and a little.
    for (number, bytes) in sizes.into_iter().cycle().enumerate().take(64) {
        let position = node.outbox.commit(meta, &vec![7; bytes], &nobody_is_asked).unwrap();
        (0..SERVERS).for_each(|server| node.take_all(server));
        if number == 12 {
            from_the_middle = Some(attach());
        }
        let every_third = from_the_middle.as_ref().filter(|_| number % 3 == 0);
        for reader in [Some(&from_the_first), every_third].into_iter().flatten() {
            // A head, the data, and what is left of a line.
            let start = position - (64 + bytes as u64).next_multiple_of(64);
            let record = reader.record(start, position).unwrap();
            let piece = reader.data(&record, 0, bytes);
            let before = faults();
            piece.copy_to(&mut target[..bytes]);
            let met = faults() - before;
            assert!(met == 0 || bytes < 4096 && met == 1, "{met}: {bytes} bytes at {start}, record {number}");
        }
    }
}
