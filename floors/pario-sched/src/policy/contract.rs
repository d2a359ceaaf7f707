//! The trait of a policy, and the values that pass between it and the controller.
//!
//! Never: depends on one policy. Always: `now_us` never goes backwards.

use std::fmt;

use crate::request::{ApplicationId, FileId, IoKind, RequestId};

/// Id of a virtual request; ids are small numbers and reused after it is served or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualId(pub(crate) u32);

impl VirtualId {
    /// As an index of tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A virtual request: one request, or contiguous ones of one file and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Virtual {
    /// Its id.
    pub id: VirtualId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub kind: IoKind,
    /// The application of its oldest request.
    pub application: ApplicationId,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Sum of its requests' lengths.
    pub bytes: u64,
    /// Number of requests.
    pub parts: usize,
    /// Its oldest request.
    pub oldest: RequestId,
    /// Arrival of its oldest request.
    pub arrival_us: u64,
    /// Earliest deadline of its requests; none lies before its request's arrival.
    pub deadline_us: Option<u64>,
    /// Earliest arrival of its requests without deadline.
    pub undated_us: Option<u64>,
}

/// Decision of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyChoice {
    /// Serve this one now.
    Serve(VirtualId),
    /// Not yet.
    Wait {
        /// Ask again at this time.
        until_us: u64,
    },
    /// No request can be served, now or by waiting.
    Nothing,
}

/// Which requests may form a virtual request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joins {
    /// None: each stays alone.
    Never,
    /// Requests of one application.
    Application,
    /// All requests of one file.
    File,
}

/// A run that the host has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunDone {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub kind: IoKind,
    /// One past its last byte.
    pub end: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// From `next` to the completion of its last part.
    pub service_us: u64,
    /// It began where the run issued before it ended, in the same file.
    pub follows: bool,
    /// It reached the end of the file.
    pub short: bool,
}

/// A scheduling policy. `now_us` never goes backwards.
pub trait Policy: fmt::Debug + Send {
    /// Which requests may form a virtual request.
    fn joins(&self) -> Joins {
        Joins::File
    }
    /// A new virtual request of one part.
    fn insert(&mut self, new: &Virtual, now_us: u64);
    /// One of its virtual requests has gained or lost a part.
    fn update(&mut self, changed: &Virtual, now_us: u64);
    /// One of its virtual requests has absorbed another one.
    fn merge(&mut self, into: &Virtual, gone: &Virtual, now_us: u64) {
        self.remove(gone);
        self.update(into, now_us);
    }
    /// One of its virtual requests was removed without being picked.
    fn remove(&mut self, gone: &Virtual);
    /// The request to serve now; removes it.
    fn pick(&mut self, now_us: u64) -> PolicyChoice;
    /// A run has finished.
    fn finished(&mut self, _run: &RunDone, _now_us: u64) {}
    /// An application has a new weight.
    fn set_weight(&mut self, _application: ApplicationId, _weight: u32) {}
    /// The file has no requests; its state can be dropped.
    fn forget_file(&mut self, _file: FileId) {}
    /// The application has left and has no requests.
    fn forget_application(&mut self, _application: ApplicationId) {}
    /// Index nodes read since the last call, for tests of cost.
    fn take_visited(&mut self) -> u64;
    /// Cost and savings of deliberate waiting so far.
    fn waiting(&self) -> WaitingFigures {
        WaitingFigures::default()
    }
}

/// Cost and savings of deliberate waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitingFigures {
    /// Number of waits while another request could have been served.
    pub waits: u64,
    /// Number of waits in which the awaited request arrived in time.
    pub hits: u64,
    /// Time waited for requests that arrived in time.
    pub waited_hit_us: u64,
    /// Time waited in vain.
    pub waited_miss_us: u64,
    /// Time saved by hits: for each, the cost of a switch less the wait, never below zero.
    pub won_us: u64,
}
