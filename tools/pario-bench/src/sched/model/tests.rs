//! The model, part by part: fixed service times, sweeps of the elevator, read-ahead, write-behind, and the whole by seed.

use super::app::App;
use super::cache::{PAGE, PageCache, ReadAheadParams};
use super::discipline::{Discipline, Next, Posted};
use super::disk::{DiskCommand, DiskDirection, DiskParams, ModelDisk};
use super::elevator::{DiskOp, Elevator, ElevatorParams};
use super::event_loop::ModelRun;
use super::params::Params;
use super::write_behind::{ModelWriteBehind, WriteBackPiece, WriteBehindParams};
use super::{FileIndex, OpId, RequestIndex, VirtualNanos};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// In order of arrival, as many at a time as the server has daemons.
#[derive(Default)]
struct AsItComes(std::collections::VecDeque<RequestIndex>);

impl Discipline for AsItComes {
    fn orders_service(&self) -> bool {
        false
    }
    fn post(&mut self, request: Posted, _now: VirtualNanos) {
        self.0.push_back(request.index);
    }
    fn next(&mut self, _now: VirtualNanos) -> Next {
        self.0.pop_front().map_or(Next::Idle, |index| Next::Serve(vec![index]))
    }
    fn complete(&mut self, _index: RequestIndex, _now: VirtualNanos) {}
}

fn read(start: u64, length: u64) -> DiskCommand {
    DiskCommand { kind: DiskDirection::Read, start, length }
}

fn write(start: u64, length: u64) -> DiskCommand {
    DiskCommand { kind: DiskDirection::Write, start, length }
}

/// The formula of `disk.rs`, pinned: ten commands, each given so many microseconds after the end of the one before, and how many
/// nanoseconds it takes. What the platter adds comes from the seed; everything else can be computed by hand.
#[test]
fn ten_service_times_are_what_the_formula_says() {
    let half = 40_000_000_000;
    let cases: [(u64, DiskCommand, VirtualNanos); 10] = [
        // Half the disk: 0.3 ms command, 2 + 13.125 · √0.5 = 11.28 ms seek, the platter, 0.575 ms for the bytes.
        (0, read(half, 32 * KIB), 19_983_341),
        // The next bytes: 0.3 ms command, 0.328 ms through the interface; the platter had them before.
        (0, read(half + 32 * KIB, 32 * KIB), 627_680),
        // The same a millisecond later: they are in the buffer.
        (1_000, read(half + 64 * KIB, 32 * KIB), 627_680),
        // More than the interface can hide: 128 KiB at 57 MB/s.
        (0, read(half + 96 * KIB, 128 * KIB), 2_299_508),
        // Backwards on the same track: no seek, but the platter must come round.
        (0, read(half, 8 * KIB), 3_581_744),
        // 10 MB further: 2 + 13.125 · √(1/8000) = 2.15 ms seek.
        (0, read(half + 10_000_000, 8 * KIB), 8_847_079),
        // A write does not join a stream of reads, though it begins where that ended.
        (0, write(half + 10_000_000 + 8 * KIB, 128 * KIB), 7_226_640),
        // It joins the write that it continues: 128 KiB at 57 MB/s.
        (0, write(half + 10_000_000 + 136 * KIB, 128 * KIB), 2_299_508),
        // Back to the first byte.
        (0, read(0, 4 * KIB), 13_910_715),
        // So late that the buffer filled up and the disk stopped reading: a turn of the platter, then 1 MiB at 57 MB/s.
        (100_000, read(4 * KIB, MIB), 23_110_323),
    ];
    let mut disk = ModelDisk::new(DiskParams::PAPER, 1);
    let mut now = 0;
    for (idle_us, command, expected) in cases {
        now += idle_us * 1_000;
        let end = disk.serve(now, command);
        assert_eq!(end - now, expected, "{command:?}");
        now = end;
    }
}

