//! A plain file on another host: the network file system that the hosts of `pario bench sliding` share.
//!
//! ```text
//!  host: read, write, fcntl ─► kernel (FUSE) ─► mount ─── TCP, a connection per thread ───► server ─► file, lock table
//! ```
//! One file, no cache on the hosts: every read, write, lock and unlock is one round trip to the server, which has the file in its page
//! cache. All sides of the comparison, the file cache too, reach the file through it.
//!
//! Never: caches, delays or reorders requests. Always: a conflicting lock waits at the server.

mod fuse;
mod locks;
pub(super) mod mount;
pub(super) mod server;
mod wire;

/// The one file's name below the mount's root.
pub(super) const FILE: &str = "file";
