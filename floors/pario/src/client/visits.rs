//! What servers of one application ask each other about blocks without a fixed place.
//!
//! Never: repeats a visit whose answer was lost: it may have happened. Always: claims and returns may be repeated, since each ownership
//! has its number.

use pario_core::{Code, Fault, ServerIndex};
use pario_net::buffers;
use pario_net::message::{Reply, Request};
use pario_server::store::{Claim, GiveBack, Grant, Visit};
use pario_sys::Piece;

use super::mount::{Mount, odd};

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

    /// Reads at an owner; false if it is not that.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(crate) fn visit_read(
        &self,
        owner: ServerIndex,
        visit: Visit,
        target: &mut [u8],
    ) -> Result<bool, Fault> {
        let Visit { object, at, told } = visit;
        let bytes = u32::try_from(target.len())
            .map_err(|_| Fault::new(Code::TooLarge, "a visit of more than a message carries"))?;
        let started = self.start(owner, &Request::VisitRead { object, at, bytes, told }, &[])?;
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
