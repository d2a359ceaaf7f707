//! What aggregators read and write: one seam, two kinds of file.
//!
//! Never: keeps anything of a file in memory, so that what other methods write is seen, and the other way round. Always: a write
//! is complete or an error; a read is short only at the file's end.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;

use pario_core::Fault;
use pario_sys::{Piece, read_exact_or_end_at, write_pieces_at};

use crate::client::File;

/// A file that aggregators read and write in large pieces.
pub(crate) trait Target: Sync {
    /// Where domains had best begin: the block size.
    fn align_bytes(&self) -> u64;

    /// Writes all of `data`.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;

    /// Reads until `target` is full or the file ends.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault>;
}

/// A file of a partition: leases see to it that everyone's view of it is one.
impl Target for File {
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

/// A plain file of any file system that all ranks see.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
}

impl Plain {
    pub(super) fn fault(&self, error: &std::io::Error) -> Fault {
        Fault::from_io(error, self.path.display())
    }
}

impl Target for Plain {
    fn align_bytes(&self) -> u64 {
        4096
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        write_pieces_at(self.file.as_fd(), &[Piece::from(data)], offset).map_err(|error| self.fault(&error))
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, Fault> {
        read_exact_or_end_at(self.file.as_fd(), target, offset).map_err(|error| self.fault(&error))
    }
}
