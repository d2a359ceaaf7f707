//! Two-phase compared with a byte array: random groups of threads on one to four nodes write and read random views of one file, of a
//! partition and plain; also with ranks that die, disagree or fail.

#![expect(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use common::{SeededRandom, Trace, difference, histories, pattern, small};
use pario::collective::{PlainFile, PlainMode};
use pario::core::Code;
use pario::group::{Group, threads, threads_on};
use pario::view::{Direction, ViewAccess};
use pario::{Datatype, Error, GroupFile, Hints, Method, Partition, View};

/// The accesses of each rank in one collective call.
#[derive(Clone, Debug)]
struct ScriptedCall {
    writes: bool,
    /// Shapes of new views, by rank.
    views: Option<Vec<VectorShape>>,
    /// Offset and bytes of each rank's access, and the seed of its data.
    accesses: Vec<(u64, usize, u64)>,
}

/// A view: blocks of bytes at distances, as a vector that is repeated at its own distance.
#[derive(Clone, Copy, Debug)]
struct VectorShape {
    displacement: i64,
    count: i64,
    block: i64,
    stride: i64,
    extent: i64,
}

impl VectorShape {
    fn random(chance: &mut SeededRandom, rank: usize, ranks: usize) -> VectorShape {
        let mut number = |end: u64| i64::try_from(chance.below(end)).unwrap();
        let (rank, ranks) = (i64::try_from(rank).unwrap(), i64::try_from(ranks).unwrap());
        let block = 1 + number(40);
        match number(4) {
            // Interleaved with the other ranks, if they chose the same block.
            0 => VectorShape { displacement: rank * 16, count: 1, block: 16, stride: 16, extent: ranks * 16 },
            1 => VectorShape { displacement: number(3000), count: 1, block, stride: block, extent: block },
            2 => {
                let (count, stride) = (1 + number(5), block + number(100));
                let extent = (count - 1) * stride + block + number(200);
                VectorShape { displacement: number(500), count, block, stride, extent }
            }
            // Repetitions interleave: the stream is not monotonic.
            _ => VectorShape {
                displacement: number(500),
                count: 3,
                block: 2,
                stride: 50,
                extent: 2 + number(6),
            },
        }
    }

    fn filetype(&self) -> Datatype {
        let byte = Datatype::elementary(1).unwrap();
        let vector = Datatype::vector(self.count, self.block, self.stride, &byte).unwrap();
        vector.resized(0, self.extent).unwrap()
    }

    fn view(&self) -> View {
        let byte = Datatype::elementary(1).unwrap();
        View::new(self.displacement, &byte, &self.filetype(), ViewAccess::Write).unwrap()
    }
}

struct CallScript {
    nodes: Vec<usize>,
    hints: Hints,
    calls: Vec<ScriptedCall>,
}

impl CallScript {
    fn random(chance: &mut SeededRandom) -> CallScript {
        let ranks = 1 + chance.index(9);
        let node_count = 1 + chance.below(4);
        let nodes = (0..ranks).map(|_| usize::try_from(chance.below(node_count)).unwrap()).collect();
        let aggregators = if chance.once_in(3) { None } else { Some(1 + chance.index(ranks)) };
        let buffer_bytes =
            Some(if chance.once_in(3) { 16 + chance.below(100) } else { 16 + chance.below(8000) });
        let hints = Hints { method: Some(Method::TwoPhase), aggregators, buffer_bytes, ..Hints::default() };
        let mut calls: Vec<ScriptedCall> = Vec::new();
        for index in 0..3 + chance.index(6) {
            let changes = index == 0 || chance.once_in(3);
            let views: Option<Vec<VectorShape>> =
                changes.then(|| (0..ranks).map(|rank| VectorShape::random(chance, rank, ranks)).collect());
            let known = views.as_ref().or_else(|| calls.iter().rev().find_map(|call| call.views.as_ref()));
            let known: Vec<View> = known.into_iter().flatten().map(VectorShape::view).collect();
            let writes = index == 0 || !chance.once_in(2);
            let longest = if chance.once_in(4) { 3000 } else { 400 };
            let accesses = (0..ranks)
                .map(|rank| {
                    let mut bytes = if chance.once_in(5) { 0 } else { chance.index(longest) };
                    let offset = chance.below(200);
                    // A range that covers a byte twice may only be read.
                    while writes && known[rank].shown_twice(offset..offset + bytes as u64).is_some() {
                        bytes /= 2;
                    }
                    (offset, bytes, chance.next_u64())
                })
                .collect();
            calls.push(ScriptedCall { writes, views, accesses });
        }
        CallScript { nodes, hints, calls }
    }

