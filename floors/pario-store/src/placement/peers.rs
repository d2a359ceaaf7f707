//! Messages and traits by which the servers of one file cache find the owner of a block and access the block there.
//!
//! Each block has a *home*, the server that records its owner, and at most one *owner*, the only server that caches the block and that
//! reads and writes it in the plain file. The first server that touches a block without an owner *claims* it at the home; other servers
//! use *remote access* at the owner. If blocks follow their writers, a server that overwrites whole blocks requests a *handover* from the
//! owner, and the owner reports the new owner to the home.
//!
//! Never: a remote access that is forwarded to a third server; a home that waits. Always: an ownership has a number, and only a message
//! with that number ends or transfers it.

use std::ops::Range;

use pario_core::{Fault, InodeId, LocalOffset, ObjectId, ServerIndex};
use pario_sys::MemoryPiece;

use crate::error::StoreError;

/// Claim of blocks that all have the same home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The claiming server.
    pub server: ServerIndex,
    /// The file.
    pub inode: InodeId,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Each block, with the number of an ownership that the server gave back without confirmation by the home; 0: none.
    pub blocks: Vec<(u64, u64)>,
}

/// Distance of two numbers granted by a home. A handover takes the next number without the home.
pub const NUMBERS_PER_GRANT: u64 = 1 << 32;

/// Ownership of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its owner.
    pub owner: ServerIndex,
    /// The number of this ownership; each number is granted once.
    pub number: u64,
}

impl Grant {
    /// Whether a message of `server` about ownership `number` refers to this ownership, or to one handed over from it that this home has
    /// not recorded yet.
    #[must_use]
    pub fn is_before(&self, server: ServerIndex, number: u64) -> bool {
        let same = self.number / NUMBERS_PER_GRANT == number / NUMBERS_PER_GRANT;
        same && (self.number < number || (self.number == number && self.owner == server))
    }
}

/// Blocks that their owner gives up, with the ownership numbers. Their dirty bytes are in the plain file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveBack {
    /// The former owner.
    pub server: ServerIndex,
    /// The file.
    pub inode: InodeId,
    /// Block and number of the ownership.
    pub blocks: Vec<(u64, u64)>,
}

/// Report to a home: blocks that their owner handed over to another server, with the ownership numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandoverReport {
    /// The former owner.
    pub server: ServerIndex,
    /// The new owner.
    pub to: ServerIndex,
    /// The file.
    pub inode: InodeId,
    /// Block and number of the ownership.
    pub blocks: Vec<(u64, u64)>,
}

/// Request of a server that is about to overwrite whole blocks and wants to own them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handover {
    /// The requesting server.
    pub to: ServerIndex,
    /// Where the first block begins.
    pub first: RemoteAccess,
    /// Number of contiguous blocks.
    pub blocks: u32,
    /// Number of syncs of the file begun at the requesting server.
    pub syncs: u64,
    /// Sum of the blocks' ownership numbers as known to the requester. Numbers only grow: the owner rejects the request if its own sum
    /// differs (stale or duplicated message).
    pub number_sum: u64,
}

/// The sum of ownership numbers: see [`Handover::number_sum`].
#[must_use]
pub fn number_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::wrapping_add)
}

/// Reply of an owner to a handover request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandoverReply {
    /// The blocks belong to the requester, under these ownership numbers. Their old bytes are discarded.
    Granted(Vec<u64>),
    /// This server does not own all of them.
    NotMine,
    /// The file was truncated since: the write is too late, and no reader can see it.
    TooLate,
}

/// An access to blocks at their owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAccess {
    /// The file, and its generation.
    pub object: ObjectId,
    /// Where the access begins.
    pub at: LocalOffset,
    /// True: the home has just named the owner. False: the owner is remembered from an earlier answer.
    pub home_confirmed: bool,
}

/// Reply of an owner to a multi-block atomic read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicReadReply {
    /// The read was atomic; the sum of the blocks' versions, which changes as soon as one of them is written or leaves.
    Found(u64),
    /// The server is not the owner.
    NotMine,
    /// One of the blocks is being written.
    Busy,
}

/// Requests that a store serves for the other servers of a file cache, and for clients of blocks with dynamic placement.
pub trait PeerService {
    /// Block size of a file with dynamic placement, in bytes; an access may have to wait for another server. `None`: fixed placement.
    fn block_bytes(&self, inode: InodeId) -> Option<u64>;

