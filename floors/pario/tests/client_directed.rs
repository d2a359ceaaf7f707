//! Client-directed I/O: groups of threads, each its own client, on one to four nodes, compared with a byte array.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use common::{STORES, SeededRandom, TRANSPORTS, Trace, difference, histories, pattern, small};
use pario::group::{self, Group};
use pario::{Alone, Datatype, EmbedOptions, EmbedTransport, File, GroupFile, Hints, Method, Partition};

fn hints() -> Hints {
    Hints { method: Some(Method::ClientDirected), ..Hints::default() }
}

/// Runs one thread per rank; each has its own session.
fn run<T: Send>(
    partition: &Partition,
    nodes: &[usize],
    body: impl Fn(&Arc<dyn Group>, &Partition) -> T + Sync,
) -> Vec<T> {
    let clients: Vec<Partition> = nodes.iter().map(|_| partition.another_client()).collect();
    run_on(&clients, nodes, body)
}

/// The same with existing sessions.
fn run_on<T: Send>(
    clients: &[Partition],
    nodes: &[usize],
    body: impl Fn(&Arc<dyn Group>, &Partition) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = group::threads_on(nodes)
            .into_iter()
            .zip(clients)
            .map(|(group, client)| {
                scope.spawn(move || {
                    let result = body(&group, client);
                    group.leave();
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn open(client: &Partition, group: &Arc<dyn Group>, name: &str, hints: &Hints) -> GroupFile {
    client.options().read(true).write(true).create(true).open_all(group, name, hints).unwrap()
}

/// Shows every `of`-th piece of `bytes`, starting with the piece of this number.
fn interleave(file: &GroupFile, number: usize, of: usize, bytes: usize) {
    let number_of = |n: usize| i64::try_from(n).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let piece = Datatype::contiguous(number_of(bytes), &byte).unwrap();
    let filetype = piece.resized(0, number_of(bytes * of)).unwrap();
    file.set_view(number_of(bytes * number), &byte, &filetype).unwrap();
}

fn own_part(all: &[u8], rank: usize, size: usize, bytes: usize) -> Vec<u8> {
    all.chunks(bytes).skip(rank).step_by(size).flatten().copied().collect()
}

fn verify(client: &Partition, name: &str, expected: &[u8]) {
    let file = client.open(name).unwrap();
    let mut found = vec![0xee; expected.len() + 1];
    let count = file.read_at(0, &mut found).unwrap();
    if let Some(what) = difference(expected, &found[..count]) {
        panic!("{name}: {what}");
    }
}

fn write_and_read(nodes: &[usize], options: &EmbedOptions) {
    let partition = Partition::embed(options).unwrap();
    let (size, bytes) = (nodes.len(), 1000);
    let all = pattern(bytes * size * 300, 7);
    run(&partition, nodes, |group, client| {
        let file = open(client, group, "f", &hints());
        interleave(&file, group.rank(), size, bytes);
        let mine = own_part(&all, group.rank(), size, bytes);
        for (n, part) in mine.chunks(50_000).enumerate() {
            file.write_at_all(n as u64 * 50_000, part).unwrap();
        }
        group.barrier().unwrap();
        // Every rank reads the next rank's part.
        let next = (group.rank() + 1) % size;
        interleave(&file, next, size, bytes);
        let mut found = vec![0xee; mine.len()];
        assert_eq!(file.read_at_all(0, &mut found).unwrap(), mine.len());
        assert_eq!(difference(&own_part(&all, next, size, bytes), &found), None);
        assert_eq!(file.len().unwrap(), all.len() as u64);
        file.close().unwrap();
    });
    verify(&partition, "f", &all);
}

#[test]
fn what_one_rank_wrote_another_reads() {
    for transport in [EmbedTransport::InProcess, EmbedTransport::Tcp] {
        for nodes in [&[0][..], &[0, 0, 0], &[0, 1], &[0, 0, 1, 1], &[0, 1, 2, 3]] {
            write_and_read(nodes, &EmbedOptions { transport, ..small(2, 16 << 10) });
        }
    }
}

/// Thousands of pieces of a few bytes in a block, with holes over older bytes that cross block boundaries.
#[test]
fn tiny_pieces_leave_what_lies_between_them() {
    for (bytes, of) in [(4, 3), (7, 4), (40, 5)] {
        let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
        let before = pattern(200_000, 3);
        partition.create("f").unwrap().write_at(0, &before).unwrap();
        let mut expected = before.clone();
        let after = pattern(200_000, 4);
        for (number, piece) in after.chunks(bytes).enumerate().filter(|(number, _)| number % of < 2) {
            expected[number * bytes..number * bytes + piece.len()].copy_from_slice(piece);
        }
        run(&partition, &[0, 1], |group, client| {
            let file = open(client, group, "f", &hints());
            interleave(&file, group.rank(), of, bytes);
            let mine = own_part(&after, group.rank(), of, bytes);
            file.write_at_all(0, &mine).unwrap();
            let mut back = vec![0; mine.len()];
            assert_eq!(file.read_at_all(0, &mut back).unwrap(), mine.len());
            assert_eq!(difference(&mine, &back), None);
            file.close().unwrap();
        });
        verify(&partition, "f", &expected);
    }
}

/// Writes and reads a part of the file.
enum PieceWorker {
    Group(GroupFile),
    Plain(File),
}

/// One worker on a shared file: it owns the pieces with its number.
struct Player<'a> {
    hand: PieceWorker,
    number: usize,
    of: usize,
    piece: usize,
    shared: &'a WorkerShared,
    chance: SeededRandom,
}

/// State shared by all workers.
struct WorkerShared {
    model: Mutex<Vec<u8>>,
    meet: Barrier,
    stripes: usize,
}

impl Player<'_> {
    /// File offset of a byte of its stream.
    fn file_offset(&self, stream: usize) -> usize {
        (stream / self.piece * self.of + self.number) * self.piece + stream % self.piece
    }

    fn write(&mut self) {
        let total = self.shared.stripes * self.piece;
        let at = self.chance.index(total);
        let bytes = (1 + self.chance.index(3 * self.piece)).min(total - at);
        let data = pattern(bytes, self.chance.next_u64());
        match &self.hand {
            PieceWorker::Group(file) => file.write_at(at as u64, &data).unwrap(),
            PieceWorker::Plain(file) => {
                for (n, byte) in data.chunks(self.piece).enumerate() {
                    let stream = at + n * self.piece;
                    let head = byte.len().min(self.piece - stream % self.piece);
                    file.write_at(self.file_offset(stream) as u64, &byte[..head]).unwrap();
                    if head < byte.len() {
                        file.write_at(self.file_offset(stream + head) as u64, &byte[head..]).unwrap();
                    }
                }
            }
        }
        let mut model = self.shared.model.lock().unwrap();
        for (n, byte) in data.iter().enumerate() {
            let offset = self.file_offset(at + n);
            let end = model.len().max(offset + 1);
            model.resize(end, 0);
            model[offset] = *byte;
        }
    }

    /// A worker reads its own writes, independently of the others.
    fn read_own(&mut self) {
        let total = self.shared.stripes * self.piece;
        let at = self.chance.index(total);
        let bytes = (1 + self.chance.index(3 * self.piece)).min(total - at);
        let expected: Vec<u8> = {
            let model = self.shared.model.lock().unwrap();
            let offsets = (at..at + bytes).map(|stream| self.file_offset(stream));
            offsets.map_while(|offset| model.get(offset).copied()).collect()
        };
        let mut found = vec![0xee; bytes];
        let count = match &self.hand {
            PieceWorker::Group(file) => file.read_at(at as u64, &mut found).unwrap(),
            PieceWorker::Plain(file) => {
                for (n, place) in found.iter_mut().enumerate().take(expected.len()) {
                    let offset = self.file_offset(at + n) as u64;
                    file.read_exact_at(offset, std::slice::from_mut(place)).unwrap();
                }
                expected.len()
            }
        };
        // Others may have extended the file since.
        assert!(expected.len() <= count, "{} bytes of {} are there", count, expected.len());
        let what = difference(&expected, &found[..expected.len()]);
        assert_eq!(what, None, "player {} at {at} of its stream", self.number);
    }

    /// No worker writes: every worker sees all data.
    fn see_everything(&mut self) {
        let expected = self.shared.model.lock().unwrap().clone();
        let mut found = vec![0xee; expected.len() + 10];
        let count = match &self.hand {
            PieceWorker::Group(file) => {
                interleave(file, 0, 1, 1);
                let count = file.read_at_all(0, &mut found).unwrap();
                interleave(file, self.number, self.of, self.piece);
                assert_eq!(file.len().unwrap(), expected.len() as u64);
                count
            }
            PieceWorker::Plain(file) => {
                assert_eq!(file.len().unwrap(), expected.len() as u64);
                file.read_at(0, &mut found).unwrap()
            }
        };
        assert_eq!(difference(&expected, &found[..count]), None, "player {} sees", self.number);
    }

    fn play(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for _ in 0..1 + self.chance.index(12) {
                if self.chance.once_in(3) { self.read_own() } else { self.write() }
            }
            self.shared.meet.wait();
            self.see_everything();
            self.shared.meet.wait();
        }
    }

    fn close(self) {
        match self.hand {
            PieceWorker::Group(file) => file.close().unwrap(),
            PieceWorker::Plain(file) => file.close().unwrap(),
        }
    }
}

/// Two groups and independent clients on one file, in pieces that interleave within blocks, without any sync.
fn mixture(seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed);
    let options = EmbedOptions {
        transport: chance.pick(&TRANSPORTS),
        store: chance.pick(&STORES),
        ..small(chance.pick(&[1u16, 2, 3]), chance.pick(&[4 << 10, 16 << 10, 256 << 10]))
    };
    let partition = Partition::embed(&options).unwrap();
    let mut nodes =
        |most: usize| -> Vec<usize> { (0..1 + chance.index(most)).map(|_| chance.index(4)).collect() };
    let groups = [nodes(4), nodes(3)];
    let methods = [Method::ClientDirected, chance.pick(&[Method::ClientDirected, Method::ServerDirected])];
    let strangers = chance.index(3);
    let of = groups[0].len() + groups[1].len() + strangers;
    let (piece, rounds) = (chance.pick(&[1usize, 100, 1000, 5000]), 1 + chance.index(5));
    let hints = methods.map(|method| Hints {
        method: Some(method),
        aggregators: chance.pick(&[None, None, Some(1), Some(2)]),
        cache_bytes: chance.pick(&[None, Some(1), Some(128 << 10)]),
        ..Hints::default()
    });
    trace.step(format!("{options:?}, groups {groups:?} {hints:?}, {strangers} strangers, pieces of {piece}"));
    let shared = WorkerShared { model: Mutex::default(), meet: Barrier::new(of), stripes: 20 };
    thread::scope(|scope| {
        let mut number = 0;
        for (nodes, hints) in groups.iter().zip(&hints) {
            for group in group::threads_on(nodes) {
                let (client, shared, seed) = (partition.another_client(), &shared, chance.next_u64());
                scope.spawn(move || {
                    let file = open(&client, &group, "f", hints);
                    interleave(&file, number, of, piece);
                    let hand = PieceWorker::Group(file);
                    let mut player =
                        Player { hand, number, of, piece, shared, chance: SeededRandom::new(seed) };
                    player.play(rounds);
                    player.close();
                    group.leave();
                });
                number += 1;
            }
        }
        for number in number..of {
            let (client, shared, seed) = (partition.another_client(), &shared, chance.next_u64());
            scope.spawn(move || {
                let file = client.options().read(true).write(true).create(true).open("f").unwrap();
                let hand = PieceWorker::Plain(file);
                let mut player = Player { hand, number, of, piece, shared, chance: SeededRandom::new(seed) };
                player.play(rounds);
                player.close();
            });
        }
    });
    let model = shared.model.lock().unwrap().clone();
    assert_eq!(partition.metadata("f").unwrap().size, model.len() as u64);
    verify(&partition, "f", &model);
}

#[test]
fn groups_and_strangers_share_a_file() {
    histories(30, mixture);
}

#[test]
fn what_was_written_serves_the_next_open() {
    for nodes in [&[0, 0][..], &[0, 1, 1]] {
        let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
        let clients: Vec<Partition> = nodes.iter().map(|_| partition.another_client()).collect();
        let all = pattern(400_000, 3);
        run_on(&clients, nodes, |group, client| {
            let file = open(client, group, "f", &hints());
            interleave(&file, group.rank(), group.size(), 700);
            file.write_at_all(0, &own_part(&all, group.rank(), group.size(), 700)).unwrap();
            file.close().unwrap();
        });
        let served = run_on(&clients, nodes, |group, client| {
            let file = open(client, group, "f", &hints());
            let before = file.node_cache_stats();
            let mut found = vec![0; all.len() + 1];
            assert_eq!(file.read_at_all(0, &mut found).unwrap(), all.len());
            assert_eq!(difference(&all, &found[..all.len()]), None);
            group.barrier().unwrap();
            let after = file.node_cache_stats();
            file.close().unwrap();
            let (Some(before), Some(after)) = (before, after) else { return false };
            assert_eq!(after.misses, before.misses, "nothing is fetched: {after:?}");
            assert_eq!(after.dirty_bytes, 0);
            before.hits < after.hits
        });
        let servers = nodes.iter().max().unwrap() + 1;
        assert_eq!(served.iter().filter(|served| **served).count(), servers);
        // A write of an independent client makes them return the lease.
        partition.options().write(true).open("f").unwrap().write_at(5, b"other").unwrap();
        run_on(&clients, nodes, |group, client| {
            let file = open(client, group, "f", &hints());
            let mut found = [0; 15];
            file.read_at_all(0, &mut found).unwrap();
            assert_eq!((&found[..5], &found[5..10], &found[10..]), (&all[..5], &b"other"[..], &all[10..15]));
            file.close().unwrap();
        });
    }
}

#[test]
fn a_stranger_sees_length_and_bytes_before_anybody_syncs() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    run(&partition, &[0, 1], |group, client| {
        let file = open(client, group, "f", &hints());
        for round in 1..4u8 {
            let at = u64::from(round) * 100_000 + group.rank() as u64 * 50_000;
            file.write_at(at, &[round; 50_000]).unwrap();
            group.barrier().unwrap();
            let end = u64::from(round + 1) * 100_000;
            assert_eq!(partition.metadata("f").unwrap().size, end);
            let mut found = [0; 1];
            partition.open("f").unwrap().read_exact_at(end - 1, &mut found).unwrap();
            assert_eq!(found, [round]);
            group.barrier().unwrap();
        }
        file.set_len(7).unwrap();
        assert_eq!((file.len().unwrap(), file.read_at(0, &mut [0; 20]).unwrap()), (7, 7));
        file.sync().unwrap();
        file.write_at(group.rank() as u64 * 10, b"again").unwrap();
        file.close().unwrap();
    });
    verify(&partition, "f", b"again\0\0\0\0\0again");
}

