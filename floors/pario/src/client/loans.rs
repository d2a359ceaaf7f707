//! Descriptors of servers' objects that are lent to this process, for one file.
//!
//! Never: asks twice for what is known; leaves a request that was begun on its connection. Always: a loan belongs to one generation of the
//! file, and what is known not to exist to one lease.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use pario_core::{Clock, Fault, Generation, ServerIndex};
use pario_net::connection::Answer;
use pario_net::message::{Phase, Reply, Request, Want};
use pario_sys::kill_point::{Point, reach};

use super::mount::{Started, odd};
use super::open_file::OpenFile;
use super::windows::Window;

/// Servers of a file whose objects are borrowed when it is opened.
const READY_SERVERS_MAX: u16 = 16;

/// What we have of one server's object.
#[derive(Default)]
pub(super) struct Object {
    generation: Generation,
    descriptor: Option<Arc<OwnedFd>>,
    writable: bool,
    /// The object as memory, made when small pieces are read.
    window: Option<Arc<Window>>,
    /// Under this lease the object is known not to exist.
    absent_under: u64,
    /// The server does not lend it: for writing, or at all.
    refused: Option<Refused>,
}

impl Object {
    fn is_lent_as(&self, descriptor: &Arc<OwnedFd>) -> bool {
        self.descriptor.as_ref().is_some_and(|known| Arc::ptr_eq(known, descriptor))
    }
}

/// What a server does not lend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Refused {
    Writing,
    Anything,
}

/// A lent descriptor, or the reason why there is none.
pub(super) enum Loan {
    Descriptor(Arc<OwnedFd>),
    /// Every byte of it is zero.
    Absent,
    /// The server does not lend: use messages.
    Refused,
}

/// What is to be lent: objects of one generation, for reading or writing too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) generation: Generation,
    /// That there is no object is remembered as long as this lease is held; 0 remembers nothing.
    pub(super) under: u64,
    pub(super) write: bool,
}

impl OpenFile {
    /// A lent object as memory, at least `bytes` long if it has so many.
    pub(super) fn map(
        &self,
        server: ServerIndex,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
    ) -> std::io::Result<Arc<Window>> {
        if let Some(window) = self.window(server, descriptor, bytes) {
            return Ok(window);
        }
        self.mount.keep_minding();
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &mut objects[server.at()];
        let window = self.mount.windows.open(descriptor, bytes, self.mount.clock.now())?;
        if object.is_lent_as(descriptor) {
            object.window = Some(Arc::clone(&window));
        }
        Ok(window)
    }

