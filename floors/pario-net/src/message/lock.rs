//! Messages of locks and shared pointers.

use pario_core::{InodeId, encode_enum, encode_struct};

/// Locks of different spaces do not conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockSpace {
    /// Around a single access, so that it is atomic: atomic mode, and contiguous calls on several servers.
    Access {},
    /// Of programs that lock ranges: `File::lock`, `fcntl`.
    Range {},
    /// Of programs that lock whole files: `flock`.
    Whole {},
    /// Around an append: finding a file's end and writing there.
    Append {},
}
encode_enum!(LockSpace { 1 => Access {}, 2 => Range {}, 3 => Whole {}, 4 => Append {} });

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared {},
    /// Alone.
    Exclusive {},
}
encode_enum!(LockMode { 1 => Shared {}, 2 => Exclusive {} });

/// Which bytes a lock covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockShape {
    /// From `start` to before `end`; the largest number stands for the end of the file, wherever that is.
    Bytes {
        /// First.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// The bytes of a range of a view's stream.
    Stream {
        /// The view's number in this session.
        view: u32,
        /// Displacement added to the view, in bytes.
        displacement: u64,
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
}
encode_enum!(LockShape { 1 => Bytes { start, end }, 2 => Stream { view, displacement, offset, bytes } });

/// Wait policy of a lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWaitLimit {
    /// Not for a lock that is in use.
    Try {},
    /// Without a limit.
    Wait {},
    /// So long.
    Limit {
        /// In milliseconds.
        ms: u64,
    },
}
encode_enum!(LockWaitLimit { 1 => Try {}, 2 => Wait {}, 3 => Limit { ms } });

/// A lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockSpec {
    /// Number of the request in this session, for cancelling it.
    pub request_number: u64,
    /// In which space.
    pub space: LockSpace,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Which bytes.
    pub shape: LockShape,
    /// Owner slot inside the session; locks of one slot do not conflict.
    pub owner_slot: u64,
    /// Lock group: a group or an application; its locks do not conflict with each other. 0: none.
    pub lock_group: u64,
    /// How long it waits.
    pub wait: LockWaitLimit,
}
encode_struct!(LockSpec { request_number, space, mode, shape, owner_slot, lock_group, wait });

/// A conflicting lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLock {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// How it is held.
    pub mode: LockMode,
    /// The holder's process number, on its host.
    pub pid: u32,
    /// The holder in words.
    pub holder: String,
}
encode_struct!(FoundLock { start, end, mode, pid, holder });

/// Operation on a shared pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointerMove {
    /// Moved forward.
    Add {
        /// By so many elementary types.
        by: u64,
    },
    /// Put somewhere.
    Set {
        /// There.
        at: u64,
    },
}
encode_enum!(PointerMove { 1 => Add { by }, 2 => Set { at } });

/// Names a shared pointer: of one file, of one group that has it open, since one of its views was set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PointerId {
    /// The file.
    pub inode: InodeId,
    /// The group's opening of it.
    pub group: u64,
    /// Views it has set since; a higher number makes lower ones void.
    pub epoch: u64,
}
encode_struct!(PointerId { inode, group, epoch });
