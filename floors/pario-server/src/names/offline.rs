//! Names of a stopped partition: exported to a names file, and imported from one.
//!
//! Never: called while a server uses the directory; the caller holds its lock. Always: a file that is damaged, or of another partition, is
//! refused; the previous names stay beside as `names.redb.damaged` until the next import.

use std::path::Path;
use std::sync::Arc;

use pario_core::{Code, Fault, PartitionId};
use pario_store::disk::Disk;

use super::base::Base;
use super::batch::Batch;
use super::copy::CopyLocation;
use super::copy::file::{Encoder, NamesImage};
use super::ledger::{Ledger, LedgerPace};
use super::log;
use super::memtable::Memtable;
use super::recover::{LedgerSpec, Recovery, tables};
use super::replay::ReplayRecords;

/// Rows of one record.
const PART_ROWS: usize = 32;

/// Contents of a names file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamesContents {
    /// Rows, of all kinds.
    pub rows: u64,
    /// Changes after them.
    pub changes: u64,
}

/// The bytes of a names file with all names of a directory.
pub fn export(
    disk: Arc<dyn Disk>,
    dir: &Path,
    spec: LedgerSpec,
    partition: PartitionId,
) -> Result<(Vec<u8>, Recovery), Fault> {
    let ledger = Ledger::open_as(disk, dir, spec)?;
    let recovery = ledger.recovery().clone();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(1, partition, 0, &mut bytes);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = ledger.page(&[], after.as_deref(), PART_ROWS)?;
        let mut batch = Batch::default();
        page.rows.iter().for_each(|(key, value)| batch.put(key, value));
        if !batch.is_empty() {
            encoder.rows(&batch, &mut bytes);
        }
        after = page.rows.last().map(|(key, _)| key.clone()).or(after);
        if !page.more {
            break;
        }
    }
    encoder.end(&mut bytes);
    ledger.shut_down()?;
    Ok((bytes, recovery))
}

/// Checks a names file for damage; returns its contents and partition.
pub fn check(bytes: &[u8]) -> Result<(NamesContents, PartitionId), Fault> {
    let image = NamesImage::parse(bytes)?;
    let records = records(&image);
    let replayed = records.play(|_, _| Ok(()))?;
    if image.damaged != 0 || image.lost_rows() != Some(0) || replayed.lost + replayed.dropped != 0 {
        let text = format!(
            "names file: {} places are damaged, {} of {} rows are there",
            image.damaged,
            image.found_rows,
            image.expected_rows.map_or_else(|| "an unknown number".to_owned(), |rows| rows.to_string())
        );
        return Err(Fault::new(Code::Corrupt, text));
    }
    let contents = NamesContents { rows: image.found_rows, changes: image.changes.len() as u64 };
    Ok((contents, image.partition.unwrap_or_default()))
}

/// Replaces a directory's names by those of a names file. `copy` is the location of the second copy of the previous names; it is removed.
pub fn import(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    bytes: &[u8],
    copy: Option<&dyn CopyLocation>,
) -> Result<NamesContents, Fault> {
    let (contents, _) = check(bytes)?;
    let image = NamesImage::parse(bytes)?;
    let io = |error: std::io::Error| Fault::from_io(&error, format!("putting names into {}", dir.display()));
    if !disk.exists(dir).map_err(io)? {
        disk.make_dir(dir).map_err(io)?;
    }
    let mut base = Base::make(Arc::clone(disk), dir, tables(&image, LedgerPace::default()), image.applied)?;
    let records = records(&image);
    let mut memtable = Memtable::default();
    let replayed = records.play(|sequence, batch| {
        memtable.apply(sequence, batch);
        Ok(())
    })?;
    base.apply_anyway(&memtable, replayed.highest.max(image.applied))?;
    // Changes of the previous names must not be added to these.
    for image in log::read_all(&**disk, dir)? {
        disk.remove(&image.path).map_err(io)?;
    }
    disk.sync_dir(dir).map_err(io)?;
    if let Some(copy) = copy {
        let number = copy.files()?.last().map_or(0, |(number, _)| *number) + 1;
        copy.write(number, 0, bytes, super::copy::Finish::Only)?;
    }
    Ok(contents)
}

fn records<'a>(image: &'a NamesImage<'_>) -> ReplayRecords<'a> {
    let mut records = ReplayRecords::of(&[], image.applied, 0);
    records.add_copied(&image.changes);
    records
}