    /// Whether this server owns all blocks of a range now.
    fn owns_range(&self, inode: InodeId, range: Range<u64>) -> bool;

    /// The owners of these blocks; blocks without an owner become the claimant's. Never waits.
    fn claim(&self, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// Ends these ownerships; unknown numbers are ignored. Never waits.
    fn give_back(&self, back: &GiveBack);

    /// Records the new owner of these blocks, each under the next number; reports older than the recorded ownership are ignored. Never
    /// waits.
    fn report_handover(&self, pass: &HandoverReport);

    /// Hands blocks over to a server that overwrites them, if this server owns them all: calls `answer` once, then reports to their
    /// homes. Waits for local accesses in progress, and for no server that may wait for this one.
    fn hand_over(&self, take: Handover, answer: &mut dyn FnMut(HandoverReply)) -> Result<(), StoreError>;

    /// Fills `target` if this server owns all of its blocks, else returns false. Never waits for a server that may wait for this one.
    fn remote_read(&self, visit: RemoteAccess, target: &mut [u8]) -> Result<bool, StoreError>;

    /// Like [`PeerService::remote_read`], but atomic over all blocks; reports a block in use instead of waiting for it.
    fn remote_read_atomic(
        &self,
        visit: RemoteAccess,
        target: &mut [u8],
    ) -> Result<AtomicReadReply, StoreError>;

    /// Whether the versions of the blocks of this range still have that sum. Never waits.
    fn is_unchanged(&self, visit: RemoteAccess, bytes: u64, stamp: u64) -> bool;

    /// Fills `target` for a client in one atomic read, for any owners; false: too many concurrent changes. Other writers of these bytes
    /// must use [`PeerService::write_atomic`].
    fn read_atomic(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, StoreError>;

    /// Overwrites whole blocks for a client, atomically: atomic readers and other atomic writes see all of it or nothing.
    fn write_atomic(
        &self,
        object: ObjectId,
        at: LocalOffset,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<(), StoreError>;

    /// Writes the pieces if this server owns all of their blocks, else returns false.
    fn remote_write(&self, visit: RemoteAccess, pieces: &[MemoryPiece<'_>]) -> Result<bool, StoreError>;

    /// File length as known here (with dynamic placement, an object's length does not imply it). `None`: fixed placement.
    fn file_length(&self, inode: InodeId) -> Option<u64>;
}

/// Waits for the answer of another server.
pub type PendingAnswer<'a, T> = Box<dyn FnOnce() -> Result<T, Fault> + 'a>;

/// Connection of a store to the stores of the other servers.
pub trait PeerServers: Send + Sync + std::fmt::Debug {
    /// Sends a claim to a home: see [`PeerService::claim`].
    fn claim(&self, home: ServerIndex, claim: &Claim) -> Result<Vec<Grant>, Fault>;

    /// Reports to a home: see [`PeerService::give_back`].
    fn give_back(&self, home: ServerIndex, back: &GiveBack) -> Result<(), Fault>;

    /// Reports to a home: see [`PeerService::report_handover`].
    fn report_handover(&self, home: ServerIndex, pass: &HandoverReport) -> Result<(), Fault>;

    /// Requests blocks from their owner: see [`PeerService::hand_over`]. Several requests may be sent before the first answer is awaited.
    fn request_handover(
        &self,
        owner: ServerIndex,
        take: Handover,
    ) -> Result<PendingAnswer<'_, HandoverReply>, Fault>;

    /// Requests bytes from an owner: see [`PeerService::remote_read`]. Several requests may be sent before the first answer is awaited.
    fn read<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, bool>, Fault>;

    /// Atomic variant of `read`: see [`PeerService::remote_read_atomic`].
    fn read_atomic<'a>(
        &'a self,
        owner: ServerIndex,
        visit: RemoteAccess,
        target: &'a mut [u8],
    ) -> Result<PendingAnswer<'a, AtomicReadReply>, Fault>;

    /// Asks an owner: see [`PeerService::is_unchanged`].
    fn is_still(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        bytes: u64,
        stamp: u64,
    ) -> Result<PendingAnswer<'_, bool>, Fault>;

    /// Writes at an owner: see [`PeerService::remote_write`].
    fn write(
        &self,
        owner: ServerIndex,
        visit: RemoteAccess,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<bool, Fault>;

    /// The server's name for messages to users.
    fn describe(&self, server: ServerIndex) -> String;
}
