//! Calls that happen at one moment without keeping each other out by locks: the servers that own the blocks see to it.
//!
//! Never: where blocks have a fixed place; beside calls that are not of this kind, which a token of all who are keeps out. Always: one message,
//! or one call to the server in this process; what changes too often to be read so is read under a lock, and for a while nothing else is
//! tried.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pario_core::Fault;
use pario_net::message::{Reply, Request};

use super::lease::Access;
use super::locks::Kind;
use super::mount::odd;
use super::open_file::OpenFile;

/// Calls that lock after a read was in vain.
const SKIPS: u32 = 8;

/// How calls of a file went that did without a lock.
#[derive(Debug, Default)]
pub(super) struct Moments {
    /// Reads that do not try.
    skips: AtomicU32,
}

impl Moments {
    /// Whether the next read tries.
    fn tries(&self) -> bool {
        let less = |skips: u32| skips.checked_sub(1);
        self.skips.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }
}

impl OpenFile {
    /// Whether an access that must keep others out can do so by happening at one moment.
    pub(super) fn can_be_at_once(&self, range: &Range<u64>, kind: Kind) -> Result<bool, Fault> {
        let (Some(moments), Some(block)) = (&self.moments, self.placed) else { return Ok(false) };
        let transfer = self.mount.transfer_bytes(self.layout.locate(range.start).0)? as u64;
        let whole = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
        let fits = range.end - range.start <= transfer;
        // The length changes by another message than the bytes: a lock keeps the two together for those who read across the old end.
        let grows = kind == Kind::Write && self.size.load(Ordering::Acquire) < range.end;
        Ok(fits && !grows && (whole || kind == Kind::Read) && (kind == Kind::Write || moments.tries()))
    }

    /// Reads what was there at one moment, as far as the file goes; `None` if that needs a lock.
    pub(super) fn read_at_once(
        self: &Arc<Self>,
        access: &Access<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<Option<usize>, Fault> {
        let size = self.size_for(access, offset.saturating_add(target.len() as u64))?;
        let count = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(target.len());
        if count == 0 {
            return Ok(Some(0));
        }
        let read = self.ask_at_once(access, offset, &mut target[..count]);
        if read.map_err(|fault| fault.at(self.describe()))? {
            return Ok(Some(count));
        }
        if let Some(moments) = &self.moments {
            moments.skips.store(SKIPS, Ordering::Relaxed);
        }
        Ok(None)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn ask_at_once(
        self: &Arc<Self>,
        access: &Access<'_>,
        offset: u64,
        target: &mut [u8],
    ) -> Result<bool, Fault> {
        let (object, (server, at)) = (self.object(access.generation), self.layout.locate(offset));
        if let Some(near) = &self.near {
            return near.read_at_once(object, at, target);
        }
        let bytes = u32::try_from(target.len()).expect("no more than a message carries");
        let started = self.mount.start(server, &Request::ReadAtOnce { object, at, bytes }, &[])?;
        let answer = self.mount.finish(started, Some(&mut *target))?;
        match answer.reply {
            Reply::Data {} => {
                target[answer.data_bytes.min(bytes as usize)..].fill(0);
                Ok(true)
            }
            Reply::NotNow {} => Ok(false),
            other => Err(odd(&other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_read_in_vain_others_lock_for_a_while() {
        let moments = Moments::default();
        assert!(moments.tries() && moments.tries());
        moments.skips.store(SKIPS, Ordering::Relaxed);
        assert!((0..SKIPS).all(|_| !moments.tries()));
        assert!(moments.tries());
    }
}
