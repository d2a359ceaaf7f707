//! The cost of a write, counted and never timed: messages, system calls and copies.
//!
//! | | messages | system calls | copies of a byte |
//! |---|---|---|---|
//! | 8 KiB write, steady state | 0 | 0 (an occasional doorbell) | 2: into the outbox, out of it into the store |
//! | 1 MiB direct write or read | 0 | 1 | 1: by the kernel |
//! | pieces of a view, read again | 0 | 1 for each server, none for a piece | 1 |
//! | 8 KiB write, steady state: at most 9 locks (4 of the outbox), 1 allocation, 2 readings of the clock | | | |
//! | 8 KiB read of a lent object: at most 4 locks, no allocation, 2 readings of the clock | | | |
//! | a direct write over many blocks | 0 | 1 for each server and 16 MiB | 1: by the kernel |

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use pario::{Alone, Counts, Datatype, EmbedOptions, EmbedStore, EmbedTransport, GroupFile, Hints, Partition};

const MIB: u64 = 1 << 20;

#[cfg(debug_assertions)]
#[global_allocator]
static ALLOCATOR: pario_sys::counting::CountingAllocator = pario_sys::counting::CountingAllocator;

/// Locks, allocations and readings of the clock of this thread so far; only debug builds count them.
#[cfg(debug_assertions)]
fn costs() -> [u64; 3] {
    [
        pario_sys::mutex::locks_of_this_thread(),
        pario_sys::counting::allocations_of_this_thread(),
        pario_sys::clock::reads_of_this_thread(),
    ]
}

/// The costs of `call`, that 19 of 20 calls do not exceed: the others wait for space or wake a server.
#[cfg(debug_assertions)]
fn usual_costs(calls: u64, mut call: impl FnMut(u64)) -> [u64; 3] {
    let mut all: [Vec<u64>; 3] = Default::default();
    for n in 0..calls {
        let before = costs();
        call(n);
        let after = costs();
        (0..3).for_each(|kind| all[kind].push(after[kind] - before[kind]));
    }
    all.map(|mut costs| {
        costs.sort_unstable();
        costs[costs.len() * 19 / 20]
    })
}

#[cfg(debug_assertions)]
#[test]
fn a_small_write_takes_few_locks_and_hardly_memory() {
    for (transport, store) in [
        (EmbedTransport::Unix, EmbedStore::Files),
        (EmbedTransport::Unix, EmbedStore::Memory),
        (EmbedTransport::InProcess, EmbedStore::Direct),
    ] {
        let partition = start(transport, store);
        let file = partition.create("f").unwrap();
        let data = vec![1; 8 << 10];
        // Until every server has the outbox.
        (0..1024).for_each(|n| file.write_at(n * data.len() as u64, &data).unwrap());
        let found = usual_costs(1024, |n| file.write_at((1024 + n) * data.len() as u64, &data).unwrap());
        let [locks, allocations, clock] = found;
        assert!(0 < locks && 0 < clock, "{found:?} are counted");
        let is_cheap = locks <= 9 && allocations <= 1 && clock <= 2;
        assert!(
            is_cheap,
            "{transport:?} {store:?}: {locks} locks, {allocations} allocations, {clock} clock readings"
        );
        file.close().unwrap();
    }
}

/// Calls of the `write` and of the `read` family that this thread has made.
fn system_calls() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    (field("syscw:"), field("syscr:"))
}

/// The counts of `work`, by the session's counters and by the kernel's.
fn counted(partition: &Partition, work: impl FnOnce()) -> (Counts, u64, u64) {
    // Reading the counters costs system calls too.
    let (first, second) = (system_calls(), system_calls());
    let before = partition.counts();
    work();
    let after = partition.counts();
    let third = system_calls();
    let mut counts = after.since(&before);
    (counts.write_ns, counts.read_ns, counts.lease_ns) = (0, 0, 0);
    let looking = (second.0 - first.0, second.1 - first.1);
    (counts, third.0 - second.0 - looking.0, third.1 - second.1 - looking.1)
}

