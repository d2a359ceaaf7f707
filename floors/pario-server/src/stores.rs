//! Selection of a server's store, by name.
//!
//! Always: reports with the store whether its bytes are lost with the process and whether it lends descriptors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::Fault;
use pario_store::direct::{DirectSettings, DirectStore};

use pario_store::{
    Checksummed, Disk, FilesStore, LogStore, MemoryStore, RealDisk, RootedDisk, Store, StoreRate, Throttled,
};

/// A store to open.
#[derive(Clone, PartialEq, Debug)]
pub enum StoreChoice {
    /// Plain files below a directory; the kernel caches.
    Files {
        /// Its directory.
        dir: PathBuf,
    },
    /// Plain files below a directory, bypassing the kernel's cache; the server caches.
    Direct {
        /// Its directory.
        dir: PathBuf,
        /// Size of the cache.
        cache_bytes: u64,
        /// Share of dirty bytes at which write-back starts.
        high: f64,
        /// Share of dirty bytes at which write-back stops.
        low: f64,
    },
    /// Containers below a directory: writes are appended to logs.
    Log {
        /// Its directory.
        dir: PathBuf,
    },
    /// Memory of the server's process.
    Memory {
        /// Its size.
        bytes: u64,
    },
}

/// Whether checksums of stored bytes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// Kept; see [`pario_store::Checksummed`].
    On,
    /// Not kept.
    #[default]
    Off,
}

/// An open store and its properties for clients.
#[derive(Clone, Debug)]
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Whether its bytes are lost with the process.
    pub volatile: bool,
    /// Whether it lends descriptors for reading.
    pub lends: bool,
    /// Whether it lends them for writing too. Memory does not: its limit is kept by the store, not by the kernel.
    pub lends_writing: bool,
}

/// The same, not yet shared.
struct MadeStore {
    store: Box<dyn Store>,
    volatile: bool,
    lends: bool,
    lends_writing: bool,
}

impl MadeStore {
    /// Adds checksums, if requested and possible.
    fn with(self, checksums: Checksums, disk: Arc<dyn Disk>, dir: Option<&Path>) -> Result<MadeStore, Fault> {
        let (Checksums::On, Some(dir)) = (checksums, dir) else { return Ok(self) };
        // Bytes that a store holds in memory are lost with the process, bytes that the kernel holds with the machine.
        let life = if self.volatile { process_life() } else { disk.life() };
        let store = Checksummed::open(self.store, disk, dir, life)?;
        Ok(MadeStore { store: Box::new(store), ..self })
    }
}

/// An identity unique to this process.
fn process_life() -> pario_store::Life {
    let nonce: [u8; 32] = pario_net::greeting::nonce();
    let mut life = pario_store::Life::default();
    life.copy_from_slice(&nonce[..16]);
    life
}

impl StoreChoice {
    /// Opens it.
    pub fn open(&self) -> Result<OpenStore, Fault> {
        self.open_as(real_disk(), Checksums::Off, None)
    }

    /// Opens it on a disk, with or without checksums of its bytes, and at a limited rate, if one is given: then it lends nothing, since a
    /// lent descriptor bypasses the limit.
    pub fn open_as(
        &self,
        disk: Arc<dyn Disk>,
        checksums: Checksums,
        pace: Option<StoreRate>,
    ) -> Result<OpenStore, Fault> {
        let made = self.make(Arc::clone(&disk))?.with(checksums, disk, self.dir())?;
        let MadeStore { store, volatile, lends, lends_writing } = made;
        Ok(match pace {
            None => OpenStore { store: Arc::from(store), volatile, lends, lends_writing },
            Some(pace) => {
                let store = Arc::new(Throttled::new(store, pace));
                OpenStore { store, volatile, lends: false, lends_writing: false }
            }
        })
    }

    /// The directory of its objects, if not in memory.
    fn dir(&self) -> Option<&Path> {
        match self {
            StoreChoice::Files { dir } | StoreChoice::Direct { dir, .. } | StoreChoice::Log { dir } => {
                Some(dir)
            }
            StoreChoice::Memory { .. } => None,
        }
    }

    fn make(&self, disk: Arc<dyn Disk>) -> Result<MadeStore, Fault> {
        Ok(match self {
            StoreChoice::Files { dir } => MadeStore {
                store: Box::new(FilesStore::open_on(disk, dir)?),
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
                MadeStore {
                    store: Box::new(DirectStore::open_on(disk, dir, settings)?),
                    volatile: true,
                    lends: false,
                    lends_writing: false,
                }
            }
            StoreChoice::Log { dir } => MadeStore {
                store: Box::new(LogStore::open_on(disk, dir)?),
                volatile: false,
                lends: false,
                lends_writing: false,
            },
            StoreChoice::Memory { bytes } => MadeStore {
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
pub fn real_disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// One directory of them, by its descriptor.
#[must_use]
pub fn disk_in(dir: &Arc<pario_sys::dir::Dir>) -> Arc<dyn Disk> {
    RootedDisk::shared(Arc::clone(dir))
}

/// Names and inodes in a directory of this machine.
#[must_use]
pub fn names_in(dir: &Path, defaults: pario_core::Layout) -> crate::NamesSpec {
    crate::NamesSpec { dir: dir.to_owned(), disk: real_disk(), defaults }
}

/// A restart log in a file of this machine.
#[must_use]
pub fn restart_log_in(path: &Path) -> crate::RestartLogSpec {
    crate::RestartLogSpec { disk: real_disk(), path: path.to_owned() }
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
        let limited = choice
            .open_as(
                real_disk(),
                Checksums::Off,
                Some(StoreRate { bytes_per_second: Some(1 << 30), ..StoreRate::default() }),
            )
            .unwrap();
        assert!(!limited.lends && !limited.lends_writing && limited.volatile);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        limited.store.write(object, LocalOffset(0), &[pario_sys::MemoryPiece::from(&b"abc"[..])]).unwrap();
        assert!(matches!(limited.store.lend(object, LendAccess::Read).unwrap(), Lent::NotLent));
        assert_eq!(limited.store.length(object).unwrap(), Some(3));
    }
}
