//! Collective accesses that go on while the caller computes: non-blocking, and in two halves as MPI's split collectives.
//!
//! Always: collective accesses of one file run in the order in which they were started, on every rank, on one thread of the file's
//! own; so that ranks meet in the same access whatever the method.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use pario_core::limits::IN_FLIGHT_MAX;
use pario_core::{Code, Fault};

use super::file::GroupFile;
use crate::client::Pending;
use crate::error::Result;

type Job = Box<dyn FnOnce() + Send>;

/// The thread that carries out a file's collective accesses; started with the first that does not block.
#[derive(Debug, Default)]
pub(super) struct Line {
    jobs: OnceLock<SyncSender<Job>>,
    /// The first half of a split collective whose second half is to come.
    split: Mutex<Option<Split>>,
}

#[derive(Debug)]
enum Split {
    Write(Pending<Vec<u8>>),
    Read(Pending<Vec<u8>>),
}

impl Line {
    /// Runs `work` behind everything that was started before.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        let (pending, finish) = Pending::new();
        let job: Job = Box::new(move || finish(work()));
        if self.jobs.get().is_none() {
            let jobs = start_thread()?;
            // Of two threads that start it at once one is too many; it ends with its channel.
            let _ = self.jobs.set(jobs);
        }
        let gone = || Fault::new(Code::Closed, "the thread for a file's collective accesses is gone");
        self.jobs.get().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        Ok(pending)
    }

    /// Runs `work` behind everything that was started before, and waits for it.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let Some(jobs) = self.jobs.get() else { return work() };
        // Only this thread starts accesses of this file, or the order would mean nothing: when the line is empty it stays so.
        let (done, over) = sync_channel::<()>(0);
        let gone = |_| Fault::new(Code::Closed, "the thread for a file's collective accesses is gone");
        let tell: Job = Box::new(move || {
            // Nobody to tell if the caller is gone.
            let _ = done.send(());
        });
        jobs.send(tell).map_err(|_| gone(()))?;
        over.recv().map_err(|_| gone(()))?;
        work()
    }
}

fn start_thread() -> Result<SyncSender<Job>> {
    let (jobs, inbox): (SyncSender<Job>, Receiver<Job>) = sync_channel(IN_FLIGHT_MAX);
    let spawned = std::thread::Builder::new().name("pario-collective".into()).spawn(move || {
        while let Ok(job) = inbox.recv() {
            job();
        }
    });
    spawned.map_err(|error| Fault::from_io(&error, "starting a thread for collective accesses"))?;
    Ok(jobs)
}

impl GroupFile {
    /// Starts [`GroupFile::write_at_all`]; the bytes come back with [`Pending::wait`].
    pub fn start_write_at_all(&self, offset: u64, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let file = self.share();
        self.line().start(move || file.write_at_all_now(offset, &data).map(|()| data))
    }

    /// Starts [`GroupFile::read_at_all`]; the buffer comes back, cut to what was read.
    pub fn start_read_at_all(&self, offset: u64, mut target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let file = self.share();
        self.line().start(move || {
            let count = file.read_at_all_now(offset, &mut target)?;
            target.truncate(count);
            Ok(target)
        })
    }

    /// First half of a collective write at an offset; nothing else collective may be started before [`GroupFile::end_write_all`].
    pub fn begin_write_at_all(&self, offset: u64, data: Vec<u8>) -> Result<()> {
        self.begin(|| self.start_write_at_all(offset, data).map(Split::Write))
    }

    /// First half of a collective write at the individual pointer, which moves at once.
    pub fn begin_write_all(&self, data: Vec<u8>) -> Result<()> {
        self.begin(|| {
            let offset = self.advance_all(data.len());
            self.start_write_at_all(offset, data).map(Split::Write)
        })
    }

    /// First half of a collective read at an offset; the bytes come with [`GroupFile::end_read_all`].
    pub fn begin_read_at_all(&self, offset: u64, target: Vec<u8>) -> Result<()> {
        self.begin(|| self.start_read_at_all(offset, target).map(Split::Read))
    }

    /// First half of a collective read at the individual pointer, which moves by the whole length at once.
    pub fn begin_read_all(&self, target: Vec<u8>) -> Result<()> {
        self.begin(|| {
            let offset = self.advance_all(target.len());
            self.start_read_at_all(offset, target).map(Split::Read)
        })
    }

    /// Second half of a collective write.
    pub fn end_write_all(&self) -> Result<Vec<u8>> {
        match self.take_split()? {
            Split::Write(pending) => pending.wait(),
            read @ Split::Read(_) => self.wrong_half(read, "read"),
        }
    }

    /// Second half of a collective read: the buffer, cut to what was read.
    pub fn end_read_all(&self) -> Result<Vec<u8>> {
        match self.take_split()? {
            Split::Read(pending) => pending.wait(),
            write @ Split::Write(_) => self.wrong_half(write, "write"),
        }
    }

    fn begin(&self, start: impl FnOnce() -> Result<Split>) -> Result<()> {
        let mut split = self.line().split.lock().unwrap_or_else(PoisonError::into_inner);
        if split.is_some() {
            let text = format!("{}: a split collective access is under way already", self.place());
            return Err(Fault::new(Code::Invalid, text).into());
        }
        *split = Some(start()?);
        Ok(())
    }

    fn take_split(&self) -> Result<Split> {
        let split = self.line().split.lock().unwrap_or_else(PoisonError::into_inner).take();
        let text = || format!("{}: no split collective access was begun", self.place());
        split.ok_or_else(|| Fault::new(Code::Invalid, text()).into())
    }

    fn wrong_half(&self, split: Split, what: &str) -> Result<Vec<u8>> {
        *self.line().split.lock().unwrap_or_else(PoisonError::into_inner) = Some(split);
        Err(Fault::new(Code::Invalid, format!("{}: the access under way is a {what}", self.place())).into())
    }
}
