//! Every message of the wire, one enum per direction. Bytes: `docs/formats/wire.md`.
//!
//! A [`Request`] goes from a client (or from the manager to its peers) to a server and is answered by exactly one [`Reply`]
//! or a [`Fault`]; a [`Notice`] goes from a server to a client at any time and has no answer of its own.
//!
//! Never: file data inside a message; it travels apart, behind the body. Always: tags are never reused.

mod lock;

pub use self::lock::{
    FoundLock, LockAsk, LockMode, LockPatience, LockShape, LockSpace, PointerId, PointerMove,
};

use pario_core::{
    AttrChange, DirEntry, FileAttr, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex,
    SessionId, Space, Striping, encode_enum, encode_struct,
};

/// Where a path starts and how it goes on. `path` may be empty (the base itself) and may hold slashes and symbolic links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Directory that a relative path starts from; the root for absolute ones.
    pub base: InodeId,
    /// The rest.
    pub path: Vec<u8>,
}
encode_struct!(At { base, path });

impl At {
    /// A path from the partition's root.
    pub fn root(path: impl Into<Vec<u8>>) -> At {
        At { base: InodeId::ROOT, path: path.into() }
    }

    /// An inode itself.
    #[must_use]
    pub fn inode(inode: InodeId) -> At {
        At { base: inode, path: Vec::new() }
    }
}

/// Who creates a name and with which permission bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creator {
    /// Permission bits, the process's umask already applied.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
encode_struct!(Creator { mode, uid, gid });

/// What an open may do besides finding the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenHow {
    /// Create it if it is missing.
    pub create: bool,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// The handle will write.
    pub write: bool,
}
encode_struct!(OpenHow { create, exclusive, truncate, write });

/// Operations on names and attributes, answered by the manager alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameRequest {
    /// Find, or create, a file. Follows symbolic links unless `exclusive`. Answer: `Attr`.
    Open {
        /// Where.
        at: At,
        /// How.
        how: OpenHow,
        /// For a file that is created.
        creator: Creator,
        /// For a file that is created.
        striping: Striping,
    },
    /// Attributes. Answer: `Attr`.
    Stat {
        /// Where.
        at: At,
        /// Follow a symbolic link at the end.
        follow: bool,
    },
    /// One page of a directory in the order of names' bytes. Answer: `Entries`.
    List {
        /// Where.
        at: At,
        /// Start behind this name.
        after: Option<Vec<u8>>,
        /// At most so many.
        limit: u32,
    },
    /// Make a directory. Answer: `Attr`.
    MakeDir {
        /// Where.
        at: At,
        /// Whose.
        creator: Creator,
    },
    /// Make a symbolic link. Answer: `Attr`.
    Symlink {
        /// Where.
        at: At,
        /// What it says.
        target: Vec<u8>,
        /// Whose.
        creator: Creator,
    },
    /// What a symbolic link says. Answer: `Target`.
    ReadLink {
        /// Where.
        at: At,
    },
    /// Remove a file or symbolic link. Answer: `Done`.
    Remove {
        /// Where.
        at: At,
    },
    /// Remove an empty directory. Answer: `Done`.
    RemoveDir {
        /// Where.
        at: At,
    },
    /// Give a file or directory another name; atomic, replacing what the new name led to. Answer: `Done`.
    Rename {
        /// From where.
        from: At,
        /// To where.
        to: At,
        /// Whether something at `to` may be replaced.
        replace: bool,
    },
    /// Change attributes. Answer: `Attr`.
    SetAttr {
        /// Where.
        at: At,
        /// Follow a symbolic link at the end.
        follow: bool,
        /// To what.
        change: AttrChange,
    },
}
encode_enum!(NameRequest {
    1 => Open { at, how, creator, striping },
    2 => Stat { at, follow },
    3 => List { at, after, limit },
    4 => MakeDir { at, creator },
    5 => Symlink { at, target, creator },
    6 => ReadLink { at },
    7 => Remove { at },
    8 => RemoveDir { at },
    9 => Rename { from, to, replace },
    10 => SetAttr { at, follow, change },
});

