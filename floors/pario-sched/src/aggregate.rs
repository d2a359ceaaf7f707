//! Aggregation: waiting requests of one file and kind, in offset order, become virtual requests.
//!
//! Never: holds a request that must wait for other bytes (see `order`); calls the policy (it returns the changes). Always: a waiting
//! request is in exactly one virtual request; parts are in offset order; a virtual request is within the limits of bytes and parts,
//! unless it is a single request.

use crate::index::Index;
use crate::options::Options;
use crate::policy::{Joins, Virtual, VirtualId};
use crate::request::{Request, RequestId};

/// The virtual requests of one file and kind by first byte.
#[derive(Debug, Default)]
pub(crate) struct OffsetQueue {
    by_start: Index<(u64, VirtualId), ()>,
}

impl OffsetQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    pub(crate) fn take_visited(&self) -> u64 {
        self.by_start.take_visited()
    }
}

/// Effect of a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueChange {
    /// It is a virtual request of its own.
    New(Virtual),
    /// It became part of one.
    Grown(Virtual),
    /// It became part of `into`, which then touched and absorbed `gone`.
    Merged { into: Virtual, gone: Virtual },
}

/// Effect of a removed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// A smaller virtual request.
    Shrunk(Virtual),
    /// None is left.
    Gone(Virtual),
}

#[derive(Debug, Clone)]
struct Bundle {
    of: Virtual,
    parts: VirtualParts,
}

/// The requests of a virtual request with their offsets, in offset order. Most have one, which needs no heap memory.
#[derive(Debug, Clone)]
pub(crate) enum VirtualParts {
    One((u64, RequestId)),
    Many(Vec<(u64, RequestId)>),
}

impl VirtualParts {
    pub(crate) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.as_slice().iter().map(|(_, id)| *id)
    }

    fn as_slice(&self) -> &[(u64, RequestId)] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Many(parts) => parts,
        }
    }

    fn as_vec(&mut self) -> &mut Vec<(u64, RequestId)> {
        if let Self::One(part) = self {
            *self = Self::Many(vec![*part]);
        }
        match self {
            Self::Many(parts) => parts,
            Self::One(_) => unreachable!("it was just made many"),
        }
    }
}

/// All virtual requests of a controller.
#[derive(Debug)]
pub(crate) struct Bundles {
    bundles: Vec<Option<Bundle>>,
    free: Vec<VirtualId>,
    joins: Joins,
    bytes_max: u64,
    parts_max: usize,
    near_bytes: u64,
}

impl Bundles {
    pub(crate) fn new(options: &Options, joins: Joins) -> Self {
        let Options { aggregate_bytes_max: bytes_max, aggregate_parts_max: parts_max, near_bytes, .. } =
            *options;
        Self { bundles: Vec::new(), free: Vec::new(), joins, bytes_max, parts_max, near_bytes }
    }

    /// Adds a request to the queue, alone or with its neighbours.
    pub(crate) fn insert(
        &mut self,
        queue: &mut OffsetQueue,
        id: RequestId,
        request: &Request,
    ) -> QueueChange {
        let (before, after) = self.neighbours(queue, request);
        match (before, after) {
            (Some(before), after) => {
                let grown = self.grow(queue, before, id, request);
                match after.filter(|after| self.touch(&grown, &self.of(*after))) {
                    Some(after) => self.merge(queue, grown, after),
                    None => QueueChange::Grown(grown),
                }
            }
            (None, Some(after)) => QueueChange::Grown(self.grow(queue, after, id, request)),
            (None, None) => QueueChange::New(self.make(queue, id, request)),
        }
    }

    /// Removes a whole virtual request, to be served; its parts are in offset order.
    pub(crate) fn take(&mut self, queue: &mut OffsetQueue, id: VirtualId) -> (Virtual, VirtualParts) {
        let bundle = self.bundles[id.index()].take().expect("a policy picks only what waits");
        queue.by_start.remove(&(bundle.of.start, id));
        self.free.push(id);
        (bundle.of, bundle.parts)
    }