    /// The data that each rank reads in each call, and the file in the end.
    fn expect(&self) -> (Vec<Vec<Vec<u8>>>, Vec<u8>) {
        let mut file: Vec<u8> = Vec::new();
        let mut views = Vec::new();
        let mut results = Vec::new();
        for call in &self.calls {
            if let Some(shapes) = &call.views {
                views = shapes.iter().map(VectorShape::view).collect();
            }
            let mut read = Vec::new();
            for (view, (offset, bytes, seed)) in views.iter().zip(&call.accesses) {
                let stream = *offset..offset + *bytes as u64;
                if call.writes {
                    model_write(&mut file, view, stream, &pattern(*bytes, *seed));
                } else {
                    read.push(model_read(&file, view, stream));
                }
            }
            results.push(read);
        }
        (results, file)
    }
}

fn ranges(view: &View, stream: Range<u64>) -> impl Iterator<Item = Range<usize>> {
    let place = |at: u64| usize::try_from(at).unwrap();
    view.extents(stream)
        .map(move |extent| place(extent.file_offset)..place(extent.file_offset + extent.bytes))
}

fn model_write(file: &mut Vec<u8>, view: &View, stream: Range<u64>, mut data: &[u8]) {
    for range in ranges(view, stream) {
        if file.len() < range.end {
            file.resize(range.end, 0);
        }
        let (piece, rest) = data.split_at(range.len());
        file[range].copy_from_slice(piece);
        data = rest;
    }
}

fn model_read(file: &[u8], view: &View, stream: Range<u64>) -> Vec<u8> {
    let mut found = Vec::new();
    for range in ranges(view, stream) {
        found.extend_from_slice(&file[range.start.min(file.len())..range.end.min(file.len())]);
        if file.len() < range.end {
            break;
        }
    }
    found
}

/// Common to both kinds of file.
trait SharedTarget {
    fn set_view(&self, displacement: i64, etype: &Datatype, filetype: &Datatype) -> Result<(), Error>;
    fn write_at_all(&self, offset: u64, data: &[u8]) -> Result<(), Error>;
    fn read_at_all(&self, offset: u64, target: &mut [u8]) -> Result<usize, Error>;
}

macro_rules! shared {
    ($file:ty) => {
        impl SharedTarget for $file {
            fn set_view(
                &self,
                displacement: i64,
                etype: &Datatype,
                filetype: &Datatype,
            ) -> Result<(), Error> {
                <$file>::set_view(self, displacement, etype, filetype)
            }
            fn write_at_all(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
                <$file>::write_at_all(self, offset, data)
            }
            fn read_at_all(&self, offset: u64, target: &mut [u8]) -> Result<usize, Error> {
                <$file>::read_at_all(self, offset, target)
            }
        }
    };
}
shared!(PlainFile);
shared!(GroupFile);

/// Runs a rank's part and compares the data that it reads.
fn play(rank: usize, script: &CallScript, expected: &[Vec<Vec<u8>>], file: &dyn SharedTarget, trace: &Trace) {
    let byte = Datatype::elementary(1).unwrap();
    let mut increases = true;
    for (index, call) in script.calls.iter().enumerate() {
        trace.step(format!("rank {rank} call {index}"));
        if let Some(shapes) = &call.views {
            let shape = shapes[rank];
            increases = shape.view().direction() == Direction::Increasing;
            file.set_view(shape.displacement, &byte, &shape.filetype()).unwrap();
        }
        let (offset, bytes, seed) = call.accesses[rank];
        if call.writes {
            file.write_at_all(offset, &pattern(bytes, seed)).unwrap();
            continue;
        }
        let mut target = vec![0xee; bytes];
        let count = file.read_at_all(offset, &mut target).unwrap();
        if let Some(text) = difference(&expected[index][rank], &target[..count]) {
            panic!("rank {rank}, call {index} {call:?}: {text}");
        }
        let touched = target[count..].iter().any(|byte| *byte != 0xee);
        assert!(!touched || !increases, "bytes behind the file's end were touched");
    }
}

/// Runs one thread for each rank.
fn each(members: Vec<Arc<dyn Group>>, body: impl Fn(&Arc<dyn Group>) + Sync) {
    std::thread::scope(|scope| {
        for group in members {
            let body = &body;
            scope.spawn(move || {
                body(&group);
                group.leave();
            });
        }
    });
}

