//! Names files in a directory of this machine: `names.NNNNNNNNNNNN.copy`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::Fault;
use pario_store::disk::{Disk, EntryKind, OpenMode};

use super::{CopyLocation, Finish};

const PREFIX: &str = "names.";
const SUFFIX: &str = ".copy";

/// See the module.
#[derive(Clone, Debug)]
pub struct LocalCopies {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl LocalCopies {
    /// Files in this directory, which is created with the first one.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, dir: &Path) -> LocalCopies {
        LocalCopies { disk, dir: dir.to_owned() }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{PREFIX}{number:012}{SUFFIX}"))
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::from_io(error, format!("second copy of names in {}", self.dir.display()))
    }

    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let entries = match self.disk.list_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut files = Vec::new();
        for (name, kind) in entries {
            let number =
                name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok());
            if let (Some(number), EntryKind::File) = (number, kind) {
                files.push((number, self.disk.length(&self.path(number))?.unwrap_or(0)));
            }
        }
        files.sort_unstable();
        Ok(files)
    }

    fn put(&self, number: u64, at: u64, bytes: &[u8], finish: Finish) -> io::Result<()> {
        if at == 0 && !self.disk.exists(&self.dir)? {
            self.disk.make_dir(&self.dir)?;
            if let Some(parent) = self.dir.parent() {
                self.disk.sync_dir(parent)?;
            }
        }
        let file =
            self.disk.open(&self.path(number), if at == 0 { OpenMode::Create } else { OpenMode::Write })?;
        file.write_at(bytes, at)?;
        let end = at + bytes.len() as u64;
        if end < file.length()? {
            file.set_len(end)?;
        }
        if finish == Finish::More {
            return Ok(());
        }
        file.sync_data()?;
        if finish == Finish::Only {
            // Its directory entry must be durable before other files are removed.
            self.disk.sync_dir(&self.dir)?;
            for (older, _) in self.list()?.into_iter().filter(|(other, _)| *other < number) {
                self.disk.remove(&self.path(older))?;
            }
        }
        Ok(())
    }

    fn get(&self, number: u64, at: u64, bytes: u32) -> io::Result<Vec<u8>> {
        let mut target = vec![0; bytes as usize];
        let read = self.disk.open(&self.path(number), OpenMode::Read)?.read_at(&mut target, at)?;
        target.truncate(read);
        Ok(target)
    }
}

impl CopyLocation for LocalCopies {
    fn describe(&self) -> String {
        self.dir.display().to_string()
    }

    fn files(&self) -> Result<Vec<(u64, u64)>, Fault> {
        self.list().map_err(|error| self.fault(&error))
    }

    fn write(&self, number: u64, at: u64, bytes: &[u8], finish: Finish) -> Result<(), Fault> {
        self.put(number, at, bytes, finish).map_err(|error| self.fault(&error))
    }

    fn read(&self, number: u64, at: u64, bytes: u32) -> Result<Vec<u8>, Fault> {
        self.get(number, at, bytes).map_err(|error| self.fault(&error))
    }
}
