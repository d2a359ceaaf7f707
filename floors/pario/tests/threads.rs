//! Concurrent clients and threads: disjoint ranges arrive completely, the later of two ordered writes wins at every byte, and every thread
//! reads its own writes under concurrent accesses of the others.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use common::{STORES, SeededRandom, TRANSPORTS, Trace, difference, histories, pattern, small};
use pario::{EmbedOptions, EmbedStore, EmbedTransport, File, Partition};

fn start(chance: &mut SeededRandom, seed: u64, trace: &Trace) -> Partition {
    let (transport, store) = match usize::try_from(seed) {
        Ok(seed) if seed < 1 << 20 => (TRANSPORTS[seed % 3], STORES[seed / 3 % 4]),
        _ => (chance.pick(&TRANSPORTS), chance.pick(&STORES)),
    };
    let (servers, stripe) = (chance.pick(&[1u16, 2, 4]), chance.pick(&[4 << 10, 16 << 10, 256 << 10]));
    trace.step(format!("{transport:?} {store:?}, {servers} servers, stripe {stripe}"));
    Partition::embed(&EmbedOptions { transport, store, ..small(servers, stripe) })
        .expect("a partition in this process")
}

fn open(client: &Partition, name: &str) -> File {
    client.options().read(true).write(true).create(true).open(name).unwrap()
}

fn verify(client: &Partition, name: &str, expected: &[u8]) {
    let file = client.open(name).unwrap();
    let mut found = vec![0xee; expected.len() + 1];
    let count = file.read_at(0, &mut found).unwrap();
    if let Some(what) = difference(expected, &found[..count]) {
        panic!("{name}: {what}");
    }
}

#[test]
fn disjoint_ranges_of_concurrent_clients_arrive_whole() {
    histories(18, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let partition = start(&mut chance, seed, trace);
        let count = 3;
        let chunk = chance.pick(&[1000usize, 4096, 7171, 200_000]);
        let chunks = (1_500_000 / chunk).min(300);
        let expected = pattern(chunk * chunks, seed);
        trace.step(format!("{count} clients write {chunks} chunks of {chunk}"));
        thread::scope(|scope| {
            for own in 0..count {
                let (client, expected, mut chance) =
                    (partition.another_client(), &expected, SeededRandom::new(seed ^ (own as u64 + 1)));
                scope.spawn(move || {
                    let file = open(&client, "f");
                    let mut order: Vec<usize> = (own..chunks).step_by(count).collect();
                    for at in (1..order.len()).rev() {
                        order.swap(at, chance.index(at + 1));
                    }
                    for n in order {
                        let bytes = &expected[n * chunk..(n + 1) * chunk];
                        file.write_at((n * chunk) as u64, bytes).unwrap();
                        if chance.once_in(20) {
                            let mut back = vec![0; chunk];
                            file.read_exact_at((n * chunk) as u64, &mut back).unwrap();
                            assert!(back == bytes, "client {own} reads chunk {n} back");
                        }
                        if chance.once_in(50) {
                            file.sync().unwrap();
                        }
                    }
                    file.close().unwrap();
                });
            }
        });
        for client in [&partition, &partition.another_client()] {
            verify(client, "f", &expected);
        }
    });
}

/// Passed from writer to writer: the writer that has it writes, then passes it on.
struct WriterToken {
    contents: Vec<u8>,
    rounds: usize,
}

#[derive(Clone, Copy)]
struct Burst {
    writes: usize,
    bytes_max: u64,
    file_bytes: u64,
}

