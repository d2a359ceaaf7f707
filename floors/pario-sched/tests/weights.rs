//! Weights: two applications with weights 2:1 under load get service 2:1, within a tenth; and with equal weights, equal service.

mod common;

use common::VirtualHost;
use pario_sched::{ApplicationId, Controller, FileId, Options, Pick, Request};

const KIB: u64 = 1024;

/// Access pattern of an application.
#[derive(Clone, Copy)]
struct LoadPattern {
    length: u64,
    /// Distance of one request from the next.
    stride: u64,
    /// Number of its unfinished requests.
    depth: u64,
}

/// Bytes served to the first application over bytes served to the second, while both always have requests waiting.
fn ratio(policy: &str, options: Options, weights: (u32, u32), patterns: [LoadPattern; 2]) -> f64 {
    let mut host = VirtualHost::new(Controller::new(policy, options).expect("the options work"));
    host.controller.set_weight(ApplicationId(0), weights.0).expect("accepted");
    host.controller.set_weight(ApplicationId(1), weights.1).expect("accepted");
    let mut posted = [0; 2];
    let mut post = |host: &mut VirtualHost, application: usize| {
        let LoadPattern { length, stride, .. } = patterns[application];
        let id = application as u64;
        host.post(Request::read(FileId(id), ApplicationId(id), posted[application] * stride, length, 0));
        posted[application] += 1;
    };
    for application in [0, 1] {
        (0..patterns[application].depth).for_each(|_| post(&mut host, application));
    }
    let mut served = [0.0_f64; 2];
    while served[0] + served[1] < 640.0 * 1024.0 * 1024.0 {
        match host.start(|run| 50 + run.bytes() / 50) {
            Pick::Serve(run) => {
                host.finish();
                host.known.retain(|_, known| !known.done);
                for part in &run.parts {
                    let application = usize::try_from(part.application.0).expect("there are two");
                    served[application] += part.length as f64;
                    post(&mut host, application);
                }
            }
            Pick::Wait { until_us } => host.now_us = until_us,
            Pick::Idle => unreachable!("both always have requests"),
        }
    }
    served[0] / served[1]
}

fn check(policy: &str, options: &Options) {
    let sequential = LoadPattern { length: 32 * KIB, stride: 32 * KIB, depth: 32 };
    let scattered = LoadPattern { length: 32 * KIB, stride: 1024 * KIB, depth: 32 };
    let small = LoadPattern { length: 4 * KIB, stride: 64 * KIB, depth: 64 };
    for (name, patterns) in [
        ("both sequential", [sequential, sequential]),
        ("both scattered", [scattered, scattered]),
        ("small beside large", [small, sequential]),
        ("large beside small", [scattered, small]),
    ] {
        for (weights, expected) in [((2, 1), 2.0), ((1, 2), 0.5), ((2, 2), 1.0)] {
            let got = ratio(policy, options.clone(), weights, patterns);
            assert!((got / expected - 1.0).abs() < 0.1, "{policy}, {name}, weights {weights:?}: {got:.3}");
        }
    }
}

#[test]
fn wfq_keeps_weights() {
    check("wfq", &Options::default());
}

#[test]
fn tbf_keeps_weights() {
    // Rates below the host's, so that the buckets decide.
    check("tbf", &Options { tbf_bytes_per_second: 5 << 20, tbf_burst_bytes: 1 << 20, ..Options::default() });
}

#[test]
fn mlf_keeps_weights() {
    check("mlf", &Options::default());
    let mut base = Options::default();
    base.quantum.adaptive = false;
    check("mlf", &base);
}

#[test]
fn equal_weights_are_fair_without_being_set() {
    let sequential = LoadPattern { length: 32 * KIB, stride: 32 * KIB, depth: 32 };
    for policy in ["mlf", "wfq"] {
        let got = ratio(policy, Options::default(), (1, 1), [sequential, sequential]);
        assert!((got - 1.0).abs() < 0.1, "{policy}: {got:.3}");
    }
}
