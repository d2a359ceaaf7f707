//! The reserve: a little room on the disk that is given up when it is full, so that files can still be removed.
//!
//! Always: only changes that free something may use it ([`super::batch::Batch::frees`]); it is filled again by the applying
//! thread once there is plenty of room.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use pario_store::disk::OpenMode;

use super::ledger::FilePlace;

const FILE: &str = "names.reserve";
/// The reserve is filled when so many times its size is free.
const PLENTY: u64 = 16;

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    place: FilePlace,
    bytes: usize,
    held: AtomicBool,
}

impl Reserve {
    /// The reserve of a directory, as it was left.
    #[must_use]
    pub fn open(place: FilePlace, bytes: usize) -> Reserve {
        let length = place.disk.length(&place.dir.join(FILE));
        let held = 0 < bytes && length.is_ok_and(|length| length == Some(bytes as u64));
        Reserve { place, bytes, held: AtomicBool::new(held) }
    }

    /// Takes room on the disk, if there is plenty. A failure is no harm but that the next full disk is met without it.
    pub fn hold(&self) {
        if self.bytes == 0 || self.held.load(Ordering::Acquire) {
            return;
        }
        let wanted_bytes = PLENTY * self.bytes as u64;
        if self.place.disk.space(&self.place.dir).is_ok_and(|space| wanted_bytes <= space.free_bytes) {
            match self.fill() {
                Ok(()) => self.held.store(true, Ordering::Release),
                Err(error) => {
                    tracing::warn!(%error, path = %self.path().display(), "names: no room could be reserved")
                }
            }
        }
    }

    /// Gives the room back to the disk; says whether there was any.
    pub fn give_up(&self) -> bool {
        self.held.swap(false, Ordering::AcqRel) && self.place.disk.remove(&self.path()).is_ok()
    }

    fn fill(&self) -> io::Result<()> {
        let file = self.place.disk.open(&self.path(), OpenMode::Create)?;
        file.write_at(&vec![0; self.bytes], 0)?;
        file.set_len(self.bytes as u64)?;
        file.sync_data()
    }

    fn path(&self) -> PathBuf {
        self.place.dir.join(FILE)
    }
}