/// Answers to [`NameRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameReply {
    /// It is done.
    Done {},
    /// Attributes of what was found, made or changed.
    Attr {
        /// They.
        attr: FileAttr,
    },
    /// A page of a directory.
    Entries {
        /// The entries.
        entries: Vec<DirEntry>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// A symbolic link's target.
    Target {
        /// It.
        target: Vec<u8>,
    },
}
encode_enum!(NameReply {
    1 => Done {},
    2 => Attr { attr },
    3 => Entries { entries, more },
    4 => Target { target },
});

/// What a lease is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Want {
    /// Reading.
    Read {},
    /// Reading and writing.
    Write {},
    /// Writing beside others that are about to ask too, as the members of a group do: the write phase from the start.
    WriteTogether {},
}
encode_enum!(Want { 1 => Read {}, 2 => Write {}, 3 => WriteTogether {} });

/// The phase a file is in for one client: what it may do without asking.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// Only this client uses the file: write behind, write directly, read directly, cache.
    Exclusive {},
    /// Many writers: each may write behind through its outbox.
    Write {},
    /// Many readers: each may read directly, read ahead, cache.
    Read {},
    /// Readers and writers at once: a write returns when the servers have it; nothing is cached.
    Mixed {},
}
encode_enum!(Phase { 1 => Exclusive {}, 2 => Write {}, 3 => Read {}, 4 => Mixed {} });

/// A permission to use a file in a phase. Named by its number; the home hands out each number once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The file.
    pub inode: InodeId,
    /// Which lease.
    pub number: u64,
    /// What it allows.
    pub phase: Phase,
}
encode_struct!(Lease { inode, number, phase });

/// A range of a view's stream, and how its file lies on the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The view's number in this session; 0 is the file's own bytes.
    pub view: u32,
    /// How far behind its place in the file the view is taken to be.
    pub moved: u64,
    /// The file's layout.
    pub layout: Layout,
    /// Where the range starts.
    pub offset: u64,
    /// How long it is, on all servers together.
    pub bytes: u64,
}
encode_struct!(Stream { view, moved, layout, offset, bytes });

