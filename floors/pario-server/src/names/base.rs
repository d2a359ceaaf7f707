//! The base of the ledger: applied rows in redb, on a [`Disk`].
//!
//! Never: written except by [`Base::apply`], one durable transaction per memtable. Always: the sequence number of the last batch applied is
//! in the same transaction as its rows; a new database is renamed into place only when it is complete; a database opened at the manager's
//! start is read and checked entirely, since redb does not verify checksums later.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_store::disk::{Disk, DiskFile, OpenMode};
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};

use super::guard::guarded;
use super::memtable::Memtable;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
const FORMAT: &str = "format";
const APPLIED: &str = "applied";
/// Version of the rows' format. Version 1 had no inodes with several names, no special files and no extended attributes; its rows mean
/// the same, so it is read, and becomes version 2 with the next change.
const FORMAT_VERSION: u64 = 2;
/// Memory that redb may use for pages.
const CACHE_BYTES: usize = 8 << 20;
/// Free space left on the disk when a memtable is applied.
const SPARE_BYTES: u64 = 4 << 20;

const FILE: &str = "names.redb";
const NEW_FILE: &str = "names.redb.new";
/// A replaced damaged database, kept for inspection.
const DAMAGED_FILE: &str = "names.redb.damaged";
/// Input or output error, as the system numbers it.
const EIO: i32 = 5;

/// The rows as of one transaction.
pub type RowsView = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// See the module.
#[derive(Debug)]
pub struct Base {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// `None` after a failure: redb must be reopened then.
    database: Option<Database>,
}

impl Base {
    /// Opens the database of a directory and checks every page of it; `None` if there is none. [`Code::Corrupt`]: it is damaged.
    pub fn find(disk: Arc<dyn Disk>, dir: &Path) -> Result<Option<Base>, Fault> {
        let mut base = Base { disk, dir: dir.to_owned(), database: None };
        let file = base.file();
        let there = base.disk.exists(&file);
        if !there.map_err(|error| Fault::from_io(&error, format!("opening {}", file.display())))? {
            return Ok(None);
        }
        let checked = guarded(|| {
            let mut database = base.open_file(FILE, OpenMode::Write)?;
            let whole = database.check_integrity().map_err(|error| base.reading_fault(&error.into()))?;
            let damaged = || Fault::new(Code::Corrupt, format!("{}: pages are damaged", file.display()));
            if whole { Ok(database) } else { Err(damaged()) }
        });
        base.database = Some(checked?);
        base.applied()?;
        guarded(|| base.view().map(drop))?;
        Ok(Some(base))
    }

    /// Creates the database of a directory from memtables, replacing a damaged one if there is one, up to the batch `applied`.
    pub fn make(
        disk: Arc<dyn Disk>,
        dir: &Path,
        tables: impl Iterator<Item = Result<Memtable, Fault>>,
        applied: u64,
    ) -> Result<Base, Fault> {
        let base = Base { disk, dir: dir.to_owned(), database: None };
        let (new, file) = (dir.join(NEW_FILE), base.file());
        let io_fault = |error: io::Error| Fault::from_io(&error, format!("making {}", file.display()));
        // A power cut while redb creates a file leaves a file that it refuses, so it is created under another name.
        if base.disk.exists(&new).map_err(io_fault)? {
            base.disk.remove(&new).map_err(io_fault)?;
        }
        let database = base.open_file(NEW_FILE, OpenMode::CreateNew)?;
        for table in tables {
            apply(&database, &table?, 0).map_err(|error| base.fault(&error))?;
        }
        apply(&database, &Memtable::default(), applied).map_err(|error| base.fault(&error))?;
        drop(database);
        if base.disk.exists(&file).map_err(io_fault)? {
            base.disk.rename(&file, &dir.join(DAMAGED_FILE)).map_err(io_fault)?;
        }
        base.disk.rename(&new, &file).map_err(io_fault)?;
        base.disk.sync_dir(dir).map_err(io_fault)?;
        Ok(base)
    }

    /// The last applied batch.
    pub fn applied(&mut self) -> Result<u64, Fault> {
        let result = guarded(|| {
            let result = self.database()?.begin_read().map_err(redb::Error::from).and_then(|reading| {
                let facts = reading.open_table(FACTS)?;
                let format = facts.get(FORMAT)?.map(|value| value.value());
                Ok((format, facts.get(APPLIED)?.map_or(0, |value| value.value())))
            });
            result.map_err(|error| self.fault(&error))
        });
        match result? {
            (Some(1..=FORMAT_VERSION), applied) => Ok(applied),
            (found, _) => {
                let text = format!(
                    "{}: format {found:?}, this build reads 1 to {FORMAT_VERSION}",
                    self.file().display()
                );
                Err(Fault::new(Code::Unsupported, text))
            }
        }
    }

