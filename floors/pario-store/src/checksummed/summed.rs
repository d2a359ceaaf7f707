//! The state of the wrapper: the table of each object, read, changed, checked and sealed.
//!
//! Never: touches bytes of the inner store that it does not sum. Always: see the head of [`super`].

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pario_core::{LocalOffset, ObjectId};
use pario_sys::file_lock::{LockFile, LockKind};

use super::change::{self, ObjectPart, Old, granules};
use super::loans::{self, lock_entries};
use super::object::{self, Covers, SumTable};
use super::table::{GRANULE, GRANULE_BYTES, GranuleSum, HEAD_BYTES, SUM_BYTES, granule_crc};
use crate::directory::{Buffering, ObjectDirectory, OpenWant};
use crate::disk::{Disk, DiskFile};
use crate::error::{Doing, StoreError};
use crate::lru::Lru;
use crate::marks::Life;
use crate::store::Store;
use crate::sync::lock;

/// Tables with state in memory.
const TABLES_MAX: usize = 4096;
/// Objects remembered for sealing by `sync_all`; the last changes of others are unknown after a power cut.
const UNSEALED_MAX: usize = 1 << 18;

/// A store with checksums, around another one.
#[derive(Debug)]
pub struct Checksummed {
    pub(super) store: Box<dyn Store>,
    pub(super) tables: ObjectDirectory,
    pub(super) life: Life,
    pub(super) known: Mutex<Lru<ObjectId, Arc<RwLock<SumTable>>>>,
    pub(super) unsealed: Mutex<BTreeSet<ObjectId>>,
    /// Granules that were written while another writer kept their entries locked: unknown, regardless of its entry.
    pub(super) contested: Mutex<BTreeSet<(ObjectId, u64)>>,
}

impl Checksummed {
    /// Checksums of `store` in `dir`, the directory of its objects. `life` is the period in which unsynced data survives: the machine's
    /// boot, or for a store in memory the process.
    pub fn open(
        store: Box<dyn Store>,
        disk: Arc<dyn Disk>,
        dir: &Path,
        life: Life,
    ) -> Result<Self, StoreError> {
        let tables = ObjectDirectory::open_at(disk, (dir, "sums"), Buffering::System)?;
        tables.no_marks();
        Ok(Checksummed {
            store,
            tables,
            life,
            known: Mutex::default(),
            unsealed: Mutex::default(),
            contested: Mutex::default(),
        })
    }

    pub(super) fn table(&self, object: ObjectId) -> Arc<RwLock<SumTable>> {
        let mut known = lock(&self.known);
        if let Some(table) = known.get(&object) {
            return Arc::clone(table);
        }
        let table = Arc::default();
        known.insert(object, Arc::clone(&table));
        while TABLES_MAX < known.len() {
            if known.pop_oldest_where(|table| Arc::strong_count(table) == 1).is_none() {
                break;
            }
        }
        table
    }

    /// Runs `work` on the file of an open table; `None`: there is no such file.
    pub(super) fn on_file<T>(
        &self,
        object: ObjectId,
        want: OpenWant,
        mut work: impl FnMut(&dyn DiskFile) -> io::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let error = |e| StoreError::from_io(e, Doing::Summing, object, 0..0, self.tables.root());
        self.tables.with(object, want, |open| work(&*open.plain).map_err(error))
    }

    /// Opens the table, if it is not open; with [`OpenWant::Made`] a missing one is created.
    pub(super) fn load(
        &self,
        object: ObjectId,
        table: &mut SumTable,
        want: OpenWant,
    ) -> Result<(), StoreError> {
        if table.head.is_some() {
            return Ok(());
        }
        let covers = match self.store.length(object)? {
            None => Covers::Nothing,
            Some(bytes) => Covers::Granules(bytes.div_ceil(GRANULE_BYTES)),
        };
        if want == OpenWant::Existing && covers == Covers::Nothing {
            // If only the object's file was removed, the bytes recorded in the table are lost: a read reports it.
            let entries = self.on_file(object, want, |file| object::entries_of_lost(file, &self.life))?;
            table.entries = entries.unwrap_or(0);
            return Ok(());
        }
        self.on_file(object, want, |file| table.open(file, covers, self.life)).map(drop)
    }

