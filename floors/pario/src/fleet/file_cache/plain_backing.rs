//! The plain-file side of a collectively opened cached file: the group's servers, and the sync, truncate and close of the plain
//! file.
//!
//! Never: treats a byte as stable that only a server has. Always: every member takes part in every step, even if its own part
//! failed; an error about a dead server names the rank that ran it.

use std::fs::File as StdFile;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault, InodeId};
use pario_server::store::CacheStats;
use pario_server::store::plain_cache::extend;

use super::{CacheFleet, Placement, block};
use crate::client::File;
use crate::error::{Error, Result};
use crate::group::{CollectiveCall, Group};

/// Attempts to identify the dead server when one is unreachable, and the interval between two.
const POLLS_MAX: u32 = 50;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// See the module head.
#[derive(Debug)]
pub(crate) struct PlainBacking {
    caches: Arc<CacheFleet>,
    inode: InodeId,
    name: String,
    placement: Placement,
    path: PathBuf,
    /// Rank 0 maintains the length of the plain file.
    plain: Option<StdFile>,
    accesses: AtomicU64,
    bytes: AtomicU64,
    is_closed: AtomicBool,
}

impl PlainBacking {
    pub(super) fn new(
        cooperation: &Arc<CacheFleet>,
        (inode, name, placement): (InodeId, &str, Placement),
        path: &Path,
        plain: Option<StdFile>,
    ) -> PlainBacking {
        PlainBacking {
            caches: Arc::clone(cooperation),
            inode,
            name: name.to_owned(),
            placement,
            path: path.to_owned(),
            plain,
            accesses: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Counts an access.
    pub(crate) fn count(&self, bytes: usize) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Placement of blocks.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// Counters of the server in this process.
    pub(crate) fn cache_stats(&self) -> Option<CacheStats> {
        self.caches.fleet.own.as_ref().map(|own| own.store.cache_stats())
    }

    /// Writes the group's data to stable storage, and revalidates blocks against the plain file; collective.
    pub(crate) fn sync_group(&self, group: &Arc<dyn Group>, file: &File) -> Result<()> {
        let gathering = file.begin_collective_wait(&**group);
        // Passed as rank 0, so that every member syncs with the manager.
        let mine =
            file.sync_member(0, gathering.as_ref()).map_err(|error| self.name_failed_ranks(file, error));
        group.agree_in(CollectiveCall::Sync, mine)?;
        drop(gathering);
        let bytes = self.agree_length(group, file)?;
        let mine = self.refresh(file, bytes).map_err(|error| self.name_failed_ranks(file, error));
        group.agree(mine)
    }

    /// Makes the length of the file equal in the cache and the plain file; collective.
    fn agree_length(&self, group: &Arc<dyn Group>, file: &File) -> Result<u64> {
        let mine = match &self.plain {
            Some(plain) => file
                .len()
                .map_err(|error| self.name_failed_ranks(file, error))
                .and_then(|bytes| self.match_length(plain, bytes, file.is_writable())),
            None => Ok(0),
        };
        group.agree(mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let told = group.broadcast(0, &mine?.to_le_bytes())?;
        let odd = || Fault::new(Code::NotSame, "rank 0 did not send the length of the file");
        Ok(u64::from_le_bytes(told.as_slice().try_into().map_err(|_| odd())?))
    }

    fn refresh(&self, file: &File, bytes: u64) -> Result<()> {
        file.discard_prefetched();
        file.found_length(bytes)?;
        match &self.caches.fleet.own {
            Some(own) => Ok(own.store.refresh_file(self.inode, bytes)?),
            None => Ok(()),
        }
    }

    /// Extends the plain file if it is shorter than the group's length; returns the length of both.
    fn match_length(&self, plain: &StdFile, bytes: u64, writable: bool) -> Result<u64> {
        let fault = |error| {
            Error::from(Fault::from_io(&error, format!("{}: extending the plain file", self.path.display())))
        };
        if writable {
            extend(plain, bytes).map_err(fault)?;
        }
        Ok(plain.metadata().map_err(fault)?.len().max(bytes))
    }

    /// Truncates or extends the file; collective.
    pub(crate) fn resize(&self, group: &Arc<dyn Group>, file: &File, bytes: u64) -> Result<()> {
        // Servers truncate the plain file together with their blocks, and must know its path.
        if let Some(own) = &self.caches.fleet.own {
            own.store.announce_length(self.inode, bytes);
        }
        group.agree(Ok(()))?;
        let mine = match &self.plain {
            Some(plain) => file
                .set_len(bytes)
                .map_err(|error| self.name_failed_ranks(file, error))
                .and_then(|()| self.match_length(plain, bytes, true))
                .map(|_| ()),
            None => Ok(()),
        };
        group.agree(mine)
    }

    /// Closes the file; collective. Afterwards the plain file has every byte, or all members get the error.
    pub(crate) fn close_group(&self, group: &Arc<dyn Group>, file: &File) -> Result<()> {
        let gathering = file.begin_collective_wait(&**group);
        let mine = file.close_member(gathering.as_ref()).map_err(|error| self.name_failed_ranks(file, error));
        let handles = group.agree_in(CollectiveCall::Close, mine);
        drop(gathering);
        // A missing member does not return: the data of this process is written back all the same.
        if handles.as_ref().is_err_and(|_| group.check().is_err()) {
            return handles.and(self.leave());
        }
        let left = group.agree(self.leave());
        let length = group.agree(self.end_length(file));
        handles.and(left).and(length)
    }

    /// All handles are closed: the manager knows the length, and the servers have written everything.
    fn end_length(&self, file: &File) -> Result<()> {
        let Some(plain) = &self.plain else { return Ok(()) };
        let known =
            self.caches.fleet.session.stat(&self.name).map_err(|error| self.name_failed_ranks(file, error));
        self.forget_name();
        let bytes = known?.size;
        if file.is_writable() {
            self.match_length(plain, bytes, true)?;
        }
        Ok(())
    }

    /// Rank 0 removes an unused name, unless the servers end anyway.
    fn forget_name(&self) {
        let mut open = self.caches.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = open.get_mut(&self.name) else { return };
        *count -= 1;
        if 0 < *count {
            return;
        }
        open.remove(&self.name);
        let is_last = open.is_empty();
        drop(open);
        if !is_last && let Err(error) = self.caches.fleet.session.remove_file(&self.name) {
            tracing::warn!(%error, "an unused name could not be removed from the file cache");
        }
    }

    /// The server in this process writes back and drops the file.
    fn leave(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let accesses = self.accesses.load(Ordering::Relaxed);
        if let Some(mean) = self.bytes.load(Ordering::Relaxed).checked_div(accesses) {
            block::remember(&self.path, mean);
        }
        match &self.caches.fleet.own {
            // In a forked child the servers and their blocks belong to the parent.
            Some(own) if own.is_own_process() => Ok(own.store.close(self.inode)?),
            Some(_) | None => Ok(()),
        }
    }

    /// Names the ranks with dead servers, if that caused the error.
    pub(crate) fn name_failed_ranks(&self, file: &File, error: Error) -> Error {
        if error.code() != Code::Unreachable {
            return error;
        }
        let rank = |server: pario_core::ServerIndex| self.caches.fleet.ranks.get(server.at());
        let gone = || -> Vec<String> {
            file.lost_servers().into_iter().filter_map(rank).map(ToString::to_string).collect()
        };
        // A new connection may be refused shortly before the end of an old one to the same server is noticed.
        let mut looks = (0..POLLS_MAX).map(|look| {
            if 0 < look {
                std::thread::park_timeout(POLL_INTERVAL);
            }
            gone()
        });
        let gone = looks.find(|gone| !gone.is_empty()).unwrap_or_default();
        if gone.is_empty() {
            return error;
        }
        let text = format!("the cache of rank {} is gone: {error}", gone.join(", "));
        Fault::new(error.code(), text).into()
    }
}

impl Drop for PlainBacking {
    fn drop(&mut self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.leave() {
            tracing::warn!(%error, "write-back failed for a file that was dropped without close");
        }
        if self.plain.is_some() {
            self.forget_name();
        }
    }
}
