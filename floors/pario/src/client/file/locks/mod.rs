//! File locks: requested from the manager at first use, kept until recalled; inside a kept token lock and unlock send no message.
//!
//! Never: waits for a lock while it delays the return of a lease. Always: a lock lost with the manager is reported by `check` and
//! `unlock`.

mod access;
mod append;
mod cached;
mod kernel;
mod records;
pub mod table;
mod user;

pub(crate) use self::access::{AccessKind, AccessLock, Guarded};
pub(in crate::client) use self::access::{access_range, lock_once, lock_stream_range};
pub(in crate::client) use self::append::append;
pub(in crate::client) use self::cached::FileLocks;
pub use self::records::{FoundRecord, RecordLocks, RecordMode, RecordWait};
pub use self::user::{LockCancel, LockHolder, LockOptions, PendingLock, RangeLock};
pub(in crate::client) use self::user::{
    find_user, forget_owner, lock_user, lock_user_cancellable, start_lock_user,
};
