//! Several views: disjoint, tiling, and the work needed to decide it.

use std::collections::HashSet;

use proptest::prelude::*;

use super::specs::{Mode, any_spec};
use super::typemap::{Typemap, bits, written_out};
use crate::{
    ArrayOrder, COMPARE_STEPS, DarrayDimension, Datatype, Distribution, OverlapAnswer, View, ViewAccess,
    ViewShare, disjoint, tiles,
};

fn byte() -> Datatype {
    Datatype::elementary(1).unwrap()
}

fn view(displacement: i64, filetype: &Datatype) -> View {
    View::new(displacement, &byte(), filetype, ViewAccess::Read).unwrap()
}

/// The bytes of the file that the first `tiles` repetitions show in a stream range.
fn file_offsets(map: &Typemap, displacement: i64, tiles: i64, stream: std::ops::Range<u64>) -> HashSet<i64> {
    let bits = bits(&written_out(map, displacement, tiles), stream);
    bits.iter().flat_map(|(_, at, bytes)| *at..at + bytes.cast_signed()).collect()
}

fn answer(yes: bool) -> OverlapAnswer {
    if yes { OverlapAnswer::Yes } else { OverlapAnswer::No }
}

fn darray(rank: i64, dimensions: &[DarrayDimension]) -> View {
    let group = dimensions.iter().map(|dimension| dimension.processes).product();
    let double = Datatype::elementary(8).unwrap();
    let filetype = Datatype::darray(group, rank, dimensions, ArrayOrder::C, &double).unwrap();
    View::new(512, &double, &filetype, ViewAccess::Write).unwrap()
}

#[track_caller]
fn check_deal(dimensions: &[DarrayDimension], steps: u64) {
    let group: i64 = dimensions.iter().map(|dimension| dimension.processes).product();
    let views: Vec<View> = (0..group).map(|rank| darray(rank, dimensions)).collect();
    let shares: Vec<ViewShare<'_>> = views.iter().map(ViewShare::whole).collect();
    assert_eq!(disjoint(&shares, steps), OverlapAnswer::Yes);
    let bytes: i64 = dimensions.iter().map(|dimension| dimension.size).product::<i64>() * 8;
    let end = 512 + bytes.cast_unsigned() * 3;
    assert_eq!(tiles(&shares, 512..end, steps), OverlapAnswer::Yes);
    assert_eq!(tiles(&shares, 0..end, steps), OverlapAnswer::No);
    if 1 < group {
        let mut twice = shares.clone();
        twice[0] = shares[1].clone();
        assert_eq!(disjoint(&twice, steps), OverlapAnswer::No);
    }
}

fn dimension(size: i64, distribution: Distribution, processes: i64) -> DarrayDimension {
    DarrayDimension { size, distribution, processes }
}

#[test]
fn what_a_distribution_deals_is_disjoint_and_complete() {
    let block = |size, processes| dimension(size, Distribution::Block, processes);
    // 512 processes on an array of 2^39 bytes: decided by structure, in few steps for each neighbouring pair.
    check_deal(&[block(4096, 8), block(4096, 8), block(4096, 8)], 200_000);
    check_deal(&[block(1000, 3), block(777, 2)], 1000);
    check_deal(&[dimension(1 << 30, Distribution::Cyclic, 64)], 1000);
    check_deal(
        &[dimension(1000, Distribution::CyclicOf(7), 3), dimension(100, Distribution::Cyclic, 4)],
        50_000,
    );
}

#[test]
fn a_thousand_interleaved_views_take_a_thousand_steps() {
    let filetype = Datatype::elementary(8).unwrap().resized(0, 8000).unwrap();
    let views: Vec<View> = (0..1000).map(|rank| view(rank * 8, &filetype)).collect();
    let mut shares: Vec<ViewShare<'_>> = views.iter().map(ViewShare::whole).collect();
    assert_eq!(disjoint(&shares, 2000), OverlapAnswer::Yes);
    assert_eq!(tiles(&shares, 0..8000 * 1_000_000, 2000), OverlapAnswer::Yes);
    let intruder = view(8 * 500 + 7, &filetype);
    shares.push(ViewShare::whole(&intruder));
    assert_eq!(disjoint(&shares, 2000), OverlapAnswer::No);
}

#[test]
fn different_strides_meet_where_arithmetic_says() {
    let every = |stride: i64| byte().resized(0, stride).unwrap();
    let (even, odd) = (view(0, &every(1 << 20)), view(1, &every(1 << 30)));
    assert_eq!(disjoint(&[ViewShare::whole(&even), ViewShare::whole(&odd)], 100), OverlapAnswer::Yes);
    // 1000003 i = 999983 j + 1 has a first solution far away; before it they are disjoint.
    let (one, other) = (view(0, &every(1_000_003)), view(1, &every(999_983)));
    assert_eq!(disjoint(&[ViewShare::whole(&one), ViewShare::whole(&other)], 100), OverlapAnswer::No);
    let near = |view| ViewShare { view, stream: 0..100_000 };
    assert_eq!(disjoint(&[near(&one), near(&other)], 100), OverlapAnswer::Yes);
}

