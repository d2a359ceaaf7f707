//! A plain file below the file cache of the group, as a method.
//!
//! Always: an error about a dead server names the rank that ran it.

use super::method::{GroupAccess, Method, MethodStats};
use crate::client::{Guarded, StreamRange, WriteSource};
use crate::error::Result;
use crate::fleet::file_cache::PlainBacking;

impl Method for PlainBacking {
    fn write(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
        guarded: Guarded,
    ) -> Result<()> {
        self.count(source.len());
        let written = on.file.write_stream(place, source, guarded);
        written.map_err(|error| self.name_failed_ranks(on.file, error))
    }

    fn read(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize> {
        self.count(target.len());
        let read = on.file.read_stream(place, target, guarded);
        read.map_err(|error| self.name_failed_ranks(on.file, error))
    }

    fn len(&self, on: GroupAccess<'_>) -> Result<u64> {
        on.file.len().map_err(|error| self.name_failed_ranks(on.file, error))
    }

    fn set_len(&self, on: GroupAccess<'_>, bytes: u64) -> Result<()> {
        self.resize(on.group, on.file, bytes)
    }

    fn sync(&self, on: GroupAccess<'_>) -> Result<()> {
        self.sync_group(on.group, on.file)
    }

    fn close(&self, on: GroupAccess<'_>) -> Result<()> {
        self.close_group(on.group, on.file)
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            file_cache: self.cache_stats(),
            placement: Some(self.placement()),
            ..MethodStats::default()
        }
    }

    fn is_cached(&self) -> bool {
        true
    }
}