/// Found by `streams`: where two applications write, each kept its bytes in its own node cache, and the later of the two writes could be
/// lost.
#[test]
fn of_two_applications_the_later_write_stays() {
    let options = EmbedOptions { transport: EmbedTransport::Tcp, ..small(2, 4096) };
    let partition = Partition::embed(&options).unwrap();
    let clients = [partition.another_client(), partition.another_client()];
    for number in 0..20 {
        let name = format!("f{number}");
        let files = clients.each_ref().map(|client| open(client, &Alone::group(), &name, &hints()));
        // Both become writers of the file.
        for round in 0..3 {
            for (who, file) in files.iter().enumerate() {
                file.write_at(round * 100 + who as u64 * 50, &[9; 10]).unwrap();
            }
        }
        let (first, last) = if number % 2 == 0 { (0, 1) } else { (1, 0) };
        files[first].write_at(5000, &[1; 3000]).unwrap();
        files[last].write_at(5100, &[2; 3000]).unwrap();
        files[first].write_at(5200, &[3; 10]).unwrap();
        let mut expected = vec![1; 100];
        expected.extend([2; 100]);
        expected.extend([3; 10]);
        expected.extend([2; 2890]);
        let mut found = vec![0; expected.len()];
        partition.open(&name).unwrap().read_exact_at(5000, &mut found).unwrap();
        assert_eq!(difference(&expected, &found), None, "{name}");
        files.into_iter().for_each(|file| file.close().unwrap());
    }
}

