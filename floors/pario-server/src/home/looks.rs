//! Looking: `stat` and listings first recall what is being written behind, then answer.
//!
//! Never: recalls from the one who asks; its own length is known to itself.

use pario_core::{Fault, FileKind, InodeId, Nanos};
use pario_net::message::{NameReply, NameRequest, Phase, Reply};
use pario_sys::clock::wall_ns;

use super::{Caller, Home, Wait};
use crate::coherence::{Barrier, BarrierAsk};

/// A look that waits for files to be quiet.
pub(super) struct Look {
    caller: Caller,
    request: NameRequest,
    left: usize,
}

impl Look {
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }
}

impl Home {
    pub(super) fn look(&mut self, caller: Caller, request: NameRequest, now: Nanos) -> Result<(), Fault> {
        let reply = self.names.request(caller.origin(), &request, wall_ns())?.reply;
        let busy: Vec<InodeId> = match &reply {
            NameReply::Attr { attr } if attr.kind == FileKind::File => vec![attr.inode],
            NameReply::Entries { entries, .. } => entries
                .iter()
                .filter(|entry| entry.attr.kind == FileKind::File)
                .map(|entry| entry.attr.inode)
                .collect(),
            NameReply::Attr { .. } | NameReply::Done {} | NameReply::Target { .. } => Vec::new(),
        };
        let busy: Vec<InodeId> =
            busy.into_iter().filter(|inode| self.is_written_behind(*inode, caller)).collect();
        if busy.is_empty() {
            self.reply(caller, Reply::Name { reply });
            return Ok(());
        }
        let number = self.number();
        self.looks.insert(number, Look { caller, request, left: busy.len() });
        for inode in busy {
            self.retry_settling(inode);
            let ticket = self.ticket(Wait::Look(number));
            let ask = BarrierAsk { inode, ticket, kind: Barrier::Look, asker: Some(caller.session) };
            let mut actions = Vec::new();
            self.leases.barrier(ask, now, &mut actions);
            self.carry_out(actions, now);
        }
        Ok(())
    }

    /// Whether somebody else may know more of the file than we do.
    fn is_written_behind(&self, inode: InodeId, caller: Caller) -> bool {
        let (phase, holders) = (self.leases.phase(inode), self.leases.holders(inode));
        // Readers and write-through writers keep nothing back, unless one of them died and is not settled.
        let all_live = holders.iter().all(|holder| self.clients.contains_key(holder));
        if all_live && matches!(phase, Some(Phase::Read {} | Phase::Mixed {})) {
            return false;
        }
        holders.iter().any(|holder| *holder != caller.session || phase.is_none())
    }

    /// One of a look's files is quiet.
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

    /// A file that a look waits for cannot become quiet.
    pub(super) fn fail_look(&mut self, number: u64, fault: &Fault) {
        if let Some(look) = self.looks.remove(&number) {
            self.reply(look.caller, Reply::Failed { fault: fault.clone() });
        }
    }
}
