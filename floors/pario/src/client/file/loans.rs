//! Descriptors of servers' objects that are lent to this process, for one file.
//!
//! Never: requests a known loan again; leaves a started request on its connection. Always: a loan belongs to one generation of the file,
//! and the knowledge that an object is absent to one lease.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use pario_core::{Clock, Fault, Generation, ServerIndex};
use pario_net::connection::ReceivedReply;
use pario_net::message::{Phase, Reply, Request};
use pario_sys::kill_point::{Point, reach};
use pario_sys::mutex::lock;

use super::context::FileContext;
use super::lease::LeasedAccess;

use crate::client::file::read::mapping::Mapping;
use crate::client::file::summed::Summed;
use crate::client::session::state::{StartedRequest, unexpected_reply};

/// Loan state of one server's object.
#[derive(Default)]
struct Object {
    generation: Generation,
    descriptor: Option<Arc<OwnedFd>>,
    /// The same with its checksums.
    summed: Option<Arc<Summed>>,
    writable: bool,
    /// The mapped object, made when small pieces are read.
    mapping: Option<Arc<Mapping>>,
    /// Number of the lease under which the object is known to be absent.
    absent_under: u64,
    /// The server does not lend it: for writing, or at all.
    refused: Option<RefusedLoan>,
}

impl Object {
    fn is_lent_as(&self, descriptor: &Arc<OwnedFd>) -> bool {
        self.descriptor.as_ref().is_some_and(|known| Arc::ptr_eq(known, descriptor))
    }
}

/// Accesses that a server does not lend for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum RefusedLoan {
    Writing,
    Anything,
}

/// A lent descriptor, or the reason why there is none.
pub(in crate::client) enum Loan {
    Descriptor(Arc<OwnedFd>),
    /// The same, to be compared with its checksums.
    Summed(Arc<Summed>),
    /// Every byte of it is zero.
    Absent,
    /// The server does not lend: use messages.
    Refused,
}

/// The loan to request: objects of one generation, for reading only or also for writing.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct LoanRequest {
    pub(in crate::client) generation: Generation,
    /// Absence of an object is remembered as long as this lease is held; 0 remembers nothing.
    pub(in crate::client) under: u64,
    pub(in crate::client) write: bool,
}

impl LoanRequest {
    /// For an access that reads. An absent object stays absent only while no client writes.
    pub(in crate::client) fn for_reading(access: &LeasedAccess<'_>) -> LoanRequest {
        let under = if access.phase == (Phase::Read {}) { access.number } else { 0 };
        LoanRequest { generation: access.generation, under, write: false }
    }
}

/// See the module.
pub(in crate::client) struct Loans {
    context: Arc<FileContext>,
    objects: Mutex<Vec<Object>>,
}

impl Loans {
    pub(super) fn new(context: &Arc<FileContext>) -> Loans {
        let servers = usize::from(context.layout.total());
        let objects = Mutex::new((0..servers).map(|_| Object::default()).collect());
        Loans { context: Arc::clone(context), objects }
    }

    /// A mapped lent object, at least `bytes` long if the object is.
    pub(in crate::client) fn map(
        &self,
        server: ServerIndex,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
    ) -> std::io::Result<Arc<Mapping>> {
        if let Some(window) = self.mapping(server, descriptor, bytes) {
            return Ok(window);
        }
        self.context.session.ensure_watchdog();
        let mut objects = lock(&self.objects);
        let object = &mut objects[server.at()];
        let window =
            self.context.session.mappings.open(descriptor, bytes, self.context.session.clock.now())?;
        if object.is_lent_as(descriptor) {
            object.mapping = Some(Arc::clone(&window));
        }
        Ok(window)
    }

    /// The same, if it is already mapped.
    pub(in crate::client) fn mapping(
        &self,
        server: ServerIndex,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
    ) -> Option<Arc<Mapping>> {
        let objects = lock(&self.objects);
        let object = &objects[server.at()];
        let window = object.mapping.as_ref().filter(|window| bytes <= window.len());
        window.filter(|_| object.is_lent_as(descriptor)).cloned()
    }

    /// The descriptor of a server's object, lent once per generation and kind of access.
    pub(in crate::client) fn loan(&self, server: ServerIndex, wish: LoanRequest) -> Result<Loan, Fault> {
        if let Some(known) = self.known_loan(server, wish) {
            return Ok(known);
        }
        if !self.may_lend(server, wish.write)? {
            return Ok(Loan::Refused);
        }
        let answer = self.context.session.call(server, &self.lend(wish))?;
        self.note_loan(server, wish, answer)
    }

