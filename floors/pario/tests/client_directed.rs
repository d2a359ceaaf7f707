//! Client-directed I/O: groups of threads, each a client of its own, on one to four nodes, against a byte array.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;
use std::thread;

use common::{difference, pattern, small};
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, EmbedTransport, GroupFile, Hints, Method, Partition};

fn hints() -> Hints {
    Hints { method: Some(Method::ClientDirected), ..Hints::default() }
}

/// Runs one thread per rank; each has a mount of its own.
fn run<T: Send>(
    partition: &Partition,
    nodes: &[usize],
    body: impl Fn(&Arc<dyn Group>, &Partition) -> T + Sync,
) -> Vec<T> {
    let clients: Vec<Partition> = nodes.iter().map(|_| partition.another_client()).collect();
    run_on(&clients, nodes, body)
}

/// The same with mounts that were there before.
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

/// Shows every `of`-th piece of `bytes`, from the one with this number on.
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
        // Everybody reads the next rank's part.
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
