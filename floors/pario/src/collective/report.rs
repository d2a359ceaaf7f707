//! What a process did with a file, in a few lines, when `PARIO_STATS` is set; which method was chosen and why, when
//! `PARIO_EXPLAIN` is.
//!
//! Never: prints anything unasked.

use std::io::Write as _;

use pario_core::Size;

use crate::client::Counts;

/// Whether a variable asks for something.
fn asked(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Says which method was chosen; once per open, by the first rank.
pub(super) fn explain(rank: usize, file: &str, method: &str, why: &str) {
    if rank == 0 && asked("PARIO_EXPLAIN") {
        say(&format!("pario: {file}: {method}: {why}"));
    }
}

/// Reports what this process did since the file was opened.
pub(super) fn report(rank: usize, file: &str, counts: &Counts, faults: &Faults) {
    if asked("PARIO_STATS") {
        lines(rank, file, counts, faults).iter().for_each(|line| say(line));
    }
}

/// Page faults and calls that read or write, of this process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    minor: u64,
    major: u64,
    calls: u64,
}

impl Faults {
    /// As the kernel counts them; what it does not tell is 0.
    pub(super) fn now() -> Faults {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Behind the name, which may hold anything and ends with the last parenthesis.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0);
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let calls = io.lines().filter(|line| line.starts_with("syscr") || line.starts_with("syscw"));
        let calls = calls.filter_map(|line| line.split(": ").nth(1)?.parse::<u64>().ok()).sum();
        Faults { minor: number(7), major: number(9), calls }
    }

    fn since(self, before: Faults) -> Faults {
        Faults {
            minor: self.minor.saturating_sub(before.minor),
            major: self.major.saturating_sub(before.major),
            calls: self.calls.saturating_sub(before.calls),
        }
    }
}

fn lines(rank: usize, file: &str, counts: &Counts, opened: &Faults) -> Vec<String> {
    let size = |bytes: u64| Size(bytes).to_string();
    let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let faults = Faults::now().since(*opened);
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

fn say(line: &str) {
    // To standard error in one piece, since ranks share it; and nobody to tell if that is closed.
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_counted() {
        let counts =
            Counts { records: 3, record_bytes: 2048, view_bytes: 100, messages: 7, ..Counts::default() };
        let text = lines(2, "pario://p/f", &counts, &Faults::now()).join("\n");
        assert!(text.contains("rank 2: pario://p/f: written 2KiB in 3 records"), "{text}");
        assert!(text.contains("7 messages"), "{text}");
        assert!(text.contains("0B of offset lists") || text.contains("0 of offset lists"), "{text}");
    }
}
