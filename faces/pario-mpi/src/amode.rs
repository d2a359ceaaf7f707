//! Access modes of MPI, independent of an ABI's bits.

use crate::problem::{Class, MpiError, Result};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "MPI's modes are independent flags")]
pub struct Amode {
    /// `MPI_MODE_RDONLY`
    pub read_only: bool,
    /// `MPI_MODE_WRONLY`
    pub write_only: bool,
    /// `MPI_MODE_RDWR`
    pub read_write: bool,
    /// `MPI_MODE_CREATE`
    pub create: bool,
    /// `MPI_MODE_EXCL`
    pub exclusive: bool,
    /// `MPI_MODE_DELETE_ON_CLOSE`
    pub delete_on_close: bool,
    /// `MPI_MODE_UNIQUE_OPEN`
    pub unique_open: bool,
    /// `MPI_MODE_SEQUENTIAL`
    pub sequential: bool,
    /// `MPI_MODE_APPEND`
    pub append: bool,
    /// Bits that are not defined by the ABI.
    pub unknown: i32,
}

impl Amode {
    /// Checks a mode against the rules of the standard.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(MpiError::new(Class::Amode, format!("the access mode {why}")));
        let ways = [self.read_only, self.write_only, self.read_write];
        if self.unknown != 0 {
            return wrong(&format!("has undefined bits: {:#x}", self.unknown));
        }
        if ways.iter().filter(|way| **way).count() != 1 {
            return wrong("must have exactly one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR");
        }
        if self.read_only && (self.create || self.exclusive) {
            return wrong(
                "combines MPI_MODE_RDONLY with MPI_MODE_CREATE or MPI_MODE_EXCL, which the standard forbids",
            );
        }
        if self.read_write && self.sequential {
            return wrong(
                "combines MPI_MODE_SEQUENTIAL with MPI_MODE_RDWR: a sequential file is read or written, not both",
            );
        }
        Ok(())
    }

    /// Whether reading is allowed.
    #[must_use]
    pub fn reads(&self) -> bool {
        !self.write_only
    }

    /// Whether writing is allowed.
    #[must_use]
    pub fn writes(&self) -> bool {
        !self.read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_contradict_themselves_are_refused() {
        let read = Amode { read_only: true, ..Amode::default() };
        let both = Amode { read_write: true, ..Amode::default() };
        assert!(read.check().is_ok() && both.check().is_ok());
        for wrong in [
            Amode::default(),
            Amode { write_only: true, ..read },
            Amode { create: true, ..read },
            Amode { exclusive: true, ..read },
            Amode { sequential: true, ..both },
            Amode { unknown: 4096, ..both },
        ] {
            assert_eq!(wrong.check().unwrap_err().class, Class::Amode, "{wrong:?}");
        }
        assert!(Amode { create: true, exclusive: true, ..both }.check().is_ok());
    }
}
