//! A handle of a file.

use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pario_core::{Code, Fault, FileAttr, Layout, ServerIndex};
use pario_net::message::{At, FoundLock, NameReply, NameRequest, Phase, Reply, Request};
use pario_net::outbox::Gathering;
use pario_view::View;

use super::counts::Counts;
use super::locks::{AccessLock, Guarded, Kind, LockOptions, PendingLock, RangeLock};
use super::memory::Source;
use super::mount::odd;
use super::open_file::OpenFile;
use super::pending::Pending;
use super::pointer::Pointer;
use super::stream_write::Place;
use super::sync::Names;
use super::views::NumberedView;
use crate::error::Result;
use crate::group::Group;
use crate::partition::choices::Method;

/// Gathered writes up to this size are one record or one message.
const GATHER_BYTES_MAX: usize = 1 << 20;

/// An open file of a partition. All methods take `&self`: a handle can be shared by threads.
///
/// ```
/// let partition = pario::Partition::in_process(4)?;
/// let file = partition.create("field")?;
/// file.write_at(0, b"hello")?;
/// let mut bytes = [0; 5];
/// assert_eq!(file.read_at(0, &mut bytes)?, 5);
/// assert_eq!(&bytes, b"hello");
/// file.sync()?;                      // on stable storage
/// file.close()?;                     // in every server's store, and errors are told
/// # Ok::<(), pario::Error>(())
/// ```
pub struct File {
    pub(super) inner: Arc<Handle>,
}

pub(super) struct Handle {
    pub(super) file: Arc<OpenFile>,
    read: bool,
    write: bool,
    /// Faults that this handle has been told of.
    pub(super) heard: AtomicU64,
    closed: AtomicBool,
    /// Tells its locks from those of other handles.
    lane: u64,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("File").field(&self.inner.file.describe()).finish()
    }
}

impl File {
    pub(super) fn new(file: Arc<OpenFile>, read: bool, write: bool) -> File {
        let heard = AtomicU64::new(file.faults_so_far());
        let lane = file.mount.number();
        File { inner: Arc::new(Handle { file, read, write, heard, closed: AtomicBool::new(false), lane }) }
    }

