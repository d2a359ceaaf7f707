//! Blocks without a fixed place: the words by which servers tell each other whose a block is, and reach it there.
//!
//! Each block has a *home*, a server that knows who owns it, and at most one *owner*, the server that caches it and alone reads and
//! writes it below. One that is nobody's is *claimed* by whoever touches it first; others *visit* it at its owner. Where blocks follow
//! their writers, who overwrites whole ones *takes* them from their owner, who *passes* them on at their homes.
//!
//! Never: a visit that is passed on; a home that waits. Always: an ownership has a number, and only who knows it gives it back or passes
//! it on.

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
    /// Which, each with the number of an ownership that the server gave back without hearing that its home knows; 0: there is none.
    pub blocks: Vec<(u64, u64)>,
}

/// Numbers from one that a home gives to the next: an ownership that is passed on has the number after, without the home's doing.
pub const NUMBERS: u64 = 1 << 32;

/// Whose a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its owner.
    pub owner: ServerIndex,
    /// Which ownership: each is given once.
    pub number: u64,
}

impl Grant {
    /// Whether what `server` says of an ownership with that number is about this one, or about one that it was passed on to since: then
    /// this home has not heard of that yet.
    #[must_use]
    pub fn is_before(&self, server: ServerIndex, number: u64) -> bool {
        let same = self.number / NUMBERS == number / NUMBERS;
        same && (self.number < number || (self.number == number && self.owner == server))
    }
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

/// Blocks that their owner passes on to another server, with the numbers of the ownerships.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Who owned them.
    pub server: ServerIndex,
    /// Whose they are to be.
    pub to: ServerIndex,
    /// Of which file.
    pub inode: InodeId,
    /// Block and number of the ownership.
    pub blocks: Vec<(u64, u64)>,
}

/// A server is about to overwrite whole blocks, and wants to own them for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Take {
    /// Who.
    pub to: ServerIndex,
    /// Where the first begins.
    pub visit: Visit,
    /// How many, right behind one another.
    pub blocks: u32,
    /// How often a sync of the file began at the asking server.
    pub syncs: u64,
    /// The numbers of their ownerships, as far as the asking server knows, all together. A block's numbers only grow: where the owner has
    /// another sum, some have moved since, and this may be a message that comes late.
    pub of: u64,
}

/// The sum of numbers of ownerships: see [`Take::of`].
#[must_use]
pub fn sum_of(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::wrapping_add)
}

/// What an owner says to that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// They are the asking server's; numbers of the ownerships. Their bytes are gone.
    Yours(Vec<u64>),
    /// They are not this server's to give.
    NotMine,
    /// The file was cut since: what was to be written comes too late, and nobody can ask for it.
    Late,
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

/// What came of a read at an owner that must be as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visited {
    /// It is; the sum of the blocks' stamps, which is another one as soon as any is written again or leaves.
    Found(u64),
    /// The server is not the owner.
    NotMine,
    /// Somebody is writing some of it.
    NotNow,
}

/// What a store answers to other servers of its kind, and to clients about blocks without a fixed place.
pub trait Places {
    /// Bytes of the file's blocks, if they have no fixed place, so that an access may have to wait for another server.
    fn block_bytes(&self, inode: InodeId) -> Option<u64>;

    /// Whether this server owns all blocks of a range now.
    fn is_here(&self, inode: InodeId, range: Range<u64>) -> bool;

    /// Whose these blocks are; those that are nobody's are the claimant's from now on. Never waits.
    fn claim(&self, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// These ownerships are over; numbers that are not known any more are passed over. Never waits.
    fn give_back(&self, back: &GiveBack);

    /// These ownerships are the other server's, each under the next number; what is known to have gone on since is passed over. Never
    /// waits.
    fn pass(&self, pass: &Pass);

    /// Gives blocks to a server that overwrites them, if they are all this server's: says so to `answer`, once, and then tells their homes.
    /// Waits for accesses under way here, and for nobody who may wait for this server.
    fn take(&self, take: Take, answer: &mut dyn FnMut(Taken)) -> Result<(), StoreError>;

    /// Fills `target`, if this server owns all of its blocks; false if not. Never waits for a server that may wait for this one.
    fn visit_read(&self, visit: Visit, target: &mut [u8]) -> Result<bool, StoreError>;

    /// The same, as it is at one moment; where somebody works on a block it says so, and waits for nobody.
    fn visit_at_once(&self, visit: Visit, target: &mut [u8]) -> Result<Visited, StoreError>;

    /// Whether the blocks of so many bytes have stamps of that sum still. Never waits.
    fn is_still(&self, visit: Visit, bytes: u64, stamp: u64) -> bool;

    /// Fills `target` for a client with what was there at one moment, whosever the blocks are; false: too much changes meanwhile. Nobody
    /// writes the same bytes but by [`Places::write_at_once`].
    fn read_at_once(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, StoreError>;

    /// Overwrites whole blocks for a client so that readers at one moment, and other such writes, come before all of it or behind.
    fn write_at_once(
        &self,
        object: ObjectId,
        at: LocalOffset,
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError>;

    /// Writes the pieces, if this server owns all of their blocks; false if not.
    fn visit_write(&self, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, StoreError>;

    /// How far the file reaches, as far as is known here: a part says nothing of it where blocks have no fixed place. `None`: it is
    /// not such a file.
    fn file_length(&self, inode: InodeId) -> Option<u64>;
}

/// Waits for the answer of another server.
pub type Answer<'a, T> = Box<dyn FnOnce() -> Result<T, Fault> + 'a>;

/// How a store reaches the others.
pub trait Companions: Send + Sync + std::fmt::Debug {
    /// Asks a home: see [`Places::claim`].
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// Tells a home: see [`Places::give_back`].
    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault>;

    /// Tells a home: see [`Places::pass`].
    fn pass(&self, home: ServerIndex, pass: &Pass) -> Result<(), Fault>;

    /// Asks an owner for blocks: see [`Places::take`]. Several may be asked before the first answer is waited for.
    fn take(&self, owner: ServerIndex, take: Take) -> Result<Answer<'_, Taken>, Fault>;

    /// Asks an owner for bytes: see [`Places::visit_read`]. Several may be asked before the first answer is waited for.
    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, bool>, Fault>;

    /// The same as it is at one moment: see [`Places::visit_at_once`].
    fn read_at_once<'a>(
        &'a self,
        owner: ServerIndex,
        visit: Visit,
        target: &'a mut [u8],
    ) -> Result<Answer<'a, Visited>, Fault>;

    /// Asks an owner: see [`Places::is_still`].
    fn is_still(
        &self,
        owner: ServerIndex,
        visit: Visit,
        bytes: u64,
        stamp: u64,
    ) -> Result<Answer<'_, bool>, Fault>;

    /// Writes at an owner: see [`Places::visit_write`].
    fn write(&self, owner: ServerIndex, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, Fault>;

    /// A server in words that its users know.
    fn describe(&self, server: ServerIndex) -> String;
}
