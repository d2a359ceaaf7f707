//! Locks of files, atomic accesses and shared pointers, between clients of one partition.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::cast_possible_truncation, reason = "ranks and rounds are few")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use pario::core::Code;
use pario::{
    Datatype, EmbedOptions, EmbedStore, EmbedTransport, File, Hints, LockHolder, LockOptions, Partition, Seek,
};

/// A partition of files on servers that are threads, reached like those of other processes.
fn partition(servers: u16) -> Partition {
    Partition::embed(&EmbedOptions { servers, ..EmbedOptions::default() }).unwrap()
}

fn file_of(partition: &Partition, path: &str) -> File {
    partition.options().read(true).write(true).create(true).open(path).unwrap()
}

#[test]
fn a_lock_that_is_kept_costs_no_message() {
    let partition = partition(2);
    let file = file_of(&partition, "a");
    drop(file.lock(0..10, &LockOptions::exclusive()).unwrap());
    drop(file.lock(0..10, &LockOptions::shared()).unwrap());
    let before = partition.counts();
    for at in 0..1000 {
        file.lock(at * 100..at * 100 + 50, &LockOptions::exclusive()).unwrap().unlock().unwrap();
        drop(file.lock(.., &LockOptions::shared()).unwrap());
    }
    assert_eq!(partition.counts().since(&before).messages, 0);
}

/// In the mixed phase calls are locked. Readers that read a little more each time send one request between two writes.
#[test]
fn readers_beside_a_writer_ask_once_for_what_they_come_back_to() {
    const BYTES: usize = 100;
    const CYCLES: u64 = 10;
    let partition = partition(2);
    let readers = [partition.another_client(), partition.another_client()];
    let file = file_of(&partition, "read-again");
    let files = readers.each_ref().map(|reader| file_of(reader, "read-again"));
    let cycle = |value: u8| {
        file.write_at(0, &[value; BYTES]).unwrap();
        for bytes in 1..=BYTES {
            for file in &files {
                let mut found = vec![0; bytes];
                assert_eq!(file.read_at(0, &mut found).unwrap(), bytes);
                assert!(found.iter().all(|byte| *byte == value));
            }
        }
    };
    let locks = || readers.each_ref().map(|reader| reader.counts().lock_messages);
    let mixed = (0..200).any(|value| {
        cycle(value);
        locks().iter().all(|messages| 0 < *messages)
    });
    assert!(mixed, "two hundred changes between reading and writing");
    let before = locks();
    (0..CYCLES).for_each(|value| cycle(value as u8));
    for (before, after) in before.into_iter().zip(locks()) {
        // The first may have the whole file; another one the surroundings. Each returns it for a writer.
        let messages = after - before;
        assert!((1..=2 * CYCLES).contains(&messages), "{messages} messages for {CYCLES} writes");
    }
}