    /// Writes all of `data` at `offset`. It may return before the servers have the bytes; [`File::sync`] and [`File::close`]
    /// tell of errors that happened later.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write_at(offset, data)
    }

    /// Reads into `target` from `offset` on; returns how many bytes there were before the end of the file.
    pub fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.inner.read_at(offset, target)
    }

    /// Reads exactly `target.len()` bytes, or fails.
    pub fn read_exact_at(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let count = self.read_at(offset, target)?;
        if count == target.len() {
            return Ok(());
        }
        let text = format!(
            "{}: {} bytes wanted at {offset}, {count} before the end",
            self.inner.file.describe(),
            target.len()
        );
        Err(Fault::new(Code::Invalid, text).into())
    }

    /// Writes several buffers one after the other from `offset` on.
    pub fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total <= GATHER_BYTES_MAX {
            let mut bytes = Vec::with_capacity(total);
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            return self.write_at(offset, &bytes);
        }
        let mut at = offset;
        for part in parts {
            self.write_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Fills several buffers one after the other from `offset` on; returns how many bytes there were.
    pub fn read_vectored_at(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let mut done = 0;
        for part in parts {
            let count = self.read_at(offset + done as u64, part)?;
            done += count;
            if count < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Starts writing `data` at `offset` and returns at once; the result comes with [`Pending::wait`].
    pub fn start_write_at(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let handle = Arc::clone(&self.inner);
        self.inner.file.mount.start_call(move || handle.write_at(offset, &data).map(|()| data))
    }

    /// Starts reading into `target` from `offset` on; the buffer comes back, cut to what was read, with [`Pending::wait`].
    pub fn start_read_at(&self, offset: u64, mut target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let handle = Arc::clone(&self.inner);
        self.inner.file.mount.start_call(move || {
            let count = handle.read_at(offset, &mut target)?;
            target.truncate(count);
            Ok(target)
        })
    }

    /// Carries out `work` on one of the mount's threads.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.inner.file.mount.start_call(work)
    }

    /// Gives a view its number in this mount.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>> {
        Ok(self.inner.file.mount.number_view(view)?)
    }

    /// Writes to a range of a stream.
    pub(crate) fn write_stream(&self, place: &Place, source: &Source<'_>, guarded: Guarded) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        Ok(self.inner.file.write_stream(place, source, (&self.inner.heard, guarded))?)
    }

    /// Reads a range of a stream; returns how many bytes there were before the file's end.
    pub(crate) fn read_stream(&self, place: &Place, target: &mut [u8], guarded: Guarded) -> Result<usize> {
        self.inner.check_open()?;
        self.inner.check_readable()?;
        Ok(self.inner.file.read_stream(place, target, guarded)?)
    }

    /// Keeps others from what an access to a range of a stream touches, until it is dropped.
    pub(crate) fn lock_place(&self, place: &Place, kind: Kind) -> Result<Option<AccessLock>> {
        self.inner.check_open()?;
        Ok(self.inner.file.lock_place(place, kind)?)
    }

    /// Locks a range: no other holder has a lock there that excludes it. Advisory: accesses do not look at locks. All locks of a
    /// process on a file end when its last handle is closed.
    pub fn lock(&self, range: impl RangeBounds<u64>, options: &LockOptions) -> Result<RangeLock> {
        self.inner.check_open()?;
        self.inner.file.lock_user(&range, options, self.inner.lane)
    }

    /// Starts waiting for a lock, so that the wish can be taken back.
    pub fn start_lock(&self, range: impl RangeBounds<u64>, options: &LockOptions) -> Result<PendingLock> {
        self.inner.check_open()?;
        self.inner.file.start_lock_user(&range, options, self.inner.lane)
    }

    /// A lock that [`File::lock`] would have to wait for, or have back from a holder that keeps it without using it.
    pub fn find_lock(
        &self,
        range: impl RangeBounds<u64>,
        options: &LockOptions,
    ) -> Result<Option<FoundLock>> {
        self.inner.check_open()?;
        self.inner.file.find_user(&range, options, self.inner.lane)
    }

    /// A shared pointer of a group that has this file open.
    pub(crate) fn pointer(&self, group: u64) -> Pointer {
        Pointer::new(Arc::clone(&self.inner.file), group)
    }

    /// Whether this process shares memory with the manager.
    pub(crate) fn manager_near(&self) -> Result<bool> {
        Ok(self.inner.file.mount.connection(ServerIndex::MANAGER)?.shares_memory())
    }

    /// Whether this process shares memory with every server that the file lies on.
    pub(crate) fn servers_near(&self) -> Result<bool> {
        let file = &self.inner.file;
        for server in file.layout.servers() {
            if !file.mount.connection(server)?.shares_memory() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the mount has done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.inner.file.mount.counts()
    }

    /// The method set for the partition.
    pub(crate) fn partition_method(&self) -> Method {
        self.inner.file.mount.method()
    }

    /// A group opened it; this process is its member `rank`, and `near` of its `size` members are on this node.
    pub(crate) fn join_group(&self, rank: usize, near: usize, size: usize) {
        self.inner.file.join_group(rank, near, size);
    }

    /// It is about to be read, and may not be written by this handle.
    pub(crate) fn get_ready_to_read(&self) {
        self.inner.file.get_ready_to_read();
    }

    /// It is about to be written, by several processes.
    pub(crate) fn get_ready_to_write(&self) {
        self.inner.file.get_ready_to_write();
    }

    /// Whether the handle may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.inner.write
    }

    /// The file's place, for messages.
    pub(crate) fn place(&self) -> String {
        self.inner.file.describe()
    }

    /// Tells servers, until what it returns is dropped, that this process is in a call that all members of its group make.
    pub(crate) fn gather(&self, group: &dyn Group) -> Option<Gathering> {
        self.inner.file.gather(group)
    }

    /// Closes a handle that others may still refer to.
    pub(crate) fn close_shared(&self) -> Result<()> {
        self.inner.close(None)
    }

    /// The same as part of a call that all members of a group make.
    pub(crate) fn close_member(&self, gathering: Option<&Gathering>) -> Result<()> {
        self.inner.close(gathering)
    }

    /// Puts what this process wrote to the file on stable storage, and tells of errors that happened in the background.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        Ok(self.inner.file.sync(&self.inner.heard, Names::Always, None)?)
    }

    /// The same for a member of a group that syncs as a whole.
    pub(crate) fn sync_member(&self, rank: usize, gathering: Option<&Gathering>) -> Result<()> {
        self.inner.check_open()?;
        let names = if rank == 0 { Names::Always } else { Names::IfWritten };
        Ok(self.inner.file.sync(&self.inner.heard, names, gathering)?)
    }

    /// The file's length now. What other processes write behind is recalled first.
    pub fn len(&self) -> Result<u64> {
        self.inner.check_open()?;
        let file = &self.inner.file;
        if file.phase() == Some(Phase::Exclusive {}) {
            return Ok(file.size.load(Ordering::Acquire));
        }
        Ok(self.attr()?.size)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Attributes, with the length that this process knows.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn attr(&self) -> Result<FileAttr> {
        self.inner.check_open()?;
        let file = &self.inner.file;
        let request = NameRequest::Stat { at: At::inode(file.inode), follow: false };
        match file.mount.name_call(request)? {
            NameReply::Attr { attr } => {
                Ok(FileAttr { size: attr.size.max(file.unreported_end.load(Ordering::Acquire)), ..attr })
            }
            other => Err(odd(&Reply::Name { reply: other }).into()),
        }
    }

    /// Cuts the file, or makes it longer by a hole.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        let file = &self.inner.file;
        // A server that does not take what we wrote does not cut either; one wait for it is enough.
        file.drain()?;
        // Our own lease would be recalled anyway; and our length must be known before it is changed.
        file.release();
        if let Some(end) = file.end_to_report() {
            file.mount.call(ServerIndex::MANAGER, &Request::Extend { inode: file.inode, end })?;
            file.end_reported(Some(end));
        }
        match file.mount.call(ServerIndex::MANAGER, &Request::SetLength { inode: file.inode, bytes })?.reply {
            Reply::Length { bytes, .. } => {
                file.size.store(bytes, Ordering::Release);
                Ok(())
            }
            other => Err(odd(&other).into()),
        }
    }

    /// The file is known to be at least so long: by something else than a write of ours. The manager is told.
    pub(crate) fn found_length(&self, bytes: u64) -> Result<()> {
        let file = &self.inner.file;
        if file.size.fetch_max(bytes, Ordering::AcqRel) < bytes {
            file.mount.call(ServerIndex::MANAGER, &Request::Extend { inode: file.inode, end: bytes })?;
        }
        Ok(())
    }

    /// What was asked for ahead is not used: others may have written it since.
    pub(crate) fn forget_ahead(&self) {
        self.inner.file.discard_ahead();
    }

    /// Servers that were reached once and are gone.
    pub(crate) fn gone_servers(&self) -> Vec<ServerIndex> {
        let mount = &self.inner.file.mount;
        mount.look_after_links();
        mount.server_indices().filter(|server| mount.live_connection(*server).is_none()).collect()
    }

    /// How the file lies on the servers.
    pub fn layout(&self) -> Layout {
        self.inner.file.layout
    }

    /// Closes the handle: every server's store has what was written, and errors that happened in the background are told.
    pub fn close(self) -> Result<()> {
        self.inner.close(None)
    }
}

impl Handle {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_open()?;
        self.check_writable()?;
        Ok(self.file.write(offset, data, (&self.heard, Guarded::No))?)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.check_open()?;
        self.check_readable()?;
        Ok(self.file.read(offset, target, Guarded::No)?)
    }

    pub(super) fn check_readable(&self) -> Result<()> {
        if self.read {
            return Ok(());
        }
        Err(Fault::new(Code::NotReadable, format!("{} is open for writing only", self.file.describe()))
            .into())
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Fault::new(Code::Closed, format!("{} is closed", self.file.describe())).into());
        }
        Ok(())
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if self.write {
            return Ok(());
        }
        Err(Fault::new(Code::NotWritable, format!("{} is open for reading only", self.file.describe()))
            .into())
    }

    fn close(&self, gathering: Option<&Gathering>) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.file.leave_lane(self.lane);
        Ok(self.file.close(&self.heard, gathering)?)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire) || !self.file.mount.is_own_process() {
            return;
        }
        if let Err(error) = self.close(None) {
            tracing::warn!(%error, "a file that was not closed explicitly had an error");
        }
    }
}
