//! No starvation: for every policy with a bound, the bound stated in its module head, against random loads and against adversarial loads.
//! `sjf` has no bound, and a test shows why.
//!
//! A failure prints its case; `PROPTEST_RNG_SEED` repeats a run.

mod common;

use common::VirtualHost;
use pario_sched::{Aggregation, ApplicationId, Controller, FileId, Options, Pick, Request, RequestId};
use proptest::prelude::*;

const KIB: u64 = 1024;

fn host(policy: &str, options: Options) -> VirtualHost {
    VirtualHost::new(Controller::new(policy, options).expect("the options work"))
}

fn read(file: u64, application: u64, offset: u64, length: u64) -> Request {
    Request::read(FileId(file), ApplicationId(application), offset, length, 0)
}

/// Posts of one step, and then one decision.
type LoadStep = Vec<(u64, u64, u64, u64)>;

/// Reads over 4 files and 3 applications, up to three before each decision.
fn load() -> impl Strategy<Value = Vec<LoadStep>> {
    let post = (0..4_u64, 0..3_u64, 0..64_u64, 1..16_u64);
    prop::collection::vec(prop::collection::vec(post, 0..4), 1..120)
}

/// For each request: how many virtual requests were picked between its post and its own pick, and the largest number that waited.
fn waits(
    host: &mut VirtualHost,
    load: &[LoadStep],
    mut each: impl FnMut(&mut VirtualHost, RequestId),
) -> Vec<(RequestId, u64, u64)> {
    let mut born = std::collections::BTreeMap::new();
    let (mut picks, mut most, mut done) = (0, 0, Vec::new());
    let mut steps = load.iter();
    loop {
        let step = steps.next();
        for (file, application, offset, length) in step.into_iter().flatten() {
            let id = host.post(read(*file, *application, offset * 2 * KIB, length * KIB));
            born.insert(id, picks);
            each(host, id);
        }
        most = most.max(host.controller.unfinished() as u64);
        match host.start(|run| 5 + run.bytes() / 256) {
            Pick::Serve(run) => {
                picks = host.controller.statistics().total.virtual_requests;
                for part in &run.parts {
                    done.push((part.id, picks.saturating_sub(born[&part.id] + 1), most));
                }
                host.finish();
            }
            Pick::Wait { until_us } => host.now_us = until_us,
            Pick::Idle if step.is_none() => return done,
            Pick::Idle => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn fifo_serves_in_the_order_of_arrival(load in load()) {
        let mut host = host("fifo", Options::default());
        waits(&mut host, &load, |_, _| {});
        prop_assert!(host.issued.is_sorted());
    }

    #[test]
    fn wsjf_is_passed_only_within_the_handicap(load in load(), us_per_mib in 0..1_000_000_u64, weight in 1..4_u32) {
        let options = Options { wsjf_us_per_mib: us_per_mib, aggregation: Aggregation::Off, ..Options::default() };
        let mut host = host("wsjf", options);
        host.controller.set_weight(ApplicationId(1), weight).unwrap();
        waits(&mut host, &load, |_, _| {});
        let request = |id: &RequestId| host.known[id].request;
        for (at, late) in host.issued.iter().enumerate() {
            let one = request(late);
            let own = if one.application == ApplicationId(1) { u64::from(weight) } else { 1 };
            let handicap_us = one.length * us_per_mib / (own << 20);
            for early in &host.issued[..at] {
                let other = request(early).arrival_us;
                prop_assert!(other <= one.arrival_us + handicap_us, "{early} came {other}, {late} came {}", one.arrival_us);
            }
        }
    }

    #[test]
    fn deadline_serves_the_late_before_those_that_came_later(load in load(), patience_us in 0..500_u64) {
        let options = Options { deadline_read_us: patience_us, aggregation: Aggregation::Off, ..Options::default() };
        let mut host = host("deadline", options);
        waits(&mut host, &load, |_, _| {});
        // Requests picked after the deadline of a request and before it were waiting at that deadline.
        for (at, late) in host.issued.iter().enumerate() {
            let deadline_us = host.known[late].request.arrival_us + patience_us;
            for early in &host.issued[..at] {
                prop_assert!(host.known[early].request.arrival_us <= deadline_us);
            }
        }
    }

    #[test]
    fn mlf_serves_within_its_turns(
        depth in 2..8_usize,
        asked in prop::collection::vec((0..3_u64, 0..3_u64, 0..64_u64, 1..16_u64), 8..24),
        weights in (1..3_u32, 1..3_u32),
        adaptive in any::<bool>(),
    ) {
        let mut options = Options { aggregate_bytes_max: 16 * KIB, ..Options::default() };
        options.quantum.adaptive = adaptive;
        options.quantum.patience_choices = 0;
        options.quantum.bytes_min = if adaptive { 2 * KIB } else { 4 * KIB };
        options.quantum.base_bytes = 4 * KIB;
        options.quantum.bytes_max = 8 * KIB;
        let least = options.quantum.bytes_min;
        let mut host = host("mlf", options);
        host.controller.set_weight(ApplicationId(0), weights.0).unwrap();
        host.controller.set_weight(ApplicationId(1), weights.1).unwrap();
        // The same requests are repeated, so that offsets, files and weights always prefer the same ones.
        let (mut again, mut born, mut picks) = (asked.iter().cycle(), std::collections::BTreeMap::new(), 0);
        while picks < 600 {
            while host.controller.unfinished() < depth {
                let (file, application, offset, length) = again.next().expect("an endless iterator");
                let id = host.post(read(*file, *application, offset * 2 * KIB, length * KIB));
                born.insert(id, picks);
            }
            match host.start(|run| 5 + run.bytes() / 256) {
                Pick::Serve(run) => {
                    picks = host.controller.statistics().total.virtual_requests;
                    for part in &run.parts {
                        let passed = picks.saturating_sub(born[&part.id] + 1);
                        let turns = (16 * KIB).div_ceil(least) + 17 * depth as u64;
                        let in_a_turn = if adaptive { 16 * KIB / least } else { 1 };
                        prop_assert!(passed <= turns * in_a_turn, "{} was passed {passed} times", part.id);
                    }
                    host.finish();
                    host.known.retain(|_, known| !known.done);
                }
                Pick::Wait { until_us } => host.now_us = until_us,
                Pick::Idle => unreachable!("a request always waits"),
            }
        }
    }

    #[test]
    fn wfq_bounds_what_others_get(load in load(), weights in (1..4_u32, 1..4_u32, 1..4_u32)) {
        let mut host = host("wfq", Options { aggregation: Aggregation::Off, ..Options::default() });
        let weights = [weights.0, weights.1, weights.2];
        for (application, weight) in weights.iter().enumerate() {
            host.controller.set_weight(ApplicationId(application as u64), *weight).unwrap();
        }
        let mut ahead = std::collections::BTreeMap::new();
        waits(&mut host, &load, |host, id| {
            let own = host.known[&id].request.application;
            let waiting = host.known.values().filter(|known| !known.issued && known.request.application == own);
            let before = host.issued.len();
            ahead.insert(id, (before, waiting.map(|known| known.request.length).sum::<u64>()));
        });
        let weight = |of: ApplicationId| u64::from(weights[usize::try_from(of.0).expect("there are three")]);
        let largest = 15 * KIB;
        for (at, id) in host.issued.iter().enumerate() {
            let own = host.known[id].request.application;
            let (from, queued) = ahead[id];
            for other in (0..3).map(ApplicationId).filter(|other| *other != own) {
                let theirs = |told: &&RequestId| host.known[*told].request.application == other;
                let between = host.issued[from.min(at)..at].iter().filter(theirs);
                let served: u64 = between.map(|told| host.known[told].request.length).sum();
                let (mine, their) = (weight(own), weight(other));
                let bound = their * (queued + largest).div_ceil(mine) + largest;
                prop_assert!(served <= bound, "{id}: {other:?} was served {served} bytes, promised are {bound}");
            }
        }
    }

    #[test]
    fn tbf_serves_when_the_bucket_has_gained_enough(load in load()) {
        let (rate, burst) = (1_000_000, 8 * KIB);
        let options = Options { tbf_bytes_per_second: rate, tbf_burst_bytes: burst, ..Options::default() };
        let mut host = host("tbf", Options { aggregation: Aggregation::Off, ..options });
        let mut bounds = std::collections::BTreeMap::new();
        let mut served = std::collections::BTreeMap::new();
        let mut steps = load.iter();
        loop {
            let step = steps.next();
            for (file, application, offset, length) in step.into_iter().flatten() {
                let id = host.post(read(*file, *application, offset * 2 * KIB, length * KIB));
                let waiting = host.known.values().filter(|known| !known.issued && known.request.application.0 == *application);
                let bytes: u64 = waiting.map(|known| known.request.length).sum();
                // At most one request's debt, and a microsecond's rounding for each request served before.
                let bound_us = (bytes + 16 * KIB) * 1_000_000 / rate + 2 * host.known.len() as u64;
                bounds.insert(id, host.now_us + bound_us);
            }
            match host.start(|_| 0) {
                Pick::Serve(run) => {
                    served.insert(run.parts[0].id, host.now_us);
                    host.finish();
                }
                Pick::Wait { until_us } => host.now_us = until_us,
                Pick::Idle if step.is_none() => break,
                Pick::Idle => {}
            }
        }
        for (id, at_us) in served {
            prop_assert!(at_us <= bounds[&id], "{id} was served at {at_us}, promised was {}", bounds[&id]);
        }
    }
}

/// Small requests keep arriving before a large one: by offset, by file and by size they are always preferred.
fn picks_before_the_large_one(policy: &str, adaptive: bool, picks_max: u64) -> Option<u64> {
    let mut options = Options { deadline_read_us: 2000, wsjf_us_per_mib: 100_000, ..Options::default() };
    options.quantum.adaptive = adaptive;
    options.quantum.patience_choices = 0;
    let mut host = host(policy, options);
    let large = host.post(read(9, 1, 1 << 40, 1024 * KIB));
    let mut small = 0;
    for pick in 0..picks_max {
        // Thirty-two small ones always wait.
        while host.controller.unfinished() < 33 {
            small += 1;
            let file = if small % 8 == 0 { 1 + small % 3 } else { 9 };
            host.post(read(file, 2 + small % 2, (1 << 30) - small % 1000 * 64 * KIB, 4 * KIB));
        }
        loop {
            match host.start(|_| 10) {
                Pick::Serve(run) if run.parts.iter().any(|part| part.id == large) => return Some(pick),
                Pick::Serve(_) => {
                    host.finish();
                    break;
                }
                Pick::Wait { until_us } => host.now_us = until_us,
                Pick::Idle => unreachable!("the large one waits"),
            }
        }
    }
    None
}

#[test]
fn a_large_request_is_not_starved_by_small_ones() {
    for policy in ["fifo", "wsjf", "deadline", "tbf", "wfq"] {
        assert!(picks_before_the_large_one(policy, true, 20_000).is_some(), "{policy}: starved");
    }
}

#[test]
fn mlf_lets_a_large_request_be_passed_no_more_than_promised() {
    // In its own file small requests at lower offsets keep arriving: only the bound on waiting brings it to the front.
    let promised = 1024 / 32 + 17 * 33;
    let picks = picks_before_the_large_one("mlf", false, 20_000).expect("it is served");
    assert!(picks <= promised, "{picks} of {promised}");
    let picks = picks_before_the_large_one("mlf", true, 200_000);
    assert!(picks.is_some_and(|picks| picks <= (256 + 17 * 33) * 2048), "{picks:?}");
}

#[test]
fn sjf_promises_nothing_and_keeps_that() {
    assert_eq!(picks_before_the_large_one("sjf", true, 2_000), None);
}
