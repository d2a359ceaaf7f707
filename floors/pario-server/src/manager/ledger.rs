//! The ledger: an ordered space of rows, `bytes -> bytes`, that survives kill -9 at once and a power cut after `sync`.
//!
//! A batch is written to the log by one `write` and shows in a memtable; two threads (`threads`) sync the log and carry
//! frozen memtables into redb. Reads look at the memtables first, then at redb. Bytes: `docs/formats/names.md`.
//!
//! Never: loses an error of its threads: the next append and the next sync return it, while the threads try again. Always:
//! a batch is in the log, in a memtable and in `appended`, or in none of them; memory is bounded by [`Pace`].

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_store::disk::Disk;
use serde::Serialize;

use super::base::{Base, View};
use super::batch::Batch;
use super::log::{self, Log, OldLog};
use super::memtable::Memtable;
use super::record::{RECORD_BODY_BYTES_MAX, Record};
use super::replay::{Replayed, replay};
use super::reserve::Reserve;
use super::threads::{self, Threads};

/// How much may wait, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// A log with unsynced records is synced after this long.
    pub sync_after: Duration,
    /// A memtable is applied after this long.
    pub apply_after: Duration,
    /// A memtable of this size is applied at once.
    pub apply_bytes: usize,
    /// An append waits while the memtable has this size.
    pub memtable_bytes_max: usize,
    /// An append waits while the log has this size.
    pub log_bytes_max: u64,
    /// Room that is kept for removing files from a full disk.
    pub reserve_bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            sync_after: Duration::from_millis(500),
            apply_after: Duration::from_millis(1000),
            apply_bytes: 8 << 20,
            memtable_bytes_max: 16 << 20,
            log_bytes_max: 64 << 20,
            reserve_bytes: 2 << 20,
        }
    }
}

/// What the ledger counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LedgerStats {
    /// Batches appended since it was opened.
    pub appends: u64,
    /// Memtables applied to redb.
    pub applied: u64,
    /// Syncs of log files.
    pub syncs: u64,
    /// Length of the log that is being written.
    pub log_bytes: u64,
    /// Memory of rows that are not in redb yet.
    pub memtable_bytes: u64,
    /// Batches that are not on stable storage yet.
    pub unsynced: u64,
}

/// Rows of one page, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether there are more behind the last.
    pub more: bool,
}

/// Told when everything appended before is on stable storage, or why not.
pub type Done = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    shared: Arc<Shared>,
    threads: Option<Threads>,
}

/// What the ledger and its threads share.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    /// Signalled after every attempt to apply a memtable.
    pub attempt: Condvar,
    /// Where the files are.
    pub place: FilePlace,
    /// How fast.
    pub pace: Pace,
    /// For a full disk.
    pub reserve: Reserve,
}

/// A directory on a disk.
#[derive(Clone, Debug)]
pub struct FilePlace {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory.
    pub dir: std::path::PathBuf,
}

/// See [`Shared`].
#[derive(Debug)]
pub struct State {
    /// Newest rows.
    pub active: Memtable,
    /// Rows that are being applied.
    pub frozen: Option<Arc<Memtable>>,
    /// Rows that were applied; `None` while redb cannot be opened after a failure.
    pub view: Option<View>,
    /// Where `active` is logged.
    pub log: Log,
    /// Where `frozen` is logged.
    pub old_logs: Vec<OldLog>,
    /// Last batch.
    pub appended: u64,
    /// Every batch up to this one is on stable storage.
    pub durable: u64,
    /// Every batch up to this one is in redb.
    pub applied: u64,
    /// Records up to this one may have been dropped by a sync that failed: only redb can make them durable.
    pub suspect: u64,
    /// For the next append.
    pub append_fault: Option<Fault>,
    /// For the next sync.
    pub sync_fault: Option<Fault>,
    /// A thread has ended.
    pub ended: bool,
    /// Counters.
    pub stats: LedgerStats,
}

