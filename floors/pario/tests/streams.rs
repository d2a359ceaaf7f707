//! Views on the data path: random views, accesses and clients, compared with a byte array, over every transport and store.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use common::{SeededRandom, Trace, difference, each, histories, pattern, small};
use pario::group::Group;
use pario::view::{ArrayOrder, SubarrayDimension};
use pario::{
    Alone, Datatype, Elements, EmbedOptions, EmbedStore, EmbedTransport, GroupFile, Hints, Method, Partition,
    SchedulerSpec, Seek,
};

fn open(partition: &Partition, group: &Arc<dyn Group>, path: &str) -> GroupFile {
    let options = partition.options().create(true).read(true).write(true);
    options.open_all(group, path, &Hints::default()).unwrap()
}

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

/// A file type of `ranks` that interleave in runs of `run`, as rank `rank` sees it.
fn interleaved(rank: i64, ranks: i64, run: i64) -> (i64, Datatype) {
    (rank * run, Datatype::contiguous(run, &byte()).unwrap().resized(0, run * ranks).unwrap())
}

fn whole(partition: &Partition, path: &str) -> Vec<u8> {
    let file = partition.another_client().open(path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn interleaved_writers_make_one_file_and_read_each_others_bytes() {
    each(|partition| {
        let (ranks, run, bytes) = (4, 700i64, 70_000);
        let clients: Vec<Partition> = (0..ranks).map(|_| partition.another_client()).collect();
        let files: Vec<GroupFile> = clients.iter().map(|client| open(client, &Alone::group(), "f")).collect();
        let data: Vec<Vec<u8>> = (0..ranks).map(|rank| pattern(bytes, rank)).collect();
        for (rank, file) in files.iter().enumerate() {
            let (displacement, filetype) = interleaved(rank as i64, ranks as i64, run);
            file.set_view(displacement, &byte(), &filetype).unwrap();
        }
        for part in 0..5 {
            for (file, data) in files.iter().zip(&data) {
                file.write(&data[part * 14_000..(part + 1) * 14_000]).unwrap();
            }
        }
        for (rank, file) in files.iter().enumerate() {
            let other = (rank + 1) % files.len();
            let (displacement, filetype) = interleaved(other as i64, ranks as i64, run);
            file.set_view(displacement, &byte(), &filetype).unwrap();
            let mut back = vec![0; bytes + 100];
            assert_eq!(file.read_at(0, &mut back).unwrap(), bytes);
            assert_eq!(difference(&data[other], &back[..bytes]), None, "rank {rank}");
        }
        for file in files {
            file.close().unwrap();
        }
        let all = whole(partition, "f");
        assert_eq!(all.len(), bytes * files_len(ranks));
        for (at, found) in all.iter().enumerate() {
            let (block, rest) = (at / 700, at % 700);
            let (rank, row) = (block % 4, block / 4);
            assert_eq!(*found, data[rank][row * 700 + rest], "byte {at}");
        }
    });
}

/// Pieces that are too large for records: all members write concurrently, server by server, beside members' small records.
#[test]
fn large_pieces_of_interleaved_views_are_written_directly_and_whole() {
    const RUN: usize = 600_000;
    const DUMPS: usize = 6;
    let (transport, store) = (EmbedTransport::Unix, EmbedStore::Files);
    let partition = Partition::embed(&EmbedOptions { transport, store, ..small(3, 64 << 10) }).unwrap();
    let data: Vec<Vec<u8>> = (0..4).map(|rank| pattern(2 * RUN * DUMPS, rank)).collect();
    std::thread::scope(|scope| {
        for group in pario::group::threads_on(&[0, 0, 0, 0]) {
            let (client, data) = (partition.another_client(), &data);
            scope.spawn(move || {
                let rank = group.rank();
                let file = open(&client, &group, "f");
                let (displacement, filetype) = interleaved(rank as i64, 4, RUN as i64);
                file.set_view(displacement, &byte(), &filetype).unwrap();
                for (dump, bytes) in data[rank].chunks(2 * RUN).enumerate() {
                    let at = dump as u64 * 2 * RUN as u64;
                    // The last member's own small pieces are records, concurrent with the large pieces of the others.
                    if rank == 3 {
                        let (head, tail) = bytes.split_at(1000);
                        file.write_at(at, head).unwrap();
                        file.write_at(at + 1000, tail).unwrap();
                    } else {
                        file.write_at(at, bytes).unwrap();
                    }
                }
                let counts = client.counts();
                assert!(0 < counts.direct_write_bytes, "rank {rank}: {counts:?}");
                file.close().unwrap();
            });
        }
    });
    let all = whole(&partition, "f");
    assert_eq!(all.len(), data.len() * data[0].len());
    for (block, found) in all.chunks(RUN).enumerate() {
        let (rank, row) = (block % 4, block / 4);
        let expected = &data[rank][row * RUN..(row + 1) * RUN];
        assert_eq!(difference(expected, found), None, "block {block}");
    }
}

fn files_len(ranks: u64) -> usize {
    usize::try_from(ranks).unwrap()
}

#[test]
fn memory_may_have_holes_too() {
    each(|partition| {
        let file = open(partition, &Alone::group(), "f");
        let (_, filetype) = interleaved(0, 3, 5);
        file.set_view(10, &byte(), &filetype).unwrap();
        let memory = pattern(4000, 7);
        let vector = Datatype::vector(100, 3, 8, &byte()).unwrap();
        let elements = Elements::new(&vector, 2).unwrap();
        file.write_elements_at(0, &memory, 100, &elements).unwrap();
        let mut back = vec![0u8; 4000];
        assert_eq!(file.read_elements_at(0, &mut back, 100, &elements).unwrap(), 600);
        let mut packed = vec![0; 600];
        elements.pack(&memory, 100, 0, &mut packed).unwrap();
        let mut again = vec![0; 600];
        elements.pack(&back, 100, 0, &mut again).unwrap();
        assert_eq!(difference(&packed, &again), None);
        let mut plain = vec![0; 600];
        assert_eq!(file.read_at(0, &mut plain).unwrap(), 600);
        assert_eq!(difference(&packed, &plain), None);
    });
}

#[test]
fn memory_with_holes_goes_together_by_every_method() {
    for method in [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase] {
        let partition = Partition::embed(&small(3, 16 << 10)).unwrap();
        std::thread::scope(|scope| {
            for group in pario::group::threads_on(&[0, 0, 1]) {
                let client = partition.another_client();
                scope.spawn(move || elements_of_all(&client, &group, method));
            }
        });
    }
}

fn elements_of_all(client: &Partition, group: &Arc<dyn Group>, method: Method) {
    let hints = Hints { method: Some(method), ..Hints::default() };
    let options = client.options().read(true).write(true).create(true);
    let file = options.open_all(group, "f", &hints).unwrap();
    let rank = group.rank() as u64;
    let (displacement, filetype) = interleaved(rank as i64, 3, 5);
    file.set_view(displacement, &byte(), &filetype).unwrap();
    assert_eq!(file.byte_offset(7).unwrap(), 15 + rank * 5 + 2);
    let memory = pattern(4000, rank);
    let elements = Elements::new(&Datatype::vector(100, 3, 8, &byte()).unwrap(), 2).unwrap();
    // Twice 600 bytes: at an offset, and at the pointer, which is set to their end.
    file.write_elements_at_all(0, &memory, 100, &elements).unwrap();
    file.seek(Seek::Set(600)).unwrap();
    file.write_elements_all(&memory, 1300, &elements).unwrap();
    assert_eq!(file.position(), 1200);
    group.barrier().unwrap();
    file.seek(Seek::Set(0)).unwrap();
    let mut back = vec![0u8; 4000];
    assert_eq!(file.read_elements_all(&mut back, 100, &elements).unwrap(), 600);
    assert_eq!(file.read_elements_at_all(600, &mut back, 1800, &elements).unwrap(), 600);
    let packed = |memory: &[u8], origin: usize| {
        let mut packed = vec![0; 600];
        elements.pack(memory, origin, 0, &mut packed).unwrap();
        packed
    };
    assert_eq!(difference(&packed(&memory, 100), &packed(&back, 100)), None, "{method:?}");
    assert_eq!(difference(&packed(&memory, 1300), &packed(&back, 1800)), None, "{method:?}");
    file.close().unwrap();
    group.leave();
}

/// Found by `group_histories`: an empty write in the middle of a piece extended the file.
#[test]
fn a_write_of_nothing_changes_nothing() {
    let partition = Partition::embed(&small(2, 16 << 10)).unwrap();
    for method in [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase] {
        let hints = Hints { method: Some(method), ..Hints::default() };
        let options = partition.options().read(true).write(true).create(true);
        let file = options.open_all(&Alone::group(), format!("{method:?}"), &hints).unwrap();
        let (displacement, filetype) = interleaved(1, 3, 100);
        file.set_view(displacement, &byte(), &filetype).unwrap();
        for offset in [0, 50, 100, 12_345] {
            file.write_at(offset, &[]).unwrap();
            file.write_at_all(offset, &[]).unwrap();
            assert_eq!(file.read_at(offset, &mut []).unwrap(), 0);
            assert_eq!(file.len().unwrap(), 0, "{method:?}, {offset}");
        }
        file.close().unwrap();
        assert_eq!(partition.metadata(format!("{method:?}")).unwrap().size, 0);
    }
}

#[test]
fn a_view_is_told_once_and_steady_writes_send_nothing() {
    let partition = Partition::embed(&EmbedOptions { outbox_bytes: 8 << 20, ..small(4, 64 << 10) }).unwrap();
    let file = open(&partition, &Alone::group(), "f");
    let (displacement, filetype) = interleaved(1, 4, 1280);
    for round in 0..5u64 {
        // As HDF5 does it: set and reset around every transfer.
        file.set_view(displacement, &byte(), &filetype).unwrap();
        let before = partition.counts();
        file.write_at(round * 500_000, &pattern(500_000, round)).unwrap();
        let after = partition.counts();
        file.set_view(0, &byte(), &byte()).unwrap();
        if 0 < round {
            assert_eq!(after.messages, before.messages, "round {round} sent messages");
        }
        assert_eq!(after.records, before.records + 1);
    }
    assert_eq!(partition.counts().views, 4, "one view, four servers");
    assert!(partition.counts().view_bytes < 4 * 100);
    file.close().unwrap();
}

/// As HDF5 writes hyperslabs: every transfer has its own file type, which differs from the others only in its displacement.
#[test]
fn a_box_that_is_moved_through_an_array_is_told_once() {
    const ROWS: i64 = 400;
    const COLUMNS: i64 = 300;
    let partition = Partition::embed(&EmbedOptions { outbox_bytes: 8 << 20, ..small(4, 4 << 10) }).unwrap();
    let file = open(&partition, &Alone::group(), "f");
    let mut model = vec![0u8; usize::try_from(ROWS * COLUMNS).unwrap()];
    let mut messages = 0;
    for number in 0..1000 {
        let (row, column) = (number % 40 * 10, number / 40 * 12);
        let dimensions = [
            SubarrayDimension { size: ROWS, subsize: 10, start: row },
            SubarrayDimension { size: COLUMNS, subsize: 12, start: column },
        ];
        let of = Datatype::subarray(&dimensions, ArrayOrder::C, &byte()).unwrap();
        file.set_view(0, &byte(), &of).unwrap();
        let data = pattern(120, number.cast_unsigned());
        file.write_at(0, &data).unwrap();
        for (at, line) in data.chunks(12).enumerate() {
            let start =
                usize::try_from(row * COLUMNS + column).unwrap() + at * usize::try_from(COLUMNS).unwrap();
            model[start..start + 12].copy_from_slice(line);
        }
        if number == 99 {
            messages = partition.counts().messages;
        }
    }
    let counts = partition.counts();
    assert_eq!(counts.views, 4, "one shape, four servers");
    assert_eq!(counts.messages, messages, "the others sent nothing");
    file.set_view(0, &byte(), &byte()).unwrap();
    let mut found = vec![0; model.len()];
    assert_eq!(file.read_at(0, &mut found).unwrap(), model.len());
    assert!(found == model, "written data is at its offset");
    // Read through such views too, by message and by mapping.
    for number in (0..1000).step_by(37) {
        let dimensions = [
            SubarrayDimension { size: ROWS, subsize: 10, start: number % 40 * 10 },
            SubarrayDimension { size: COLUMNS, subsize: 12, start: number / 40 * 12 },
        ];
        let of = Datatype::subarray(&dimensions, ArrayOrder::C, &byte()).unwrap();
        file.set_view(0, &byte(), &of).unwrap();
        let mut found = [0; 120];
        assert_eq!(file.read_at(0, &mut found).unwrap(), 120);
        assert_eq!(found[..], pattern(120, number.cast_unsigned())[..], "box {number}");
    }
    file.close().unwrap();
}

#[test]
fn more_views_than_a_server_keeps() {
    let partition = Partition::embed(&small(2, 64 << 10)).unwrap();
    let file = open(&partition, &Alone::group(), "f");
    let mut model = vec![0u8; 1 << 20];
    for number in 0..1500u64 {
        let stride = i64::try_from(3 + number % 1400).unwrap();
        file.set_view(i64::try_from(number).unwrap(), &byte(), &byte().resized(0, stride).unwrap()).unwrap();
        let data = pattern(40, number);
        file.write_at(0, &data).unwrap();
        for (k, value) in data.iter().enumerate() {
            model[usize::try_from(number).unwrap() + k * usize::try_from(stride).unwrap()] = *value;
        }
    }
    file.close().unwrap();
    let all = whole(&partition, "f");
    assert_eq!(difference(&model[..all.len()], &all), None);
}

#[test]
fn illegal_views_and_places_are_refused() {
    let partition = Partition::embed(&small(2, 64 << 10)).unwrap();
    let file = open(&partition, &Alone::group(), "f");
    let word = Datatype::elementary(4).unwrap();
    let overlapping = Datatype::hindexed(&[4, 4], &[0, 2], &byte()).unwrap();
    for (displacement, etype, filetype) in [
        (-1, byte(), byte()),
        (0, word.clone(), Datatype::contiguous(6, &byte()).unwrap()),
        (0, byte(), Datatype::hindexed(&[1, 1], &[8, 0], &byte()).unwrap()),
        (0, byte(), overlapping),
    ] {
        assert!(file.set_view(displacement, &etype, &filetype).is_err());
    }
    file.set_view(0, &word, &word).unwrap();
    assert!(file.write(&[1, 2, 3]).is_err());
    assert!(file.write_at(u64::MAX / 2, &[1; 4]).is_err());
    file.write_at(0, &[1; 4]).unwrap();
    file.close().unwrap();
}

#[test]
fn random_views_are_as_good_as_a_byte_array() {
    histories(60, history);
}

/// Several clients with random views on one file; writes are disjoint by construction (each client has its own column of bytes) except for
/// those of the first client, which are made while no other client writes; every client reads its own writes and, now and then, all.
fn history(seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed);
    let policy = SeededRandom::new(!seed).pick(&["fifo", "mlf", "wfq"]).to_owned();
    let options = EmbedOptions {
        scheduler: SchedulerSpec { policy, ..SchedulerSpec::default() },
        transport: chance.pick(&common::TRANSPORTS),
        store: chance.pick(&common::STORES),
        outbox_bytes: chance.pick(&[256 << 10, 1 << 20]),
        ..small(1 + u16::try_from(chance.below(5)).unwrap(), chance.pick(&[4096, 16 << 10, 64 << 10]))
    };
    trace.step(format!("{options:?}"));
    let partition = Partition::embed(&options).unwrap();
    let ranks = 1 + chance.index(4);
    let clients: Vec<Partition> = (0..ranks).map(|_| partition.another_client()).collect();
    let files: Vec<GroupFile> = clients.iter().map(|client| open(client, &Alone::group(), "f")).collect();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..60 {
        let rank = chance.index(ranks);
        let (displacement, filetype) = some_view(&mut chance);
        let file = &files[rank];
        file.set_view(displacement, &byte(), &filetype).unwrap();
        let view = file.view();
        let offset = chance.below(20_000);
        let bytes = chance.pick(&[1u64, 40, 900, 30_000, 150_000]);
        let extents: Vec<(usize, usize)> = view
            .extents(offset..offset + bytes)
            .map(|extent| {
                (usize::try_from(extent.file_offset).unwrap(), usize::try_from(extent.bytes).unwrap())
            })
            .collect();
        let end = extents.iter().map(|(at, bytes)| at + bytes).max().unwrap_or(0);
        trace.step(format!("rank {rank} {step}: {bytes} at {offset} of {view:?}, to {end}"));
        if (12 << 20) < end {
            continue;
        }
        if chance.once_in(2) && view.shown_twice(offset..offset + bytes).is_none() {
            let data = pattern(usize::try_from(bytes).unwrap(), chance.next_u64());
            file.write_at(offset, &data).unwrap();
            model.resize(model.len().max(end), 0);
            let mut done = 0;
            for (at, bytes) in extents {
                model[at..at + bytes].copy_from_slice(&data[done..done + bytes]);
                done += bytes;
            }
        } else {
            let mut back = vec![0xee; usize::try_from(bytes).unwrap()];
            let count = file.read_at(offset, &mut back).unwrap();
            let mut expected = Vec::new();
            for (at, bytes) in extents {
                expected.extend_from_slice(model.get(at..model.len().min(at + bytes)).unwrap_or(&[]));
                if model.len() < at + bytes {
                    break;
                }
            }
            assert_eq!(difference(&expected, &back[..count]), None, "step {step}, seed {seed:#x}");
        }
        if chance.once_in(15) {
            file.sync().unwrap();
        }
    }
    for file in files {
        file.close().unwrap();
    }
    assert_eq!(difference(&model, &whole(&partition, "f")), None, "seed {seed:#x}");
}

/// A view as programs make them.
fn some_view(chance: &mut SeededRandom) -> (i64, Datatype) {
    let number = |chance: &mut SeededRandom, below: u64| i64::try_from(1 + chance.below(below)).unwrap();
    let displacement = number(chance, 5000);
    let filetype = match chance.below(6) {
        0 => byte(),
        // Repetitions interleave; a stream that is long enough may show bytes twice.
        5 => {
            let (run, far) = (number(chance, 300), number(chance, 40));
            let extent = run * (2 + i64::try_from(chance.below(3)).unwrap());
            let blocks = Datatype::hindexed(&[run, run], &[0, extent * far + run], &byte()).unwrap();
            blocks.resized(0, extent).unwrap()
        }
        1 => {
            let (run, gap) = (number(chance, 3000), number(chance, 9000));
            Datatype::contiguous(run, &byte()).unwrap().resized(0, run + gap).unwrap()
        }
        2 => {
            let dims: Vec<SubarrayDimension> = (0..3)
                .map(|_| {
                    let size = 2 + number(chance, 30);
                    let sub = 1 + i64::try_from(chance.below(u64::try_from(size).unwrap() - 1)).unwrap();
                    SubarrayDimension { size, subsize: sub, start: size - sub }
                })
                .collect();
            Datatype::subarray(&dims, pario::view::ArrayOrder::C, &Datatype::elementary(8).unwrap()).unwrap()
        }
        3 => {
            let mut at = 0;
            let places: Vec<i64> = (0..50)
                .map(|_| {
                    at += number(chance, 600) + 16;
                    at
                })
                .collect();
            Datatype::hindexed_block(16, &places, &byte()).unwrap()
        }
        _ => {
            let large = number(chance, 200_000) + 130_000;
            Datatype::contiguous(large, &byte()).unwrap().resized(0, large * 2).unwrap()
        }
    };
    (displacement, filetype)
}
