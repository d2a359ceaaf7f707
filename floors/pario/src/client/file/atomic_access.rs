//! Multi-block atomic accesses without locks between the callers: the servers that own the blocks order them.
//!
//! Never: for files with a fixed layout; concurrently with accesses of another kind, which are excluded by a token shared by all atomic
//! accesses. Always: one message, or one call to the server in this process; data that changes too often is read under a lock, and the
//! next [`SKIPS`] reads lock without a try.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pario_core::Fault;
use pario_net::message::{Reply, Request};

use crate::client::file::lease::LeasedAccess;
use crate::client::file::locks::AccessKind;
use crate::client::file::state::OpenFile;
use crate::client::session::state::unexpected_reply;

/// Reads that lock after a failed atomic read.
const SKIPS: u32 = 8;

/// State of a file's atomic accesses without a lock.
#[derive(Debug, Default)]
pub(in crate::client) struct AtomicReads {
    /// Reads left that do not try.
    skips: AtomicU32,
}

impl AtomicReads {
    /// Whether the next read tries.
    fn tries(&self) -> bool {
        let less = |skips: u32| skips.checked_sub(1);
        self.skips.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }
}

/// Whether an access that needs exclusion can be an atomic access instead.
pub(in crate::client) fn can_be_atomic(
    file: &OpenFile,
    range: &Range<u64>,
    kind: AccessKind,
) -> Result<bool, Fault> {
    let Some(proxied) = file.context.backing.proxied() else { return Ok(false) };
    let (Some(moments), block) = (&proxied.atomic_reads, proxied.block_bytes) else { return Ok(false) };
    let transfer = file.context.session.transfer_bytes(file.context.layout.locate(range.start).0)? as u64;
    let whole = range.start.is_multiple_of(block) && range.end.is_multiple_of(block);
    let fits = range.end - range.start <= transfer;
    // The length changes by a separate message: a lock keeps length and bytes consistent for readers across the old end.
    let grows = kind == AccessKind::Write && file.data.length.known() < range.end;
    Ok(fits
        && !grows
        && (whole || kind == AccessKind::Read)
        && (kind == AccessKind::Write || moments.tries()))
}

/// Reads atomically, as far as the file goes; `None` if that needs a lock.
pub(in crate::client) fn read_atomic(
    file: &Arc<OpenFile>,
    access: &LeasedAccess<'_>,
    offset: u64,
    target: &mut [u8],
) -> Result<Option<usize>, Fault> {
    let size = file.size_for(access, offset.saturating_add(target.len() as u64))?;
    let count = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(target.len());
    if count == 0 {
        return Ok(Some(0));
    }
    let read = request_atomic(file, access, offset, &mut target[..count]);
    if read.map_err(|fault| fault.at(file.context.describe()))? {
        return Ok(Some(count));
    }
    if let Some(moments) = file.context.backing.proxied().and_then(|proxied| proxied.atomic_reads.as_ref()) {
        moments.skips.store(SKIPS, Ordering::Relaxed);
    }
    Ok(None)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn request_atomic(
    file: &Arc<OpenFile>,
    access: &LeasedAccess<'_>,
    offset: u64,
    target: &mut [u8],
) -> Result<bool, Fault> {
    let (object, (server, at)) = (file.context.object(access.generation), file.context.layout.locate(offset));
    if let Some(near) = file.context.backing.local_server() {
        return near.read_atomic(object, at, target);
    }
    let bytes = u32::try_from(target.len()).expect("no more than a message carries");
    let started = file.context.session.start(server, &Request::ReadAtomic { object, at, bytes }, &[])?;
    let answer = file.context.session.finish(started, Some(&mut *target))?;
    match answer.reply {
        Reply::Data {} => {
            target[answer.data_bytes.min(bytes as usize)..].fill(0);
            Ok(true)
        }
        Reply::NotNow {} => Ok(false),
        other => Err(unexpected_reply(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_read_in_vain_others_lock_for_a_while() {
        let moments = AtomicReads::default();
        assert!(moments.tries() && moments.tries());
        moments.skips.store(SKIPS, Ordering::Relaxed);
        assert!((0..SKIPS).all(|_| !moments.tries()));
        assert!(moments.tries());
    }
}
