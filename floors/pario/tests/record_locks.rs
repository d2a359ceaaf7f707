//! Record locks as with `fcntl`: between clients, and compared with a model of POSIX.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ops::Range;

use common::SeededRandom;
use pario::core::Code;
use pario::{File, LockHolder, Partition, RecordLocks, RecordMode, RecordWait};

const ALONE: RecordMode = RecordMode::Exclusive;
const SHARED: RecordMode = RecordMode::Shared;

struct LockClient {
    locks: RecordLocks,
    file: File,
}

impl LockClient {
    fn new(partition: &Partition) -> LockClient {
        let client = partition.another_client();
        let file = client.options().read(true).write(true).create(true).open("locked").unwrap();
        LockClient { locks: RecordLocks::new(LockHolder::Process), file }
    }

    fn try_set(&self, range: Range<u64>, mode: RecordMode) -> bool {
        match self.locks.set(&self.file, range, mode, RecordWait::No) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), Code::WouldBlock, "{error}");
                false
            }
        }
    }

    fn wait_for(&self, range: Range<u64>, mode: RecordMode) {
        self.locks.set(&self.file, range, mode, RecordWait::Wait).unwrap();
    }

    fn clear(&self, range: Range<u64>) {
        self.locks.clear(&self.file, range).unwrap();
    }

    fn finds(&self, range: Range<u64>, mode: RecordMode) -> Option<(Range<u64>, RecordMode)> {
        let found = self.locks.find(&self.file, range, mode).unwrap();
        found.map(|found| {
            assert_eq!(found.pid, std::process::id());
            (found.range, found.mode)
        })
    }
}

#[test]
fn a_lock_is_split_joined_and_changed_in_place() {
    let partition = Partition::in_process(1).unwrap();
    let (one, two) = (LockClient::new(&partition), LockClient::new(&partition));
    assert!(one.try_set(0..100, ALONE));
    assert!(!two.try_set(99..200, SHARED) && two.try_set(100..200, ALONE));
    two.clear(0..u64::MAX);
    // An unlocked hole in the middle.
    one.clear(40..60);
    assert!(!two.try_set(39..41, ALONE) && two.try_set(40..60, ALONE) && !one.try_set(50..70, SHARED));
    assert_eq!(one.finds(0..1000, ALONE), Some((40..60, ALONE)));
    two.clear(40..60);
    // The first part becomes shared: others may share it, but not more.
    assert!(one.try_set(0..20, SHARED));
    assert!(two.try_set(0..20, SHARED) && !two.try_set(0..20, ALONE) && !two.try_set(20..21, SHARED));
    assert_eq!(two.finds(10..30, ALONE).unwrap().1, SHARED);
    assert_eq!(two.finds(25..30, SHARED), Some((20..40, ALONE)));
    // And cannot become exclusive again while they do; it stays as it was.
    assert!(!one.try_set(0..10, ALONE) && !two.try_set(0..1, ALONE));
    two.clear(0..10);
    assert!(one.try_set(0..10, ALONE) && !two.try_set(0..1, SHARED) && !one.try_set(10..11, ALONE));
    one.locks.clear_all();
    assert!(two.try_set(0..u64::MAX, ALONE));
    assert_eq!(two.finds(0..5, ALONE), None, "a client's own lock does not block it");
}

/// A waiter does not block the holder that it waits for, for any change of the holder.
#[test]
fn the_holder_changes_its_lock_while_another_waits_for_it() {
    let partition = Partition::in_process(1).unwrap();
    let (one, two, three) =
        (LockClient::new(&partition), LockClient::new(&partition), LockClient::new(&partition));
    one.wait_for(0..100, ALONE);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| two.wait_for(50..60, ALONE));
        assert!(common::stage::until(|| !three.try_set(55..56, ALONE)));
        // Narrower, wider, weaker, stronger: immediately.
        assert!(one.try_set(0..100, SHARED) && one.try_set(0..100, ALONE) && one.try_set(0..200, ALONE));
        one.clear(0..20);
        assert!(one.try_set(30..90, SHARED) && !waiting.is_finished());
        one.clear(0..u64::MAX);
        waiting.join().unwrap();
    });
    assert!(!one.try_set(50..51, SHARED));
}

#[test]
fn two_that_wait_for_each_other_are_told() {
    let partition = Partition::in_process(1).unwrap();
    let (one, two) = (LockClient::new(&partition), LockClient::new(&partition));
    one.wait_for(0..1, ALONE);
    two.wait_for(1..2, ALONE);
    let wait = |client: &LockClient, range: Range<u64>| {
        let set = client.locks.set(&client.file, range, ALONE, RecordWait::Wait);
        set.map_err(|error| {
            client.locks.clear_all();
            error.code()
        })
    };
    std::thread::scope(|scope| {
        // The last of them is refused; it keeps its locks until it unlocks.
        let first = scope.spawn(|| wait(&one, 1..2));
        let second = wait(&two, 0..1);
        let both = [first.join().unwrap(), second];
        assert!(both.contains(&Ok(())) && both.contains(&Err(Code::Deadlock)), "{both:?}");
    });
}

/// Random calls of two clients, none of which waits, compared with a model with a lock per byte.
#[test]
fn random_calls_do_what_posix_says() {
    const BYTES: usize = 24;
    let seed = std::env::var("PARIO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_secs());
    println!("PARIO_SEED={seed}");
    let mut chance = SeededRandom::new(seed);
    let partition = Partition::in_process(1).unwrap();
    let clients = [LockClient::new(&partition), LockClient::new(&partition), LockClient::new(&partition)];
    let mut model = [[None::<RecordMode>; BYTES]; 3];
    for step in 0..1500 {
        let caller = chance.index(clients.len());
        let start = chance.index(BYTES);
        let end = start + 1 + chance.index(BYTES - start);
        let range = start as u64..end as u64;
        let mode = chance.pick(&[Some(ALONE), Some(SHARED), None]);
        let Some(mode) = mode else {
            clients[caller].clear(range);
            model[caller][start..end].fill(None);
            continue;
        };
        let free = (start..end).all(|at| {
            let others =
                (0..clients.len()).filter(|other| *other != caller).filter_map(|other| model[other][at]);
            others.into_iter().all(|other| (mode, other) == (SHARED, SHARED))
        });
        if chance.below(4) == 0 {
            let found = clients[caller].finds(range.clone(), mode);
            assert_eq!(found.is_none(), free, "step {step}: {caller} looks at {range:?} {mode:?}: {found:?}");
        }
        assert_eq!(
            clients[caller].try_set(range.clone(), mode),
            free,
            "step {step}: {caller} {range:?} {mode:?}"
        );
        if free {
            model[caller][start..end].fill(Some(mode));
        }
    }
}