/// Writers pass a token to each other; every write begins after the previous one returned.
fn pass_token(partition: &Partition, seed: u64, rounds: usize, burst: Burst) {
    let count = 3;
    let (senders, receivers): (Vec<Sender<WriterToken>>, Vec<Receiver<WriterToken>>) =
        (0..count).map(|_| channel()).unzip();
    let (finish, finished) = channel();
    let mut hands = Vec::new();
    for (own, inbox) in receivers.into_iter().enumerate() {
        let (senders, finish) = (senders.clone(), finish.clone());
        let (client, mut chance) = (partition.another_client(), SeededRandom::new(seed ^ (own as u64 + 77)));
        hands.push(thread::spawn(move || {
            let file = open(&client, "f");
            let others: Vec<_> = senders.into_iter().enumerate().filter(|(other, _)| *other != own).collect();
            while let Ok(mut token) = inbox.recv_timeout(std::time::Duration::from_secs(30)) {
                if token.rounds == 0 {
                    let _ = finish.send(token.contents);
                    // The others end too; an ended thread does not receive any more.
                    for (_, other) in &others {
                        let _ = other.send(WriterToken { contents: Vec::new(), rounds: 0 });
                    }
                    break;
                }
                write_burst(&file, &mut token.contents, &mut chance, burst);
                token.rounds -= 1;
                let next = chance.index(others.len());
                others[next].1.send(token).unwrap();
            }
            file.close().unwrap();
        }));
    }
    let contents = vec![0; usize::try_from(burst.file_bytes).unwrap()];
    open(partition, "f").write_at(0, &contents).unwrap();
    senders[0].send(WriterToken { contents, rounds }).unwrap();
    drop(senders);
    let contents = finished.recv_timeout(std::time::Duration::from_secs(50)).expect("the token comes back");
    drop(finish);
    for client in [partition, &partition.another_client()] {
        verify(client, "f", &contents);
    }
    for hand in hands {
        hand.join().unwrap();
    }
}

fn write_burst(file: &File, contents: &mut [u8], chance: &mut SeededRandom, burst: Burst) {
    for _ in 0..=chance.index(burst.writes) {
        let bytes = 1 + chance.below(burst.bytes_max);
        let offset = chance.below(burst.file_bytes - bytes + 1);
        let data = pattern(usize::try_from(bytes).unwrap(), chance.next_u64());
        file.write_at(offset, &data).unwrap();
        let start = usize::try_from(offset).unwrap();
        contents[start..start + data.len()].copy_from_slice(&data);
    }
}

#[test]
fn the_later_of_two_writes_in_order_wins_everywhere() {
    histories(18, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let partition = start(&mut chance, seed, trace);
        let burst = Burst {
            writes: chance.pick(&[1, 5, 30]),
            bytes_max: chance.pick(&[16, 3000, 60_000, 300_000]),
            file_bytes: 400_000,
        };
        trace.step(format!("bursts of {} writes of {} bytes", burst.writes, burst.bytes_max));
        pass_token(&partition, seed, 40, burst);
    });
}

/// More small records than a server scans in one pass: none may be applied after a newer record of another client.
#[test]
fn order_holds_for_very_many_small_records() {
    histories(4, |seed, trace| {
        let options = EmbedOptions {
            servers: 1,
            stripe_bytes: 64 << 10,
            store: EmbedStore::Memory,
            transport: EmbedTransport::InProcess,
            memory_bytes: 64 << 20,
            ..EmbedOptions::default()
        };
        let partition = Partition::embed(&options).unwrap();
        trace.step("bursts of 9000 writes of 4 bytes");
        pass_token(&partition, seed, 12, Burst { writes: 18_000, bytes_max: 4, file_bytes: 2000 });
    });
}

/// One thread on a file that the others use too: it reads its own writes under concurrent accesses of the others.
fn live(client: &Partition, own: usize, chance: &mut SeededRandom) {
    let region = 100_000;
    let mut contents = vec![0; region];
    let base = (own * region) as u64;
    let mut file = open(client, "f");
    for turn in 0..60 {
        match chance.below(8) {
            0 => {
                file.close().unwrap();
                file = open(client, "f");
            }
            1 => file.sync().unwrap(),
            _ => {
                let bytes = 1 + chance.index(9000);
                let at = chance.index(region - bytes);
                let data = pattern(bytes, chance.next_u64());
                file.write_at(base + at as u64, &data).unwrap();
                contents[at..at + bytes].copy_from_slice(&data);
                let mut back = vec![0; bytes];
                file.read_exact_at(base + at as u64, &mut back).unwrap();
                assert!(back == data, "thread {own} reads back its write of turn {turn}");
            }
        }
        let start = chance.index(region - 3000);
        let mut back = vec![0xee; 3000];
        let count = file.read_at(base + start as u64, &mut back).unwrap();
        // Another thread's writes beyond may have arrived or not; own bytes that are present must be correct.
        if let Some(what) = difference(&contents[start..start + count], &back[..count]) {
            panic!("thread {own}, turn {turn}, at {}: {what}", base + start as u64);
        }
    }
    file.close().unwrap();
}

