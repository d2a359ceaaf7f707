//! The client: what a process knows of a mounted partition, and how a byte travels.
//!
//! ```text
//!  File ─► OpenFile ─► lease ─► write: direct | record in the outbox | message      ─► servers
//!                              read:  direct | message, several under way
//! ```
//! Never: a thread of its own on the data path; one thread listens for recalls while leases are held. Always: a process reads
//! what it wrote; an access needs a lease that allows it.

mod application;
mod counts;
mod direct;
mod directory;
mod faults;
mod file;
mod introduce;
mod kept;
mod lease;
mod loans;
mod locks;
mod memory;
mod minder;
mod moment;
mod mount;
mod notices;
mod open_file;
mod options;
mod pending;
mod pointer;
mod read;
mod records;
mod sieve;
mod stream_read;
mod stream_write;
mod sync;
mod tiered;
mod umask;
mod views;
mod visits;
mod windows;
mod write;

pub use application::Application;
pub use counts::Counts;
pub use directory::{ReadDir, path_bytes};
pub use file::File;
pub(crate) use lease::{Access, Guardian};
/// The locks that a process keeps of a file, as a machine without threads or messages: for the simulator.
#[doc(hidden)]
pub use locks::table as lock_table;
pub(crate) use locks::{AccessLock, Guarded, Kind};
pub use locks::{LockHolder, LockOptions, PendingLock, RangeLock};
pub(crate) use memory::Source;
pub use mount::{Locate, Mount, MountSpec, Way};
pub(crate) use open_file::Through;
pub use options::OpenOptions;
pub use pending::Pending;
pub(crate) use pointer::Pointer;
pub(crate) use stream_write::Place;
pub(crate) use tiered::TierFile;
pub(crate) use views::NumberedView;
