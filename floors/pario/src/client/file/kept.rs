//! The accesses that a node cache needs from a file's handle: under a lease that the cache observes.
//!
//! Never: for any caller but a lease observer. Always: an access under the held lease does not wait for a lease.

use std::sync::{Arc, Weak};

use pario_core::{Code, Fault, InodeId};
use pario_net::message::{Phase, Want};
use pario_view::{Datatype, View};

use crate::client::file::handle::File;
use crate::client::file::lease::{LeaseObserver, LeasedAccess};
use crate::client::file::locks::Guarded;
use crate::client::file::read::range::FileReader;
use crate::client::file::write::memory::WriteSource;
use crate::client::file::write::stream::StreamRange;
use crate::client::session::state::Session;

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

    /// Begins an access of the file, for a cache that keeps data under its lease.
    pub(crate) fn access(&self, want: Want) -> Result<LeasedAccess<'_>, Fault> {
        self.inner.file.lease.access(want)
    }

    /// An access under the lease that has been held since `epoch`; only for the file's lease observer.
    pub(crate) fn access_held(&self, epoch: u64) -> Option<LeasedAccess<'_>> {
        self.inner.file.lease.access_held(epoch)
    }

    /// Writes under an access that was begun.
    pub(crate) fn write_under(
        &self,
        access: &LeasedAccess<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Fault> {
        let range = offset..offset + data.len() as u64;
        self.inner.writer(Guarded::No).write_under(access, range, data)
    }

    /// Writes bytes at several offsets, in ascending order, as one stream under an access that was begun.
    pub(crate) fn write_scattered<'a>(
        &self,
        access: &LeasedAccess<'_>,
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
            View::new(0, &byte, &filetype, pario_view::ViewAccess::Write).map_err(|error| invalid(&error))?;
        let view = self.inner.file.context.session.number_view(view)?;
        let place = StreamRange::new(view, 0..bytes.len() as u64);
        self.inner.writer(Guarded::No).write_stream_under(access, &place, &WriteSource::Bytes(&bytes))
    }

    /// Reads under an access that was begun.
    pub(crate) fn read_under(
        &self,
        access: &LeasedAccess<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        FileReader { file: &self.inner.file, guarded: Guarded::No }.read_under(access, offset, target)
    }

    /// Adds an observer that is notified before a lease of the file is returned.
    pub fn add_observer(&self, observer: Weak<dyn LeaseObserver>) {
        self.inner.file.lease.add_observer(observer);
    }

    /// Whether bytes that were read stay valid until an observer of the lease is notified.
    pub fn keeps_reads(&self) -> bool {
        matches!(self.inner.file.lease.phase(), Some(Phase::Exclusive {} | Phase::Read {}))
    }

    /// The length that this process knows.
    pub(crate) fn known_size(&self) -> u64 {
        self.inner.file.data.length.known()
    }

    /// Waits until every server's store has the written data, and returns errors, as close does.
    pub(crate) fn flush(&self) -> Result<(), Fault> {
        self.inner.file.flush(&self.inner.reported)
    }

    /// The file's inode number.
    pub fn inode(&self) -> InodeId {
        self.inner.file.context.inode
    }

    /// The path that it was opened with.
    pub(crate) fn path(&self) -> &str {
        &self.inner.file.context.path
    }

    /// The session that it was opened in.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.inner.file.context.session
    }
}
