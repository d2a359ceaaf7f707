//! Counts of served calls by name, for `PARIO_STATS=1`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::environment::{STATS_VARIABLE, flag};
use crate::error::Result;

/// Counts of calls by name; inactive unless enabled.
#[derive(Debug, Default)]
pub struct ServedCalls {
    calls: Option<Mutex<BTreeMap<&'static str, u64>>>,
}

impl ServedCalls {
    /// Active if `PARIO_STATS` is `1`.
    pub fn by_environment() -> Result<ServedCalls> {
        let asked = flag(STATS_VARIABLE)?;
        Ok(ServedCalls { calls: asked.then(Mutex::default) })
    }

    /// One more call.
    pub fn note(&self, call: &'static str) {
        if let Some(calls) = &self.calls {
            *calls.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_insert(0) += 1;
        }
    }

    /// Prints the counts of a rank's file to standard error.
    pub fn report(&self, rank: usize, file: &str) {
        self.print_line(&format!("rank {rank}: {file}"), "MPI");
    }

    /// The same for POSIX calls, which have no rank.
    pub fn report_posix(&self, what: &str) {
        self.print_line(&format!("process {}: {what}", std::process::id()), "POSIX");
    }

    fn print_line(&self, what: &str, kind: &str) {
        let Some(calls) = &self.calls else { return };
        let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.is_empty() {
            return;
        }
        let line = format!("{}\n", line(what, kind, &calls));
        // One write, so that lines of several ranks do not mix; an error is ignored: standard error may be closed.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn line(what: &str, kind: &str, calls: &BTreeMap<&'static str, u64>) -> String {
    let total: u64 = calls.values().sum();
    let each: Vec<String> = calls.iter().map(|(call, count)| format!("{call} {count}")).collect();
    format!("pario: {what}: served {total} {kind} calls: {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_call() {
        let served = ServedCalls { calls: Some(Mutex::default()) };
        for call in ["write_at", "open", "write_at"] {
            served.note(call);
        }
        let calls = served.calls.as_ref().unwrap().lock().unwrap();
        let text = line("rank 1: pario://p/f", "MPI", &calls);
        assert_eq!(text, "pario: rank 1: pario://p/f: served 3 MPI calls: open 1, write_at 2");
    }
}
