//! Client-directed: accesses go to the node cache of the application (tier 1), which merges them and writes whole blocks back to
//! the partition.
//!
//! Never: sends an offset list, or requests a lease: the servers of the node cache hold the leases. Always: bytes that one rank
//! wrote are read by every rank; close and sync wait until the partition has all data, and report errors to all ranks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, Generation, InodeId, Layout, ObjectId};

use super::hints::Hints;
use super::method::{GroupAccess, Method, MethodStats};
use super::server_directed::ServerDirected;
use crate::client::{File, Guarded, NodeCacheFile, NumberedView, OpenOptions, StreamRange, WriteSource};
use crate::error::{Error, Result};
use crate::fleet::node_cache::{NodeCache, NodeCacheOptions};
use crate::group::{CollectiveCall, Group};
use crate::partition::choices::Method as MethodWord;

/// The generation of every file in the node cache: the partition's own generation concerns only its servers.
const GENERATION: Generation = Generation(0);

/// See the module head.
#[derive(Debug)]
pub(super) struct ClientDirected {
    group: Arc<dyn Group>,
    node_cache: Arc<NodeCache>,
    inode: InodeId,
    file: NodeCacheFile,
    /// The last view, as numbered by the partition's session and by the node cache's session.
    view: Mutex<Option<(Arc<NumberedView>, Arc<NumberedView>)>>,
    is_closed: AtomicBool,
}

impl ClientDirected {
    /// Opens a file in the group's node cache, if that is requested; collective.
    pub(super) fn open(group: &Arc<dyn Group>, file: &File, hints: &Hints) -> Result<Option<ClientDirected>> {
        if hints.method != Some(MethodWord::ClientDirected) || hints.cache == Some(false) {
            return Ok(None);
        }
        group.same("the file that a name leads to", &file.inode().0.to_le_bytes())?;
        let wish = NodeCacheOptions { aggregators: hints.aggregators, cache_bytes: hints.cache_bytes };
        let tier = NodeCache::of(group, file.session(), wish)?;
        let layout = layout(file, &tier);
        let opened = layout.clone().and_then(|layout| open_at_server(&tier, file, layout));
        // No rank continues before every server knows the file.
        group.agree(opened.clone())?;
        opened?;
        let object = ObjectId { inode: file.inode(), generation: GENERATION };
        let handle = NodeCacheFile::open(tier.session(), object, layout?, file.path());
        handle.set_first_server(group.rank());
        Ok(Some(ClientDirected {
            group: Arc::clone(group),
            inode: file.inode(),
            node_cache: tier,
            file: handle,
            view: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// First all ranks' writes reach the node cache, then the node cache writes back to the partition.
    fn write_back(
        &self,
        call: CollectiveCall,
        below: impl FnOnce() -> std::result::Result<(), Fault>,
    ) -> Result<()> {
        let gathering = self.file.begin_collective_wait(&*self.group);
        let drained = self.file.drain(gathering.as_ref()).map_err(|fault| self.name_failed_ranks(fault));
        let drained = self.group.agree_in(call, drained);
        drop(gathering);
        let below = below().map_err(Error::from);
        drained.and(self.group.agree(below))
    }

    fn leave(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some((store, _)) = self.node_cache.own() {
            store.close(self.inode);
        }
    }

    /// The same stream range, with the view numbers of the node cache.
    fn translate(&self, place: &StreamRange) -> Result<StreamRange> {
        let mut last = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let view = match &*last {
            Some((theirs, ours)) if Arc::ptr_eq(theirs, &place.view) => Arc::clone(ours),
            _ => {
                let ours = self.file.number_view((**place.view.view()).clone())?;
                *last = Some((Arc::clone(&place.view), Arc::clone(&ours)));
                ours
            }
        };
        Ok(StreamRange::new(view, place.stream.clone()))
    }

    /// Names the ranks with dead servers, if that caused the fault.
    fn name_failed_ranks(&self, fault: Fault) -> Error {
        if fault.code != Code::Unreachable {
            return fault.into();
        }
        let rank = |server: pario_core::ServerIndex| self.node_cache.aggregators().get(server.at()).copied();
        let gone: Vec<String> = self
            .file
            .unreachable_servers()
            .into_iter()
            .filter_map(rank)
            .map(|rank| rank.to_string())
            .collect();
        if gone.is_empty() {
            return fault.into();
        }
        let text = format!("the tier-1 server of rank {} is gone: {}", gone.join(", "), fault.text);
        Fault::new(fault.code, text).into()
    }
}

impl Method for ClientDirected {
    fn write(
        &self,
        on: GroupAccess<'_>,
        place: &StreamRange,
        source: &WriteSource<'_>,
        _: Guarded,
    ) -> Result<()> {
        on.file.check_writes()?;
        let place = self.translate(place)?;
        self.file.write_stream(&place, source).map_err(|fault| self.name_failed_ranks(fault))
    }

    fn read(&self, on: GroupAccess<'_>, place: &StreamRange, target: &mut [u8], _: Guarded) -> Result<usize> {
        on.file.check_reads()?;
        let place = self.translate(place)?;
        self.file.read_stream(&place, target).map_err(|fault| self.name_failed_ranks(fault))
    }

    fn len(&self, _: GroupAccess<'_>) -> Result<u64> {
        self.file.len().map_err(|fault| self.name_failed_ranks(fault))
    }

    fn set_len(&self, on: GroupAccess<'_>, bytes: u64) -> Result<()> {
        ServerDirected.set_len(on, bytes)?;
        self.file.set_len(bytes);
        Ok(())
    }

    fn sync(&self, on: GroupAccess<'_>) -> Result<()> {
        let cached = self.write_back(CollectiveCall::Sync, || {
            self.node_cache.own().map_or(Ok(()), |(store, _)| store.sync_file(self.inode))
        });
        let below = ServerDirected.sync(on);
        cached.and(below)
    }

    fn close(&self, on: GroupAccess<'_>) -> Result<()> {
        let cached = self.write_back(CollectiveCall::Close, || {
            self.node_cache.own().map_or(Ok(()), |(store, _)| store.flush_file(self.inode))
        });
        self.leave();
        let below = ServerDirected.close(on);
        cached.and(below)
    }

    fn stats(&self) -> MethodStats {
        let node_cache = self.node_cache.own().map(|(store, _)| store.node_cache_stats());
        MethodStats { node_cache, ..MethodStats::default() }
    }

    fn is_cached(&self) -> bool {
        true
    }

    fn locks_several_blocks(&self) -> bool {
        true
    }
}

impl Drop for ClientDirected {
    fn drop(&mut self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let drained = self.file.drain(None);
        let flushed = self.node_cache.own().map_or(Ok(()), |(store, _)| store.flush_file(self.inode));
        if let Err(fault) = drained.and(flushed) {
            tracing::warn!(%fault, "write-back failed for a file that was dropped without close");
        }
        self.leave();
    }
}

/// Distribution of the file's blocks over the servers of the node cache.
fn layout(file: &File, tier: &NodeCache) -> Result<Layout> {
    let servers = u16::try_from(tier.aggregators().len()).unwrap_or(u16::MAX);
    Layout::new(file.layout().stripe_bytes(), servers, 0, servers)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()).into())
}

/// Opens the file at the server in this process, if there is one.
fn open_at_server(tier: &NodeCache, file: &File, layout: Layout) -> Result<()> {
    let Some((store, upstream)) = tier.own() else { return Ok(()) };
    let options = OpenOptions::new(upstream).read(true).write(file.is_writable());
    let opened = options.open_inode(file.inode(), file.path())?;
    Ok(store.open(opened, layout)?)
}
