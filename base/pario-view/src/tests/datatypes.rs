//! Sizes, bounds and runs in memory, for types of any kind.

use proptest::prelude::*;

use super::specs::{Mode, any_spec};
use super::typemap::{bits, written_out};
use crate::Elements;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn sizes_and_bounds_are_those_of_the_typemap(spec in any_spec(&[1, 2, 3, 4, 8])) {
        let made = spec.make(Mode::Anything);
        prop_assume!(made.is_some());
        let (datatype, map) = made.unwrap();
        prop_assert_eq!(datatype.size(), map.size());
        prop_assert_eq!((datatype.lb(), datatype.ub()), (map.lb(), map.ub()));
        prop_assert_eq!(datatype.extent(), map.extent());
        prop_assert_eq!((datatype.true_lb(), datatype.true_ub()), (map.true_lb(), map.true_ub()));
        prop_assert_eq!(datatype.true_extent(), map.true_ub() - map.true_lb());
        prop_assert_eq!(datatype.is_ascending(), map.is_nondecreasing());
    }

    #[test]
    fn memory_is_walked_in_typemap_order(
        spec in any_spec(&[1, 2, 3, 4, 8]), count in 0..4i64, start in 0..60u64, length in 0..300u64,
    ) {
        let made = spec.make(Mode::Anything);
        prop_assume!(made.is_some());
        let (datatype, map) = made.unwrap();
        let elements = Elements::new(&datatype, count).unwrap();
        let runs = written_out(&map, 0, count);
        prop_assert_eq!(elements.bytes(), map.size() * count.cast_unsigned());
        for stream in [0..u64::MAX, start..start + length] {
            let mut offset = stream.start;
            let walked: Vec<_> = elements
                .runs(stream.clone())
                .map(|run| {
                    offset += run.bytes;
                    (offset - run.bytes, run.at, run.bytes)
                })
                .collect();
            prop_assert_eq!(walked, bits(&runs, stream));
        }
        let low = runs.iter().map(|run| run.at).min().unwrap_or(0);
        let high = runs.iter().map(|run| run.at + run.bytes.cast_signed()).max().unwrap_or(0);
        prop_assert_eq!(elements.bounds(), low..high);
    }
}
