//! Client-directed: accesses go to the application's own tier, which merges them and stages whole blocks to the partition.
//!
//! Never: sends an offset list, or asks for a lease: the tier's servers hold them. Always: what one rank wrote, every rank reads; closing
//! and syncing wait until the partition has everything, and tell all ranks of errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault, Generation, InodeId, Layout, ObjectId};

use super::hints::Hints;
use crate::client::{File, NumberedView, OpenOptions, Place, Source, TierFile};
use crate::error::{Error, Result};
use crate::group::{Call, Group};
use crate::partition::choices::Method;
use crate::tier::{Tier, TierStats, Wish};

/// The generation by which the tier knows every file: the partition's own is its servers' affair.
const GENERATION: Generation = Generation(0);

/// See the module.
#[derive(Debug)]
pub(super) struct ClientDirected {
    group: Arc<dyn Group>,
    tier: Arc<Tier>,
    inode: InodeId,
    file: TierFile,
    /// The view that was used last, as the partition's mount numbers it and as the tier's does.
    view: Mutex<Option<(Arc<NumberedView>, Arc<NumberedView>)>>,
    is_closed: AtomicBool,
}

impl ClientDirected {
    /// Opens a file in the group's tier, if that is wished; collective.
    pub(super) fn open(group: &Arc<dyn Group>, file: &File, hints: &Hints) -> Result<Option<ClientDirected>> {
        if hints.method != Some(Method::ClientDirected) || hints.cache == Some(false) {
            return Ok(None);
        }
        group.same("the file that a name leads to", &file.inode().0.to_le_bytes())?;
        let wish = Wish { aggregators: hints.aggregators, cache_bytes: hints.cache_bytes };
        let tier = Tier::of(group, file.mount(), wish)?;
        let layout = layout(file, &tier);
        let opened = layout.clone().and_then(|layout| serve(&tier, file, layout));
        // Nobody goes on before every server knows the file.
        group.agree(opened.clone())?;
        opened?;
        let object = ObjectId { inode: file.inode(), generation: GENERATION };
        let handle = TierFile::open(tier.mount(), object, layout?, file.path());
        handle.set_turn(group.rank());
        Ok(Some(ClientDirected {
            group: Arc::clone(group),
            inode: file.inode(),
            tier,
            file: handle,
            view: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Writes to a range of a stream.
    pub(super) fn write(&self, file: &File, place: &Place, source: &Source<'_>) -> Result<()> {
        file.check_writes()?;
        let place = self.place(place)?;
        self.file.write_stream(&place, source).map_err(|fault| self.name(fault))
    }

    /// Reads a range of a stream; returns how many bytes there were before the file's end.
    pub(super) fn read(&self, file: &File, place: &Place, target: &mut [u8]) -> Result<usize> {
        file.check_reads()?;
        let place = self.place(place)?;
        self.file.read_stream(&place, target).map_err(|fault| self.name(fault))
    }

    /// The file's length.
    pub(super) fn len(&self) -> Result<u64> {
        self.file.len().map_err(|fault| self.name(fault))
    }

    /// What the server in this process has done.
    pub(super) fn stats(&self) -> Option<TierStats> {
        self.tier.own().map(|(store, _)| store.tier_stats())
    }

    /// The file was given a length.
    pub(super) fn set_len(&self, bytes: u64) {
        self.file.set_len(bytes);
    }

    /// What the group wrote is on stable storage; collective.
    pub(super) fn sync(&self) -> Result<()> {
        self.put_down(Call::Sync, || self.tier.own().map_or(Ok(()), |(store, _)| store.sync_file(self.inode)))
    }

    /// What the group wrote is in every server's store; collective.
    pub(super) fn close(&self) -> Result<()> {
        let flushed = self.put_down(Call::Close, || {
            self.tier.own().map_or(Ok(()), |(store, _)| store.flush_file(self.inode))
        });
        self.leave();
        flushed
    }

    /// First everybody's writes are in the tier, then the tier's in the partition.
    fn put_down(&self, call: Call, below: impl FnOnce() -> std::result::Result<(), Fault>) -> Result<()> {
        let gathering = self.file.gather(&*self.group);
        let drained = self.file.drain(gathering.as_ref()).map_err(|fault| self.name(fault));
        let drained = self.group.agree_in(call, drained);
        drop(gathering);
        let below = below().map_err(Error::from);
        drained.and(self.group.agree(below))
    }

    fn leave(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some((store, _)) = self.tier.own() {
            store.close(self.inode);
        }
    }

    /// The same place, in the tier's numbers.
    fn place(&self, place: &Place) -> Result<Place> {
        let mut last = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let view = match &*last {
            Some((theirs, ours)) if Arc::ptr_eq(theirs, &place.view) => Arc::clone(ours),
            _ => {
                let ours = self.file.number_view((**place.view.view()).clone())?;
                *last = Some((Arc::clone(&place.view), Arc::clone(&ours)));
                ours
            }
        };
        Ok(Place::new(view, place.stream.clone()))
    }

    /// Names the ranks whose servers are gone, if that is what happened.
    fn name(&self, fault: Fault) -> Error {
        if fault.code != Code::Unreachable {
            return fault.into();
        }
        let rank = |server: pario_core::ServerIndex| self.tier.aggregators().get(server.at()).copied();
        let gone: Vec<String> =
            self.file.gone().into_iter().filter_map(rank).map(|rank| rank.to_string()).collect();
        if gone.is_empty() {
            return fault.into();
        }
        let text = format!("the tier-1 server of rank {} is gone: {}", gone.join(", "), fault.text);
        Fault::new(fault.code, text).into()
    }
}

impl Drop for ClientDirected {
    fn drop(&mut self) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let drained = self.file.drain(None);
        let flushed = self.tier.own().map_or(Ok(()), |(store, _)| store.flush_file(self.inode));
        if let Err(fault) = drained.and(flushed) {
            tracing::warn!(%fault, "a file that was not closed explicitly had an error");
        }
        self.leave();
    }
}

/// How the file's blocks are dealt to the tier.
fn layout(file: &File, tier: &Tier) -> Result<Layout> {
    let servers = u16::try_from(tier.aggregators().len()).unwrap_or(u16::MAX);
    Layout::new(file.layout().stripe_bytes(), servers, 0, servers)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()).into())
}

/// Opens the file for the server in this process, if there is one.
fn serve(tier: &Tier, file: &File, layout: Layout) -> Result<()> {
    let Some((store, upstream)) = tier.own() else { return Ok(()) };
    let options = OpenOptions::new(upstream).read(true).write(file.is_writable());
    let opened = options.open_inode(file.inode(), file.path())?;
    Ok(store.open(opened, layout)?)
}
