//! Files that the export keeps open between requests: NFSv3 has no open and no close.
//!
//! Never: closes a file with unstable writes without a sync; keeps more than [`FILES_MAX`] open, or one that was
//! not used for [`IDLE`]. Always: a file is closed after the last request that uses it; a sync that fails then changes the write verifier,
//! so that clients send their writes again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario::MonotonicClock;
use pario::core::{Clock, InodeId, Nanos};

use crate::semantics::{FileSystem, HandleMode, PosixResult};

/// Open files.
const FILES_MAX: usize = 256;
/// Time without a request until a file is closed.
const IDLE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct OpenFiles {
    system: Arc<FileSystem>,
    open: Mutex<HashMap<OpenKey, Arc<OpenInode>>>,
    losses: Arc<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct OpenKey {
    inode: InodeId,
    writes: bool,
}

/// One open file; closed when it is dropped.
#[derive(Debug)]
pub(super) struct OpenInode {
    /// Its number in the semantics.
    pub(super) number: u64,
    /// It has writes that no sync has covered.
    pub(super) is_unstable: AtomicBool,
    used: AtomicU64,
    system: Arc<FileSystem>,
    losses: Arc<AtomicU64>,
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        let is_unstable = *self.is_unstable.get_mut();
        let synced = if is_unstable { self.system.sync(self.number) } else { Ok(()) };
        let closed = self.system.release(self.number);
        if let Err(error) = synced.and(closed) {
            tracing::warn!(%error, "writes of clients were lost; the write verifier changes");
            self.losses.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl OpenFiles {
    pub(super) fn new(system: &Arc<FileSystem>) -> OpenFiles {
        OpenFiles { system: Arc::clone(system), open: Mutex::default(), losses: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<OpenKey, Arc<OpenInode>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open file of an inode; one that is open for writing also serves reads.
    pub(super) fn get(&self, inode: InodeId, writes: bool) -> PosixResult<Arc<OpenInode>> {
        if let Some(file) = self.find(inode, writes) {
            return Ok(file);
        }
        let number = self.system.open(inode, HandleMode { write: writes, ..HandleMode::default() })?;
        Ok(self.keep(inode, number, writes))
    }

    /// The open file of an inode, if there is one.
    pub(super) fn find(&self, inode: InodeId, writes: bool) -> Option<Arc<OpenInode>> {
        let open = self.open();
        let reads = open.get(&OpenKey { inode, writes: false }).filter(|_| !writes);
        let file = open.get(&OpenKey { inode, writes: true }).or(reads).cloned()?;
        file.used.store(MonotonicClock.now().0, Ordering::Relaxed);
        Some(file)
    }

    /// Keeps a file that is open already, unless a request that ran meanwhile has kept the same one.
    pub(super) fn keep(&self, inode: InodeId, number: u64, writes: bool) -> Arc<OpenInode> {
        let ours = Arc::new(OpenInode {
            number,
            is_unstable: AtomicBool::new(false),
            used: AtomicU64::new(MonotonicClock.now().0),
            system: Arc::clone(&self.system),
            losses: Arc::clone(&self.losses),
        });
        let mut open = self.open();
        let kept = Arc::clone(open.entry(OpenKey { inode, writes }).or_insert_with(|| Arc::clone(&ours)));
        let oldest = if FILES_MAX < open.len() { take_oldest(&mut open) } else { None };
        drop(open);
        // Both may be closed here, without the lock.
        drop((ours, oldest));
        kept
    }

    /// Closes what was not used for some time.
    pub(super) fn close_idle(&self) {
        let now = MonotonicClock.now();
        let is_idle = |file: &Arc<OpenInode>| {
            Arc::strong_count(file) == 1 && IDLE <= now.since(Nanos(file.used.load(Ordering::Relaxed)))
        };
        let idle: Vec<Arc<OpenInode>> =
            self.open().extract_if(|_, file| is_idle(file)).map(|(_, file)| file).collect();
        drop(idle);
    }

    /// Closes a file that has lost its last name, so that its space is freed; its writes need no sync.
    pub(super) fn forget(&self, inode: InodeId) {
        for writes in [false, true] {
            let file = self.open().remove(&OpenKey { inode, writes });
            if let Some(file) = file {
                file.is_unstable.store(false, Ordering::Release);
            }
        }
    }

    /// Closes everything.
    pub(super) fn close_all(&self) {
        let all: Vec<Arc<OpenInode>> = self.open().drain().map(|(_, file)| file).collect();
        drop(all);
    }

    /// Number of closes that lost writes.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }
}

fn take_oldest(open: &mut HashMap<OpenKey, Arc<OpenInode>>) -> Option<Arc<OpenInode>> {
    let unused = open.iter().filter(|(_, file)| Arc::strong_count(file) == 1);
    let oldest = unused.min_by_key(|(_, file)| file.used.load(Ordering::Relaxed)).map(|(key, _)| *key);
    oldest.and_then(|key| open.remove(&key))
}
