//! Shared pointers, ordered accesses and atomic mode: the calls of [`GroupFile`] that they stand on, in one place.

use pario::{GroupFile, Seek};

use crate::problem::Result;

/// Takes `etypes` from the shared pointer; returns where it was.
pub(crate) fn reserve_shared(file: &GroupFile, etypes: u64) -> Result<u64> {
    Ok(file.reserve_shared(etypes)?)
}

/// Takes each rank's part from the shared pointer, in the order of ranks; collective.
pub(crate) fn reserve_ordered(file: &GroupFile, etypes: u64) -> Result<u64> {
    Ok(file.reserve_ordered(etypes)?)
}

/// Moves the shared pointer; collective.
pub(crate) fn seek_shared(file: &GroupFile, to: Seek) -> Result<()> {
    file.seek_shared(to)?;
    Ok(())
}

/// Where the shared pointer is, in elementary types.
pub(crate) fn position_shared(file: &GroupFile) -> Result<u64> {
    Ok(file.position_shared()?)
}

/// A file that was opened to append begins at its end with both pointers; collective.
pub(crate) fn append(file: &GroupFile) -> Result<()> {
    file.seek(Seek::End(0))?;
    file.seek_shared(Seek::End(0))?;
    Ok(())
}

/// Switches atomic mode; collective.
pub(crate) fn set_atomicity(file: &GroupFile, atomic: bool) -> Result<()> {
    Ok(file.set_atomicity(atomic)?)
}

/// Whether atomic mode is on.
pub(crate) fn atomicity(file: &GroupFile) -> bool {
    file.atomicity()
}
