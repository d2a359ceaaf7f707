//! Views that go back and forth, put into file order, against every byte written out.

use std::collections::HashMap;

use proptest::prelude::*;

use super::specs::{Mode, any_spec};
use crate::ordered::MergeLimits;
use crate::{Datatype, Direction, ORDERED_PIECES_MAX, Ordered, View, ViewAccess};

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

/// File offset of each byte of a range.
fn file_offsets(view: &View, stream: std::ops::Range<u64>) -> Vec<u64> {
    view.extents(stream).flat_map(|extent| extent.file_offset..extent.file_offset + extent.bytes).collect()
}

/// What a byte of the file holds.
fn content(offset: u64) -> u8 {
    u8::try_from(offset * 31 % 251).unwrap()
}

/// Compares the parts of a range with the range, read and written through them.
fn check(
    view: &View,
    stream: std::ops::Range<u64>,
    parts: &[Ordered],
    file_end: u64,
) -> Result<(), TestCaseError> {
    let expected = file_offsets(view, stream.clone());
    let (mut at, mut file) = (stream.start, HashMap::new());
    for part in parts {
        prop_assert_eq!(part.part.start, at);
        prop_assert_eq!(part.view.direction(), Direction::Increasing);
        let mine = &expected[usize::try_from(at - stream.start).unwrap()..]
            [..usize::try_from(part.part.end - at).unwrap()];
        at = part.part.end;
        let ordered = file_offsets(&part.view, part.stream.clone());
        prop_assert!(ordered.iter().all(|place| mine.contains(place)) && ordered.len() <= mine.len());
        let bytes: Vec<u8> = ordered.iter().map(|place| content(*place)).collect();
        let mut target = vec![0; mine.len()];
        prop_assert_eq!(part.scatter(&bytes, &mut target), mine.len());
        prop_assert!(target.iter().zip(mine).all(|(byte, place)| *byte == content(*place)));
        // A file that ends in the middle.
        let there = ordered.iter().filter(|place| **place < file_end).count();
        let before = mine.iter().position(|place| file_end <= *place).unwrap_or(mine.len());
        let mut target = vec![0; mine.len()];
        prop_assert_eq!(part.scatter(&bytes[..there], &mut target), before);
        prop_assert!(target[..before].iter().zip(mine).all(|(byte, place)| *byte == content(*place)));
        let source: Vec<u8> = mine.iter().map(|place| content(*place)).collect();
        file.extend(ordered.into_iter().zip(part.gather(&source).iter().copied()));
    }
    prop_assert_eq!(at, stream.end);
    prop_assert!(file.iter().all(|(place, byte)| *byte == content(*place)));
    prop_assert!(expected.iter().all(|place| file.contains_key(place)));
    let mut once = std::collections::HashSet::new();
    let twice: Vec<u64> = expected.iter().copied().filter(|place| !once.insert(*place)).collect();
    prop_assert_eq!(view.shown_twice(stream.clone()).is_some(), !twice.is_empty());
    prop_assert!(view.shown_twice(stream.clone()).is_none_or(|place| twice.contains(&place)));
    let span = expected.iter().min().zip(expected.iter().max()).map(|(first, last)| *first..*last + 1);
    prop_assert_eq!(view.span(stream), span);
    Ok(())
}

