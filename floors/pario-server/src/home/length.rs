//! Lengths and removal: cutting a file's objects, and removing them.
//!
//! A truncation goes: everyone gives the file back; it is noted with its new generation; the servers cut; it is finished. One
//! that a dead server keeps from finishing is taken up again by the next who needs the file, and nobody gets it before.

use pario_core::{Code, Fault, FileAttr, Generation, InodeId, Nanos, ObjectId};
use pario_net::message::{NameReply, Notice, Reply, Request, Want};
use pario_sys::clock::wall_ns;
use pario_sys::kill_point::{Point, reach};

use super::{Caller, Effect, Home, Job, Wait};
use crate::coherence::{Barrier, BarrierAsk, Party, Ticket};
use crate::manager::Truncation;
use crate::peers::{Rounds, RoundsResult, TASKS_MAX};

/// How long a server that could not remove an object is left alone.
const RETRY_MS: u64 = 2000;
/// Whoever takes away a file of so many bytes is answered when they are gone: to have room is often why it was taken away, and
/// freeing it takes processor time that whatever the caller does next would wait for.
const AWAITED_BYTES_MIN: u64 = 1 << 20;
/// How long a removal is awaited: a server that is stopped or slow keeps nobody from going on. With a tick of the service it stays below the
/// time in which a client whose connection breaks may ask once more.
const AWAITED_MS_MAX: u64 = 400;
/// Removals awaited at one time, so that those who wait do not use up what a connection can have under way.
const AWAITING_MAX: usize = 32;

/// Who waits until the bytes of a file without a name are gone.
pub(super) struct Awaiting {
    pub(super) caller: Caller,
    reply: NameReply,
    since: Nanos,
}

/// A cut under way.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    caller: Caller,
    inode: InodeId,
    then: Then,
    ticket: Option<Ticket>,
}

/// What the caller wanted.
#[derive(Clone, Copy)]
enum Then {
    /// `SetLength`.
    Length(u64),
    /// `Open` with truncation: cut to nothing, then answer with the attributes.
    Opened,
    /// `Acquire` of a file with an unfinished truncation.
    Acquire(Want, Party),
}

impl Cut {
    pub(super) fn opening(caller: Caller, inode: InodeId) -> Cut {
        Cut { caller, inode, then: Then::Opened, ticket: None }
    }

    pub(super) fn finishing(caller: Caller, inode: InodeId, (want, party): (Want, Party)) -> Cut {
        Cut { caller, inode, then: Then::Acquire(want, party), ticket: None }
    }

    pub(super) fn caller(&self) -> Caller {
        self.caller
    }
}

impl Home {
    pub(super) fn set_length(
        &mut self,
        caller: Caller,
        inode: InodeId,
        bytes: u64,
        now: Nanos,
    ) -> Result<(), Fault> {
        if let Some(kept) = self.names.kept(caller.origin())?
            && !self.unfinished.contains_key(&inode)
        {
            if let NameReply::Attr { attr } = kept.reply {
                self.reply(caller, Reply::Length { bytes: attr.size, generation: attr.generation });
            }
            return Ok(());
        }
        self.names.attr(inode)?;
        self.cut(Cut { caller, inode, then: Then::Length(bytes), ticket: None }, now)
    }

    /// Waits until nobody uses the file.
    pub(super) fn cut(&mut self, cut: Cut, now: Nanos) -> Result<(), Fault> {
        self.retry_settling(cut.inode);
        let ticket = self.ticket(Wait::Cut(cut));
        let ask =
            BarrierAsk { inode: cut.inode, ticket, kind: Barrier::Stop, asker: Some(cut.caller.session) };
        let mut actions = Vec::new();
        self.leases.barrier(ask, now, &mut actions);
        self.carry_out(actions, now);
        Ok(())
    }

