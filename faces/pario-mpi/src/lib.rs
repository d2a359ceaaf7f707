//! MPI's file calls on Pario, as far as they can be said without an ABI: which paths are Pario's, modes, hints, errors, pointers,
//! accesses, accesses that go on while the program computes. `../ffi` puts the three ABIs on it.
//!
//! Never: calls MPI. Always: an error has the class that the standard names for it, and a sentence.

mod access;
mod amode;
mod file;
mod hints;
mod meeting;
mod mounts;
mod path;
pub mod posix;
mod problem;
mod served;
mod shared;
mod worker;

pub mod ffi;

pub use access::{Place, Together};
pub use amode::Amode;
pub use file::{OpenFile, OpenWish};
pub use hints::{Wishes, in_force};
pub use meeting::{Host, HostMark};
pub use mounts::{partition_of, remove};
pub use path::{Target, opening_of, target_of};
pub use problem::{Class, Problem, Result};
pub use served::Served;
pub use worker::{Outcome, Pool};
