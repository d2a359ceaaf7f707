//! The reserve: disk space that is released when the disk is full, so that files can still be removed.
//!
//! Always: only changes that free space may use it ([`super::batch::Batch::frees`]); it is refilled by the applying thread once there is
//! ample free space.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pario_store::disk::OpenMode;

use super::ledger::FileLocation;

const FILE: &str = "names.reserve";
/// The reserve is filled when this many times its size is free.
const PLENTY: u64 = 16;

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    location: FileLocation,
    bytes: usize,
    held: AtomicBool,
}

impl Reserve {
    /// The reserve of a directory, in its current state.
    #[must_use]
    pub fn open(place: FileLocation, bytes: usize) -> Reserve {
        let length = place.disk.length(&place.dir.join(FILE));
        let held = 0 < bytes && length.is_ok_and(|length| length == Some(bytes as u64));
        Reserve { location: place, bytes, held: AtomicBool::new(held) }
    }

    /// Allocates the reserve, if there is ample free space. After a failure the next full disk has no reserve.
    pub fn hold(&self) {
        if self.bytes == 0 || self.held.load(Ordering::Acquire) {
            return;
        }
        let wanted_bytes = PLENTY * self.bytes as u64;
        if self.location.disk.space(&self.location.dir).is_ok_and(|space| wanted_bytes <= space.free_bytes) {
            match self.fill() {
                Ok(()) => self.held.store(true, Ordering::Release),
                Err(error) => {
                    tracing::warn!(%error, path = %self.path().display(), "names: no room could be reserved")
                }
            }
        }
    }

    /// Releases the reserve; returns whether there was one.
    pub fn give_up(&self) -> bool {
        self.held.swap(false, Ordering::AcqRel) && self.location.disk.remove(&self.path()).is_ok()
    }

    fn fill(&self) -> io::Result<()> {
        let file = self.location.disk.open(&self.path(), OpenMode::Create)?;
        file.write_at(&vec![0; self.bytes], 0)?;
        file.set_len(self.bytes as u64)?;
        file.sync_data()
    }

    fn path(&self) -> PathBuf {
        self.location.dir.join(FILE)
    }
}
