//! Views: legality, both directions of the map, slices by range and by server.

use pario_core::{Layout, ServerIndex};
use proptest::prelude::*;

use super::specs::{Mode, any_spec};
use super::typemap::{StreamBit, Typemap, bits, inside, joined, written_out};
use crate::{ByteRun, Datatype, Direction, View, ViewAccess, ViewError};

/// Repetitions of a file type that are written out.
const TILES: i64 = 4;

/// A view with the start of its stream written out.
#[derive(Debug)]
struct WrittenView {
    view: View,
    runs: Vec<ByteRun>,
    bytes: u64,
}

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

fn written(view: View, map: &Typemap, displacement: i64) -> WrittenView {
    let runs = written_out(map, displacement, TILES);
    WrittenView { view, bytes: map.size() * TILES.cast_unsigned(), runs }
}

/// Verdict of the standard on a file type.
fn verdict(map: &Typemap, access: ViewAccess) -> Result<(), ViewError> {
    let which = "file type";
    if map.true_lb() < 0 {
        return Err(ViewError::NegativeOffset { which, displacement: map.true_lb() });
    }
    if !map.is_nondecreasing() {
        return Err(ViewError::Decreasing { which });
    }
    if access == ViewAccess::Write && map.overlaps() {
        return Err(ViewError::Overlap { which });
    }
    if 0 < map.size() && map.extent() <= 0 {
        return Err(ViewError::Extent { extent: map.extent() });
    }
    Ok(())
}

/// Compares every query of a view about the written part of its stream.
fn check(
    case: &WrittenView,
    stream: std::ops::Range<u64>,
    file: std::ops::Range<u64>,
) -> Result<(), TestCaseError> {
    let WrittenView { view, runs, bytes } = case;
    let stream = stream.start.min(*bytes)..stream.end.min(*bytes);
    let mut offset = stream.start;
    let walked: Vec<StreamBit> = view
        .extents(stream.clone())
        .map(|extent| {
            offset += extent.bytes;
            (offset - extent.bytes, extent.file_offset.cast_signed(), extent.bytes)
        })
        .collect();
    let expected = bits(runs, stream.clone());
    prop_assert_eq!(&walked, &expected);

    let sliced = view.slice(stream.clone(), file.clone());
    let sliced: Vec<StreamBit> =
        sliced.map(|part| (part.stream_offset, part.file_offset.cast_signed(), part.bytes)).collect();
    let cut = inside(&expected, file.start.cast_signed()..file.end.cast_signed());
    prop_assert_eq!(view.bytes_in(stream, file), cut.iter().map(|bit| bit.2).sum::<u64>());
    prop_assert_eq!(joined(sliced), joined(cut));
    check_inverse(case)
}

fn check_inverse(case: &WrittenView) -> Result<(), TestCaseError> {
    let WrittenView { view, runs, bytes } = case;
    let all = bits(runs, 0..*bytes);
    let places: Vec<(u64, u64)> = all
        .iter()
        .flat_map(|(stream, at, bytes)| (0..*bytes).map(move |i| (stream + i, at.cast_unsigned() + i)))
        .collect();
    for (stream, file) in &places {
        prop_assert_eq!(view.file_offset(*stream), Some(*file));
    }
    let Some(last) = places.iter().map(|place| place.1).max() else {
        prop_assert_eq!(view.stream_bytes(), 0);
        prop_assert_eq!((view.file_offset(0), view.stream_at_or_after(0)), (None, None));
        return Ok(());
    };
    // The written-out typemap answers every query within it.
    let mut first_at = std::collections::HashMap::new();
    for (stream, file) in &places {
        first_at.entry(*file).or_insert(*stream);
    }
    let step = last / 300 + 1;
    for file in (0..=last).step_by(usize::try_from(step).unwrap()) {
        let after = places.iter().find(|place| file <= place.1).map(|place| place.0);
        prop_assert_eq!(view.stream_at_or_after(file), after, "at or after {}", file);
        if view.direction() == Direction::Increasing {
            prop_assert_eq!(view.stream_offset(file), first_at.get(&file).copied(), "at {}", file);
        }
    }
    Ok(())
}

