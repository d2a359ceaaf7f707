//! The client: what a process knows of a mounted partition, and how a byte travels.
//!
//! ```text
//!  File ─► OpenFile ─► lease ─► write: direct | record in the outbox | message      ─► servers
//!                              read:  direct | message, several under way
//! ```
//! Never: a thread of its own on the data path; one thread receives lease recalls while leases are held. Always: a process reads its own
//! writes; every access runs under a lease that allows it.

mod file;
mod session;

pub(crate) use file::backing::CacheRoute;
pub(crate) use file::confirmed::NodeCacheFile;
pub use file::handle::File;
pub use file::lease::LeaseObserver;
pub(crate) use file::lease::LeasedAccess;
/// The locks that a process caches for a file, as a state machine without threads or messages; also used by the simulator.
#[doc(hidden)]
pub use file::locks::table as lock_table;
pub(crate) use file::locks::{AccessKind, AccessLock, Guarded};
pub use file::locks::{
    FoundRecord, LockCancel, LockHolder, LockOptions, PendingLock, RangeLock, RecordLocks, RecordMode,
    RecordWait,
};
pub(crate) use file::ordered::check_shown_once;
pub(crate) use file::pointer::GroupPointer;
pub(crate) use file::write::memory::WriteSource;
pub(crate) use file::write::stream::StreamRange;
pub use session::application::Application;
pub use session::counts::Counts;
pub use session::directory::{ReadDir, path_bytes, report_end_of};
pub use session::executor::Pending;
pub use session::options::OpenOptions;
pub use session::state::{Endpoint, Locate, MountSpec, Session, server_restarts};
pub(crate) use session::views::NumberedView;
