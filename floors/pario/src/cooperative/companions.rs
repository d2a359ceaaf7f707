//! The other servers of a group, as the server in this process reaches them for blocks that have no fixed place.
//!
//! Never: uses the connections of the process's own files. Always: an error about a server that is gone names the rank that ran it.

use std::sync::Arc;

use pario_core::{Code, Fault, ServerIndex};
use pario_server::store::{Answer, Claim, Companions, GiveBack, Grant, Pass, Take, Taken, Visit, Visited};
use pario_sys::Piece;

use crate::client::Mount;

/// See the module.
#[derive(Debug)]
pub(super) struct Others {
    mount: Arc<Mount>,
    /// Ranks whose processes serve, in the order of servers.
    ranks: Vec<usize>,
}

impl Others {
    pub(super) fn new(mount: Arc<Mount>, ranks: Vec<usize>) -> Others {
        Others { mount, ranks }
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

impl Companions for Others {
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        self.mount.claim(home, claim).map_err(|fault| self.name(home, fault))
    }

    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        self.mount.give_back(home, back).map_err(|fault| self.name(home, fault))
    }

    fn pass(&self, home: ServerIndex, pass: &Pass) -> Result<(), Fault> {
        self.mount.pass(home, pass).map_err(|fault| self.name(home, fault))
    }

    fn take(&self, owner: ServerIndex, take: Take) -> Result<Answer<'_, Taken>, Fault> {
        let answer = self.mount.take(owner, take).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, bool>, Fault> {
        let answer = self.mount.visit_read(owner, visit, target).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn read_at_once<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, Visited>, Fault> {
        let answer =
            self.mount.visit_at_once(owner, visit, target).map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn is_still(
        &self,
        owner: ServerIndex,
        visit: Visit,
        bytes: u64,
        stamp: u64,
    ) -> Result<Answer<'_, bool>, Fault> {
        let asked = self.mount.visit_still(owner, visit, (bytes, stamp));
        let answer = asked.map_err(|fault| self.name(owner, fault))?;
        Ok(Box::new(move || answer().map_err(|fault| self.name(owner, fault))))
    }

    fn write(&self, owner: ServerIndex, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, Fault> {
        self.mount.visit_write(owner, visit, pieces).map_err(|fault| self.name(owner, fault))
    }

    fn describe(&self, server: ServerIndex) -> String {
        let rank = self.ranks.get(server.at());
        rank.map_or_else(|| format!("server {server}"), |rank| format!("the cache of rank {rank}"))
    }
}
