//! How the collective accesses of a file are made, and how that changes while it is open.
//!
//! Never: makes a file client-directed, or ceases to: its tier is opened and closed with it. Always: members change together, between
//! two accesses; an access that is under way ends as it began.

use std::sync::{Arc, PoisonError, RwLock};

use super::file::GroupFile;
use super::hints::Hints;
use super::two_phase::TwoPhase;
use crate::error::Result;
use crate::group::{Call, Group};
use crate::partition::Method;

/// What is in force.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) hints: Hints,
    pub(super) method: Method,
    /// For collective calls, if that method was chosen.
    pub(super) two_phase: Option<Arc<TwoPhase>>,
}

impl Manner {
    /// For a method that was decided on; collective.
    pub(super) fn new(group: &Arc<dyn Group>, hints: &Hints, method: Method) -> Result<Manner> {
        let hints = Hints { method: Some(method), ..hints.clone() };
        let two_phase = match method {
            Method::TwoPhase => Some(Arc::new(TwoPhase::new(group, &hints)?)),
            Method::Auto | Method::ServerDirected | Method::ClientDirected => None,
        };
        Ok(Manner { hints, method, two_phase })
    }

    /// What would be in force with further wishes; what is not wished stays as it is.
    fn wished(&self, wishes: &Hints, by_facts: Method) -> (Hints, Method) {
        let method = match wishes.method {
            Some(Method::Auto) => by_facts,
            Some(method) => method,
            None => self.method,
        };
        let is_fixed = [self.method, method].contains(&Method::ClientDirected);
        if is_fixed {
            return (self.hints.clone(), self.method);
        }
        let hints = Hints {
            aggregators: wishes.aggregators.or(self.hints.aggregators),
            buffer_bytes: wishes.buffer_bytes.or(self.hints.buffer_bytes),
            ..self.hints.clone()
        };
        (hints, method)
    }
}

/// What is in force now.
#[derive(Debug)]
pub(super) struct Manners(RwLock<Manner>);

impl Manners {
    pub(super) fn new(manner: Manner) -> Manners {
        Manners(RwLock::new(manner))
    }

    pub(super) fn now(&self) -> Manner {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, manner: Manner) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = manner;
    }
}

impl GroupFile {
    /// Changes how later collective accesses are made; collective, and all must wish the same. The method can change between
    /// server-directed and two-phase, and two-phase its aggregators and buffers; other wishes are for opening and change nothing.
    pub fn change_hints(&self, wishes: &Hints) -> Result<()> {
        self.inner.group.same_in(Call::SetView, "the hints of a file", &wishes.to_bytes())?;
        self.line().run(|| {
            let now = self.inner.manners.now();
            let (hints, method) = now.wished(wishes, self.inner.chosen().method);
            if (&hints, method) != (&now.hints, now.method) {
                let hints = Hints { method: Some(method), ..hints };
                self.inner.manners.set(Manner::new(&self.inner.group, &hints, method)?);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manner(method: Method) -> Manner {
        let hints = Hints { method: Some(method), aggregators: Some(2), ..Hints::default() };
        Manner { hints, method, two_phase: None }
    }

    #[track_caller]
    fn check(now: Method, wished: Option<Method>, expected: Method) {
        let wishes =
            Hints { method: wished, buffer_bytes: Some(1 << 20), stripe_count: Some(7), ..Hints::default() };
        let (hints, method) = manner(now).wished(&wishes, Method::ServerDirected);
        assert_eq!(method, expected);
        assert_eq!((hints.aggregators, hints.stripe_count), (Some(2), None), "a file keeps its stripes");
        let buffer = if expected == Method::ClientDirected { None } else { Some(1 << 20) };
        assert_eq!(hints.buffer_bytes, buffer.filter(|_| wished != Some(Method::ClientDirected)));
    }

    #[test]
    fn a_file_changes_between_the_methods_that_need_no_tier() {
        check(Method::ServerDirected, Some(Method::TwoPhase), Method::TwoPhase);
        check(Method::TwoPhase, Some(Method::Auto), Method::ServerDirected);
        check(Method::TwoPhase, None, Method::TwoPhase);
        check(Method::TwoPhase, Some(Method::ClientDirected), Method::TwoPhase);
        check(Method::ClientDirected, Some(Method::TwoPhase), Method::ClientDirected);
    }
}