    /// The table for reading.
    pub(super) fn to_read<'t>(
        &self,
        object: ObjectId,
        table: &'t RwLock<SumTable>,
    ) -> Result<RwLockReadGuard<'t, SumTable>, StoreError> {
        let guard = read_lock(table);
        if guard.head.is_some() {
            return Ok(guard);
        }
        drop(guard);
        self.load(object, &mut write_lock(table), OpenWant::Existing)?;
        Ok(read_lock(table))
    }

    pub(super) fn sums(
        &self,
        object: ObjectId,
        table: &SumTable,
        range: &Range<u64>,
    ) -> Result<Vec<GranuleSum>, StoreError> {
        let count = usize::try_from(range.end - range.start).expect("of one access");
        if table.entries <= range.start && !table.lent {
            return Ok(vec![GranuleSum::None; count]);
        }
        let read = self.on_file(object, OpenWant::Existing, |file| {
            let mut now = *table;
            if table.lent {
                now.entries = file.length()?.saturating_sub(HEAD_BYTES) / SUM_BYTES;
            }
            now.read(file, range)
        })?;
        let mut sums = read.unwrap_or_else(|| vec![GranuleSum::None; count]);
        for (_, granule) in lock(&self.contested).range((object, range.start)..(object, range.end)) {
            sums[usize::try_from(granule - range.start).expect("of one access")] = GranuleSum::Unknown;
        }
        Ok(sums)
    }

    /// A granule's present bytes, with zeros beyond the object's end.
    pub(super) fn read_granule(
        &self,
        object: ObjectId,
        granule: u64,
        target: &mut [u8],
    ) -> Result<Old, StoreError> {
        match self.store.read(object, LocalOffset(granule * GRANULE_BYTES), target) {
            Ok(count) => {
                target[count..].fill(0);
                Ok(Old::Read)
            }
            Err(StoreError::Cut { .. }) => Ok(Old::Lost),
            Err(error) => Err(error),
        }
    }

    /// Writes bytes with `write`, and updates their checksums before and after.
    pub(super) fn change(
        &self,
        object: ObjectId,
        parts: &[ObjectPart<'_>],
        write: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return write() };
        let end = last.at.saturating_add(last.piece.len() as u64);
        let range = granules(&(first.at..end));
        let table = self.table(object);
        let mut table = write_lock(&table);
        self.load(object, &mut table, OpenWant::Made)?;
        self.on_file(object, OpenWant::Made, |file| table.refresh(file))?;
        let alone = self.alone(object, &table, &range)?;
        let mut sums = self.sums(object, &table, &range)?;
        let place = |granule: u64| usize::try_from(granule - range.start).expect("of one access");
        let read = |granule, target: &mut [u8]| self.read_granule(object, granule, target);
        let changed = change::of_parts(parts, read, |granule| sums[place(granule)])?;
        let mut was_known = false;
        for (granule, _) in &changed {
            let sum = &mut sums[place(*granule)];
            was_known |= matches!(sum, GranuleSum::Known(_));
            *sum = GranuleSum::Unknown;
        }
        self.note_unsealed(object);
        self.on_file(object, OpenWant::Made, |file| {
            table.begin_change(file, range.start)?;
            if was_known { table.write(file, range.start, &sums) } else { Ok(()) }
        })?;
        write()?;
        for (granule, sum) in changed {
            if matches!(alone, LoanExclusion::No) {
                lock(&self.contested).insert((object, granule));
            } else {
                lock(&self.contested).remove(&(object, granule));
                sums[place(granule)] = sum;
            }
        }
        self.on_file(object, OpenWant::Made, |file| table.write(file, range.start, &sums)).map(drop)
    }

    /// Locks granules against borrowers while the returned value exists.
    pub(super) fn alone(
        &self,
        object: ObjectId,
        table: &SumTable,
        range: &Range<u64>,
    ) -> Result<LoanExclusion, StoreError> {
        if !table.lent {
            return Ok(LoanExclusion::Always);
        }
        let locked = self.on_file(object, OpenWant::Made, |file| {
            let Some(own) = loans::own(file)? else { return Ok(LoanExclusion::Always) };
            Ok(if lock_entries(&own, LockKind::Write, range)? {
                LoanExclusion::Locked(own)
            } else {
                LoanExclusion::No
            })
        })?;
        Ok(locked.unwrap_or(LoanExclusion::Always))
    }

    /// Whether a granule that mismatched its entry is damaged: reads it again under a lock. If a writer keeps it locked, its state is
    /// unknown.
    pub(super) fn is_damaged(
        &self,
        object: ObjectId,
        table: &SumTable,
        granule: u64,
    ) -> Result<bool, StoreError> {
        if !table.lent {
            return Ok(true);
        }
        let locked = self.on_file(object, OpenWant::Existing, |file| {
            let Some(own) = loans::own(file)? else { return Ok(None) };
            Ok(lock_entries(&own, LockKind::Read, &(granule..granule + 1))?.then_some(own))
        })?;
        let Some(_own) = locked.flatten() else { return Ok(false) };
        let sum = self.sums(object, table, &(granule..granule + 1))?[0];
        let mut whole = vec![0; GRANULE];
        Ok(self.read_granule(object, granule, &mut whole)? == Old::Lost || !sum.allows(&whole))
    }

    pub(super) fn note_unsealed(&self, object: ObjectId) {
        let mut unsealed = lock(&self.unsealed);
        if unsealed.len() < UNSEALED_MAX {
            unsealed.insert(object);
        }
    }

    /// Compares bytes read at `at` with their checksums; `target` is the whole request, `count` the number of bytes read.
    pub(super) fn check(
        &self,
        object: ObjectId,
        table: &SumTable,
        (at, count): (u64, usize),
        target: &[u8],
    ) -> Result<(), StoreError> {
        let range = granules(&(at..at.saturating_add(target.len() as u64)));
        let sums = self.sums(object, table, &range)?;
        let mut whole = Vec::new();
        for (granule, sum) in range.zip(sums) {
            if !matches!(sum, GranuleSum::Known(_) | GranuleSum::Damaged) {
                continue;
            }
            let start = granule * GRANULE_BYTES;
            let from = usize::try_from(start.saturating_sub(at)).expect("inside the request");
            let ends_here = count < target.len() || target.len() - from >= GRANULE;
            let fits = if at <= start && ends_here {
                sum.allows(&target[from.min(count)..count.min(from + GRANULE)])
            } else {
                whole.resize(GRANULE, 0);
                self.read_granule(object, granule, &mut whole)? == Old::Read && sum.allows(&whole)
            };
            if !fits && self.is_damaged(object, table, granule)? {
                return Err(StoreError::Corrupt { object, range: start..start + GRANULE_BYTES });
            }
        }
        Ok(())
    }

    pub(super) fn seal(&self, object: ObjectId, changes: u64) -> Result<bool, StoreError> {
        let table = self.table(object);
        let mut table = write_lock(&table);
        if table.changes != changes || table.head.is_none() || table.lent {
            return Ok(false);
        }
        let Some(bytes) = self.store.length(object)? else { return Ok(false) };
        let sealed = self.on_file(object, OpenWant::ExistingForWriting, |file| table.seal(file, bytes))?;
        lock(&self.unsealed).remove(&object);
        Ok(sealed.unwrap_or(false))
    }

    /// Number of changes of the object so far. Writes through loans from now on are not sealed.
    pub(super) fn changes(&self, object: ObjectId) -> Result<u64, StoreError> {
        let table = self.table(object);
        if read_lock(&table).lent {
            let mut table = write_lock(&table);
            self.on_file(object, OpenWant::Existing, |file| table.refresh(file))?;
        }
        Ok(read_lock(&table).changes)
    }

    /// The checksum of a granule after its truncation at `bytes`.
    pub(super) fn after_cut(
        &self,
        object: ObjectId,
        table: &SumTable,
        bytes: u64,
    ) -> Result<Option<(u64, GranuleSum)>, StoreError> {
        let (granule, kept) = (bytes / GRANULE_BYTES, usize::try_from(bytes % GRANULE_BYTES).expect("small"));
        if kept == 0 || table.entries <= granule {
            return Ok(None);
        }
        let sum = self.sums(object, table, &(granule..granule + 1))?[0];
        let mut whole = vec![0; GRANULE];
        let sum = match (sum, self.read_granule(object, granule, &mut whole)?) {
            (GranuleSum::None | GranuleSum::Unknown, _) => sum,
            (GranuleSum::Known(_), Old::Read) if sum.allows(&whole) => {
                GranuleSum::Known(granule_crc(&whole[..kept]))
            }
            (GranuleSum::Known(_) | GranuleSum::Damaged, _) => GranuleSum::Damaged,
        };
        Ok(Some((granule, sum)))
    }

    /// Truncates the table of an object that is about to be truncated, and returns the new checksum of its last granule.
    pub(super) fn cut_table(
        &self,
        object: ObjectId,
        table: &mut SumTable,
        bytes: u64,
    ) -> Result<Option<(u64, GranuleSum)>, StoreError> {
        self.load(object, table, OpenWant::ExistingForWriting)?;
        if table.head.is_none() {
            return Ok(None);
        }
        self.on_file(object, OpenWant::ExistingForWriting, |file| table.refresh(file))?;
        let last = self.after_cut(object, table, bytes)?;
        self.note_unsealed(object);
        self.on_file(object, OpenWant::ExistingForWriting, |file| {
            let first = bytes / GRANULE_BYTES;
            if first < table.entries {
                table.begin_change(file, first)?;
            }
            table.cut(file, bytes.div_ceil(GRANULE_BYTES))?;
            match last {
                Some((granule, _)) => table.write(file, granule, &[GranuleSum::Unknown]),
                None => Ok(()),
            }
        })?;
        Ok(last)
    }
}

/// Whether borrowers are excluded.
pub(super) enum LoanExclusion {
    /// There are no borrowers.
    Always,
    /// By a lock.
    #[expect(dead_code, reason = "held, never read")]
    Locked(LockFile),
    /// Not excluded: a borrower keeps an entry locked.
    No,
}

pub(super) fn read_lock(table: &RwLock<SumTable>) -> RwLockReadGuard<'_, SumTable> {
    table.read().expect("another thread panicked while it held this lock")
}

pub(super) fn write_lock(table: &RwLock<SumTable>) -> RwLockWriteGuard<'_, SumTable> {
    table.write().expect("another thread panicked while it held this lock")
}
