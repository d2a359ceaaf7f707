//! Virtual requests by application, each application's in the order of arrival, and applications by a key of the policy.
//!
//! Always: exactly the applications with waiting requests are in the order.

use std::collections::HashMap;

use super::{Virtual, VirtualId};
use crate::index::Index;
use crate::request::ApplicationId;

/// Input of the policy for an application's key.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowHead<S> {
    pub(super) weight: u32,
    /// Bytes of its first virtual request.
    pub(super) bytes: u64,
    pub(super) state: S,
}

#[derive(Debug)]
struct ApplicationFlow<K, S> {
    weight: u32,
    state: S,
    waiting: Index<(u64, VirtualId), ()>,
    key: Option<K>,
}

/// Applications with their requests; `S` is the policy's state for each.
#[derive(Debug)]
pub(super) struct Flows<K, S> {
    flows: HashMap<ApplicationId, ApplicationFlow<K, S>>,
    homes: Vec<Option<(ApplicationId, u64, u64)>>,
    order: Index<(K, ApplicationId), ()>,
    visited: u64,
}

impl<K, S> Default for Flows<K, S> {
    fn default() -> Self {
        Self { flows: HashMap::new(), homes: Vec::new(), order: Index::default(), visited: 0 }
    }
}

impl<K: Ord + Copy, S: Copy + Default> Flows<K, S> {
    /// Adds or moves a virtual request; the state of an application without waiting requests first passes through `wake`.
    pub(super) fn put(&mut self, one: &Virtual, wake: impl Fn(S) -> S, key: impl Fn(FlowHead<S>) -> K) {
        self.take(one.id, &key);
        if self.homes.len() <= one.id.index() {
            self.homes.resize(one.id.index() + 1, None);
        }
        self.homes[one.id.index()] = Some((one.application, one.oldest.sequence, one.bytes));
        let flow = self.flow(one.application);
        if flow.waiting.is_empty() {
            flow.state = wake(flow.state);
        }
        flow.waiting.insert((one.oldest.sequence, one.id), ());
        self.sort(one.application, key);
    }

    /// Removes a virtual request, if it waits here.
    pub(super) fn take(&mut self, id: VirtualId, key: impl Fn(FlowHead<S>) -> K) -> Option<u64> {
        let (application, oldest, bytes) = self.homes.get_mut(id.index())?.take()?;
        self.flow(application).waiting.remove(&(oldest, id));
        self.sort(application, key);
        Some(bytes)
    }

    /// The first application, and its first virtual request.
    pub(super) fn first(&self) -> Option<(K, ApplicationId, VirtualId)> {
        let (key, application) = self.order.first()?;
        let (_, id) = self.flows.get(&application)?.waiting.first()?;
        Some((key, application, id))
    }

    /// Changes an application's state, then its position.
    pub(super) fn change(
        &mut self,
        application: ApplicationId,
        state: impl FnOnce(S, u32) -> S,
        key: impl Fn(FlowHead<S>) -> K,
    ) {
        let flow = self.flow(application);
        flow.state = state(flow.state, flow.weight);
        self.sort(application, key);
    }

    pub(super) fn set_weight(
        &mut self,
        application: ApplicationId,
        weight: u32,
        key: impl Fn(FlowHead<S>) -> K,
    ) {
        self.flow(application).weight = weight;
        self.sort(application, key);
    }

    pub(super) fn forget(&mut self, application: ApplicationId) {
        let gone = self.flows.remove(&application);
        assert!(
            gone.is_none_or(|flow| flow.waiting.is_empty()),
            "an application was forgotten with requests waiting"
        );
    }

    pub(super) fn take_visited(&mut self) -> u64 {
        self.order.take_visited() + std::mem::take(&mut self.visited)
    }

    fn flow(&mut self, application: ApplicationId) -> &mut ApplicationFlow<K, S> {
        let empty =
            || ApplicationFlow { weight: 1, state: S::default(), waiting: Index::default(), key: None };
        self.flows.entry(application).or_insert_with(empty)
    }

    fn sort(&mut self, application: ApplicationId, key: impl Fn(FlowHead<S>) -> K) {
        let Some(flow) = self.flows.get_mut(&application) else { return };
        let first = flow.waiting.first();
        let bytes = first.and_then(|(_, id)| self.homes[id.index()]).map(|(.., bytes)| bytes);
        let new = bytes.map(|bytes| key(FlowHead { weight: flow.weight, bytes, state: flow.state }));
        self.visited += flow.waiting.take_visited();
        if flow.key == new {
            return;
        }
        if let Some(before) = std::mem::replace(&mut flow.key, new) {
            self.order.remove(&(before, application));
        }
        if let Some(new) = new {
            self.order.insert((new, application), ());
        }
    }
}
