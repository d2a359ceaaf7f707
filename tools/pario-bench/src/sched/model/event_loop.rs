//! The event loop of the model: from event to event, until every application is done.
//!
//! Always: events of equal time happen in the order of their creation; every request is answered once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::app::App;
use super::client::{After, ModelClient};
use super::discipline::{Discipline, Next, Posted};
use super::disk::DiskDirection;
use super::network::ModelNetwork;
use super::params::Params;
use super::random::ModelRandom;
use super::result::{AppResult, RunResult};
use super::server::ModelServer;
use super::{FileIndex, RequestIndex, VirtualNanos};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum ModelEvent {
    /// A client begins its next access.
    Begin { client: usize },
    /// A request is at the server.
    Arrive { request: RequestIndex },
    /// The command at the disk has ended.
    DiskDone,
    /// A reply is at its client.
    Reply { request: RequestIndex },
    /// The discipline asked to be called again.
    Poll,
}

/// A request from its sending to its reply.
#[derive(Clone, Copy, Debug)]
struct Sent {
    client: usize,
    at: VirtualNanos,
    posted: Posted,
}

/// See the module.
pub(crate) struct ModelRun<'a> {
    params: &'a Params,
    apps: &'a [App],
    discipline: &'a mut dyn Discipline,
    random: ModelRandom,
    now: VirtualNanos,
    events: BinaryHeap<Reverse<(VirtualNanos, u64, ModelEvent)>>,
    made: u64,
    network: ModelNetwork,
    server: ModelServer,
    clients: Vec<ModelClient>,
    /// Clients that have not finished, by application.
    working: Vec<u64>,
    sent: Vec<Sent>,
    sent_free: Vec<RequestIndex>,
    /// Requests of each run in service, by the number of the first.
    runs: Vec<Vec<RequestIndex>>,
    in_service: usize,
    /// Runs served concurrently.
    at_once: usize,
    poll_at: Option<VirtualNanos>,
    results: Vec<AppResult>,
    requests: u64,
}

impl<'a> ModelRun<'a> {
    /// Runs applications, each on a file of its own, until all are done.
    pub(crate) fn run(
        params: &'a Params,
        apps: &'a [App],
        discipline: &'a mut dyn Discipline,
        seed: u64,
    ) -> RunResult {
        let mut world = ModelRun::new(params, apps, discipline, seed);
        while let Some(Reverse((time, _, event))) = world.events.pop() {
            assert!(world.now <= time, "time does not run backwards");
            world.now = time;
            world.happen(event);
        }
        assert!(world.working.iter().all(|working| *working == 0), "the discipline forgot requests");
        let (commands, busy_ns) = world.server.work();
        RunResult { apps: world.results, commands, busy_ns, requests: world.requests }
    }