    /// Nobody uses the file now, until the barrier ends.
    pub(super) fn cut_now(&mut self, mut cut: Cut, ticket: Ticket, now: Nanos) {
        cut.ticket = Some(ticket);
        if let Some(truncation) = self.unfinished.get(&cut.inode).copied() {
            return self.cut_objects(cut, truncation);
        }
        let wanted = match cut.then {
            Then::Length(bytes) => Some(bytes),
            Then::Opened => Some(0),
            Then::Acquire(..) => None,
        };
        let begun = match wanted {
            Some(bytes) => self.names.begin_set_length_once(cut.caller.origin(), cut.inode, bytes, wall_ns()),
            None => Ok(None),
        };
        match begun {
            Ok(Some(truncation)) => {
                reach(Point::CutNoted);
                self.unfinished.insert(cut.inode, truncation);
                self.cut_objects(cut, truncation);
            }
            Ok(None) => self.cut_end(&cut, now),
            Err(fault) => self.cut_failed(&cut, fault, now),
        }
    }

    fn cut_objects(&mut self, cut: Cut, truncation: Truncation) {
        let round = truncation
            .layout
            .servers()
            .map(|server| {
                let bytes = truncation.layout.local_length(server, truncation.bytes);
                let (inode, from, to) = (truncation.inode, truncation.from, truncation.to);
                (server, Request::Truncate { inode, from, to, bytes })
            })
            .collect();
        self.ask_peers(Job::Cut(cut, truncation), vec![round]);
    }

    pub(super) fn cut_done(&mut self, cut: &Cut, truncation: Truncation, result: RoundsResult, now: Nanos) {
        if let Err(fault) = result {
            let text = format!(
                "{} (the truncation of inode {} is finished when it is back)",
                fault.text, truncation.inode
            );
            return self.cut_failed(cut, Fault::new(fault.code, text), now);
        }
        reach(Point::CutCarried);
        self.unfinished.remove(&cut.inode);
        if let Err(fault) = self.names.finish_truncation(cut.inode) {
            return self.cut_failed(cut, fault, now);
        }
        // What was taken up again may not have been what this caller wanted.
        if let Then::Length(bytes) = cut.then
            && truncation.bytes != bytes
        {
            let again = Cut { ticket: None, ..*cut };
            self.end_barrier(cut, now);
            if let Err(fault) = self.cut(again, now) {
                self.reply(cut.caller, Reply::Failed { fault });
            }
            return;
        }
        self.cut_end(cut, now);
    }

    fn cut_end(&mut self, cut: &Cut, now: Nanos) {
        self.end_barrier(cut, now);
        match (cut.then, self.names.attr(cut.inode)) {
            (_, Err(fault)) => self.reply(cut.caller, Reply::Failed { fault }),
            (Then::Length(_), Ok(attr)) => {
                self.reply(cut.caller, Reply::Length { bytes: attr.size, generation: attr.generation });
            }
            (Then::Opened, Ok(attr)) => {
                self.reply(cut.caller, Reply::Name { reply: NameReply::Attr { attr } });
            }
            (Then::Acquire(want, party), Ok(_)) => {
                if let Err(fault) = self.acquire(cut.caller, (cut.inode, want, party), now) {
                    self.reply(cut.caller, Reply::Failed { fault });
                }
            }
        }
    }

    fn cut_failed(&mut self, cut: &Cut, fault: Fault, now: Nanos) {
        self.end_barrier(cut, now);
        self.reply(cut.caller, Reply::Failed { fault });
    }

