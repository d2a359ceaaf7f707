//! Tests of one drain round: merging, order, direct writes.

use pario_core::{Generation, InodeId};
use pario_store::faulty::{Faulty, Operation};
use pario_store::memory::MemoryStore;
use pario_store::{Store, StoreError};
use pario_view::{Datatype, ViewAccess};
use proptest::prelude::*;

use super::super::scatter_buffer::SCATTER_BUFFER_BYTES;
use super::*;
use crate::stats::ServerStats;

fn object(inode: u64) -> ObjectId {
    ObjectId { inode: InodeId(inode), generation: Generation(0) }
}

fn stamp(committed: u64, outbox: usize) -> CommitStamp {
    CommitStamp { committed: Nanos(committed), source: SliceSource::Outbox(outbox), position: 0 }
}

fn contents(store: &dyn Store, inode: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let count = store.read(object(inode), LocalOffset(0), &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn apply(batch: &mut RoundBatch<'_>) -> (MemoryStore, ServerStats) {
    let (store, stats) = (MemoryStore::new(1 << 20), ServerStats::default());
    let errors = batch.apply(&RoundContext {
        store: &store,
        io_queue: None,
        stats: &stats,
        outboxes: None,
        overwrites: None,
    });
    assert!(errors.outboxes.is_empty());
    (store, stats)
}

fn add(batch: &mut RoundBatch<'static>, inode: u64, at: u64, stamp: CommitStamp, data: &'static [u8]) {
    batch.add_bytes(object(inode), LocalOffset(at), stamp, MemoryPiece::from(data));
}

#[test]
fn later_commits_win_where_pieces_overlap() {
    let mut batch = RoundBatch::new(ServerIndex(0));
    add(&mut batch, 1, 0, stamp(20, 0), b"bbbb");
    add(&mut batch, 1, 2, stamp(10, 1), b"aaaa");
    add(&mut batch, 2, 0, stamp(5, 1), b"x");
    let (store, _) = apply(&mut batch);
    assert_eq!(contents(&store, 1), b"bbbbaa");
    assert_eq!(contents(&store, 2), b"x");
}

#[test]
fn neighbours_become_one_write() {
    let mut batch = RoundBatch::new(ServerIndex(0));
    for (at, source) in [(4u64, 0), (0, 1), (8, 0)] {
        add(&mut batch, 1, at, stamp(at, source), b"abcd");
    }
    let (store, stats) = apply(&mut batch);
    assert_eq!(contents(&store, 1), b"abcdabcdabcd");
    assert_eq!(stats.snapshot().staged_writes, 1);
    assert_eq!(stats.snapshot().staged_pieces, 3);
}

#[test]
fn small_pieces_with_holes_become_one_call() {
    let mut batch = RoundBatch::new(ServerIndex(0));
    for number in 0..200u64 {
        // Two writers alternate, with a hole after each pair.
        let at = number / 2 * 10 + number % 2 * 4;
        add(&mut batch, 1, at, stamp(number, usize::from(number % 2 == 0)), b"abcd");
    }
    let (store, stats) = apply(&mut batch);
    let expected: Vec<u8> = (0..99).flat_map(|_| *b"abcdabcd\0\0").chain(*b"abcdabcd").collect();
    assert_eq!(contents(&store, 1), expected);
    let staged = stats.snapshot();
    assert_eq!((staged.staged_writes, staged.staged_pieces, staged.staged_bytes), (1, 200, 800));
}

#[test]
fn holes_are_not_bridged_by_large_pieces_or_over_long_ways() {
    static LARGE: [u8; 600] = [7; 600];
    let mut batch = RoundBatch::new(ServerIndex(0));
    add(&mut batch, 1, 0, stamp(1, 0), b"ab");
    add(&mut batch, 1, 10, stamp(2, 0), &LARGE);
    add(&mut batch, 1, 700, stamp(3, 0), b"cd");
    add(&mut batch, 1, 710, stamp(4, 0), b"ef");
    add(&mut batch, 1, 900_000, stamp(5, 0), b"gh");
    let (store, stats) = apply(&mut batch);
    assert_eq!(stats.snapshot().staged_writes, 3, "alone, the large one, the last three");
    let bytes = contents(&store, 1);
    assert_eq!(
        (&bytes[..12], &bytes[609..612], &bytes[700..712]),
        (&b"ab\0\0\0\0\0\0\0\0\x07\x07"[..], &b"\x07\0\0"[..], &b"cd\0\0\0\0\0\0\0\0ef"[..])
    );
}

/// The next object's first piece may start where the last one's run ended; a former bug wrote it at that run's start.
#[test]
fn objects_are_not_taken_for_each_other() {
    let mut batch = RoundBatch::new(ServerIndex(0));
    add(&mut batch, 1, 2, stamp(1, 0), b"ab");
    add(&mut batch, 2, 4, stamp(2, 0), b"cd");
    let (store, _) = apply(&mut batch);
    assert_eq!(contents(&store, 1), b"\0\0ab");
    assert_eq!(contents(&store, 2), b"\0\0\0\0cd");
}

#[test]
fn interleaved_views_of_two_writers_become_one_write() {
    let byte = Datatype::elementary(1).unwrap();
    let every_other = byte.resized(0, 2).unwrap();
    let layout = Layout::new(4096, 1, 0, 1).unwrap();
    let mut batch = RoundBatch::new(ServerIndex(0));
    for (writer, data) in [(0, b"aaaa"), (1, b"bbbb")] {
        let view = View::new(writer, &byte, &every_other, ViewAccess::Write).unwrap();
        let streamed = Streamed { view: Some(&view), layout, stream: 0..4, local: 0..u64::MAX };
        let place = usize::try_from(writer).unwrap();
        assert!(batch.add_stream(
            object(1),
            stamp(1, place),
            &streamed,
            (Packing::Whole, MemoryPiece::from(&data[..]))
        ));
    }
    let (store, stats) = apply(&mut batch);
    assert_eq!(contents(&store, 1), b"abababab");
    assert_eq!(stats.snapshot().staged_writes, 1);
}

/// Pages of a file are as large as a call and its offset allow.
#[test]
fn calls_end_at_multiples_of_a_power_of_two() {
    let bytes: Vec<u8> = (0..3u32 << 20).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    // Bytes of a piece, offset of the first one, and the multiple at which calls end.
    for (piece, start, stride) in [
        (1280, 0, 1 << 20),
        (1280, 5000, 1 << 20),
        (600, 100, 512 << 10),
        (1024, 100, 512 << 10),
        (512, 0, 256 << 10),
    ] {
        let ends: Vec<u64> = ends_of_calls(&bytes, piece, start);
        let end = start + bytes.len() as u64;
        let expected: Vec<u64> =
            (1..end.div_ceil(stride)).map(|number| number * stride).chain([end]).collect();
        assert_eq!(ends, expected, "{piece} from {start}");
    }
    assert_eq!(ends_of_calls(&bytes, 3 << 20, 5000), [5000 + (3 << 20)], "a large piece is not divided");
}

/// Writes consecutive pieces from three alternating writers; returns the end of each store call.
fn ends_of_calls(bytes: &[u8], piece: usize, start: u64) -> Vec<u64> {
    let mut ends = Vec::new();
    loop {
        let mut batch = RoundBatch::new(ServerIndex(0));
        let mut at = start;
        for (number, data) in bytes.chunks(piece).enumerate() {
            batch.add_bytes(object(1), LocalOffset(at), stamp(1, number % 3), MemoryPiece::from(data));
            at += data.len() as u64;
        }
        let store = Faulty::new(Box::new(MemoryStore::new(8 << 20)));
        let (allowed, mut calls) = (ends.len() + 1, 0);
        store.fail_when(move |operation, _| {
            calls += usize::from(operation == Operation::Write);
            let full = StoreError::Full { object: object(1), range: 0..1 };
            (operation == Operation::Write && allowed < calls).then_some(full)
        });
        let stats = ServerStats::default();
        let ground =
            RoundContext { store: &store, io_queue: None, stats: &stats, outboxes: None, overwrites: None };
        let failed = !batch.apply(&ground).outboxes.is_empty();
        ends.push(store.length(object(1)).unwrap().unwrap());
        if !failed {
            let mut back = vec![0; bytes.len()];
            assert_eq!(store.read(object(1), LocalOffset(start), &mut back).unwrap(), back.len());
            assert!(back == bytes, "{piece} from {start}");
            return ends;
        }
    }
}

/// Fine pieces are written by scatter buffer; a piece across the end of a buffer is divided.
#[test]
fn fine_pieces_become_a_write_for_each_window() {
    let byte = Datatype::elementary(1).unwrap();
    let pieces = Datatype::contiguous(8, &byte).unwrap().resized(0, 16).unwrap();
    let layout = Layout::new(1 << 20, 1, 0, 1).unwrap();
    let (begin, each) = (SCATTER_BUFFER_BYTES - 3, 384 << 10);
    let data: [Vec<u8>; 2] =
        [b'a', b'n'].map(|first| (0..each).map(|at| first + u8::try_from(at % 13).unwrap()).collect());
    let mut batch = RoundBatch::new(ServerIndex(0));
    for (writer, data) in data.iter().enumerate() {
        let start = i64::try_from(begin + 8 * writer).unwrap();
        let view = View::new(start, &byte, &pieces, ViewAccess::Write).unwrap();
        let streamed = Streamed { view: Some(&view), layout, stream: 0..each as u64, local: 0..u64::MAX };
        let piece = MemoryPiece::from(&data[..]);
        assert!(batch.add_stream(object(1), stamp(1, writer), &streamed, (Packing::Whole, piece)));
    }
    let (store, stats) = apply(&mut batch);
    let mut found = vec![0; begin + 2 * each];
    assert_eq!(store.read(object(1), LocalOffset(0), &mut found).unwrap(), found.len());
    let in_turn = data[0].chunks(8).zip(data[1].chunks(8)).flat_map(|(a, b)| [a, b].concat());
    assert!(found[begin..].iter().copied().eq(in_turn));
    let staged = stats.snapshot();
    // Scatter buffers end at multiples of their size in the object.
    assert_eq!(staged.staged_writes, 1 + (2 * each - 3).div_ceil(SCATTER_BUFFER_BYTES) as u64);
    assert_eq!(staged.staged_bytes, 2 * each as u64);
}

#[test]
fn fine_pieces_that_overlap_are_written_newest_last() {
    let byte = Datatype::elementary(1).unwrap();
    let layout = Layout::new(4096, 1, 0, 1).unwrap();
    let mut batch = RoundBatch::new(ServerIndex(0));
    for (committed, start, data) in [(2, 1, b"bbbb"), (1, 0, b"aaaa"), (3, 4, b"cccc")] {
        let view = View::new(start, &byte, &byte.resized(0, 3).unwrap(), ViewAccess::Write).unwrap();
        let streamed = Streamed { view: Some(&view), layout, stream: 0..4, local: 0..u64::MAX };
        let place = usize::try_from(committed).unwrap();
        let data = (Packing::Whole, MemoryPiece::from(&data[..]));
        assert!(batch.add_stream(object(1), stamp(committed, place), &streamed, data));
    }
    let (store, _) = apply(&mut batch);
    assert_eq!(contents(&store, 1), b"ab\0ac\0ac\0ac\0\0c");
}

#[test]
fn a_direct_write_stands_over_older_records_only() {
    let layout = Layout::new(4096, 1, 0, 1).unwrap();
    let mut batch = RoundBatch::new(ServerIndex(0));
    add(&mut batch, 1, 0, stamp(10, 0), b"older");
    batch.add_intent(object(1), stamp(20, 1), &layout, 1..3);
    add(&mut batch, 1, 2, stamp(30, 0), b"N");
    let store = MemoryStore::new(1 << 20);
    store.write(object(1), LocalOffset(0), &[MemoryPiece::from(&b".DD.."[..])]).unwrap();
    batch.apply(&RoundContext {
        store: &store,
        io_queue: None,
        stats: &ServerStats::default(),
        outboxes: None,
        overwrites: None,
    });
    assert_eq!(contents(&store, 1), b"oDNer");
}

#[test]
fn a_message_that_is_not_what_its_view_asks_for_is_refused() {
    let byte = Datatype::elementary(1).unwrap();
    let view = View::new(0, &byte, &byte.resized(0, 2).unwrap(), ViewAccess::Write).unwrap();
    let layout = Layout::new(4096, 1, 0, 1).unwrap();
    let streamed = Streamed { view: Some(&view), layout, stream: 0..4, local: 0..u64::MAX };
    let mut batch = RoundBatch::new(ServerIndex(0));
    for data in [&b"abc"[..], b"abcde"] {
        assert!(!batch.add_stream(
            object(1),
            stamp(1, 0),
            &streamed,
            (Packing::Part, MemoryPiece::from(data))
        ));
    }
    assert!(batch.is_empty());
    assert_eq!(batch.pieces(), 0);
}

#[derive(Clone, Debug)]
struct BatchWrite {
    writer: usize,
    at: u64,
    stride: u64,
    count: u64,
    intent: bool,
}

fn write() -> impl Strategy<Value = BatchWrite> {
    (0..4usize, 0..120u64, 1..9u64, 1..12u64, prop::bool::weighted(0.15))
        .prop_map(|(writer, at, stride, count, intent)| BatchWrite { writer, at, stride, count, intent })
}

proptest! {
    /// Random records, some through strided views and some written directly, against bytes written in commit order.
    #[test]
    fn a_round_is_as_good_as_one_after_the_other(
        writes in prop::collection::vec(write(), 1..24),
        servers in 1..4u16,
        (distance, element) in prop::sample::select(vec![(1u64, 1u64), (40, 1), (40, 4), (40, 8), (40, 16), (40, 33), (1021, 1), (1021, 700)]),
        crosses in prop::bool::ANY,
    ) {
        let byte = Datatype::elementary(1).unwrap();
        let layout = Layout::new(4096, servers, 0, servers).unwrap();
        // Around the offset in the objects where runs and scatter buffers end.
        let end = if element < 512 { SCATTER_BUFFER_BYTES as u64 } else { 512 << 10 };
        let base = if crosses { u64::from(servers) * end - 60 * distance } else { 0 };
        // Small stripes are not legal, so offsets are spread over blocks by a factor.
        let spread = |place: u64| place * distance;
        let data: Vec<Vec<u8>> =
            (0..writes.len()).map(|n| (0..12 * 700).map(|at| u8::try_from((n * 37 + at) % 255 + 1).unwrap()).collect()).collect();
        let mut model = vec![0u8; 1 << 21];
        for server in 0..servers {
            let store = MemoryStore::new(16 << 20);
            let mut batch = RoundBatch::new(ServerIndex(server));
            for (n, write) in writes.iter().enumerate() {
                let stamp = stamp(n as u64, write.writer);
                let places: Vec<u64> = (0..write.count).map(|k| base + spread(write.at + k * write.stride)).collect();
                if write.intent {
                    let file = places[0]..places[0] + 5000;
                    for piece in layout.pieces_on(ServerIndex(server), file.clone()) {
                        let bytes = vec![data[n][0]; usize::try_from(piece.bytes).unwrap()];
                        store.write(object(1), piece.local, &[MemoryPiece::from(&bytes[..])]).unwrap();
                    }
                    batch.add_intent(object(1), stamp, &layout, file);
                } else {
                    let stride = i64::try_from(spread(write.stride)).unwrap();
                    let start = i64::try_from(places[0]).unwrap();
                    let piece = Datatype::contiguous(i64::try_from(element).unwrap(), &byte).unwrap().resized(0, stride).unwrap();
                    let view = View::new(start, &byte, &piece, ViewAccess::Write).unwrap();
                    let stream = 0..write.count * element;
                    let piece = MemoryPiece::from(&data[n][..usize::try_from(stream.end).unwrap()]);
                    let streamed = Streamed { view: Some(&view), layout, stream, local: 0..u64::MAX };
                    prop_assert!(batch.add_stream(object(1), stamp, &streamed, (Packing::Whole, piece)));
                }
            }
            batch.apply(&RoundContext { store: &store, io_queue: None, stats: &ServerStats::default(), outboxes: None, overwrites: None });
            drop(batch);
            // The model: in commit order; a direct write that is older than another is visible only where nothing newer is.
            model.fill(0);
            for (n, write) in writes.iter().enumerate() {
                if write.intent {
                    let at = usize::try_from(base + spread(write.at)).unwrap();
                    model[at..at + 5000].fill(data[n][0]);
                } else {
                    let bytes = usize::try_from(element).unwrap();
                    for (k, piece) in (0..write.count).zip(data[n].chunks(bytes)) {
                        let at = usize::try_from(base + spread(write.at + k * write.stride)).unwrap();
                        model[at..at + bytes].copy_from_slice(piece);
                    }
                }
            }
            for place in base..base + (300 << 10) {
                let (home, local) = layout.locate(place);
                if home == ServerIndex(server) && model[usize::try_from(place).unwrap()] != 0 {
                    let mut byte = [0];
                    store.read(object(1), local, &mut byte).unwrap();
                    prop_assert_eq!(byte[0], model[usize::try_from(place).unwrap()], "place {}", place);
                }
            }
        }
    }

    /// A record drained in two parts, below an offset of the object and from there on, equals the whole record.
    #[test]
    fn what_lies_below_a_place_and_the_rest_are_the_whole(
        start in 0..9000i64, (element, gap) in (1..40i64, 0..60i64), count in 1..3000u64, skipped in 0..200u64,
        place in 0..160_000u64, servers in 1..3u16,
    ) {
        let element_type = Datatype::elementary(element.cast_unsigned()).unwrap();
        let view = View::new(start, &element_type, &element_type.resized(0, element + gap).unwrap(), ViewAccess::Write).unwrap();
        let layout = Layout::new(4096, servers, 0, servers).unwrap();
        let stream = skipped..skipped + count * element.cast_unsigned();
        let data: Vec<u8> = (0..stream.end - stream.start).map(|at| (at % 251) as u8 + 1).collect();
        let written = |locals: &[Range<u64>]| {
            let (store, stats) = (MemoryStore::new(16 << 20), ServerStats::default());
            let mut pieces = 0;
            for local in locals {
                let mut batch = RoundBatch::new(ServerIndex(0));
                let streamed = Streamed { view: Some(&view), layout, stream: stream.clone(), local: local.clone() };
                assert!(batch.add_stream(object(1), stamp(1, 0), &streamed, (Packing::Whole, MemoryPiece::from(&data[..]))));
                batch.apply(&RoundContext { store: &store, io_queue: None, stats: &stats, outboxes: None, overwrites: None });
                pieces += batch.pieces();
            }
            let length = store.length(object(1)).unwrap().unwrap_or(0);
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            store.read(object(1), LocalOffset(0), &mut bytes).unwrap();
            (bytes, pieces, stats.snapshot().staged_bytes)
        };
        let (whole, pieces, bytes) = written(&[0..0, 0..u64::MAX]);
        let (parts, of_parts, bytes_of_parts) = written(&[0..place, place..u64::MAX]);
        prop_assert!(whole == parts);
        prop_assert_eq!(bytes, bytes_of_parts);
        prop_assert!(pieces <= of_parts && of_parts <= pieces + 1, "{} {}", pieces, of_parts);
        let expected = view.on_server(&layout, ServerIndex(0), stream.clone());
        for part in expected {
            let [at, from, bytes] = [part.local.0, part.stream_offset - stream.start, part.bytes].map(|number| usize::try_from(number).unwrap());
            prop_assert_eq!(&whole[at..at + bytes], &data[from..from + bytes]);
        }
    }
}