#[test]
fn irregular_views_are_compared_within_the_limit() {
    let places: Vec<i64> = (0..50_000).map(|number| number * 16 + number % 7).collect();
    let listed = Datatype::hindexed_block(4, &places, &byte()).unwrap();
    let (one, other) = (view(0, &listed), view(4, &listed));
    let shares = |length| [&one, &other].map(|view| ViewShare { view, stream: 0..length });
    assert_eq!(disjoint(&shares(200_000), COMPARE_STEPS), OverlapAnswer::Yes);
    assert_eq!(disjoint(&shares(200_000), 1000), OverlapAnswer::Unknown);
    let third = view(3, &listed);
    assert_eq!(
        disjoint(&[ViewShare::whole(&one), ViewShare::whole(&third)], COMPARE_STEPS),
        OverlapAnswer::No
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn shares_are_disjoint_if_their_bytes_are(
        specs in (any_spec(&[1, 2, 3]), any_spec(&[1, 2, 3])), at in (0..40i64, 0..40i64),
        pads in (0..5i64, 0..5i64), streams in ((0..30u64, 0..40u64), (0..30u64, 0..40u64)),
    ) {
        let made = (specs.0.make(Mode::Increasing), specs.1.make(Mode::Increasing));
        prop_assume!(made.0.is_some() && made.1.is_some());
        let ((one, map), (other, others)) = (made.0.unwrap(), made.1.unwrap());
        let extents = (map.true_ub().max(1) + pads.0, others.true_ub().max(1) + pads.1);
        let maps = (map.resized(0, extents.0), others.resized(0, extents.1));
        let one = view(at.0, &one.resized(0, extents.0).unwrap());
        let other = view(at.1, &other.resized(0, extents.1).unwrap());
        let streams = (streams.0.0..streams.0.0 + streams.0.1, streams.1.0..streams.1.0 + streams.1.1);
        // Each repetition has at least a byte, so 70 repetitions cover the requested range.
        let bytes = (file_offsets(&maps.0, at.0, 70, streams.0.clone()), file_offsets(&maps.1, at.1, 70, streams.1.clone()));
        let shares = [ViewShare { view: &one, stream: streams.0 }, ViewShare { view: &other, stream: streams.1 }];
        prop_assert_eq!(disjoint(&shares, COMPARE_STEPS), answer(bytes.0.is_disjoint(&bytes.1)));

        let both: Vec<i64> = bytes.0.union(&bytes.1).copied().collect();
        if let (Some(low), Some(high)) = (both.iter().min(), both.iter().max()) {
            let file = low.cast_unsigned()..high.cast_unsigned() + 1;
            let whole = both.len() as u64 == file.end - file.start && bytes.0.is_disjoint(&bytes.1);
            prop_assert_eq!(tiles(&shares, file, COMPARE_STEPS), answer(whole));
        }
    }

    #[test]
    fn views_whose_repetitions_interleave_are_compared_exactly_too(
        specs in (any_spec(&[1, 2, 3]), any_spec(&[1, 2, 3])), at in (0..40i64, 0..40i64),
        parts in (1..5i64, 1..5i64), streams in ((0..30u64, 0..40u64), (0..30u64, 0..40u64)),
    ) {
        let made = (specs.0.make(Mode::Increasing), specs.1.make(Mode::Increasing));
        prop_assume!(made.0.is_some() && made.1.is_some());
        let ((one, map), (other, others)) = (made.0.unwrap(), made.1.unwrap());
        let extents = ((map.true_ub() * parts.0 / 4).max(1), (others.true_ub() * parts.1 / 4).max(1));
        let maps = (map.resized(0, extents.0), others.resized(0, extents.1));
        let one = view(at.0, &one.resized(0, extents.0).unwrap());
        let other = view(at.1, &other.resized(0, extents.1).unwrap());
        let streams = (streams.0.0..streams.0.0 + streams.0.1, streams.1.0..streams.1.0 + streams.1.1);
        let bytes = (file_offsets(&maps.0, at.0, 70, streams.0.clone()), file_offsets(&maps.1, at.1, 70, streams.1.clone()));
        let shares = [ViewShare { view: &one, stream: streams.0 }, ViewShare { view: &other, stream: streams.1 }];
        prop_assert_eq!(disjoint(&shares, COMPARE_STEPS), answer(bytes.0.is_disjoint(&bytes.1)));
    }

    #[test]
    fn endless_views_of_one_period_are_disjoint_if_one_period_is(
        specs in (any_spec(&[1, 2]), any_spec(&[1, 2])), at in (0..30i64, 0..30i64), pad in 0..9i64, times in 1..4i64,
    ) {
        let made = (specs.0.make(Mode::Increasing), specs.1.make(Mode::Increasing));
        prop_assume!(made.0.is_some() && made.1.is_some());
        let ((one, map), (other, others)) = (made.0.unwrap(), made.1.unwrap());
        let extent = map.true_ub().max((others.true_ub() + times - 1) / times).max(1) + pad;
        let extents = (extent, extent * times);
        let maps = (map.resized(0, extents.0), others.resized(0, extents.1));
        let views = (view(at.0, &one.resized(0, extents.0).unwrap()), view(at.1, &other.resized(0, extents.1).unwrap()));
        // Both have started after 30 bytes; then the pattern repeats.
        let tiles = 8 + 60 / extents.0;
        let bytes = (file_offsets(&maps.0, at.0, tiles * times, 0..u64::MAX), file_offsets(&maps.1, at.1, tiles, 0..u64::MAX));
        let shares = [ViewShare::whole(&views.0), ViewShare::whole(&views.1)];
        let got = disjoint(&shares, COMPARE_STEPS);
        let expected = answer(bytes.0.is_disjoint(&bytes.1));
        prop_assert!(got == expected || got == OverlapAnswer::Unknown, "{:?} but {:?}", got, expected);
        if times == 1 {
            prop_assert_eq!(got, expected);
        }
    }
}
