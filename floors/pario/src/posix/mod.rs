//! Files of a partition with the meaning of POSIX: positions, appending, record locks, error numbers. For faces that serve POSIX calls.
//!
//! Never: handles descriptor numbers or C structures. Always: an error is the POSIX error number.

mod file;
mod locks;
mod served;

pub use self::file::{Posix, PosixFile, PosixMode, PosixPath, Whence, report_paths};
pub use self::locks::{FlockKind, LockOwner, LockSpan};
pub use self::served::ServedCalls;
