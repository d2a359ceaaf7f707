//! The ledger: an ordered space of rows, `bytes -> bytes`, that survives kill -9 immediately and a power cut after `sync`.
//!
//! A batch is written to the log by one `write` and is visible in a memtable; two threads (`threads`) sync the log and apply frozen
//! memtables to redb. Reads check the memtables first, then redb. Bytes: `docs/formats/names.md`.
//!
//! Never: loses an error of its threads: the next append and the next sync return it, while the threads retry. Always: a batch is in the
//! log, in a memtable and in `appended`, or in none of them; memory is bounded by [`LedgerPace`].

use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_store::disk::Disk;
use serde::Serialize;

use super::base::RowsView;
use super::batch::Batch;
use super::copy::Feed;
use super::guard::guarded;
use super::log::{LedgerLog, OldLog};
use super::memtable::Memtable;
use super::record::{LogRecord, RECORD_BODY_BYTES_MAX};
use super::recover::{LedgerSpec, Recovered, Recovery, recover};
use super::reserve::Reserve;
use super::threads::{self, LedgerThreads};

/// Limits and delays of the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedgerPace {
    /// A log with unsynced records is synced after this long.
    pub sync_after: Duration,
    /// A memtable is applied after this long.
    pub apply_after: Duration,
    /// A memtable of this size is applied immediately.
    pub apply_bytes: usize,
    /// An append waits while the memtable has this size.
    pub memtable_bytes_max: usize,
    /// An append waits while the log has this size.
    pub log_bytes_max: u64,
    /// Space reserved for removing files from a full disk.
    pub reserve_bytes: usize,
}

impl Default for LedgerPace {
    fn default() -> Self {
        LedgerPace {
            sync_after: Duration::from_millis(500),
            apply_after: Duration::from_millis(1000),
            apply_bytes: 8 << 20,
            memtable_bytes_max: 16 << 20,
            log_bytes_max: 64 << 20,
            reserve_bytes: 2 << 20,
        }
    }
}

/// Counters of the ledger.
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
    /// Batches that are not in the second copy yet; 0 where there is none.
    pub uncopied: u64,
    /// There is a second copy, and it can be written.
    pub copies: bool,
}

/// Rows of one page, in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RowPage {
    /// Keys and values.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether more rows follow.
    pub more: bool,
}

/// Called when all earlier batches are on stable storage, or with the fault.
pub type SyncDone = Box<dyn FnOnce(Result<(), Fault>) + Send>;

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    shared: Arc<LedgerShared>,
    threads: Option<LedgerThreads>,
    recovery: Recovery,
}

/// State shared by the ledger and its threads.
#[derive(Debug)]
pub struct LedgerShared {
    state: Mutex<LedgerState>,
    /// Signalled after every attempt to apply a memtable.
    pub attempt: Condvar,
    /// Location of its files.
    pub location: FileLocation,
    /// Limits and delays.
    pub pace: LedgerPace,
    /// Reserved disk space.
    pub reserve: Reserve,
}

/// A directory on a disk.
#[derive(Clone, Debug)]
pub struct FileLocation {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory.
    pub dir: std::path::PathBuf,
}

/// See [`LedgerShared`].
#[derive(Debug)]
pub struct LedgerState {
    /// Newest rows.
    pub active: Memtable,
    /// Rows that are being applied.
    pub frozen: Option<Arc<Memtable>>,
    /// Applied rows; `None` while redb cannot be reopened after a failure.
    pub view: Option<RowsView>,
    /// The log of `active`.
    pub log: LedgerLog,
    /// The logs of `frozen`.
    pub old_logs: Vec<OldLog>,
    /// Sequence number of the last batch.
    pub appended: u64,
    /// Every batch up to this one is on stable storage.
    pub durable: u64,
    /// Every batch up to this one is in redb.
    pub applied: u64,
    /// Records up to this one may have been dropped by a failed sync: only redb can make them durable.
    pub suspect: u64,
    /// Returned by the next append.
    pub append_fault: Option<Fault>,
    /// Returned by the next sync.
    pub sync_fault: Option<Fault>,
    /// A thread has ended.
    pub ended: bool,
    /// Changes for the second copy, if there is one.
    pub(super) feed: Option<Feed>,
    /// Counters.
    pub stats: LedgerStats,
}

impl LedgerShared {
    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, LedgerState> {
        // Every change of the state is complete before the next call, so a panic under the lock leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the feed of a ledger with a second copy, under the lock.
    pub(super) fn with_feed<T>(&self, work: impl FnOnce(&mut Feed) -> T) -> T {
        work(self.lock().feed.as_mut().expect("only a ledger with a second copy has a copier"))
    }
}

impl Ledger {
    /// Opens the ledger of an existing directory, and applies the logs to redb. It has no second copy.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, pace: LedgerPace) -> Result<Ledger, Fault> {
        Ledger::open_as(disk, dir, LedgerSpec { pace, ..LedgerSpec::default() })
    }

