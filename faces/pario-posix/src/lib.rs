//! A partition as a POSIX file system.
//!
//! ```text
//!  kernel ─► fuse: decode ─► serve ─► semantics: names, files, directories, locks ─► pario
//!                   encode ◄─            ▲
//!  network ─► nfs: connection ─► dispatch ─► a procedure
//! ```
//! [`semantics`] is tested without a kernel. Never: keeps names or attributes of its own: node numbers are inode numbers, and the manager
//! answers. Always: an error is a POSIX error number; its cause is in the log.

pub mod fuse;
pub mod nfs;
pub mod semantics;

pub use fuse::{Mount, MountError, MountOptions, Unmount};
pub use nfs::{AllowedNetwork, Export, ExportError, ExportOptions};

pub use semantics::FileSystem;