    fn end_barrier(&mut self, cut: &Cut, now: Nanos) {
        if let Some(ticket) = cut.ticket {
            let mut actions = Vec::new();
            self.leases.barrier_end(cut.inode, ticket, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    /// Answers whoever took a file's last name away; for a large file that nobody has open, when its bytes are gone.
    pub(super) fn reply_unlinked(
        &mut self,
        caller: Caller,
        (attr, reply): (FileAttr, NameReply),
        now: Nanos,
    ) {
        let may_await = self.awaits_from <= now && self.awaiting.len() < AWAITING_MAX;
        if self.unlinked(attr) && AWAITED_BYTES_MIN <= attr.size && may_await {
            self.awaiting.insert(attr.inode, Awaiting { caller, reply, since: now });
        } else {
            self.reply(caller, Reply::Name { reply });
        }
    }

    /// The bytes are gone, or will be when a server is back.
    fn end_awaiting(&mut self, inode: InodeId) {
        if let Some(Awaiting { caller, reply, .. }) = self.awaiting.remove(&inode) {
            self.reply(caller, Reply::Name { reply });
        }
    }

    pub(super) fn end_long_awaiting(&mut self, now: Nanos) {
        let over = |awaiting: &Awaiting| awaiting.since.plus_ms(AWAITED_MS_MAX) <= now;
        let due: Vec<InodeId> =
            self.awaiting.iter().filter(|(_, awaiting)| over(awaiting)).map(|(inode, _)| *inode).collect();
        for inode in due {
            // Of many files that are removed one by one, not each waits for the same server.
            self.awaits_from = now.plus_ms(RETRY_MS);
            self.end_awaiting(inode);
        }
    }

    /// A file's last name is gone. Returns whether servers are being asked to remove its objects.
    fn unlinked(&mut self, attr: FileAttr) -> bool {
        for session in self.users.of(attr.inode) {
            let notice = Notice::Unlinked { inode: attr.inode };
            self.effects.push(Effect::Tell { session, notice });
        }
        self.unremoved.insert(attr.inode, (Nanos(0), attr));
        self.remove_if_unused(attr.inode)
    }

    /// Returns whether servers are being asked for it.
    pub(super) fn remove_if_unused(&mut self, inode: InodeId) -> bool {
        if self.users.uses(inode) || !self.leases.holders(inode).is_empty() {
            return false;
        }
        let Some((_, attr)) = self.unremoved.remove(&inode) else { return false };
        // The length may have grown since the name went.
        let attr = self.names.attr(inode).unwrap_or(attr);
        let rounds = removal(&attr);
        if rounds.is_empty() {
            self.forget_removed(attr);
            return false;
        }
        reach(Point::RemoveNoted);
        self.ask_peers(Job::Remove(attr), rounds);
        true
    }

    pub(super) fn removed(&mut self, attr: FileAttr, result: RoundsResult, now: Nanos) {
        self.end_awaiting(attr.inode);
        match result {
            Ok(_) => {
                reach(Point::RemoveCarried);
                self.forget_removed(attr);
            }
            Err(fault) => {
                tracing::debug!(%fault, inode = %attr.inode, "objects of a removed file stay for now");
                // Where only the queue was full, the server need not be left alone.
                let since = if fault.code == Code::TooMany { Nanos(0) } else { now };
                self.unremoved.insert(attr.inode, (since, attr));
            }
        }
    }

    fn forget_removed(&mut self, attr: FileAttr) {
        for ticket in self.leases.forget(attr.inode) {
            if let Some(Wait::Acquire { caller, .. }) = self.waits.remove(&ticket) {
                self.reply(caller, Reply::Failed { fault: Fault::new(Code::Stale, "the file was removed") });
            }
        }
        self.unfinished.remove(&attr.inode);
        if let Err(fault) = self.names.finish_remove(attr.inode) {
            tracing::warn!(%fault, "could not note a removal; it will be repeated");
        }
    }

    /// Removals that a server kept from happening are tried again now and then.
    pub(super) fn retry_removals(&mut self, now: Nanos) {
        if self.peers.is_none() {
            return;
        }
        let due: Vec<InodeId> = self
            .unremoved
            .iter()
            .filter(|(_, (at, _))| at.plus_ms(RETRY_MS) <= now)
            .map(|(inode, _)| *inode)
            .take(TASKS_MAX)
            .collect();
        for inode in due {
            self.remove_if_unused(inode);
        }
    }
}

/// Objects of a removed file. A file that never had a byte nor a truncation has none.
fn removal(attr: &FileAttr) -> Rounds {
    let has_objects =
        attr.kind == pario_core::FileKind::File && (0 < attr.size || attr.generation != Generation(0));
    if !has_objects {
        return Vec::new();
    }
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    vec![attr.layout.servers().map(|server| (server, Request::RemoveObject { object })).collect()]
}
