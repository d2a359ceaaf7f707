//! Requests of clients: names, leases, uses and lengths of files.

use pario_core::{Code, Fault, FileKind, InodeId, Nanos, SessionId};
use pario_net::message::{NameReply, NameRequest, Reply, Request, Want};
use pario_sys::clock::wall_ns;
use pario_sys::kill_point::{Point, reach};

use super::length::TruncateJob;
use super::{LeaseContinuation, Manager, ManagerEffect, RequestCaller};
use crate::coherence::{LeaseGroup, LeaseRequest, Return};

impl Manager {
    /// A client's request.
    pub(crate) fn handle(&mut self, caller: RequestCaller, request: Request, now: Nanos) {
        self.reclaim(caller.session, now);
        if let Err(fault) = self.try_handle(caller, request, now) {
            self.reply(caller, Reply::Failed { fault });
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn try_handle(&mut self, caller: RequestCaller, request: Request, now: Nanos) -> Result<(), Fault> {
        match request {
            Request::Name { request } => self.name_request(caller, request, now),
            Request::Acquire { inode, want, party } => {
                self.acquire(caller, (inode, want, LeaseGroup(party)), now)
            }
            Request::AcquireFree { inode, want, party } => {
                self.acquire_free(caller, (inode, want, LeaseGroup(party)), now)
            }
            Request::Return { inode, number, end } => {
                self.grow(inode, end)?;
                reach(Point::ReturnNoted);
                self.give_back(caller.session, inode, number, now)?;
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Use { inode } => {
                self.names.attr(inode)?;
                self.users.enter(caller.session, inode);
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Extend { inode, end } => {
                self.grow(inode, Some(end))?;
                self.reply(caller, Reply::Done {});
                Ok(())
            }
            Request::Close { inode, end } => {
                let grown = self.grow(inode, end);
                self.close(caller.session, inode);
                self.reply(caller, Reply::Done {});
                grown
            }
            Request::Unlock { inode, number, keep } => {
                self.unlock(caller, (inode, number), keep.map(|(start, end)| start..end));
                Ok(())
            }
            Request::LockBusy { inode, number, keep } => {
                self.lock_busy(caller, (inode, number), keep.map(|(start, end)| start..end));
                Ok(())
            }
            Request::CancelLock { request_number: ask } => {
                self.cancel_lock(caller, ask);
                Ok(())
            }
            Request::SharePointer { pointer } => self.share_pointer(caller, pointer),
            Request::MovePointer { pointer, how } => self.move_pointer(caller, pointer, how),
            Request::SetLength { inode, bytes } => self.set_length(caller, inode, bytes, now),
            Request::SyncNames { inode, end } => {
                if let Some(inode) = inode {
                    self.grow(inode, end)?;
                }
                self.effects.push(ManagerEffect::Sync { caller });
                Ok(())
            }
            Request::ListInodes { after, limit } => {
                let (attrs, more) = self.names.inodes(after, limit.clamp(1, 4096) as usize)?;
                self.reply(caller, Reply::Inodes { attrs, more });
                Ok(())
            }
            other => Err(Fault::new(Code::Protocol, format!("{other:?} is not for the manager"))),
        }
    }

    fn name_request(&mut self, caller: RequestCaller, request: NameRequest, now: Nanos) -> Result<(), Fault> {
        if matches!(request, NameRequest::Stat { .. } | NameRequest::List { .. }) {
            return self.look(caller, request, now);
        }
        if let NameRequest::SetAttr { at, follow, change } = &request
            && change.modified_ns.is_some()
        {
            // A length that a writer reports later would set the time again.
            let attr = self.names.resolve(at, *follow)?;
            let busy = if attr.kind == FileKind::File { vec![attr.inode] } else { Vec::new() };
            return self.when_quiet(caller, (request, busy), now);
        }
        let answer = self.names.request(caller.origin(), &request, wall_ns())?;
        if let Some(unlinked) = answer.unlinked {
            self.unlinked(unlinked.attr);
        }
        if let (NameRequest::Open { how, .. }, NameReply::Attr { attr }) = (&request, &answer.reply) {
            if attr.links == 0 && !self.unremoved.contains_key(&attr.inode) {
                let text = format!("inode {}: its last name and its last user are gone", attr.inode);
                return Err(Fault::new(Code::Stale, text));
            }
            self.users.enter(caller.session, attr.inode);
            if how.truncate && (answer.needs_truncate.is_some() || self.unfinished.contains_key(&attr.inode))
            {
                return self.truncate(TruncateJob::opening(caller, attr.inode), now);
            }
        }
        self.reply(caller, Reply::Name { reply: answer.reply });
        Ok(())
    }

    pub(super) fn acquire(
        &mut self,
        caller: RequestCaller,
        (inode, want, party): (InodeId, Want, LeaseGroup),
        now: Nanos,
    ) -> Result<(), Fault> {
        self.names.attr(inode)?;
        self.users.enter(caller.session, inode);
        if self.unfinished.contains_key(&inode) {
            return self.truncate(TruncateJob::finishing(caller, inode, (want, party)), now);
        }
        self.retry_recovery(inode);
        let ticket = self.ticket(LeaseContinuation::Acquire { caller, inode });
        let mut actions = Vec::new();
        self.leases.acquire(
            LeaseRequest { session: caller.session, inode, want, group: party, ticket },
            now,
            &mut actions,
        );
        self.carry_out(actions, now);
        Ok(())
    }

    fn acquire_free(
        &mut self,
        caller: RequestCaller,
        (inode, want, party): (InodeId, Want, LeaseGroup),
        now: Nanos,
    ) -> Result<(), Fault> {
        self.names.attr(inode)?;
        let is_whole = !self.unfinished.contains_key(&inode);
        if is_whole && self.leases.is_free_for((caller.session, party), inode, want) {
            return self.acquire(caller, (inode, want, party), now);
        }
        self.reply(caller, Reply::NotNow {});
        Ok(())
    }

    pub(super) fn give_back(
        &mut self,
        session: SessionId,
        inode: InodeId,
        number: u64,
        now: Nanos,
    ) -> Result<(), Fault> {
        let mut actions = Vec::new();
        self.leases.returned(Return { session, inode, number }, now, &mut actions);
        if !self.leases.holds_write(session, inode) {
            self.names.forget_writer(inode, session)?;
        }
        self.carry_out(actions, now);
        Ok(())
    }

    pub(super) fn close(&mut self, session: SessionId, inode: InodeId) {
        self.users.leave(session, inode);
        self.leave_locks(session, inode);
        self.pointers.leave(session, inode, self.users.uses(inode));
        self.remove_if_unused(inode);
    }

    pub(super) fn grow(&mut self, inode: InodeId, end: Option<u64>) -> Result<(), Fault> {
        match end {
            Some(end) => self.names.grow(inode, end, wall_ns()).map(|_| ()),
            None => Ok(()),
        }
    }
}
