//! Shared pointers, ordered accesses and atomic mode: the calls of [`GroupFile`] that they use.

use pario::{GroupFile, Seek};

use crate::problem::Result;

/// Reserves `etypes` at the shared pointer; returns its old value.
pub(crate) fn reserve_shared(file: &GroupFile, etypes: u64) -> Result<u64> {
    Ok(file.reserve_shared(etypes)?)
}

/// Reserves each rank's range at the shared pointer, in rank order; collective.
pub(crate) fn reserve_ordered(file: &GroupFile, etypes: u64) -> Result<u64> {
    Ok(file.reserve_ordered(etypes)?)
}

/// Moves the shared pointer; collective.
pub(crate) fn seek_shared(file: &GroupFile, to: Seek) -> Result<()> {
    file.seek_shared(to)?;
    Ok(())
}

/// The shared pointer, in elementary types.
pub(crate) fn position_shared(file: &GroupFile) -> Result<u64> {
    Ok(file.position_shared()?)
}

/// Sets both pointers of a file opened for append to its end; collective.
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
