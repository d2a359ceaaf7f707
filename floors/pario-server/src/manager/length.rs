//! Lengths and removal: truncating a file's objects, and removing them.
//!
//! Steps of a truncation: all leases are returned; the new generation is noted; the servers truncate; it is finished. A truncation that a
//! dead server blocks is resumed by the next request for the file, and no client gets the file before.

use pario_core::{Code, Fault, FileAttr, Generation, InodeId, Nanos, ObjectId};
use pario_net::message::{NameReply, Notice, Reply, Request, Want};
use pario_sys::clock::wall_ns;
use pario_sys::kill_point::{Point, reach};

use super::{LeaseContinuation, Manager, ManagerEffect, PeerContinuation, RequestCaller};
use crate::coherence::{Barrier, BarrierRequest, LeaseGroup, WaitTicket};
use crate::names::Truncation;
use crate::peers::{CallRounds, RoundsResult, TASKS_MAX};

/// Delay before a server that failed to remove an object is asked again.
const RETRY_MS: u64 = 2000;

/// A truncation in progress.
#[derive(Clone, Copy)]
pub(super) struct TruncateJob {
    caller: RequestCaller,
    inode: InodeId,
    then: AfterTruncate,
    ticket: Option<WaitTicket>,
}

/// The caller's request.
#[derive(Clone, Copy)]
enum AfterTruncate {
    /// `SetLength`.
    Length(u64),
    /// `Open` with truncation: truncate to 0 bytes, then reply with the attributes.
    Opened,
    /// `Acquire` of a file with an unfinished truncation.
    Acquire(Want, LeaseGroup),
}

impl TruncateJob {
    pub(super) fn opening(caller: RequestCaller, inode: InodeId) -> TruncateJob {
        TruncateJob { caller, inode, then: AfterTruncate::Opened, ticket: None }
    }

    pub(super) fn finishing(
        caller: RequestCaller,
        inode: InodeId,
        (want, party): (Want, LeaseGroup),
    ) -> TruncateJob {
        TruncateJob { caller, inode, then: AfterTruncate::Acquire(want, party), ticket: None }
    }

    pub(super) fn caller(&self) -> RequestCaller {
        self.caller
    }
}

impl Manager {
    pub(super) fn set_length(
        &mut self,
        caller: RequestCaller,
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
        self.truncate(TruncateJob { caller, inode, then: AfterTruncate::Length(bytes), ticket: None }, now)
    }

    /// Waits until no client uses the file.
    pub(super) fn truncate(&mut self, cut: TruncateJob, now: Nanos) -> Result<(), Fault> {
        self.retry_recovery(cut.inode);
        let ticket = self.ticket(LeaseContinuation::Truncate(cut));
        let ask = BarrierRequest {
            inode: cut.inode,
            ticket,
            kind: Barrier::Stop,
            requester: Some(cut.caller.session),
        };
        let mut actions = Vec::new();
        self.leases.barrier(ask, now, &mut actions);
        self.carry_out(actions, now);
        Ok(())
    }

    /// No client uses the file now, until the barrier ends.
    pub(super) fn truncate_now(&mut self, mut cut: TruncateJob, ticket: WaitTicket, now: Nanos) {
        cut.ticket = Some(ticket);
        if let Some(truncation) = self.unfinished.get(&cut.inode).copied() {
            return self.truncate_objects(cut, truncation);
        }
        let wanted = match cut.then {
            AfterTruncate::Length(bytes) => Some(bytes),
            AfterTruncate::Opened => Some(0),
            AfterTruncate::Acquire(..) => None,
        };
        let begun = match wanted {
            Some(bytes) => self.names.begin_set_length_once(cut.caller.origin(), cut.inode, bytes, wall_ns()),
            None => Ok(None),
        };
        match begun {
            Ok(Some(truncation)) => {
                reach(Point::CutNoted);
                self.unfinished.insert(cut.inode, truncation);
                self.truncate_objects(cut, truncation);
            }
            Ok(None) => self.truncate_end(&cut, now),
            Err(fault) => self.truncate_failed(&cut, fault, now),
        }
    }

    fn truncate_objects(&mut self, cut: TruncateJob, truncation: Truncation) {
        let round = truncation
            .layout
            .servers()
            .map(|server| {
                let bytes = truncation.layout.local_length(server, truncation.bytes);
                let (inode, from, to) = (truncation.inode, truncation.from, truncation.to);
                (server, Request::Truncate { inode, from, to, bytes })
            })
            .collect();
        self.ask_peers(PeerContinuation::Truncate(cut, truncation), vec![round]);
    }

