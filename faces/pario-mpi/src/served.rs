//! What was served, counted by call, for `PARIO_STATS=1`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// Counts of calls by name; counts nothing unless it was asked to.
#[derive(Debug)]
pub struct Served {
    calls: Option<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Served {
    /// Counts if `PARIO_STATS` asks for it.
    #[must_use]
    pub fn by_environment() -> Served {
        let asked = std::env::var_os("PARIO_STATS").is_some_and(|value| !value.is_empty() && value != "0");
        Served { calls: asked.then(Mutex::default) }
    }

    /// One more call.
    pub fn note(&self, call: &'static str) {
        if let Some(calls) = &self.calls {
            *calls.lock().unwrap_or_else(PoisonError::into_inner).entry(call).or_insert(0) += 1;
        }
    }

    /// Says what was counted, on standard error.
    pub fn report(&self, rank: usize, file: &str) {
        let Some(calls) = &self.calls else { return };
        let mut line = line(rank, file, &calls.lock().unwrap_or_else(PoisonError::into_inner));
        line.push('\n');
        // In one piece, so that lines of several ranks do not run into each other; nobody to tell if that is closed.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

fn line(rank: usize, file: &str, calls: &BTreeMap<&'static str, u64>) -> String {
    let total: u64 = calls.values().sum();
    let each: Vec<String> = calls.iter().map(|(call, count)| format!("{call} {count}")).collect();
    format!("pario: rank {rank}: {file}: served {total} MPI calls: {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_call() {
        let served = Served { calls: Some(Mutex::default()) };
        for call in ["write_at", "open", "write_at"] {
            served.note(call);
        }
        let calls = served.calls.as_ref().unwrap().lock().unwrap();
        let text = line(1, "pario://p/f", &calls);
        assert_eq!(text, "pario: rank 1: pario://p/f: served 3 MPI calls: open 1, write_at 2");
    }
}