impl Shared {
    /// The state, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done by a panic under the lock: every change of the state is complete before the next call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// Opens the ledger of a directory that is there, and brings redb up to what the logs have.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, pace: Pace) -> Result<Ledger, Fault> {
        let place = FilePlace { disk, dir: dir.to_owned() };
        let reserve = Reserve::open(place.clone(), pace.reserve_bytes);
        let (mut base, applied, log) = match recover(&place, pace) {
            Err(fault) if fault.code == Code::NoSpace && reserve.give_up() => recover(&place, pace)?,
            recovered => recovered?,
        };
        let state = State {
            active: Memtable::default(),
            frozen: None,
            view: Some(base.view()?),
            log,
            old_logs: Vec::new(),
            appended: applied,
            durable: applied,
            applied,
            suspect: 0,
            append_fault: None,
            sync_fault: None,
            ended: false,
            stats: LedgerStats::default(),
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), attempt: Condvar::new(), place, pace, reserve });
        let threads = Threads::start(&shared, base)?;
        Ok(Ledger { shared, threads: Some(threads) })
    }

    /// Carries out a batch. When it returns, the batch survives the death of this process.
    pub fn append(&mut self, batch: &Batch) -> Result<(), Fault> {
        if batch.is_empty() {
            return Ok(());
        }
        if RECORD_BODY_BYTES_MAX < batch.as_bytes().len() {
            let text = format!(
                "names: a change of {} bytes: at most {RECORD_BODY_BYTES_MAX}",
                batch.as_bytes().len()
            );
            return Err(Fault::new(Code::TooLarge, text));
        }
        let mut state = self.wait_for_room(batch.frees())?;
        let sequence = state.appended + 1;
        let record = Record { sequence, durable: state.durable, body: batch.as_bytes() };
        match state.log.append(&record) {
            Err(fault) if fault.code == Code::NoSpace && batch.frees() && self.shared.reserve.give_up() => {
                state.log.append(&record)?;
            }
            result => result?,
        }
        let (was_clean, was_empty) = (state.durable == state.appended, state.active.is_empty());
        state.active.apply(sequence, batch);
        state.appended = sequence;
        state.stats.appends += 1;
        let is_large = self.shared.pace.apply_bytes <= state.active.bytes();
        drop(state);
        if was_clean {
            self.threads().wake_syncer();
        }
        if was_empty || is_large {
            self.threads().wake_applier(if is_large { threads::Kick::Now } else { threads::Kick::Soon });
        }
        Ok(())
    }

    /// The value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let state = self.shared.lock();
        let changed = state.active.get(key).or_else(|| state.frozen.as_ref()?.get(key));
        if let Some(value) = changed {
            return Ok(value.map(<[u8]>::to_vec));
        }
        let value = view_of(&state)?.get(key).map_err(read_fault)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    /// The first `limit` rows whose keys start with `prefix` and lie behind `after`.
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, Fault> {
        let state = self.shared.lock();
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let view = view_of(&state)?.range::<&[u8]>((start, Bound::Unbounded)).map_err(read_fault)?;
        let at_rest = view.map(|row| {
            let (key, value) = row.map_err(read_fault)?;
            Ok((key.value().to_vec(), Some(value.value().to_vec())))
        });
        let frozen = state.frozen.iter().flat_map(|frozen| frozen.from(start)).map(owned);
        let layers: Vec<Layer<'_>> =
            vec![Box::new(state.active.from(start).map(owned)), Box::new(frozen), Box::new(at_rest)];
        merge(layers, prefix, limit)
    }

    /// Calls `done`, on another thread, when everything appended so far is on stable storage.
    pub fn sync(&self, done: Done) {
        self.threads().sync(done);
    }

    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        let state = self.shared.lock();
        let frozen_bytes = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        LedgerStats {
            log_bytes: state.log.bytes(),
            memtable_bytes: (state.active.bytes() + frozen_bytes) as u64,
            unsynced: state.appended - state.durable,
            ..state.stats
        }
    }

    /// Applies everything and ends the threads.
    pub fn shut_down(mut self) -> Result<(), Fault> {
        let threads = self.threads.take().expect("a ledger has threads until it is shut down");
        threads.finish(&self.shared)
    }

    fn wait_for_room(&self, frees: bool) -> Result<MutexGuard<'_, State>, Fault> {
        let pace = &self.shared.pace;
        let mut state = self.shared.lock();
        loop {
            let has_room =
                state.active.bytes() < pace.memtable_bytes_max && state.log.bytes() < pace.log_bytes_max;
            // A full disk must not keep those away who make room on it.
            let excused = |fault: &Fault| frees && has_room && fault.code == Code::NoSpace;
            if let Some(fault) = state.append_fault.take_if(|fault| !excused(fault)) {
                return Err(fault);
            }
            if state.ended {
                return Err(Fault::new(Code::Io, "names: a background thread has ended; restart the server"));
            }
            if has_room {
                return Ok(state);
            }
            self.threads().wake_applier(threads::Kick::Now);
            state = self.shared.attempt.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn threads(&self) -> &Threads {
        self.threads.as_ref().expect("a ledger has threads until it is shut down")
    }
}

