//! Length marks: the largest length written of an object, kept beside its bytes, to tell an object that was truncated at rest from one
//! that was never written so far. Disk format: `docs/formats/store.md`.
//!
//! Never: claims a byte that was not written; lowers a mark because a file is short. Always: an unsynced mark is valid only in the life
//! (the boot of the machine) in which it was made, since a power cut may lose the bytes and keep the mark.

use std::io;
use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use pario_core::ObjectId;

use crate::directory::{ObjectDirectory, OpenObject, OpenWant};
use crate::error::{Doing, StoreError};
use crate::sync::lock;

/// Identity of the period in which unsynced data survives: for files in the page cache, the boot of the machine.
pub type Life = [u8; 16];

/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = 40;
const VERSION: u32 = 1;
/// A length is marked within this time after it was reached.
pub(crate) const MARK_AFTER: Duration = Duration::from_secs(2);

/// Known lengths of an object. Layout: docs/formats/store.md, section "Length marks".
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LengthMark {
    /// On stable storage.
    pub(crate) durable: u64,
    /// Reached in `life`.
    pub(crate) reached: u64,
    pub(crate) life: Life,
}

impl LengthMark {
    pub(crate) fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.durable.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.reached.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.life);
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: not a mark, or a damaged one; it claims nothing.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LengthMark> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if word(0) != VERSION || word(4) != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        let life = bytes[24..].try_into().expect("sixteen bytes");
        Some(LengthMark { durable: number(8), reached: number(16), life })
    }

    /// The largest length written, as valid in `life`.
    pub(crate) fn claims(&self, life: &Life) -> u64 {
        if self.life == *life { self.durable.max(self.reached) } else { self.durable }
    }
}

/// Durability of a length that is about to be marked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    /// In the page cache: it survives this process.
    Cached,
    /// So many bytes are on stable storage.
    Synced(u64),
}

impl OpenObject {
    fn mark(&self, known: &mut Option<LengthMark>) -> io::Result<LengthMark> {
        if let Some(mark) = known {
            return Ok(*mark);
        }
        let bytes = self.plain.mark()?;
        let mark = bytes.as_deref().and_then(LengthMark::decode).unwrap_or_default();
        *known = Some(mark);
        Ok(mark)
    }

    fn set_mark(&self, known: &mut Option<LengthMark>, mark: LengthMark) -> io::Result<()> {
        if *known != Some(mark) {
            // After a failure the mark is read again.
            *known = None;
            self.plain.set_mark(&mark.encode())?;
            *known = Some(mark);
        }
        Ok(())
    }

    /// Marks the object's length, if it grew.
    pub(crate) fn keep_mark(&self, life: &Life, reached: Reached) -> io::Result<()> {
        let mut known = lock(&self.marked);
        let old = self.mark(&mut known)?;
        let claimed = old.claims(life);
        let (durable, length) = match reached {
            Reached::Cached => (old.durable, self.plain.length()?),
            Reached::Synced(bytes) => (old.durable.max(bytes), bytes),
        };
        if claimed < length || durable != old.durable {
            self.set_mark(&mut known, LengthMark { durable, reached: claimed.max(length), life: *life })?;
        }
        Ok(())
    }

    /// Lowers the mark before the object is truncated to `bytes`. If that fails the mark is removed: it would claim the truncated bytes.
    fn lower_mark(&self, life: &Life, bytes: u64) -> io::Result<()> {
        let mut known = lock(&self.marked);
        let lowered = self.mark(&mut known).and_then(|old| {
            let (durable, reached) = (old.durable.min(bytes), old.claims(life).min(bytes));
            let lowered = LengthMark { durable, reached, life: *life };
            if lowered.claims(life) < old.durable.max(old.reached) {
                self.set_mark(&mut known, lowered)?;
            }
            Ok(())
        });
        match lowered {
            Err(error) if !means_no_marks(&error) => {
                *known = None;
                // If that fails as well, report the first failure.
                self.plain.remove_mark().map_err(|_| error)
            }
            lowered => lowered,
        }
    }

    /// The largest length written.
    fn claimed(&self, life: &Life) -> io::Result<u64> {
        Ok(self.mark(&mut lock(&self.marked))?.claims(life))
    }
}

/// Whether the file system does not support marks at all; other failures may be temporary.
fn means_no_marks(error: &io::Error) -> bool {
    let number = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(number)
}

