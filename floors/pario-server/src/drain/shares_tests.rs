//! Shares as counts: by weight, without credit, without starvation.

use proptest::prelude::*;

use super::*;

fn conflict_group(members: &[(u64, u32)]) -> ConflictGroup {
    let members = members.iter().map(|(id, weight)| (ApplicationId(*id), *weight)).collect();
    ConflictGroup { members, waited: false, oldest: Nanos(0) }
}

/// Rounds of one quantum each; returns the rounds of each group.
fn run_rounds(shares: &mut Shares, circles: &[ConflictGroup], rounds: usize) -> Vec<u64> {
    let mut got = vec![0; circles.len()];
    for _ in 0..rounds {
        let first = shares.order(circles)[0];
        let mut bytes = vec![0; circles.len()];
        bytes[first] = 64 << 10;
        shares.charge(circles, &bytes);
        got[first] += 1;
    }
    got
}

#[test]
fn two_to_one() {
    let circles = [conflict_group(&[(1, 2)]), conflict_group(&[(2, 1)])];
    assert_eq!(run_rounds(&mut Shares::default(), &circles, 3), [2, 1]);
    assert_eq!(run_rounds(&mut Shares::default(), &circles, 3000), [2000, 1000]);
}

#[test]
fn a_round_that_took_more_is_paid_for() {
    let circles = [conflict_group(&[(1, 1)]), conflict_group(&[(2, 1)])];
    let mut shares = Shares::default();
    shares.order(&circles);
    shares.charge(&circles, &[10 * (64 << 10), 0]);
    assert_eq!(run_rounds(&mut shares, &circles, 10), [0, 10]);
    assert_eq!(run_rounds(&mut shares, &circles, 10), [5, 5]);
}

#[test]
fn who_was_away_has_saved_nothing_and_owes_nothing_new() {
    let (first, second) = (conflict_group(&[(1, 1)]), conflict_group(&[(2, 1)]));
    let mut shares = Shares::default();
    run_rounds(&mut shares, &[first.clone(), second.clone()], 2);
    run_rounds(&mut shares, std::slice::from_ref(&first), 1000);
    assert_eq!(run_rounds(&mut shares, &[first, second], 10), [5, 5]);
}

#[test]
fn a_circle_has_the_weight_of_its_members_and_nobody_gains_by_joining() {
    let circles = [conflict_group(&[(1, 1), (2, 2)]), conflict_group(&[(3, 1)])];
    let mut shares = Shares::default();
    assert_eq!(run_rounds(&mut shares, &circles, 400), [300, 100]);
    // The first runs in front, then joins one with a lower clock: both have the clock of the first.
    let apart = [conflict_group(&[(1, 1)]), conflict_group(&[(2, 1)]), conflict_group(&[(3, 1)])];
    shares.order(&apart);
    shares.charge(&apart, &[5 * (64 << 10), 0, 0]);
    let joined = [conflict_group(&[(1, 1), (2, 1)]), conflict_group(&[(3, 1)])];
    assert_eq!(run_rounds(&mut shares, &joined, 5), [0, 5]);
}

#[test]
fn whom_somebody_waits_for_is_not_kept_by_its_weight() {
    let circles = [conflict_group(&[(1, 1000)]), ConflictGroup { waited: true, ..conflict_group(&[(2, 1)]) }];
    assert_eq!(run_rounds(&mut Shares::default(), &circles, 1000)[1], 100);
    // A share that is larger in any case does not change.
    let circles = [conflict_group(&[(1, 2)]), ConflictGroup { waited: true, ..conflict_group(&[(2, 1)]) }];
    assert_eq!(run_rounds(&mut Shares::default(), &circles, 3000), [2000, 1000]);
}

