//! A file of a partition as a target: small parts are records that members commit themselves, large ones go through lent descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use super::TeamTarget;
use crate::client::{Counts, File};
use crate::handle::Partition;
use crate::team::error::TeamResult;

/// Parts below this size are records: as in a write of one process, a system call costs more than the second copy.
const RECORD_BYTES_MAX: u64 = 128 << 10;

#[derive(Debug)]
pub(super) struct PartitionTarget {
    file: File,
    /// Keeps the mounted partition; other handles of this process share it.
    _partition: Arc<Partition>,
    own_bytes_max: u64,
    before: Counts,
}

impl PartitionTarget {
    pub(super) fn new(file: File, partition: Arc<Partition>) -> TeamResult<PartitionTarget> {
        // Records need memory that the servers share; on another node each would be a message.
        let own_bytes_max = if file.servers_are_local()? { RECORD_BYTES_MAX } else { 0 };
        let before = file.counts();
        Ok(PartitionTarget { file, _partition: partition, own_bytes_max, before })
    }
}

impl TeamTarget for PartitionTarget {
    fn write(&self, offset: u64, pieces: &mut [IoSlice<'_>]) -> TeamResult<()> {
        match pieces {
            [piece] => Ok(self.file.write_at(offset, piece)?),
            pieces => Ok(self.file.write_vectored_at(offset, pieces)?),
        }
    }

    fn read(&self, offset: u64, pieces: &mut [IoSliceMut<'_>]) -> TeamResult<u64> {
        Ok(self.file.read_vectored_at(offset, pieces)? as u64)
    }

    fn len(&self) -> TeamResult<u64> {
        Ok(self.file.len()?)
    }

    fn sync(&self) -> TeamResult<()> {
        Ok(self.file.sync()?)
    }

    fn close(&self) -> TeamResult<()> {
        Ok(self.file.close_shared()?)
    }

    fn cut_bytes(&self) -> u64 {
        self.file.layout().stripe_bytes()
    }

    fn own_bytes_max(&self) -> u64 {
        self.own_bytes_max
    }

    fn system_calls(&self) -> u64 {
        let counts = self.file.counts().since(&self.before);
        counts.direct_writes + counts.direct_reads
    }
}
