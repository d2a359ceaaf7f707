//! A handle of an open file.

use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pario_core::{Code, Fault, FileAttr, Layout, ServerIndex};
use pario_net::message::{At, FoundLock, NameReply, NameRequest, Phase, Reply, Request};
use pario_net::outbox::CollectiveWait;
use pario_view::View;

use crate::client::file::locks::{
    AccessKind, AccessLock, Guarded, LockCancel, LockOptions, PendingLock, RangeLock,
};
use crate::client::file::locks::{
    append, find_user, forget_owner, lock_stream_range, lock_user, lock_user_cancellable, start_lock_user,
};
use crate::client::file::pointer::GroupPointer;
use crate::client::file::read::range::FileReader;
use crate::client::file::state::OpenFile;
use crate::client::file::sync::NameSync;
use crate::client::file::write::memory::WriteSource;
use crate::client::file::write::range::FileWriter;
use crate::client::file::write::stream::StreamRange;
use crate::client::session::counts::Counts;
use crate::client::session::executor::Pending;
use crate::client::session::state::unexpected_reply;
use crate::client::session::views::NumberedView;
use crate::error::Result;
use crate::group::Group;
use crate::partition::choices::Method;

/// Vectored writes up to this size are one record or one message.
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
/// file.close()?;                     // in every server's store, and errors are returned
/// # Ok::<(), pario::Error>(())
/// ```
pub struct File {
    pub(in crate::client) inner: Arc<FileHandle>,
}

pub(in crate::client) struct FileHandle {
    pub(in crate::client) file: Arc<OpenFile>,
    read: bool,
    write: bool,
    /// Number of faults already reported to this handle.
    pub(in crate::client) reported: AtomicU64,
    closed: AtomicBool,
    /// Distinguishes its locks from those of other handles.
    pub(in crate::client) owner_slot: u64,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("File").field(&self.inner.file.context.describe()).finish()
    }
}

impl File {
    pub(in crate::client) fn new(file: Arc<OpenFile>, read: bool, write: bool) -> File {
        let heard = AtomicU64::new(file.data.faults.so_far());
        let lane = file.context.session.number();
        File {
            inner: Arc::new(FileHandle {
                file,
                read,
                write,
                reported: heard,
                closed: AtomicBool::new(false),
                owner_slot: lane,
            }),
        }
    }