fn start(transport: EmbedTransport, store: EmbedStore) -> Partition {
    let options = EmbedOptions {
        servers: 4,
        stripe_bytes: MIB,
        transport,
        store,
        memory_bytes: 256 << 20,
        ..EmbedOptions::default()
    };
    Partition::embed(&options).unwrap()
}

#[cfg(debug_assertions)]
#[test]
fn a_small_read_takes_few_locks_and_no_memory() {
    for store in [EmbedStore::Files, EmbedStore::Memory] {
        let partition = start(EmbedTransport::Unix, store);
        let file = partition.create("f").unwrap();
        file.write_at(0, &vec![1; 8 << 20]).unwrap();
        file.sync().unwrap();
        let mut back = vec![0; 8 << 10];
        // Until every server has lent its object.
        (0..1024).for_each(|n| file.read_exact_at(n * (8 << 10), &mut back).unwrap());
        let found = usual_costs(1024, |n| file.read_exact_at(n * (8 << 10), &mut back).unwrap());
        let [locks, allocations, clock] = found;
        assert!(0 < locks && 0 < clock, "{found:?} are counted");
        let is_cheap = locks <= 4 && allocations == 0 && clock <= 2;
        assert!(is_cheap, "{store:?}: {locks} locks, {allocations} allocations, {clock} clock readings");
        file.close().unwrap();
    }
}

#[test]
fn a_small_write_costs_no_message_and_hardly_a_system_call() {
    for (transport, store) in [
        (EmbedTransport::Unix, EmbedStore::Files),
        (EmbedTransport::Unix, EmbedStore::Memory),
        (EmbedTransport::InProcess, EmbedStore::Direct),
    ] {
        let partition = start(transport, store);
        let file = partition.create("f").unwrap();
        let data = vec![1; 8 << 10];
        let write = |from: u64, count: u64| {
            for n in from..from + count {
                file.write_at(n * data.len() as u64, &data).unwrap();
            }
        };
        // Until every server has the outbox.
        write(0, 1024);
        let writes = 4096;
        let (counts, syscw, syscr) = counted(&partition, || write(1024, writes));
        assert_eq!(counts.messages, 0, "{transport:?} {store:?}");
        assert_eq!(counts.records, writes, "{transport:?} {store:?}");
        assert_eq!(counts.record_bytes, writes * data.len() as u64, "once into the outbox");
        assert_eq!((counts.direct_writes, counts.leases), (0, 0), "{transport:?} {store:?}");
        assert!(syscw * 20 <= writes, "{transport:?} {store:?}: {syscw} calls for {writes} writes");
        assert_eq!(syscr, 0, "{transport:?} {store:?}");
        file.close().unwrap();
    }
}

#[test]
fn a_large_write_or_read_costs_one_system_call_and_no_message() {
    for store in [EmbedStore::Files, EmbedStore::Memory] {
        let partition = start(EmbedTransport::Unix, store);
        let file = partition.create("f").unwrap();
        let data = vec![1; 1 << 20];
        let write = |from: u64, count: u64| {
            for n in from..from + count {
                file.write_at(n * MIB, &data).unwrap();
            }
        };
        // Until every server has lent its object.
        write(0, 4);
        let (counts, syscw, syscr) = counted(&partition, || write(4, 32));
        if store == EmbedStore::Files {
            let expected = Counts { direct_writes: 32, direct_write_bytes: 32 * MIB, ..Counts::default() };
            assert_eq!((counts, syscw, syscr), (expected, 32, 0));
        } else {
            // Memory is lent for reading only: the server accounts for the bytes it holds.
            assert_eq!((counts.messages, counts.record_bytes), (0, 32 * MIB));
        }
        file.sync().unwrap();
        // The first read may have to fetch a loan.
        file.read_exact_at(0, &mut vec![0; 4 << 20]).unwrap();
        let mut target = vec![0; 1 << 20];
        let (counts, syscw, syscr) = counted(&partition, || {
            for n in 0..32 {
                file.read_exact_at(n * MIB, &mut target).unwrap();
            }
        });
        let expected = Counts { direct_reads: 32, direct_read_bytes: 32 * MIB, ..Counts::default() };
        assert_eq!(counts, expected, "{store:?}");
        assert_eq!((syscw, syscr), (0, 32), "{store:?}");
    }
}

