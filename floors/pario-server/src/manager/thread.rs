//! The manager's thread: handles tasks of the service in order of arrival, and returns the effects to the service by its mailbox.
//!
//! ```text
//!  service thread ─► tasks ─► manager thread: names (log, redb), leases, locks ─► effects ─► mailbox ─► service thread
//! ```
//! Only this thread waits for the disk of the names. Effects of one batch of tasks are one event of the mailbox.
//!
//! Never: waits for the service thread, a client or a peer. Always: an effect is posted after the log has the change that it reports; the
//! server ends if this thread panics.

use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use pario_core::{Clock, Code, Fault, InodeId, Nanos, ServerIndex, SessionId};
use pario_net::greeting::Hello;
use pario_net::message::{LockSpec, Reply, Request};
use pario_sys::clock::MonotonicClock;
use pario_sys::process::fork_generation;
use serde_json::Value;

use super::{Manager, ManagerEffect, RequestCaller};
use crate::coherence::LockedBytes;
use crate::peers::{CallRounds, ManagerPeers, RoundsResult};
use crate::service::{Mailbox, RequestAnswer, ServiceEvent, TICK};

/// Tasks handled before their effects are posted: a long queue does not delay the first reply.
const BATCH_TASKS_MAX: usize = 64;

/// A task of the manager.
pub(crate) enum ManagerTask {
    /// A client's request.
    Request { caller: RequestCaller, request: Request },
    /// A client requests a lock; the view of the request is resolved.
    Lock { caller: RequestCaller, inode: InodeId, wish: LockSpec, shape: LockedBytes },
    /// A client asks which locks such a request would wait for.
    FindLock { caller: RequestCaller, inode: InodeId, wish: LockSpec, shape: LockedBytes },
    /// A client completed its greeting.
    Greeted(Box<Hello>),
    /// A client's connection has ended. Answered by [`ManagerEffect::SessionEnded`].
    SessionEnded(SessionId),
    /// Connections to all servers.
    SetPeers(ManagerPeers),
    /// A server was restarted.
    PeerRestarted(ServerIndex),
    /// The peers have answered.
    PeersDone(u64, RoundsResult),
    /// The manager's part of `pario status`.
    Status(Box<dyn FnOnce(Value) + Send>),
    /// Close the names and end. Answered by [`ServiceEvent::NamesClosed`].
    ShutDown,
    /// End as a crash would.
    End,
}

/// Handle of the thread. Dropping it ends the thread without applying the log to redb.
pub(crate) struct ManagerHandle {
    tasks: Sender<ManagerTask>,
    thread: Option<JoinHandle<()>>,
    fork: u64,
}

impl ManagerHandle {
    /// Starts the thread.
    pub(crate) fn start(manager: Manager, mailbox: Mailbox) -> Result<ManagerHandle, Fault> {
        let (tasks, inbox) = crossbeam_channel::unbounded();
        let worker =
            ManagerWorker { manager, inbox, tasks: tasks.clone(), mailbox, ticked: MonotonicClock.now() };
        let thread = std::thread::Builder::new()
            .name("pario-manager".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| Fault::from_io(&error, "starting the manager's thread"))?;
        Ok(ManagerHandle { tasks, thread: Some(thread), fork: fork_generation() })
    }

    /// Tasks that wait. Requests of clients are queued only below `TASKS_WAITING_MAX` (`service/park.rs`); beside them there is at most
    /// one end and one greeting per connection, and one answer per call of peers, which have a limit of their own.
    pub(crate) fn waiting(&self) -> usize {
        self.tasks.len()
    }

    /// Queues a task.
    pub(crate) fn post(&self, task: ManagerTask) {
        // The thread ends by a task of this handle, or by a panic, which ends the server.
        let _ = self.tasks.send(task);
    }
}

impl Drop for ManagerHandle {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if self.fork != fork_generation() {
            // The thread belongs to the parent; a forked child cannot join it.
            return std::mem::forget(thread);
        }
        self.post(ManagerTask::End);
        // A panic was already reported by the thread.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Whether the thread continues.
#[derive(PartialEq, Eq)]
enum NextTask {
    Continue,
    ShutDown,
    End,
}

struct ManagerWorker {
    manager: Manager,
    inbox: Receiver<ManagerTask>,
    /// For the answers of peers.
    tasks: Sender<ManagerTask>,
    mailbox: Mailbox,
    ticked: Nanos,
}

impl ManagerWorker {
    fn run(mut self) {
        let _alarm = PanicAlarm(self.mailbox.clone());
        loop {
            let next = self.batch();
            self.keep_time();
            self.carry_out();
            match next {
                NextTask::Continue => {}
                NextTask::ShutDown => {
                    let closed = self.manager.shut_down();
                    return self.mailbox.post(ServiceEvent::NamesClosed(closed));
                }
                NextTask::End => return,
            }
        }
    }

