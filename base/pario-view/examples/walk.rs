//! How fast views are walked, sought and sliced: `cargo run --release -p pario-view --example walk`.

#![expect(clippy::print_stdout, reason = "a measurement is for reading")]
#![expect(clippy::disallowed_methods, reason = "this measures the machine's own time")]

use std::hint::black_box;
use std::time::Instant;

use pario_core::{Layout, ServerIndex};
use pario_view::{ArrayOrder, Datatype, SubarrayDimension, TypeError, View, ViewAccess, ViewError};

const EXTENTS: usize = 20_000_000;

fn main() -> Result<(), ViewError> {
    let byte = Datatype::elementary(1)?;
    let vector = Datatype::hvector(1 << 30, 4, 40, &byte)?;
    let listed = Datatype::hindexed_block(4, &file_offsets(1_000_000), &byte)?;
    let places = file_offsets(1_000_000);
    let lengths: Vec<i64> = places.iter().map(|at| 1 + at % 4).collect();
    let runs = Datatype::hindexed(&lengths, &places, &byte)?;
    let views = [
        ("vector, 4 B of 40", vector),
        ("rows of 16 in a cube", cube(16)?),
        ("list, equal lengths", listed),
        ("list, different lengths", runs),
    ];
    for (name, filetype) in &views {
        ship(name, &byte, filetype)?;
        let view = View::new(0, &byte, filetype, ViewAccess::Write)?;
        walk(name, &view);
        seek(name, &view);
        slice(name, &view);
    }
    Ok(())
}

/// Rows of 8 bytes, `rows` to a plane.
fn cube(rows: i64) -> Result<Datatype, TypeError> {
    let part = |size, subsize| SubarrayDimension { size, subsize, start: 0 };
    let dimensions = [part(4096, 2048), part(4 * rows, rows), part(64, 1)];
    Datatype::subarray(&dimensions, ArrayOrder::C, &Datatype::elementary(8)?)
}

fn file_offsets(count: i64) -> Vec<i64> {
    let mut seed = 1u64;
    let mut at = 0;
    let step = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += 8 + i64::from((seed >> 60) as u8);
        at
    };
    (0..count).map(step).collect()
}

fn ship(name: &str, byte: &Datatype, filetype: &Datatype) -> Result<(), ViewError> {
    let started = Instant::now();
    let view = View::new(0, byte, filetype, ViewAccess::Write)?;
    let made = started.elapsed();
    let bytes = view.encode()?;
    let encoded = started.elapsed() - made;
    assert!(View::decode(&bytes).is_ok(), "what was encoded decodes");
    let decoded = started.elapsed() - made - encoded;
    println!("{name:24} make {made:.1?}, encode {encoded:.1?}, decode {decoded:.1?}, {} bytes", bytes.len());
    Ok(())
}

fn walk(name: &str, view: &View) {
    let started = Instant::now();
    let (mut count, mut sum) = (0u64, 0u64);
    for extent in view.extents(0..view.stream_bytes()).take(EXTENTS) {
        sum = sum.wrapping_add(extent.file_offset ^ extent.bytes);
        count += 1;
    }
    black_box(sum);
    report(name, "walk", count, started);
}

fn seek(name: &str, view: &View) {
    let span = view.stream_bytes().min(1 << 40);
    let started = Instant::now();
    let count = 1_000_000u64;
    for number in 0..count {
        let stream = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % span;
        let file = view.file_offset(stream).unwrap_or(0);
        black_box(view.stream_at_or_after(file));
    }
    report(name, "seek there and back", count, started);
}

fn slice(name: &str, view: &View) {
    let Ok(layout) = Layout::new(64 << 10, 4, 0, 4) else { return };
    let started = Instant::now();
    let (mut count, mut sum) = (0u64, 0u64);
    for part in view.on_server(&layout, ServerIndex(2), 0..view.stream_bytes()).take(EXTENTS / 4) {
        sum = sum.wrapping_add(part.local.0 ^ part.stream_offset);
        count += 1;
    }
    black_box(sum);
    report(name, "part on one server of 4", count, started);
}

fn report(name: &str, what: &str, count: u64, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let millions = count as f64 / seconds / 1e6;
    println!("{name:24} {what:24} {millions:8.1} million/s ({count} in {seconds:.3} s)");
}
