//! Which store a server stands on, by name.
//!
//! Always: says with the store whether its bytes die with the process and whether it lends descriptors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::Fault;
use pario_store::direct::{DirectSettings, DirectStore};

use pario_store::{FilesStore, MemoryStore, Pace, RealDisk, Store, Throttled};

/// A store to open.
#[derive(Clone, PartialEq, Debug)]
pub enum StoreChoice {
    /// Plain files below a directory; the kernel caches.
    Files {
        /// Where.
        dir: PathBuf,
    },
    /// Plain files below a directory past the kernel's cache; the server caches.
    Direct {
        /// Where.
        dir: PathBuf,
        /// Size of the cache.
        cache_bytes: u64,
        /// Share of dirty bytes at which staging starts.
        high: f64,
        /// Share of dirty bytes at which staging stops.
        low: f64,
    },
    /// Memory of the server's process.
    Memory {
        /// How much.
        bytes: u64,
    },
}

/// An open store with what clients must know of it.
#[derive(Clone, Debug)]
pub struct OpenStore {
    /// It.
    pub store: Arc<dyn Store>,
    /// Whether its bytes die with the process.
    pub volatile: bool,
    /// Whether it lends descriptors for reading.
    pub lends: bool,
    /// Whether it lends them for writing too. Memory does not: its limit is kept by the store, not by the kernel.
    pub lends_writing: bool,
}

/// The same, not yet shared.
struct Made {
    store: Box<dyn Store>,
    volatile: bool,
    lends: bool,
    lends_writing: bool,
}

impl StoreChoice {
    /// Opens it.
    pub fn open(&self) -> Result<OpenStore, Fault> {
        let made = self.make()?;
        let Made { volatile, lends, lends_writing, .. } = made;
        Ok(OpenStore { store: Arc::from(made.store), volatile, lends, lends_writing })
    }

    /// Opens it so that it gets no more through than that. It lends nothing, since a loan knows no pace.
    pub fn open_limited(&self, pace: Pace) -> Result<OpenStore, Fault> {
        let Made { store, volatile, .. } = self.make()?;
        let store = Arc::new(Throttled::new(store, pace));
        Ok(OpenStore { store, volatile, lends: false, lends_writing: false })
    }

    fn make(&self) -> Result<Made, Fault> {
        Ok(match self {
            StoreChoice::Files { dir } => Made {
                store: Box::new(FilesStore::open(dir)?),
                volatile: false,
                lends: true,
                lends_writing: true,
            },
            StoreChoice::Direct { dir, cache_bytes, high, low } => {
                let share = |part: f64| part_of(*cache_bytes, part);
                let settings = DirectSettings {
                    cache_bytes: *cache_bytes,
                    high_bytes: share(*high),
                    low_bytes: share(*low),
                };
                Made {
                    store: Box::new(DirectStore::open(dir, settings)?),
                    volatile: true,
                    lends: false,
                    lends_writing: false,
                }
            }
            StoreChoice::Memory { bytes } => Made {
                store: Box::new(MemoryStore::new(*bytes)),
                volatile: true,
                lends: true,
                lends_writing: false,
            },
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share between 0 and 1 of a cache that fits into memory"
)]
fn part_of(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// The machine's own file systems.
#[must_use]
pub fn real_disk() -> Arc<dyn pario_store::Disk> {
    Arc::new(RealDisk)
}

/// Names and inodes in a directory of this machine.
#[must_use]
pub fn names_in(dir: &Path, defaults: pario_core::Layout) -> crate::NamesSpec {
    crate::NamesSpec { dir: dir.to_owned(), disk: real_disk(), defaults }
}

/// A file of this machine in which a server leaves something to its successor.
#[must_use]
pub fn lives_in(path: &Path) -> crate::LivesSpec {
    crate::LivesSpec { disk: real_disk(), path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario_core::{Generation, InodeId, LocalOffset, ObjectId};
    use pario_store::{LendAccess, Lent};

    #[test]
    fn a_limited_store_lends_nothing() {
        let choice = StoreChoice::Memory { bytes: 1 << 20 };
        assert!(choice.open().unwrap().lends);
        let limited =
            choice.open_limited(Pace { bytes_per_second: Some(1 << 30), ..Pace::default() }).unwrap();
        assert!(!limited.lends && !limited.lends_writing && limited.volatile);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        limited.store.write(object, LocalOffset(0), &[pario_sys::Piece::from(&b"abc"[..])]).unwrap();
        assert!(matches!(limited.store.lend(object, LendAccess::Read).unwrap(), Lent::NotLent));
        assert_eq!(limited.store.length(object).unwrap(), Some(3));
    }
}
