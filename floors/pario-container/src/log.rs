//! A log of records: lines appended one by one, rewritten as a snapshot when dead lines outweigh the live ones.
//!
//! Never: returns a record of a torn last line; such a line is cut off by the next append. Always: an append that returned is
//! in the file, whole.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bytes::length;
use crate::error::{Result, TreeError};
use crate::line;
use crate::place::{Place, PlaceFile};

/// Position and file of a log; its records are kept by the owner.
#[derive(Debug)]
pub(crate) struct Log {
    path: String,
    /// Intact bytes.
    end: u64,
    file: Option<Arc<dyn PlaceFile>>,
    /// Records in the file.
    pub(crate) records: usize,
}

impl Log {
    /// A log that begins with these records. The file appears whole or not at all.
    pub(crate) fn create<T: Serialize>(place: &dyn Place, path: &str, records: &[T]) -> Result<Log> {
        let text: String = records.iter().map(line::encode).collect();
        place.write_new(path, text.as_bytes())?;
        Ok(Log { path: path.into(), end: length(text.len()), file: None, records: records.len() })
    }

    /// The log of an object that has no link yet, and stays open. A file that is torn belongs to no object.
    pub(crate) fn create_unlinked<T: Serialize>(place: &dyn Place, path: &str, records: &[T]) -> Result<Log> {
        let text: String = records.iter().map(line::encode).collect();
        let file = place.create(path)?;
        file.write_at(0, text.as_bytes())?;
        Ok(Log { path: path.into(), end: length(text.len()), file: Some(file), records: records.len() })
    }

    /// The log at `path` and its records; `None` if there is no such file.
    pub(crate) fn load<T: DeserializeOwned>(place: &dyn Place, path: &str) -> Result<Option<(Log, Vec<T>)>> {
        let Some(bytes) = place.read(path)? else { return Ok(None) };
        let (mut records, mut end) = (Vec::new(), 0);
        while let Some(size) = bytes[end..].iter().position(|byte| *byte == b'\n') {
            let record = line::decode(&bytes[end..end + size]);
            // JSON escapes newlines: a torn line has none, so that a whole line which cannot be read is damage.
            let damaged = |cause| TreeError::Damaged { path: path.into(), line: records.len() + 1, cause };
            records.push(record.map_err(damaged)?);
            end += size + 1;
        }
        let log = Log { path: path.into(), end: length(end), file: None, records: records.len() };
        Ok(Some((log, records)))
    }

    /// Intact records of a log that may be damaged, and the numbers of lines that are not, for `check --repair`.
    pub(crate) fn salvage<T: DeserializeOwned>(
        place: &dyn Place,
        path: &str,
    ) -> Result<(Vec<T>, Vec<usize>)> {
        let bytes = place.read(path)?.unwrap_or_default();
        let (mut records, mut damaged) = (Vec::new(), Vec::new());
        for (number, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
            match line::decode(text) {
                Ok(record) => records.push(record),
                Err(_) if text.is_empty() => (),
                Err(_) => damaged.push(number + 1),
            }
        }
        Ok((records, damaged))
    }

    /// Appends one record in one write.
    pub(crate) fn append<T: Serialize>(&mut self, place: &dyn Place, record: &T) -> Result<()> {
        self.append_all(place, std::slice::from_ref(record))
    }

    /// Appends records in one write.
    pub(crate) fn append_all<T: Serialize>(&mut self, place: &dyn Place, records: &[T]) -> Result<()> {
        let text: String = records.iter().map(line::encode).collect();
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = place.open(&self.path, true)?;
                // A torn line of a dead writer must not join the new one.
                if file.size()? > self.end {
                    file.set_size(self.end)?;
                }
                self.file = Some(file.clone());
                file
            }
        };
        if let Err(error) = file.write_at(self.end, text.as_bytes()) {
            // Disk full: the log stays as it was.
            self.file = None;
            return Err(error);
        }
        self.end += length(text.len());
        self.records += records.len();
        Ok(())
    }

    /// Replaces the file by these records, at once.
    pub(crate) fn rewrite<T: Serialize>(&mut self, place: &dyn Place, records: &[T]) -> Result<()> {
        *self = Log::create(place, &self.path, records)?;
        Ok(())
    }

    /// The file was renamed together with its object.
    pub(crate) fn moved(&mut self, path: String) {
        self.path = path;
        self.file = None;
    }

    /// The file was renamed alone; it stays open.
    pub(crate) fn renamed(&mut self, path: String) {
        self.path = path;
    }

    /// Closes the descriptor; the next append opens it again.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }
}