/// What a client asks of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A sign of life. Answer: `Done`.
    Ping {},
    /// An operation on names. `Open` also counts this session as a user of the inode until `Close`. Answer: `Name`.
    Name {
        /// It.
        request: NameRequest,
    },
    /// Ends one use of an inode by this session. `end` is the file length that its writes prove, if it wrote. Answer: `Done`.
    Close {
        /// The file.
        inode: InodeId,
        /// See above.
        end: Option<u64>,
    },
    /// A lease on a file. May take as long as another living client needs to give its own back. Answer: `Granted`.
    Acquire {
        /// The file.
        inode: InodeId,
        /// For what.
        want: Want,
        /// Sessions that say the same number are one user of the file; 0: a user of its own.
        party: u64,
    },
    /// A lease, if nobody must give one back for it. Answer: `Granted` or `NotNow`, at once.
    AcquireFree {
        /// The file.
        inode: InodeId,
        /// For what.
        want: Want,
        /// See `Acquire`.
        party: u64,
    },
    /// A lease given back after a recall or by choice; everything written under it is in the stores. Answer: `Done`.
    Return {
        /// The file.
        inode: InodeId,
        /// Which lease.
        number: u64,
        /// The file length that writes under it prove, if there were any.
        end: Option<u64>,
    },
    /// This session still uses an inode: told to a manager that was restarted and does not know. Answer: `Done`.
    Use {
        /// The file.
        inode: InodeId,
    },
    /// A write in the mixed phase made the file at least so long. Answer: `Done`.
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
        /// In bytes.
        bytes: u64,
    },
    /// Makes names and inodes that were acknowledged durable; `end` as in `Close`, without ending the use. Answer: `Done`.
    SyncNames {
        /// The file whose length is told, if one is.
        inode: Option<InodeId>,
        /// Its length as far as this client knows.
        end: Option<u64>,
    },
    /// A lock on a file. May take as long as another living client holds it. Answer: `Locked`.
    Lock {
        /// The file.
        inode: InodeId,
        /// What is wished for.
        wish: LockAsk,
    },
    /// A lock given back after a recall or by choice, or all of it but a range. Answer: `Done`.
    Unlock {
        /// The file.
        inode: InodeId,
        /// Which lock.
        number: u64,
        /// First byte that is kept, and the one behind the last.
        keep: Option<(u64, u64)>,
    },
    /// A lock that was recalled is in use, and comes back when it is not; what of it is not in use is given back. Answer: `Done`.
    LockBusy {
        /// The file.
        inode: InodeId,
        /// Which lock.
        number: u64,
        /// First byte in use, and the one behind the last; all of it if that is not known.
        keep: Option<(u64, u64)>,
    },
    /// A wish for a lock is taken back; it is answered with a fault, unless it was fulfilled before. Answer: `Done`.
    CancelLock {
        /// Which wish.
        ask: u64,
    },
    /// A lock that such a wish would wait for. Answer: `Found`.
    FindLock {
        /// The file.
        inode: InodeId,
        /// The wish.
        wish: LockAsk,
    },
    /// A group's shared pointer, as memory. Answer: `Pointer` with one descriptor on the same node, else `NotLent`.
    SharePointer {
        /// Which.
        pointer: PointerId,
    },
    /// Moves a group's shared pointer. Answer: `Position`, where it was before.
    MovePointer {
        /// Which.
        pointer: PointerId,
        /// How.
        how: PointerMove,
    },

    /// Bytes of an object. Answer: `Data` with as many bytes as there are before the object's end.
    Read {
        /// Of which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
        /// At most so many.
        bytes: u32,
    },
    /// Bytes for an object, behind the body. Answer: `Done`, when the store has them.
    Write {
        /// To which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
    },
    /// Makes a view known to this server under a number of this session's; its bytes come behind the body. Known again with the same
    /// bytes it is no news. Answer: `Done`.
    DefineView {
        /// The number; not 0.
        view: u32,
    },
    /// A view that this session will not use again: all that was written through it is taken. Answer: `Done`.
    ForgetView {
        /// Its number.
        view: u32,
    },
    /// This server's part of a range of a view's stream. Answer: `Data` with all of it, in stream order; zeros where nothing was
    /// written.
    ReadStream {
        /// Of which.
        object: ObjectId,
        /// By which view and layout, and where in its stream.
        stream: Stream,
    },
    /// This server's part of a range of a view's stream, in stream order, behind the body. Answer: `Done`, when the store has it.
    WriteStream {
        /// To which.
        object: ObjectId,
        /// By which view and layout, and where in its stream.
        stream: Stream,
    },
    /// The object's descriptor, for the direct path on the same node. Answer: `Lent` with one descriptor, or `NotLent`.
    Lend {
        /// Of which.
        object: ObjectId,
        /// For writing, too; creates the object.
        write: bool,
    },
    /// Puts an object on stable storage. Answer: `Done`.
    SyncObject {
        /// Which.
        object: ObjectId,
    },
    /// Moves what the server's own cache holds of an object into the store. Answer: `Done`.
    FlushObject {
        /// Which.
        object: ObjectId,
    },
    /// Errors that happened to this session's records of a file since it last asked. Answer: `Errors`.
    TakeErrors {
        /// The file.
        inode: InodeId,
    },
    /// Offers an outbox: one descriptor comes along. Answer: `OutboxTaken` with two descriptors, cursor and doorbell.
    OfferOutbox {
        /// Position that the server starts from.
        from: u64,
    },

    /// Manager to peer: cuts an object and gives it a new generation. Answer: `Done`.
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
        /// Which.
        object: ObjectId,
    },
    /// An object's length. Answer: `Length`, or `NoObject`.
    Measure {
        /// Which.
        object: ObjectId,
    },
    /// Manager to peer: answers when everything that `session` had committed to its outbox is in the store. Answer: `Done`.
    Drain {
        /// Whose.
        session: SessionId,
    },
    /// Server to server: whose these blocks are, at their home; those that are nobody's are the asking server's from now on. Answer:
    /// `Claimed`.
    Claim {
        /// Who asks.
        server: ServerIndex,
        /// Of which file.
        inode: InodeId,
        /// Bytes of a block.
        block_bytes: u64,
        /// Which, each with the number of an ownership that the asking server gave back and heard no answer; 0: there is none.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server: blocks that their owner gives up, each with the number of the ownership. Answer: `Done`.
    GiveBack {
        /// Whose they were.
        server: ServerIndex,
        /// Of which file.
        inode: InodeId,
        /// Block and number.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server: bytes of blocks that the asked server owns. Answer: `Data` with all of them, or `NotMine`; as they are at one
    /// moment: `Moment` with all of them, `NotMine`, or `NotNow`.
    VisitRead {
        /// Of which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
        /// So many.
        bytes: u32,
        /// Their home said just now that it owns them.
        told: bool,
        /// As they are at one moment.
        at_once: bool,
    },
    /// Server to server: whether blocks that the asked server owns have not been written since they were read. Answer: `Done`, or `NotNow`.
    VisitStill {
        /// Of which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
        /// So many.
        bytes: u32,
        /// The sum of their stamps, as they were read.
        stamp: u64,
    },
    /// Bytes of a file whose blocks have no fixed place, as they are at one moment. Answer: `Data`, or `NotNow`: only a lock helps.
    ReadAtOnce {
        /// Of which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
        /// So many.
        bytes: u32,
    },
    /// Bytes for an object, behind the body: all that a call writes, so that readers see all of it or nothing. Answer: `Done`.
    WriteAtOnce {
        /// To which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
    },
    /// Server to server: bytes for blocks that the asked server owns, behind the body. Answer: `Done`, or `NotMine`.
    VisitWrite {
        /// To which.
        object: ObjectId,
        /// From where.
        at: LocalOffset,
        /// As in `VisitRead`.
        told: bool,
    },
    /// Server to server: blocks that their owner passes on to another server, each with the number of the ownership. Answer: `Done`.
    Pass {
        /// Whose they were.
        server: ServerIndex,
        /// Whose they are to be.
        to: ServerIndex,
        /// Of which file.
        inode: InodeId,
        /// Block and number.
        blocks: Vec<(u64, u64)>,
    },
    /// Server to server: whole blocks that the asked server owns are about to be overwritten by the asking one, which wants to own them.
    /// Answer: `Claimed`, `NotMine`, or `Done` if the file was cut since.
    VisitTake {
        /// Of which.
        object: ObjectId,
        /// Where the first begins.
        at: LocalOffset,
        /// How many.
        blocks: u32,
        /// Who asks.
        to: ServerIndex,
        /// How often a sync of the file began there.
        syncs: u64,
        /// The sum of the numbers of their ownerships, as the asking server knows them: with another one it comes too late.
        of: u64,
        /// As in `VisitRead`.
        told: bool,
    },
    /// One page of the objects of a store, in order. Answer: `Objects`.
    ListObjects {
        /// Start behind this one.
        after: Option<ObjectId>,
        /// At most so many.
        limit: u32,
    },
    /// Removes an object that no inode knows (doctor, which makes sure of that). Answer: `Done`.
    RemoveOrphan {
        /// Which.
        object: ObjectId,
    },
    /// Room of this server's store. Answer: `Space`.
    Space {},
    /// Everything the server counts, as JSON text. Answer: `Status`.
    Status {},
    /// Every inode with its links, for doctor: a page in order of inode numbers. Answer: `Inodes`.
    ListInodes {
        /// Start behind this one.
        after: InodeId,
        /// At most so many.
        limit: u32,
    },
    /// Flushes everything and ends the server. Answer: `Done`, then the connection closes.
    Shutdown {
        /// Whether the server also removes all that it stored.
        destroy: bool,
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
    13 => CancelLock { ask },
    14 => FindLock { inode, wish },
    15 => SharePointer { pointer },
    42 => MovePointer { pointer, how },
    16 => Read { object, at, bytes },
    17 => Write { object, at },
    18 => Lend { object, write },
    19 => SyncObject { object },
    20 => FlushObject { object },
    21 => TakeErrors { inode },
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
    45 => VisitRead { object, at, bytes, told, at_once },
    46 => VisitWrite { object, at, told },
    47 => Pass { server, to, inode, blocks },
    48 => VisitTake { object, at, blocks, to, syncs, of, told },
    49 => AcquireFree { inode, want, party },
    50 => VisitStill { object, at, bytes, stamp },
    51 => ReadAtOnce { object, at, bytes },
    52 => WriteAtOnce { object, at },
});

/// A server's answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// It could not be done.
    Failed {
        /// Why.
        fault: pario_core::Fault,
    },
    /// It is done.
    Done {},
    /// See [`NameReply`].
    Name {
        /// It.
        reply: NameReply,
    },
    /// A lease, with the file's attributes as they are now.
    Granted {
        /// It.
        lease: Lease,
        /// They.
        attr: FileAttr,
    },
    /// A length and the generation it belongs to.
    Length {
        /// In bytes.
        bytes: u64,
        /// Of the file.
        generation: Generation,
    },
    /// Others hold or want the file.
    NotNow {},
    /// There is no such object: every byte of it is zero.
    NoObject {},
    /// File data follows behind the body.
    Data {},
    /// The descriptor comes along.
    Lent {},
    /// This store lends no descriptors: read and write by message.
    NotLent {},
    /// What went wrong in the background, oldest first.
    Errors {
        /// They.
        faults: Vec<pario_core::Fault>,
    },
    /// Cursor segment and doorbell come along.
    OutboxTaken {},
    /// A page of objects with their lengths.
    Objects {
        /// They.
        objects: Vec<(ObjectId, u64)>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// Room.
    Space {
        /// It.
        space: Space,
    },
    /// JSON text.
    Status {
        /// It.
        json: String,
    },
    /// A page of inodes.
    Inodes {
        /// They.
        attrs: Vec<FileAttr>,
        /// Whether there are more behind the last.
        more: bool,
    },
    /// A lock. Within it the client locks and unlocks without asking, until it is recalled.
    Locked {
        /// Which.
        number: u64,
        /// First byte it covers; where a shape was wished for, that shape.
        start: u64,
        /// Behind the last.
        end: u64,
    },
    /// A lock that is in the way, if there is one.
    Found {
        /// It.
        lock: Option<FoundLock>,
    },
    /// A shared pointer: its memory comes along.
    Pointer {},
    /// Where a shared pointer was.
    Position {
        /// In elementary types.
        at: u64,
    },
    /// Whose blocks are, in the order in which they were asked for.
    Claimed {
        /// Owner and number of the ownership.
        grants: Vec<(ServerIndex, u64)>,
    },
    /// The server does not own the blocks, or not any more: their home knows.
    NotMine {},
    /// Bytes of blocks as they were at one moment, behind the body.
    Moment {
        /// The sum of the blocks' stamps.
        stamp: u64,
    },
    /// How far a whole file reaches, from a server whose part says nothing of it.
    FileLength {
        /// In bytes.
        bytes: u64,
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
    10 => OutboxTaken {},
    11 => Objects { objects, more },
    12 => Space { space },
    13 => Status { json },
    14 => Inodes { attrs, more },
    15 => Locked { number, start, end },
    16 => Found { lock },
    17 => Pointer {},
    18 => Position { at },
    19 => Claimed { grants },
    20 => NotMine {},
    21 => FileLength { bytes },
    22 => NotNow {},
    23 => Moment { stamp },
});

/// What a server tells a client unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Give this lease back: somebody else waits for the file.
    Recall {
        /// The file.
        inode: InodeId,
        /// Which lease.
        number: u64,
    },
    /// The request is being waited for: who has what it needs. Sent once a second, so that a wait is never silent.
    Waiting {
        /// Which request.
        request: u64,
        /// For whom, in words.
        on: String,
    },
    /// The server is going down in order; reconnecting is no use.
    Goodbye {
        /// Which server says so.
        server: ServerIndex,
    },
    /// The last name of a file that this session uses is gone: whoever keeps it only to have it at hand lets go.
    Unlinked {
        /// The file.
        inode: InodeId,
    },
    /// Give this lock back, or what of it lies between these bytes: somebody else waits for them.
    RecallLock {
        /// The file.
        inode: InodeId,
        /// Which lock.
        number: u64,
        /// First byte that is wanted.
        start: u64,
        /// Behind the last.
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
