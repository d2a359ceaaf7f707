//! The ABI-independent part of MPI's file calls on Pario: path resolution, modes, hints, errors, pointers, blocking and
//! non-blocking accesses. `../ffi` adds the three ABIs.
//!
//! Never: calls MPI. Always: an error has the class that the standard names for it, and a text.

mod access;
mod amode;
mod file;
mod hints;
mod mounts;
mod path;
pub mod posix;
mod problem;
mod shared;
mod worker;

pub mod ffi;

pub use access::{AccessOrigin, Together};
pub use amode::Amode;
pub use file::{MpiFile, OpenArguments};
pub use hints::InfoHints;
pub use mounts::{partition_of, remove};
pub use pario::posix::{FlockKind, LockOwner, LockSpan, ServedCalls};
pub use path::{PathTarget, resolve_open, resolve_path};
pub use problem::{Class, MpiError, Result};
pub use worker::{AccessOutcome, WorkerPool};
