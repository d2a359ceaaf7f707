//! Views as bytes: pinned, small, the same after a journey, and harmless when they are wrong.

use pario_core::{Layout, ServerIndex};
use proptest::prelude::*;

use super::specs::{Mode, any_spec};
use crate::{ArrayOrder, Datatype, SubarrayDimension, View, ViewAccess, ViewId, ViewShare, disjoint};

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

fn view(displacement: i64, filetype: &Datatype) -> View {
    View::new(displacement, &byte(), filetype, ViewAccess::Write).unwrap()
}

fn gaps(count: usize, mut seed: u64) -> Vec<i64> {
    let mut at = 0;
    let step = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at += 4 + 4 + (seed >> 33).cast_signed() % 61;
        at
    };
    (0..count).map(step).collect()
}

/// Calls every query of a view on a small range.
fn exercise(view: &View) {
    let layout = Layout::new(4096, 3, 1, 4).unwrap();
    let end = view.stream_bytes();
    for start in [0, end / 3, end.saturating_sub(100)] {
        let stream = start..start.saturating_add(100_000);
        let first = view.extents(stream.clone()).take(50).map(|extent| extent.file_offset).min();
        let from = first.unwrap_or(0);
        view.slice(stream.clone(), from..from.saturating_add(5000)).take(50).for_each(drop);
        for server in layout.servers() {
            view.on_server(&layout, server, stream.clone()).take(50).for_each(drop);
            let rows = view.rows_on_server(&layout, server, stream.clone());
            rows.take(50).map(|row| row.part(row.count - 1)).for_each(drop);
        }
        if let Some(offset) = view.file_offset(start) {
            assert!(view.stream_at_or_after(offset).is_some_and(|stream| stream <= start));
        }
    }
    let _ = disjoint(&[ViewShare::whole(view), ViewShare { view, stream: 10..end / 2 }], 1000);
    assert!(!view.touches_server(&layout, ServerIndex(9), 0..end));
}

#[test]
fn bytes_are_pinned() {
    assert_eq!(View::whole().encode().unwrap(), [1, 0, 1, 2, 1, 0, 0, 1]);
    let vector = Datatype::vector(1000, 4, 64, &byte()).unwrap();
    let vector_bytes = view(5, &vector).encode().unwrap();
    assert_eq!(vector_bytes, [1, 5, 1, 136, 231, 7, 2, 0, 0, 4, 1, 232, 7, 128, 1, 1]);
    let runs = Datatype::indexed(&[2, 1, 3], &[1, 7, 20], &byte()).unwrap();
    assert_eq!(view(0, &runs).encode().unwrap(), [1, 0, 1, 44, 1, 1, 3, 3, 8, 8, 0, 1, 2, 1, 1, 0, 2]);
    let equal = Datatype::indexed_block(2, &[1, 7, 20], &byte()).unwrap();
    assert_eq!(view(0, &equal).encode().unwrap(), [1, 0, 1, 42, 2, 1, 0, 2, 2, 3, 12, 7, 0, 1, 1]);
    let column = Datatype::vector(2, 1, 2, &byte()).unwrap();
    let member = |displacement, datatype: &Datatype| crate::StructMember {
        count: 1,
        displacement,
        datatype: datatype.clone(),
    };
    let mixed = Datatype::structure(&[member(0, &column), member(9, &byte())]).unwrap();
    assert_eq!(
        view(0, &mixed).encode().unwrap(),
        [1, 0, 1, 20, 3, 0, 0, 1, 1, 2, 4, 1, 4, 2, 18, 1, 0, 1, 2]
    );
    let empty = Datatype::contiguous(0, &byte()).unwrap();
    assert_eq!(view(3, &empty).encode().unwrap(), [1, 3, 1, 0, 0]);
}

#[test]
fn a_box_has_one_shape_wherever_it_stands() {
    let at = |row: i64, column: i64, displacement: i64| {
        let dimensions = [
            SubarrayDimension { size: 100, subsize: 4, start: row },
            SubarrayDimension { size: 50, subsize: 8, start: column },
        ];
        let of = Datatype::subarray(&dimensions, ArrayOrder::C, &byte()).unwrap();
        view(displacement, &of).encode_shape().unwrap()
    };
    let (shape, moved) = at(0, 0, 0);
    assert_eq!((at(7, 9, 2048), moved), ((shape.clone(), 2048 + 7 * 50 + 9), 0));
    assert_eq!(at(96, 42, 0), (shape.clone(), 96 * 50 + 42));
    let narrower = [
        SubarrayDimension { size: 100, subsize: 4, start: 0 },
        SubarrayDimension { size: 50, subsize: 7, start: 0 },
    ];
    let narrower = Datatype::subarray(&narrower, ArrayOrder::C, &byte()).unwrap();
    assert_ne!(view(0, &narrower).encode_shape().unwrap().0, shape);
    assert!(View::decode(&shape).unwrap().displaced(u64::MAX).is_err());
    assert!(View::decode(&shape).unwrap().displaced(i64::MAX.cast_unsigned() - 100).is_err());
}

#[test]
fn an_id_is_pinned() {
    assert_eq!(ViewId::of(&[1, 0, 1, 2, 1, 0, 0, 1]).to_string(), "20559ed5f9bb60cd1c02e6161709ef4e");
}