    fn new(
        params: &'a Params,
        apps: &'a [App],
        discipline: &'a mut dyn Discipline,
        seed: u64,
    ) -> ModelRun<'a> {
        let at_once = if discipline.orders_service() { 1 } else { params.daemons };
        let lengths: Vec<u64> = apps.iter().map(|app| app.bytes).collect();
        let mut world = ModelRun {
            params,
            apps,
            discipline,
            random: ModelRandom::new(seed),
            now: 0,
            events: BinaryHeap::new(),
            made: 0,
            network: ModelNetwork::new(params.network),
            server: ModelServer::new(params, &lengths, !seed),
            clients: Vec::new(),
            working: apps.iter().map(|app| app.clients).collect(),
            sent: Vec::new(),
            sent_free: Vec::new(),
            runs: Vec::new(),
            in_service: 0,
            at_once,
            poll_at: None,
            results: apps.iter().map(no_result).collect(),
            requests: 0,
        };
        world.start_clients();
        world
    }

    fn start_clients(&mut self) {
        for (number, app) in self.apps.iter().enumerate() {
            for rank in 0..app.clients {
                let spread = if app.clients == 1 { 0 } else { self.params.start_spread_ns };
                let start = app.start_ns + self.random.below(spread);
                self.clients.push(ModelClient::new(number, rank));
                self.at(start, ModelEvent::Begin { client: self.clients.len() - 1 });
            }
        }
    }

    fn at(&mut self, time: VirtualNanos, event: ModelEvent) {
        self.events.push(Reverse((time, self.made, event)));
        self.made += 1;
    }

    fn happen(&mut self, event: ModelEvent) {
        match event {
            ModelEvent::Begin { client } => self.begin(client),
            ModelEvent::Arrive { request } => {
                self.requests += 1;
                self.discipline.post(self.sent[request.0 as usize].posted, self.now);
                self.serve();
            }
            ModelEvent::DiskDone => {
                if let Some(file) = self.server.disk_done() {
                    self.commit_done(file);
                }
                self.serve();
            }
            ModelEvent::Reply { request } => self.reply(request),
            ModelEvent::Poll => {
                if self.poll_at == Some(self.now) {
                    self.poll_at = None;
                    self.serve();
                }
            }
        }
    }

    fn begin(&mut self, at: usize) {
        let app = &self.apps[self.clients[at].app];
        if self.clients[at].begin(app, self.params.request_max) {
            self.send(at);
        } else {
            self.client_done(at);
        }
    }

    /// Sends the requests that a client may send.
    fn send(&mut self, at: usize) {
        while let Some((start, length)) =
            self.clients[at].next_request(self.params.request_max, self.params.client_slots)
        {
            let number = self.clients[at].app;
            let kind = self.apps[number].kind;
            let app = u32::try_from(number).expect("few applications");
            let request = self.new_request(Sent {
                client: at,
                at: self.now,
                posted: Posted { index: RequestIndex(0), file: FileIndex(number), app, kind, start, length },
            });
            let carried = if kind == DiskDirection::Write { length } else { 0 };
            let there = self.network.request(self.now, carried, &mut self.random);
            self.at(there, ModelEvent::Arrive { request });
        }
    }

    fn new_request(&mut self, mut sent: Sent) -> RequestIndex {
        let index = self.sent_free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.sent.len()).expect("clients have few slots");
            self.sent.push(sent);
            RequestIndex(index)
        });
        sent.posted.index = index;
        self.sent[index.0 as usize] = sent;
        index
    }

    /// Runs discipline, server and disk as far as possible now.
    fn serve(&mut self) {
        loop {
            for first in self.server.take_done() {
                self.in_service -= 1;
                for request in std::mem::take(&mut self.runs[first.0 as usize]) {
                    self.answer(request);
                }
            }
            if self.at_once <= self.in_service {
                break;
            }
            match self.discipline.next(self.now) {
                Next::Serve(requests) => self.start(requests),
                Next::Wait(until) => {
                    let until = until.max(self.now + 1);
                    self.poll_at = Some(until);
                    self.at(until, ModelEvent::Poll);
                    break;
                }
                Next::Idle => break,
            }
        }
        if let Some(end) = self.server.go(self.now) {
            self.at(end, ModelEvent::DiskDone);
        }
    }

    /// A daemon serves a run: adjacent requests of a file.
    fn start(&mut self, requests: Vec<RequestIndex>) {
        let posted = |request: &RequestIndex| self.sent[request.0 as usize].posted;
        let Some(first) = requests.first().map(posted) else { unreachable!("a run has requests") };
        let mut whole = first;
        for part in requests.iter().skip(1).map(posted) {
            assert_eq!((part.file, part.kind), (first.file, first.kind), "a run has one file and one kind");
            assert_eq!(part.start, whole.start + whole.length, "a run has no gaps");
            whole.length += part.length;
        }
        let at = first.index.0 as usize;
        self.runs.resize(self.runs.len().max(at + 1), Vec::new());
        self.runs[at] = requests;
        self.in_service += 1;
        self.server.start(whole);
    }

    fn answer(&mut self, request: RequestIndex) {
        self.discipline.complete(request, self.now);
        let posted = self.sent[request.0 as usize].posted;
        let carried = if posted.kind == DiskDirection::Read { posted.length } else { 0 };
        let there = self.network.reply(self.now, carried, &mut self.random);
        self.at(there, ModelEvent::Reply { request });
    }

    fn reply(&mut self, request: RequestIndex) {
        let Sent { client: at, at: sent_at, .. } = self.sent[request.0 as usize];
        self.sent_free.push(request);
        self.results[self.clients[at].app].answered(self.now - sent_at);
        match self.clients[at].answered() {
            After::Continues => self.send(at),
            After::AccessDone => {
                let think = self.random.exponential(self.params.network.think_ns);
                self.at(self.now + think, ModelEvent::Begin { client: at });
            }
        }
    }

    fn client_done(&mut self, at: usize) {
        let app = self.clients[at].app;
        self.working[app] -= 1;
        if self.working[app] == 0 {
            self.server.commit(FileIndex(app));
            self.commit_done(FileIndex(app));
            self.serve();
        }
    }

    /// An application is done when its clients are and its file is on the disk.
    fn commit_done(&mut self, file: FileIndex) {
        let result = &mut self.results[file.0];
        if self.working[file.0] == 0 && result.end_ns == 0 && self.server.is_clean(file) {
            result.end_ns = self.now;
        }
    }
}

fn no_result(app: &App) -> AppResult {
    AppResult {
        name: app.name.clone(),
        bytes: app.bytes,
        start_ns: app.start_ns,
        end_ns: 0,
        requests: 0,
        response_ns: 0,
        response_ns_max: 0,
    }
}
