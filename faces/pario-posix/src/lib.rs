//! A partition as a POSIX file system.
//!
//! ```text
//!  kernel ─► fuse: decode ─► serve ─► semantics: names, files, directories, locks ─► pario
//!                   encode ◄─
//! ```
//! [`semantics`] is tested without a kernel. Never: keeps names or attributes of its own: node numbers are inode numbers, and the manager
//! answers. Always: an error is a POSIX error number; its cause is in the log.

pub mod fuse;
pub mod semantics;

pub use fuse::{Mount, MountError, MountOptions, Unmount};

pub use semantics::FileSystem;
