//! Server-directed: each member sends the stream of its view to the servers of the partition, which merge by the views.
//!
//! Never: sends an offset list.

use crate::client::{File, Guarded, StreamRange, WriteSource};
use crate::error::Result;
use crate::group::{CollectiveCall, Group};

use super::method::{GroupAccess, Method};

/// See the module head.
#[derive(Debug)]
pub(super) struct ServerDirected;

impl ServerDirected {
    /// Prepares the accesses that a file was opened for.
    pub(super) fn prepare(group: &dyn Group, file: &File) {
        match file.is_writable() {
            true if 1 < group.size() => file.prepare_writes(),
            true => {}
            false => file.prepare_reads(),
        }
    }
}

impl Method for ServerDirected {
    fn write(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
        guarded: Guarded,
    ) -> Result<()> {
        on.file.write_stream(place, source, guarded)
    }

    fn read(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize> {
        on.file.read_stream(place, target, guarded)
    }

    fn len(&self, on: GroupAccess<'_>) -> Result<u64> {
        on.file.len()
    }

    fn set_len(&self, on: GroupAccess<'_>, bytes: u64) -> Result<()> {
        let mine = if on.group.rank() == 0 { on.file.set_len(bytes) } else { Ok(()) };
        on.group.agree(mine)
    }

    fn sync(&self, on: GroupAccess<'_>) -> Result<()> {
        let gathering = on.file.begin_collective_wait(&**on.group);
        let mine = on.file.sync_member(on.group.rank(), gathering.as_ref());
        on.group.agree_in(CollectiveCall::Sync, mine)
    }

    fn close(&self, on: GroupAccess<'_>) -> Result<()> {
        let gathering = on.file.begin_collective_wait(&**on.group);
        let mine = on.file.close_member(gathering.as_ref());
        on.group.agree_in(CollectiveCall::Close, mine)
    }
}
