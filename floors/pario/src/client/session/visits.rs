//! Requests between the servers of one application about blocks without a fixed owner: claims at the home server, remote accesses and
//! handovers at the owner.
//!
//! Never: repeats a remote access with a lost reply: it may have been executed. Always: requests to a home server may be repeated, since
//! each ownership has its own number.

use pario_core::{Code, Fault, ServerIndex};
use pario_net::buffers;
use pario_net::message::{Reply, Request};
use pario_server::store::{
    AtomicReadReply, Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport, PendingAnswer,
    RemoteAccess,
};
use pario_sys::MemoryPiece;

use crate::client::session::state::{Session, StartedRequest, unexpected_reply};

impl Session {
    /// Asks a home server for the owners of blocks.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(crate) fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        let Claim { server, inode, block_bytes, ref blocks } = *claim;
        match self.call(home, &Request::Claim { server, inode, block_bytes, blocks: blocks.clone() })?.reply {
            Reply::Claimed { grants } => {
                Ok(grants.into_iter().map(|(owner, number)| Grant { owner, number }).collect())
            }
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Reports to a home server that blocks have no owner any more.
    pub(crate) fn report_unowned(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        let GiveBack { server, inode, ref blocks } = *back;
        self.call(home, &Request::GiveBack { server, inode, blocks: blocks.clone() }).map(|_| ())
    }

    /// Reports to a home server that the ownership of blocks was handed over.
    pub(crate) fn report_handover(&self, home: ServerIndex, pass: &HandoverReport) -> Result<(), Fault> {
        let HandoverReport { server, to, inode, ref blocks } = *pass;
        self.call(home, &Request::ReportHandover { server, to, inode, blocks: blocks.clone() }).map(|_| ())
    }

    /// Requests the ownership of blocks from their owner.
    pub(crate) fn request_handover(
        &self,
        owner: ServerIndex,
        take: Handover,
    ) -> Result<PendingAnswer<'_, HandoverReply>, Fault> {
        let Handover {
            to,
            first: RemoteAccess { object, at, home_confirmed: told },
            blocks,
            syncs,
            number_sum: of,
        } = take;
        let started = self.start(
            owner,
            &Request::VisitHandover { object, at, blocks, to, syncs, number_sum: of, told },
            &[],
        )?;
        Ok(Box::new(move || self.handover_reply(started)))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn handover_reply(&self, started: StartedRequest) -> Result<HandoverReply, Fault> {
        match self.finish(started, None)?.reply {
            Reply::Claimed { grants } => {
                Ok(HandoverReply::Granted(grants.into_iter().map(|(_, number)| number).collect()))
            }
            Reply::NotOwner {} => Ok(HandoverReply::NotMine),
            Reply::Done {} => Ok(HandoverReply::TooLate),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Reads at the owner; false if that server is not the owner.
    pub(crate) fn remote_read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, bool>, Fault> {
        let started = self.start_remote_read(owner, visit, (target.len(), false))?;
        Ok(Box::new(move || self.finish_remote_read(started, target)))
    }

    fn start_remote_read(
        &self,
        owner: ServerIndex,
        RemoteAccess { object, at, home_confirmed: told }: RemoteAccess,
        (bytes, at_once): (usize, bool),
    ) -> Result<StartedRequest, Fault> {
        let bytes = u32::try_from(bytes).map_err(|_| {
            Fault::new(Code::TooLarge, "a remote access is larger than a message; use smaller accesses")
        })?;
        self.start(owner, &Request::VisitRead { object, at, bytes, told, atomic: at_once }, &[])
    }

    /// Reads atomically at the owner.
    pub(crate) fn remote_read_atomic<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, AtomicReadReply>, Fault> {
        let started = self.start_remote_read(owner, visit, (target.len(), true))?;
        Ok(Box::new(move || self.finish_remote_read_atomic(started, target)))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn finish_remote_read_atomic(
        &self,
        started: StartedRequest,
        target: &mut [u8],
    ) -> Result<AtomicReadReply, Fault> {
        let answer = self.finish(started, Some(&mut *target))?;
        match answer.reply {
            Reply::AtomicData { stamp } if answer.data_bytes == target.len() => {
                Ok(AtomicReadReply::Found(stamp))
            }
            Reply::NotOwner {} => Ok(AtomicReadReply::NotMine),
            Reply::NotNow {} => Ok(AtomicReadReply::Busy),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Whether blocks at their owner are unchanged since they were read.
    pub(crate) fn remote_unchanged(
        &self,
        owner: ServerIndex,
        RemoteAccess { object, at, .. }: RemoteAccess,
        (bytes, stamp): (u64, u64),
    ) -> Result<PendingAnswer<'_, bool>, Fault> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let started = self.start(owner, &Request::VisitUnchanged { object, at, bytes, stamp }, &[])?;
        Ok(Box::new(move || Ok(matches!(self.finish(started, None)?.reply, Reply::Done {}))))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn finish_remote_read(&self, started: StartedRequest, target: &mut [u8]) -> Result<bool, Fault> {
        let answer = self.finish(started, Some(&mut *target))?;
        match answer.reply {
            Reply::Data {} if answer.data_bytes == target.len() => Ok(true),
            Reply::NotOwner {} => Ok(false),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// Writes at the owner; false if that server is not the owner.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(crate) fn remote_write(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, Fault> {
        let RemoteAccess { object, at, home_confirmed: told } = visit;
        let mut bytes = buffers::take(pieces.iter().map(MemoryPiece::len).sum());
        let mut done = 0;
        for piece in pieces {
            piece.copy_to(&mut bytes[done..done + piece.len()]);
            done += piece.len();
        }
        let started = self.start(owner, &Request::VisitWrite { object, at, told }, &[&bytes]);
        buffers::give_back(bytes);
        match self.finish(started?, None)?.reply {
            Reply::Done {} => Ok(true),
            Reply::NotOwner {} => Ok(false),
            other => Err(unexpected_reply(&other)),
        }
    }
}
