//! Sleeping for a moment on a machine whose processors are all busy.
//!
//! Whoever wakes up there waits until those who run have had their turn: milliseconds, each time. A thread whose turns are short comes first
//! (Linux 6.12 and newer), so one that naps takes short turns until it is awake.
//!
//! Never: changes anything but the length of this thread's turns, and that only while it naps. Always: where the kernel does not allow it,
//! sleeps as everybody does.

#![expect(unsafe_code, reason = "system calls that the wrapper has no word for")]

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
        Turns::of(0)
    }

    /// Of a thread; 0 is this one.
    fn of(thread: libc::pid_t) -> Option<Turns> {
        let mut turns = Turns::default();
        let size = libc::c_uint::try_from(size_of::<Turns>()).ok()?;
        // SAFETY: the structure lives and is as long as is said.
        let told = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut turns, size, 0) };
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
    fn turns_are_short_during_a_nap() {
        let before = Turns::now().expect("an ordinary thread").runtime;
        let (tell, told) = std::sync::mpsc::channel();
        let napper = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            nap(Duration::from_millis(500));
        });
        let thread = told.recv().unwrap();
        let is_short = || Turns::of(thread).is_some_and(|turns| u128::from(turns.runtime) == TURN.as_nanos());
        let seen = std::iter::repeat_with(is_short).take_while(|_| !napper.is_finished()).any(|short| short);
        // Kernels before 6.12 have no such thing, and say 0.
        assert!(seen || before == 0);
        napper.join().unwrap();
    }
}
