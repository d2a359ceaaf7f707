//! Results of a run of the model.

use super::{NS, VirtualNanos};

/// Result of an application.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AppResult {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) start_ns: VirtualNanos,
    pub(crate) end_ns: VirtualNanos,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Sum of their response times, from sending to reply.
    pub(crate) response_ns: VirtualNanos,
    /// The longest.
    pub(crate) response_ns_max: VirtualNanos,
}

/// Result of a run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RunResult {
    pub(crate) apps: Vec<AppResult>,
    /// Commands that the disk carried out.
    pub(crate) commands: u64,
    /// How long it was busy.
    pub(crate) busy_ns: VirtualNanos,
    /// Requests that the scheduler saw.
    pub(crate) requests: u64,
}

impl AppResult {
    /// Seconds from its start to its end.
    pub(crate) fn seconds(&self) -> f64 {
        seconds(self.end_ns - self.start_ns)
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, response: VirtualNanos) {
        self.requests += 1;
        self.response_ns += response;
        self.response_ns_max = self.response_ns_max.max(response);
    }

    /// Mean response time of a request, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub(crate) fn response_ms(&self) -> f64 {
        seconds(self.response_ns) * 1000.0 / self.requests as f64
    }
}

impl RunResult {
    /// Seconds until the last application was done.
    pub(crate) fn seconds(&self) -> f64 {
        seconds(self.apps.iter().map(|app| app.end_ns).max().unwrap_or(0))
    }

    /// How much earlier the first application was done than the last, as a share of the time.
    pub(crate) fn finish_gap(&self) -> f64 {
        let first = self.apps.iter().map(|app| app.end_ns).min().unwrap_or(0);
        1.0 - seconds(first) / self.seconds()
    }

    /// Millions of bytes a second, all applications together.
    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.apps.iter().map(|app| app.bytes).sum::<u64>() as f64 / 1e6 / self.seconds()
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub(crate) fn seconds(span: VirtualNanos) -> f64 {
    span as f64 / NS as f64
}
