//! The words of locks and shared pointers.

use pario_core::{InodeId, encode_enum, encode_struct};

/// Locks of different spaces know nothing of each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockSpace {
    /// Around a single access, so that it happens at once: atomic mode, and contiguous calls on several servers.
    Access {},
    /// Of programs that lock ranges: `File::lock`, `fcntl`.
    Range {},
    /// Of programs that lock whole files: `flock`.
    Whole {},
}
encode_enum!(LockSpace { 1 => Access {}, 2 => Range {}, 3 => Whole {} });

/// Beside others, or alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Beside others of the kind.
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
        /// Behind the last.
        end: u64,
    },
    /// Those that a range of a view's stream lies on.
    Stream {
        /// The view's number in this session.
        view: u32,
        /// How far behind its place in the file the view is taken to be.
        moved: u64,
        /// Where the range starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
}
encode_enum!(LockShape { 1 => Bytes { start, end }, 2 => Stream { view, moved, offset, bytes } });

/// How long a wish for a lock waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockPatience {
    /// Not for a lock that is in use.
    Try {},
    /// As long as it takes.
    Wait {},
    /// So long.
    Limit {
        /// In milliseconds.
        ms: u64,
    },
}
encode_enum!(LockPatience { 1 => Try {}, 2 => Wait {}, 3 => Limit { ms } });

/// A wish for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockAsk {
    /// Names the wish in this session, so that it can be taken back.
    pub ask: u64,
    /// In which space.
    pub space: LockSpace,
    /// Beside others, or alone.
    pub mode: LockMode,
    /// Which bytes.
    pub shape: LockShape,
    /// Who inside the session; locks of one lane do not exclude each other.
    pub lane: u64,
    /// A group or an application on whose behalf; its locks do not exclude each other. 0: none.
    pub club: u64,
    /// How long it waits.
    pub patience: LockPatience,
}
encode_struct!(LockAsk { ask, space, mode, shape, lane, club, patience });

/// A lock that is in somebody's way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLock {
    /// First byte.
    pub start: u64,
    /// Behind the last.
    pub end: u64,
    /// How it is held.
    pub mode: LockMode,
    /// The holder's process number, on its host.
    pub pid: u32,
    /// The holder in words.
    pub holder: String,
}
encode_struct!(FoundLock { start, end, mode, pid, holder });

/// What is done with a shared pointer.
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
