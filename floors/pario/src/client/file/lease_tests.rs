//! Leases with messages that cross, step by step.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use pario_core::{FileAttr, Generation};
use pario_net::message::{Lease, Phase};
use pario_sys::mutex::lock;

use super::LeaseObserver;
use crate::Partition;
use crate::client::session::executor::RETURN_THREADS_MAX;

/// A lease is granted with the manager's length and recalled immediately; the previous lease, still held, is returned with the length of
/// the data written under it; only then does the grant arrive. Its length is older than the manager's. Found by
/// `tests/group_histories.rs`: a rank did not read all of its own writes.
#[test]
fn a_grant_that_was_overtaken_does_not_shorten_the_file() {
    let partition = Partition::in_process(1).unwrap();
    let file = partition.create("f").unwrap();
    file.write_at(0, &[1; 10]).unwrap();
    let attr = file.attr().unwrap();
    let open = &file.inner.file;
    open.data.length.end_reported(open.data.length.end_to_report());
    let grant = |number: u64, attr: FileAttr| {
        let lease = Lease { inode: attr.inode, number, phase: Phase::Exclusive {} };
        let mut state = open.lease.state();
        let epoch = state.epoch;
        open.lease.install(&mut state, lease, &attr, epoch);
        open.data.length.known()
    };
    let known = |size: u64| FileAttr { size, ..attr };
    assert_eq!(grant(1000, known(3)), 10, "own writes are kept");
    assert_eq!(grant(1001, known(20)), 20, "writes of other clients are visible");
    let cut = Generation(attr.generation.0 + 1);
    assert_eq!(grant(1002, FileAttr { generation: cut, ..known(5) }), 5, "a truncated file is shorter");
}

/// Waits in `before_return` until the gate is open; counts the calls.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    calls: AtomicUsize,
}

impl Gate {
    fn open(&self) {
        *lock(&self.open) = true;
        self.changed.notify_all();
    }
}

impl LeaseObserver for Gate {
    fn before_return(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        let mut open = lock(&self.open);
        while !*open {
            open = self.changed.wait(open).unwrap();
        }
    }

    fn unlinked(&self) {}
}

fn returning_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(|task| name(task.unwrap())).filter(|name| name.starts_with("pario-return")).count()
}

/// More recalled files than threads, and observed files that wait for the return of a file without observer: every reader gets its file.
#[test]
fn recalls_beyond_the_threads_do_not_wait_for_each_other() {
    const FILES: usize = 4 * RETURN_THREADS_MAX;
    let writer = Partition::in_process(2).unwrap();
    let (gate, extra) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    extra.open();
    let observers: [Arc<dyn LeaseObserver>; 2] = [Arc::clone(&gate) as _, Arc::clone(&extra) as _];
    let write = |name: String| {
        let file = writer.create(&name).unwrap();
        file.write_at(0, &[7; 8192]).unwrap();
        file
    };
    let observed: Vec<_> = (0..FILES).map(|n| write(format!("observed{n}"))).collect();
    for (file, observer) in observed.iter().flat_map(|file| observers.iter().map(move |one| (file, one))) {
        file.add_observer(Arc::downgrade(observer));
    }
    let plain: Vec<_> = (0..FILES).map(|n| write(format!("plain{n}"))).collect();
    let reader = writer.another_client();
    let (tell, told) = channel();
    let read = |name: String| {
        let (file, tell) = (reader.open(&name).unwrap(), tell.clone());
        std::thread::spawn(move || {
            let mut back = [0; 8192];
            assert_eq!(file.read_at(0, &mut back).unwrap(), back.len());
            assert_eq!(back, [7; 8192]);
            tell.send(name).unwrap();
        });
    };
    let limit = Duration::from_secs(60);
    (0..FILES).for_each(|n| read(format!("observed{n}")));
    (0..FILES).for_each(|n| read(format!("plain{n}")));
    for _ in 0..FILES {
        let name = told.recv_timeout(limit).expect("no return waits for an observer of another file");
        assert!(name.starts_with("plain"), "{name} is returned while its observer waits");
    }
    assert!(returning_threads() <= RETURN_THREADS_MAX);
    gate.open();
    for _ in 0..FILES {
        told.recv_timeout(limit).expect("an observed file is returned when its observer ends");
    }
    assert_eq!(gate.calls.load(Ordering::Acquire), FILES);
    assert_eq!(extra.calls.load(Ordering::Acquire), FILES, "every observer is notified");
    drop((observed, plain));
}

/// A recalled lease is returned with the end of the writes under it; until the manager's reply arrives, that end is still noted as
/// unreported. A truncation by another client may be complete by then. Found by `tests/cached_file.rs`: a rank saw the length from before
/// a collective `set_len`.
#[test]
fn the_end_of_writes_before_a_truncation_is_not_the_length() {
    let partition = Partition::in_process(1).unwrap();
    let file = partition.create("f").unwrap();
    file.write_at(0, &[1; 10]).unwrap();
    partition.another_client().options().write(true).open("f").unwrap().set_len(4).unwrap();
    file.inner.file.data.length.note_write_end(11);
    assert_eq!(file.len().unwrap(), 4);
}
