//! Options of a controller. Always: checked once, by [`Options::check`]; every limit is here.

use crate::error::SetupError;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Limits and tuning; `Options::default()` suits a disk behind a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// At most this many unfinished requests in all.
    pub queue_max: usize,
    /// At most this many unfinished requests of one application; fewer while the whole queue is nearly full.
    pub application_queue_max: usize,
    /// Applications remembered; those without requests are forgotten first.
    pub applications_max: usize,
    /// Files remembered; those without requests are forgotten first.
    pub files_max: usize,
    /// A request that runs longer than this is overdue.
    pub overdue_us: u64,
    /// Whether requests form virtual requests.
    pub aggregation: Aggregation,
    /// At most this many bytes in one virtual request (a larger single request stays whole).
    pub aggregate_bytes_max: u64,
    /// At most this many requests in one virtual request.
    pub aggregate_parts_max: usize,
    /// Requests with a gap of up to this many bytes still count as contiguous.
    pub near_bytes: u64,
    /// Records of the trace; 0 keeps none.
    pub trace_records_max: usize,
    /// For `mlf`.
    pub quantum: QuantumOptions,
    /// For `wsjf`: a request of one mebibyte may be passed by requests that arrive up to this much later.
    pub wsjf_us_per_mib: u64,
    /// For `deadline`: deadline of a read without its own, counted from its arrival.
    pub deadline_read_us: u64,
    /// For `deadline`: the same for a write.
    pub deadline_write_us: u64,
    /// For `tbf`: bytes a second for each unit of an application's weight.
    pub tbf_bytes_per_second: u64,
    /// For `tbf`: largest credit of an application, in bytes.
    pub tbf_burst_bytes: u64,
}

/// Whether requests form virtual requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aggregation {
    /// The policy's default: `fifo` does not, all others do.
    #[default]
    ByPolicy,
    /// Never.
    Off,
    /// Always.
    On,
}

/// The quantum of `mlf`: bytes that a virtual request gains each round, and the most that a file may use in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantumOptions {
    /// The paper's QB: a file's first quantum.
    pub base_bytes: u64,
    /// Smallest quantum.
    pub bytes_min: u64,
    /// Largest quantum.
    pub bytes_max: u64,
    /// A virtual request that was not chosen in this many choices (and sixteen for each request that waits with it) is served first.
    /// Fewer make the bound on waiting tighter; too few serve in the order of arrival before weights take effect.
    pub patience_choices: u64,
    /// Follow each file's history and wait for synchronous streams (section 3.4.2); else the base algorithm alone (3.4.1).
    pub adaptive: bool,
    /// A request within this distance of the end of a file's last one continues its quantum.
    pub window_bytes: u64,
    /// Cost of a switch to another position of the store.
    pub switch: SwitchCost,
    /// Longest wait, regardless of the possible saving.
    pub wait_us_max: u64,
}

/// Cost of a switch to another position; also the most that waiting for a stream's next request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchCost {
    /// Given.
    Fixed {
        /// In microseconds; 0 means: never wait.
        us: u64,
    },
    /// Learned from service times; this is the first guess.
    Measured {
        /// In microseconds.
        initial_us: u64,
    },
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_max: 1 << 18,
            application_queue_max: 1 << 17,
            applications_max: 1 << 12,
            files_max: 1 << 14,
            overdue_us: 30_000_000,
            aggregation: Aggregation::ByPolicy,
            aggregate_bytes_max: MIB,
            aggregate_parts_max: 256,
            near_bytes: 0,
            trace_records_max: 0,
            quantum: QuantumOptions::default(),
            wsjf_us_per_mib: 1_000_000,
            deadline_read_us: 500_000,
            deadline_write_us: 5_000_000,
            tbf_bytes_per_second: 100 * MIB,
            tbf_burst_bytes: 4 * MIB,
        }
    }
}

impl Default for QuantumOptions {
    fn default() -> Self {
        Self {
            base_bytes: 32 * KIB,
            bytes_min: 4 * KIB,
            bytes_max: 8 * MIB,
            patience_choices: 1024,
            adaptive: true,
            window_bytes: 256 * KIB,
            switch: SwitchCost::Measured { initial_us: 2_000 },
            wait_us_max: 20_000,
        }
    }
}

impl Options {
    /// Refuses invalid values.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        let slots = usize::try_from(u32::MAX).unwrap_or(usize::MAX) - 1;
        let rules = [
            (0 < self.queue_max && self.queue_max < slots, "queue_max", "must be from 1 to 4294967293"),
            (0 < self.application_queue_max, "application_queue_max", "must be at least 1"),
            (0 < self.applications_max, "applications_max", "must be at least 1"),
            (0 < self.files_max, "files_max", "must be at least 1"),
            (0 < self.overdue_us, "overdue_us", "must be at least 1"),
            (0 < self.aggregate_parts_max, "aggregate_parts_max", "must be at least 1"),
            (0 < self.quantum.bytes_min, "quantum.bytes_min", "must be at least 1"),
            (
                self.quantum.bytes_min <= self.quantum.base_bytes,
                "quantum.base_bytes",
                "must not be below bytes_min",
            ),
            (
                self.quantum.base_bytes <= self.quantum.bytes_max,
                "quantum.bytes_max",
                "must not be below base_bytes",
            ),
            (0 < self.tbf_bytes_per_second, "tbf_bytes_per_second", "must be at least 1"),
            (0 < self.tbf_burst_bytes, "tbf_burst_bytes", "must be at least 1"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, name, rule)) => Err(SetupError::Option { name, rule }),
            None => Ok(()),
        }
    }
}
