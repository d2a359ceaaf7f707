//! Tests of the planner.

use proptest::prelude::*;

use super::*;

fn shape(aggregators: usize, window_bytes: u64, align_bytes: u64) -> PlanShape {
    PlanShape { aggregators, window_bytes, align_bytes }
}

fn domains(plan: &TwoPhasePlan) -> Vec<Range<u64>> {
    (0..plan.shape.aggregators).map(|aggregator| plan.domain(aggregator)).collect()
}

/// Spans, shape, domains, iterations.
type PlanCase = (Vec<Range<u64>>, PlanShape, Vec<Range<u64>>, u64);

#[test]
#[expect(clippy::single_range_in_vec_init, reason = "one span, one domain")]
fn domains_of_a_few_calls() {
    let table: Vec<PlanCase> = vec![
        (vec![0..0, 5..5], shape(2, 100, 4096), vec![0..0, 0..0], 0),
        (vec![0..8192, 100..16384], shape(2, 4096, 4096), vec![0..8192, 8192..16384], 2),
        (vec![10..20], shape(3, 4096, 4096), vec![10..20, 20..20, 20..20], 1),
        (vec![5000..12288], shape(2, 4096, 4096), vec![5000..8192, 8192..12288], 1),
        // Whole blocks of 1 MiB would give one of four aggregators less than half the work of the others: pages.
        (
            vec![0..10 << 20],
            shape(4, 1 << 20, 1 << 20),
            (0..4).map(|at| at * (5 << 19)..(at + 1) * (5 << 19)).collect(),
            3,
        ),
        // Here they do not.
        (
            vec![100..64 << 20],
            shape(3, 4 << 20, 1 << 20),
            vec![100..22 << 20, 22 << 20..44 << 20, 44 << 20..64 << 20],
            6,
        ),
        (vec![7..10], shape(1, 1, 1), vec![7..10], 3),
        (vec![u64::MAX - 10..u64::MAX], shape(1, 1 << 20, 4096), vec![u64::MAX - 10..u64::MAX], 1),
    ];
    for (spans, shape, expected, rounds) in table {
        let plan = TwoPhasePlan::new(&spans, shape);
        assert_eq!((domains(&plan), plan.iterations()), (expected, rounds), "{spans:?} {shape:?}");
    }
}

#[test]
fn aggregators_are_spread_over_nodes() {
    assert_eq!(choose_aggregators(&[0, 0, 0, 0], 2), [0, 1]);
    assert_eq!(choose_aggregators(&[0, 0, 1, 1], 2), [0, 2]);
    assert_eq!(choose_aggregators(&[0, 0, 1, 1], 3), [0, 1, 2]);
    assert_eq!(choose_aggregators(&[0, 1, 0, 2], 9), [0, 1, 2, 3]);
    assert_eq!(choose_aggregators(&[0], 0), [0]);
    assert_eq!(default_aggregators(&[0; 6], &[2; 6]), 4, "two for each processor");
    assert_eq!(default_aggregators(&[0, 0, 1], &[8, 8, 4]), 3);
    assert_eq!(default_aggregators(&[0, 1, 1, 1], &[0, 1, 8, 8]), 3, "at least one of each node");
}

proptest! {
    #[test]
    fn domains_tile_the_reach_and_windows_the_domains(
        spans in prop::collection::vec((0u64..100_000, 0u64..50_000), 1..10),
        aggregators in 1usize..10,
        window_bytes in 1u64..20_000,
        align_bytes in prop::sample::select(vec![1u64, 64, 4096, 10_000, 65536]),
    ) {
        let spans: Vec<Range<u64>> = spans.iter().map(|(at, len)| *at..at + len).collect();
        let plan = TwoPhasePlan::new(&spans, shape(aggregators, window_bytes, align_bytes));
        let some = || spans.iter().filter(|span| !span.is_empty());
        let start = some().map(|span| span.start).min().unwrap_or(0);
        let end = some().map(|span| span.end).max().unwrap_or(0);
        prop_assert!(plan.iterations() <= (end - start + align_bytes) / window_bytes + 1);
        let mut at = start;
        for aggregator in 0..aggregators {
            let domain = plan.domain(aggregator);
            prop_assert_eq!(domain.start, at);
            for round in 0..plan.iterations() {
                let window = plan.window(aggregator, round);
                prop_assert!(window.end - window.start <= window_bytes);
                prop_assert_eq!(window.start, at);
                at = window.end;
            }
            prop_assert_eq!(domain.end, at);
            prop_assert!(plan.window(aggregator, plan.iterations()).is_empty());
        }
        prop_assert_eq!(at, end);
    }
}
