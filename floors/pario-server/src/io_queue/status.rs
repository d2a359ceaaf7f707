//! The I/O queue's part of `pario status`, as JSON.

use pario_sched::{ApplicationFigures, Histogram, Statistics, Totals};
use serde_json::{Value, json};

use super::IoQueue;
use super::state::QueueState;

/// Files shown, those with most requests.
const FILES_SHOWN: usize = 16;
/// Overdue requests shown.
const OVERDUE_SHOWN: usize = 4;

impl IoQueue {
    /// All counters.
    pub(crate) fn status(&self) -> Value {
        let now_us = self.now_us();
        let state = self.lock();
        let statistics = state.controller.statistics();
        let overdue: Vec<Value> = state
            .controller
            .overdue(now_us, OVERDUE_SHOWN)
            .iter()
            .map(|late| {
                json!({
                    "application": state.applications.name(late.request.application), "inode": late.request.file.0,
                    "offset": late.request.offset, "bytes": late.request.length,
                    "since_s": now_us.saturating_sub(late.since_us) / 1_000_000,
                })
            })
            .collect();
        json!({
            "policy": state.policy,
            "slots": state.slots(),
            "bypassed": state.bypassed,
            "decisions": state.decisions,
            "waiting": state.waiting(),
            "running": statistics.running,
            "overdue": overdue,
            "total": totals(&statistics.total),
            "fairness": { "jain": statistics.fairness.jain, "slowest_to_fastest": statistics.fairness.slowest_to_fastest },
            "deliberate_waits": {
                "waits": statistics.deliberate.waits, "hits": statistics.deliberate.hits,
                "lost_us": statistics.deliberate.waited_miss_us, "won_us": statistics.deliberate.won_us,
            },
            "applications": applications(&state, &statistics),
            "gone": totals(&statistics.forgotten_applications),
            "files": files(&statistics),
        })
    }
}

/// Mounted applications, with their requests.
fn applications(state: &QueueState, statistics: &Statistics) -> Vec<Value> {
    let figures = |id| statistics.applications.iter().find(|figures| figures.application == id);
    let none = Totals::default();
    state
        .applications
        .iter()
        .map(|(id, known)| {
            let found: Option<&ApplicationFigures> = figures(id);
            let mut shown = totals(found.map_or(&none, |figures| &figures.totals));
            shown["name"] = json!(known.name);
            shown["weight"] = json!(known.weight);
            shown["sessions"] = json!(known.sessions);
            shown["bypassed"] = json!(known.bypassed);
            shown["taken_records"] = json!(known.drained.records);
            shown["taken_bytes"] = json!(known.drained.bytes);
            shown["unfinished"] = json!(found.map_or(0, |figures| figures.unfinished));
            shown
        })
        .collect()
}

fn files(statistics: &Statistics) -> Vec<Value> {
    let mut files: Vec<_> = statistics.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.totals.posted));
    files
        .into_iter()
        .take(FILES_SHOWN)
        .map(|file| {
            let mut shown = totals(&file.totals);
            shown["inode"] = json!(file.file.0);
            shown
        })
        .collect()
}

fn totals(of: &Totals) -> Value {
    json!({
        "requests": of.posted, "refused": of.refused, "held": of.held, "withdrawn": of.withdrawn,
        "done": of.done, "failed": of.failed, "operations": of.runs, "served": of.served,
        "read_bytes": of.read_bytes, "written_bytes": of.written_bytes,
        "request_bytes": histogram(&of.request_bytes), "wait_us": histogram(&of.wait_us),
        "service_us": histogram(&of.service_us), "slowdown": of.slowdown(),
    })
}

fn histogram(of: &Histogram) -> Value {
    json!({ "count": of.count(), "mean": of.mean(), "p50": of.quantile(0.5), "p99": of.quantile(0.99), "max": of.max() })
}
