//! Messages and system calls of each way, counted.

use pario::distant::{DistantCounts, SharedFileOptions};

use crate::members::{HomeDirs, as_homes};

/// Read and write calls of this thread.
fn calls() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    (field("syscr:"), field("syscw:"))
}

/// Read and write calls that `work` makes on this thread.
fn counted(work: impl FnOnce()) -> (u64, u64) {
    // The look itself reads.
    let (before, empty) = (calls(), calls());
    work();
    let after = calls();
    let look = empty.0 - before.0;
    (after.0 - empty.0 - look, after.1 - empty.1)
}

/// What an access adds to the counters.
fn added(before: DistantCounts, after: DistantCounts) -> [u64; 6] {
    [
        after.own - before.own,
        after.near - before.near,
        after.far - before.far,
        after.data_messages - before.data_messages,
        after.lend_messages - before.lend_messages + after.other_messages - before.other_messages,
        after.measures - before.measures,
    ]
}

const ACCESSES: u64 = 50;
const BYTES: usize = 32 << 10;

#[test]
fn own_and_near_accesses_are_one_system_call_and_no_message() {
    let dirs = HomeDirs::new(2);
    as_homes(&[0, 0], &dirs, |group, distant| {
        let shared = distant.create(&SharedFileOptions::for_requests(BYTES as u64)).unwrap();
        group.barrier().unwrap();
        let created = shared.counts();
        assert_eq!(created.lend_messages, 1, "one descriptor of the other home");
        let mut data = vec![7; BYTES];
        // Even blocks are of rank 0, odd ones of rank 1; each member has half of them.
        let block = |number: u64, home: u64| (4 * number + 2 * group.rank() as u64 + home) * BYTES as u64;
        for home in 0..2 {
            let written = counted(|| {
                (0..ACCESSES).for_each(|number| shared.write_at(block(number, home), &data).unwrap());
            });
            assert_eq!(written, (0, ACCESSES), "writes to the file of rank {home}");
            let read = counted(|| {
                (0..ACCESSES).for_each(|number| shared.read_at(block(number, home), &mut data).unwrap());
            });
            assert_eq!(read, (ACCESSES, 0), "reads of the file of rank {home}");
        }
        let counts = added(created, shared.counts());
        assert_eq!(counts, [2 * ACCESSES, 2 * ACCESSES, 0, 0, 0, 0]);
        group.barrier().unwrap();
        shared.destroy(distant).unwrap();
    });
}

#[test]
fn far_accesses_are_one_message_per_component_and_no_other() {
    let dirs = HomeDirs::new(3);
    as_homes(&[0, 1, 2], &dirs, |group, distant| {
        let shared = distant.create(&SharedFileOptions::for_requests(4096)).unwrap();
        group.barrier().unwrap();
        if group.rank() == 0 {
            let mut data = vec![7; 4096];
            // Growth by a write: nothing is sent to other homes.
            let before = shared.counts();
            shared.write_at(3 * 4096 * 100 + 4096, &data).unwrap();
            assert_eq!(added(before, shared.counts()), [0, 0, 1, 1, 0, 0]);
            // Across two far components: one message each.
            let before = shared.counts();
            shared.write_at(4096 + 2048, &data).unwrap();
            assert_eq!(added(before, shared.counts()), [0, 0, 2, 2, 0, 0]);
            // Ten blocks over three components, one of them here.
            let before = shared.counts();
            data.resize(10 * 4096, 1);
            shared.write_at(0, &data).unwrap();
            shared.read_at(0, &mut data).unwrap();
            assert_eq!(added(before, shared.counts()), [2, 0, 4, 4, 0, 0]);
            // A hole inside the known length: zeros, and no question.
            let before = shared.counts();
            data.resize(4096, 1);
            shared.read_at(2 * 4096 + 3 * 4096 * 50, &mut data).unwrap();
            assert!(data.iter().all(|byte| *byte == 0));
            assert_eq!(added(before, shared.counts()), [0, 0, 1, 1, 0, 0]);
            // Beyond the known length: all homes are asked once, two of them by message.
            let before = shared.counts();
            shared.read_at(3 * 4096 * 200, &mut data).unwrap_err();
            assert_eq!(added(before, shared.counts()), [1, 0, 0, 0, 2, 1]);
        }
        group.barrier().unwrap();
        let before = shared.counts();
        if group.rank() == 1 {
            // Its lower bound is 0: the bytes themselves prove the length.
            shared.read_at(0, &mut [0; 4096]).unwrap();
            assert_eq!(added(before, shared.counts()), [0, 0, 1, 1, 0, 0]);
        }
        group.barrier().unwrap();
        shared.destroy(distant).unwrap();
    });
}

#[test]
fn requests_under_way_are_one_message_each() {
    let dirs = HomeDirs::new(2);
    as_homes(&[0, 1], &dirs, |group, distant| {
        let shared = distant.create(&SharedFileOptions::for_requests(BYTES as u64).homes(&[1])).unwrap();
        if group.rank() == 0 {
            let pending: Vec<_> = (0..ACCESSES)
                .map(|number| shared.start_write_at(number * BYTES as u64, vec![1; BYTES]).unwrap())
                .collect();
            pending.into_iter().for_each(|request| _ = request.wait().unwrap());
            let counts = shared.counts();
            assert_eq!((counts.far, counts.data_messages, counts.measures), (ACCESSES, ACCESSES, 0));
            assert_eq!((counts.own, counts.near, counts.other_messages), (0, 0, 0));
        }
        group.barrier().unwrap();
        shared.destroy(distant).unwrap();
    });
}
