//! Cost of a decision, counted in index nodes read: it grows at most with the logarithm of the queue. The time is measured by `cargo
//! bench --manifest-path benches/Cargo.toml`.

use pario_sched::{
    Aggregation, ApplicationId, Controller, FileId, Options, Outcome, Pick, Request, policy_names,
};

/// Nodes read by one decision, on average and at most over batches of ten, with so many requests queued.
fn visits(policy: &str, queued: u64, files: u64) -> (u64, u64) {
    let unlimited = 1 << 50;
    let options =
        Options { tbf_bytes_per_second: unlimited, tbf_burst_bytes: unlimited, ..Options::default() };
    let mut controller =
        Controller::new(policy, Options { aggregation: Aggregation::Off, files_max: 1 << 18, ..options })
            .expect("the options work");
    let (mut random, mut now_us) = (0x5EED_u64, 0);
    let mut post = |controller: &mut Controller, now_us| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (file, application) = (FileId((random >> 20) % files), ApplicationId((random >> 40) % 16));
        let (offset, length) = ((random >> 16) % (1 << 30) * 4096, 4096 * (1 + random % 7));
        controller.post(Request::read(file, application, offset, length, now_us)).expect("accepted");
    };
    (0..queued).for_each(|_| post(&mut controller, 0));
    let (mut total, mut most, batches) = (0, 0, 50);
    for _ in 0..batches {
        let mut served = Vec::new();
        controller.take_visited();
        for _ in 0..10 {
            match controller.next(now_us) {
                Pick::Serve(run) => served.extend(run.parts),
                Pick::Wait { until_us } => now_us = until_us,
                Pick::Idle => unreachable!("many wait"),
            }
        }
        let visited = controller.take_visited();
        (total, most) = (total + visited, most.max(visited));
        for part in served {
            now_us += 7;
            controller.complete(part.id, now_us, Outcome::Done { bytes: part.length }).expect("it runs");
            post(&mut controller, now_us);
        }
    }
    (total / batches / 10, most / 10)
}

#[test]
fn a_decision_looks_at_few_nodes_however_many_wait() {
    for policy in policy_names() {
        for files in [1, 50_000] {
            let (small, _) = visits(policy, 1_000, files);
            let (large, most) = visits(policy, 100_000, files);
            // A hundredfold queue is at most three more levels of a tree of sixteen; up to eight trees are involved.
            assert!(
                large <= small + 24,
                "{policy}, {files} files: {small} nodes at 1,000, {large} at 100,000"
            );
            assert!(most <= 100, "{policy}, {files} files: up to {most} nodes a decision");
        }
    }
}
