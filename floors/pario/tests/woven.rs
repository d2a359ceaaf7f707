//! File types that repeat at less than their own length, so that repetitions interleave: legal as long as no byte is written twice. Every
//! transport, store, method, and mode of access gives the same result as a byte array.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;

use common::{difference, each, pattern, small};
use pario::core::Code;
use pario::group::{self, Group};
use pario::{
    Alone, CacheOptions, Datatype, EmbedOptions, EmbedTransport, GroupFile, Hints, Method, Partition,
    Placement, open_cached,
};

const METHODS: [Method; 3] = [Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

/// Runs of `run` bytes at 0 and at three runs, repeated every two: together they leave one gap at each end.
fn woven(run: i64) -> Datatype {
    Datatype::hindexed(&[run, run], &[0, 3 * run], &byte()).unwrap().resized(0, 2 * run).unwrap()
}

fn open(client: &Partition, group: &Arc<dyn Group>, path: &str, method: Method) -> GroupFile {
    let hints = Hints { method: Some(method), aggregators: Some(1), ..Hints::default() };
    client.options().create(true).read(true).write(true).open_all(group, path, &hints).unwrap()
}

/// Copies the bytes of a stream range into a byte array.
fn model_write(model: &mut Vec<u8>, file: &GroupFile, offset: u64, data: &[u8]) {
    let mut rest = data;
    for extent in file.view().extents(offset..offset + data.len() as u64) {
        let (at, bytes) =
            (usize::try_from(extent.file_offset).unwrap(), usize::try_from(extent.bytes).unwrap());
        model.resize(model.len().max(at + bytes), 0);
        model[at..at + bytes].copy_from_slice(&rest[..bytes]);
        rest = &rest[bytes..];
    }
}

fn whole(partition: &Partition, path: &str) -> Vec<u8> {
    let file = partition.another_client().open(path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

/// Written data is at the offsets of the view, has the right length, and is read back; in parts too, and up to the file's end.
fn check(file: &GroupFile, filetype: &Datatype, bytes: u64) -> Vec<u8> {
    let mut model = Vec::new();
    file.set_view(5, &byte(), filetype).unwrap();
    let data = pattern(usize::try_from(bytes).unwrap(), bytes);
    file.write_at(0, &data).unwrap();
    model_write(&mut model, file, 0, &data);
    assert_eq!(file.len().unwrap(), model.len() as u64);
    let again = pattern(usize::try_from(bytes / 3).unwrap(), 7);
    file.write_at_all(bytes / 2, &again).unwrap();
    model_write(&mut model, file, bytes / 2, &again);
    for (offset, wanted) in [(0, bytes), (bytes / 5, bytes / 2), (1, 1), (bytes / 2, bytes * 2)] {
        let mut found = vec![0xee; usize::try_from(wanted).unwrap()];
        let count = file.read_at(offset, &mut found).unwrap();
        let mut expected = Vec::new();
        for extent in file.view().extents(offset..offset + wanted) {
            let at = usize::try_from(extent.file_offset).unwrap();
            let end = at + usize::try_from(extent.bytes).unwrap();
            expected.extend_from_slice(&model[at.min(model.len())..end.min(model.len())]);
            if model.len() < end {
                break;
            }
        }
        assert_eq!(difference(&expected, &found[..count]), None, "{wanted} at {offset}");
        let mut together = vec![0xee; usize::try_from(wanted).unwrap()];
        assert_eq!(file.read_at_all(offset, &mut together).unwrap(), count);
        assert_eq!(difference(&expected, &together[..count]), None, "{wanted} at {offset}, together");
    }
    file.set_view(0, &byte(), &byte()).unwrap();
    let mut found = vec![0; model.len() + 1];
    assert_eq!(file.read_at(0, &mut found).unwrap(), model.len());
    assert_eq!(difference(&model, &found[..model.len()]), None, "by the file's own bytes");
    model
}

/// As HDF5 makes them of whole and partial chunks: explicit bounds around the middle of the data.
fn bounded() -> Datatype {
    let blocks = Datatype::hindexed(&[8, 100, 16, 100], &[0, 1100, 1400, 2116], &byte()).unwrap();
    blocks.resized(1008, 1232).unwrap()
}

#[test]
fn every_transport_and_store_holds_interleaved_repetitions() {
    each(|partition| {
        for (number, (filetype, bytes)) in
            [(woven(1), 64), (woven(1), 70_000), (woven(700), 300_000), (bounded(), 224 * 40)]
                .iter()
                .enumerate()
        {
            let path = format!("f{number}");
            let file = open(partition, &Alone::group(), &path, Method::ServerDirected);
            let model = check(&file, filetype, *bytes);
            file.sync().unwrap();
            file.close().unwrap();
            assert_eq!(difference(&model, &whole(partition, &path)), None, "{path}");
        }
    });
}

/// Runs one thread for each member.
fn with_group(nodes: &[usize], body: impl Fn(&Arc<dyn Group>) + Sync) {
    std::thread::scope(|scope| {
        for group in group::threads_on(nodes) {
            let body = &body;
            scope.spawn(move || {
                body(&group);
                group.leave();
            });
        }
    });
}

/// Each member's runs are every fourth of the file, two of them far apart in each repetition.
fn member_view(file: &GroupFile, rank: usize, run: i64) {
    let filetype = Datatype::hindexed(&[run, run], &[0, 12 * run], &byte()).unwrap();
    file.set_view(rank as i64 * run, &byte(), &filetype.resized(0, 8 * run).unwrap()).unwrap();
}

#[test]
fn members_interleave_by_every_method_and_read_each_others_bytes() {
    for (method, transport) in METHODS
        .iter()
        .flat_map(|method| [EmbedTransport::Unix, EmbedTransport::Tcp].map(|transport| (*method, transport)))
    {
        let partition = Partition::embed(&EmbedOptions { transport, ..small(3, 16 << 10) }).unwrap();
        with_group(&[0, 0, 1, 1], |group| {
            let client = partition.another_client();
            let file = open(&client, group, "f", method);
            members_write_and_read(group, &file, 900);
            file.close().unwrap();
        });
        assert_eq!(whole(&partition, "f").len(), 4 * 900 * 60 + 8 * 900, "{method:?} {transport:?}");
    }
}

fn members_write_and_read(group: &Arc<dyn Group>, file: &GroupFile, run: i64) {
    let (rank, bytes) = (group.rank(), usize::try_from(run * 60).unwrap());
    member_view(file, rank, run);
    let data = |rank: usize| pattern(bytes, rank as u64);
    let half = bytes / 2 + 100;
    file.write_at_all(0, &data(rank)[..half]).unwrap();
    file.write_at(half as u64, &data(rank)[half..]).unwrap();
    group.barrier().unwrap();
    let neighbour = (rank + 1) % group.size();
    member_view(file, neighbour, run);
    let mut found = vec![0; bytes];
    assert_eq!(file.read_at_all(0, &mut found).unwrap(), bytes);
    assert_eq!(difference(&data(neighbour), &found), None, "rank {rank} together");
    assert_eq!(file.read_at(0, &mut found).unwrap(), bytes);
    assert_eq!(difference(&data(neighbour), &found), None, "rank {rank}");
}

#[test]
fn cached_plain_files_hold_interleaved_repetitions() {
    for placement in [Placement::Home, Placement::FirstTouch, Placement::LastWriter] {
        for direct in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("plain");
            let options = CacheOptions {
                create: true,
                cache_bytes: 64 * 4096,
                block_bytes: Some(4096),
                stripe_bytes: Some(4096),
                direct: Some(direct),
                placement,
                ..CacheOptions::default()
            };
            with_group(&[0, 0, 1, 1], |group| {
                let file = open_cached(group, &path, &options).unwrap();
                members_write_and_read(group, &file, 900);
                file.close().unwrap();
            });
            let found = std::fs::read(&path).unwrap();
            assert_eq!(found.len(), 4 * 900 * 60 + 8 * 900, "{placement:?}");
        }
    }
}

#[test]
fn in_atomic_mode_an_interleaved_write_is_seen_whole() {
    const RUN: i64 = 300;
    const BYTES: usize = 600 * 40;
    for (method, transport) in [
        (Method::ServerDirected, EmbedTransport::Unix),
        (Method::ServerDirected, EmbedTransport::Tcp),
        (Method::TwoPhase, EmbedTransport::Unix),
    ] {
        let partition = Partition::embed(&EmbedOptions { transport, ..small(3, 4096) }).unwrap();
        with_group(&[0, 0, 0], |group| {
            let client = partition.another_client();
            let file = open(&client, group, "f", method);
            file.set_atomicity(true).unwrap();
            file.set_view(11, &byte(), &woven(RUN)).unwrap();
            file.write_at_all(0, &[9; BYTES]).unwrap();
            group.barrier().unwrap();
            let rank = u8::try_from(group.rank()).unwrap();
            for turn in 0..30u8 {
                if rank < 2 {
                    file.write_at(0, &[turn * 2 + rank; BYTES]).unwrap();
                } else {
                    let mut found = vec![0; BYTES];
                    assert_eq!(file.read_at(0, &mut found).unwrap(), BYTES);
                    let mixed = found.iter().position(|value| *value != found[0]);
                    assert_eq!(mixed, None, "{method:?} {transport:?}: two writes in one read");
                }
            }
            file.close().unwrap();
        });
    }
}

#[test]
fn a_byte_that_is_written_twice_is_an_error_of_the_call_and_one_that_is_read_twice_is_none() {
    for method in METHODS {
        let partition = Partition::embed(&small(3, 4096)).unwrap();
        let file = open(&partition, &Alone::group(), "f", method);
        file.write_at(0, &pattern(100, 3)).unwrap();
        // Bytes 0 and 2 every 2: the third byte of the stream is the second one again.
        let twice = Datatype::hindexed(&[1, 1], &[0, 2], &byte()).unwrap().resized(0, 2).unwrap();
        file.set_view(0, &byte(), &twice).unwrap();
        for refused in [file.write_at(0, b"abcd"), file.write_at_all(0, b"abcd")] {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), Code::Datatype, "{error}");
            assert!(error.to_string().contains("byte 2 of the file twice"), "{error}");
        }
        let mut found = [0; 4];
        assert_eq!(file.read_at(0, &mut found).unwrap(), 4);
        let before = pattern(100, 3);
        assert_eq!(found, [before[0], before[2], before[2], before[4]]);
        assert_eq!(file.read_at_all(0, &mut found).unwrap(), 4);
        assert_eq!(found, [before[0], before[2], before[2], before[4]]);
        // One repetition covers no byte twice.
        file.write_at(2, b"xy").unwrap();
        file.write_at_all(6, b"zz").unwrap();
        file.close().unwrap();
        let mut expected = before;
        (expected[2], expected[4], expected[6], expected[8]) = (b'x', b'y', b'z', b'z');
        assert_eq!(difference(&expected, &whole(&partition, "f")), None, "{method:?}");
    }
}