/// Neighbouring blocks of a server are written with one call.
#[test]
fn a_write_over_many_blocks_costs_a_system_call_for_each_server() {
    let partition = start(EmbedTransport::Unix, EmbedStore::Files);
    let file = partition.create("f").unwrap();
    let data = common::pattern(32 << 20, 5);
    file.write_at(0, &data[..4 << 20]).unwrap();
    let (counts, syscw, syscr) = counted(&partition, || file.write_at(4 * MIB, &data).unwrap());
    let expected = Counts { direct_writes: 4, direct_write_bytes: 32 * MIB, ..Counts::default() };
    assert_eq!((counts, syscw, syscr), (expected, 4, 0));
    let mut back = vec![0; 32 << 20];
    file.read_exact_at(4 * MIB, &mut back).unwrap();
    assert_eq!(common::difference(&data, &back), None);
}

/// A second read of a file without other users costs no message either: the lease is kept.
#[test]
fn a_kept_lease_costs_nothing() {
    let partition = start(EmbedTransport::Unix, EmbedStore::Files);
    let file = partition.create("f").unwrap();
    file.write_at(0, &[1; 1000]).unwrap();
    let mut back = [0; 1000];
    file.read_exact_at(0, &mut back).unwrap();
    let (counts, _, _) = counted(&partition, || {
        for _ in 0..100 {
            file.write_at(0, &[2; 1000]).unwrap();
            assert_eq!(file.len().unwrap(), 1000);
        }
    });
    assert_eq!((counts.messages, counts.leases, counts.recalls), (0, 0, 0));
}

/// Over the network a large write is as many messages as it has transfers, and no others.
#[test]
fn a_write_by_message_is_one_message_a_transfer() {
    let partition = start(EmbedTransport::Tcp, EmbedStore::Memory);
    let file = partition.create("f").unwrap();
    let data = vec![1; 4 << 20];
    file.write_at(0, &data).unwrap();
    let (counts, _, _) = counted(&partition, || file.write_at(4 * MIB, &data).unwrap());
    let expected = Counts { messages: 4, write_messages: 4, sent_bytes: 4 * MIB, ..Counts::default() };
    assert_eq!(counts, expected);
}

/// Pieces of a view, read three times: by few calls, and then from mappings, as the kernel counts it; also after another open.
#[test]
fn what_is_read_again_through_a_view_costs_no_call_of_the_read_family() {
    const PIECES: usize = 2000;
    for (store, piece) in [(EmbedStore::Files, 1000), (EmbedStore::Memory, 1000), (EmbedStore::Files, 8000)] {
        let what = format!("{store:?}, pieces of {piece} bytes");
        let partition = start(EmbedTransport::Unix, store);
        let all = common::pattern(2 * PIECES * piece, 7);
        partition.create("f").unwrap().write_at(0, &all).unwrap();
        let wanted: Vec<u8> = all.chunks(2 * piece).flat_map(|two| &two[..piece]).copied().collect();
        let view = |file: &GroupFile| {
            let byte = Datatype::elementary(1).unwrap();
            let number = |n: usize| i64::try_from(n).unwrap();
            let filetype = Datatype::contiguous(number(piece), &byte).unwrap();
            file.set_view(0, &byte, &filetype.resized(0, number(2 * piece)).unwrap()).unwrap();
        };
        let open = || {
            let options = partition.options().read(true);
            let file = options.open_all(&Alone::group(), "f", &Hints::default()).unwrap();
            view(&file);
            file
        };
        let read = |file: &GroupFile| {
            let mut found = vec![0; wanted.len()];
            let counts = counted(&partition, || {
                assert_eq!(file.read_at(0, &mut found).unwrap(), found.len());
            });
            assert_eq!(common::difference(&wanted, &found), None, "{what}");
            counts
        };
        let file = open();
        let (counts, _, syscr) = read(&file);
        assert_eq!(counts.mapped_reads, 0, "{what}, the first time");
        assert_eq!((counts.direct_read_bytes, counts.direct_reads), (wanted.len() as u64, syscr), "{what}");
        let is_mapped = |file: &GroupFile| {
            let (counts, _, syscr) = read(file);
            let mapped = (counts.mapped_reads, counts.mapped_read_bytes, counts.direct_reads);
            assert_eq!((mapped, syscr), ((4, wanted.len() as u64, 0), 0), "{what}, again");
        };
        is_mapped(&file);
        file.close().unwrap();
        is_mapped(&open());
    }
}