    /// Opens the ledger of an existing directory, from the second copy where needed.
    pub fn open_as(disk: Arc<dyn Disk>, dir: &Path, spec: LedgerSpec) -> Result<Ledger, Fault> {
        let place = FileLocation { disk, dir: dir.to_owned() };
        let pace = spec.pace;
        let reserve = Reserve::open(place.clone(), pace.reserve_bytes);
        let Recovered { mut base, last, log, kept, recovery } = match recover(&place, &spec) {
            Err(fault) if fault.code == Code::NoSpace && reserve.give_up() => recover(&place, &spec)?,
            recovered => recovered?,
        };
        let feed = match &spec.copy {
            Some(_) => Some(Feed::new((last, base.view()?))),
            None => None,
        };
        let state = LedgerState {
            active: Memtable::default(),
            frozen: None,
            view: Some(base.view()?),
            log,
            old_logs: Vec::new(),
            appended: last,
            durable: last,
            applied: last,
            suspect: 0,
            append_fault: None,
            sync_fault: None,
            ended: false,
            feed,
            stats: LedgerStats::default(),
        };
        let shared = Arc::new(LedgerShared {
            state: Mutex::new(state),
            attempt: Condvar::new(),
            location: place,
            pace,
            reserve,
        });
        let threads = LedgerThreads::start(&shared, base, kept, spec.copy)?;
        Ok(Ledger { shared, threads: Some(threads), recovery })
    }

    /// How it was recovered.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The same, mutable.
    pub(super) fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    /// Appends a batch. When it returns, the batch survives the death of this process.
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
        let record = LogRecord { sequence, durable: state.durable, body: batch.as_bytes() };
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
        let first_to_copy = state.feed.as_mut().is_some_and(|feed| feed.push(sequence, batch.as_bytes()));
        let is_large = self.shared.pace.apply_bytes <= state.active.bytes();
        drop(state);
        if was_clean {
            self.threads().wake_syncer();
        }
        if first_to_copy {
            self.threads().wake_copier();
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
        let view = view_of(&state)?;
        guarded(|| Ok(view.get(key).map_err(read_fault)?.map(|value| value.value().to_vec())))
    }

    /// The first `limit` rows after `after` with keys that start with `prefix`.
    pub fn page(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<RowPage, Fault> {
        let state = self.shared.lock();
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let view = view_of(&state)?;
        guarded(|| {
            let view = view.range::<&[u8]>((start, Bound::Unbounded)).map_err(read_fault)?;
            let at_rest = view.map(|row| {
                let (key, value) = row.map_err(read_fault)?;
                Ok((key.value().to_vec(), Some(value.value().to_vec())))
            });
            let frozen = state.frozen.iter().flat_map(|frozen| frozen.from(start)).map(owned);
            let layers: Vec<Layer<'_>> =
                vec![Box::new(state.active.from(start).map(owned)), Box::new(frozen), Box::new(at_rest)];
            merge(layers, prefix, limit)
        })
    }

    /// Calls `done`, on another thread, when all batches appended so far are on stable storage.
    pub fn sync(&self, done: SyncDone) {
        self.threads().sync(done);
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        let state = self.shared.lock();
        let frozen_bytes = state.frozen.as_ref().map_or(0, |frozen| frozen.bytes());
        LedgerStats {
            log_bytes: state.log.bytes(),
            memtable_bytes: (state.active.bytes() + frozen_bytes) as u64,
            unsynced: state.appended - state.durable,
            uncopied: state.feed.as_ref().map_or(0, |feed| state.appended - feed.copied.min(state.appended)),
            copies: state.feed.as_ref().is_some_and(|feed| !feed.failing),
            ..state.stats
        }
    }

    /// Applies all batches and ends the threads.
    pub fn shut_down(mut self) -> Result<(), Fault> {
        let threads = self.threads.take().expect("a ledger has threads until it is shut down");
        threads.finish(&self.shared)
    }

    fn wait_for_room(&self, frees: bool) -> Result<MutexGuard<'_, LedgerState>, Fault> {
        let pace = &self.shared.pace;
        let mut state = self.shared.lock();
        loop {
            let has_room =
                state.active.bytes() < pace.memtable_bytes_max && state.log.bytes() < pace.log_bytes_max;
            // A full disk must not reject batches that free space.
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

    fn threads(&self) -> &LedgerThreads {
        self.threads.as_ref().expect("a ledger has threads until it is shut down")
    }
}

/// A row of a page; `None` hides the row of older layers.
type LayerRow = (Vec<u8>, Option<Vec<u8>>);
type Layer<'a> = Box<dyn Iterator<Item = Result<LayerRow, Fault>> + 'a>;

fn owned((key, value): (&[u8], Option<&[u8]>)) -> Result<LayerRow, Fault> {
    Ok((key.to_vec(), value.map(<[u8]>::to_vec)))
}

/// Merges layers, newest first, each in the order of keys.
fn merge(mut layers: Vec<Layer<'_>>, prefix: &[u8], limit: usize) -> Result<RowPage, Fault> {
    let mut heads = Vec::with_capacity(layers.len());
    for layer in &mut layers {
        heads.push(layer.next().transpose()?);
    }
    let mut page = RowPage::default();
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

fn view_of(state: &LedgerState) -> Result<&RowsView, Fault> {
    state
        .view
        .as_ref()
        .ok_or_else(|| Fault::new(Code::Io, "names: redb failed and could not be opened again yet"))
}

/// A read failure of redb as a fault.
pub(super) fn read_fault(error: redb::StorageError) -> Fault {
    if let redb::StorageError::Io(error) = &error {
        return Fault::from_io(error, "reading names");
    }
    let code = if matches!(error, redb::StorageError::Corrupted(_)) { Code::Corrupt } else { Code::Io };
    Fault::new(code, format!("reading names: {error}"))
}