    /// Removes one request that will not be served.
    pub(crate) fn withdraw<'a>(
        &mut self,
        queue: &mut OffsetQueue,
        id: VirtualId,
        request: RequestId,
        look_up: impl Fn(RequestId) -> Option<&'a Request>,
    ) -> Left {
        let before = self.of(id);
        let bundle = self.bundle(id);
        bundle.parts.as_vec().retain(|(_, part)| *part != request);
        let others = bundle.parts.ids().filter_map(|part| Some(single(id, part, look_up(part)?)));
        let Some(of) = others.reduce(|all, part| united(&all, &part)) else {
            self.take(queue, id);
            return Left::Gone(before);
        };
        bundle.of = of;
        queue.by_start.remove(&(before.start, id));
        queue.by_start.insert((of.start, id), ());
        Left::Shrunk(of)
    }

    pub(crate) fn of(&self, id: VirtualId) -> Virtual {
        self.bundles[id.index()].as_ref().expect("only waiting virtual requests are looked up").of
    }

    fn bundle(&mut self, id: VirtualId) -> &mut Bundle {
        self.bundles[id.index()].as_mut().expect("only waiting virtual requests are changed")
    }

    /// The virtual requests before and after a request that it can join.
    fn neighbours(&self, queue: &OffsetQueue, request: &Request) -> (Option<VirtualId>, Option<VirtualId>) {
        if self.joins == Joins::Never || request.length == 0 {
            return (None, None);
        }
        let own = single(VirtualId(0), RequestId { sequence: 0, slot: 0 }, request);
        let here = (request.offset, VirtualId(u32::MAX));
        let before = queue.by_start.last_where(&here, |()| true).map(|(_, id)| id);
        let after = queue.by_start.first_from(&here).map(|(_, id)| id);
        let before = before.filter(|id| self.touch(&self.of(*id), &own));
        let after = after.filter(|id| self.touch(&own, &self.of(*id)));
        (before, after)
    }

    /// Whether the second begins where the first ends (or nearly, or before), and both together stay within the limits.
    fn touch(&self, first: &Virtual, second: &Virtual) -> bool {
        second.start <= first.end.saturating_add(self.near_bytes)
            && 0 < first.bytes
            && 0 < second.bytes
            && (self.joins == Joins::File || first.application == second.application)
            && first.bytes.saturating_add(second.bytes) <= self.bytes_max
            && first.parts + second.parts <= self.parts_max
    }

    fn make(&mut self, queue: &mut OffsetQueue, id: RequestId, request: &Request) -> Virtual {
        let name = self.free.pop().unwrap_or_else(|| {
            self.bundles.push(None);
            VirtualId(u32::try_from(self.bundles.len() - 1).expect("the queue limit is below 2^32"))
        });
        let of = single(name, id, request);
        self.bundles[name.index()] = Some(Bundle { of, parts: VirtualParts::One((request.offset, id)) });
        queue.by_start.insert((of.start, name), ());
        of
    }

    fn grow(
        &mut self,
        queue: &mut OffsetQueue,
        name: VirtualId,
        id: RequestId,
        request: &Request,
    ) -> Virtual {
        let bundle = self.bundle(name);
        let (before, of) = (bundle.of, united(&bundle.of, &single(name, id, request)));
        let part = (request.offset, id);
        let parts = bundle.parts.as_vec();
        parts.insert(parts.partition_point(|other| *other < part), part);
        bundle.of = of;
        if before.start != of.start {
            queue.by_start.remove(&(before.start, name));
            queue.by_start.insert((of.start, name), ());
        }
        of
    }

    fn merge(&mut self, queue: &mut OffsetQueue, grown: Virtual, after: VirtualId) -> QueueChange {
        let (gone, parts) = self.take(queue, after);
        let into = united(&grown, &gone);
        let bundle = self.bundle(grown.id);
        bundle.of = into;
        let own = bundle.parts.as_vec();
        own.extend(parts.as_slice());
        // Overlapping reads may lie across the seam.
        own.sort();
        QueueChange::Merged { into, gone }
    }

    /// The parts of a virtual request.
    pub(crate) fn parts(&self, id: VirtualId) -> impl Iterator<Item = RequestId> {
        self.bundles[id.index()].iter().flat_map(|bundle| bundle.parts.ids())
    }
}

/// One request as a virtual request.
fn single(name: VirtualId, id: RequestId, request: &Request) -> Virtual {
    Virtual {
        id: name,
        file: request.file,
        kind: request.kind,
        application: request.application,
        start: request.offset,
        end: request.end(),
        bytes: request.length,
        parts: 1,
        oldest: id,
        arrival_us: request.arrival_us,
        deadline_us: request.deadline_us,
        undated_us: if request.deadline_us.is_some() { None } else { Some(request.arrival_us) },
    }
}

/// Both together, under the id of the first.
fn united(one: &Virtual, other: &Virtual) -> Virtual {
    let older = if other.oldest < one.oldest { other } else { one };
    Virtual {
        application: older.application,
        oldest: older.oldest,
        arrival_us: one.arrival_us.min(other.arrival_us),
        start: one.start.min(other.start),
        end: one.end.max(other.end),
        bytes: one.bytes + other.bytes,
        parts: one.parts + other.parts,
        deadline_us: one.deadline_us.into_iter().chain(other.deadline_us).min(),
        undated_us: one.undated_us.into_iter().chain(other.undated_us).min(),
        ..*one
    }
}
