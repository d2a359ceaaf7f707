//! A plain directory as a place.
//!
//! Never: leaves the directory; names are those of [`crate::names`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{LOCK, NEW, Place, PlaceEntry, PlaceFile, holder_text, own_text};
use crate::error::{Result, TreeError};

/// A plain directory.
#[derive(Debug)]
pub struct DirectoryPlace {
    root: PathBuf,
    locked: Mutex<Option<File>>,
}

impl DirectoryPlace {
    /// The directory `root`; it need not exist.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryPlace {
        DirectoryPlace { root: root.into(), locked: Mutex::new(None) }
    }

    fn full(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    fn fault<'a>(&'a self, action: &'static str, path: &'a str) -> impl Fn(io::Error) -> TreeError + 'a {
        move |error| TreeError::storage(action, self.full(path).display().to_string(), error)
    }
}

fn missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Place for DirectoryPlace {
    fn root(&self) -> String {
        self.root.display().to_string()
    }

    fn identity(&self) -> Result<Option<(String, PlaceEntry)>> {
        let found = missing(fs::metadata(&self.root)).map_err(self.fault("examine", ""))?;
        Ok(found.map(|meta| (format!("{} {}", meta.dev(), meta.ino()), kind_of(meta.file_type()))))
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        missing(fs::read(self.full(path))).map_err(self.fault("read", path))
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let new = self.full(&format!("{path}{NEW}"));
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.full(path)));
        written.map_err(|error| {
            let _ = fs::remove_file(&new);
            self.fault("write", path)(error)
        })
    }

    fn open(&self, path: &str, write: bool) -> Result<Arc<dyn PlaceFile>> {
        let file = OpenOptions::new().read(true).write(write).create(write).open(self.full(path));
        let file = file.map_err(self.fault("open", path))?;
        Ok(Arc::new(DirectoryFile { file, path: self.full(path) }))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn PlaceFile>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(self.full(path));
        let file = file.map_err(self.fault("create", path))?;
        Ok(Arc::new(DirectoryFile { file, path: self.full(path) }))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        match fs::create_dir(self.full(path)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            done => done.map_err(self.fault("create directory", path)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::rename(self.full(from), self.full(to)).map_err(self.fault("rename", from))
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        missing(fs::remove_file(self.full(path))).map(|_| ()).map_err(self.fault("remove", path))
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        missing(fs::remove_dir_all(self.full(path))).map(|_| ()).map_err(self.fault("remove", path))
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        let full = self.full(path);
        let made = missing(fs::remove_file(&full)).and_then(|_| std::os::unix::fs::symlink(target, &full));
        made.map_err(self.fault("link", path))
    }

    fn kind(&self, path: &str) -> Result<Option<PlaceEntry>> {
        let found = missing(fs::symlink_metadata(self.full(path))).map_err(self.fault("examine", path))?;
        Ok(found.map(|meta| kind_of(meta.file_type())))
    }

    fn list(&self, path: &str) -> Result<Vec<(String, PlaceEntry)>> {
        let fault = self.fault("list", path);
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.full(path)).map_err(&fault)? {
            let entry = entry.map_err(&fault)?;
            // A name that is not UTF-8 is none of the tree's.
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push((name, kind_of(entry.file_type().map_err(&fault)?)));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn lock(&self, exclusive: bool) -> Result<()> {
        // A lock of this place's own would exclude the new one.
        *self.locked.lock().expect("no panic with the lock held") = None;
        let path = self.full(LOCK);
        let opened =
            OpenOptions::new().read(true).write(exclusive).create(exclusive).truncate(false).open(&path);
        let mut file = match missing(opened).map_err(self.fault("lock", LOCK))? {
            Some(file) => file,
            // A read-only copy without a lock file has no writer.
            None => return Ok(()),
        };
        let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                let mut text = Vec::new();
                let _ = file.read_to_end(&mut text);
                return Err(TreeError::Busy { path: self.root(), holder: holder_text(&text) });
            }
            Err(TryLockError::Error(error)) => return Err(self.fault("lock", LOCK)(error)),
        }
        if exclusive {
            file.set_len(0)
                .and_then(|()| file.write_all(own_text().as_bytes()))
                .map_err(self.fault("lock", LOCK))?;
        }
        *self.locked.lock().expect("no panic with the lock held") = Some(file);
        Ok(())
    }
}

fn kind_of(kind: fs::FileType) -> PlaceEntry {
    if kind.is_symlink() {
        PlaceEntry::Symlink
    } else if kind.is_dir() {
        PlaceEntry::Directory
    } else if kind.is_file() {
        PlaceEntry::File
    } else {
        PlaceEntry::Other
    }
}

#[derive(Debug)]
struct DirectoryFile {
    file: File,
    path: PathBuf,
}

fn at(path: &Path, action: &'static str) -> impl Fn(io::Error) -> TreeError {
    move |error| TreeError::storage(action, path.display().to_string(), error)
}

impl PlaceFile for DirectoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + crate::bytes::length(done);
            match self.file.read_at(&mut buffer[done..], position) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(at(&self.path, "read")(error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(at(&self.path, "write"))
    }

    fn size(&self) -> Result<u64> {
        self.file.metadata().map(|meta| meta.len()).map_err(at(&self.path, "examine"))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(at(&self.path, "truncate"))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(at(&self.path, "sync"))
    }
}
