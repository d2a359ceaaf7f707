//! Application and weight of each session.
//!
//! Always: sessions that mounted under one name are one application while at least one of them is mounted; an unknown or ended session
//! counts as application 0.

use std::collections::{BTreeMap, HashMap};

use pario_core::SessionId;
use pario_sched::ApplicationId;

use super::WEIGHT_MAX;
use crate::drain::Amount;

/// Application of ended sessions.
const ENDED: ApplicationId = ApplicationId(0);

/// One application.
#[derive(Debug)]
pub(super) struct ApplicationInfo {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) sessions: usize,
    pub(super) bypassed: u64,
    /// Records and bytes drained from its outboxes.
    pub(super) drained: Amount,
}

/// All applications with a mounted session.
#[derive(Debug)]
pub(super) struct Applications {
    weights: BTreeMap<String, u32>,
    by_name: HashMap<String, ApplicationId>,
    known: BTreeMap<ApplicationId, ApplicationInfo>,
    sessions: HashMap<SessionId, ApplicationId>,
    next: u64,
}

impl Applications {
    pub(super) fn new(weights: BTreeMap<String, u32>) -> Applications {
        Applications {
            weights,
            by_name: HashMap::new(),
            known: BTreeMap::new(),
            sessions: HashMap::new(),
            next: ENDED.0 + 1,
        }
    }

    /// A session mounts; returns its application and the effective weight: the partition's, else the latest one it requested.
    pub(super) fn join(&mut self, session: SessionId, name: &str, wished: u32) -> (ApplicationId, u32) {
        let weight = self.weights.get(name).copied().unwrap_or(wished).clamp(1, WEIGHT_MAX);
        let id = *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            let id = ApplicationId(self.next);
            self.next += 1;
            id
        });
        let fresh = ApplicationInfo {
            name: name.to_owned(),
            weight,
            sessions: 0,
            bypassed: 0,
            drained: Amount::default(),
        };
        let known = self.known.entry(id).or_insert(fresh);
        known.weight = weight;
        if self.sessions.insert(session, id) != Some(id) {
            known.sessions += 1;
        }
        (id, weight)
    }

    /// A session ends; returns the application, if that was its last session.
    pub(super) fn leave(&mut self, session: SessionId) -> Option<ApplicationId> {
        let id = self.sessions.remove(&session)?;
        let known = self.known.get_mut(&id)?;
        known.sessions -= 1;
        if known.sessions != 0 {
            return None;
        }
        if let Some(gone) = self.known.remove(&id) {
            self.by_name.remove(&gone.name);
        }
        Some(id)
    }

    pub(super) fn of(&self, session: SessionId) -> ApplicationId {
        self.sessions.get(&session).copied().unwrap_or(ENDED)
    }

    pub(super) fn name(&self, id: ApplicationId) -> &str {
        self.known.get(&id).map_or("an ended application", |known| known.name.as_str())
    }

    pub(super) fn count_bypass(&mut self, session: SessionId) {
        if let Some(known) = self.sessions.get(&session).and_then(|id| self.known.get_mut(id)) {
            known.bypassed += 1;
        }
    }

    /// Application and weight of a session; weight 1 for an ended session.
    pub(super) fn application_of(&self, session: SessionId) -> (ApplicationId, u32) {
        let id = self.of(session);
        (id, self.known.get(&id).map_or(1, |known| known.weight))
    }

    pub(super) fn count_drained(&mut self, session: SessionId, amount: Amount) {
        if let Some(known) = self.sessions.get(&session).and_then(|id| self.known.get_mut(id)) {
            known.drained.records += amount.records;
            known.drained.bytes += amount.bytes;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ApplicationId, &ApplicationInfo)> {
        self.known.iter().map(|(id, known)| (*id, known))
    }
}
