//! Shares as counts: by weight, without saving up, and nobody for ever behind.

use proptest::prelude::*;

use super::*;

fn circle(members: &[(u64, u32)]) -> Circle {
    let members = members.iter().map(|(id, weight)| (ApplicationId(*id), *weight)).collect();
    Circle { members, waited: false, oldest: Nanos(0) }
}

/// Rounds of one quantum each; how many each circle got.
fn play(shares: &mut Shares, circles: &[Circle], rounds: usize) -> Vec<u64> {
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
    let circles = [circle(&[(1, 2)]), circle(&[(2, 1)])];
    assert_eq!(play(&mut Shares::default(), &circles, 3), [2, 1]);
    assert_eq!(play(&mut Shares::default(), &circles, 3000), [2000, 1000]);
}

#[test]
fn a_round_that_took_more_is_paid_for() {
    let circles = [circle(&[(1, 1)]), circle(&[(2, 1)])];
    let mut shares = Shares::default();
    shares.order(&circles);
    shares.charge(&circles, &[10 * (64 << 10), 0]);
    assert_eq!(play(&mut shares, &circles, 10), [0, 10]);
    assert_eq!(play(&mut shares, &circles, 10), [5, 5]);
}

#[test]
fn who_was_away_has_saved_nothing_and_owes_nothing_new() {
    let (first, second) = (circle(&[(1, 1)]), circle(&[(2, 1)]));
    let mut shares = Shares::default();
    play(&mut shares, &[first.clone(), second.clone()], 2);
    play(&mut shares, std::slice::from_ref(&first), 1000);
    assert_eq!(play(&mut shares, &[first, second], 10), [5, 5]);
}

#[test]
fn a_circle_has_the_weight_of_its_members_and_nobody_gains_by_joining() {
    let circles = [circle(&[(1, 1), (2, 2)]), circle(&[(3, 1)])];
    let mut shares = Shares::default();
    assert_eq!(play(&mut shares, &circles, 400), [300, 100]);
    // The first runs ahead, then joins one that is behind: both are where the first was.
    let apart = [circle(&[(1, 1)]), circle(&[(2, 1)]), circle(&[(3, 1)])];
    shares.order(&apart);
    shares.charge(&apart, &[5 * (64 << 10), 0, 0]);
    let joined = [circle(&[(1, 1), (2, 1)]), circle(&[(3, 1)])];
    assert_eq!(play(&mut shares, &joined, 5), [0, 5]);
}

#[test]
fn whom_somebody_waits_for_is_not_kept_by_its_weight() {
    let circles = [circle(&[(1, 1000)]), Circle { waited: true, ..circle(&[(2, 1)]) }];
    assert_eq!(play(&mut Shares::default(), &circles, 1000)[1], 100);
    // A share that is larger anyway stays what it is.
    let circles = [circle(&[(1, 2)]), Circle { waited: true, ..circle(&[(2, 1)]) }];
    assert_eq!(play(&mut Shares::default(), &circles, 3000), [2000, 1000]);
}

#[test]
fn many_that_are_waited_for_take_no_more_than_every_tenth_round() {
    let waited = |id, weight| Circle { waited: true, ..circle(&[(id, weight)]) };
    let mut circles: Vec<Circle> = (1..20).map(|id| waited(id, 1)).collect();
    circles.push(waited(20, 1000));
    let got = play(&mut Shares::default(), &circles, 19_000);
    assert!(got[19] >= 17_000, "{got:?}");
    assert!(got[..19].iter().all(|got| 90 <= *got), "each has its turn: {got:?}");
}

#[test]
fn rounds_become_neither_short_nor_long() {
    let mut shares = Shares::default();
    (0..20).for_each(|_| shares.took(Duration::from_millis(1)));
    assert_eq!((shares.quantum(u64::MAX), shares.quantum(256 << 10)), (QUANTUM_MAX, 64 << 10));
    shares.took(Duration::from_millis(20));
    assert_eq!(shares.quantum(u64::MAX), QUANTUM_MAX);
    (0..20).for_each(|_| shares.took(Duration::from_millis(100)));
    assert_eq!(shares.quantum(u64::MAX), QUANTUM_MIN);
}

#[test]
fn only_those_ahead_are_remembered() {
    let mut shares = Shares::default();
    for round in 0..10_000 {
        play(&mut shares, &[circle(&[(round, 1)]), circle(&[(round + 1, 1)])], 2);
    }
    assert!(shares.clocks.len() < 10, "{}", shares.clocks.len());
}

proptest! {
    /// Between two rounds of its own an application waits for what others have a claim to, and one round of each at most.
    #[test]
    fn nobody_waits_for_long(weights in prop::collection::vec(1..50u32, 2..8)) {
        let circles: Vec<Circle> =
            weights.iter().zip(1..).map(|(weight, id)| circle(&[(id, *weight)])).collect();
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

    /// Everybody who is always there gets its share, but for one round and what the rounds differ in size; whoever comes and goes.
    #[test]
    fn shares_are_kept(
        weights in prop::collection::vec(1..20u32, 2..6),
        sizes in prop::collection::vec(1..4u64, 50..400),
        visits in prop::collection::vec(any::<bool>(), 400),
    ) {
        let mut circles: Vec<Circle> =
            weights.iter().zip(1..).map(|(weight, id)| circle(&[(id, *weight)])).collect();
        let steady = circles.len();
        circles.push(circle(&[(99, 3)]));
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
