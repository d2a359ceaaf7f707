//! Properties of every shape: ranks' views of each step are disjoint, stay in its span, and tile it where the shape is dense; and the
//! numbers that the benchmarks' definitions give.

use pario::view::{OverlapAnswer, ViewShare, disjoint, tiles};

use super::*;

const STEPS: u64 = 40_000_000;

fn btio(class: BtioClass, run_cells: Option<u64>) -> ShapeSpec {
    ShapeSpec::Btio(Btio { class, dumps: 2, run_cells })
}

fn views(spec: &ShapeSpec, ranks: u64) -> Vec<(RankPart, View)> {
    let part = |rank| {
        let part = spec.part(rank, ranks).unwrap();
        let view = part.view().unwrap();
        (part, view)
    };
    (0..ranks).map(part).collect()
}

#[track_caller]
fn check_shape(spec: &ShapeSpec, ranks: u64) {
    spec.check(ranks).unwrap();
    let views = views(spec, ranks);
    let span = spec.span_bytes(ranks);
    let mut data = 0;
    for step in 0..spec.steps().min(2) {
        let range = step * span..(step + 1) * span;
        let shares: Vec<ViewShare<'_>> =
            views.iter().map(|(part, view)| ViewShare { view, stream: part.stream(step) }).collect();
        let is_dense = spec.is_dense();
        let answer = if is_dense { tiles(&shares, range.clone(), STEPS) } else { disjoint(&shares, STEPS) };
        assert_eq!(answer, OverlapAnswer::Yes, "{spec:?}, {ranks} ranks, step {step}");
        for (part, view) in &views {
            let stream = part.stream(step);
            let (first, last) = (view.file_offset(stream.start), view.file_offset(stream.end - 1));
            assert!(first.is_some_and(|at| range.contains(&at)), "{spec:?} {first:?} {range:?}");
            assert!(last.is_some_and(|at| range.contains(&at)), "{spec:?} {last:?} {range:?}");
            data += part.step_bytes;
            if let Some(memory) = &part.memory {
                assert_eq!(memory.elements.bytes(), part.step_bytes);
                let end = memory.elements.bounds().end + memory.origin(memory.origins as u64 - 1) as i64;
                assert!(end <= memory.bytes as i64, "{spec:?}: {end} of {}", memory.bytes);
            }
        }
    }
    assert_eq!(data * spec.steps() / spec.steps().min(2), spec.data_bytes(ranks), "{spec:?}");
}

#[test]
fn btio_tiles_its_dumps_for_every_class_and_square() {
    for class in [BtioClass::S, BtioClass::W, BtioClass::A, BtioClass::B, BtioClass::C] {
        for ranks in [1, 4, 9, 16, 25] {
            check_shape(&btio(class, None), ranks);
        }
    }
    for (class, ranks) in
        [(BtioClass::A, 4), (BtioClass::A, 9), (BtioClass::W, 4), (BtioClass::S, 4), (BtioClass::B, 16)]
    {
        check_shape(&btio(class, Some(6)), ranks);
        check_shape(&btio(class, Some(1)), ranks);
    }
}

#[test]
fn btio_has_the_granularity_of_the_papers_table_2() {
    let table =
        [(9, 1360, 2160), (16, 1000, 1640), (25, 800, 1280), (36, 680, 1080), (49, 600, 920), (64, 480, 800)];
    for (ranks, class_b, class_c) in table {
        for (class, bytes) in [(BtioClass::B, class_b), (BtioClass::C, class_c)] {
            let spec = btio(class, None);
            let (part, view) = &views(&spec, ranks)[0];
            let longest = view.extents(part.stream(0)).map(|extent| extent.bytes).max();
            // Where cells do not divide evenly, boxes differ by one cell and the table has the smaller or the larger.
            assert!(
                longest.is_some_and(|longest| longest.abs_diff(bytes) <= CELL_BYTES),
                "{ranks} {longest:?} {bytes}"
            );
        }
    }
}