#[test]
fn threads_of_one_client_read_what_they_wrote() {
    histories(18, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let partition = start(&mut chance, seed, trace);
        thread::scope(|scope| {
            for own in 0..4 {
                let (client, mut chance) = (&partition, SeededRandom::new(seed ^ (own as u64 + 5)));
                scope.spawn(move || live(client, own, &mut chance));
            }
        });
    });
}

#[test]
fn threads_of_several_clients_read_what_they_wrote() {
    histories(18, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let partition = start(&mut chance, seed, trace);
        let other = partition.another_client();
        thread::scope(|scope| {
            for own in 0..4 {
                let client = if own % 2 == 0 { &partition } else { &other };
                let mut chance = SeededRandom::new(seed ^ (own as u64 + 5));
                scope.spawn(move || live(client, own, &mut chance));
            }
        });
    });
}

/// The handles of the threads that write to one file.
#[derive(Clone, Copy, Debug)]
enum Handles {
    One,
    OneEach,
    /// Of two clients, each with an outbox of its own.
    TwoClients,
}

const COMMON_BYTES: usize = 150_000;
const OWN_BYTES: usize = 120_000;

/// Writes that all threads make to the same bytes, one after another, among writes to bytes of the thread's own, which delay the records
/// of others.
fn write_among_others(
    file: &File,
    own: &mut [u8],
    base: u64,
    common: &Mutex<Vec<u8>>,
    chance: &mut SeededRandom,
) {
    let bytes_max = chance.pick(&[40usize, 3000, 20_000, 60_000]);
    for _ in 0..80 {
        let bytes = 1 + chance.index(bytes_max);
        let data = pattern(bytes, chance.next_u64());
        if chance.once_in(2) {
            let at = chance.index(own.len() - bytes);
            file.write_at(base + at as u64, &data).unwrap();
            own[at..at + bytes].copy_from_slice(&data);
        } else {
            let at = chance.index(COMMON_BYTES - bytes);
            // The next write begins after this one has returned.
            let mut common = common.lock().unwrap();
            file.write_at(at as u64, &data).unwrap();
            common[at..at + bytes].copy_from_slice(&data);
        }
        if chance.once_in(30) {
            file.sync().unwrap();
        }
    }
}

#[test]
fn records_of_several_threads_end_in_the_order_of_their_writes() {
    const THREADS: usize = 4;
    histories(27, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let partition = start(&mut chance, seed, trace);
        let handles = chance.pick(&[Handles::One, Handles::OneEach, Handles::TwoClients]);
        trace.step(format!("{THREADS} threads, {handles:?}"));
        let (other, shared) = (partition.another_client(), open(&partition, "f"));
        let common = Mutex::new(vec![0; COMMON_BYTES]);
        let all = thread::scope(|scope| {
            let write = |own: usize| {
                let (common, shared, partition, other) = (&common, &shared, &partition, &other);
                let mut chance = SeededRandom::new(seed ^ (own as u64 + 9));
                move || {
                    let handle = match handles {
                        Handles::One => None,
                        Handles::TwoClients if own % 2 == 1 => Some(open(other, "f")),
                        Handles::OneEach | Handles::TwoClients => Some(open(partition, "f")),
                    };
                    let mut bytes = vec![0; OWN_BYTES];
                    let base = (COMMON_BYTES + own * OWN_BYTES) as u64;
                    let file = handle.as_ref().unwrap_or(shared);
                    file.write_at(base, &bytes).unwrap();
                    write_among_others(file, &mut bytes, base, common, &mut chance);
                    if let Some(handle) = handle {
                        handle.close().unwrap();
                    }
                    bytes
                }
            };
            let threads: Vec<_> = (0..THREADS).map(|own| scope.spawn(write(own))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        shared.close().unwrap();
        let mut expected = common.into_inner().unwrap();
        all.into_iter().for_each(|own| expected.extend(own));
        for client in [&partition, &other] {
            verify(client, "f", &expected);
        }
    });
}