#[test]
fn a_random_place_costs_nine_milliseconds_of_seek_and_half_a_turn() {
    let mut disk = ModelDisk::new(DiskParams::PAPER, 5);
    let mut random = super::random::ModelRandom::new(6);
    let mut now = 0;
    let count = 20_000;
    for _ in 0..count {
        now = disk.serve(now, read(random.below(DiskParams::PAPER.capacity / 4096) * 4096, 4096));
    }
    // Command 0.3, seek 9, rotation 4.17, transfer 0.07.
    let mean_us = now / count / 1000;
    assert!((13_400..13_700).contains(&mean_us), "{mean_us}");
}

fn op(id: u32, start: u64) -> DiskOp {
    DiskOp { id: OpId(id), start, length: 32 * KIB }
}

#[test]
fn the_elevator_sweeps_upwards_merges_neighbours_and_lets_writes_in_after_a_while() {
    let mut elevator = Elevator::new(ElevatorParams::PAPER);
    for (id, start) in [(1, 500 * KIB), (2, 100 * KIB), (3, 132 * KIB), (4, 300 * KIB)] {
        elevator.add(DiskDirection::Read, op(id, start));
    }
    elevator.add(DiskDirection::Write, op(9, 0));
    let mut next =
        |now, at| elevator.next(now, at).map(|dispatch| dispatch.ops.iter().map(|op| op.0).collect());
    assert_eq!(next(0, 200 * KIB), Some(vec![4]), "upwards from the head");
    assert_eq!(next(1, 332 * KIB), Some(vec![1]));
    let late = ElevatorParams::PAPER.reads_ns;
    assert_eq!(next(late, 532 * KIB), Some(vec![9]), "writes have waited long enough");
    assert_eq!(next(2 * late, 32 * KIB), Some(vec![2, 3]), "from the lowest again, neighbours as one");
    assert_eq!(next(2 * late, 0), None::<Vec<u32>>);
}

#[test]
fn the_elevator_sees_as_much_as_it_is_deep() {
    let mut elevator = Elevator::new(ElevatorParams { depth: 2, ..ElevatorParams::PAPER });
    for (id, start) in [(1, 900), (2, 800), (3, 100)] {
        elevator.add(DiskDirection::Read, DiskOp { id: OpId(id), start: start * KIB, length: KIB });
    }
    let first = elevator.next(0, 0).unwrap();
    assert_eq!(first.ops, [OpId(2)], "the lowest of the two that it sees");
    assert_eq!(elevator.next(0, 0).unwrap().ops, [OpId(3)], "which let the third one in");
}

#[test]
fn the_elevator_merges_no_more_than_a_command_may_hold() {
    let mut elevator = Elevator::new(ElevatorParams { merge_max: 64 * KIB, ..ElevatorParams::PAPER });
    for id in 0..3 {
        elevator.add(DiskDirection::Read, op(id, u64::from(id) * 32 * KIB));
    }
    assert_eq!(elevator.next(0, 0).unwrap().command.length, 64 * KIB);
}

/// Pages fetched by reads, each ended before the next: requested pages, and read-ahead.
fn fetched(reads: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut cache = PageCache::new(ReadAheadParams::PAPER, &[MIB]);
    let mut pages = Vec::new();
    for (start, length) in reads {
        let need = cache.read(FileIndex(0), *start, start + length, RequestIndex(0));
        for fetch in &need.fetches {
            pages.push((u64::from(fetch.start) * PAGE, u64::from(fetch.end) * PAGE));
            cache.set_present(*fetch);
        }
        cache.read_ended(FileIndex(0), need.after);
    }
    pages
}

#[test]
fn a_sequential_reader_is_read_ahead_with_growing_windows() {
    let reads = [(0, 32 * KIB), (32 * KIB, 32 * KIB), (64 * KIB, 32 * KIB)];
    let expected = [(0, 32 * KIB), (32 * KIB, 64 * KIB), (64 * KIB, 128 * KIB), (128 * KIB, 256 * KIB)];
    assert_eq!(fetched(&reads), expected);
}

#[test]
fn a_random_reader_is_not() {
    let reads = [(256 * KIB, 8 * KIB), (64 * KIB, 8 * KIB)];
    assert_eq!(fetched(&reads), [(256 * KIB, 264 * KIB), (64 * KIB, 72 * KIB)]);
}

