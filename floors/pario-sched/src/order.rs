//! Order of overlapping requests of one file.
//!
//! Never: knows a policy. Always: a request that overlaps an earlier unfinished one, where one of the two writes, is held until that one
//! is finished; no other request is held. A held request is attached to one blocker at a time and is checked again when that one ends. A
//! check visits O(log n + k) nodes, where k requests overlap the bytes.

use crate::index::{Index, Summary};
use crate::request::{IoKind, Request, RequestId};

/// Largest end and smallest sequence of a subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OverlapSummary {
    end_max: u64,
    sequence_min: u64,
}

impl Summary for OverlapSummary {
    fn with(self, other: Self) -> Self {
        let end_max = self.end_max.max(other.end_max);
        Self { end_max, sequence_min: self.sequence_min.min(other.sequence_min) }
    }
}

/// Unfinished requests of one file by byte range.
#[derive(Debug, Default)]
pub(crate) struct OverlapOrder {
    reads: Index<(u64, RequestId), OverlapSummary>,
    writes: Index<(u64, RequestId), OverlapSummary>,
}

impl OverlapOrder {
    pub(crate) fn insert(&mut self, id: RequestId, request: &Request) {
        if request.length == 0 {
            return;
        }
        let span = OverlapSummary { end_max: request.end(), sequence_min: id.sequence };
        self.side(request.kind).insert((request.offset, id), span);
    }

    pub(crate) fn remove(&mut self, id: RequestId, request: &Request) {
        if request.length == 0 {
            return;
        }
        let was_there = self.side(request.kind).remove(&(request.offset, id));
        assert!(was_there, "request {id} was finished twice");
    }

    /// An earlier unfinished request that must finish before this one may run.
    pub(crate) fn blocker(&self, id: RequestId, request: &Request) -> Option<RequestId> {
        if request.length == 0 {
            return None;
        }
        let overlaps =
            |span: OverlapSummary| request.offset < span.end_max && span.sequence_min < id.sequence;
        // Every key with this start or a later one begins after the request's last byte.
        let limit = (request.end(), RequestId { sequence: 0, slot: 0 });
        let write = self.writes.last_where(&limit, overlaps);
        let found = match request.kind {
            IoKind::Read => write,
            IoKind::Write => write.or_else(|| self.reads.last_where(&limit, overlaps)),
        };
        found.map(|(_, blocker)| blocker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    fn side(&mut self, kind: IoKind) -> &mut Index<(u64, RequestId), OverlapSummary> {
        match kind {
            IoKind::Read => &mut self.reads,
            IoKind::Write => &mut self.writes,
        }
    }
}
