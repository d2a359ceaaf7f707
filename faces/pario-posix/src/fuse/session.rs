//! Threads that read requests from the kernel and answer them.
//!
//! One thread reads; when it is busy another one begins to, up to [`THREADS_MAX`]. Never: a wait for a lock on a reading thread. Always:
//! an interrupted wait for a lock is cancelled and answered with `EINTR`, also if the interrupt comes first; other requests are carried
//! out, since they may have happened already.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario::LockCancel;
use pario::core::InodeId;
use rustix::io::Errno;

use super::decode::{DecodeError, FuseOperation, MountLock, MountRequest, decode};
use super::encode;
use super::pages::{PageNotices, mark_serving_thread};
use super::serve::{lock_call, page_request, serve};
use crate::semantics::{FileSystem, LockCall, PosixLockWait, PosixResult};

/// Reading threads.
const THREADS_MAX: usize = 16;
/// A write with its heads.
const MESSAGE_BYTES: usize = encode::DATA_BYTES_MAX + 4096;
/// Requests that wait in queues of the manager: fewer than a client may have there, so that requests that do not wait have room. Further
/// ones wait here for a place, and try again and again.
const QUEUED_MAX: usize = 96;
/// Those of one file: the work of a grant grows with its queue.
const QUEUED_PER_FILE_MAX: usize = 8;
/// Pause between two tries.
const TRY_PAUSE: Duration = Duration::from_millis(500);
/// Interrupts that are remembered because their request is not known to wait.
const EARLY_MAX: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct FuseSession {
    device: File,
    system: FileSystem,
    pages: Arc<PageNotices>,
    waits: Mutex<LockWaits>,
    queue_place_free: Condvar,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    running: Mutex<usize>,
    ended: Condvar,
}

/// Requests that wait for locks.
#[derive(Debug, Default)]
struct LockWaits {
    under_way: HashMap<u64, LockCancel>,
    /// Those that wait in a queue of the manager, by file.
    queued: HashMap<InodeId, usize>,
    queued_total: usize,
    /// Numbers of requests that were interrupted before they began to wait.
    early: VecDeque<u64>,
    is_over: bool,
}

impl LockWaits {
    fn has_place(&self, node: InodeId) -> bool {
        let of_file = self.queued.get(&node).copied().unwrap_or(0);
        of_file < QUEUED_PER_FILE_MAX && self.queued_total < QUEUED_MAX
    }

    fn enter_queue(&mut self, node: InodeId) {
        *self.queued.entry(node).or_default() += 1;
        self.queued_total += 1;
    }

    fn leave_queue(&mut self, node: InodeId) {
        self.queued_total -= 1;
        if let Some(count) = self.queued.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.queued.remove(&node);
            }
        }
    }
}

impl FuseSession {
    /// Starts to serve.
    pub(super) fn start(device: File, system: FileSystem) -> io::Result<Arc<FuseSession>> {
        let pages = PageNotices::start(device.try_clone()?)?;
        system.set_page_keeper(Arc::<PageNotices>::clone(&pages));
        let session = Arc::new(FuseSession {
            device,
            system,
            pages,
            waits: Mutex::default(),
            queue_place_free: Condvar::new(),
            idle: AtomicUsize::new(0),
            running: Mutex::new(0),
            ended: Condvar::new(),
        });
        session.add_thread()?;
        Ok(session)
    }

    /// The file system that is served.
    pub(super) fn system(&self) -> &FileSystem {
        &self.system
    }

