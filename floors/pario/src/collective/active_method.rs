//! The active method of a file's collective accesses, and its change while the file is open.
//!
//! Never: changes to or from client-directed: the node cache is opened and closed with the file. Always: members change
//! together, between two accesses; an access in progress ends with the method it began with.

use std::sync::{Arc, PoisonError, RwLock};

use super::file::GroupFile;
use super::hints::Hints;
use super::method::Method as Access;
use super::two_phase::{TwoPhase, TwoPhaseMethod};
use crate::error::Result;
use crate::group::{CollectiveCall, Group};
use crate::partition::Method;

/// The method in force, with its hints.
#[derive(Clone, Debug)]
pub(super) struct ActiveMethod {
    pub(super) hints: Hints,
    pub(super) method: Method,
    /// Carries out collective accesses.
    pub(super) access: Arc<dyn Access>,
}

impl ActiveMethod {
    /// For a chosen method above the file's own; collective.
    pub(super) fn new(
        group: &Arc<dyn Group>,
        hints: &Hints,
        method: Method,
        below: &Arc<dyn Access>,
    ) -> Result<ActiveMethod> {
        let hints = Hints { method: Some(method), ..hints.clone() };
        let below = Arc::clone(below);
        let access: Arc<dyn Access> = match method {
            Method::TwoPhase => Arc::new(TwoPhaseMethod { exchange: TwoPhase::new(group, &hints)?, below }),
            Method::Auto | Method::ServerDirected | Method::ClientDirected => below,
        };
        Ok(ActiveMethod { hints, method, access })
    }

    /// The hints and method that would be in force with further hints; `None` keeps the old value.
    fn with_hints(&self, wishes: &Hints, by_facts: Method) -> (Hints, Method) {
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

/// The current method, behind a lock.
#[derive(Debug)]
pub(super) struct CurrentMethod(RwLock<Arc<ActiveMethod>>);

impl CurrentMethod {
    pub(super) fn new(manner: ActiveMethod) -> CurrentMethod {
        CurrentMethod(RwLock::new(Arc::new(manner)))
    }

    pub(super) fn now(&self) -> Arc<ActiveMethod> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, manner: ActiveMethod) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(manner);
    }
}

impl GroupFile {
    /// Changes the method of later collective accesses; collective, and all members must pass the same. The method can change
    /// between server-directed and two-phase, and two-phase can change its aggregators and buffers; other hints apply only to
    /// open and are ignored.
    pub fn change_hints(&self, wishes: &Hints) -> Result<()> {
        self.inner.group.same_in(CollectiveCall::SetView, "the hints of a file", &wishes.to_bytes())?;
        self.queue().run(|| {
            let now = self.inner.active_method.now();
            let (hints, method) = now.with_hints(wishes, self.inner.chosen().method);
            if (&hints, method) != (&now.hints, now.method) {
                let hints = Hints { method: Some(method), ..hints };
                let inner = &self.inner;
                inner.active_method.set(ActiveMethod::new(&inner.group, &hints, method, &inner.independent)?);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::server_directed::ServerDirected;

    fn manner(method: Method) -> ActiveMethod {
        let hints = Hints { method: Some(method), aggregators: Some(2), ..Hints::default() };
        ActiveMethod { hints, method, access: Arc::new(ServerDirected) }
    }

    #[track_caller]
    fn check(now: Method, wished: Option<Method>, expected: Method) {
        let wishes =
            Hints { method: wished, buffer_bytes: Some(1 << 20), stripe_count: Some(7), ..Hints::default() };
        let (hints, method) = manner(now).with_hints(&wishes, Method::ServerDirected);
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
