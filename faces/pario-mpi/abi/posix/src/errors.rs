//! Converts a panic to an error: it must not cross into C.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pario_mpi::{Class, MpiError, Result};

/// Runs work that may panic.
pub(crate) fn protected<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(MpiError::new(Class::Intern, "internal error of Pario (a panic); standard error has its message"))
    })
}
