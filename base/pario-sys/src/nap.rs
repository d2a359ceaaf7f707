//! Sleeping for a moment on a machine whose processors are all busy.
//!
//! Whoever wakes up there waits until those who run have had their turn: milliseconds, each time. A thread whose turns are short comes first
//! (Linux 6.12 and newer), so one that naps takes short turns until it is awake.
//!
//! Never: changes anything but the length of this thread's turns, and that only while it naps. Always: where the kernel does not allow it,
//! sleeps as everybody does.

#![expect(unsafe_code, reason = "system calls that the wrapper has no word for")]

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep};

/// Turns of a thread that naps: the shortest that there are.
const TURN: Duration = Duration::from_micros(100);

/// `struct sched_attr` of `linux/sched/types.h`, as it was at first.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Turns {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Nanoseconds of a turn, where the policy is the usual one.
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl Turns {
    /// Of this thread; `None`: they are not told, or it is not one like others.
    fn now() -> Option<Turns> {
        let mut turns = Turns::default();
        let size = libc::c_uint::try_from(size_of::<Turns>()).ok()?;
        // SAFETY: the structure lives and is as long as is said.
        let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut turns, size, 0) };
        (told == 0 && i32::try_from(turns.policy) == Ok(libc::SCHED_OTHER)).then_some(turns)
    }

    fn with(self, runtime: u64) -> Turns {
        Turns { runtime, ..self }
    }

    /// Gives turns back the length that they had; what else was changed meanwhile stays.
    fn restore(&self) {
        // A length of 0 means that of all others, and it is not told whether this one was that.
        let as_others = || Turns::now().is_some_and(|now| now.with(0).apply());
        if as_others() && Turns::now().is_some_and(|now| now.runtime != self.runtime) {
            let _ = Turns::now().is_some_and(|now| now.with(self.runtime).apply());
        }
    }

    fn apply(&self) -> bool {
        // SAFETY: the structure lives, and says how long it is.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(self), 0) == 0 }
    }
}

/// Sleeps for `time` and runs again at once, whoever else wants a processor.
pub fn nap(time: Duration) {
    let before = Turns::now();
    let runtime = u64::try_from(TURN.as_nanos()).unwrap_or(u64::MAX);
    let changed = before.is_some_and(|turns| turns.with(runtime).apply());
    sleep(time);
    if let Some(before) = before.filter(|_| changed) {
        before.restore();
    }
}

/// Sleeps; a signal does not shorten it.
fn sleep(time: Duration) {
    let mut left = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}

/// Processors that the processes of this job have together, as far as that is told: those of its control group, or all of the machine. Not
/// those that this process may use, which are fewer where each is bound to its own.
#[must_use]
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: the call only reads.
        let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let all = usize::try_from(all).unwrap_or(1).max(1);
        of_control_group().map_or(all, |some| some.min(all))
    })
}

fn of_control_group() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let file = Path::new("/sys/fs/cgroup").join(group).join("cpuset.cpus.effective");
    count(&std::fs::read_to_string(file).ok()?)
}

/// How many numbers a list like "0-3,8" has.
fn count(list: &str) -> Option<usize> {
    let mut all = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        all += last.checked_sub(first)? + 1;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use pario_core::Clock;

    use super::*;
    use crate::clock::MonotonicClock;

    #[test]
    fn a_nap_is_as_long_as_it_was_to_be_and_changes_nothing() {
        let before = Turns::now().expect("an ordinary thread");
        let began = MonotonicClock.now();
        nap(Duration::from_millis(3));
        assert!(Duration::from_millis(3) <= MonotonicClock.now().since(began));
        assert_eq!(Turns::now(), Some(before));
        // One that has turns of its own keeps them.
        let own = before.with(3_000_000);
        assert!(own.apply(), "what was told can be asked for");
        let told = Turns::now();
        nap(Duration::from_micros(10));
        assert_eq!(Turns::now(), told);
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!((count("0-3,8\n"), count("7"), count("0-127")), (Some(5), Some(1), Some(128)));
        assert_eq!((count(""), count("3-1"), count("a")), (None, None, None));
        assert!(std::thread::available_parallelism().unwrap().get() <= processors());
    }
}
