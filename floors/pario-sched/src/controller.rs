//! The controller: holds requests from `post` to `complete`.
//!
//! Never: loses a request or tells it twice.

use std::collections::{BTreeMap, VecDeque};

use crate::error::{NotRunning, Refused, SetupError};
use crate::options::Options;
use crate::request::{ApplicationId, HostId, Outcome, Part, Pick, Request, RequestId, Run, Vectored};

/// Decides what runs when.
#[derive(Debug)]
pub struct Controller {
    options: Options,
    hosts: Vec<Vectored>,
    sequence: u64,
    waiting: VecDeque<(RequestId, Request)>,
    running: BTreeMap<RequestId, u64>,
}

impl Controller {
    /// A controller with one host that has no vectored operations.
    ///
    /// # Errors
    /// An unknown policy, an impossible option.
    pub fn new(policy: &str, options: Options) -> Result<Self, SetupError> {
        options.check()?;
        let known = crate::policy_names();
        if !known.contains(&policy) {
            return Err(SetupError::UnknownPolicy { name: policy.to_owned(), known });
        }
        let (waiting, running) = (VecDeque::new(), BTreeMap::new());
        Ok(Self { options, hosts: vec![Vectored::Never], sequence: 0, waiting, running })
    }

    /// One more host that shares this controller.
    pub fn add_host(&mut self, vectored: Vectored) -> HostId {
        self.hosts.push(vectored);
        HostId(u32::try_from(self.hosts.len() - 1).unwrap_or(u32::MAX))
    }

    /// Says what the first host can do.
    pub fn set_vectored(&mut self, host: HostId, vectored: Vectored) {
        if let Some(slot) = self.hosts.get_mut(host.0 as usize) {
            *slot = vectored;
        }
    }

    /// Gives an application a weight (1 is what everyone begins with).
    pub fn set_weight(&mut self, _application: ApplicationId, _weight: u32) {}

    /// Takes a request.
    ///
    /// # Errors
    /// [`Refused`] says why and what was the limit.
    pub fn post(&mut self, request: Request) -> Result<RequestId, Refused> {
        if self.options.queue_max <= self.waiting.len() + self.running.len() {
            return Err(Refused::Full { limit: self.options.queue_max });
        }
        let id = RequestId { sequence: self.sequence, slot: 0 };
        self.sequence += 1;
        self.waiting.push_back((id, request));
        Ok(id)
    }

    /// What to run now.
    pub fn next(&mut self, now_us: u64) -> Pick {
        let Some((id, request)) = self.waiting.pop_front() else { return Pick::Idle };
        self.running.insert(id, now_us);
        let Request { host, application, file, kind, offset, length, tag, .. } = request;
        Pick::Serve(Run { host, file, kind, parts: vec![Part { id, application, offset, length, tag }] })
    }

    /// A part of a run is done.
    ///
    /// # Errors
    /// The request is not running.
    pub fn complete(&mut self, id: RequestId, _now_us: u64, _outcome: Outcome) -> Result<(), NotRunning> {
        self.running.remove(&id).map(|_| ()).ok_or(NotRunning(id))
    }
}