#[test]
fn plain_files_hold_what_the_model_holds() {
    histories(200, |seed, trace| {
        let script = CallScript::random(&mut SeededRandom::new(seed));
        trace.step(format!("nodes {:?} {:?}", script.nodes, script.hints));
        let (expected, model) = script.expect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        each(threads_on(&script.nodes), |group| {
            let file = PlainFile::open_all(group, &path, PlainMode::Create, &script.hints).unwrap();
            play(group.rank(), &script, &expected, &file, trace);
            file.close().unwrap();
        });
        assert_eq!(difference(&model, &std::fs::read(&path).unwrap()), None);
    });
}

#[test]
fn files_of_a_partition_hold_what_the_model_holds() {
    histories(40, |seed, trace| {
        let mut chance = SeededRandom::new(seed);
        let script = CallScript::random(&mut chance);
        trace.step(format!("nodes {:?} {:?}", script.nodes, script.hints));
        let (expected, model) = script.expect();
        let servers = 1 + u16::try_from(chance.below(4)).unwrap();
        let partition = Partition::embed(&small(servers, 4096)).unwrap();
        each(threads_on(&script.nodes), |group| {
            let client = if group.rank() % 2 == 0 { partition.another_client() } else { partition.clone() };
            let options = client.options().create(true).read(true).write(true);
            let file = options.open_all(group, "file", &script.hints).unwrap();
            play(group.rank(), &script, &expected, &file, trace);
            file.close().unwrap();
        });
        let file = partition.open("file").unwrap();
        let mut found = vec![0; model.len() + 1];
        let count = file.read_at(0, &mut found).unwrap();
        assert_eq!(difference(&model, &found[..count]), None);
    });
}

#[test]
fn what_two_phase_writes_independent_calls_read_and_the_other_way_round() {
    let partition = Partition::embed(&small(3, 4096)).unwrap();
    let hints = Hints { method: Some(Method::TwoPhase), aggregators: Some(2), ..Hints::default() };
    each(threads(4), |group| {
        let client = partition.another_client();
        let options = client.options().create(true).read(true).write(true);
        let file = options.open_all(group, "file", &hints).unwrap();
        let (byte, rank) = (Datatype::elementary(1).unwrap(), group.rank());
        let filetype = Datatype::contiguous(100, &byte).unwrap().resized(0, 400).unwrap();
        file.set_view(i64::try_from(100 * rank).unwrap(), &byte, &filetype).unwrap();
        for turn in 0..4 {
            let data = pattern(5000, 10 * turn + rank as u64);
            let mut found = vec![0; 5000];
            if turn % 2 == 0 {
                file.write_at_all(0, &data).unwrap();
                assert_eq!(file.read_at(0, &mut found).unwrap(), 5000);
            } else {
                file.write_at(0, &data).unwrap();
                assert_eq!(file.read_at_all(0, &mut found).unwrap(), 5000);
            }
            assert_eq!(difference(&data, &found), None, "turn {turn}");
        }
        let counts = file.two_phase_counts().unwrap();
        assert_eq!((counts.calls, counts.messages), (4, 0), "collective calls only");
        file.close().unwrap();
    });
}

/// Opens a plain file for each rank and runs `body`, which checks errors.
fn with_plain(nodes: &[usize], path: &Path, hints: &Hints, body: impl Fn(usize, PlainFile) + Sync) {
    each(threads_on(nodes), |group| {
        let file = PlainFile::open_all(group, path, PlainMode::Create, hints).unwrap();
        body(group.rank(), file);
    });
}

#[test]
fn a_rank_that_dies_is_named_to_all_others() {
    for nodes in [[0, 0, 0, 0], [0, 1, 0, 1]] {
        for reads in [false, true] {
            for dead in [0, 3] {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("file");
                let hints = Hints { aggregators: Some(2), buffer_bytes: Some(4096), ..Hints::default() };
                std::thread::scope(|scope| {
                    for group in threads_on(&nodes) {
                        let (path, hints) = (&path, &hints);
                        scope.spawn(move || {
                            let file = PlainFile::open_all(&group, path, PlainMode::Create, hints).unwrap();
                            let rank = group.rank();
                            let mut data = pattern(100_000, rank as u64);
                            let offset = 100_000 * rank as u64;
                            file.write_at_all(offset, &data).unwrap();
                            if rank == dead {
                                return; // The member is dropped without having left.
                            }
                            let error = if reads {
                                file.read_at_all(offset, &mut data).unwrap_err()
                            } else {
                                file.write_at_all(offset, &data).unwrap_err()
                            };
                            assert!(error.to_string().contains(&format!("rank {dead}")), "{error}");
                            let again = file.write_at_all(offset, &data).unwrap_err();
                            assert_eq!(error, again, "it stays broken");
                            group.leave();
                        });
                    }
                });
            }
        }
    }
}