    /// Writes all of `data` at `offset`. It may return before the servers have the bytes; [`File::sync`] and [`File::close`] return errors
    /// that happened later.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write_at(offset, data)
    }

    /// Writes all of `data` at the end of the file, and returns the offset. Appends of all processes are atomic: each lies after the
    /// other, none overwrites another. Otherwise as [`File::write_at`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        Ok(append(&self.inner.file, data, &self.inner.reported)?)
    }

    /// Reads into `target` from `offset` on; returns the number of bytes before the end of the file.
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
            "{}: {} bytes requested at offset {offset}, only {count} before the end of the file",
            self.inner.file.context.describe(),
            target.len()
        );
        Err(Fault::new(Code::Invalid, text).into())
    }

    /// Writes several buffers one after the other from `offset` on. Large ones are not copied together.
    pub fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        if self.inner.writer(Guarded::No).write_large_parts(offset, parts)? {
            return Ok(());
        }
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

    /// Fills several buffers one after the other from `offset` on; returns the number of bytes read.
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

    /// Starts writing `data` at `offset` and returns immediately; [`Pending::wait`] returns the result.
    pub fn start_write_at(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let handle = Arc::clone(&self.inner);
        self.inner.file.context.session.start_call(move || handle.write_at(offset, &data).map(|()| data))
    }

    /// Starts reading into `target` from `offset` on; [`Pending::wait`] returns the buffer, truncated to the bytes read.
    pub fn start_read_at(&self, offset: u64, mut target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let handle = Arc::clone(&self.inner);
        self.inner.file.context.session.start_call(move || {
            let count = handle.read_at(offset, &mut target)?;
            target.truncate(count);
            Ok(target)
        })
    }

    /// Runs `work` on one of the session's worker threads.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.inner.file.context.session.start_call(work)
    }

    /// Gives a view its number in this session.
    pub(crate) fn number_view(&self, view: View) -> Result<Arc<NumberedView>> {
        Ok(self.inner.file.context.session.number_view(view)?)
    }

    /// Writes to a range of a stream.
    pub(crate) fn write_stream(
        &self,
        place: &StreamRange,
        source: &WriteSource<'_>,
        guarded: Guarded,
    ) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        Ok(self.inner.writer(guarded).write_stream(place, source)?)
    }

    /// Reads a range of a stream; returns the number of bytes before the file's end.
    pub(crate) fn read_stream(
        &self,
        place: &StreamRange,
        target: &mut [u8],
        guarded: Guarded,
    ) -> Result<usize> {
        self.inner.check_open()?;
        self.inner.check_readable()?;
        Ok(FileReader { file: &self.inner.file, guarded }.read_stream(place, target)?)
    }

    /// Locks the bytes that an access to a range of a stream touches, until it is dropped.
    pub(crate) fn lock_stream_range(
        &self,
        place: &StreamRange,
        kind: AccessKind,
    ) -> Result<Option<AccessLock>> {
        self.inner.check_open()?;
        Ok(lock_stream_range(&self.inner.file, place, kind)?)
    }

    /// Locks a range: no other holder has a conflicting lock there. Advisory: accesses do not check locks. All locks of a process on a
    /// file end when its last handle is closed.
    pub fn lock(&self, range: impl RangeBounds<u64>, options: &LockOptions) -> Result<RangeLock> {
        self.inner.check_open()?;
        lock_user(&self.inner.file, &range, options, self.inner.owner_slot)
    }

    /// As [`File::lock`]; the wait can be cancelled by another thread, then it fails with `Code::Closed`.
    pub fn lock_cancellable(
        &self,
        range: impl RangeBounds<u64>,
        options: &LockOptions,
        cancel: &LockCancel,
    ) -> Result<RangeLock> {
        self.inner.check_open()?;
        lock_user_cancellable(&self.inner.file, &range, (options, cancel), self.inner.owner_slot)
    }

    /// An owner of locks ([`LockHolder::Owner`](crate::LockHolder::Owner)) has ended: what is kept for its next lock is given back.
    pub fn forget_owner(&self, owner: u64) {
        forget_owner(&self.inner.file, owner);
    }

    /// Starts waiting for a lock; the request can be cancelled.
    pub fn start_lock(&self, range: impl RangeBounds<u64>, options: &LockOptions) -> Result<PendingLock> {
        self.inner.check_open()?;
        start_lock_user(&self.inner.file, &range, options, self.inner.owner_slot)
    }

    /// A lock that [`File::lock`] would have to wait for, or recall from a holder that keeps it unused.
    pub fn find_lock(
        &self,
        range: impl RangeBounds<u64>,
        options: &LockOptions,
    ) -> Result<Option<FoundLock>> {
        self.inner.check_open()?;
        find_user(&self.inner.file, &range, options, self.inner.owner_slot)
    }

    /// A shared file pointer of a group that has this file open.
    pub(crate) fn pointer(&self, group: u64) -> GroupPointer {
        GroupPointer::new(Arc::clone(&self.inner.file), group)
    }

    /// Whether this process shares memory with the manager.
    pub(crate) fn manager_is_local(&self) -> Result<bool> {
        Ok(self.inner.file.context.session.connection(ServerIndex::MANAGER)?.shares_memory())
    }

    /// Whether this process shares memory with every server of the file.
    pub(crate) fn servers_are_local(&self) -> Result<bool> {
        let file = &self.inner.file;
        for server in file.context.layout.servers() {
            if !file.context.session.connection(server)?.shares_memory() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The counters of the session.
    pub(crate) fn counts(&self) -> Counts {
        self.inner.file.context.session.counts()
    }

    /// The method set for the partition.
    pub(crate) fn partition_method(&self) -> Method {
        self.inner.file.context.session.method()
    }

    /// A group opened it; this process is member `rank`, and `near` of the group's `size` members are on this node.
    pub(crate) fn join_group(&self, rank: usize, near: usize, size: usize) {
        self.inner.file.context.join_group(rank, near, size);
    }

    /// Prepares for reads of a handle that may not write.
    pub(crate) fn prepare_reads(&self) {
        self.inner.file.prepare_reads();
    }

    /// Prepares for writes of several processes.
    pub(crate) fn prepare_writes(&self) {
        self.inner.file.prepare_writes();
    }

    /// Whether the handle may write.
    pub(crate) fn is_writable(&self) -> bool {
        self.inner.write
    }

    /// Partition and path of the file, for messages.
    pub(crate) fn description(&self) -> String {
        self.inner.file.context.describe()
    }

    /// Signals to the servers, until the returned value is dropped, that this process is in a collective call.
    pub(crate) fn begin_collective_wait(&self, group: &dyn Group) -> Option<CollectiveWait> {
        self.inner.file.data.unflushed.begin_collective_wait(group)
    }

    /// Closes a handle to which other references may exist.
    pub(crate) fn close_shared(&self) -> Result<()> {
        self.inner.close(None)
    }

    /// The same as part of a collective call.
    pub(crate) fn close_member(&self, gathering: Option<&CollectiveWait>) -> Result<()> {
        self.inner.close(gathering)
    }

    /// Waits until every server's store has the writes of this process, and returns errors that happened in the background. The manager
    /// then knows the file's length and the time of its modification.
    pub fn settle(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.file.flush(&self.inner.reported)?;
        self.report_end()
    }

    /// Tells the manager the end of this process's writes, if it does not know it; so the file's length and its time of modification do
    /// not change later on account of these writes.
    pub fn report_end(&self) -> Result<()> {
        Ok(self.inner.file.report_end()?)
    }

    /// Puts the writes of this process to the file on stable storage, and returns errors that happened in the background.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        Ok(self.inner.file.sync(&self.inner.reported, NameSync::Always, None)?)
    }

    /// The same for a member of a group that syncs collectively.
    pub(crate) fn sync_member(&self, rank: usize, gathering: Option<&CollectiveWait>) -> Result<()> {
        self.inner.check_open()?;
        let names = if rank == 0 { NameSync::Always } else { NameSync::IfWritten };
        Ok(self.inner.file.sync(&self.inner.reported, names, gathering)?)
    }

    /// The current length of the file. Buffered writes of other processes are recalled first.
    pub fn len(&self) -> Result<u64> {
        self.inner.check_open()?;
        let file = &self.inner.file;
        if file.lease.phase() == Some(Phase::Exclusive {}) {
            return Ok(file.data.length.known());
        }
        Ok(self.attr()?.size)
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Attributes, with the length that this process knows.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn attr(&self) -> Result<FileAttr> {
        self.inner.check_open()?;
        let file = &self.inner.file;
        let request = NameRequest::Stat { at: At::inode(file.context.inode), follow: false };
        match file.context.session.name_call(request)? {
            NameReply::Attr { attr } => Ok(attr),
            other => Err(unexpected_reply(&Reply::Name { reply: other }).into()),
        }
    }

    /// Truncates the file, or extends it by a hole.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.check_open()?;
        self.inner.check_writable()?;
        let file = &self.inner.file;
        // A server that does not drain records does not truncate either; one wait for it is enough.
        file.data.unflushed.drain()?;
        // The manager would recall the own lease anyway, and must know the current length before it changes.
        file.lease.release();
        if let Some(end) = file.data.length.end_to_report() {
            file.context
                .session
                .call(ServerIndex::MANAGER, &Request::Extend { inode: file.context.inode, end })?;
            file.data.length.end_reported(Some(end));
        }
        match file
            .context
            .session
            .call(ServerIndex::MANAGER, &Request::SetLength { inode: file.context.inode, bytes })?
            .reply
        {
            Reply::Length { bytes, .. } => {
                file.data.length.set(bytes);
                Ok(())
            }
            other => Err(unexpected_reply(&other).into()),
        }
    }

    /// The file is known to be at least this long, by other means than a write of this process. Reports it to the manager.
    pub(crate) fn found_length(&self, bytes: u64) -> Result<()> {
        let file = &self.inner.file;
        if file.data.length.grow(bytes) < bytes {
            file.context
                .session
                .call(ServerIndex::MANAGER, &Request::Extend { inode: file.context.inode, end: bytes })?;
        }
        Ok(())
    }

    /// Discards prefetched data: other clients may have written the bytes since.
    pub(crate) fn discard_prefetched(&self) {
        self.inner.file.data.read_ahead.discard();
    }

    /// Servers that were connected once and are lost.
    pub(crate) fn lost_servers(&self) -> Vec<ServerIndex> {
        let mount = &self.inner.file.context.session;
        mount.check_links();
        mount.server_indices().filter(|server| mount.live_connection(*server).is_none()).collect()
    }

    /// The layout of the file on the servers.
    pub fn layout(&self) -> Layout {
        self.inner.file.context.layout
    }

    /// Closes the handle: waits until every server's store has the written data, and returns errors that happened in the background.
    pub fn close(self) -> Result<()> {
        self.inner.close(None)
    }
}

