//! The bytes of one file as sectors, and the possible results of unsynced changes.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pario_core::SeededRandom;

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum FileChange<'a> {
    Write { at: u64, bytes: &'a [u8] },
    SetLength(u64),
}

/// How much of the unsynced changes survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Luck {
    Nothing,
    Everything,
    Some,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileImage {
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES]>,
    length: u64,
}

impl FileImage {
    /// Applies a change completely.
    pub(super) fn apply(&mut self, change: &FileChange<'_>) {
        match change {
            FileChange::Write { at, bytes } => {
                self.write(*at, bytes, |_| true);
                self.length = self.length.max(at + bytes.len() as u64);
            }
            FileChange::SetLength(bytes) => self.set_length(*bytes),
        }
    }

    /// Applies the part of the changes that `luck` selects.
    pub(super) fn apply_some(&mut self, changes: &[FileChange<'_>], luck: Luck, random: &mut SeededRandom) {
        for change in changes {
            match (luck, change) {
                (Luck::Nothing, _) => {}
                (Luck::Everything, _) => self.apply(change),
                (Luck::Some, FileChange::Write { at, bytes }) => self.apply_torn(*at, bytes, random),
                (Luck::Some, FileChange::SetLength(_)) if random.coin() => self.apply(change),
                // Bytes written after a truncation are in new disk blocks, which belong to the file only if the truncation is durable.
                (Luck::Some, FileChange::SetLength(length)) if *length < self.length => return,
                (Luck::Some, FileChange::SetLength(_)) => {}
            }
        }
    }

    fn apply_torn(&mut self, at: u64, bytes: &[u8], random: &mut SeededRandom) {
        match random.below(3) {
            0 => {}
            1 => self.apply(&FileChange::Write { at, bytes }),
            _ => {
                let mut end = self.length;
                self.write(at, bytes, |sector| {
                    let kept = random.coin();
                    if kept {
                        end = end.max(((sector + 1) * SECTOR).min(at + bytes.len() as u64));
                    }
                    kept
                });
                // Some file systems extend a file before its bytes are on the disk.
                self.length = if random.coin() { end } else { self.length.max(at + bytes.len() as u64) };
            }
        }
    }

    /// Writes the image as a sparse file.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let file = std::fs::File::create_new(path)?;
        for (sector, bytes) in &self.sectors {
            file.write_all_at(bytes, sector * SECTOR)?;
        }
        file.set_len(self.length)
    }

    fn write(&mut self, at: u64, bytes: &[u8], mut keep: impl FnMut(u64) -> bool) {
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done as u64;
            let (sector, start) = (place / SECTOR, usize::try_from(place % SECTOR).expect("small"));
            let count = (SECTOR_BYTES - start).min(bytes.len() - done);
            if keep(sector) {
                let target = self.sectors.entry(sector).or_insert([0; SECTOR_BYTES]);
                target[start..start + count].copy_from_slice(&bytes[done..done + count]);
            }
            done += count;
        }
    }

    fn set_length(&mut self, length: u64) {
        if length < self.length {
            self.sectors.split_off(&length.div_ceil(SECTOR));
            if let Some(last) = self.sectors.get_mut(&(length / SECTOR)) {
                last[usize::try_from(length % SECTOR).expect("small")..].fill(0);
            }
        }
        self.length = length;
    }
}
