//! A host in virtual time: executes the controller's runs, with a service time for each, and checks the invariants.
//!
//! Always: every posted request is issued exactly once, and overlapping bytes keep their order.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;

use pario_sched::{Controller, IoKind, IoRun, Outcome, Pick, Request, RequestId};

/// The host's record of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostedRequest {
    pub(crate) request: Request,
    pub(crate) issued: bool,
    pub(crate) done: bool,
}

/// A host that serves one run after the other, or several concurrently.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    pub(crate) controller: Controller,
    pub(crate) now_us: u64,
    pub(crate) known: BTreeMap<RequestId, PostedRequest>,
    pub(crate) under_way: Vec<(u64, IoRun)>,
    pub(crate) issued: Vec<RequestId>,
    pub(crate) runs: Vec<IoRun>,
}

impl VirtualHost {
    pub(crate) fn new(controller: Controller) -> Self {
        let (known, under_way, told, runs) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Self { controller, now_us: 0, known, under_way, issued: told, runs }
    }

    pub(crate) fn post(&mut self, request: Request) -> RequestId {
        self.try_post(request).expect("accepted")
    }

    pub(crate) fn try_post(&mut self, request: Request) -> Result<RequestId, pario_sched::PostRefused> {
        let request = Request { arrival_us: self.now_us, ..request };
        let id = self.controller.post(request)?;
        let before = self.known.insert(id, PostedRequest { request, issued: false, done: false });
        assert!(before.is_none(), "id {id} was given twice");
        Ok(id)
    }

    /// Starts a run if the controller has one.
    pub(crate) fn start(&mut self, service_us: impl Fn(&IoRun) -> u64) -> Pick {
        let pick = self.controller.next(self.now_us);
        match &pick {
            Pick::Serve(run) => {
                self.check_run(run);
                self.under_way.push((self.now_us + service_us(run), run.clone()));
            }
            Pick::Wait { until_us } => assert!(self.now_us < *until_us, "a wait must end later"),
            Pick::Idle => self.check_idle(),
        }
        pick
    }

    /// Starts all runs that can start before any finishes.
    pub(crate) fn start_all(&mut self) -> Vec<IoRun> {
        let before = self.runs.len();
        loop {
            match self.start(|_| 1_000_000) {
                Pick::Serve(_) => {}
                Pick::Wait { until_us } => self.now_us = until_us,
                Pick::Idle => return self.runs[before..].to_vec(),
            }
        }
    }

    /// Ends the run that ends first; `false` if none is in progress.
    pub(crate) fn finish(&mut self) -> bool {
        let first = (0..self.under_way.len()).min_by_key(|at| self.under_way[*at].0);
        let Some((end_us, run)) = first.map(|at| self.under_way.remove(at)) else { return false };
        self.now_us = self.now_us.max(end_us);
        for part in &run.parts {
            self.known.get_mut(&part.id).expect("it was posted").done = true;
            let outcome = Outcome::Done { bytes: part.length };
            self.controller.complete(part.id, self.now_us, outcome).expect("it was running");
        }
        true
    }

    /// Serves all posted requests, one run at a time.
    pub(crate) fn drain(&mut self) {
        loop {
            match self.start(|run| 10 + run.bytes() / 64) {
                Pick::Serve(_) => assert!(self.finish()),
                Pick::Wait { until_us } => self.now_us = until_us,
                Pick::Idle if self.finish() => {}
                Pick::Idle => break,
            }
        }
        assert!(self.known.values().all(|known| known.done), "everything posted was served");
        assert_eq!(self.controller.unfinished(), 0);
    }

    fn check_run(&mut self, run: &IoRun) {
        assert!(!run.parts.is_empty());
        let offsets: Vec<u64> = run.parts.iter().map(|part| part.offset).collect();
        assert!(offsets.is_sorted(), "parts are in offset order");
        for part in &run.parts {
            let known = *self.known.get(&part.id).expect("it was posted");
            assert!(!known.issued, "request {} was issued twice", part.id);
            let Request { file, kind, offset, length, application, tag, host, .. } = known.request;
            assert_eq!((file, kind, host), (run.file, run.kind, run.host));
            assert_eq!(
                (offset, length, application, tag),
                (part.offset, part.length, part.application, part.tag)
            );
            self.check_order(part.id, &known.request);
            self.known.get_mut(&part.id).expect("it was posted").issued = true;
            self.issued.push(part.id);
        }
        self.runs.push(run.clone());
    }

    /// No earlier request to the same bytes is unfinished, where one of the two writes.
    fn check_order(&self, id: RequestId, request: &Request) {
        if let Some(other) = self.blocker(id, request) {
            panic!("request {id} overtook {other}, which touches the same bytes");
        }
    }

    /// No request that could be served is left waiting.
    fn check_idle(&self) {
        let mut left = self.known.iter().filter(|(_, known)| !known.issued);
        let served = left.find(|(id, known)| self.blocker(**id, &known.request).is_none());
        assert!(served.is_none(), "idle, though {served:?} could be served");
    }

    /// An earlier unfinished request to the same bytes, where one of the two writes.
    fn blocker(&self, id: RequestId, request: &Request) -> Option<RequestId> {
        let conflicts = |one: &Request| {
            let writes = one.kind == IoKind::Write || request.kind == IoKind::Write;
            let overlap =
                one.offset < request.offset + request.length && request.offset < one.offset + one.length;
            let empty = one.length == 0 || request.length == 0;
            one.file == request.file && writes && overlap && !empty
        };
        let mut earlier = self.known.range(..id).rev().filter(|(_, known)| !known.done);
        earlier.find(|(_, known)| conflicts(&known.request)).map(|(other, _)| *other)
    }
}
