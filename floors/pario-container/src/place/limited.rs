//! A place with storage that fails after a number of changes: the model of a process that dies, or of a full disk, in tests.
//!
//! Always: the change that fails has written a part of its bytes, and every later change fails.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DirectoryPlace, Place, PlaceEntry, PlaceFile};
use crate::error::{Result, TreeError};

/// A place with a limited number of changes.
#[derive(Debug)]
pub struct LimitedPlace {
    inner: Arc<dyn Place>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Budget {
    left: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    fn spend(&self, path: &str) -> Result<()> {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        self.used.fetch_add(1, Ordering::SeqCst);
        let full = || io::Error::from_raw_os_error(28);
        taken.map(|_| ()).map_err(|_| TreeError::storage("change", path, full()))
    }
}

impl LimitedPlace {
    /// The directory `root`, of which `changes` succeed.
    pub fn new(root: impl Into<PathBuf>, changes: u64) -> LimitedPlace {
        LimitedPlace::over(Arc::new(DirectoryPlace::new(root)), changes)
    }

    /// Another place, of which `changes` succeed.
    pub fn over(inner: Arc<dyn Place>, changes: u64) -> LimitedPlace {
        let budget = Arc::new(Budget { left: AtomicU64::new(changes), used: AtomicU64::new(0) });
        LimitedPlace { inner, budget }
    }

    /// Whether a change has failed.
    pub fn is_exhausted(&self) -> bool {
        self.budget.left.load(Ordering::SeqCst) == 0
    }
}

impl Place for LimitedPlace {
    fn root(&self) -> String {
        self.inner.root()
    }

    fn identity(&self) -> Result<Option<(String, PlaceEntry)>> {
        self.inner.identity()
    }

    fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        self.inner.read(path)
    }

    fn write_new(&self, path: &str, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.budget.spend(path) {
            let torn = self.inner.open(&format!("{path}@new"), true)?;
            torn.write_at(0, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.inner.write_new(path, bytes)
    }

    fn open(&self, path: &str, write: bool) -> Result<Arc<dyn PlaceFile>> {
        let inner = self.inner.open(path, write)?;
        Ok(Arc::new(LimitedFile { inner, path: path.into(), budget: self.budget.clone() }))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn PlaceFile>> {
        self.budget.spend(path)?;
        let inner = self.inner.create(path)?;
        Ok(Arc::new(LimitedFile { inner, path: path.into(), budget: self.budget.clone() }))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        self.budget.spend(path)?;
        self.inner.create_dir(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.budget.spend(from)?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.budget.spend(path)?;
        self.inner.remove_file(path)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        self.budget.spend(path)?;
        self.inner.remove_tree(path)
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.budget.spend(path)?;
        self.inner.symlink(target, path)
    }

    fn kind(&self, path: &str) -> Result<Option<PlaceEntry>> {
        self.inner.kind(path)
    }

    fn list(&self, path: &str) -> Result<Vec<(String, PlaceEntry)>> {
        self.inner.list(path)
    }

    fn lock(&self, exclusive: bool) -> Result<()> {
        self.inner.lock(exclusive)
    }
}

#[derive(Debug)]
struct LimitedFile {
    inner: Arc<dyn PlaceFile>,
    path: String,
    budget: Arc<Budget>,
}

impl PlaceFile for LimitedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.budget.spend(&self.path) {
            self.inner.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.inner.write_at(offset, bytes)
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.budget.spend(&self.path)?;
        self.inner.set_size(size)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}
