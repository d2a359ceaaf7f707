//! The base of the ledger: rows at rest in redb, on a [`Disk`].
//!
//! Never: written but by [`Base::apply`], one durable transaction per memtable. Always: the sequence number of the last
//! batch applied is in the same transaction as its rows; a new database gets its name only when it is whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_store::disk::{Disk, DiskFile, OpenMode};
use redb::{Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};

use super::memtable::Memtable;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
const FORMAT: &str = "format";
const APPLIED: &str = "applied";
/// Version of the rows' format.
const FORMAT_VERSION: u64 = 1;
/// Memory that redb may use for pages.
const CACHE_BYTES: usize = 8 << 20;
/// Room that is left on the disk when a memtable is applied.
const SPARE_BYTES: u64 = 4 << 20;

const FILE: &str = "names.redb";
const NEW_FILE: &str = "names.redb.new";

/// The rows as some transaction left them.
pub type View = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// See the module.
#[derive(Debug)]
pub struct Base {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// `None` after a failure: redb must be opened anew then.
    database: Option<Database>,
}

impl Base {
    /// Opens the database of a directory, making it if there is none.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> Result<Base, Fault> {
        let mut base = Base { disk, dir: dir.to_owned(), database: None };
        base.make_if_missing()?;
        base.database()?;
        Ok(base)
    }

    /// The last batch in it.
    pub fn applied(&mut self) -> Result<u64, Fault> {
        let result = self.database()?.begin_read().map_err(redb::Error::from).and_then(|reading| {
            let facts = reading.open_table(FACTS)?;
            let format = facts.get(FORMAT)?.map(|value| value.value());
            Ok((format, facts.get(APPLIED)?.map_or(0, |value| value.value())))
        });
        match result.map_err(|error| self.fault(&error))? {
            (Some(FORMAT_VERSION), applied) => Ok(applied),
            (found, _) => {
                let text =
                    format!("{}: format {found:?}, this build reads {FORMAT_VERSION}", self.file().display());
                Err(Fault::new(Code::Unsupported, text))
            }
        }
    }

    /// The rows as they are now, unmoved by later applying.
    pub fn view(&mut self) -> Result<View, Fault> {
        let result = self
            .database()?
            .begin_read()
            .map_err(redb::Error::from)
            .and_then(|reading| Ok(reading.open_table(ROWS)?));
        result.map_err(|error| self.fault(&error))
    }

    /// Puts a memtable on stable storage, up to the batch `applied`, if there is ample room for it.
    pub fn apply(&mut self, memtable: &Memtable, applied: u64) -> Result<(), Fault> {
        self.check_room(memtable.bytes() as u64)?;
        self.apply_anyway(memtable, applied)
    }

    /// Puts a memtable on stable storage, up to the batch `applied`, if there is room for it at all.
    pub fn apply_anyway(&mut self, memtable: &Memtable, applied: u64) -> Result<(), Fault> {
        let result = apply(self.database()?, memtable, applied);
        result.map_err(|error| {
            // redb refuses everything after an error of its file, until it is opened again.
            self.database = None;
            self.fault(&error)
        })
    }

    /// Whether redb failed and was not opened again yet; views of before are worthless then.
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

    /// A power cut while redb makes a file leaves one that it refuses, so it is made under another name.
    fn make_if_missing(&self) -> Result<(), Fault> {
        let (new, file) = (self.dir.join(NEW_FILE), self.file());
        let io_fault = |error: io::Error| Fault::from_io(&error, format!("making {}", file.display()));
        if self.disk.exists(&file).map_err(io_fault)? {
            return Ok(());
        }
        if self.disk.exists(&new).map_err(io_fault)? {
            self.disk.remove(&new).map_err(io_fault)?;
        }
        let database = self.open_file(NEW_FILE, OpenMode::CreateNew)?;
        apply(&database, &Memtable::default(), 0).map_err(|error| self.fault(&error))?;
        drop(database);
        self.disk.rename(&new, &file).map_err(io_fault)?;
        self.disk.sync_dir(&self.dir).map_err(io_fault)
    }

    fn open_file(&self, name: &str, mode: OpenMode) -> Result<Database, Fault> {
        let path = self.dir.join(name);
        let file = self.disk.open(&path, mode);
        let file = file.map_err(|error| Fault::from_io(&error, format!("opening {}", path.display())))?;
        let opened = redb::Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(Backend { file });
        opened.map_err(|error| self.fault(&error.into()))
    }

    /// A full disk is told before redb meets it in the middle of a transaction and has to be opened again.
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

    fn file(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    fn fault(&self, error: &redb::Error) -> Fault {
        let place = self.file();
        if let redb::Error::Io(error) = error {
            return Fault::from_io(error, place.display());
        }
        let code = if matches!(error, redb::Error::Corrupted(_)) { Code::Corrupt } else { Code::Io };
        Fault::new(code, format!("{}: {error}", place.display()))
    }
}

fn apply(database: &Database, memtable: &Memtable, applied: u64) -> Result<(), redb::Error> {
    let mut writing = database.begin_write()?;
    // A crash is repaired at once, instead of by a walk over all rows; that also brings the two-phase commit.
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

/// A file of the disk, as redb wants it.
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
