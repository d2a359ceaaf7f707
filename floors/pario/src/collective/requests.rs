//! Non-blocking and split collective accesses, through the file's queue.
//!
//! Always: one split access at a time; its second half is of the same kind as its first.

use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault};

use super::file::GroupFile;
use super::queue::OrderedQueue;
use crate::client::Pending;
use crate::error::Result;

/// A file's queue, and its split access.
#[derive(Debug, Default)]
pub(super) struct CollectiveQueue {
    pub(super) order: Arc<OrderedQueue>,
    /// A split collective that has begun and not ended.
    split: Mutex<Option<SplitAccess>>,
}

#[derive(Debug)]
enum SplitAccess {
    Write(Pending<Vec<u8>>),
    Read(Pending<Vec<u8>>),
}

impl CollectiveQueue {
    /// Queues `work` after all earlier accesses.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        let (pending, finish) = Pending::new();
        self.order.start(Box::new(move || finish(work())))?;
        Ok(pending)
    }

    /// Runs `work` after all earlier accesses. Only this thread starts accesses of this file (otherwise their order would be undefined), so
    /// an empty queue stays empty.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.order.wait_earlier()?;
        work()
    }
}

impl GroupFile {
    /// The queue of this file's collective accesses, for callers with collective work of their own. Collective accesses of this file inside
    /// a job run at once.
    pub fn collective_queue(&self) -> &Arc<OrderedQueue> {
        &self.queue().order
    }

    /// Starts [`GroupFile::write_at_all`]; [`Pending::wait`] returns the buffer.
    pub fn start_write_at_all(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let file = self.another_handle();
        self.queue().start(move || file.write_at_all_now(offset, &data).map(|()| data))
    }

    /// Starts [`GroupFile::read_at_all`]; [`Pending::wait`] returns the buffer, truncated to the bytes read.
    pub fn start_read_at_all(&self, offset: u64, mut target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let file = self.another_handle();
        self.queue().start(move || {
            let count = file.read_at_all_now(offset, &mut target)?;
            target.truncate(count);
            Ok(target)
        })
    }

    /// First half of a collective write at an offset; no other collective access may start before [`GroupFile::end_write_all`].
    pub fn begin_write_at_all(&self, offset: u64, data: Vec<u8>) -> Result<()> {
        self.begin(|| self.start_write_at_all(offset, data).map(SplitAccess::Write))
    }

    /// First half of a collective write at the individual pointer, which advances immediately.
    pub fn begin_write_all(&self, data: Vec<u8>) -> Result<()> {
        self.begin(|| {
            let offset = self.advance_all(data.len());
            self.start_write_at_all(offset, data).map(SplitAccess::Write)
        })
    }

    /// First half of a collective read at an offset; [`GroupFile::end_read_all`] returns the bytes.
    pub fn begin_read_at_all(&self, offset: u64, target: Vec<u8>) -> Result<()> {
        self.begin(|| self.start_read_at_all(offset, target).map(SplitAccess::Read))
    }

    /// First half of a collective read at the individual pointer, which advances immediately by the whole length.
    pub fn begin_read_all(&self, target: Vec<u8>) -> Result<()> {
        self.begin(|| {
            let offset = self.advance_all(target.len());
            self.start_read_at_all(offset, target).map(SplitAccess::Read)
        })
    }

    /// Second half of a collective write.
    pub fn end_write_all(&self) -> Result<Vec<u8>> {
        match self.take_split()? {
            SplitAccess::Write(pending) => pending.wait(),
            read @ SplitAccess::Read(_) => self.wrong_half(read, "read"),
        }
    }

    /// Second half of a collective read: the buffer, truncated to the bytes read.
    pub fn end_read_all(&self) -> Result<Vec<u8>> {
        match self.take_split()? {
            SplitAccess::Read(pending) => pending.wait(),
            write @ SplitAccess::Write(_) => self.wrong_half(write, "write"),
        }
    }

    fn begin(&self, start: impl FnOnce() -> Result<SplitAccess>) -> Result<()> {
        let mut split = self.queue().split.lock().unwrap_or_else(PoisonError::into_inner);
        if split.is_some() {
            let text = format!("{}: a split collective access is already in progress", self.describe());
            return Err(Fault::new(Code::Invalid, text).into());
        }
        *split = Some(start()?);
        Ok(())
    }

    fn take_split(&self) -> Result<SplitAccess> {
        let split = self.queue().split.lock().unwrap_or_else(PoisonError::into_inner).take();
        let text = || format!("{}: no split collective access was begun", self.describe());
        split.ok_or_else(|| Fault::new(Code::Invalid, text()).into())
    }

    fn wrong_half(&self, split: SplitAccess, what: &str) -> Result<Vec<u8>> {
        *self.queue().split.lock().unwrap_or_else(PoisonError::into_inner) = Some(split);
        Err(Fault::new(Code::Invalid, format!("{}: the access in progress is a {what}", self.describe()))
            .into())
    }
}
