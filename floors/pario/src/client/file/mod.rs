//! One open file: its state in this process, shared by all handles, and how bytes are written and read.
//!
//! ```text
//!  handle (File) ─► state (OpenFile) ─► lease ─► write/: direct | record in the outbox | message   ─► servers
//!                                               read/:  direct | message, several under way
//! ```
//! Never: a connection or a thread of its own: both belong to the session. Always: every access to a file with leases runs under one that
//! allows it.

pub(super) mod atomic_access;
pub(super) mod backing;
pub(super) mod confirmed;
mod context;
pub(super) mod faults;
pub(super) mod handle;
mod holes;
mod kept;
pub(super) mod lease;
mod length;
pub(super) mod loans;
pub(super) mod locks;
pub(super) mod ordered;
pub(super) mod pointer;
pub(super) mod read;
pub(super) mod state;
pub(super) mod summed;
mod sync;
pub(super) mod unflushed;
pub(super) mod write;