    /// Waits for a task, and handles it with those behind it.
    fn batch(&mut self) -> NextTask {
        let first = match self.wait_limit() {
            Some(limit) => self.inbox.recv_timeout(limit),
            None => self.inbox.recv().map_err(RecvTimeoutError::from),
        };
        let mut task = match first {
            Ok(task) => task,
            Err(RecvTimeoutError::Timeout) => return NextTask::Continue,
            Err(RecvTimeoutError::Disconnected) => return NextTask::End,
        };
        let now = MonotonicClock.now();
        for _ in 1..BATCH_TASKS_MAX {
            match self.handle(task, now) {
                NextTask::Continue => {}
                end @ (NextTask::ShutDown | NextTask::End) => return end,
            }
            let Ok(following) = self.inbox.try_recv() else { return NextTask::Continue };
            task = following;
        }
        self.handle(task, now)
    }

    fn handle(&mut self, task: ManagerTask, now: Nanos) -> NextTask {
        let manager = &mut self.manager;
        match task {
            ManagerTask::Request { caller, request } => manager.handle(caller, request, now),
            ManagerTask::Lock { caller, inode, wish, shape } => {
                manager.lock(caller, (inode, &wish), shape, now);
            }
            ManagerTask::FindLock { caller, inode, wish, shape } => {
                manager.find_lock(caller, (inode, &wish), shape, now);
            }
            ManagerTask::Greeted(hello) => manager.greeted(&hello),
            ManagerTask::SessionEnded(session) => {
                manager.session_ended(session, now);
                manager.effects.push(ManagerEffect::SessionEnded { session });
            }
            ManagerTask::SetPeers(peers) => manager.set_peers(peers),
            ManagerTask::PeerRestarted(server) => manager.peer_restarted(server),
            ManagerTask::PeersDone(token, result) => manager.peers_done(token, result, now),
            ManagerTask::Status(report) => report(manager.status(now)),
            ManagerTask::ShutDown => return NextTask::ShutDown,
            ManagerTask::End => return NextTask::End,
        }
        NextTask::Continue
    }

    /// The clock is needed only for waiting callers, ghosts, and work to be retried.
    fn wait_limit(&self) -> Option<Duration> {
        let now = MonotonicClock.now();
        let expiry = self.manager.lock_deadline().map(|at| at.since(now));
        expiry.into_iter().chain(self.manager.needs_ticks().then_some(TICK)).min()
    }

    fn keep_time(&mut self) {
        let now = MonotonicClock.now();
        self.manager.expire_locks(now);
        if TICK <= now.since(self.ticked) {
            self.ticked = now;
            self.manager.tick(now);
        }
    }

    /// Calls of peers and syncs start here; all other effects are the service's.
    fn carry_out(&mut self) {
        let mut for_service = Vec::new();
        loop {
            let effects = self.manager.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    ManagerEffect::Peers { token, rounds } => self.ask_peers(token, rounds),
                    ManagerEffect::Sync { caller } => self.sync(caller),
                    other @ (ManagerEffect::Reply { .. }
                    | ManagerEffect::Waiting { .. }
                    | ManagerEffect::Recall { .. }
                    | ManagerEffect::Notify { .. }
                    | ManagerEffect::SessionEnded { .. }
                    | ManagerEffect::Lend { .. }) => for_service.push(other),
                }
            }
        }
        if !for_service.is_empty() {
            self.mailbox.post(ServiceEvent::Effects(for_service));
        }
    }

    fn ask_peers(&self, token: u64, rounds: CallRounds) {
        let tasks = self.tasks.clone();
        let done = move |result| {
            let _ = tasks.send(ManagerTask::PeersDone(token, result));
        };
        match self.manager.peers() {
            Some(peers) => peers.submit(rounds, done),
            None => done(Err(Fault::new(Code::Unreachable, "the partition is still starting"))),
        }
    }

    fn sync(&self, caller: RequestCaller) {
        let mailbox = self.mailbox.clone();
        self.manager.sync(Box::new(move |result: Result<(), Fault>| {
            let reply = result.map_or_else(|fault| Reply::Failed { fault }, |()| Reply::Done {});
            let (link, request) = (caller.link, caller.request);
            let answer = RequestAnswer { link, request, reply, data: Vec::new(), descriptors: Vec::new() };
            mailbox.post(ServiceEvent::Answer(answer));
        }));
    }
}

/// Ends the server when the thread panics: clients would wait for the manager for ever.
struct PanicAlarm(Mailbox);

impl Drop for PanicAlarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let fault = Fault::new(Code::Io, "the manager's thread panicked; the server ends");
            self.0.post(ServiceEvent::NamesClosed(Err(fault.clone())));
            self.0.post(ServiceEvent::Quiet(Err(fault)));
        }
    }
}
