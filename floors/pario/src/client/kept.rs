//! What a tier that keeps a file's blocks needs of its handle: accesses under a lease that it watches over.
//!
//! Never: for anybody but a guardian. Always: an access under the lease that is held does not wait for one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use pario_core::{Fault, InodeId};
use pario_net::message::Want;

use super::file::File;
use super::lease::{Access, Guardian};
use super::mount::Mount;

impl File {
    /// Fails unless the handle is open and may write.
    pub(crate) fn check_writes(&self) -> crate::error::Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()
    }

    /// Fails unless the handle is open and may read.
    pub(crate) fn check_reads(&self) -> crate::error::Result<()> {
        self.inner.check_open()?;
        self.inner.check_readable()
    }

    /// Begins an access of the file, for those who keep something under its lease.
    pub(crate) fn access(&self, want: Want) -> Result<Access<'_>, Fault> {
        self.inner.file.access(want)
    }

    /// An access under the lease that has been held since `epoch`; only for the file's guardian.
    pub(crate) fn access_held(&self, epoch: u64) -> Option<Access<'_>> {
        self.inner.file.access_held(epoch)
    }

    /// Writes under an access that was begun.
    pub(crate) fn write_under(&self, access: &Access<'_>, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let range = offset..offset + data.len() as u64;
        self.inner.file.write_under(access, range, data, &self.inner.heard)
    }

    /// Reads under an access that was begun.
    pub(crate) fn read_under(
        &self,
        access: &Access<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        self.inner.file.read_under(access, offset, target)
    }

    /// Sets who is told before a lease of the file goes back.
    pub(crate) fn set_guardian(&self, guardian: Weak<dyn Guardian>) {
        self.inner.file.set_guardian(guardian);
    }

    /// The length as this process knows it.
    pub(crate) fn known_size(&self) -> u64 {
        self.inner.file.size.load(Ordering::Acquire)
    }

    /// Waits until every server's store has what was written, and tells of errors, as closing does.
    pub(crate) fn put_down(&self) -> Result<(), Fault> {
        self.inner.file.put_down(&self.inner.heard)
    }

    /// The file's number.
    pub(crate) fn inode(&self) -> InodeId {
        self.inner.file.inode
    }

    /// The path that it was opened by.
    pub(crate) fn path(&self) -> &str {
        &self.inner.file.path
    }

    /// The mount that it was opened from.
    pub(crate) fn mount(&self) -> &Arc<Mount> {
        &self.inner.file.mount
    }
}
