//! The tuner against stores with a known best choice.

use super::*;

const LIMITS: TuneLimits = TuneLimits { saturation: None, active: None, processors: 4 };

/// Runs calls of `bytes` against a model of a store: nanoseconds of a call under a choice.
fn run(limits: TuneLimits, bytes: u64, calls: u32, time: impl Fn(TeamChoice) -> u64) -> Tuner {
    let mut tuner = Tuner::new(limits);
    for _ in 0..calls {
        let choice = tuner.choice();
        tuner.measured(MeasuredCall { choice, bytes, nanos: time(choice) });
    }
    tuner
}

#[test]
fn the_fastest_choice_is_found() {
    // One lock: more than one thread is slower.
    let locked = |choice: TeamChoice| 1_000_000 * choice.active + choice.saturation / 1000;
    // Each thread adds bandwidth up to eight.
    let wide = |choice: TeamChoice| 8_000_000 / choice.active.min(8) + 1000 * choice.active;
    // Calls are expensive: large items are better, up to 8 MiB.
    let slow_calls = |choice: TeamChoice| 64_000_000 / (choice.saturation.min(8 << 20) >> 16);
    assert_eq!(run(LIMITS, 64 << 20, 300, locked).best.active, 1);
    assert_eq!(run(LIMITS, 64 << 20, 300, wide).best.active, 8);
    assert_eq!(run(LIMITS, 64 << 20, 300, slow_calls).best.saturation, 8 << 20);
}

#[test]
fn settings_are_not_tuned() {
    let limits = TuneLimits { saturation: Some(300_000), active: Some(3), ..LIMITS };
    let tuner = run(limits, 64 << 20, 2000, |choice| 1_000_000 * choice.active);
    assert_eq!(tuner.choice(), TeamChoice { saturation: 300_000, active: 3 });
    let half = run(TuneLimits { active: Some(3), ..LIMITS }, 64 << 20, 300, |choice| choice.saturation);
    assert_eq!(half.best, TeamChoice { saturation: SATURATION_MIN, active: 3 });
}

#[test]
fn small_and_stale_calls_teach_nothing() {
    let before = Tuner::new(LIMITS);
    let mut tuner = before.clone();
    for _ in 0..1000 {
        tuner.measured(MeasuredCall { choice: tuner.choice(), bytes: 4096, nanos: 1 });
        let other = TeamChoice { saturation: 1, active: 1 };
        tuner.measured(MeasuredCall { choice: other, bytes: 1 << 30, nanos: 1 });
    }
    assert_eq!(tuner, before);
}

#[test]
fn a_store_that_changes_is_learned_again() {
    let mut tuner = run(LIMITS, 64 << 20, 400, |choice| 1_000_000 * choice.active);
    assert_eq!(tuner.best.active, 1);
    for _ in 0..4000 {
        let choice = tuner.choice();
        tuner.measured(MeasuredCall { choice, bytes: 64 << 20, nanos: 8_000_000 / choice.active });
    }
    assert_eq!(tuner.best.active, 8);
}