#[test]
fn btio_class_a_on_four_has_runs_of_1280_and_240_bytes() {
    // If the end of a row and the start of the next belong to the same box, they join.
    let short = 32 * (5 * 32) + 32 * (6 * 32 - 31);
    for (run_cells, usual, extents) in [(None, 1280, 2 * 32 * 32), (Some(6), 240, short)] {
        let spec = btio(BtioClass::A, run_cells);
        let (part, view) = &views(&spec, 4)[1];
        let runs: Vec<u64> = view.extents(part.stream(0)).map(|extent| extent.bytes).collect();
        assert_eq!(runs.len(), extents);
        assert!(4 * extents <= 5 * runs.iter().filter(|run| **run == usual).count(), "{usual}");
    }
    assert_eq!(btio(BtioClass::A, None).span_bytes(4) * 40, 419_430_400);
}

#[test]
fn btio_boxes_lie_on_diagonals() {
    let shape = Btio { class: BtioClass::S, dumps: 1, run_cells: None };
    for rank in 0..9 {
        let boxes = shape.boxes(rank, 9);
        for axis in 0..3 {
            let mut planes: Vec<u64> = boxes.iter().map(|cells| cells.at[axis]).collect();
            planes.sort_unstable();
            assert_eq!(planes, [0, 1, 2], "rank {rank} has one box in every plane of axis {axis}");
        }
    }
}

#[test]
fn tile_has_the_sizes_of_the_papers_table_3() {
    let tile = Tile { row_bytes: 4 << 10, total_bytes: 1 << 30, grid: None, dumps: 1 };
    let table = [(4, 64, [2, 2]), (8, 32, [4, 2]), (16, 16, [4, 4]), (32, 8, [8, 4]), (64, 4, [8, 8])];
    for (ranks, rows_ki, grid) in table {
        assert_eq!((tile.rows(ranks), tile.grid(ranks)), (rows_ki << 10, grid));
        assert_eq!(tile.span_bytes(ranks), 1 << 30);
        check_shape(&ShapeSpec::Tile(tile), ranks);
    }
    check_shape(
        &ShapeSpec::Tile(Tile { row_bytes: 100, total_bytes: 70_001, grid: Some([1, 7]), dumps: 2 }),
        7,
    );
}

#[test]
fn flash_takes_blocks_without_guards_out_of_memory() {
    for (edge, guards, ranks) in [(8, 4, 4), (16, 4, 3), (8, 0, 1)] {
        check_shape(&ShapeSpec::Flash(Flash { edge, guards, blocks: 5, checkpoints: 2 }), ranks);
    }
    let spec = ShapeSpec::Flash(Flash { edge: 8, guards: 4, blocks: 2, checkpoints: 1 });
    let memory = spec.part(0, 2).unwrap().memory.unwrap();
    let first = memory.elements.runs(0..8).next().unwrap();
    assert_eq!(first.at, ((4 * 16 + 4) * 16 + 4) * 24 * 8, "behind the guards");
    assert_eq!(memory.origin(25), 8, "step 25 is variable 1 again");
}

#[test]
fn strided_and_subarray_tile_their_steps() {
    for (piece, total, ranks) in [(8 << 10, 64 << 20, 4), (1 << 20, 64 << 20, 4), (24, 1000, 3)] {
        check_shape(&ShapeSpec::Strided(Strided::of(piece, total, ranks)), ranks);
    }
    for (dimensions, edge) in [(3, 20), (4, 12)] {
        for ranks in [1, 2, 4, 6, 8, 12] {
            check_shape(&ShapeSpec::Subarray(Subarray { dimensions, edge, dumps: 2 }), ranks);
        }
    }
    let strided = Strided::of(8 << 10, 512 << 20, 4);
    assert_eq!((strided.pieces, strided.steps), (512, 32));
}

