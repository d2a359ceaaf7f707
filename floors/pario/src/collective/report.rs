//! Prints the counters of a process for a file if `PARIO_STATS` is set, and the chosen method with its reason if `PARIO_EXPLAIN`
//! is set.
//!
//! Never: prints without one of these variables.

use std::io::Write as _;

use pario_core::Size;

use crate::client::Counts;
use crate::environment::{EXPLAIN_VARIABLE, STATS_VARIABLE, flag};
use crate::error::Result;

/// Refuses unknown values of both variables; part of every collective open.
pub(crate) fn check() -> Result<()> {
    flag(STATS_VARIABLE).and(flag(EXPLAIN_VARIABLE)).map(|_| ())
}

/// A value that the open of a file has checked.
fn is_enabled(variable: &str) -> bool {
    flag(variable).unwrap_or(false)
}

/// Prints the chosen method; once per open, on rank 0.
pub(super) fn explain(rank: usize, file: &str, method: &str, why: &str) {
    if rank == 0 && is_enabled(EXPLAIN_VARIABLE) {
        print_line(&format!("pario: {file}: {method}: {why}"));
    }
}

/// Prints what this process did since the file was opened.
pub(super) fn report(rank: usize, file: &str, counts: &Counts, faults: &ProcessCounters) {
    if is_enabled(STATS_VARIABLE) {
        lines(rank, file, counts, faults).iter().for_each(|line| print_line(line));
    }
}

/// Page faults and read or write system calls of this process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessCounters {
    minor: u64,
    major: u64,
    calls: u64,
}

impl ProcessCounters {
    /// As counted by the kernel; values it does not provide are 0.
    pub(super) fn now() -> ProcessCounters {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The fields after the process name, which may contain any character and ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0);
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let calls = io.lines().filter(|line| line.starts_with("syscr") || line.starts_with("syscw"));
        let calls = calls.filter_map(|line| line.split(": ").nth(1)?.parse::<u64>().ok()).sum();
        ProcessCounters { minor: number(7), major: number(9), calls }
    }

    fn since(self, before: ProcessCounters) -> ProcessCounters {
        ProcessCounters {
            minor: self.minor.saturating_sub(before.minor),
            major: self.major.saturating_sub(before.major),
            calls: self.calls.saturating_sub(before.calls),
        }
    }
}

fn lines(rank: usize, file: &str, counts: &Counts, opened: &ProcessCounters) -> Vec<String> {
    let size = |bytes: u64| Size(bytes).to_string();
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let faults = ProcessCounters::now().since(*opened);
    let at = format!("pario: rank {rank}: {file}");
    vec![
        format!(
            "{at}: written {} in {} records, {} directly, {} by message, in {} ({} waiting for leases)",
            size(counts.record_bytes),
            counts.records,
            size(counts.direct_write_bytes),
            size(counts.sent_bytes),
            ms(counts.write_ns),
            ms(counts.lease_ns),
        ),
        format!(
            "{at}: read {} directly, {} mapped, {} by message, in {}",
            size(counts.direct_read_bytes),
            size(counts.mapped_read_bytes),
            size(counts.received_bytes),
            ms(counts.read_ns),
        ),
        format!(
            "{at}: {} locks asked for, {} kept by the kernel, {} of these waited for; {} waiting for locks",
            counts.locks,
            counts.kernel_locks,
            counts.kernel_lock_waits,
            ms(counts.lock_ns),
        ),
        format!(
            "{at}: {} messages ({} names, {} leases, {} views, {} reads, {} writes); {} of views, {} of offset lists",
            counts.messages,
            counts.name_messages,
            counts.lease_messages,
            counts.view_messages,
            counts.read_messages,
            counts.write_messages,
            size(counts.view_bytes),
            size(counts.list_bytes),
        ),
        format!(
            "{at}: {} page faults ({} major), {} calls that read or write",
            faults.minor + faults.major,
            faults.major,
            faults.calls
        ),
    ]
}

fn print_line(line: &str) {
    // One write to standard error, since ranks share it; an error is ignored: standard error may be closed.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_counted() {
        let counts =
            Counts { records: 3, record_bytes: 2048, view_bytes: 100, messages: 7, ..Counts::default() };
        let text = lines(2, "pario://p/f", &counts, &ProcessCounters::now()).join("\n");
        assert!(text.contains("rank 2: pario://p/f: written 2KiB in 3 records"), "{text}");
        assert!(text.contains("7 messages"), "{text}");
        assert!(text.contains("0B of offset lists") || text.contains("0 of offset lists"), "{text}");
    }
}
