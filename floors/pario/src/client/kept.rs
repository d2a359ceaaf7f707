//! What a tier that keeps a file's blocks needs of its handle: accesses under a lease that it watches over.
//!
//! Never: for anybody but a guardian. Always: an access under the lease that is held does not wait for one.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use pario_core::{Code, Fault, InodeId};
use pario_net::message::Want;
use pario_view::{Datatype, View};

use super::file::File;
use super::lease::{Access, Guardian};
use super::memory::Source;
use super::mount::Mount;
use super::stream_write::Place;

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

    /// Writes bytes at several places, in ascending order, as one stream under an access that was begun.
    pub(crate) fn write_scattered<'a>(
        &self,
        access: &Access<'_>,
        parts: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), Fault> {
        let (mut lengths, mut places, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (offset, data) in parts {
            let number = |n: u64| i64::try_from(n).map_err(|_| Fault::from(Code::TooLarge));
            lengths.push(number(data.len() as u64)?);
            places.push(number(offset)?);
            bytes.extend_from_slice(data);
        }
        let invalid = |error: &dyn std::fmt::Display| Fault::new(Code::Invalid, error.to_string());
        let byte = Datatype::elementary(1).map_err(|error| invalid(&error))?;
        let filetype = Datatype::hindexed(&lengths, &places, &byte).map_err(|error| invalid(&error))?;
        let view =
            View::new(0, &byte, &filetype, pario_view::Access::Write).map_err(|error| invalid(&error))?;
        let view = self.inner.file.mount.number_view(view)?;
        let place = Place::new(view, 0..bytes.len() as u64);
        self.inner.file.write_stream_under(access, &place, &Source::Bytes(&bytes), &self.inner.heard)
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
