//! Blocks without a fixed place: the words by which servers tell each other whose a block is, and reach it there.
//!
//! Each block has a *home*, a server that knows who owns it, and at most one *owner*, the server that caches it and alone reads and
//! writes it below. Who has none is asked for it (*claim*) by whoever touches it first; others *visit* it at its owner.
//!
//! Never: a visit that is passed on; a home that waits. Always: an ownership has a number, and only who knows it gives it back.

use std::ops::Range;

use pario_core::{Fault, InodeId, LocalOffset, ObjectId, ServerIndex};
use pario_sys::Piece;

use crate::error::StoreError;

/// Blocks that a server wants to own, of those that one home knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Who wants them.
    pub server: ServerIndex,
    /// Of which file.
    pub inode: InodeId,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Which.
    pub blocks: Vec<u64>,
}

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its owner.
    pub owner: ServerIndex,
    /// Which ownership: each is given once.
    pub number: u64,
}

/// Blocks that their owner gives up, with the numbers of the ownerships; what it wrote is below.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveBack {
    /// Who owned them.
    pub server: ServerIndex,
    /// Of which file.
    pub inode: InodeId,
    /// Block and number of the ownership.
    pub blocks: Vec<(u64, u64)>,
}

/// An access to blocks at their owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The file, and its generation.
    pub object: ObjectId,
    /// Where.
    pub at: LocalOffset,
    /// The home said just now whose they are; else it is what the visitor remembers.
    pub told: bool,
}

/// What a store answers to other servers of its kind.
pub trait Places {
    /// Bytes of the file's blocks, if they have no fixed place, so that an access may have to wait for another server.
    fn block_bytes(&self, inode: InodeId) -> Option<u64>;

    /// Whether this server owns all blocks of a range now.
    fn is_here(&self, inode: InodeId, range: Range<u64>) -> bool;

    /// Whose these blocks are; those that are nobody's are the claimant's from now on. Never waits.
    fn claim(&self, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// These ownerships are over; numbers that are not known any more are passed over. Never waits.
    fn give_back(&self, back: &GiveBack);

    /// Fills `target`, if this server owns all of its blocks; false if not. Never waits for a server that may wait for this one.
    fn visit_read(&self, visit: Visit, target: &mut [u8]) -> Result<bool, StoreError>;

    /// Writes the pieces, if this server owns all of their blocks; false if not.
    fn visit_write(&self, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, StoreError>;

    /// How far the file reaches, as far as is known here: a part says nothing of it where blocks have no fixed place. `None`: it is
    /// not such a file.
    fn file_length(&self, inode: InodeId) -> Option<u64>;
}

/// How a store reaches the others.
pub trait Companions: Send + Sync + std::fmt::Debug {
    /// Asks a home: see [`Places::claim`].
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// Tells a home: see [`Places::give_back`].
    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault>;

    /// Reads at an owner: see [`Places::visit_read`].
    fn read(&self, owner: ServerIndex, visit: Visit, target: &mut [u8]) -> Result<bool, Fault>;

    /// Writes at an owner: see [`Places::visit_write`].
    fn write(&self, owner: ServerIndex, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, Fault>;

    /// A server in words that its users know.
    fn describe(&self, server: ServerIndex) -> String;
}
