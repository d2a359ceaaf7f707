//! Targets: what a team writes to and reads from.
//!
//! Never: a thread of a target's own. Always: a write is complete or an error; a read is short only at the end of the file.

mod choice;
mod container;
mod file_system;
mod partition;
mod plain;

use std::fmt::Debug;
use std::io::{IoSlice, IoSliceMut};

use super::error::TeamResult;

pub(super) use choice::{OpenedTarget, open, open_in};

/// One file, used by several threads at once.
pub(super) trait TeamTarget: Send + Sync + Debug {
    /// Writes the pieces one after the other from `offset` on. The slice is used up.
    fn write(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> TeamResult<()>;

    /// Fills the pieces one after the other from `offset` on; returns the number of bytes before the end of the file.
    fn read(&self, offset: u64, pieces: &mut [IoSliceMut<'_>]) -> TeamResult<u64>;

    /// The current length.
    fn len(&self) -> TeamResult<u64>;

    /// Puts everything written on stable storage.
    fn sync(&self) -> TeamResult<()>;

    /// Closes the file, and returns errors of writes that went behind.
    fn close(&self) -> TeamResult<()>;

    /// Divided runs are cut at multiples of it.
    fn cut_bytes(&self) -> u64;

    /// Parts below this size are written by their members themselves, without a meeting; 0: none.
    fn own_bytes_max(&self) -> u64;

    /// Read and write system calls so far.
    fn system_calls(&self) -> u64;
}