impl FileHandle {
    pub(super) fn writer(&self, guarded: Guarded) -> FileWriter<'_> {
        FileWriter { file: &self.file, reported: &self.reported, guarded }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_open()?;
        self.check_writable()?;
        Ok(self.writer(Guarded::No).write(offset, data)?)
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize> {
        self.check_open()?;
        self.check_readable()?;
        Ok(FileReader { file: &self.file, guarded: Guarded::No }.read(offset, target)?)
    }

    pub(in crate::client) fn check_readable(&self) -> Result<()> {
        if self.read {
            return Ok(());
        }
        Err(Fault::new(
            Code::NotReadable,
            format!("{} is open for writing only", self.file.context.describe()),
        )
        .into())
    }

    pub(in crate::client) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(
                Fault::new(Code::Closed, format!("{} is closed", self.file.context.describe())).into()
            );
        }
        Ok(self.file.context.session.report_once()?)
    }

    pub(in crate::client) fn check_writable(&self) -> Result<()> {
        if self.write {
            return Ok(());
        }
        Err(Fault::new(
            Code::NotWritable,
            format!("{} is open for reading only", self.file.context.describe()),
        )
        .into())
    }

    fn close(&self, gathering: Option<&CollectiveWait>) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.file.locks.leave_owner_slot(self.owner_slot);
        let closed = self.file.close(&self.reported, gathering);
        self.file.context.session.report_direct_at_close();
        Ok(closed?)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if self.closed.load(Ordering::Acquire) || !self.file.context.session.is_own_process() {
            return;
        }
        if let Err(error) = self.close(None) {
            tracing::warn!(%error, "an error of a file that was dropped without close(); call close() to receive it");
        }
    }
}