#[test]
fn a_rank_that_cannot_take_part_is_told_to_all_and_the_next_call_works() {
    for nodes in [[0, 0, 0], [0, 1, 0]] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        with_plain(&nodes, &path, &Hints::default(), |rank, file| {
            let offset = if rank == 1 { u64::MAX } else { 4 * rank as u64 };
            let error = file.write_at_all(offset, b"abcd").unwrap_err();
            assert_eq!(error.code(), Code::TooLarge);
            assert!(error.to_string().contains("beyond the view"), "{error}");
            assert_eq!(error.to_string().contains("rank 1"), rank != 1, "{error}");
            file.write_at_all(4 * rank as u64, b"abcd").unwrap();
            file.close().unwrap();
        });
        assert_eq!(std::fs::read(&path).unwrap(), b"abcdabcdabcd");
    }
}

#[test]
fn ranks_that_do_not_call_the_same_are_told() {
    for nodes in [[0, 0, 0], [0, 1, 1]] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        with_plain(&nodes, &path, &Hints::default(), |rank, file| {
            let mut data = *b"abcd";
            let error = match rank {
                2 => file.read_at_all(0, &mut data).unwrap_err(),
                _ => file.write_at_all(0, &data).unwrap_err(),
            };
            assert!(error.to_string().contains("ranks 0 and 2"), "{error}");
            // No rank takes part with data: that is legal.
            file.write_at_all(7, &[]).unwrap();
            assert_eq!(file.read_at_all(9, &mut []).unwrap(), 0);
            file.close().unwrap();
        });
    }
}

#[test]
fn hints_that_differ_or_cannot_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let open = |hints: &(dyn Fn(usize) -> Hints + Sync)| {
        let errors = std::sync::Mutex::new(Vec::new());
        each(threads(3), |group| {
            let opened = PlainFile::open_all(group, &path, PlainMode::Create, &hints(group.rank()));
            errors.lock().unwrap().push(opened.unwrap_err().to_string());
        });
        errors.into_inner().unwrap()
    };
    let differ = |rank| Hints { aggregators: Some(1 + rank % 2), ..Hints::default() };
    assert!(open(&differ).iter().all(|error| error.contains("ranks 0 and 1 do not agree")));
    let none = |_| Hints { aggregators: Some(0), ..Hints::default() };
    assert!(open(&none).iter().all(|error| error.contains("at least one aggregator")));
    let huge = |_| Hints { buffer_bytes: Some(1 << 40), ..Hints::default() };
    assert!(open(&huge).iter().all(|error| error.contains("two-phase buffer of")));
}

#[test]
fn an_aggregator_that_cannot_write_fails_everybody_once() {
    for nodes in [[0, 0, 0], [0, 1, 1]] {
        let hints = Hints { aggregators: Some(2), buffer_bytes: Some(1000), ..Hints::default() };
        with_plain(&nodes, Path::new("/dev/full"), &hints, |rank, file| {
            for _ in 0..2 {
                let error = file.write_at_all(5000 * rank as u64, &[1; 5000]).unwrap_err();
                assert_eq!(error.code(), Code::NoSpace, "{error}");
            }
            file.close().unwrap();
        });
    }
}

#[test]
fn lists_and_accesses_are_as_many_as_the_plan_says() {
    const RANKS: usize = 4;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let hints = Hints { aggregators: Some(4), buffer_bytes: Some(64 << 10), ..Hints::default() };
    with_plain(&[0; RANKS], &path, &hints, |rank, file| {
        let byte = Datatype::elementary(1).unwrap();
        let piece = Datatype::contiguous(1024, &byte).unwrap();
        let displacement = i64::try_from(1024 * rank).unwrap();
        file.set_view(displacement, &byte, &piece.resized(0, 4096).unwrap()).unwrap();
        let mut data = pattern(256 << 10, rank as u64);
        file.write_at_all(0, &data).unwrap();
        // 1 MiB, of which each aggregator has a quarter in windows of 64 KiB; each rank has 256 pieces, a quarter of them its own.
        let counts = file.counts();
        assert_eq!((counts.calls, counts.rounds, counts.messages), (1, 4, 0));
        assert_eq!((counts.accesses, counts.access_bytes), (4, 256 << 10));
        assert_eq!((counts.list_bytes, counts.data_bytes), (192 * 8, 192 << 10));
        file.read_at_all(0, &mut data).unwrap();
        let counts = file.counts();
        assert_eq!((counts.calls, counts.rounds, counts.messages), (2, 8, 0));
        assert_eq!((counts.accesses, counts.access_bytes), (8, 512 << 10));
        assert_eq!((counts.list_bytes, counts.data_bytes), (2 * 192 * 8, 2 * (192 << 10)));
        file.close().unwrap();
    });
}
