//! Leases whose messages cross, step by step.

use std::sync::atomic::Ordering;

use pario_core::{FileAttr, Generation};
use pario_net::message::{Lease, Phase};

use crate::Partition;

/// A lease is granted, with the manager's word on the length, and recalled at once; its forerunner, which is still held, goes back with the
/// length of what was written under it; only then is the grant heard. Its word is older than what the manager knows by then.
/// Found by `tests/group_histories.rs`: a rank did not read all that it had written itself.
#[test]
fn a_grant_that_was_overtaken_does_not_shorten_the_file() {
    let partition = Partition::in_process(1).unwrap();
    let file = partition.create("f").unwrap();
    file.write_at(0, &[1; 10]).unwrap();
    let attr = file.attr().unwrap();
    let open = &file.inner.file;
    open.end_reported(open.end_to_report());
    let grant = |number: u64, attr: FileAttr| {
        let lease = Lease { inode: attr.inode, number, phase: Phase::Exclusive {} };
        let mut state = open.lease_state();
        let epoch = state.epoch;
        open.install(&mut state, lease, &attr, epoch);
        open.size.load(Ordering::Acquire)
    };
    let known = |size: u64| FileAttr { size, ..attr };
    assert_eq!(grant(1000, known(3)), 10, "what was written stays");
    assert_eq!(grant(1001, known(20)), 20, "what others wrote is seen");
    let cut = Generation(attr.generation.0 + 1);
    assert_eq!(grant(1002, FileAttr { generation: cut, ..known(5) }), 5, "a file that was cut is shorter");
}
