//! Records of the controller: requests, files, applications and operations in progress.
//!
//! Never: changes state on its own; the controller does.

use crate::aggregate::OffsetQueue;
use crate::order::OverlapOrder;
use crate::policy::VirtualId;
use crate::request::{FileId, IoKind, Request, RequestId};
use crate::statistics::Totals;
use crate::table::TableSlot;

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchedulingState {
    Held,
    Waiting(VirtualId),
    Ready,
    Running { since_us: u64, run: usize },
}

/// Slots of the counters of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterSlots {
    pub(super) file: TableSlot,
    pub(super) application: TableSlot,
}

#[derive(Debug)]
pub(super) struct RequestEntry {
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) state: SchedulingState,
    pub(super) file: TableSlot,
    pub(super) application: TableSlot,
    /// Requests blocked by this one.
    pub(super) holds: Vec<RequestId>,
}

impl RequestEntry {
    /// Slots of its counters.
    pub(super) fn slots(&self) -> CounterSlots {
        CounterSlots { file: self.file, application: self.application }
    }
}

#[derive(Debug, Default)]
pub(super) struct FileQueues {
    pub(super) order: OverlapOrder,
    pub(super) reads: OffsetQueue,
    pub(super) writes: OffsetQueue,
    pub(super) totals: Totals,
}

impl FileQueues {
    pub(super) fn queue(&mut self, kind: IoKind) -> &mut OffsetQueue {
        match kind {
            IoKind::Read => &mut self.reads,
            IoKind::Write => &mut self.writes,
        }
    }
}

#[derive(Debug)]
pub(super) struct ApplicationEntry {
    pub(super) weight: u32,
    pub(super) unfinished: usize,
    /// Since when it has unfinished requests.
    pub(super) busy_since_us: u64,
    pub(super) busy_us: u64,
    /// It has left; forgotten when its last request ends.
    pub(super) withdrawn: bool,
    pub(super) totals: Totals,
}

impl Default for ApplicationEntry {
    fn default() -> Self {
        Self {
            weight: 1,
            unfinished: 0,
            busy_since_us: 0,
            busy_us: 0,
            withdrawn: false,
            totals: Totals::default(),
        }
    }
}

/// An operation in progress.
#[derive(Debug)]
pub(super) struct RunningIo {
    pub(super) parts_left: usize,
    pub(super) file: FileId,
    pub(super) kind: IoKind,
    pub(super) end: u64,
    pub(super) bytes: u64,
    pub(super) since_us: u64,
    pub(super) follows: bool,
    pub(super) short: bool,
}