fn check_servers(
    case: &WrittenView,
    layout: &Layout,
    stream: std::ops::Range<u64>,
) -> Result<(), TestCaseError> {
    let WrittenView { view, runs, bytes } = case;
    let stream = stream.start.min(*bytes)..stream.end.min(*bytes);
    let expected = bits(runs, stream.clone());
    for server in (0..layout.total() + 1).map(ServerIndex) {
        let mut cut: Vec<StreamBit> = vec![];
        for (at, place, bytes) in &expected {
            let start = place.cast_unsigned();
            for piece in layout.pieces_on(server, start..start + bytes) {
                cut.push((at + piece.file_offset - start, piece.file_offset.cast_signed(), piece.bytes));
            }
        }
        let mut parts = vec![];
        for part in view.on_server(layout, server, stream.clone()) {
            prop_assert_eq!(layout.locate(part.file_offset), (server, part.local));
            prop_assert!(part.file_offset % layout.stripe_bytes() + part.bytes <= layout.stripe_bytes());
            parts.push((part.stream_offset, part.file_offset.cast_signed(), part.bytes));
        }
        let rows = view.rows_on_server(layout, server, stream.clone());
        let of_rows = rows.flat_map(|row| (0..row.count).map(move |number| row.part(number)));
        prop_assert!(of_rows.eq(view.on_server(layout, server, stream.clone())), "rows are the same parts");
        let sum = cut.iter().map(|bit| bit.2).sum::<u64>();
        prop_assert_eq!(view.bytes_on_server(layout, server, stream.clone()), sum);
        prop_assert_eq!(view.touches_server(layout, server, stream.clone()), 0 < sum);
        prop_assert_eq!(joined(parts), joined(cut));
    }
    Ok(())
}