#[test]
fn reads_that_overlap_in_time_do_not_see_each_other() {
    let mut cache = PageCache::new(ReadAheadParams::PAPER, &[MIB]);
    let reader = RequestIndex(0);
    let first = cache.read(FileIndex(0), 512 * KIB, 520 * KIB, reader);
    let second = cache.read(FileIndex(0), 520 * KIB, 528 * KIB, reader);
    assert_eq!(second.fetches.len(), 1, "in order, but the first has not ended: {second:?}");
    cache.read_ended(FileIndex(0), first.after);
    assert_eq!(cache.read(FileIndex(0), 520 * KIB, 528 * KIB, reader).fetches.len(), 2);
}

#[test]
fn pages_on_their_way_are_waited_for_and_not_fetched_again() {
    let mut cache = PageCache::new(ReadAheadParams::PAPER, &[MIB]);
    let first = cache.read(FileIndex(0), 512 * KIB, 520 * KIB, RequestIndex(0));
    cache.set_coming(first.fetches[0], OpId(7));
    let second = cache.read(FileIndex(0), 516 * KIB, 524 * KIB, RequestIndex(1));
    assert_eq!(second.coming, [OpId(7)]);
    assert_eq!((second.fetches[0].start, second.fetches[0].end), (130, 131));
}

#[test]
fn writes_go_back_in_order_beyond_a_threshold_and_wait_at_the_limit() {
    let params = WriteBehindParams { background: 64 * KIB, limit: 128 * KIB, piece: 32 * KIB, turn: MIB };
    let mut behind = ModelWriteBehind::new(params, 1);
    let file = FileIndex(0);
    behind.write(file, 32 * KIB, 32 * KIB);
    assert_eq!(behind.next(), None, "below the threshold");
    behind.write(file, 0, 32 * KIB);
    assert_eq!(
        behind.next(),
        Some(WriteBackPiece { file, start: 0, length: 32 * KIB }),
        "in the order of the bytes"
    );
    assert_eq!(behind.next(), None);
    assert!(
        behind.has_space(64 * KIB) && !behind.has_space(64 * KIB + 1),
        "what is on its way is still held"
    );
    behind.commit(file);
    let last = behind.next().unwrap();
    assert_eq!((last.start, last.length, behind.is_clean(file)), (32 * KIB, 32 * KIB, false));
    behind.written(WriteBackPiece { file, start: 0, length: 32 * KIB });
    behind.written(last);
    assert!(behind.is_clean(file) && behind.next().is_none());
}

fn mix() -> Vec<App> {
    vec![
        App::reader("dealt", 8 * MIB, 4, 8 * KIB),
        App::writer("written", 4 * MIB, 2, 64 * KIB),
        App::reader("stream", 4 * MIB, 1, MIB),
        App::reader("late", MIB, 1, 4 * KIB).starting(super::NS),
    ]
}

#[test]
fn a_seed_gives_one_result_and_another_seed_another() {
    let run = |seed| ModelRun::run(&Params::PAPER, &mix(), &mut AsItComes::default(), seed);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn every_byte_is_asked_for_once() {
    let result = ModelRun::run(&Params::PAPER, &mix(), &mut AsItComes::default(), 3);
    let requests: Vec<u64> = result.apps.iter().map(|app| app.requests).collect();
    assert_eq!(requests, [1024, 128, 128, 32], "the late one gathers its small accesses");
    assert_eq!(result.requests, requests.iter().sum::<u64>());
    assert!(result.apps.iter().all(|app| app.start_ns < app.end_ns), "{result:?}");
}

#[test]
fn a_writer_is_done_when_its_bytes_are_on_the_disk() {
    let apps = [App::writer("written", 57_000_000, 1, MIB)];
    let result = ModelRun::run(&Params::PAPER, &apps, &mut AsItComes::default(), 1);
    assert!(1.0 < result.seconds(), "57 MB at 57 MB/s: {result:?}");
}
