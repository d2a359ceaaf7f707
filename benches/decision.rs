//! What one decision costs, for every policy, with 1,000, 10,000 and 100,000 requests queued: `cargo bench --manifest-path benches/Cargo.toml`.
//!
//! Only `next` is timed, a hundred at a time; what was served is completed and replaced in between. Requests are spread over
//! files and applications and do not touch, so nothing is merged and every one of them is there to choose from.

use std::time::Duration;

use criterion::measurement::{Measurement, WallTime};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pario_sched::{
    ApplicationId, Controller, FileId, Options, Outcome, Pick, Request, RequestId, policy_names,
};

const BATCH: u64 = 100;
const FILES: u64 = 64;
const APPLICATIONS: u64 = 16;

struct Load {
    controller: Controller,
    random: u64,
    now_us: u64,
}

impl Load {
    fn new(policy: &str, queued: u64) -> Self {
        let unlimited = 1 << 50;
        let options = Options {
            tbf_bytes_per_second: unlimited,
            tbf_burst_bytes: unlimited,
            wsjf_us_per_mib: 1000,
            ..Options::default()
        };
        let controller = Controller::new(policy, options).expect("the options work");
        let mut load = Self { controller, random: 0x5EED, now_us: 0 };
        (0..queued).for_each(|_| load.post());
        load
    }

    fn post(&mut self) {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.random >> 16;
        let (file, application) = (FileId(random % FILES), ApplicationId(random / FILES % APPLICATIONS));
        let (offset, length) = (random / 4096 * (1 << 20), 4096 * (1 + random % 7));
        self.controller
            .post(Request::read(file, application, offset, length, self.now_us))
            .expect("there is room");
    }

    fn decide(&mut self, served: &mut Vec<RequestId>) {
        match self.controller.next(self.now_us) {
            Pick::Serve(run) => served.extend(run.parts.iter().map(|part| part.id)),
            Pick::Wait { until_us } => self.now_us = until_us,
            Pick::Idle => {}
        }
    }

    fn replace(&mut self, served: &mut Vec<RequestId>) {
        for id in served.drain(..) {
            self.now_us += 10;
            self.controller.complete(id, self.now_us, Outcome::Done { bytes: 4096 }).expect("it was running");
            self.post();
        }
    }
}

fn decision(criterion: &mut Criterion) {
    let wall = WallTime;
    for policy in policy_names() {
        let mut group = criterion.benchmark_group(format!("next/{policy}"));
        group
            .sample_size(20)
            .warm_up_time(Duration::from_millis(300))
            .measurement_time(Duration::from_millis(800));
        for queued in [1_000, 10_000, 100_000] {
            let mut load = Load::new(policy, queued);
            group.bench_function(BenchmarkId::from_parameter(queued), |bencher| {
                bencher.iter_custom(|iterations| {
                    let mut spent = wall.zero();
                    let mut served = Vec::new();
                    let mut left = iterations;
                    while 0 < left {
                        let batch = left.min(BATCH);
                        let start = wall.start();
                        (0..batch).for_each(|_| load.decide(&mut served));
                        spent = wall.add(&spent, &wall.end(start));
                        load.replace(&mut served);
                        left -= batch;
                    }
                    spent
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, decision);
criterion_main!(benches);