proptest! {
    // About half of the random types are no legal views.
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn interleaved_repetitions_come_in_file_order(
        spec in any_spec(&[1, 2, 3]), displacement in 0..50i64, share in 1..5i64,
        stream in (0..100u64, 1..300u64), limits in (1..40usize, 1..60u64), file_end in 0..400u64,
    ) {
        let made = spec.make(Mode::Increasing);
        prop_assume!(made.as_ref().is_some_and(|(_, map)| 0 < map.size()));
        let (datatype, map) = made.unwrap();
        let filetype = datatype.resized(0, (map.true_ub() * share / 4).max(1)).unwrap();
        let view = View::new(displacement, &byte(), &filetype, ViewAccess::Write).unwrap();
        let stream = stream.0..stream.0 + stream.1;
        let limits = MergeLimits { pieces: limits.0, bytes: limits.1 };
        let parts: Vec<Ordered> = view.in_order(stream.clone()).limited(limits).map(Result::unwrap).collect();
        check(&view, stream.clone(), &parts, file_end)?;
        let parts: Vec<Ordered> = view.in_order(stream.clone()).map(Result::unwrap).collect();
        prop_assert!(parts.len() <= 1);
        check(&view, stream, &parts, file_end)?;
    }

    #[test]
    fn what_is_shown_twice_is_read_once(
        spec in any_spec(&[1, 2, 4]), stream in (0..50u64, 1..200u64), limits in (1..40usize, 1..60u64),
        file_end in 0..200u64,
    ) {
        let made = spec.make(Mode::Anything);
        prop_assume!(made.as_ref().is_some_and(|(_, map)| 0 < map.size()));
        let view = View::new(7, &byte(), &made.unwrap().0, ViewAccess::Read);
        prop_assume!(view.is_ok());
        let (view, stream) = (view.unwrap(), stream.0..stream.0 + stream.1);
        let limits = MergeLimits { pieces: limits.0, bytes: limits.1 };
        let parts: Vec<Ordered> = view.in_order(stream.clone()).limited(limits).map(Result::unwrap).collect();
        check(&view, stream, &parts, file_end)?;
    }
}

/// Bytes 0 and 3, repeated every 2.
fn woven() -> View {
    let filetype = Datatype::hindexed(&[1, 1], &[0, 3], &byte()).unwrap().resized(0, 2).unwrap();
    View::new(0, &byte(), &filetype, ViewAccess::Write).unwrap()
}

#[test]
fn what_interleaves_without_gaps_is_a_few_pieces() {
    let view = woven();
    let parts: Vec<Ordered> = view.in_order(0..64).map(Result::unwrap).collect();
    let [part] = &parts[..] else { panic!("{} parts", parts.len()) };
    let extents: Vec<(u64, u64)> =
        part.view.extents(part.stream.clone()).map(|e| (e.file_offset, e.bytes)).collect();
    assert_eq!(extents, [(0, 1), (2, 62), (65, 1)]);
    assert_eq!(view.span(0..64), Some(0..66));
    assert_eq!(view.span(1..4), Some(2..6));
}

#[test]
fn parts_far_along_a_stream_have_one_shape() {
    let view = woven();
    let bytes = 9 * ORDERED_PIECES_MAX as u64;
    let shapes = view.in_order(0..bytes).map(|part| part.unwrap().view.encode_shape().unwrap().0);
    let shapes: Vec<Vec<u8>> = shapes.collect();
    assert!(8 < shapes.len() && shapes[1..shapes.len() - 1].iter().all(|shape| *shape == shapes[0]));
    assert_eq!(view.shown_twice(0..bytes), None);
}

#[test]
fn long_repetitions_are_parts_as_they_are_and_of_one_shape() {
    // A column of many elements; the next one begins beside it.
    let column = Datatype::vector(100_000, 1, 16, &byte()).unwrap().resized(0, 1).unwrap();
    let view = View::new(40, &byte(), &column, ViewAccess::Write).unwrap();
    assert_eq!(view.direction(), Direction::Mixed);
    let parts: Vec<Ordered> = view.in_order(50..1_500_000).map(Result::unwrap).collect();
    assert_eq!(parts.len(), 15);
    assert!(parts.iter().all(Ordered::is_unchanged));
    let shapes: Vec<Vec<u8>> = parts.iter().map(|part| part.view.encode_shape().unwrap().0).collect();
    assert!(shapes.iter().all(|shape| *shape == shapes[0]));
    assert_eq!(parts[1].view.file_offset(parts[1].stream.start), Some(41));
    assert_eq!(view.shown_twice(0..1_600_000), None);
    assert!(view.shown_twice(0..1_700_000).is_some());
}

#[test]
fn an_increasing_view_is_its_own_order() {
    let view = View::new(3, &byte(), &byte().resized(0, 4).unwrap(), ViewAccess::Write).unwrap();
    let parts: Vec<Ordered> = view.in_order(5..5000).map(Result::unwrap).collect();
    assert_eq!((parts.len(), parts[0].stream.clone()), (1, 5..5000));
    assert!(parts[0].is_unchanged() && view.in_order(5..5).next().is_none());
}
