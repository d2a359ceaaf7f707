//! How fast views are walked, extent by extent, what a server's slice of one costs, and how fast an irregular one becomes bytes and is read:
//! `cargo bench --manifest-path benches/Cargo.toml --bench walk`.
//!
//! Throughput is in extents. A slice is of one server of 1, 4 and 16: it should cost what it contains, not what the view has in all.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pario_core::{Layout, ServerIndex};
use pario_view::{Datatype, View, ViewAccess};

const EXTENTS: u64 = 1_000_000;
const PIECE: u64 = 4;
const STRIDE: u64 = 40;
const STRIPE_BYTES: u64 = 256 << 10;

fn vector() -> View {
    let byte = Datatype::elementary(1).expect("a byte");
    let count = i64::try_from(EXTENTS).expect("a count");
    let filetype = Datatype::hvector(count, PIECE as i64, STRIDE as i64, &byte).expect("a vector");
    View::new(0, &byte, &filetype, ViewAccess::Write).expect("a view")
}

/// Displacements with random gaps of 4 to 64 bytes, always the same ones.
fn gaps() -> View {
    let byte = Datatype::elementary(1).expect("a byte");
    let (mut seed, mut at) = (20_090_701_u64, 0i64);
    let place = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += PIECE as i64 + 4 + i64::try_from((seed >> 33) % 61).expect("below 61");
        at
    };
    let places: Vec<i64> = (0..EXTENTS).map(place).collect();
    let filetype = Datatype::hindexed_block(PIECE as i64, &places, &byte).expect("a list");
    View::new(0, &byte, &filetype, ViewAccess::Write).expect("a view")
}

fn walk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk");
    group.throughput(Throughput::Elements(EXTENTS)).sample_size(20);
    for (name, view) in [("vector", vector()), ("gaps", gaps())] {
        let count = view.extents(0..EXTENTS * PIECE).count();
        assert_eq!(count as u64, EXTENTS, "{name}: pieces do not touch");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let extents = black_box(&view).extents(0..EXTENTS * PIECE);
                extents.fold(0u64, |sum, extent| sum.wrapping_add(extent.file_offset ^ extent.bytes))
            });
        });
    }
    group.finish();
}

fn slice(criterion: &mut Criterion) {
    let view = vector();
    let mut group = criterion.benchmark_group("slice");
    group.sample_size(20);
    for servers in [1u16, 4, 16] {
        let layout = Layout::new(STRIPE_BYTES, servers, 0, servers).expect("a layout");
        let parts = || view.on_server(&layout, ServerIndex(0), 0..EXTENTS * PIECE);
        group.throughput(Throughput::Elements(parts().count() as u64));
        group.bench_function(BenchmarkId::from_parameter(servers), |bencher| {
            bencher.iter(|| parts().fold(0u64, |sum, part| sum.wrapping_add(part.local.0 ^ part.bytes)));
        });
    }
    group.finish();
}

fn travel(criterion: &mut Criterion) {
    let view = gaps();
    let bytes = view.encode().expect("bytes");
    let mut group = criterion.benchmark_group("travel");
    group.throughput(Throughput::Elements(EXTENTS)).sample_size(20);
    group.bench_function("encode", |bencher| bencher.iter(|| black_box(&view).encode().expect("bytes")));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| View::decode(black_box(&bytes)).expect("a view"))
    });
    group.finish();
}

criterion_group!(benches, walk, slice, travel);
criterion_main!(benches);