    /// Sends the requests to all of several servers before the first reply is awaited: a reader that opens a file needs them all. What
    /// fails here is requested again, and its error reported, by the access that needs it.
    pub(in crate::client) fn borrow_together(
        &self,
        servers: impl Iterator<Item = ServerIndex>,
        wish: LoanRequest,
    ) {
        let unknown: Vec<ServerIndex> = servers
            .filter(|server| self.known_loan(*server, wish).is_none())
            .filter(|server| matches!(self.may_lend(*server, wish.write), Ok(true)))
            .collect();
        // A single server is asked at its first use.
        if unknown.len() < 2 {
            return;
        }
        let ask = |server| Some((server, self.context.session.start(server, &self.lend(wish), &[]).ok()?));
        let asked: Vec<(ServerIndex, StartedRequest)> = unknown.into_iter().filter_map(ask).collect();
        for (server, started) in asked {
            if let Ok(answer) = self.context.session.finish(started, None) {
                let _ = self.note_loan(server, wish, answer);
            }
        }
    }

    fn lend(&self, wish: LoanRequest) -> Request {
        Request::Lend { object: self.context.object(wish.generation), write: wish.write }
    }

    fn known_loan(&self, server: ServerIndex, wish: LoanRequest) -> Option<Loan> {
        let objects = lock(&self.objects);
        let object = &objects[server.at()];
        if object.generation != wish.generation {
            return None;
        }
        if let Some(descriptor) = object.descriptor.as_ref().filter(|_| object.writable || !wish.write) {
            return Some(Loan::Descriptor(Arc::clone(descriptor)));
        }
        if let Some(summed) = object.summed.as_ref().filter(|_| object.writable || !wish.write) {
            return Some(Loan::Summed(Arc::clone(summed)));
        }
        let wanted = if wish.write { RefusedLoan::Writing } else { RefusedLoan::Anything };
        if object.refused.is_some_and(|refused| wanted <= refused) {
            return Some(Loan::Refused);
        }
        (!wish.write && object.absent_under == wish.under && wish.under != 0).then_some(Loan::Absent)
    }

    /// Whether a server lends descriptors to this process.
    fn may_lend(&self, server: ServerIndex, write: bool) -> Result<bool, Fault> {
        if !self.context.backing.may_be_lent() {
            return Ok(false);
        }
        let connection = self.context.session.connection(server)?;
        let welcome = connection.welcome();
        Ok(connection.shares_memory() && welcome.lends && (!write || welcome.lends_writing))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn note_loan(
        &self,
        server: ServerIndex,
        wish: LoanRequest,
        mut answer: ReceivedReply,
    ) -> Result<Loan, Fault> {
        let LoanRequest { generation, under, write } = wish;
        let mut objects = lock(&self.objects);
        let object = &mut objects[server.at()];
        match answer.reply {
            Reply::Lent {} => {
                let descriptor = answer.descriptors.pop().ok_or_else(|| unexpected_reply(&Reply::Lent {}))?;
                let descriptor = Arc::new(descriptor);
                reach(Point::LendReceived);
                *object = Object {
                    generation,
                    descriptor: Some(Arc::clone(&descriptor)),
                    writable: write,
                    ..Object::default()
                };
                Ok(Loan::Descriptor(descriptor))
            }
            Reply::LentSummed {} => {
                let [table, bytes] = [answer.descriptors.pop(), answer.descriptors.pop()];
                let (Some(sums), Some(bytes)) = (table, bytes) else {
                    return Err(unexpected_reply(&Reply::LentSummed {}));
                };
                let summed = Arc::new(Summed::new(bytes, sums));
                let known = Some(Arc::clone(&summed));
                *object = Object { generation, summed: known, writable: write, ..Object::default() };
                Ok(Loan::Summed(summed))
            }
            Reply::NoObject {} => {
                *object = Object { generation, absent_under: under, ..Object::default() };
                Ok(Loan::Absent)
            }
            Reply::NotLent {} => {
                let refused = if write { RefusedLoan::Writing } else { RefusedLoan::Anything };
                if object.generation != generation {
                    *object = Object { generation, ..Object::default() };
                }
                object.refused = object.refused.max(Some(refused));
                Ok(Loan::Refused)
            }
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Whether a server is known not to lend its object for reading.
    pub(in crate::client) fn is_refused(&self, server: ServerIndex) -> bool {
        let objects = lock(&self.objects);
        objects[server.at()].refused == Some(RefusedLoan::Anything)
    }

    /// Drops the lent descriptors, as when the lease is returned.
    pub(in crate::client) fn drop_all(&self) {
        let mut had_windows = false;
        for object in lock(&self.objects).iter_mut() {
            had_windows |= std::mem::take(object).mapping.is_some();
        }
        if had_windows {
            self.context.session.check_mappings();
        }
    }
}
