//! Reports of a controller: overdue requests, statistics, the trace. Never: changes what is served.

use super::{ApplicationEntry, Controller};
use crate::request::{HostId, Request, RequestId};
use crate::statistics::{ApplicationFigures, FileFigures, Statistics, fairness};
use crate::trace::Trace;

/// A request that was issued and has not been completed within `overdue_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// The request's id.
    pub id: RequestId,
    /// The host that runs it.
    pub host: HostId,
    /// As posted.
    pub request: Request,
    /// Since when it runs.
    pub since_us: u64,
}

impl Controller {
    /// Requests that have been running for longer than `overdue_us`, longest first, at most `count_max`.
    #[must_use]
    pub fn overdue(&self, now_us: u64, count_max: usize) -> Vec<Overdue> {
        let long =
            |(since_us, _): &&(u64, RequestId)| self.options.overdue_us < now_us.saturating_sub(*since_us);
        let tell = |(since_us, id): &(u64, RequestId)| {
            let request = self.entry(*id)?.request;
            Some(Overdue { id: *id, host: request.host, request, since_us: *since_us })
        };
        self.running.iter().take_while(long).take(count_max).filter_map(tell).collect()
    }

    /// All statistics, as of now.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let figures = |(application, known): (_, &ApplicationEntry)| {
            let open_us =
                if known.unfinished == 0 { 0 } else { self.now_us.saturating_sub(known.busy_since_us) };
            let busy_us = known.busy_us + open_us;
            let (weight, unfinished, totals) = (known.weight, known.unfinished, known.totals.clone());
            ApplicationFigures { application, weight, unfinished, busy_us, totals }
        };
        let applications: Vec<ApplicationFigures> =
            self.applications.sorted().into_iter().map(figures).collect();
        let files = self.files.sorted().into_iter();
        Statistics {
            total: self.total.clone(),
            fairness: fairness(&applications),
            applications,
            files: files.map(|(file, known)| FileFigures { file, totals: known.totals.clone() }).collect(),
            forgotten_applications: self.forgotten_applications.clone(),
            forgotten_files: self.forgotten_files.clone(),
            waiting: self.unfinished() - self.running.len(),
            running: self.running.len(),
            deliberate: self.policy.waiting(),
        }
    }

    /// The last events, up to `trace_records_max`.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Index nodes read by decisions since the last call: the cost of `next`.
    pub fn take_visited(&mut self) -> u64 {
        self.policy.take_visited() + std::mem::take(&mut self.visited)
    }
}