#[test]
fn very_many_tiny_repetitions_are_few_records_of_few_shapes() {
    let partition = Partition::embed(&EmbedOptions { outbox_bytes: 8 << 20, ..small(3, 64 << 10) }).unwrap();
    let file = open(&partition, &Alone::group(), "f", Method::ServerDirected);
    // Four bytes, of which the last lies after the next repetitions; gaps remain.
    let filetype = Datatype::hindexed(&[1, 1, 2], &[0, 2, 34], &byte()).unwrap().resized(0, 6).unwrap();
    file.set_view(0, &byte(), &filetype).unwrap();
    let data = pattern(1 << 18, 1);
    let mut model = Vec::new();
    model_write(&mut model, &file, 0, &data);
    for turn in 0..3 {
        let before = partition.counts();
        file.write_at(0, &data).unwrap();
        let after = partition.counts();
        assert!(after.records - before.records < 12, "{} records", after.records - before.records);
        let shapes = after.views - before.views;
        assert!(shapes <= if turn == 0 { 3 * 3 } else { 0 }, "turn {turn}: {shapes} views told");
    }
    let mut found = vec![0; data.len()];
    assert_eq!(file.read_at(0, &mut found).unwrap(), data.len());
    assert_eq!(difference(&data, &found), None);
    file.close().unwrap();
    assert_eq!(difference(&model, &whole(&partition, "f")), None);
}