fn any_layout() -> impl Strategy<Value = Layout> {
    (1u16..5, 0u16..5, 0u16..3, 1u64..3).prop_map(|(count, first, extra, stripe)| {
        let total = count + extra;
        Layout::new(stripe * 4096, count, first % total, total).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn increasing_views_map_both_ways(
        spec in any_spec(&[1, 2, 3, 4, 8]), displacement in 0..50i64, squeeze in -30..10i64,
        stream in (0..100u64, 0..400u64), file in (0..300u64, 0..400u64),
    ) {
        let made = spec.make(Mode::Increasing);
        prop_assume!(made.is_some());
        let (datatype, map) = made.unwrap();
        // Some repetitions interleave.
        let extent = if squeeze < -15 { (map.extent() + squeeze).max(1) } else { map.extent() + squeeze.max(0) };
        let (datatype, map) = (datatype.resized(0, extent).unwrap(), map.resized(0, extent));
        let view = View::new(displacement, &byte(), &datatype, ViewAccess::Write).unwrap();
        let case = written(view, &map, displacement);
        check(&case, stream.0..stream.0 + stream.1, file.0..file.0 + file.1)?;
    }

    #[test]
    fn legality_is_what_the_typemap_says(
        spec in any_spec(&[1, 2, 4]), write in any::<bool>(),
        stream in (0..50u64, 0..200u64), file in (0..100u64, 0..200u64),
    ) {
        let made = spec.make(Mode::Anything);
        prop_assume!(made.is_some());
        let (datatype, map) = made.unwrap();
        let access = if write { ViewAccess::Write } else { ViewAccess::Read };
        let view = View::new(7, &byte(), &datatype, access);
        prop_assert_eq!(view.as_ref().err().copied(), verdict(&map, access).err());
        if let Ok(view) = view {
            let case = written(view, &map, 7);
            check(&case, stream.0..stream.0 + stream.1, file.0..file.0 + file.1)?;
        }
    }

    #[test]
    fn slices_by_server_are_the_blocks_of_the_server(
        spec in any_spec(&[1, 700, 4096, 5000]), displacement in 0..9000i64, squeeze in -30..10i64,
        layout in any_layout(), stream in (0..30_000u64, 0..200_000u64),
    ) {
        let made = spec.make(Mode::Increasing);
        prop_assume!(made.is_some());
        let (datatype, map) = made.unwrap();
        let extent = if squeeze < -20 { (map.extent() * 2 / 3).max(1) } else { map.extent() + squeeze.max(0) * 999 };
        let (datatype, map) = (datatype.resized(0, extent).unwrap(), map.resized(0, extent));
        let view = View::new(displacement, &byte(), &datatype, ViewAccess::Write).unwrap();
        let case = written(view, &map, displacement);
        check_servers(&case, &layout, 0..u64::MAX)?;
        check_servers(&case, &layout, stream.0..stream.0 + stream.1)?;
    }
}

#[test]
fn overlaps_and_equal_displacements_can_be_read() {
    let int = Datatype::elementary(4).unwrap();
    let overlapping = Datatype::hvector(3, 1, 2, &int).unwrap();
    let error = View::new(0, &int, &overlapping, ViewAccess::Write).unwrap_err();
    assert_eq!(error, ViewError::Overlap { which: "file type" });
    let view = View::new(0, &int, &overlapping, ViewAccess::Read).unwrap();
    assert_eq!(view.direction(), Direction::Mixed);
    let offsets: Vec<u64> = view.extents(0..12).map(|extent| extent.file_offset).collect();
    assert_eq!(offsets, [0, 2, 4]);
    let parts: Vec<u64> = view.slice(0..12, 3..5).map(|part| part.stream_offset).collect();
    assert_eq!(parts, [3, 5, 8]);
}

#[test]
fn a_long_item_reaches_behind_the_short_ones_that_follow_it() {
    // 8 bytes at 0, then single bytes inside them: displacements do not decrease, ends do.
    let lengths = [8, 1, 1, 1];
    let filetype = Datatype::hindexed(&lengths, &[0, 2, 3, 5], &byte()).unwrap();
    assert!(View::new(0, &byte(), &filetype, ViewAccess::Read).is_err(), "as single bytes they decrease");
    let member = |displacement, bytes| crate::StructMember {
        count: 1,
        displacement,
        datatype: Datatype::elementary(bytes).unwrap(),
    };
    let filetype = Datatype::structure(&[member(0, 8), member(2, 1), member(3, 1), member(5, 1)]).unwrap();
    let view = View::new(0, &byte(), &filetype, ViewAccess::Read).unwrap();
    assert_eq!(view.stream_at_or_after(6), Some(6));
    let parts: Vec<_> = view.slice(0..11, 5..7).map(|part| (part.stream_offset, part.bytes)).collect();
    assert_eq!(parts, [(5, 2), (10, 1)]);
}

#[test]
fn illegal_views_get_the_error_that_mpi_names() {
    use crate::ErrorClass;
    let (int, byte) = (Datatype::elementary(4).unwrap(), byte());
    let class = |displacement: i64, etype: &Datatype, filetype: &Datatype| {
        View::new(displacement, etype, filetype, ViewAccess::Read).map(|_| ()).map_err(|error| error.class())
    };
    assert_eq!(class(-1, &int, &int), Err(ErrorClass::Arg));
    assert_eq!(class(0, &int, &byte), Err(ErrorClass::Type));
    assert_eq!(class(0, &int, &Datatype::vector(2, 1, -1, &int).unwrap()), Err(ErrorClass::Type));
    assert_eq!(class(0, &int, &int.resized(0, 0).unwrap()), Err(ErrorClass::Type));
    assert_eq!(class(i64::MAX, &int, &int), Err(ErrorClass::ValueTooLarge));
    let empty = Datatype::contiguous(0, &int).unwrap();
    assert_eq!(class(0, &empty, &int), Err(ErrorClass::Type));
    assert_eq!(class(0, &int, &empty), Ok(()));
}
