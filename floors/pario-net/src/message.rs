//! Every message of the wire, one enum per direction. Bytes: `docs/formats/wire.md`.
//!
//! A [`Request`] goes from a client (or from the manager to its peers) to a server and is answered by exactly one [`Reply`] or a
//! [`Fault`]; a [`Notice`] goes from a server to a client at any time and has no reply.
//!
//! Never: file data inside a message; it travels separately, after the body. Always: tags are never reused.

mod lock;
mod names;

pub use self::lock::{
    FoundLock, LockMode, LockShape, LockSpace, LockSpec, LockWaitLimit, PointerId, PointerMove,
};
pub use self::names::{At, Creator, NameReply, NameRequest, OpenHow, XattrHow};

use pario_core::{
    FileAttr, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex, SessionId, Space, encode_enum,
    encode_struct,
};

/// Behaviour of a server when the connection that it is bound to ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// It continues, and is no longer bound.
    Free {},
    /// It flushes all data and ends.
    End {},
    /// It ends and removes all stored data.
    Destroy {},
}
encode_enum!(Binding { 1 => Free {}, 2 => End {}, 3 => Destroy {} });

/// Purpose of a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// Reading.
    Read {},
    /// Reading and writing.
    Write {},
    /// Writing concurrently with other members of a group, which will request the file too: the write phase from the start.
    WriteInGroup {},
}
encode_enum!(Want { 1 => Read {}, 2 => Write {}, 3 => WriteInGroup {} });

/// The phase of a file for one client: the operations allowed without a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Only this client uses the file: write behind, write directly, read directly, cache.
    Exclusive {},
    /// Many writers: each may write behind through its outbox.
    Write {},
    /// Many readers: each may read directly, read ahead, cache.
    Read {},
    /// Concurrent readers and writers: a write returns when the servers have it; no caching.
    Mixed {},
}
encode_enum!(Phase { 1 => Exclusive {}, 2 => Write {}, 3 => Read {}, 4 => Mixed {} });

/// A permission to use a file in a phase. Identified by its number; the home hands out each number once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The file.
    pub inode: InodeId,
    /// Number of the lease.
    pub number: u64,
    /// The phase granted.
    pub phase: Phase,
}
encode_struct!(Lease { inode, number, phase });

/// A range of a view's stream, with the layout of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewStream {
    /// The view's number in this session; 0 is the file's own bytes.
    pub view: u32,
    /// Displacement added to the view, in bytes.
    pub displacement: u64,
    /// The file's layout.
    pub layout: Layout,
    /// Where the range starts.
    pub offset: u64,
    /// How long it is, on all servers together.
    pub bytes: u64,
}
encode_struct!(ViewStream { view, displacement, layout, offset, bytes });

