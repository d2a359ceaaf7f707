//! The mount: a partition as a directory, through the kernel's FUSE.
//!
//! ```text
//!  mount ─► session (threads that read /dev/fuse) ─► decode ─► serve ─► encode ─► session
//! ```
//! Never: lets the kernel keep names, attributes or pages that another node may change: time-outs are 0 and files are opened for direct
//! I/O. Always: a wait for a lock can be interrupted; any other request is carried out.

mod decode;
mod encode;
mod mount;
mod pages;
mod serve;
mod session;

pub use decode::{DecodeError, FuseOperation, MountAttrChange, MountLock, MountRequest, decode};
pub use mount::{Mount, MountError, MountOptions, Unmount, mounted_dirs, process_of, unmount};