    /// Waits until the kernel has ended the session.
    pub(super) fn wait(&self) {
        let mut running = self.running();
        while 0 < *running {
            running = self.ended.wait(running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> MutexGuard<'_, LockWaits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut running = self.running();
        if *running == THREADS_MAX {
            return Ok(());
        }
        let session = Arc::clone(self);
        std::thread::Builder::new().name("pario-mount".into()).spawn(move || session.read_requests())?;
        *running += 1;
        Ok(())
    }

    fn read_requests(self: Arc<Self>) {
        mark_serving_thread();
        let mut message = vec![0; MESSAGE_BYTES];
        loop {
            self.idle.fetch_add(1, Ordering::AcqRel);
            let count = match (&self.device).read(&mut message) {
                Ok(count) => count,
                Err(error) => {
                    self.idle.fetch_sub(1, Ordering::AcqRel);
                    match errno(&error) {
                        Errno::INTR | Errno::AGAIN | Errno::NOENT => continue,
                        Errno::NODEV => break,
                        _ => {
                            tracing::warn!(%error, "/dev/fuse cannot be read; the mount ends");
                            break;
                        }
                    }
                }
            };
            if self.idle.fetch_sub(1, Ordering::AcqRel) == 1
                && let Err(error) = self.add_thread()
            {
                tracing::debug!(%error, "no further thread for the mount");
            }
            self.handle(&message[..count]);
        }
        self.cancel_waits();
        *self.running() -= 1;
        self.ended.notify_all();
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is about files, and not about the session")]
    fn handle(self: &Arc<Self>, message: &[u8]) {
        let request = match decode(message) {
            Ok(request) => request,
            Err(DecodeError { unique }) => {
                tracing::warn!("a malformed request of the kernel is refused");
                return unique.map_or((), |unique| self.reply(unique, Err(Errno::IO)));
            }
        };
        match request.operation {
            FuseOperation::Forget => {}
            FuseOperation::Interrupt { unique } => self.interrupt(unique),
            FuseOperation::Init { minor, flags, flags2 } => {
                self.reply(request.unique, Ok(encode::init(minor, flags, flags2)));
            }
            FuseOperation::Destroy => self.reply(request.unique, Ok(Vec::new())),
            FuseOperation::SetLock { lock, waits: true } => self.set_lock(&request, lock),
            _ => match page_request(&request.operation) {
                Some(handle) => self.serve_pages(&request, handle),
                None => self.reply(request.unique, serve(&self.system, &request)),
            },
        }
    }

    /// A request for the kernel's page cache: its pages are dropped when the lease under which they are valid goes back.
    fn serve_pages(&self, request: &MountRequest<'_>, handle: u64) {
        let inode = InodeId(request.node);
        self.pages.begin_request(inode);
        match self.system.begin_page_access(handle) {
            Ok(access) => {
                self.reply(request.unique, serve(&self.system, request));
                self.pages.end_request(inode);
                if let Some(access) = access {
                    access.end();
                }
            }
            Err(error) => {
                self.reply(request.unique, Err(error));
                self.pages.end_request(inode);
            }
        }
    }

    /// A lock that is free, or a wait for it on a thread of its own.
    fn set_lock(self: &Arc<Self>, request: &MountRequest<'_>, lock: MountLock) {
        match serve(&self.system, request) {
            Err(Errno::AGAIN) => {}
            answer => return self.reply(request.unique, answer),
        }
        let (unique, node) = (request.unique, InodeId(request.node));
        let Some(cancel) = self.begin_wait(unique) else { return self.reply(unique, Err(Errno::INTR)) };
        let session = Arc::clone(self);
        let wait = move || {
            let answer =
                lock_call(&lock).and_then(|call| session.wait_for_lock(node, lock.handle, &call, &cancel));
            session.waits().under_way.remove(&unique);
            session.reply(unique, answer.map(|()| Vec::new()));
        };
        if let Err(error) = std::thread::Builder::new().name("pario-lock".into()).spawn(wait) {
            tracing::warn!(%error, "no thread to wait for a lock");
            self.waits().under_way.remove(&unique);
            self.reply(unique, Err(Errno::NOLCK));
        }
    }

    fn wait_for_lock(
        &self,
        node: InodeId,
        handle: u64,
        call: &LockCall,
        cancel: &LockCancel,
    ) -> PosixResult<()> {
        while !self.take_queue_place(node) {
            if cancel.is_cancelled() {
                return Err(Errno::INTR);
            }
            match self.system.set_lock(handle, call, PosixLockWait::No) {
                Err(Errno::AGAIN) => {}
                answer => return answer,
            }
        }
        let answer = self.system.set_lock(handle, call, PosixLockWait::Until(cancel));
        self.waits().leave_queue(node);
        // Not one: the thread that is woken may wait for a place of another file.
        self.queue_place_free.notify_all();
        answer
    }

    /// A place in a queue of the manager; false if there was none for a while.
    fn take_queue_place(&self, node: InodeId) -> bool {
        let (mut waits, _) = self
            .queue_place_free
            .wait_timeout_while(self.waits(), TRY_PAUSE, |waits| !waits.has_place(node))
            .unwrap_or_else(PoisonError::into_inner);
        let is_free = waits.has_place(node);
        if is_free {
            waits.enter_queue(node);
        }
        is_free
    }

    /// `None`: the request was interrupted already.
    fn begin_wait(&self, unique: u64) -> Option<LockCancel> {
        let mut waits = self.waits();
        if let Some(index) = waits.early.iter().position(|early| *early == unique) {
            waits.early.remove(index);
            return None;
        }
        if waits.is_over {
            return None;
        }
        let cancel = LockCancel::default();
        waits.under_way.insert(unique, cancel.clone());
        Some(cancel)
    }

    fn interrupt(&self, unique: u64) {
        let mut waits = self.waits();
        let Some(cancel) = waits.under_way.get(&unique).cloned() else {
            waits.early.push_back(unique);
            if EARLY_MAX < waits.early.len() {
                waits.early.pop_front();
            }
            return;
        };
        drop(waits);
        cancel.cancel();
    }

    fn cancel_waits(&self) {
        let mut waits = self.waits();
        waits.is_over = true;
        let left: Vec<LockCancel> = waits.under_way.values().cloned().collect();
        drop(waits);
        left.iter().for_each(LockCancel::cancel);
    }

    fn reply(&self, unique: u64, answer: PosixResult<Vec<u8>>) {
        let (error, data) = match answer {
            Ok(data) => (0, data),
            Err(error) => (error.raw_os_error(), Vec::new()),
        };
        let head = encode::head(unique, error, data.len());
        // One call per answer: the kernel takes it whole or not at all.
        let sent = (&self.device).write_vectored(&[IoSlice::new(&head), IoSlice::new(&data)]);
        match sent {
            Ok(_) => {}
            // The calling process was killed meanwhile, or the session has ended.
            Err(error) if matches!(errno(&error), Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::warn!(%error, unique, "the kernel refused an answer"),
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