impl ObjectDirectory {
    /// Marks a length; false: it failed and must be retried.
    pub(crate) fn keep_mark(&self, open: &OpenObject, reached: Reached) -> bool {
        if !self.keeps_marks() {
            return true;
        }
        match open.keep_mark(self.life(), reached) {
            Ok(()) => true,
            Err(error) if means_no_marks(&error) => {
                self.no_marks();
                true
            }
            Err(error) => {
                self.log_unmarked(&error);
                false
            }
        }
    }

    /// Lowers the mark of an object that is about to be truncated to `bytes`; if that fails, the object must not be truncated.
    pub(crate) fn lower_mark(&self, open: &OpenObject, bytes: u64) -> io::Result<()> {
        if !self.keeps_marks() {
            return Ok(());
        }
        match open.lower_mark(self.life(), bytes) {
            Err(error) if means_no_marks(&error) => {
                self.no_marks();
                Ok(())
            }
            lowered => lowered,
        }
    }

    /// An error if bytes of `range` were written once and the object is shorter now.
    pub(crate) fn check_whole(
        &self,
        object: ObjectId,
        length: impl Fn() -> Result<Option<u64>, StoreError>,
        range: Range<u64>,
    ) -> Result<(), StoreError> {
        loop {
            // Read the mark first: an object that grows meanwhile is longer than it.
            let Some(written) = self.marked(object)? else { return Ok(()) };
            let Some(length) = length()? else { return Ok(()) };
            if written.min(range.end) <= length || written <= range.start {
                return Ok(());
            }
            // A truncation by the store itself lowers the mark.
            if self.marked(object)? == Some(written) {
                let range = range.start.max(length)..range.end.min(written);
                return Err(StoreError::Cut { object, range, length, written });
            }
        }
    }

    /// The largest length written; `None` without marks or without an object.
    pub(crate) fn marked(&self, object: ObjectId) -> Result<Option<u64>, StoreError> {
        if !self.keeps_marks() {
            return Ok(None);
        }
        let claimed = self.with(object, OpenWant::Existing, |open| match open.claimed(self.life()) {
            Ok(claimed) => Ok(Some(claimed)),
            Err(error) if means_no_marks(&error) => {
                self.no_marks();
                Ok(None)
            }
            Err(error) => Err(self.error(error, Doing::Examining, object)),
        })?;
        Ok(claimed.flatten())
    }
}

/// Timer of the background marking.
#[derive(Debug, Default)]
pub(crate) struct MarkTimer {
    state: Mutex<TimerState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    wanted: bool,
    stopped: bool,
}

impl MarkTimer {
    /// An object was written, or lent for writing.
    pub(crate) fn want(&self) {
        let mut state = lock(&self.state);
        if !state.wanted {
            state.wanted = true;
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.wake.notify_one();
    }

    /// Waits until lengths must be marked; false: the store is closing.
    pub(crate) fn wait(&self) -> bool {
        let state = lock(&self.state);
        let state = self
            .wake
            .wait_while(state, |state| !state.wanted && !state.stopped)
            .expect("another thread panicked while it held this lock");
        let (mut state, _) = self
            .wake
            .wait_timeout_while(state, MARK_AFTER, |state| !state.stopped)
            .expect("another thread panicked while it held this lock");
        state.wanted = false;
        !state.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_the_bytes_that_the_format_draws() {
        let mark = LengthMark { durable: 0x0102, reached: 0x0304_0506, life: [7; 16] };
        let bytes = mark.encode();
        assert_eq!(bytes[..4], [1, 0, 0, 0]);
        assert_eq!(bytes[8..24], [2, 1, 0, 0, 0, 0, 0, 0, 6, 5, 4, 3, 0, 0, 0, 0]);
        assert_eq!(bytes[24..], [7; 16]);
        assert_eq!(bytes[4..8], crc32c::crc32c(&bytes[8..]).to_le_bytes());
        assert_eq!(LengthMark::decode(&bytes), Some(mark));
        for bit in 0..MARK_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(LengthMark::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(LengthMark::decode(&bytes[1..]), None);
    }

    #[test]
    fn what_was_not_synced_counts_in_its_own_life_only() {
        let mark = LengthMark { durable: 10, reached: 30, life: [1; 16] };
        assert_eq!(mark.claims(&[1; 16]), 30);
        assert_eq!(mark.claims(&[2; 16]), 10);
    }
}