#[test]
fn many_that_are_waited_for_take_no_more_than_every_tenth_round() {
    let waited = |id, weight| ConflictGroup { waited: true, ..conflict_group(&[(id, weight)]) };
    let mut circles: Vec<ConflictGroup> = (1..20).map(|id| waited(id, 1)).collect();
    circles.push(waited(20, 1000));
    let got = run_rounds(&mut Shares::default(), &circles, 19_000);
    assert!(got[19] >= 17_000, "{got:?}");
    assert!(got[..19].iter().all(|got| 90 <= *got), "each has its turn: {got:?}");
}

#[test]
fn rounds_become_neither_short_nor_long() {
    let mut shares = Shares::default();
    (0..20).for_each(|_| shares.adapt_quantum(Duration::from_millis(1)));
    assert_eq!((shares.quantum(u64::MAX), shares.quantum(256 << 10)), (QUANTUM_MAX, 64 << 10));
    shares.adapt_quantum(Duration::from_millis(20));
    assert_eq!(shares.quantum(u64::MAX), QUANTUM_MAX);
    (0..20).for_each(|_| shares.adapt_quantum(Duration::from_millis(100)));
    assert_eq!(shares.quantum(u64::MAX), QUANTUM_MIN);
}

#[test]
fn only_those_ahead_are_remembered() {
    let mut shares = Shares::default();
    for round in 0..10_000 {
        run_rounds(&mut shares, &[conflict_group(&[(round, 1)]), conflict_group(&[(round + 1, 1)])], 2);
    }
    assert!(shares.clocks.len() < 10, "{}", shares.clocks.len());
}

proptest! {
    /// Between two of its own rounds an application waits for the claims of the others, and at most one round of each.
    #[test]
    fn nobody_waits_for_long(weights in prop::collection::vec(1..50u32, 2..8)) {
        let circles: Vec<ConflictGroup> =
            weights.iter().zip(1..).map(|(weight, id)| conflict_group(&[(id, *weight)])).collect();
        let total: u32 = weights.iter().sum();
        let (mut shares, mut waits) = (Shares::default(), vec![0u32; circles.len()]);
        for _ in 0..500 {
            let first = shares.order(&circles)[0];
            let mut bytes = vec![0; circles.len()];
            bytes[first] = 1000;
            shares.charge(&circles, &bytes);
            waits.iter_mut().for_each(|waited| *waited += 1);
            waits[first] = 0;
            for (waited, weight) in waits.iter().zip(&weights) {
                let bound = (total - weight).div_ceil(*weight) + u32::try_from(weights.len()).unwrap() - 1;
                prop_assert!(*waited <= bound, "{} rounds at weight {} of {}", waited, weight, total);
            }
        }
    }

    /// Every application that always has records gets its share, except for one round and the differences in round size, whichever others
    /// join and leave.
    #[test]
    fn shares_are_kept(
        weights in prop::collection::vec(1..20u32, 2..6),
        sizes in prop::collection::vec(1..4u64, 50..400),
        visits in prop::collection::vec(any::<bool>(), 400),
    ) {
        let mut circles: Vec<ConflictGroup> =
            weights.iter().zip(1..).map(|(weight, id)| conflict_group(&[(id, *weight)])).collect();
        let steady = circles.len();
        circles.push(conflict_group(&[(99, 3)]));
        let (mut shares, mut got) = (Shares::default(), vec![0u64; circles.len()]);
        for (size, visit) in sizes.iter().zip(&visits) {
            let there = &circles[..steady + usize::from(*visit)];
            let first = shares.order(there)[0];
            let mut bytes = vec![0; there.len()];
            bytes[first] = *size;
            shares.charge(there, &bytes);
            got[first] += *size;
        }
        let of_weight: Vec<u64> = (0..steady).map(|at| got[at] * 1000 / u64::from(weights[at])).collect();
        let (least, most) = (of_weight.iter().min().unwrap(), of_weight.iter().max().unwrap());
        prop_assert!(most - least <= 2 * 4000, "for each unit of weight: {:?}", of_weight);
    }
}
