//! Ranks as threads of this process, on servers of this process.

use super::super::plain::MemoryImage;
use super::super::shapes::{Btio, BtioClass, Flash, GapPattern, Irregular, Strided, Tile};
use super::*;

const SIDES: [KernelSide; 7] = [
    KernelSide::Memory,
    KernelSide::Pwrite,
    KernelSide::TwoPhasePlain,
    KernelSide::TwoPhase,
    KernelSide::ClientDirected,
    KernelSide::ServerDirected,
    KernelSide::Independent,
];

/// Runs `work` on every rank of a group.
fn on_all(spec: &ShapeSpec, ranks: u64, work: impl Fn(&mut KernelRank) + Sync) {
    spec.check(ranks).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let partition = Partition::in_process(2).unwrap();
    let groups = pario::group::threads(usize::try_from(ranks).unwrap());
    std::thread::scope(|scope| {
        for (rank, group) in (0..ranks).zip(groups) {
            let seat = RankParams {
                spec: spec.clone(),
                rank,
                ranks,
                partition: String::new(),
                plain: dir.path().join("plain"),
                limit_bytes_s: None,
            };
            let (client, work) = (partition.another_client(), &work);
            scope.spawn(move || work(&mut KernelRank::new(&seat, client, group).unwrap()));
        }
    });
}

#[test]
fn every_side_is_verified_on_every_kind_of_shape() {
    let specs = [
        ShapeSpec::Btio(Btio { class: BtioClass::S, dumps: 2, run_cells: Some(5) }),
        ShapeSpec::Tile(Tile { row_bytes: 100, total_bytes: 4000, grid: None, dumps: 2 }),
        ShapeSpec::Flash(Flash { edge: 8, guards: 1, blocks: 1, checkpoints: 1 }),
        ShapeSpec::Strided(Strided { piece_bytes: 1000, pieces: 3, steps: 2 }),
        ShapeSpec::Irregular(Irregular { pattern: GapPattern::Gaps { seed: 3 }, extents: 50, steps: 3 }),
    ];
    for spec in specs {
        on_all(&spec, 4, |rank| {
            for side in SIDES {
                let outcome = rank.run(&KernelJob::Verify { side }).unwrap();
                assert_eq!(outcome.calls, rank.params.spec.steps());
                rank.group.barrier().unwrap();
                if rank.params.rank == 0 {
                    rank.run(&KernelJob::Remove { side }).unwrap();
                }
                rank.group.barrier().unwrap();
            }
        });
    }
}

#[test]
fn times_and_counts_are_told_apart() {
    let spec = ShapeSpec::Strided(Strided { piece_bytes: 512, pieces: 4, steps: 3 });
    on_all(&spec, 2, |rank| {
        let write = rank.run(&KernelJob::Write { side: KernelSide::Independent, sweeps: 5 }).unwrap();
        assert_eq!((write.calls, write.counts["steady_steps"]), (12, 1));
        assert!(write.calls_seconds <= write.seconds && 0 < write.counts["compute_ns"]);
        let read = rank.run(&KernelJob::Read { side: KernelSide::Independent }).unwrap();
        assert_eq!((read.calls, read.counts["compute_ns"] < 1_000_000_000), (12, true));
    });
}

#[test]
fn lists_are_sent_by_two_phase_alone() {
    let spec = ShapeSpec::Strided(Strided { piece_bytes: 512, pieces: 4, steps: 3 });
    on_all(&spec, 3, |rank| {
        for (side, sends_lists) in [
            (KernelSide::ServerDirected, false),
            (KernelSide::ClientDirected, false),
            (KernelSide::TwoPhase, true),
            (KernelSide::TwoPhasePlain, true),
        ] {
            let write = rank.run(&KernelJob::Write { side, sweeps: 0 }).unwrap();
            let read = rank.run(&KernelJob::Read { side }).unwrap();
            for outcome in [write, read] {
                assert_eq!(0 < outcome.counts["list_bytes"], sends_lists, "{side:?}: {outcome:?}");
            }
            rank.group.barrier().unwrap();
            if rank.params.rank == 0 {
                rank.run(&KernelJob::Remove { side }).unwrap();
            }
            rank.group.barrier().unwrap();
        }
    });
}

#[test]
fn a_timed_read_notices_what_was_not_written() {
    let spec = ShapeSpec::Strided(Strided { piece_bytes: 64, pieces: 2, steps: 3 });
    let read = KernelJob::Read { side: KernelSide::Pwrite };
    for (place, step) in [(128, 1), (2 * 128 + 127, 2)] {
        on_all(&spec, 1, |rank| {
            rank.run(&KernelJob::Write { side: KernelSide::Pwrite, sweeps: 0 }).unwrap();
            rank.run(&read).unwrap();
            let mut bytes = std::fs::read(&rank.params.plain).unwrap();
            bytes[place] ^= 1;
            std::fs::write(&rank.params.plain, bytes).unwrap();
            let error = rank.run(&read).unwrap_err().to_string();
            assert_eq!(error, format!("pwrite: step {step} read what was not written there"));
        });
    }
}

#[test]
fn verifying_finds_one_wrong_byte_and_tells_all() {
    let spec = ShapeSpec::Tile(Tile { row_bytes: 16, total_bytes: 64, grid: None, dumps: 1 });
    on_all(&spec, 1, |rank| {
        rank.run(&KernelJob::Verify { side: KernelSide::Memory }).unwrap();
        rank.image = Some(MemoryImage::new(rank.part_view.span_bytes, 1));
        let error = rank.check_all(KernelSide::Memory).unwrap_err().to_string();
        assert_eq!(error, "memory: byte 0 of the file, in step 0, is not what was written there");
    });
}