/// Two members with large interleaved pieces, over several servers each; `shift` moves the second one's.
fn pieces_in_turn(shift: i64) -> Vec<pario::Counts> {
    const PIECE: i64 = 1 << 20;
    const CALLS: u64 = 8;
    let options = EmbedOptions { servers: 2, stripe_bytes: 64 << 10, ..EmbedOptions::default() };
    let partition = Partition::embed(&options).unwrap();
    let clients = [partition.another_client(), partition.another_client()];
    let groups = pario::group::threads(2);
    let work = |group: Arc<dyn pario::Group>, client: &Partition| {
        let (rank, seed) = (i64::try_from(group.rank()).unwrap(), group.rank() as u64 * 100);
        let options = client.options().read(true).write(true).create(true);
        let file = options.open_all(&group, "in-turn", &Hints::default()).unwrap();
        let byte = Datatype::elementary(1).unwrap();
        let piece = Datatype::contiguous(PIECE, &byte).unwrap().resized(0, 2 * PIECE).unwrap();
        file.set_view(rank * (PIECE + shift), &byte, &piece).unwrap();
        let before = client.counts();
        for call in 0..CALLS {
            let data = common::pattern(PIECE as usize, seed + call);
            file.write_at_all(call * PIECE as u64, &data).unwrap();
            group.barrier().unwrap();
        }
        let counts = client.counts().since(&before);
        for call in 0..CALLS {
            let mut found = vec![0; PIECE as usize];
            assert_eq!(file.read_at(call * PIECE as u64, &mut found).unwrap(), found.len());
            if shift == 0 {
                assert!(found == common::pattern(PIECE as usize, seed + call), "call {call}");
            }
        }
        file.close().unwrap();
        group.leave();
        counts
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = groups
            .into_iter()
            .zip(&clients)
            .map(|(group, client)| scope.spawn(move || work(group, client)))
            .collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn members_whose_views_share_no_byte_ask_for_a_lock_once() {
    for counts in pieces_in_turn(0) {
        assert!(counts.lock_messages <= 1, "one lock for eight calls: {counts:?}");
    }
    // Members with overlapping pieces return theirs, and continue.
    let said: u64 = pieces_in_turn(-4096).iter().map(|counts| counts.lock_messages).sum();
    assert!(2 < said, "{said}");
}

#[test]
fn a_change_of_holder_is_one_round_trip_each_way() {
    let one = partition(2);
    let other = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&other, "a"));
    drop(here.lock(0..10, &LockOptions::exclusive()).unwrap());
    let (before, before_other) = (one.counts(), other.counts());
    drop(there.lock(0..10, &LockOptions::exclusive()).unwrap());
    assert_eq!(other.counts().since(&before_other).lock_messages, 1);
    // The previous holder returns it with one message, without waiting for a reply.
    let given = || one.counts().since(&before).lock_messages;
    assert!(common::eventually(|| given() == 1), "{}", given());
}

#[test]
fn locks_exclude_each_other_and_try_names_the_holder() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "a"));
    let guard = here.lock(10..20, &LockOptions::exclusive()).unwrap();
    assert_eq!(guard.range(), 10..20);
    let error = there.lock(15..16, &LockOptions::shared().try_now()).unwrap_err();
    assert_eq!(error.code(), Code::WouldBlock);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    let error = there.lock(15..16, &LockOptions::shared().limit(Duration::from_millis(30))).unwrap_err();
    assert_eq!(error.code(), Code::TimedOut, "{error}");
    let found = there.find_lock(0..100, &LockOptions::exclusive()).unwrap().unwrap();
    assert_eq!(found.pid, std::process::id());
    // Elsewhere in the file it is free.
    drop(there.lock(20..30, &LockOptions::exclusive().try_now()).unwrap());
    // And in another space.
    drop(there.lock(.., &LockOptions::exclusive().whole_file().try_now()).unwrap());
    guard.check().unwrap();
    guard.unlock().unwrap();
    drop(there.lock(15..16, &LockOptions::exclusive()).unwrap());
}

#[test]
fn who_holds_it_decides_who_is_excluded() {
    let one = partition(1);
    let (first, second) = (file_of(&one, "a"), file_of(&one, "a"));
    let process = LockOptions::exclusive().try_now().held_by(LockHolder::Process);
    let _guard = first.lock(0..10, &process).unwrap();
    drop(second.lock(0..10, &process).unwrap());
    assert!(second.lock(0..10, &LockOptions::exclusive().try_now()).is_err(), "a handle is another holder");
    let group = LockOptions::exclusive().try_now().held_by(LockHolder::Group(77));
    let two = one.another_client();
    let there = file_of(&two, "a");
    let _mine = first.lock(50..60, &group).unwrap();
    drop(there.lock(50..60, &group).unwrap());
    assert!(there.lock(50..60, &process).is_err());
    let application = LockOptions::exclusive().try_now().held_by(LockHolder::Application);
    let _ours = first.lock(70..80, &application).unwrap();
    drop(there.lock(70..80, &application).unwrap());
}

/// No holder waits for more than is held.
#[test]
fn shared_locks_and_free_bytes_are_free_whatever_is_kept() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "a"));
    drop(here.lock(0..8, &LockOptions::exclusive()).unwrap());
    let _first = here.lock(0..8, &LockOptions::shared()).unwrap();
    let _far = here.lock(1000..1001, &LockOptions::exclusive()).unwrap();
    drop(there.lock(0..8, &LockOptions::shared().try_now()).unwrap());
    drop(there.lock(500..501, &LockOptions::exclusive().try_now()).unwrap());
    assert!(there.lock(1000..1001, &LockOptions::shared().try_now()).is_err());
    // A held range can be locked again inside, also while another waits for it.
    let waiting = there.start_lock(1000..1001, &LockOptions::exclusive()).unwrap();
    let waits = || common::manager_status(&one)["locks"]["waiting"].as_array().map_or(0, Vec::len);
    assert!(common::eventually(|| waits() == 1));
    drop(here.lock(1000..1001, &LockOptions::exclusive()).unwrap());
    assert!(!waiting.is_done());
}

