//! `stat`, listings and new times of modification: recall write-back leases first, then carry out and reply.
//!
//! Never: recalls a lease of the caller; it knows its own length. A lease that it held under an earlier manager process is measured first:
//! the caller may have closed the file since, and no longer know the length.

use pario_core::{Fault, FileKind, InodeId, Nanos};
use pario_net::message::{NameReply, NameRequest, Phase, Reply};
use pario_sys::clock::wall_ns;

use super::{LeaseContinuation, Manager, RequestCaller};
use crate::coherence::{Barrier, BarrierRequest};

/// A `stat` or listing that waits until files are quiet.
pub(super) struct QuietWait {
    caller: RequestCaller,
    request: NameRequest,
    left: usize,
}

impl QuietWait {
    pub(super) fn caller(&self) -> RequestCaller {
        self.caller
    }
}

impl Manager {
    pub(super) fn look(
        &mut self,
        caller: RequestCaller,
        request: NameRequest,
        now: Nanos,
    ) -> Result<(), Fault> {
        let reply = self.names.request(caller.origin(), &request, wall_ns())?.reply;
        let busy: Vec<InodeId> = match &reply {
            NameReply::Attr { attr } if attr.kind == FileKind::File => vec![attr.inode],
            NameReply::Entries { entries, .. } => entries
                .iter()
                .filter(|entry| entry.attr.kind == FileKind::File)
                .map(|entry| entry.attr.inode)
                .collect(),
            NameReply::Attr { .. }
            | NameReply::Done {}
            | NameReply::Target { .. }
            | NameReply::Value { .. }
            | NameReply::XattrNames { .. } => Vec::new(),
        };
        if !busy.iter().any(|inode| self.is_written_back(*inode, caller)) {
            self.reply(caller, Reply::Name { reply });
            return Ok(());
        }
        self.when_quiet(caller, (request, busy), now)
    }

    /// Carries out a request when no other session writes back one of the files.
    pub(super) fn when_quiet(
        &mut self,
        caller: RequestCaller,
        (request, files): (NameRequest, Vec<InodeId>),
        now: Nanos,
    ) -> Result<(), Fault> {
        let busy: Vec<InodeId> =
            files.into_iter().filter(|inode| self.is_written_back(*inode, caller)).collect();
        if busy.is_empty() {
            let reply = self.names.request(caller.origin(), &request, wall_ns())?.reply;
            self.reply(caller, Reply::Name { reply });
            return Ok(());
        }
        let number = self.number();
        self.looks.insert(number, QuietWait { caller, request, left: busy.len() });
        for inode in busy {
            self.retry_recovery(inode);
            let ticket = self.ticket(LeaseContinuation::Look(number));
            let ask = BarrierRequest { inode, ticket, kind: Barrier::Look, requester: Some(caller.session) };
            let mut actions = Vec::new();
            self.leases.barrier(ask, now, &mut actions);
            self.carry_out(actions, now);
        }
        Ok(())
    }

    /// Whether another session may know a newer length of the file than the manager.
    fn is_written_back(&self, inode: InodeId, caller: RequestCaller) -> bool {
        if self.leases.is_unrecovered(inode) {
            return true;
        }
        let (phase, holders) = (self.leases.phase(inode), self.leases.holders(inode));
        // Readers and write-through writers keep no data back, unless one of them died and is not recovered.
        let all_live = holders.iter().all(|holder| self.clients.contains_key(holder));
        if all_live && matches!(phase, Some(Phase::Read {} | Phase::Mixed {})) {
            return false;
        }
        holders.iter().any(|holder| *holder != caller.session || phase.is_none())
    }

    /// One of the files is quiet.
    pub(super) fn looked(&mut self, number: u64) {
        let Some(look) = self.looks.get_mut(&number) else { return };
        look.left -= 1;
        if 0 < look.left {
            return;
        }
        let Some(look) = self.looks.remove(&number) else { return };
        let reply = match self.names.request(look.caller.origin(), &look.request, wall_ns()) {
            Ok(answer) => Reply::Name { reply: answer.reply },
            Err(fault) => Reply::Failed { fault },
        };
        self.reply(look.caller, reply);
    }

    /// One of the files cannot become quiet.
    pub(super) fn fail_look(&mut self, number: u64, fault: &Fault) {
        if let Some(look) = self.looks.remove(&number) {
            self.reply(look.caller, Reply::Failed { fault: fault.clone() });
        }
    }
}
