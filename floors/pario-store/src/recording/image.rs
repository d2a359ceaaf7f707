//! The bytes of one file as sectors, and what may become of changes that were not synced.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::random::Random;

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Change<'a> {
    Write { at: u64, bytes: &'a [u8] },
    SetLength(u64),
}

/// How much of what was not synced survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Luck {
    Nothing,
    Everything,
    Some,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    sectors: BTreeMap<u64, [u8; SECTOR_BYTES]>,
    length: u64,
}

impl Image {
    /// Makes a change whole.
    pub(super) fn apply(&mut self, change: &Change<'_>) {
        match change {
            Change::Write { at, bytes } => {
                self.write(*at, bytes, |_| true);
                self.length = self.length.max(at + bytes.len() as u64);
            }
            Change::SetLength(bytes) => self.set_length(*bytes),
        }
    }

    /// Makes what luck leaves of the changes.
    pub(super) fn apply_some(&mut self, changes: &[Change<'_>], luck: Luck, random: &mut Random) {
        for change in changes {
            match (luck, change) {
                (Luck::Nothing, _) => {}
                (Luck::Everything, _) => self.apply(change),
                (Luck::Some, Change::Write { at, bytes }) => self.apply_torn(*at, bytes, random),
                (Luck::Some, Change::SetLength(_)) if random.coin() => self.apply(change),
                // What was written after a cut lies in new places, which are the file's only if the cut is.
                (Luck::Some, Change::SetLength(length)) if *length < self.length => return,
                (Luck::Some, Change::SetLength(_)) => {}
            }
        }
    }

    fn apply_torn(&mut self, at: u64, bytes: &[u8], random: &mut Random) {
        match random.below(3) {
            0 => {}
            1 => self.apply(&Change::Write { at, bytes }),
            _ => {
                let mut end = self.length;
                self.write(at, bytes, |sector| {
                    let kept = random.coin();
                    if kept {
                        end = end.max(((sector + 1) * SECTOR).min(at + bytes.len() as u64));
                    }
                    kept
                });
                // Some file systems lengthen a file before its bytes are there.
                self.length = if random.coin() { end } else { self.length.max(at + bytes.len() as u64) };
            }
        }
    }

    /// Writes the image as a file with holes.
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