#[test]
fn regular_views_take_bytes() {
    let regular = Datatype::hvector(175_000, 4, 40, &byte()).unwrap();
    assert!(view(0, &regular).encode().unwrap().len() < 24);
    let part = |size, subsize, start| SubarrayDimension { size, subsize, start };
    let dimensions = [part(4096, 512, 1024), part(4096, 512, 512), part(4096, 512, 0), part(5, 5, 0)];
    let double = Datatype::elementary(8).unwrap();
    let cube = Datatype::subarray(&dimensions, ArrayOrder::C, &double).unwrap();
    assert!(view(0, &cube).encode().unwrap().len() < 48);
    // The same offsets given one by one are the same view.
    let listed: Vec<i64> = (0..175_000).map(|number| number * 40).collect();
    let listed = Datatype::hindexed_block(4, &listed, &byte()).unwrap();
    assert_eq!(view(0, &listed).encode(), view(0, &regular).encode());
}

#[test]
fn irregular_views_take_about_a_byte_for_each_piece() {
    let at = gaps(175_000, 42);
    let filetype = Datatype::hindexed_block(4, &at, &byte()).unwrap();
    let bytes = view(0, &filetype).encode().unwrap();
    assert!(bytes.len() < 175_100, "{} bytes", bytes.len());
    let lengths: Vec<i64> = at.iter().map(|at| 1 + at % 4).collect();
    let filetype = Datatype::hindexed(&lengths, &at, &byte()).unwrap();
    let bytes = view(0, &filetype).encode().unwrap();
    assert!(bytes.len() < 350_100, "{} bytes", bytes.len());
    assert_eq!(View::decode(&bytes).unwrap().encode().unwrap(), bytes);
}

#[test]
fn lies_are_refused() {
    #[track_caller]
    fn check(bytes: &[u8], why: &str) {
        assert_eq!(View::decode(bytes).unwrap_err().0, why);
    }
    check(&[], "too short");
    check(&[2, 0, 1, 2, 1, 0, 0, 1], "view of an unknown version");
    check(&[1, 0, 1, 2, 1, 0, 0, 1, 0], "bytes left over");
    check(&[1, 0, 1, 2, 1, 0, 0, 0], "run of nothing");
    check(&[1, 0, 2, 2, 1, 0, 0, 1], "file type is no multiple of its elementary type");
    check(&[1, 0, 0, 2, 1, 0, 0, 1], "file type is no multiple of its elementary type");
    check(&[1, 0, 1, 2, 1, 0, 0, 0x81, 0], "view not in its one form");
    check(&[1, 0, 1, 0, 1, 0, 0, 1], "view beyond the largest file");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 1, 4, 2, 1], "loop that is none");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 1, 1, 4, 1], "loop that is none");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 1, 4, 3, 1], "displacements decrease");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 1, 4, 4, 2], "no such node");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 1, 4, 4, 0], "no such node");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 0, 2], "node that nothing uses");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 0, 1], "node described twice");
    check(&[1, 0, 1, 8, 2, 0, 0, 1, 9], "unknown kind of node");
    check(&[1, 0, 1, 8, 1, 0, 3, 200, 1, 0, 1, 1], "list longer than its bytes");
    // A loop of 2^62 rounds, 2^40 apart.
    let far = [
        1, 0, 1, 8, 2, 0, 0, 1, 1, 128, 128, 128, 128, 128, 128, 128, 128, 64, 128, 128, 128, 128, 128, 128,
        1, 1,
    ];
    check(&far, "view too large or too deep");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn views_survive_the_journey(spec in any_spec(&[1, 2, 3, 8]), displacement in 0..1000i64, mode in any::<bool>()) {
        let made = spec.make(if mode { Mode::Anything } else { Mode::Increasing });
        prop_assume!(made.is_some());
        let view = View::new(displacement, &byte(), &made.unwrap().0, ViewAccess::Read);
        let Ok(view) = view else { return Ok(()) };
        let bytes = view.encode().unwrap();
        let other = View::decode(&bytes).unwrap();
        prop_assert_eq!(other.encode().unwrap(), bytes);
        prop_assert_eq!(other.direction(), view.direction());
        prop_assert_eq!(other.stream_bytes(), view.stream_bytes());
        let stream = 0..4 * view.filetype_bytes();
        prop_assert!(other.extents(stream.clone()).eq(view.extents(stream.clone())));
        exercise(&other);
        let (shape, moved) = view.encode_shape().unwrap();
        let shape = View::decode(&shape).unwrap();
        prop_assert!(shape.stream_bytes() == 0 || shape.file_offset(0) == Some(0));
        let back = shape.displaced(moved).unwrap();
        prop_assert_eq!(back.stream_bytes(), view.stream_bytes());
        prop_assert!(back.extents(stream.clone()).eq(view.extents(stream)));
    }

    #[test]
    fn damaged_bytes_fail_or_are_a_legal_view(
        spec in any_spec(&[1, 2, 3, 8]), wounds in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(), cuts in any::<bool>(),
    ) {
        let made = spec.make(Mode::Increasing);
        prop_assume!(made.is_some());
        let mut bytes = view(9, &made.unwrap().0.resized(0, 1 << 20).unwrap()).encode().unwrap();
        for (at, value) in wounds {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(view) = View::decode(&bytes) {
            prop_assert_eq!(view.encode().unwrap(), bytes);
            exercise(&view);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..40)) {
        let mut bytes = bytes;
        if let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        if let Ok(view) = View::decode(&bytes) {
            exercise(&view);
        }
    }
}