/// Requests to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A liveness check. Answer: `Done`.
    Ping {},
    /// An operation on names. `Open` also counts this session as a user of the inode until `Close`. Answer: `Name`.
    Name {
        /// The operation.
        request: NameRequest,
    },
    /// Ends one use of an inode by this session. `end` is the file length that its writes prove, if it wrote. Answer: `Done`.
    Close {
        /// The file.
        inode: InodeId,
        /// See above.
        end: Option<u64>,
    },
    /// A lease on a file. May wait until another living client returns its own. Answer: `Granted`.
    Acquire {
        /// The file.
        inode: InodeId,
        /// Purpose.
        want: Want,
        /// Lease group: sessions with the same number count as one user of the file; 0: no group.
        party: u64,
    },
    /// A lease, if no recall is needed for it. Answer: `Granted` or `NotNow`, immediately.
    AcquireFree {
        /// The file.
        inode: InodeId,
        /// Purpose.
        want: Want,
        /// See `Acquire`.
        party: u64,
    },
    /// A lease returned after a recall or voluntarily; all writes under it are in the stores. Answer: `Done`.
    Return {
        /// The file.
        inode: InodeId,
        /// Number of the lease.
        number: u64,
        /// The file length that writes under it prove, if there were any.
        end: Option<u64>,
    },
    /// This session still uses an inode: reported to a restarted manager, which has lost that. Answer: `Done`.
    Use {
        /// The file.
        inode: InodeId,
    },
    /// A write in the mixed phase extended the file to at least this length. Answer: `Done`.
    Extend {
        /// The file.
        inode: InodeId,
        /// Its length.
        end: u64,
    },
    /// Sets a file's length. Answer: `Length`.
    SetLength {
        /// The file.
        inode: InodeId,
        /// Number of bytes.
        bytes: u64,
    },
    /// Makes names and inodes that were acknowledged durable; `end` as in `Close`, without ending the use. Answer: `Done`.
    SyncNames {
        /// The file with the reported length, if any.
        inode: Option<InodeId>,
        /// Its length as known to this client.
        end: Option<u64>,
    },
    /// A lock on a file. May wait as long as another living client holds it. Answer: `Locked`.
    Lock {
        /// The file.
        inode: InodeId,
        /// The requested lock.
        wish: LockSpec,
    },
    /// A lock returned after a recall or voluntarily, or all of it but a range. Answer: `Done`.
    Unlock {
        /// The file.
        inode: InodeId,
        /// Number of the lock.
        number: u64,
        /// First byte that is kept, and one past the last.
        keep: Option<(u64, u64)>,
    },
    /// A recalled lock is in use, and is returned when it is not; the unused part is released now. Answer: `Done`.
    LockBusy {
        /// The file.
        inode: InodeId,
        /// Number of the lock.
        number: u64,
        /// First byte in use, and one past the last; `None`: all of it.
        keep: Option<(u64, u64)>,
    },
    /// Cancels a lock request; the request is answered with a fault, unless it was granted before. Answer: `Done`.
    CancelLock {
        /// Number of the lock request.
        request_number: u64,
    },
    /// A lock that such a request would wait for. Answer: `Found`.
    FindLock {
        /// The file.
        inode: InodeId,
        /// The lock request.
        wish: LockSpec,
    },
    /// A group's shared pointer, as memory. Answer: `Pointer` with one descriptor on the same node, else `NotLent`.
    SharePointer {
        /// The pointer.
        pointer: PointerId,
    },
    /// Moves a group's shared pointer. Answer: `Position`, the previous one.
    MovePointer {
        /// The pointer.
        pointer: PointerId,
        /// The operation.
        how: PointerMove,
    },

    /// Bytes of an object. Answer: `Data` with as many bytes as there are before the object's end.
    Read {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// Maximum number.
        bytes: u32,
    },
    /// Bytes for an object, after the body. Answer: `Done`, when the store has them.
    Write {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
    },
    /// Defines a view at this server under a number of this session; its bytes follow the body. Defining it again with the same bytes has
    /// no effect. Answer: `Done`.
    DefineView {
        /// The number; not 0.
        view: u32,
    },
    /// Removes a view of this session: all records written through it are drained. Answer: `Done`.
    ForgetView {
        /// Its number.
        view: u32,
    },
    /// This server's part of a range of a view's stream. Answer: `Data` with all of it, in stream order; zeros where no byte was written.
    ReadStream {
        /// The object.
        object: ObjectId,
        /// View, layout and stream range.
        stream: ViewStream,
    },
    /// This server's part of a range of a view's stream, in stream order, after the body. Answer: `Done`, when the store has it.
    WriteStream {
        /// The object.
        object: ObjectId,
        /// View, layout and stream range.
        stream: ViewStream,
    },
    /// The object's descriptor, for the direct path on the same node. Answer: `Lent` with one descriptor, or `NotLent`.
    Lend {
        /// The object.
        object: ObjectId,
        /// For writing, too; creates the object.
        write: bool,
    },
    /// Puts an object on stable storage. Answer: `Done`.
    SyncObject {
        /// The object.
        object: ObjectId,
    },
    /// Flushes the server's own cache of an object to the store. Answer: `Done`.
    FlushObject {
        /// The object.
        object: ObjectId,
    },
    /// Errors of this session's records of a file since its last query. Answer: `Errors`.
    CollectErrors {
        /// The file.
        inode: InodeId,
    },
    /// Offers an outbox, with one descriptor. Answer: `OutboxAttached` with two descriptors, cursor and doorbell.
    OfferOutbox {
        /// Position that the server starts from.
        from: u64,
    },

    /// Manager to peer: truncates an object and gives it a new generation. Answer: `Done`.
    Truncate {
        /// The file.
        inode: InodeId,
        /// Generation that the object has.
        from: Generation,
        /// Generation that it gets.
        to: Generation,
        /// Length of the object at most.
        bytes: u64,
    },
    /// Manager to peer: removes an object. Answer: `Done`.
    RemoveObject {
        /// The object.
        object: ObjectId,
    },
    /// An object's length. Answer: `Length`, or `NoObject`.
    Measure {
        /// The object.
        object: ObjectId,
    },
    /// Manager to peer: answered when all records that `session` had committed to its outbox are in the store. Answer: `Done`.
    Drain {
        /// The session to drain.
        session: SessionId,
    },
    /// Server to server: queries the owners of these blocks at their home; unowned blocks become the requester's. Answer: `Claimed`.
    Claim {
        /// The requester.
        server: ServerIndex,
        /// The file.
        inode: InodeId,
        /// Bytes of a block.
        block_bytes: u64,
        /// The blocks, each with the version of an ownership that the requester returned without receiving a reply; 0: none.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server: blocks returned by their owner, each with the version of the ownership. Answer: `Done`.
    GiveBack {
        /// The previous owner.
        server: ServerIndex,
        /// The file.
        inode: InodeId,
        /// Block and version.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server (remote access): reads bytes of blocks that the peer owns. Answer: `Data` with all of them, or `NotOwner`; for an
    /// atomic read: `AtomicData` with all of them, `NotOwner`, or `NotNow`.
    VisitRead {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// Number of bytes.
        bytes: u32,
        /// The requester learned this owner from the home just now.
        told: bool,
        /// An atomic read over all blocks.
        atomic: bool,
    },
    /// Server to server: whether blocks that the peer owns are unchanged since they were read. Answer: `Done`, or `NotNow`.
    VisitUnchanged {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// Number of bytes.
        bytes: u32,
        /// Sum of their versions, as they were read.
        stamp: u64,
    },
    /// An atomic read of a file with movable blocks. Answer: `Data`, or `NotNow`: use a lock.
    ReadAtomic {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// Number of bytes.
        bytes: u32,
    },
    /// Bytes for an object, after the body: all bytes of one call, so that readers see all of them or none. Answer: `Done`.
    WriteAtomic {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
    },
    /// Server to server (remote access): bytes for blocks that the peer owns, after the body. Answer: `Done`, or `NotOwner`.
    VisitWrite {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// As in `VisitRead`.
        told: bool,
    },
    /// Server to server: blocks handed over by their owner to another server, each with the version of the ownership. Answer: `Done`.
    ReportHandover {
        /// The previous owner.
        server: ServerIndex,
        /// The new owner.
        to: ServerIndex,
        /// The file.
        inode: InodeId,
        /// Block and version.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server: handover of whole blocks that the peer owns and the requester is about to overwrite. Answer: `Claimed`,
    /// `NotOwner`, or `Done` if the file was truncated since.
    VisitHandover {
        /// The object.
        object: ObjectId,
        /// Offset of the first.
        at: LocalOffset,
        /// Number of blocks.
        blocks: u32,
        /// The requester, which becomes the owner.
        to: ServerIndex,
        /// Number of syncs of the file begun there.
        syncs: u64,
        /// Sum of the blocks' ownership versions as known to the requester; a different sum at the owner means a stale request.
        number_sum: u64,
        /// As in `VisitRead`.
        told: bool,
    },
    /// One page of the objects of a store, in order. Answer: `Objects`.
    ListObjects {
        /// Start after this one.
        after: Option<ObjectId>,
        /// Maximum number.
        limit: u32,
    },
    /// Objects of a page that are shorter than they were once written. Answer: `Lengths`.
    CheckLengths {
        /// Start after this one.
        after: Option<ObjectId>,
        /// Maximum number.
        limit: u32,
    },
    /// Compares stored bytes of an object with their checksums. Answer: `Verified`.
    Verify {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// How many bytes, at most [`VERIFY_BYTES_MAX`].
        bytes: u64,
    },
    /// Ranges of an object that may contain data. Answer: `DataParts`.
    FindData {
        /// The object.
        object: ObjectId,
        /// Offset.
        at: LocalOffset,
        /// Number of bytes.
        bytes: u64,
    },
    /// Bytes of the store used by the objects of a page, without holes. Answer: `Stored`.
    StoredBytes {
        /// Start after this one.
        after: Option<ObjectId>,
        /// Maximum number.
        limit: u32,
    },
    /// Bytes that a client has written and read through lent descriptors since its last report. Answer: `Done`, for which the client does
    /// not wait.
    CountDirect {
        /// Bytes written.
        written: u64,
        /// Bytes read.
        read: u64,
    },
    /// Removes an object without an inode (doctor, which checks that). Answer: `Done`.
    RemoveOrphan {
        /// The object.
        object: ObjectId,
    },
    /// Capacity of this server's store. Answer: `Space`.
    Space {},
    /// All counters of the server, as JSON text. Answer: `Status`.
    Status {},
    /// Every inode with its links, for doctor: a page in order of inode numbers. Answer: `Inodes`.
    ListInodes {
        /// Start after this one.
        after: InodeId,
        /// Maximum number.
        limit: u32,
    },
    /// Names files of the second copy that this server keeps. Answer: `CopyFiles`.
    CopyFiles {},
    /// Manager to peer: bytes for a names file, after the body; the file is truncated after them. Answer: `Done`.
    CopyWrite {
        /// Which file.
        number: u64,
        /// Offset.
        at: u64,
        /// 0: more follows; 1: on stable storage; 2: that, and files of lower numbers are removed.
        finish: u8,
    },
    /// Bytes of a names file. Answer: `Data`, up to the file's end.
    CopyRead {
        /// Which file.
        number: u64,
        /// Offset.
        at: u64,
        /// Maximum number.
        bytes: u32,
    },
    /// Moves an object without an inode into the server's `lost+found` (doctor, which checks that). Answer: `SetAside`.
    SetAside {
        /// The object.
        object: ObjectId,
    },
    /// Truncates bytes that a failed write left beyond the end of its file (doctor, which checks that). Answer: `Done`.
    CutLeftover {
        /// The object.
        object: ObjectId,
        /// Length of the object at most.
        bytes: u64,
    },
    /// Flushes all data and ends the server. Answer: `Done`, then the connection closes.
    Shutdown {
        /// Whether the server also removes all that it stored.
        destroy: bool,
    },
    /// An operation that only the server's kind of store has, in the bytes after the body. Answer: `Data` with its result.
    StoreCall {},
    /// A peer was restarted with another address: later connections to it go there. Answer: `Done`.
    AddressChanged {
        /// The server.
        server: ServerIndex,
        /// Its TCP address, as text.
        tcp: String,
    },
    /// Binds the server to this connection, which ends with the process that holds it. Answer: `Done`.
    Bind {
        /// Behaviour then.
        how: Binding,
    },
}
encode_enum!(Request {
    1 => Ping {},
    2 => Name { request },
    3 => Close { inode, end },
    4 => Acquire { inode, want, party },
    5 => Return { inode, number, end },
    6 => SetLength { inode, bytes },
    7 => SyncNames { inode, end },
    8 => Extend { inode, end },
    9 => Use { inode },
    10 => Lock { inode, wish },
    11 => Unlock { inode, number, keep },
    12 => LockBusy { inode, number, keep },
    13 => CancelLock { request_number },
    14 => FindLock { inode, wish },
    15 => SharePointer { pointer },
    42 => MovePointer { pointer, how },
    16 => Read { object, at, bytes },
    17 => Write { object, at },
    18 => Lend { object, write },
    19 => SyncObject { object },
    20 => FlushObject { object },
    21 => CollectErrors { inode },
    22 => OfferOutbox { from },
    23 => DefineView { view },
    24 => ForgetView { view },
    25 => ReadStream { object, stream },
    26 => WriteStream { object, stream },
    32 => Truncate { inode, from, to, bytes },
    33 => RemoveObject { object },
    34 => Measure { object },
    35 => Drain { session },
    36 => ListObjects { after, limit },
    37 => RemoveOrphan { object },
    38 => Space {},
    39 => Status {},
    40 => ListInodes { after, limit },
    41 => Shutdown { destroy },
    43 => Claim { server, inode, block_bytes, blocks },
    44 => GiveBack { server, inode, blocks },
    45 => VisitRead { object, at, bytes, told, atomic },
    46 => VisitWrite { object, at, told },
    47 => ReportHandover { server, to, inode, blocks },
    48 => VisitHandover { object, at, blocks, to, syncs, number_sum, told },
    49 => AcquireFree { inode, want, party },
    50 => VisitUnchanged { object, at, bytes, stamp },
    51 => ReadAtomic { object, at, bytes },
    52 => WriteAtomic { object, at },
    65 => CopyFiles {},
    66 => CopyWrite { number, at, finish },
    67 => CopyRead { number, at, bytes },
    68 => SetAside { object },
    69 => CutLeftover { object, bytes },
    70 => AddressChanged { server, tcp },
    71 => Bind { how },
    80 => CheckLengths { after, limit },
    81 => Verify { object, at, bytes },
    95 => FindData { object, at, bytes },
    96 => CountDirect { written, read },
    97 => StoredBytes { after, limit },
    120 => StoreCall {},
});

/// Maximum number of bytes compared by one [`Request::Verify`]: more would look like a hanging server.
pub const VERIFY_BYTES_MAX: u64 = 64 << 20;

/// Parts in one [`Reply::DataParts`] at most.
pub const DATA_PARTS_MAX: usize = 4096;

/// A server's reply to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The request failed.
    Failed {
        /// The fault.
        fault: pario_core::Fault,
    },
    /// The request succeeded.
    Done {},
    /// See [`NameReply`].
    Name {
        /// The result.
        reply: NameReply,
    },
    /// A lease, with the file's attributes as they are now.
    Granted {
        /// The lease.
        lease: Lease,
        /// The attributes.
        attr: FileAttr,
    },
    /// A length and the generation it belongs to.
    Length {
        /// Number of bytes.
        bytes: u64,
        /// Of the file.
        generation: Generation,
    },
    /// Other clients hold or wait for the file.
    NotNow {},
    /// There is no such object: every byte of it is zero.
    NoObject {},
    /// File data follows the body.
    Data {},
    /// With the descriptor.
    Lent {},
    /// This store lends no descriptors: read and write by message.
    NotLent {},
    /// Asynchronous errors, oldest first.
    Errors {
        /// The faults.
        faults: Vec<pario_core::Fault>,
    },
    /// With the descriptors of the cursor segment and the doorbell.
    OutboxAttached {},
    /// A page of objects with their lengths.
    Objects {
        /// The objects.
        objects: Vec<(ObjectId, u64)>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// Capacity.
    Space {
        /// The capacity.
        space: Space,
    },
    /// JSON text.
    Status {
        /// The text.
        json: String,
    },
    /// A page of inodes.
    Inodes {
        /// The inodes.
        attrs: Vec<FileAttr>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// A lock. The client locks and unlocks within it without a message, until it is recalled.
    Locked {
        /// Its number.
        number: u64,
        /// First byte it covers; for a requested shape, of that shape.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// A conflicting lock, if there is one.
    Found {
        /// The lock, if any.
        lock: Option<FoundLock>,
    },
    /// A shared pointer, with its memory.
    Pointer {},
    /// Previous position of a shared pointer.
    Position {
        /// In elementary types.
        at: u64,
    },
    /// Owners of blocks, in the order of the request.
    Claimed {
        /// Owner and version of the ownership.
        grants: Vec<(ServerIndex, u64)>,
    },
    /// The server does not own the blocks, or no longer: query their home.
    NotOwner {},
    /// Bytes of an atomic read, after the body.
    AtomicData {
        /// Sum of the blocks' versions.
        stamp: u64,
    },
    /// With the descriptor, followed by that of its checksum table.
    LentSummed {},
    /// Lengths of a page of objects, compared with the lengths written.
    Lengths {
        /// Truncated objects: length, and length written.
        cut: Vec<(ObjectId, (u64, u64))>,
        /// Objects of the page.
        examined: u64,
        /// Number of objects with a compared length.
        compared: u64,
        /// The last one, if there are more after it.
        more: Option<ObjectId>,
    },
    /// Result of a comparison with checksums, in granules.
    Verified {
        /// Whether the store keeps checksums.
        kept: bool,
        /// Bytes of a granule.
        granule: u64,
        /// Intact granules.
        right: u64,
        /// Granules without a checksum.
        unknown: u64,
        /// Offsets of damaged granules in the object.
        damaged: Vec<u64>,
    },
    /// Data of an object, at most [`DATA_PARTS_MAX`] parts.
    DataParts {
        /// Start and end of each in the object, in order; holes between them.
        parts: Vec<(u64, u64)>,
        /// End of the searched range.
        searched_to: u64,
    },
    /// Bytes used by a page of objects.
    Stored {
        /// Bytes of the store.
        bytes: u64,
        /// The last object, if there are more after it.
        more: Option<ObjectId>,
    },
    /// Length of a whole file, from a server with a part that does not determine it.
    FileLength {
        /// Number of bytes.
        bytes: u64,
    },
    /// Names files: number and length.
    CopyFiles {
        /// The files.
        files: Vec<(u64, u64)>,
    },
    /// An object was moved.
    SetAside {
        /// To this path of the server's machine.
        path: String,
    },
}
encode_enum!(Reply {
    0 => Failed { fault },
    1 => Done {},
    2 => Name { reply },
    3 => Granted { lease, attr },
    4 => Length { bytes, generation },
    5 => NoObject {},
    6 => Data {},
    7 => Lent {},
    8 => NotLent {},
    9 => Errors { faults },
    10 => OutboxAttached {},
    11 => Objects { objects, more },
    12 => Space { space },
    13 => Status { json },
    14 => Inodes { attrs, more },
    15 => Locked { number, start, end },
    16 => Found { lock },
    17 => Pointer {},
    18 => Position { at },
    19 => Claimed { grants },
    20 => NotOwner {},
    21 => FileLength { bytes },
    22 => NotNow {},
    23 => AtomicData { stamp },
    33 => CopyFiles { files },
    34 => SetAside { path },
    42 => LentSummed {},
    43 => Lengths { cut, examined, compared, more },
    44 => Verified { kept, granule, right, unknown, damaged },
    52 => DataParts { parts, searched_to },
    53 => Stored { bytes, more },
});

/// Unsolicited messages of a server to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Recall of a lease: another client waits for the file.
    Recall {
        /// The file.
        inode: InodeId,
        /// Number of the lease.
        number: u64,
    },
    /// The request waits; names the holder. Sent once a second, so that a wait is never silent.
    Waiting {
        /// Which request.
        request: u64,
        /// Description of the holder.
        on: String,
    },
    /// The server is shutting down; do not reconnect.
    Goodbye {
        /// The reporting server.
        server: ServerIndex,
    },
    /// The last name of a file that this session uses was removed: a client that only caches the open file closes it.
    Unlinked {
        /// The file.
        inode: InodeId,
    },
    /// Recall of a lock, or of the part between these bytes: another client waits for it.
    RecallLock {
        /// The file.
        inode: InodeId,
        /// Number of the lock.
        number: u64,
        /// First byte requested.
        start: u64,
        /// One past the last.
        end: u64,
    },
}
encode_enum!(Notice {
    1 => Recall { inode, number },
    2 => Waiting { request, on },
    3 => Goodbye { server },
    4 => Unlinked { inode },
    5 => RecallLock { inode, number, start, end },
});

#[cfg(test)]
mod tests {
    use super::*;
    use pario_core::codec;

    #[test]
    fn messages_about_data_have_these_bytes() {
        let object = ObjectId { inode: InodeId(7), generation: Generation(1) };
        let request = Request::FindData { object, at: LocalOffset(3), bytes: 5 };
        let bytes = codec::to_bytes(&request);
        let mut expected = vec![95];
        expected.extend(7u64.to_le_bytes());
        expected.extend(1u32.to_le_bytes());
        expected.extend(3u64.to_le_bytes());
        expected.extend(5u64.to_le_bytes());
        assert_eq!(bytes, expected);
        assert_eq!(codec::from_bytes::<Request>(&bytes).unwrap(), request);
        let bytes = codec::to_bytes(&Request::CountDirect { written: 1, read: 2 });
        assert_eq!(bytes, [96, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let bytes = codec::to_bytes(&Request::StoredBytes { after: None, limit: 3 });
        assert_eq!(bytes, [97, 0, 3, 0, 0, 0]);
        assert_eq!(codec::to_bytes(&Request::StoreCall {}), [120]);
        let bytes = codec::to_bytes(&Reply::Stored { bytes: 5, more: None });
        assert_eq!(bytes, [53, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        let reply = Reply::DataParts { parts: vec![(1, 2)], searched_to: 9 };
        let bytes = codec::to_bytes(&reply);
        let mut expected = vec![52, 1, 0, 0, 0];
        [1u64, 2, 9].iter().for_each(|number| expected.extend(number.to_le_bytes()));
        assert_eq!(bytes, expected);
        assert_eq!(codec::from_bytes::<Reply>(&bytes).unwrap(), reply);
    }
}
