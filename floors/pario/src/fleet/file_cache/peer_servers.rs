//! Connections of the server in this process to the other servers of the group, for blocks without a fixed placement.
//!
//! Never: uses the connections of the process's own files. Always: an error about a dead server names the rank that ran it.

use std::sync::Arc;

use pario_core::{Code, Fault, ServerIndex};
use pario_server::store::{
    AtomicReadReply, Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport, PeerServers,
    PendingAnswer, RemoteAccess,
};
use pario_sys::MemoryPiece;

use crate::client::Session;

/// See the module head.
#[derive(Debug)]
pub(super) struct GroupServers {
    mount: Arc<Session>,
    /// Ranks with a server, in server order.
    ranks: Vec<usize>,
}

impl GroupServers {
    pub(super) fn new(mount: Arc<Session>, ranks: Vec<usize>) -> GroupServers {
        GroupServers { mount, ranks }
    }

    fn name(&self, server: ServerIndex, fault: Fault) -> Fault {
        if fault.code != Code::Unreachable {
            return fault;
        }
        match self.ranks.get(server.at()) {
            Some(rank) => Fault::new(fault.code, format!("the cache of rank {rank} is gone: {}", fault.text)),
            None => fault,
        }
    }
}

impl PeerServers for GroupServers {
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        self.mount.claim(home, claim).map_err(|fault| self.name(home, fault))
    }

    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        self.mount.report_unowned(home, back).map_err(|fault| self.name(home, fault))
    }

    fn report_handover(&self, home: ServerIndex, pass: &HandoverReport) -> Result<(), Fault> {
        self.mount.report_handover(home, pass).map_err(|fault| self.name(home, fault))
    }

    fn request_handover(
        &self,
        owner: ServerIndex,
        take: Handover,
    ) -> Result<PendingAnswer<'_, HandoverReply>, Fault> {
        let answer = self.mount.request_handover(owner, take).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, bool>, Fault> {
        let answer = self.mount.remote_read(owner, visit, target).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn read_atomic<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, AtomicReadReply>, Fault> {
        let answer =
            self.mount.remote_read_atomic(owner, visit, target).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn is_still(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        bytes: u64,
        stamp: u64,
    ) -> Result<PendingAnswer<'_, bool>, Fault> {
        let asked = self.mount.remote_unchanged(owner, visit, (bytes, stamp));
        let answer = asked.map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn write(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, Fault> {
        self.mount.remote_write(owner, visit, pieces).map_err(|fault| self.name(owner, fault))
    }

    fn describe(&self, server: ServerIndex) -> String {
        let rank = self.ranks.get(server.at());
        rank.map_or_else(|| format!("server {server}"), |rank| format!("the cache of rank {rank}"))
    }
}