#[test]
fn a_file_that_is_closed_answers_who_waits_for_its_locks() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "a"));
    let _guard = here.lock(.., &LockOptions::exclusive()).unwrap();
    let pending = there.start_lock(0..1, &LockOptions::exclusive()).unwrap();
    let waits = || common::manager_status(&one)["locks"]["waiting"].as_array().map_or(0, Vec::len);
    assert!(common::eventually(|| waits() == 1));
    there.close().unwrap();
    assert_eq!(pending.wait().unwrap_err().code(), Code::Closed);
}

/// A member that has not moved the pointer before another closes the file finds its value.
#[test]
fn a_shared_pointer_outlives_its_first_user() {
    let partition = partition(2);
    as_group(&partition, 2, |file, rank| {
        if rank == 0 {
            file.write_shared(b"first").unwrap();
            file.group().barrier().unwrap();
        } else {
            file.group().barrier().unwrap();
            // The other is closing by now, or about to.
            common::stage::pause(Duration::from_millis(20));
            file.write_shared(b"second").unwrap();
        }
        file.close().unwrap();
    });
    assert_eq!(common::read_all(&partition, "shared"), b"firstsecond");
}

/// A member that fails in an ordered call has its turn all the same.
#[test]
fn a_wrong_part_of_an_ordered_call_holds_nobody_up() {
    let partition = partition(2);
    as_group(&partition, 3, |file, rank| {
        let word = Datatype::elementary(4).unwrap();
        file.set_view(0, &word, &word).unwrap();
        let written = file.write_ordered(&[rank as u8 + 1; 4][..if rank == 1 { 3 } else { 4 }]);
        assert_eq!(written.is_err(), rank == 1);
        file.write_ordered(&[rank as u8 + 1; 4]).unwrap();
        file.close().unwrap();
    });
    assert_eq!(
        common::read_all(&partition, "shared"),
        [1, 1, 1, 1, 3, 3, 3, 3, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    );
}

#[test]
fn a_wait_can_be_taken_back() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "a"));
    let guard = here.lock(.., &LockOptions::exclusive()).unwrap();
    let pending = there.start_lock(0..1, &LockOptions::exclusive()).unwrap();
    let waits = || common::manager_status(&one)["locks"]["waiting"].as_array().map_or(0, Vec::len);
    assert!(common::eventually(|| waits() == 1));
    assert!(!pending.is_done());
    assert!(pending.cancel().unwrap().is_none());
    assert!(common::eventually(|| waits() == 0));
    let pending = there.start_lock(0..1, &LockOptions::exclusive()).unwrap();
    drop(guard);
    drop(pending.wait().unwrap());
}

#[test]
fn a_circle_is_an_error_that_names_both() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "b"));
    let (also_here, also_there) = (file_of(&one, "b"), file_of(&two, "a"));
    let options = LockOptions::exclusive().held_by(LockHolder::Process);
    let first = here.lock(0..1, &options).unwrap();
    let second = there.lock(0..1, &options).unwrap();
    let crossing = also_here.start_lock(0..1, &options).unwrap();
    let waits = || common::manager_status(&one)["locks"]["waiting"].as_array().map_or(0, Vec::len);
    assert!(common::eventually(|| waits() == 1));
    let error = also_there.lock(0..1, &options).unwrap_err();
    assert_eq!(error.code(), Code::Deadlock, "{error}");
    assert_eq!(error.to_string().matches(" waits for ").count(), 2, "{error}");
    drop(second);
    drop(crossing.wait().unwrap());
    drop(first);
}