#[test]
fn two_files_at_once_in_a_cache_that_holds_neither() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    let contents = [pattern(900_000, 1), pattern(900_000, 2)];
    let hints = Hints { cache_bytes: Some(200 << 10), ..hints() };
    let stats = run(&partition, &[0, 0, 1], |group, client| {
        let files = ["f", "g"].map(|name| open(client, group, name, &hints));
        for (file, all) in files.iter().zip(&contents) {
            interleave(file, group.rank(), group.size(), 3000);
            let mine = own_part(all, group.rank(), group.size(), 3000);
            for (n, part) in mine.chunks(9000).enumerate() {
                file.write_at(n as u64 * 9000, part).unwrap();
            }
        }
        for (file, all) in files.iter().zip(&contents) {
            let mine = own_part(all, group.rank(), group.size(), 3000);
            let mut found = vec![0; mine.len()];
            assert_eq!(file.read_at(0, &mut found).unwrap(), mine.len());
            assert_eq!(difference(&mine, &found), None);
        }
        let stats = files[0].node_cache_stats();
        for file in files {
            file.close().unwrap();
        }
        stats
    });
    for stats in stats.into_iter().flatten() {
        assert!(stats.cached_bytes <= 300 << 10, "{stats:?}");
        assert!(0 < stats.misses, "{stats:?}");
    }
    verify(&partition, "f", &contents[0]);
    verify(&partition, "g", &contents[1]);
}