#[test]
fn a_group_that_opens_a_file_to_read_needs_no_server_for_reading() {
    let partition = start(EmbedTransport::Unix, EmbedStore::Files);
    let data: Vec<u8> = (0..8 * MIB).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let file = partition.create("f").unwrap();
    file.write_at(0, &data).unwrap();
    file.close().unwrap();
    let group = Alone::group();
    let opened = counted(&partition, || {
        let file = partition.options().read(true).open_all(&group, "f", &Hints::default()).unwrap();
        let mut target = vec![0; data.len()];
        let (counts, _, _) = counted(&partition, || {
            file.read_at_all(0, &mut target).unwrap();
        });
        assert!(target == data);
        assert_eq!((counts.messages, counts.leases, counts.direct_read_bytes), (0, 0, 8 * MIB));
        file.close().unwrap();
    });
    assert_eq!(opened.0.leases, 1, "asked for when it was opened");
    // For a writable handle no lease is acquired in advance.
    let file = partition.options().read(true).write(true).open_all(&group, "f", &Hints::default()).unwrap();
    let (counts, _, _) = counted(&partition, || {
        file.read_at_all(0, &mut vec![0; 4096]).unwrap();
    });
    assert_eq!(counts.leases, 1);
    file.close().unwrap();
}

/// The lease is acquired by the first write and not before: every stat would recall it.
#[test]
fn a_group_that_opens_a_fresh_file_has_offered_its_outbox_when_open_returns() {
    let partition = start(EmbedTransport::Unix, EmbedStore::Files);
    std::thread::scope(|scope| {
        for group in pario::group::threads(2) {
            let partition = &partition;
            scope.spawn(move || {
                let options = partition.options().create(true).read(true).write(true);
                let file = options.open_all(&group, "f", &Hints::default()).unwrap();
                group.barrier().unwrap();
                if group.rank() == 0 {
                    let (counts, _, _) = counted(partition, || {
                        file.write_at(0, &[7; 100]).unwrap();
                    });
                    assert_eq!((counts.messages, counts.leases, counts.records), (1, 1, 1));
                }
                group.barrier().unwrap();
                file.close().unwrap();
            });
        }
    });
}

/// Empty, small and large calls of two threads; the first ones make what later ones use again.
#[cfg(debug_assertions)]
#[test]
fn a_call_of_a_team_takes_no_memory_in_steady_state() {
    use pario::team::{Hint, Position, TeamFile, TeamOptions, TeamSettings};
    const CALLS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    for (settings, bytes) in [("active=2", 0), ("active=2", 4096), ("active=2", 1 << 20), ("active=1", 65536)]
    {
        let options = TeamOptions::default().create(true).read(true).write(true).truncate(true);
        let options = options.settings(TeamSettings::parse(settings).unwrap());
        let file = TeamFile::open(dir.path().join("file"), &options).unwrap();
        let allocations = |number: u32| {
            let mut part = vec![1; bytes];
            let mut before = 0;
            for call in 0..2 * CALLS {
                if call == CALLS {
                    before = pario_sys::counting::allocations_of_this_thread();
                }
                let member = file.at(Position::of(number, 2));
                member.write_at_all(u64::from(number) * bytes as u64, &part, Hint::Contiguous).unwrap();
                member.read_at_all(u64::from(number) * bytes as u64, &mut part, Hint::Contiguous).unwrap();
            }
            pario_sys::counting::allocations_of_this_thread() - before
        };
        let counts = std::thread::scope(|scope| {
            [0, 1].map(|number| scope.spawn(move || allocations(number))).map(|thread| thread.join().unwrap())
        });
        // Members that run ahead may need a buffer more than ever before; that is not the steady state.
        assert!(
            counts.iter().sum::<u64>() <= CALLS / 20,
            "{settings}, {bytes} bytes: {counts:?} of {CALLS} calls"
        );
        file.close().unwrap();
    }
}