#[test]
fn closing_ends_the_locks_of_a_file() {
    let one = partition(1);
    let two = one.another_client();
    let (here, there) = (file_of(&one, "a"), file_of(&two, "a"));
    let guard = here.lock(.., &LockOptions::exclusive()).unwrap();
    here.close().unwrap();
    drop(there.lock(.., &LockOptions::exclusive()).unwrap());
    assert_eq!(guard.unlock().unwrap_err().code(), Code::Lost);
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let partition = partition(1);
    let file = file_of(&partition, "a");
    let empty = file.lock(5..5, &LockOptions::exclusive()).unwrap_err();
    assert_eq!(empty.code(), Code::Invalid);
    drop(file.lock(..=u64::MAX, &LockOptions::exclusive()).unwrap());
}

#[test]
fn many_clients_count_together() {
    let partition = partition(2);
    file_of(&partition, "counter").write_at(0, &[0; 8]).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = partition.another_client();
            std::thread::spawn(move || {
                let file = file_of(&client, "counter");
                for _ in 0..250 {
                    let guard = file.lock(0..8, &LockOptions::exclusive()).unwrap();
                    let mut bytes = [0; 8];
                    file.read_at(0, &mut bytes).unwrap();
                    file.write_at(0, &(u64::from_le_bytes(bytes) + 1).to_le_bytes()).unwrap();
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut bytes = [0; 8];
    file_of(&partition, "counter").read_at(0, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 1000);
}

/// Members of a group, each a client and a thread.
fn as_group(
    partition: &Partition,
    size: usize,
    work: impl Fn(pario::GroupFile, usize) + Send + Sync + Clone + 'static,
) {
    let threads: Vec<_> = pario::group::threads(size)
        .into_iter()
        .enumerate()
        .map(|(rank, member)| {
            let (client, work) = (partition.another_client(), work.clone());
            let group: Arc<dyn pario::Group> = member;
            std::thread::spawn(move || {
                let options = client.options().create(true).read(true).write(true);
                let file = options.open_all(&group, "shared", &Hints::default()).unwrap();
                work(file, rank);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn shared_parts_are_disjoint_and_leave_no_gap() {
    const RECORD: usize = 64;
    const EACH: u64 = 200;
    for transport in [EmbedTransport::default(), EmbedTransport::Tcp] {
        let options = EmbedOptions { servers: 2, transport, ..EmbedOptions::default() };
        let partition = Partition::embed(&options).unwrap();
        as_group(&partition, 4, |file, rank| {
            for number in 0..EACH {
                let mut record = [0u8; RECORD];
                record[..8].copy_from_slice(&(rank as u64 * EACH + number + 1).to_le_bytes());
                file.write_shared(&record).unwrap();
            }
            file.close().unwrap();
        });
        let bytes = common::read_all(&partition, "shared");
        assert_eq!(bytes.len(), RECORD * 4 * EACH as usize);
        let mut seen: Vec<u64> =
            bytes.chunks(RECORD).map(|record| u64::from_le_bytes(record[..8].try_into().unwrap())).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=4 * EACH).collect::<Vec<u64>>());
    }
}

#[test]
fn ordered_calls_come_in_the_order_of_ranks() {
    for transport in [EmbedTransport::default(), EmbedTransport::Tcp] {
        let options = EmbedOptions { servers: 2, transport, ..EmbedOptions::default() };
        let partition = Partition::embed(&options).unwrap();
        as_group(&partition, 3, |file, rank| {
            for round in 0..50u8 {
                file.write_ordered(&vec![round * 3 + rank as u8; rank + 1]).unwrap();
            }
            assert_eq!(file.seek_shared(Seek::Set(6)).unwrap(), 6);
            assert_eq!(file.position_shared().unwrap(), 6);
            file.group().barrier().unwrap();
            let mut target = [0; 2];
            file.read_ordered(&mut target).unwrap();
            let expected: [[u8; 2]; 3] = [[3, 4], [4, 5], [5, 5]];
            assert_eq!(target, expected[rank]);
            // A new view starts at 0.
            let byte = Datatype::elementary(1).unwrap();
            file.set_view(2, &byte, &byte).unwrap();
            assert_eq!(file.position_shared().unwrap(), 0);
            file.group().barrier().unwrap();
            file.begin_write_ordered(vec![200 + rank as u8; 1]).unwrap();
            file.end_write_all().unwrap();
            file.close().unwrap();
        });
        let bytes = common::read_all(&partition, "shared");
        let mut expected = Vec::new();
        for round in 0..50u8 {
            for rank in 0..3u8 {
                expected.extend(vec![round * 3 + rank; usize::from(rank) + 1]);
            }
        }
        expected[2..5].copy_from_slice(&[200, 201, 202]);
        assert_eq!(bytes, expected);
    }
}

#[test]
fn views_that_share_no_byte_take_no_lock_in_atomic_mode() {
    let partition = partition(3);
    as_group(&partition, 4, |file, rank| {
        let byte = Datatype::elementary(1).unwrap();
        file.set_atomicity(true).unwrap();
        assert!(file.atomicity());
        file.set_view(rank as i64, &byte, &byte.resized(0, 4).unwrap()).unwrap();
        let before = file.counts();
        for round in 0..10 {
            file.write_at_all(round * 1000, &[rank as u8 + 1; 1000]).unwrap();
        }
        assert_eq!(file.counts().since(&before).lock_messages, 0);
        file.close().unwrap();
    });
    let bytes = common::read_all(&partition, "shared");
    assert!(bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 4 + 1));
}

#[test]
fn interleaved_atomic_accesses_hold_their_locks_at_the_same_time() {
    let partition = partition(2);
    let status = partition.clone();
    as_group(&partition, 2, move |file, rank| {
        // The same view for both, so that they are not known to be disjoint; the accesses are.
        let byte = Datatype::elementary(1).unwrap();
        file.set_atomicity(true).unwrap();
        file.set_view(0, &byte, &byte.resized(0, 2).unwrap()).unwrap();
        file.write_at(rank as u64 * 500, &[rank as u8 + 1; 500]).unwrap();
        file.group().barrier().unwrap();
        let held = common::manager_status(&status)["locks"]["held"].as_array().unwrap().len();
        assert_eq!(held, 2);
        file.group().barrier().unwrap();
        let before = file.counts();
        file.write_at(rank as u64 * 500, &[rank as u8 + 3; 500]).unwrap();
        assert_eq!(file.counts().since(&before).lock_messages, 0, "repeated use costs nothing");
        file.close().unwrap();
    });
}

#[test]
fn overlapping_atomic_writes_are_seen_whole() {
    for store in [EmbedStore::Memory, EmbedStore::Files] {
        let options = EmbedOptions { servers: 3, store, stripe_bytes: 4096, ..EmbedOptions::default() };
        let partition = Partition::embed(&options).unwrap();
        as_group(&partition, 4, |file, rank| {
            let byte = Datatype::elementary(1).unwrap();
            file.set_atomicity(true).unwrap();
            let piece = Datatype::contiguous(100, &byte).unwrap();
            file.set_view(0, &byte, &piece.resized(0, 150).unwrap()).unwrap();
            let mut target = vec![0; 20_000];
            for round in 0..40u8 {
                if (round as usize + rank).is_multiple_of(2) {
                    file.write_at(0, &vec![round * 4 + rank as u8 + 1; 20_000]).unwrap();
                } else {
                    let count = file.read_at(0, &mut target).unwrap();
                    assert!(
                        target[..count].iter().all(|byte| *byte == target[0]),
                        "a half of a write was seen"
                    );
                }
            }
            file.close().unwrap();
        });
    }
}

/// As in POSIX, a contiguous call is atomic also without atomic mode.
#[test]
fn contiguous_calls_are_atomic_by_themselves() {
    let options = EmbedOptions { servers: 3, stripe_bytes: 4096, ..EmbedOptions::default() };
    let partition = Partition::embed(&options).unwrap();
    let threads: Vec<_> = (0..4u8)
        .map(|who| {
            let client = partition.another_client();
            std::thread::spawn(move || {
                let file = file_of(&client, "a");
                let mut target = vec![0; 30_000];
                for round in 0..60u8 {
                    if (round + who) % 3 != 0 {
                        file.write_at(1000, &vec![round * 4 + who + 1; 30_000]).unwrap();
                    } else {
                        let count = file.read_at(1000, &mut target).unwrap();
                        let (first, rest) = (target[0], &target[..count]);
                        let odd = rest.iter().position(|byte| *byte != first);
                        assert_eq!(
                            odd,
                            None,
                            "a half of a write was seen, {first} and {:?}",
                            odd.map(|at| rest[at])
                        );
                    }
                }
                file.close().unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
