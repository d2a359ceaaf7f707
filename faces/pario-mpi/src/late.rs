//! Shared pointers, ordered accesses and atomic mode: the calls of [`GroupFile`] that they stand on, in one place.

use pario::{GroupFile, Seek};

use crate::problem::{Class, Problem, Result};

fn not_yet(what: &str) -> Problem {
    Problem::new(
        Class::UnsupportedOperation,
        format!("{what} cannot be had on Pario's files in this version"),
    )
}

/// Takes `etypes` from the shared pointer; returns where it was.
pub(crate) fn reserve_shared(_file: &GroupFile, _etypes: u64) -> Result<u64> {
    Err(not_yet("shared file pointers"))
}

/// Takes each rank's part from the shared pointer, in the order of ranks; collective.
pub(crate) fn reserve_ordered(_file: &GroupFile, _etypes: u64) -> Result<u64> {
    Err(not_yet("ordered accesses"))
}

/// Moves the shared pointer; collective.
pub(crate) fn seek_shared(_file: &GroupFile, _to: Seek) -> Result<()> {
    Err(not_yet("shared file pointers"))
}

/// Where the shared pointer is, in elementary types.
pub(crate) fn position_shared(_file: &GroupFile) -> Result<u64> {
    Err(not_yet("shared file pointers"))
}

/// A file that was opened to append begins at its end with both pointers; collective.
pub(crate) fn append(file: &GroupFile) -> Result<()> {
    file.seek(Seek::End(0))?;
    Ok(())
}

/// Switches atomic mode; collective.
pub(crate) fn set_atomicity(_file: &GroupFile, atomic: bool) -> Result<()> {
    if atomic { Err(not_yet("atomic mode")) } else { Ok(()) }
}

/// Whether atomic mode is on.
pub(crate) fn atomicity(_file: &GroupFile) -> bool {
    false
}
