//! A running server: the handle of its threads, for the process that runs it.
//!
//! Always: dropping it drains, syncs and ends the server, except in a forked child.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use pario_core::{Fault, Incarnation, ServerIndex, SessionId};
use pario_net::greeting::Secret;
use pario_net::stream::Stream;
use pario_sys::doorbell::Doorbell;
use pario_sys::process::fork_generation;

use super::{
    DrainHandle, Keeping, LocalServer, Mailbox, NamesSpec, ServerSpec, Service, ServiceEvent, dispatch,
};
use crate::drain::Drainer;
use crate::manager::{Manager, ManagerHandle};
use crate::names::copy::RemoteCopies;
use crate::names::{LedgerSpec, Recovery};
use crate::peers::Connect;

/// What a server was asked to do with its data when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The data stays.
    Keep,
    /// The process that runs it removes the data.
    Destroy,
    /// The process that it was bound to has ended.
    Alone {
        /// Whether the process that runs it removes the data.
        destroy: bool,
    },
}

/// A running server.
pub struct Server {
    mailbox: Mailbox,
    drainer: Drainer,
    near: LocalServer,
    tcp: Option<SocketAddr>,
    name: String,
    incarnation: Incarnation,
    hello: pario_net::greeting::Hello,
    secret: Secret,
    end: Arc<ServiceEnd>,
    fork: u64,
    thread: Option<JoinHandle<Result<Ending, Fault>>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens store and names, listens, and serves on threads of its own.
    pub fn start(spec: ServerSpec) -> Result<Server, Fault> {
        Server::start_with(spec, false)
    }

    /// The same for a manager with names that are opened later by [`Server::open_names`]: until then clients are refused, peers are not.
    pub fn start_before_names(spec: ServerSpec) -> Result<Server, Fault> {
        Server::start_with(spec, true)
    }

    fn start_with(spec: ServerSpec, awaits_names: bool) -> Result<Server, Fault> {
        let (events, inbox) = crossbeam_channel::unbounded();
        let doorbell =
            Arc::new(Doorbell::new().map_err(|error| Fault::from_io(&error, "making a doorbell"))?);
        let mailbox = Mailbox { events, doorbell };
        let mut service = Service::new(spec, mailbox.clone(), inbox)?;
        service.awaits_names = awaits_names;
        let (tcp, taker) = (service.listeners.tcp_address(), service.drainer.clone());
        let near = LocalServer::of(&service);
        let (name, incarnation, secret) =
            (service.spec.name.clone(), service.incarnation, service.spec.secret.clone());
        // A session of its own: reconnecting in the same session would close the previous connection.
        let hello = dispatch::server_hello(&service.spec, SessionId(pario_net::greeting::random_number()));
        let end = Arc::new(ServiceEnd::default());
        let over = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name(format!("pario-serve-{}", service.spec.index))
            .spawn(move || {
                // Also on a panic: a waiting thread must not wait for ever.
                let _ends = EndsOnDrop(over);
                service.run()
            })
            .map_err(|error| Fault::from_io(&error, "starting the service thread"))?;
        let (fork, thread) = (fork_generation(), Some(thread));
        Ok(Server { mailbox, drainer: taker, near, tcp, name, incarnation, hello, secret, end, fork, thread })
    }

    /// Sets the directory for files beside the objects.
    pub fn set_keeping(&self, keeping: Keeping) {
        self.mailbox.post(ServiceEvent::Keep(Box::new(keeping)));
    }

    /// Makes it the manager and opens the names in this call; before [`Server::set_peers`]. Returns how they were recovered.
    pub fn open_names(&self, names: &NamesSpec, how: LedgerSpec) -> Result<Recovery, Fault> {
        let home = Manager::open(names, &self.name, self.incarnation, how)?;
        let recovery = home.recovery().clone();
        let manager = ManagerHandle::start(home, self.mailbox.clone())?;
        self.mailbox.post(ServiceEvent::Manager(manager));
        Ok(recovery)
    }

    /// The names files that another server keeps.
    #[must_use]
    pub fn copies_of(&self, server: ServerIndex, connect: Arc<dyn Connect>) -> RemoteCopies {
        RemoteCopies::new(connect, server, self.hello.clone(), self.secret.clone())
    }

    /// An in-process connection.
    pub fn connect(&self) -> io::Result<Stream> {
        let (ours, theirs) = Stream::pair()?;
        self.mailbox.post(ServiceEvent::Accept(theirs));
        Ok(ours)
    }

    /// Direct access to its store for cached files, for processes that run it.
    #[must_use]
    pub fn near(&self) -> LocalServer {
        self.near.clone()
    }

    /// Gives the manager the connections to all servers.
    pub fn set_peers(&self, connect: Arc<dyn Connect>) {
        self.mailbox.post(ServiceEvent::Peers(connect));
    }

    /// Its listening address.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// A handle of its drain thread, for its store.
    #[must_use]
    pub fn drain_handle(&self) -> DrainHandle {
        DrainHandle(self.drainer.clone())
    }

    /// Drains all committed records, syncs, and ends.
    pub fn stop(&self) {
        self.mailbox.post(ServiceEvent::Stop);
    }

    /// What [`Server::stop`] does, for another thread.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let mailbox = self.mailbox.clone();
        move || mailbox.post(ServiceEvent::Stop)
    }

    /// Waits until it has ended, without taking its result.
    pub fn wait_finished(&self) {
        self.end.wait();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end.is_over()
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<Ending, Fault> {
        self.wait_end()
    }

    fn wait_end(&mut self) -> Result<Ending, Fault> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Fault::new(pario_core::Code::Io, "a server thread panicked")),
            None => Ok(Ending::Keep),
        }
    }
}

/// The end of a service thread, for waiting threads.
#[derive(Default)]
struct ServiceEnd {
    over: Mutex<bool>,
    changed: Condvar,
}

impl ServiceEnd {
    fn wait(&self) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_over(&self) -> bool {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct EndsOnDrop(Arc<ServiceEnd>);

impl Drop for EndsOnDrop {
    fn drop(&mut self) {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.fork != fork_generation() {
            // The threads belong to the parent; a forked child cannot join them.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop();
        if let Err(fault) = self.wait_end() {
            tracing::warn!(%fault, "a server ended with an error");
        }
    }
}