/// Applies what the logs have and redb has not; returns redb, the last batch, and a new log.
fn recover(place: &FilePlace, pace: Pace) -> Result<(Base, u64, Log), Fault> {
    let mut base = Base::open(Arc::clone(&place.disk), &place.dir)?;
    let applied = base.applied()?;
    let images = log::read_all(&*place.disk, &place.dir)?;
    let mut memtable = Memtable::default();
    let found = replay(&images, applied, |sequence, batch| {
        memtable.apply(sequence, batch);
        if pace.apply_bytes <= memtable.bytes() {
            base.apply_anyway(&std::mem::take(&mut memtable), sequence)?;
        }
        Ok(())
    })?;
    let Replayed { last, highest, dropped } = found;
    if 0 < dropped {
        tracing::warn!(last, dropped, dir = %place.dir.display(), "names: changes that were never synced are lost");
    }
    if applied < highest {
        base.apply_anyway(&memtable, highest)?;
    }
    let io_fault = |error| Fault::from_io(&error, format!("removing logs of {}", place.dir.display()));
    for image in &images {
        place.disk.remove(&image.path).map_err(io_fault)?;
    }
    place.disk.sync_dir(&place.dir).map_err(io_fault)?;
    let number = images.last().map_or(0, |image| image.number) + 1;
    let log = Log::create(&*place.disk, &place.dir, number)?;
    Ok((base, highest, log))
}

/// A row on its way to a page; `None` hides what older layers have.
type LayerRow = (Vec<u8>, Option<Vec<u8>>);
type Layer<'a> = Box<dyn Iterator<Item = Result<LayerRow, Fault>> + 'a>;

fn owned((key, value): (&[u8], Option<&[u8]>)) -> Result<LayerRow, Fault> {
    Ok((key.to_vec(), value.map(<[u8]>::to_vec)))
}

/// Merges layers, newest first, each in the order of keys.
fn merge(mut layers: Vec<Layer<'_>>, prefix: &[u8], limit: usize) -> Result<Page, Fault> {
    let mut heads = Vec::with_capacity(layers.len());
    for layer in &mut layers {
        heads.push(layer.next().transpose()?);
    }
    let mut page = Page::default();
    loop {
        let first = heads.iter().flatten().map(|(key, _)| key).min().filter(|key| key.starts_with(prefix));
        let Some(first) = first.cloned() else { return Ok(page) };
        let mut newest = None;
        for (head, layer) in heads.iter_mut().zip(&mut layers) {
            if head.as_ref().is_some_and(|(key, _)| *key == first) {
                let row = std::mem::replace(head, layer.next().transpose()?);
                newest = newest.or(row);
            }
        }
        if let Some((key, Some(value))) = newest {
            if page.rows.len() == limit {
                page.more = true;
                return Ok(page);
            }
            page.rows.push((key, value));
        }
    }
}

fn view_of(state: &State) -> Result<&View, Fault> {
    state
        .view
        .as_ref()
        .ok_or_else(|| Fault::new(Code::Io, "names: redb failed and could not be opened again yet"))
}

fn read_fault(error: redb::StorageError) -> Fault {
    if let redb::StorageError::Io(error) = &error {
        return Fault::from_io(error, "reading names");
    }
    Fault::new(Code::Io, format!("reading names: {error}"))
}