    /// The same, if it is at hand.
    pub(super) fn window(
        &self,
        server: ServerIndex,
        descriptor: &Arc<OwnedFd>,
        bytes: u64,
    ) -> Option<Arc<Window>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &objects[server.at()];
        let window = object.window.as_ref().filter(|window| bytes <= window.len());
        window.filter(|_| object.is_lent_as(descriptor)).cloned()
    }

    /// The descriptor of a server's object, lent once per generation and kind of access.
    pub(super) fn loan(&self, server: ServerIndex, wish: Wish) -> Result<Loan, Fault> {
        if let Some(known) = self.known_loan(server, wish) {
            return Ok(known);
        }
        if !self.may_lend(server, wish.write)? {
            return Ok(Loan::Refused);
        }
        let answer = self.mount.call(server, &self.lend(wish))?;
        self.note_loan(server, wish, answer)
    }

    /// Asks all of several servers before the first answer is waited for: a reader that opens a file meets them all at once. What fails here
    /// is asked again, and its error told, where it is needed.
    pub(super) fn borrow_together(&self, servers: impl Iterator<Item = ServerIndex>, wish: Wish) {
        let unknown: Vec<ServerIndex> = servers
            .filter(|server| self.known_loan(*server, wish).is_none())
            .filter(|server| matches!(self.may_lend(*server, wish.write), Ok(true)))
            .collect();
        // One is asked where it is needed.
        if unknown.len() < 2 {
            return;
        }
        let ask = |server| Some((server, self.mount.start(server, &self.lend(wish), &[]).ok()?));
        let asked: Vec<(ServerIndex, Started)> = unknown.into_iter().filter_map(ask).collect();
        for (server, started) in asked {
            if let Ok(answer) = self.mount.finish(started, None) {
                let _ = self.note_loan(server, wish, answer);
            }
        }
    }

    /// A file that is only read is about to be: the lease and the servers' objects are at hand then, and no server is needed to read it. Not
    /// where it has so many servers that most are not concerned.
    pub(super) fn get_ready_to_read(self: &Arc<Self>) {
        self.get_ready(Want::Read {});
        if READY_SERVERS_MAX < self.layout.count() {
            return;
        }
        // What there is no lease for is not asked for.
        let Some(access) = self.access_if_held(Want::Read {}) else { return };
        let under = if access.phase == (Phase::Read {}) { access.number } else { 0 };
        let wish = Wish { generation: access.generation, under, write: false };
        // Whoever wants the lease back does not wait for servers that lend.
        drop(access);
        self.borrow_together(self.servers_in_turn(), wish);
    }

    /// A file that has no byte yet is about to be written by the members of a group: the servers know the outbox then. Not where it has so
    /// many servers that most are not concerned. The lease waits for the first write: whoever has it and does not write would be asked
    /// for it by everybody who wants to know how long the file is.
    pub(super) fn get_ready_to_write(self: &Arc<Self>) {
        if self.homeless.is_none()
            && self.layout.count() <= READY_SERVERS_MAX
            && self.size.load(Ordering::Acquire) == 0
        {
            self.mount.introduce(self.servers_in_turn());
        }
    }

    fn lend(&self, wish: Wish) -> Request {
        Request::Lend { object: self.object(wish.generation), write: wish.write }
    }

    fn known_loan(&self, server: ServerIndex, wish: Wish) -> Option<Loan> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &objects[server.at()];
        if object.generation != wish.generation {
            return None;
        }
        if let Some(descriptor) = object.descriptor.as_ref().filter(|_| object.writable || !wish.write) {
            return Some(Loan::Descriptor(Arc::clone(descriptor)));
        }
        let wanted = if wish.write { Refused::Writing } else { Refused::Anything };
        if object.refused.is_some_and(|refused| wanted <= refused) {
            return Some(Loan::Refused);
        }
        (!wish.write && object.absent_under == wish.under && wish.under != 0).then_some(Loan::Absent)
    }

    /// Whether a server lends anything to this process.
    fn may_lend(&self, server: ServerIndex, write: bool) -> Result<bool, Fault> {
        let connection = self.mount.connection(server)?;
        let welcome = connection.welcome();
        Ok(connection.shares_memory() && welcome.lends && (!write || welcome.lends_writing))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn note_loan(&self, server: ServerIndex, wish: Wish, mut answer: Answer) -> Result<Loan, Fault> {
        let Wish { generation, under, write } = wish;
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &mut objects[server.at()];
        match answer.reply {
            Reply::Lent {} => {
                let descriptor = answer.descriptors.pop().ok_or_else(|| odd(&Reply::Lent {}))?;
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
            Reply::NoObject {} => {
                *object = Object { generation, absent_under: under, ..Object::default() };
                Ok(Loan::Absent)
            }
            Reply::NotLent {} => {
                let refused = if write { Refused::Writing } else { Refused::Anything };
                if object.generation != generation {
                    *object = Object { generation, ..Object::default() };
                }
                object.refused = object.refused.max(Some(refused));
                Ok(Loan::Refused)
            }
            other => Err(odd(&other)),
        }
    }

    /// Whether a server is known not to lend its object for reading.
    pub(super) fn is_refused(&self, server: ServerIndex) -> bool {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects[server.at()].refused == Some(Refused::Anything)
    }

    /// Lent descriptors are given up, as when the lease is.
    pub(super) fn drop_loans(&self) {
        let mut had_windows = false;
        for object in self.objects.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            had_windows |= std::mem::take(object).window.is_some();
        }
        if had_windows {
            self.mount.look_at_windows();
        }
    }
}
