//! The files that aggregators read and write: one trait, two kinds of file.
//!
//! Never: caches file data, so that two-phase and the other methods see each other's writes. Always: a write is complete or an
//! error; a read is short only at the end of the file.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use pario_core::Fault;
use pario_sys::{MemoryPiece, read_exact_or_end_at, write_pieces_at};

use crate::client::File;

/// A file that aggregators read and write in large pieces.
pub(crate) trait AggregatorTarget: Sync {
    /// Preferred alignment of domains: the block size.
    fn align_bytes(&self) -> u64;

    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;

    /// Reads until `target` is full or the file ends.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault>;
}

/// A file of a partition: leases keep it coherent.
impl AggregatorTarget for File {
    fn align_bytes(&self) -> u64 {
        self.layout().stripe_bytes()
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        File::write_at(self, offset, data).map_err(|error| Fault::new(error.code(), error.to_string()))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault> {
        File::read_at(self, offset, target).map_err(|error| Fault::new(error.code(), error.to_string()))
    }
}

/// A plain file of any file system that all ranks can open.
#[derive(Debug)]
pub(super) struct PlainTarget {
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
}

impl PlainTarget {
    pub(super) fn fault(&self, error: &std::io::Error) -> Fault {
        Fault::from_io(error, self.path.display())
    }
}

impl AggregatorTarget for PlainTarget {
    fn align_bytes(&self) -> u64 {
        4096
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        write_pieces_at(self.file.as_fd(), &[MemoryPiece::from(data)], offset)
            .map_err(|error| self.fault(&error))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault> {
        read_exact_or_end_at(self.file.as_fd(), target, offset).map_err(|error| self.fault(&error))
    }
}
