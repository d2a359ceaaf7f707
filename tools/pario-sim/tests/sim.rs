//! Thousands of runs without a violation, everything visited, and every deliberate bug found.

use pario_sim::{ALL_BUGS, Coverage, Options, run};

/// Runs of the whole; `PARIO_SIM_SEEDS` says how many, `PARIO_SIM_FIRST` from which on.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn no_run_violates_anything_and_all_is_visited() {
    let (first, seeds) = (number("PARIO_SIM_FIRST", 0), number("PARIO_SIM_SEEDS", 10_000));
    let mut seen = Coverage::default();
    for seed in first..first + seeds {
        match run(Options { seed, bug: None }) {
            Ok(coverage) => seen.add(&coverage),
            Err(violation) => {
                panic!("{}\nPARIO_SIM_FIRST={seed}: {}", violation.trace.join("\n"), violation.what)
            }
        }
    }
    // Elsewhere the rarest may take more seeds.
    let all = (first == 0 && 10_000 <= seeds) || 100_000 <= seeds;
    assert!(!all || seen.missing().is_empty(), "never visited: {:?}", seen.missing());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let visits = || run(Options { seed, bug: None }).map(|seen| seen.visits().collect::<Vec<_>>());
        assert_eq!(visits().ok(), visits().ok());
    }
}

/// Each within 10,000 seeds.
#[test]
fn every_deliberate_bug_is_found() {
    assert!(66 <= ALL_BUGS().len());
    let mut missed = Vec::new();
    for bug in ALL_BUGS() {
        match (0..10_000).find(|seed| run(Options { seed: *seed, bug: Some(bug) }).is_err()) {
            Some(seed) => eprintln!("{} is found by seed {seed}", bug.word()),
            None => missed.push(bug.word()),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
