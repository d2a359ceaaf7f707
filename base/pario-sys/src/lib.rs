//! The edges where the compiler cannot help: memory that another process writes, descriptors that travel over sockets,
//! futexes, fork. Everything above is safe Rust on top of this crate.
//!
//! Never: forms a Rust reference to memory that another process can write (single atomics excepted); trusts such bytes.
//! Always: each `unsafe` block does one thing and says why it may.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod aligned;
pub mod backing;
pub mod clock;
#[cfg_attr(loom, path = "loom/doorbell.rs")]
pub mod doorbell;
pub mod file_lock;
pub mod file_map;
pub mod kill_point;
#[cfg(not(loom))]
mod large;
pub mod nap;
pub mod piece;
mod prefetch;
pub mod process;
pub mod processors;
pub mod room;
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
pub use piece::{Piece, read_exact_or_end_at, write_pieces_at};
pub use process::fork_generation;
pub use shared::{Access, AttachError, AttachLimit, FutexWait, Shared};
pub use socket::{Blocking, PeerCredentials, receive, send};
