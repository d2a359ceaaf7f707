//! What servers of one application ask each other about blocks without a fixed place.
//!
//! Never: repeats a visit whose answer was lost: it may have happened. Always: what homes are asked and told may be repeated, since each
//! ownership has its number.

use pario_core::{Code, Fault, ServerIndex};
use pario_net::buffers;
use pario_net::message::{Reply, Request};
use pario_server::store::{Answer, Claim, GiveBack, Grant, Pass, Take, Taken, Visit, Visited};
use pario_sys::Piece;

use super::mount::{Mount, Started, odd};

impl Mount {
    /// Asks a home whose blocks are.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(crate) fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        let Claim { server, inode, block_bytes, ref blocks } = *claim;
        match self.call(home, &Request::Claim { server, inode, block_bytes, blocks: blocks.clone() })?.reply {
            Reply::Claimed { grants } => {
                Ok(grants.into_iter().map(|(owner, number)| Grant { owner, number }).collect())
            }
            other => Err(odd(&other)),
        }
    }

    /// Tells a home that blocks are nobody's any more.
    pub(crate) fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault> {
        let GiveBack { server, inode, ref blocks } = *back;
        self.call(home, &Request::GiveBack { server, inode, blocks: blocks.clone() }).map(|_| ())
    }

    /// Tells a home that blocks are passed on.
    pub(crate) fn pass(&self, home: ServerIndex, pass: &Pass) -> Result<(), Fault> {
        let Pass { server, to, inode, ref blocks } = *pass;
        self.call(home, &Request::Pass { server, to, inode, blocks: blocks.clone() }).map(|_| ())
    }

    /// Asks the owner of blocks for them.
    pub(crate) fn take(&self, owner: ServerIndex, take: Take) -> Result<Answer<'_, Taken>, Fault> {
        let Take { to, visit: Visit { object, at, told }, blocks, syncs, of } = take;
        let started =
            self.start(owner, &Request::VisitTake { object, at, blocks, to, syncs, of, told }, &[])?;
        Ok(Box::new(move || self.taken(started)))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn taken(&self, started: Started) -> Result<Taken, Fault> {
        match self.finish(started, None)?.reply {
            Reply::Claimed { grants } => {
                Ok(Taken::Yours(grants.into_iter().map(|(_, number)| number).collect()))
            }
            Reply::NotMine {} => Ok(Taken::NotMine),
            Reply::Done {} => Ok(Taken::Late),
            other => Err(odd(&other)),
        }
    }

    /// Reads at an owner; false if it is not that.
    pub(crate) fn visit_read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, bool>, Fault> {
        let started = self.start_visit(owner, visit, (target.len(), false))?;
        Ok(Box::new(move || self.visited(started, target)))
    }

    fn start_visit(
        &self,
        owner: ServerIndex,
        Visit { object, at, told }: Visit,
        (bytes, at_once): (usize, bool),
    ) -> Result<Started, Fault> {
        let bytes = u32::try_from(bytes)
            .map_err(|_| Fault::new(Code::TooLarge, "a visit of more than a message carries"))?;
        self.start(owner, &Request::VisitRead { object, at, bytes, told, at_once }, &[])
    }

    /// Reads at an owner what is there at one moment.
    pub(crate) fn visit_at_once<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, Visited>, Fault> {
        let started = self.start_visit(owner, visit, (target.len(), true))?;
        Ok(Box::new(move || self.visited_at_once(started, target)))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn visited_at_once(&self, started: Started, target: &mut [u8]) -> Result<Visited, Fault> {
        let answer = self.finish(started, Some(&mut *target))?;
        match answer.reply {
            Reply::Moment { stamp } if answer.data_bytes == target.len() => Ok(Visited::Found(stamp)),
            Reply::NotMine {} => Ok(Visited::NotMine),
            Reply::NotNow {} => Ok(Visited::NotNow),
            other => Err(odd(&other)),
        }
    }

    /// Whether blocks are as they were read at their owner.
    pub(crate) fn visit_still(
        &self,
        owner: ServerIndex,
        Visit { object, at, .. }: Visit,
        (bytes, stamp): (u64, u64),
    ) -> Result<Answer<'_, bool>, Fault> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let started = self.start(owner, &Request::VisitStill { object, at, bytes, stamp }, &[])?;
        Ok(Box::new(move || Ok(matches!(self.finish(started, None)?.reply, Reply::Done {}))))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn visited(&self, started: Started, target: &mut [u8]) -> Result<bool, Fault> {
        let answer = self.finish(started, Some(&mut *target))?;
        match answer.reply {
            Reply::Data {} if answer.data_bytes == target.len() => Ok(true),
            Reply::NotMine {} => Ok(false),
            other => Err(odd(&other)),
        }
    }

    /// Writes at an owner; false if it is not that.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(crate) fn visit_write(
        &self,
        owner: ServerIndex,
        visit: Visit,
        pieces: &[Piece<'_>],
    ) -> Result<bool, Fault> {
        let Visit { object, at, told } = visit;
        let mut bytes = buffers::take(pieces.iter().map(Piece::len).sum());
        let mut done = 0;
        for piece in pieces {
            piece.copy_to(&mut bytes[done..done + piece.len()]);
            done += piece.len();
        }
        let started = self.start(owner, &Request::VisitWrite { object, at, told }, &[&bytes]);
        buffers::give_back(bytes);
        match self.finish(started?, None)?.reply {
            Reply::Done {} => Ok(true),
            Reply::NotMine {} => Ok(false),
            other => Err(odd(&other)),
        }
    }
}
