//! A directory of a partition as a place.
//!
//! Never: returns from a change before the servers have it, so that the end of the process loses nothing. Always: an operation
//! on a lost server, or in a forked child, is an error of the call.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pario::core::{Code, FileKind};
use pario::{File, LockOptions, Partition, RangeLock};

use super::{LOCK, NEW, Place, PlaceEntry, PlaceFile, holder_text};
use crate::bytes::{index, length};
use crate::error::{Result, TreeError};

/// Wait for the lock of a process that was just killed; servers notice its end in less.
const LOCK_WAIT: Duration = Duration::from_millis(1000);

/// A directory of a partition.
#[derive(Debug)]
pub struct PartitionPlace {
    partition: Partition,
    root: String,
    locked: Mutex<Option<HeldTreeLock>>,
}

/// The lock ends before the handle of its file.
#[derive(Debug)]
struct HeldTreeLock {
    _lock: RangeLock,
    _file: File,
}

impl PartitionPlace {
    /// The directory `root` of a partition; it need not exist.
    pub fn new(partition: Partition, root: &str) -> PartitionPlace {
        PartitionPlace { partition, root: root.trim_matches('/').into(), locked: Mutex::new(None) }
    }

    fn full(&self, path: &str) -> String {
        if path.is_empty() { self.root.clone() } else { format!("{}/{path}", self.root) }
    }

    fn fault<'a>(&'a self, action: &'static str, path: &'a str) -> impl Fn(pario::Error) -> TreeError + 'a {
        move |error| failed(action, &self.full(path), &error)
    }
}

/// The system's number and the partition's own sentence.
fn failed(action: &'static str, path: &str, error: &pario::Error) -> TreeError {
    TreeError::Partition { action, path: path.into(), cause: error.to_string(), errno: error.errno() }
}

fn missing<T>(result: pario::Result<T>) -> pario::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.code(), Code::NotFound | Code::NotDirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn kind_of(kind: FileKind) -> PlaceEntry {
    match kind {
        FileKind::File => PlaceEntry::File,
        FileKind::Directory => PlaceEntry::Directory,
        FileKind::Symlink => PlaceEntry::Symlink,
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => PlaceEntry::Other,
    }
}

fn read_all(file: &File) -> pario::Result<Vec<u8>> {
    let mut bytes = vec![0; index(file.len()?)];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

impl Place for PartitionPlace {
    fn root(&self) -> String {
        format!("pario://{}/{}", self.partition.name(), self.root)
    }

    fn identity(&self) -> Result<Option<(String, PlaceEntry)>> {
        let found = missing(self.partition.metadata(&self.root)).map_err(self.fault("examine", ""))?;
        let key = |inode| format!("{:?} {inode:?}", self.partition.identity());
        Ok(found.map(|attr| (key(attr.inode), kind_of(attr.kind))))
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let opened = missing(self.partition.open(self.full(path))).map_err(self.fault("read", path))?;
        opened.map(|file| read_all(&file)).transpose().map_err(self.fault("read", path))
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let new = self.full(&format!("{path}{NEW}"));
        let written = self.partition.create(&new).and_then(|file| {
            file.write_at(0, bytes)?;
            file.close()
        });
        let renamed = written.and_then(|()| self.partition.rename(&new, self.full(path)));
        renamed.map_err(|error| {
            // What cannot be removed either is removed by the next writer.
            let _ = self.partition.remove_file(&new);
            self.fault("write", path)(error)
        })
    }

    fn open(&self, path: &str, write: bool) -> Result<Arc<dyn PlaceFile>> {
        let file = self.partition.options().read(true).write(write).create(write).open(self.full(path));
        let file = file.map_err(self.fault("open", path))?;
        Ok(Arc::new(PartitionFile { file, path: self.full(path) }))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn PlaceFile>> {
        let file = self.partition.create(self.full(path)).map_err(self.fault("create", path))?;
        Ok(Arc::new(PartitionFile { file, path: self.full(path) }))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        match self.partition.create_dir(self.full(path)) {
            Err(error) if error.code() == Code::Exists => Ok(()),
            done => done.map_err(self.fault("create directory", path)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.partition.rename(self.full(from), self.full(to)).map_err(self.fault("rename", from))
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        let removed = missing(self.partition.remove_file(self.full(path)));
        removed.map(|_| ()).map_err(self.fault("remove", path))
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        if self.kind(path)?.is_none() {
            return Ok(());
        }
        for (name, kind) in self.list(path)? {
            let inner = if path.is_empty() { name } else { format!("{path}/{name}") };
            if kind == PlaceEntry::Directory { self.remove_tree(&inner)? } else { self.remove_file(&inner)? }
        }
        let removed = missing(self.partition.remove_dir(self.full(path)));
        removed.map(|_| ()).map_err(self.fault("remove", path))
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.remove_file(path)?;
        self.partition.symlink(target, self.full(path)).map_err(self.fault("link", path))
    }

    fn kind(&self, path: &str) -> Result<Option<PlaceEntry>> {
        let found = missing(self.partition.symlink_metadata(self.full(path)));
        Ok(found.map_err(self.fault("examine", path))?.map(|attr| kind_of(attr.kind)))
    }

    fn list(&self, path: &str) -> Result<Vec<(String, PlaceEntry)>> {
        let fault = self.fault("list", path);
        let mut entries = Vec::new();
        for entry in self.partition.read_dir(self.full(path)).map_err(&fault)? {
            let entry = entry.map_err(&fault)?;
            entries.push((String::from_utf8_lossy(&entry.name).into_owned(), kind_of(entry.attr.kind)));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn lock(&self, exclusive: bool) -> Result<()> {
        // A lock of this place's own would exclude the new one.
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let options = self.partition.options().read(true).write(exclusive).create(exclusive);
        let Some(file) = missing(options.open(self.full(LOCK))).map_err(self.fault("lock", LOCK))? else {
            // A copy without a lock file has no writer.
            return Ok(());
        };
        let mode = if exclusive { LockOptions::exclusive() } else { LockOptions::shared() };
        let lock = match file.lock(.., &mode.limit(LOCK_WAIT).whole_file()) {
            Ok(lock) => lock,
            Err(error) if matches!(error.code(), Code::Busy | Code::WouldBlock | Code::TimedOut) => {
                let text = read_all(&file).unwrap_or_default();
                return Err(TreeError::Busy { path: self.root(), holder: holder_text(&text) });
            }
            Err(error) => return Err(self.fault("lock", LOCK)(error)),
        };
        if exclusive {
            let text = super::own_text();
            let written = file.set_len(0).and_then(|()| file.write_at(0, text.as_bytes()));
            written.and_then(|()| file.settle()).map_err(self.fault("lock", LOCK))?;
        }
        let held = HeldTreeLock { _lock: lock, _file: file };
        *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(())
    }
}

#[derive(Debug)]
struct PartitionFile {
    file: File,
    path: String,
}

impl PartitionFile {
    fn at(&self, action: &'static str) -> impl Fn(pario::Error) -> TreeError + '_ {
        move |error| failed(action, &self.path, &error)
    }
}

impl PlaceFile for PartitionFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(offset + length(done), &mut buffer[done..]).map_err(self.at("read"))? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_at(offset, bytes).and_then(|()| self.file.settle());
        written.map_err(self.at("write"))
    }

    fn size(&self) -> Result<u64> {
        self.file.len().map_err(self.at("examine"))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(self.at("truncate"))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(self.at("sync"))
    }
}