    /// A snapshot of the rows, unaffected by later batches.
    pub fn view(&mut self) -> Result<RowsView, Fault> {
        guarded(|| {
            let result = self
                .database()?
                .begin_read()
                .map_err(redb::Error::from)
                .and_then(|reading| Ok(reading.open_table(ROWS)?));
            result.map_err(|error| self.fault(&error))
        })
    }

    /// Writes a memtable to stable storage, up to the batch `applied`, if there is ample free space.
    pub fn apply(&mut self, memtable: &Memtable, applied: u64) -> Result<(), Fault> {
        self.check_room(memtable.bytes() as u64)?;
        self.apply_anyway(memtable, applied)
    }

    /// Writes a memtable to stable storage, up to the batch `applied`, if there is any free space for it.
    pub fn apply_anyway(&mut self, memtable: &Memtable, applied: u64) -> Result<(), Fault> {
        let result = guarded(|| {
            self.database()?;
            let database = self.database.as_ref().expect("was just opened");
            apply(database, memtable, applied).map_err(|error| self.fault(&error))
        });
        if result.is_err() {
            // redb refuses all calls after an error of its file, until it is reopened; state left by a panic is not touched.
            let _ = guarded(|| {
                self.database = None;
                Ok(())
            });
        }
        result
    }

    /// Whether redb failed and was not reopened yet; earlier views are invalid then.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.database.is_none()
    }

    fn database(&mut self) -> Result<&Database, Fault> {
        if self.database.is_none() {
            self.database = Some(self.open_file(FILE, OpenMode::Write)?);
        }
        Ok(self.database.as_ref().expect("was just opened"))
    }

    fn open_file(&self, name: &str, mode: OpenMode) -> Result<Database, Fault> {
        let path = self.dir.join(name);
        let file = self.disk.open(&path, mode);
        let file = file.map_err(|error| Fault::from_io(&error, format!("opening {}", path.display())))?;
        let opened = redb::Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(Backend { file });
        opened.map_err(|error| self.fault(&error.into()))
    }

    /// Detects a full disk before redb meets it in the middle of a transaction and has to be reopened.
    fn check_room(&self, memtable_bytes: u64) -> Result<(), Fault> {
        let space = self.disk.space(&self.dir);
        let free_bytes = space.map_err(|error| Fault::from_io(&error, self.dir.display()))?.free_bytes;
        let wanted_bytes = 2 * memtable_bytes + SPARE_BYTES;
        if wanted_bytes <= free_bytes {
            return Ok(());
        }
        let text = format!("{}: {free_bytes} bytes free, names need {wanted_bytes}", self.dir.display());
        Err(Fault::new(Code::NoSpace, text))
    }

    /// An unreadable part of the file counts as damaged.
    fn reading_fault(&self, error: &redb::Error) -> Fault {
        if let redb::Error::Io(io) = error
            && io.raw_os_error() == Some(EIO)
        {
            return Fault::new(Code::Corrupt, format!("{}: {io}", self.file().display()));
        }
        self.fault(error)
    }

    fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn fault(&self, error: &redb::Error) -> Fault {
        let place = self.file();
        if let redb::Error::Io(error) = error
            && !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
        {
            return Fault::from_io(error, place.display());
        }
        let passes = matches!(error, redb::Error::DatabaseAlreadyOpen | redb::Error::PreviousIo);
        let code = if passes { Code::Io } else { Code::Corrupt };
        Fault::new(code, format!("{}: {error}", place.display()))
    }
}

fn apply(database: &Database, memtable: &Memtable, applied: u64) -> Result<(), redb::Error> {
    let mut writing = database.begin_write()?;
    // A crash is repaired immediately, instead of by a walk over all rows; this also enables two-phase commit.
    writing.set_quick_repair(true);
    {
        let mut rows = writing.open_table(ROWS)?;
        for (key, value) in memtable.all() {
            match value {
                Some(value) => drop(rows.insert(key, value)?),
                None => drop(rows.remove(key)?),
            }
        }
        let mut facts = writing.open_table(FACTS)?;
        facts.insert(FORMAT, FORMAT_VERSION)?;
        facts.insert(APPLIED, applied)?;
    }
    Ok(writing.commit()?)
}

/// A file of the disk as a redb backend.
#[derive(Debug)]
struct Backend {
    file: Arc<dyn DiskFile>,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (wanted, read) = (out.len(), self.file.read_at(out, offset)?);
        if read == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(data, offset)
    }
}
