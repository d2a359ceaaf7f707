//! System interfaces outside the compiler's guarantees: shared memory, descriptor passing, futexes, fork. All floors above are safe Rust
//! on top of this crate.
//!
//! Never: forms a Rust reference to memory that another process can write (single atomics excepted); trusts such bytes. Always: each
//! `unsafe` block does one thing and states why it is sound.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod aligned;
pub mod backing;
pub mod clock;
pub mod counting;
pub mod dir;
#[cfg_attr(loom, path = "loom/doorbell.rs")]
pub mod doorbell;
pub mod file_lock;
pub mod file_map;
pub mod kill_point;
#[cfg(not(loom))]
mod large;
pub mod lent;
pub mod mutex;
pub mod parted;
pub mod piece;
pub mod preallocation;
pub mod process;
pub mod processors;
#[cfg_attr(loom, path = "loom/shared.rs")]
pub mod shared;
pub mod signals;
pub mod socket;
#[cfg(not(loom))]
mod streaming;
pub mod sync;

#[cfg(loom)]
#[path = "loom/registry.rs"]
mod registry;

pub use aligned::AlignedBuffer;
pub use clock::{MonotonicClock, wall_ns};
pub use doorbell::Doorbell;
pub use file_map::FileMap;
pub use lent::{LentBorrow, LentMemory, LentSlot, TargetList};
pub use parted::{BufferPart, PartedBuffer, lend_parts};
pub use piece::{MemoryPiece, read_exact_or_end_at, write_pieces_at};
pub use process::fork_generation;
pub use shared::{AttachError, AttachLimit, FutexWait, MapAccess, SharedMemory};
pub use socket::{Blocking, PeerCredentials, receive, send};