#[test]
fn switched_off_there_is_no_tier() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    run(&partition, &[0, 0], |group, client| {
        let file = open(client, group, "f", &Hints { cache: Some(false), ..hints() });
        file.write_at_all(group.rank() as u64 * 3, b"abc").unwrap();
        assert_eq!(file.node_cache_stats(), None);
        file.close().unwrap();
    });
    verify(&partition, "f", b"abcabc");
}

/// The process of rank 0, which serves the others, ends: they get an error that names it.
#[test]
fn an_aggregator_that_is_gone_is_named() {
    let partition = Partition::embed(&small(1, 16 << 10)).unwrap();
    for nodes in [&[0, 0][..], &[0, 1]] {
        let mut hints = hints();
        hints.aggregators = Some(1);
        let clients: Vec<Mutex<Option<Partition>>> =
            nodes.iter().map(|_| Mutex::new(Some(partition.another_client()))).collect();
        let gone = Barrier::new(2);
        thread::scope(|scope| {
            for (group, client) in group::threads_on(nodes).into_iter().zip(&clients) {
                let (gone, hints) = (&gone, &hints);
                scope.spawn(move || {
                    let client = client.lock().unwrap().take().unwrap();
                    let file = open(&client, &group, "f", hints);
                    file.write_at(group.rank() as u64 * 10, b"before").unwrap();
                    group.barrier().unwrap();
                    if group.rank() == 0 {
                        drop((file, client, group));
                        gone.wait();
                        return;
                    }
                    gone.wait();
                    let told = file.read_at(0, &mut [0; 10]).unwrap_err();
                    assert!(told.to_string().contains("tier-1 server of rank 0 is gone"), "{told}");
                    let told = file.write_at(10, b"after").unwrap_err();
                    assert!(told.to_string().contains("tier-1 server of rank 0 is gone"), "{told}");
                    assert!(file.close().is_err());
                });
            }
        });
    }
}
