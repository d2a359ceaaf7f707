//! Thousands of runs without a violation, full coverage, and every deliberate bug found.

use pario_sim::{ALL_BUGS, Coverage, RunOptions, run};

/// A number from the environment: `PARIO_SIM_SEEDS` is the number of runs, `PARIO_SIM_FIRST` the first seed.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn no_run_violates_anything_and_all_is_visited() {
    let (first, seeds) = (number("PARIO_SIM_FIRST", 0), number("PARIO_SIM_SEEDS", 10_000));
    let mut seen = Coverage::default();
    for seed in first..first + seeds {
        match run(RunOptions { seed, bug: None }) {
            Ok(coverage) => seen.add(&coverage),
            Err(violation) => {
                panic!("{}\nPARIO_SIM_FIRST={seed}: {}", violation.trace.join("\n"), violation.what)
            }
        }
    }
    // Other seed ranges may need more runs for the rarest states.
    let all = (first == 0 && 10_000 <= seeds) || 100_000 <= seeds;
    assert!(!all || seen.missing().is_empty(), "never visited: {:?}", seen.missing());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let visits = || run(RunOptions { seed, bug: None }).map(|seen| seen.visits().collect::<Vec<_>>());
        assert_eq!(visits().ok(), visits().ok());
    }
}

/// Each within 10,000 seeds.
#[test]
fn every_deliberate_bug_is_found() {
    assert!(66 <= ALL_BUGS().len());
    let mut missed = Vec::new();
    for bug in ALL_BUGS() {
        match (0..10_000).find(|seed| run(RunOptions { seed: *seed, bug: Some(bug) }).is_err()) {
            Some(seed) => eprintln!("{} is found by seed {seed}", bug.word()),
            None => missed.push(bug.word()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
