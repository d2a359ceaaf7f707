//! Checks for `pario doctor` and `pario df`: lengths of objects, their bytes against checksums, and their disk use.
//!
//! Never: changes anything; reads more than one request may. Always: an object removed meanwhile is no damage.

use pario_core::limits::{FILE_BYTES_MAX, LIST_PAGE_ENTRIES};
use pario_core::{LocalOffset, ObjectId};
use pario_net::message::{Reply, Request, VERIFY_BYTES_MAX};
use pario_store::checksummed::GRANULE_BYTES;
use pario_store::{LendAccess, Lent, Store, StoreError};

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Whether it is such a request.
pub(crate) fn is_inspection(request: &Request) -> bool {
    matches!(request, Request::CheckLengths { .. } | Request::Verify { .. } | Request::StoredBytes { .. })
}

/// The answer to such a request.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else comes here")]
pub(crate) fn answer(store: &dyn Store, request: &Request) -> Result<Reply, StoreError> {
    match request {
        Request::CheckLengths { after, limit } => lengths(store, *after, *limit),
        Request::Verify { object, at, bytes } => verify(store, *object, (*at, *bytes)),
        Request::StoredBytes { after, limit } => stored(store, *after, *limit),
        other => Err(StoreError::Unsupported { what: format!("{other:?} is not expected here") }),
    }
}

/// Compares the lengths of a page of objects with their high-water marks.
fn lengths(store: &dyn Store, after: Option<ObjectId>, limit: u32) -> Result<Reply, StoreError> {
    let limit = limit.clamp(1, LIST_PAGE_ENTRIES) as usize;
    let mut objects = store.list(after, limit + 1)?;
    let more = limit < objects.len();
    objects.truncate(limit);
    let (mut cut, mut compared) = (Vec::new(), 0);
    for (object, _) in &objects {
        let Some(written) = store.marked(*object)? else { continue };
        compared += 1;
        // Read after the mark: an object that grows meanwhile is longer than it. A truncation by the store lowers the mark.
        let Some(length) = store.length(*object)? else { continue };
        if length < written && store.marked(*object)? == Some(written) {
            cut.push((*object, (length, written)));
        }
    }
    let more = objects.last().map(|(object, _)| *object).filter(|_| more);
    Ok(Reply::Lengths { cut, examined: objects.len() as u64, compared, more })
}

/// Adds up the disk use of a page of objects: allocated blocks, or lengths where only the store knows them.
fn stored(store: &dyn Store, after: Option<ObjectId>, limit: u32) -> Result<Reply, StoreError> {
    let limit = limit.clamp(1, LIST_PAGE_ENTRIES) as usize;
    let mut objects = store.list(after, limit + 1)?;
    let more = limit < objects.len();
    objects.truncate(limit);
    let mut bytes: u64 = 0;
    for (object, length) in &objects {
        let taken = match store.lend(*object, LendAccess::Read)? {
            Lent::Descriptor(descriptor) | Lent::Summed { descriptor, .. } => rustix::fs::fstat(&descriptor)
                .map_or(*length, |found| {
                    u64::try_from(found.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES)
                }),
            Lent::NoObject => 0,
            Lent::NotLent => *length,
        };
        bytes = bytes.saturating_add(taken);
    }
    Ok(Reply::Stored { bytes, more: objects.last().map(|(object, _)| *object).filter(|_| more) })
}

/// Compares bytes of an object with their checksums.
fn verify(store: &dyn Store, object: ObjectId, (at, bytes): (LocalOffset, u64)) -> Result<Reply, StoreError> {
    if FILE_BYTES_MAX < at.0 {
        return Err(StoreError::Unsupported { what: format!("no object has a byte {}", at.0) });
    }
    let range = at.0..at.0.saturating_add(bytes.min(VERIFY_BYTES_MAX));
    let (kept, found) = match store.verify(object, range)? {
        Some(found) => (true, found),
        None => (false, pario_store::Verified::default()),
    };
    let pario_store::Verified { right, unknown, wrong } = found;
    Ok(Reply::Verified { kept, granule: GRANULE_BYTES, right, unknown, damaged: wrong })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario_core::{Generation, InodeId};

    /// A former bug: an offset near the largest number made a comparison that never ended.
    #[test]
    fn bytes_that_no_object_can_have_are_refused() {
        let store = pario_store::MemoryStore::new(1 << 20);
        let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
        let request = Request::Verify { object, at: LocalOffset(u64::MAX - 100), bytes: 1 };
        assert!(matches!(answer(&store, &request), Err(StoreError::Unsupported { .. })));
    }
}
