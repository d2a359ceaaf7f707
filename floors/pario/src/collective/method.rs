//! The interface of a method: how the accesses of a collectively opened file are carried out.
//!
//! ```text
//!  GroupFile ─► Method: server_directed.rs   the servers of the partition
//!                       client_directed.rs   the node cache of the application
//!                       plain_file.rs        the file cache of the group, above a plain file
//!                       two_phase/           aggregators for collective accesses, above one of the others
//! ```
//! Always: a collective access that a method does not override is the independent access of each member.

use std::sync::Arc;

use pario_server::store::CacheStats;

use super::file::GroupFileInner;
use super::two_phase::TwoPhaseCounts;
use crate::client::{File, Guarded, StreamRange, WriteSource};
use crate::error::Result;
use crate::fleet::file_cache::Placement;
use crate::fleet::node_cache::TierStats;
use crate::group::Group;

/// The group and the file of an access.
#[derive(Clone, Copy)]
pub(super) struct GroupAccess<'a> {
    pub(super) group: &'a Arc<dyn Group>,
    pub(super) file: &'a File,
}

/// The part of one member in a collective access.
pub(super) struct MemberAccess<'a> {
    pub(super) inner: &'a GroupFileInner,
    /// In elementary types of the view.
    pub(super) offset: u64,
}

impl MemberAccess<'_> {
    /// Carried out without the other members.
    pub(super) fn write(&self, source: &WriteSource<'_>) -> Result<()> {
        self.inner.write(self.offset, source)
    }

    /// Carried out without the other members.
    pub(super) fn read(&self, target: &mut [u8]) -> Result<usize> {
        self.inner.read(self.offset, target)
    }

    /// The stream range of so many bytes.
    pub(super) fn locate(&self, bytes: usize) -> Result<StreamRange> {
        self.inner.locate(self.offset, bytes)
    }

    /// Whether overlapping accesses of the group must be serialised.
    pub(super) fn is_atomic(&self) -> bool {
        self.inner.atomic.is_on()
    }

    pub(super) fn file(&self) -> &File {
        &self.inner.file
    }
}

/// Counters of this process; `None` where the method has none.
#[derive(Clone, Debug, Default)]
pub(super) struct MethodStats {
    pub(super) node_cache: Option<TierStats>,
    pub(super) file_cache: Option<CacheStats>,
    pub(super) placement: Option<Placement>,
    pub(super) two_phase: Option<TwoPhaseCounts>,
}

/// See the module head. `write`, `read`, `len` and `stats` are independent, all others collective.
pub(super) trait Method: std::fmt::Debug + Send + Sync {
    /// Writes a range of a stream.
    fn write(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
        guarded: Guarded,
    ) -> Result<()>;

    /// Reads a range of a stream; returns the number of bytes before the end of the file.
    fn read(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize>;

    /// Writes together with all members. A member with an invalid source reports it to the others in the call where they would wait.
    fn write_all(&self, access: &MemberAccess<'_>, source: Result<WriteSource<'_>>) -> Result<()> {
        access.write(&source?)
    }

    /// Reads together with all members.
    fn read_all(&self, access: &MemberAccess<'_>, target: &mut [u8]) -> Result<usize> {
        access.read(target)
    }

    /// The file's length.
    fn len(&self, on: GroupAccess<'_>) -> Result<u64>;

    /// Truncates or extends the file to a length that all members agreed on.
    fn set_len(&self, on: GroupAccess<'_>, bytes: u64) -> Result<()>;

    /// Writes the group's data to stable storage.
    fn sync(&self, on: GroupAccess<'_>) -> Result<()>;

    /// Closes the file; an error of any member is returned on all.
    fn close(&self, on: GroupAccess<'_>) -> Result<()>;

    /// Counters of this process.
    fn stats(&self) -> MethodStats {
        MethodStats::default()
    }

    /// Whether a cache lies between the file and the servers of its partition.
    fn is_cached(&self) -> bool {
        false
    }

    /// Whether a contiguous access that covers several blocks needs a lock to be atomic, as one of the partition's servers does not.
    fn locks_several_blocks(&self) -> bool {
        false
    }
}