    pub(super) fn truncate_done(
        &mut self,
        cut: &TruncateJob,
        truncation: Truncation,
        result: RoundsResult,
        now: Nanos,
    ) {
        if let Err(fault) = result {
            let text = format!(
                "{} (the truncation of inode {} is finished when it is back)",
                fault.text, truncation.inode
            );
            return self.truncate_failed(cut, Fault::new(fault.code, text), now);
        }
        reach(Point::CutCarried);
        self.unfinished.remove(&cut.inode);
        if let Err(fault) = self.names.finish_truncation(cut.inode) {
            return self.truncate_failed(cut, fault, now);
        }
        // A resumed truncation may differ from this caller's request.
        if let AfterTruncate::Length(bytes) = cut.then
            && truncation.bytes != bytes
        {
            let again = TruncateJob { ticket: None, ..*cut };
            self.end_barrier(cut, now);
            if let Err(fault) = self.truncate(again, now) {
                self.reply(cut.caller, Reply::Failed { fault });
            }
            return;
        }
        self.truncate_end(cut, now);
    }

    fn truncate_end(&mut self, cut: &TruncateJob, now: Nanos) {
        self.end_barrier(cut, now);
        match (cut.then, self.names.attr(cut.inode)) {
            (_, Err(fault)) => self.reply(cut.caller, Reply::Failed { fault }),
            (AfterTruncate::Length(_), Ok(attr)) => {
                self.reply(cut.caller, Reply::Length { bytes: attr.size, generation: attr.generation });
            }
            (AfterTruncate::Opened, Ok(attr)) => {
                self.reply(cut.caller, Reply::Name { reply: NameReply::Attr { attr } });
            }
            (AfterTruncate::Acquire(want, party), Ok(_)) => {
                if let Err(fault) = self.acquire(cut.caller, (cut.inode, want, party), now) {
                    self.reply(cut.caller, Reply::Failed { fault });
                }
            }
        }
    }

    fn truncate_failed(&mut self, cut: &TruncateJob, fault: Fault, now: Nanos) {
        self.end_barrier(cut, now);
        self.reply(cut.caller, Reply::Failed { fault });
    }

    fn end_barrier(&mut self, cut: &TruncateJob, now: Nanos) {
        if let Some(ticket) = cut.ticket {
            let mut actions = Vec::new();
            self.leases.barrier_end(cut.inode, ticket, now, &mut actions);
            self.carry_out(actions, now);
        }
    }

    /// A file's last name was removed.
    pub(super) fn unlinked(&mut self, attr: FileAttr) {
        for session in self.users.of(attr.inode) {
            let notice = Notice::Unlinked { inode: attr.inode };
            self.effects.push(ManagerEffect::Notify { session, notice });
        }
        self.unremoved.insert(attr.inode, (Nanos(0), attr));
        self.remove_if_unused(attr.inode);
    }

    pub(super) fn remove_if_unused(&mut self, inode: InodeId) {
        if self.users.uses(inode) || !self.leases.holders(inode).is_empty() {
            return;
        }
        let Some((_, attr)) = self.unremoved.remove(&inode) else { return };
        // The length may have grown since the name was removed.
        let attr = self.names.attr(inode).unwrap_or(attr);
        let rounds = removal(&attr);
        if rounds.is_empty() {
            return self.forget_removed(attr);
        }
        reach(Point::RemoveNoted);
        self.ask_peers(PeerContinuation::Remove(attr), rounds);
    }

    pub(super) fn removed(&mut self, attr: FileAttr, result: RoundsResult, now: Nanos) {
        match result {
            Ok(_) => {
                reach(Point::RemoveCarried);
                self.forget_removed(attr);
            }
            Err(fault) => {
                tracing::debug!(%fault, inode = %attr.inode, "objects of a removed file cannot be removed yet; will be retried");
                // If only the queue was full, the server is asked again immediately.
                let since = if fault.code == Code::TooMany { Nanos(0) } else { now };
                self.unremoved.insert(attr.inode, (since, attr));
            }
        }
    }

    fn forget_removed(&mut self, attr: FileAttr) {
        for ticket in self.leases.forget(attr.inode) {
            if let Some(LeaseContinuation::Acquire { caller, .. }) = self.waits.remove(&ticket) {
                self.reply(caller, Reply::Failed { fault: Fault::new(Code::Stale, "the file was removed") });
            }
        }
        self.unfinished.remove(&attr.inode);
        if let Err(fault) = self.names.finish_remove(attr.inode) {
            tracing::warn!(%fault, "could not note a removal; it will be repeated");
        }
    }

    /// Retries removals that a server could not carry out.
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

/// Requests that remove a file's objects. A file that never had a byte nor a truncation has none.
fn removal(attr: &FileAttr) -> CallRounds {
    let has_objects =
        attr.kind == pario_core::FileKind::File && (0 < attr.size || attr.generation != Generation(0));
    if !has_objects {
        return Vec::new();
    }
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    vec![attr.layout.servers().map(|server| (server, Request::RemoveObject { object })).collect()]
}
