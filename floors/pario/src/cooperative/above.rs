//! What a file of a group has above a plain file, beside what every file of a group has: the group's servers, and what must be done to
//! the plain file when it is synced, cut and closed.
//!
//! Never: takes a byte to be safe that only a server has. Always: every member takes part in every step, also those whose own part
//! failed; an error about a server that is gone names the rank that ran it.

use std::fs::File as StdFile;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault, InodeId};
use pario_server::store::CacheStats;
use pario_server::store::shared_file::extend;
use pario_sys::process::fork_generation;

use super::{Cooperation, Placement, block};
use crate::client::File;
use crate::error::{Error, Result};
use crate::group::{Call, Group};

/// Looks for the server that is gone when one cannot be reached, and how long between two.
const LOOKS_MAX: u32 = 50;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct Above {
    cooperation: Arc<Cooperation>,
    inode: InodeId,
    name: String,
    placement: Placement,
    path: PathBuf,
    /// The first member sees to the plain file's length.
    plain: Option<StdFile>,
    accesses: AtomicU64,
    bytes: AtomicU64,
    is_closed: AtomicBool,
}

impl Above {
    pub(super) fn new(
        cooperation: &Arc<Cooperation>,
        (inode, name, placement): (InodeId, &str, Placement),
        path: &Path,
        plain: Option<StdFile>,
    ) -> Above {
        Above {
            cooperation: Arc::clone(cooperation),
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

    /// An access of so many bytes is made.
    pub(crate) fn count(&self, bytes: usize) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Where blocks are cached.
    pub(crate) fn placement(&self) -> Placement {
        self.placement
    }

    /// What the server in this process has done.
    pub(crate) fn stats(&self) -> Option<CacheStats> {
        self.cooperation.own.as_ref().map(|own| own.store.cache_stats())
    }

    /// Puts what the group wrote on stable storage, and sees what others wrote to the plain file; collective.
    pub(crate) fn sync(&self, group: &Arc<dyn Group>, file: &File) -> Result<()> {
        let gathering = file.gather(&**group);
        // As the first one, so that each asks its manager.
        let mine = file.sync_member(0, gathering.as_ref()).map_err(|error| self.name(file, error));
        group.agree_in(Call::Sync, mine)?;
        drop(gathering);
        let bytes = self.settle_length(group, file)?;
        let mine = self.refresh(file, bytes).map_err(|error| self.name(file, error));
        group.agree(mine)
    }

    /// The length that the file has in the cache and the plain file alike; collective.
    fn settle_length(&self, group: &Arc<dyn Group>, file: &File) -> Result<u64> {
        let mine = match &self.plain {
            Some(plain) => file
                .len()
                .map_err(|error| self.name(file, error))
                .and_then(|bytes| self.match_length(plain, bytes, file.is_writable())),
            None => Ok(0),
        };
        group.agree(mine.as_ref().map(|_| ()).map_err(Clone::clone))?;
        let told = group.broadcast(0, &mine?.to_le_bytes())?;
        let odd = || Fault::new(Code::NotSame, "rank 0 did not tell the file's length");
        Ok(u64::from_le_bytes(told.as_slice().try_into().map_err(|_| odd())?))
    }

    fn refresh(&self, file: &File, bytes: u64) -> Result<()> {
        file.forget_ahead();
        file.found_length(bytes)?;
        match &self.cooperation.own {
            Some(own) => Ok(own.store.refresh_file(self.inode, bytes)?),
            None => Ok(()),
        }
    }

    /// Lengthens the plain file where it is shorter than what the group made of it; the length of both.
    fn match_length(&self, plain: &StdFile, bytes: u64, writable: bool) -> Result<u64> {
        let fault =
            |error| Error::from(Fault::from_io(&error, format!("{}: lengthening", self.path.display())));
        if writable {
            extend(plain, bytes).map_err(fault)?;
        }
        Ok(plain.metadata().map_err(fault)?.len().max(bytes))
    }

    /// Cuts or lengthens the file; collective.
    pub(crate) fn set_len(&self, group: &Arc<dyn Group>, file: &File, bytes: u64) -> Result<()> {
        // Servers cut the plain file together with what they keep of it, and must know where.
        if let Some(own) = &self.cooperation.own {
            own.store.announce_length(self.inode, bytes);
        }
        group.agree(Ok(()))?;
        let mine = match &self.plain {
            Some(plain) => file
                .set_len(bytes)
                .map_err(|error| self.name(file, error))
                .and_then(|()| self.match_length(plain, bytes, true))
                .map(|_| ()),
            None => Ok(()),
        };
        group.agree(mine)
    }

    /// Closes it; collective. Afterwards the plain file has every byte, or all members are told why not.
    pub(crate) fn close(&self, group: &Arc<dyn Group>, file: &File) -> Result<()> {
        let gathering = file.gather(&**group);
        let mine = file.close_member(gathering.as_ref()).map_err(|error| self.name(file, error));
        let handles = group.agree_in(Call::Close, mine);
        drop(gathering);
        // Whoever is missing now does not come back: what this process keeps goes down all the same.
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
        let known = self.cooperation.mount.stat(&self.name).map_err(|error| self.name(file, error));
        self.forget_name();
        let bytes = known?.size;
        if file.is_writable() {
            self.match_length(plain, bytes, true)?;
        }
        Ok(())
    }

    /// The first member forgets a name that nobody uses, unless everything ends anyway.
    fn forget_name(&self) {
        let mut open = self.cooperation.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = open.get_mut(&self.name) else { return };
        *count -= 1;
        if 0 < *count {
            return;
        }
        open.remove(&self.name);
        let is_last = open.is_empty();
        drop(open);
        if !is_last && let Err(error) = self.cooperation.mount.remove_file(&self.name) {
            tracing::warn!(%error, "a name is kept that nobody uses");
        }
    }

    /// The server in this process writes down what it has of the file and lets it go.
    fn leave(&self) -> Result<()> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let accesses = self.accesses.load(Ordering::Relaxed);
        if let Some(mean) = self.bytes.load(Ordering::Relaxed).checked_div(accesses) {
            block::remember(&self.path, mean);
        }
        match &self.cooperation.own {
            // In a forked child the servers and their blocks are the parent's.
            Some(own) if own.fork == fork_generation() => Ok(own.store.close(self.inode)?),
            Some(_) | None => Ok(()),
        }
    }

    /// Names the ranks whose servers are gone, if that is what happened.
    pub(crate) fn name(&self, file: &File, error: Error) -> Error {
        if error.code() != Code::Unreachable {
            return error;
        }
        let rank = |server: pario_core::ServerIndex| self.cooperation.aggregators.get(server.at());
        let gone = || -> Vec<String> {
            file.gone_servers().into_iter().filter_map(rank).map(ToString::to_string).collect()
        };
        // A new connection may be refused a moment before an old one to the same server is seen to have ended.
        let mut looks = (0..LOOKS_MAX).map(|look| {
            if 0 < look {
                std::thread::park_timeout(LOOK_EVERY);
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

impl Drop for Above {
    fn drop(&mut self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = self.leave() {
            tracing::warn!(%error, "a file that was not closed explicitly had an error");
        }
        if self.plain.is_some() {
            self.forget_name();
        }
    }
}