#[test]
fn irregular_pieces_keep_their_distance_and_never_touch() {
    for ranks in [1, 2, 4, 8, 11] {
        for pattern in [GapPattern::Vector4, GapPattern::Gaps { seed: 7 }] {
            check_shape(&ShapeSpec::Irregular(Irregular { pattern, extents: 300, steps: 3 }), ranks);
        }
    }
    let shape = Irregular { pattern: GapPattern::Gaps { seed: 1 }, extents: 20_000, steps: 1 };
    for rank in 0..4 {
        let places = shape.offsets(1, rank, 4);
        let gaps: Vec<u64> = places.windows(2).map(|pair| (pair[1] - pair[0] - 4).cast_unsigned()).collect();
        assert!(gaps.iter().all(|gap| irregular::GAP_BYTES.contains(gap)), "{:?}", gaps.iter().max());
        assert!(gaps.iter().max() > Some(&60) && gaps.iter().min() < Some(&8), "the whole range is used");
    }
    assert_ne!(shape.offsets(1, 0, 4), shape.offsets(2, 0, 4), "the seed decides");
}

#[test]
fn views_of_small_pieces_are_small() {
    let bytes = |pattern| {
        let spec = ShapeSpec::Irregular(Irregular { pattern, extents: 175_000, steps: 1 });
        views(&spec, 4)[2].1.encode().unwrap().len()
    };
    assert!(bytes(GapPattern::Vector4) < 200);
    let gaps = bytes(GapPattern::Gaps { seed: 1 });
    assert!(gaps <= 2 * 175_000, "{gaps}");
}

#[track_caller]
fn check_refused(spec: &ShapeSpec, ranks: u64, naming: &str) {
    let said = spec.check(ranks).unwrap_err().to_string();
    assert!(said.contains(naming) && !said.contains('\n'), "{said}");
}

#[test]
fn shapes_that_cannot_be_are_refused_in_one_line() {
    check_refused(&btio(BtioClass::A, None), 3, "such as 1 or 4");
    check_refused(&btio(BtioClass::A, None), 0, "--procs 0");
    check_refused(&btio(BtioClass::S, None), 169, "only 12 planes");
    check_refused(&btio(BtioClass::S, Some(12)), 4, "--run-bytes 480");
    check_refused(&btio(BtioClass::S, Some(0)), 4, "--run-bytes 0");
    check_refused(&ShapeSpec::Btio(Btio { class: BtioClass::S, dumps: 0, run_cells: None }), 4, "one step");
    check_refused(&ShapeSpec::Btio(Btio { class: BtioClass::C, dumps: 1 << 40, run_cells: None }), 4, "1TiB");
    check_refused(
        &ShapeSpec::Tile(Tile { row_bytes: 64, total_bytes: 128, grid: None, dumps: 1 }),
        4,
        "--size 128",
    );
    check_refused(
        &ShapeSpec::Tile(Tile { row_bytes: 1, total_bytes: 99, grid: Some([2, 3]), dumps: 1 }),
        4,
        "2x3",
    );
    check_refused(&ShapeSpec::Flash(Flash { edge: 9, guards: 4, blocks: 1, checkpoints: 1 }), 4, "--block 9");
    check_refused(
        &ShapeSpec::Flash(Flash { edge: 8, guards: 4, blocks: 0, checkpoints: 1 }),
        4,
        "--blocks 0",
    );
    check_refused(&ShapeSpec::Strided(Strided::of(4, 1 << 20, 4)), 4, "--run-bytes 4");
    check_refused(&ShapeSpec::Strided(Strided::of(8 << 10, 1 << 10, 4)), 4, "--size");
    check_refused(&ShapeSpec::Subarray(Subarray { dimensions: 2, edge: 8, dumps: 1 }), 4, "--dimensions 2");
    check_refused(&ShapeSpec::Subarray(Subarray { dimensions: 3, edge: 1, dumps: 1 }), 8, "--edge 1");
    check_refused(
        &ShapeSpec::Subarray(Subarray { dimensions: 3, edge: 8, dumps: 1 }),
        343,
        "leaves a process",
    );
    let few = Irregular { pattern: GapPattern::Vector4, extents: 1, steps: 1 };
    check_refused(&ShapeSpec::Irregular(few), 4, "--extents 1");
}
