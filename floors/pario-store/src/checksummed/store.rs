//! The [`Store`] trait of the wrapper: each call of the inner store between the changes of its table.
//!
//! Never: a write without its granules made unknown before. Always: see the head of [`super`].

use std::ops::Range;
use std::os::fd::AsFd;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, Space};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use super::change::{ObjectPart, granules};
use super::loans;
use super::object::SumTable;
use super::summed::{Checksummed, write_lock};
use super::table::{GRANULE, GRANULE_BYTES, GranuleSum};
use crate::directory::OpenWant;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::store::{LendAccess, Lent, Store, StoreStats, Verified};
use crate::sync::lock;

/// Bytes verified per call.
const VERIFY_BYTES: usize = 256 << 10;

impl Store for Checksummed {
    fn write(&self, object: ObjectId, at: LocalOffset, pieces: &[MemoryPiece<'_>]) -> Result<(), StoreError> {
        if total_bytes(pieces) == 0 || at.0.checked_add(total_bytes(pieces)).is_none() {
            return self.store.write(object, at, pieces);
        }
        let mut next = at.0;
        let parts: Vec<ObjectPart<'_>> = pieces
            .iter()
            .map(|piece| {
                let part = ObjectPart { at: next, piece: *piece };
                next += piece.len() as u64;
                part
            })
            .collect();
        self.change(object, &parts, || self.store.write(object, at, pieces))
    }

    fn write_scattered(&self, object: ObjectId, pieces: &[Scattered<'_>]) -> Result<(), StoreError> {
        let parts: Vec<ObjectPart<'_>> = pieces
            .iter()
            .map(|piece| ObjectPart { at: piece.at, piece: MemoryPiece::from(piece.bytes) })
            .collect();
        self.change(object, &parts, || self.store.write_scattered(object, pieces))
    }

    fn read(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<usize, StoreError> {
        let table = self.table(object);
        let table = self.to_read(object, &table)?;
        let count = self.store.read(object, at, target)?;
        self.check(object, &table, (at.0, count), target)?;
        Ok(count)
    }

    fn length(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.store.length(object)
    }

    fn marked(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        self.store.marked(object)
    }

    fn verify(&self, object: ObjectId, range: Range<u64>) -> Result<Option<Verified>, StoreError> {
        let mut verified = Verified::default();
        let mut bytes = vec![0; VERIFY_BYTES];
        let mut at = range.start / GRANULE_BYTES * GRANULE_BYTES;
        while at < range.end {
            let table = self.table(object);
            let table = self.to_read(object, &table)?;
            let part = at..at + VERIFY_BYTES as u64;
            let sums = self.sums(object, &table, &granules(&part))?;
            let end = match self.store.read(object, LocalOffset(at), &mut bytes) {
                Ok(count) => count,
                // Granule by granule, so that existing bytes are judged separately.
                Err(StoreError::Cut { .. }) => 0,
                Err(error) => return Err(error),
            };
            bytes[end..].fill(0);
            for (granule, sum) in granules(&part).zip(sums) {
                let from = usize::try_from(granule * GRANULE_BYTES - at).expect("inside the buffer");
                let bytes = &bytes[from..from + GRANULE];
                let doubted = table.lent && !sum.allows(bytes);
                let sum = match doubted && !self.is_damaged(object, &table, granule)? {
                    true => GranuleSum::Unknown,
                    false => sum,
                };
                verified.count(granule * GRANULE_BYTES, sum, bytes);
            }
            at = part.end;
        }
        Ok(Some(verified))
    }

    fn truncate(
        &self,
        inode: InodeId,
        from: Generation,
        to: Generation,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let [old, new] = [from, to].map(|generation| ObjectId { inode, generation });
        let (old_table, new_table) = (self.table(old), self.table(new));
        // Both are locked, the lower first; one lock if they are the same.
        let (mut lower, mut higher) = match old.cmp(&new) {
            std::cmp::Ordering::Less => (write_lock(&old_table), Some(write_lock(&new_table))),
            std::cmp::Ordering::Greater => (write_lock(&new_table), Some(write_lock(&old_table))),
            std::cmp::Ordering::Equal => (write_lock(&old_table), None),
        };
        let live = if self.store.length(new)?.is_some() { new } else { old };
        let is_lower = live <= old.min(new);
        let last = match &mut higher {
            Some(higher) if !is_lower => self.cut_table(live, higher, bytes)?,
            Some(_) | None => self.cut_table(live, &mut lower, bytes)?,
        };
        let cut = self.store.truncate(inode, from, to, bytes);
        // In any case, both are read again.
        let forget =
            |table: &mut SumTable| *table = SumTable { changes: table.changes + 1, ..SumTable::default() };
        forget(&mut lower);
        higher.as_deref_mut().into_iter().for_each(forget);
        cut?;
        self.tables.truncate(inode, from, to, u64::MAX)?;
        let Some((granule, sum)) = last else { return Ok(()) };
        let table = match &mut higher {
            Some(higher) if old < new => higher,
            Some(_) | None => &mut lower,
        };
        self.load(new, table, OpenWant::ExistingForWriting)?;
        self.on_file(new, OpenWant::ExistingForWriting, |file| table.write(file, granule, &[sum])).map(drop)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StoreError> {
        let table = self.table(object);
        let mut table = write_lock(&table);
        self.store.remove(object)?;
        *table = SumTable { changes: table.changes + 1, ..SumTable::default() };
        lock(&self.unsealed).remove(&object);
        self.tables.remove(object)
    }

    fn flush(&self, object: ObjectId) -> Result<(), StoreError> {
        self.store.flush(object)
    }

    fn sync(&self, object: ObjectId) -> Result<(), StoreError> {
        let changes = self.changes(object)?;
        self.store.sync(object)?;
        if self.seal(object, changes)? { self.tables.sync(object) } else { Ok(()) }
    }

    fn sync_all(&self) -> Result<(), StoreError> {
        // Lock order: the table of an object before `unsealed`. Hence a copy of the set, with its lock released.
        let objects = lock(&self.unsealed).clone();
        let mut unsealed = Vec::with_capacity(objects.len());
        for object in objects {
            unsealed.push((object, self.changes(object)?));
        }
        self.store.sync_all()?;
        let mut any = false;
        for (object, changes) in unsealed {
            any |= self.seal(object, changes)?;
        }
        if any { self.tables.sync_all() } else { Ok(()) }
    }

    fn lend(&self, object: ObjectId, access: LendAccess) -> Result<Lent, StoreError> {
        let table = self.table(object);
        let mut table = write_lock(&table);
        let lent = self.store.lend(object, access)?;
        let Lent::Descriptor(descriptor) = lent else {
            self.load(object, &mut table, OpenWant::Existing)?;
            // A table without an object file means a lost object: a read reports it.
            return Ok(if table.entries == 0 { lent } else { Lent::NotLent });
        };
        self.load(object, &mut table, OpenWant::Made)?;
        let Lent::Descriptor(sums) = self.tables.lend(object, access)? else { return Ok(Lent::NotLent) };
        if access == LendAccess::Write {
            self.note_unsealed(object);
            table.lent = true;
            self.on_file(object, OpenWant::Made, |file| {
                table.begin_change(file, 0)?;
                loans::hold(sums.as_fd())
            })?;
        }
        Ok(Lent::Summed { descriptor, sums })
    }

    fn list(&self, after: Option<ObjectId>, limit: usize) -> Result<Vec<(ObjectId, u64)>, StoreError> {
        self.store.list(after, limit)
    }

    fn space(&self) -> Result<Space, StoreError> {
        self.store.space()
    }

    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}
