//! Memory that does not grow: a manager that served many sessions, and a process that opened a file many times, are as large as after the
//! first of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::stage::Stage;
use pario::{Alone, Hints, Partition};
use pario_core::Clock;
use pario_sys::clock::MonotonicClock;

/// Private dirty bytes of a process.
fn private_bytes(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Resources of a process: private memory, threads, descriptors.
#[derive(Clone, Copy, Debug)]
struct ProcessSize {
    bytes: u64,
    threads: usize,
    descriptors: usize,
}

impl ProcessSize {
    fn of(pid: u32) -> ProcessSize {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
        ProcessSize { bytes: private_bytes(pid), threads: count("task"), descriptors: count("fd") }
    }
}

/// The tests measure processes, this one among them: threads and memory of the other test must not count.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a program does that uses a partition for a moment: a file, and many changes of names, each with a reply that is kept.
fn session(partition: &Partition, number: u64) {
    let mount = partition.another_client();
    let name = format!("f{}", number % 16);
    let file = mount.create(&name).unwrap();
    file.write_at(0, &[7; 10_000]).unwrap();
    file.close().unwrap();
    let (one, other) = (format!("d{number}"), format!("e{number}"));
    mount.create_dir(&one).unwrap();
    for _ in 0..CHANGES / 2 {
        mount.rename(&one, &other).unwrap();
        mount.rename(&other, &one).unwrap();
    }
    mount.remove_dir(&one).unwrap();
}

/// Changes of names that one session makes.
const CHANGES: usize = 100;
/// Retention time of the replies of an ended session, times 1.5.
const WARM_UP: Duration = Duration::from_secs(15);
/// Time from one session to the next: the manager keeps replies for a time, so their size follows the rate of sessions, which must be one
/// that a busy machine has too.
const SESSION_INTERVAL_MS: u64 = 50;
/// Sessions after that.
const SESSIONS: u64 = 300;
/// Allowed growth of a process: half of the size of these replies.
const GROWTH_BYTES_MAX: u64 = 1 << 20;

#[test]
#[expect(clippy::disallowed_methods, reason = "sessions come at a fixed rate")]
fn a_manager_of_many_sessions_stays_as_large_as_it_was() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(stage) = Stage::start(1, "") else { return };
    let partition = stage.mount();
    let pid = stage.server_pid(0);
    let mut number = 0;
    let mut serve = |until: &dyn Fn(u64, Duration) -> bool| {
        let (first, began) = (number, MonotonicClock.now());
        while !until(number - first, MonotonicClock.now().since(began)) {
            session(&partition, number);
            number += 1;
            let next = began.plus_ms(SESSION_INTERVAL_MS * (number - first));
            std::thread::sleep(next.since(MonotonicClock.now()));
        }
        ProcessSize::of(pid)
    };
    let warm = serve(&|_, spent| WARM_UP <= spent);
    let sizes = [1, 2].map(|_| serve(&|sessions, _| SESSIONS / 2 <= sessions));
    eprintln!("after the warm-up {warm:?}, then {sizes:?}");
    for size in sizes {
        assert!(size.bytes <= warm.bytes + GROWTH_BYTES_MAX, "from {warm:?} to {size:?}");
        assert!(size.threads <= warm.threads + 2, "from {warm:?} to {size:?}");
        assert!(size.descriptors <= warm.descriptors + 8, "from {warm:?} to {size:?}");
    }
}

/// Opens before memory is measured, and in all.
const OPENS: (u64, u64) = (1000, 10_000);
/// One in this many opens is for a write.
const WRITES_EVERY: u64 = 10;

/// Opens and closes a file repeatedly; returns the resources after some of them, and in the end.
fn open_often(mut open: impl FnMut(u64)) -> [ProcessSize; 2] {
    (0..OPENS.0).for_each(&mut open);
    let warm = ProcessSize::of(std::process::id());
    (OPENS.0..OPENS.1).for_each(&mut open);
    [warm, ProcessSize::of(std::process::id())]
}

#[test]
fn a_process_that_opens_a_file_many_times_stays_as_large_as_it_was() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // An outbox is touched once all around, up to its size (16 MiB unless set): with a small one that is over soon.
    let Some(stage) = Stage::start(1, "[cache]\noutbox = \"256KiB\"") else { return };
    let partition = stage.mount();
    let options = partition.options().read(true).write(true).create(true);
    let plain = open_often(|number| {
        let file = options.open("plain").unwrap();
        if number.is_multiple_of(WRITES_EVERY) {
            file.write_at(number % 100 * 8, &number.to_ne_bytes()).unwrap();
        }
        file.close().unwrap();
    });
    let group = Alone::group();
    let grouped = open_often(|number| {
        let file = options.open_all(&group, "grouped", &Hints::default()).unwrap();
        if number.is_multiple_of(WRITES_EVERY) {
            file.write_at(number % 100 * 8, &number.to_ne_bytes()).unwrap();
        }
        file.close().unwrap();
    });
    for [warm, end] in [plain, grouped] {
        eprintln!("after {} opens {warm:?}, after {} {end:?}", OPENS.0, OPENS.1);
        assert!(end.bytes <= warm.bytes + GROWTH_BYTES_MAX, "from {warm:?} to {end:?}");
        assert!(end.descriptors <= warm.descriptors + 8, "from {warm:?} to {end:?}");
    }
}
