//! Number of processors of a job's processes together.
//!
//! Never: reduced by this process's own affinity. Always: at least one; counted once.

#![expect(unsafe_code, reason = "a call that the wrapper has no word for")]

use std::path::Path;
use std::sync::OnceLock;

/// Processors of the job's control group if known, else all of the machine. Not this process's affinity mask, which is smaller where each
/// process is bound to its own processors.
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
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!((count("0-3,8\n"), count("7"), count("0-127")), (Some(5), Some(1), Some(128)));
        assert_eq!((count(""), count("3-1"), count("a")), (None, None, None));
        assert!(std::thread::available_parallelism().unwrap().get() <= processors());
    }
}
