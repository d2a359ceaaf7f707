//! Data and holes of an object, queried from the file system instead of read.
//!
//! Never: reports possible data as a hole; a range truncated meanwhile counts as data, so that reading it fails. Always: a bounded number
//! of parts, in order.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use pario_core::ObjectId;
use pario_net::message::{DATA_PARTS_MAX, Reply};
use pario_store::{LendAccess, Lent, Store, StoreError};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The answer to `FindData`.
pub(crate) fn find(store: &dyn Store, object: ObjectId, range: Range<u64>) -> Result<Reply, StoreError> {
    let (mut parts, mut upto) = match store.lend(object, LendAccess::Read)? {
        Lent::Descriptor(descriptor) | Lent::Summed { descriptor, .. } => seek(descriptor.as_fd(), &range),
        Lent::NoObject => (Vec::new(), range.end),
        Lent::NotLent => {
            let length = store.length(object)?.unwrap_or(0);
            (part(range.start..length.min(range.end)), range.end)
        }
    };
    if upto == range.end
        && let Some(marked) = store.marked(object)?
        && let length = store.length(object)?.unwrap_or(0)
        && length < marked
    {
        parts.extend(part(length.max(range.start)..marked.min(range.end)));
    }
    if DATA_PARTS_MAX < parts.len() {
        parts.truncate(DATA_PARTS_MAX);
        upto = parts.last().map_or(upto, |(_, end)| *end);
    }
    Ok(Reply::DataParts { parts, searched_to: upto })
}

/// A range as parts: none if it is empty.
fn part(range: Range<u64>) -> Vec<(u64, u64)> {
    if range.is_empty() { Vec::new() } else { vec![(range.start, range.end)] }
}

/// Data ranges of a file, and the end of the search.
fn seek(file: BorrowedFd<'_>, range: &Range<u64>) -> (Vec<(u64, u64)>, u64) {
    let (mut parts, mut at) = (Vec::new(), range.start);
    while at < range.end && parts.len() < DATA_PARTS_MAX {
        // Only the result is used, not the descriptor's position.
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < range.end => start,
            Ok(_) | Err(Errno::NXIO) => return (parts, range.end),
            // A file system without this query: all of it may be data.
            Err(_) => at,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
        if end <= start {
            // It was truncated between both queries.
            return (parts, range.end);
        }
        parts.push((start, end));
        at = end;
    }
    (parts, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario_core::{Generation, InodeId, LocalOffset};
    use pario_store::MemoryStore;
    use std::os::unix::fs::FileExt;

    const OBJECT: ObjectId = ObjectId { inode: InodeId(7), generation: Generation(1) };

    fn parts(store: &dyn Store, range: Range<u64>) -> (Vec<(u64, u64)>, u64) {
        let Reply::DataParts { parts, searched_to: upto } = find(store, OBJECT, range).unwrap() else {
            panic!("parts are what is asked for")
        };
        (parts, upto)
    }

    #[test]
    fn data_is_found_between_holes() {
        let store = MemoryStore::new(1 << 30);
        assert_eq!(parts(&store, 0..1 << 40), (vec![], 1 << 40), "no object");
        for at in [1 << 20, 1 << 35] {
            store.write(OBJECT, LocalOffset(at), &[(&b"data"[..]).into()]).unwrap();
        }
        let (found, upto) = parts(&store, 0..1 << 40);
        assert_eq!(upto, 1 << 40);
        assert_eq!(found.len(), 2, "{found:?}");
        for (part, at) in found.iter().zip([1 << 20, 1 << 35]) {
            assert!(part.0 <= at && at + 4 <= part.1 && part.1 - part.0 <= 4 << 20, "{found:?}");
        }
        assert_eq!(parts(&store, (1 << 20) + 1..(1 << 20) + 3).0, [((1 << 20) + 1, (1 << 20) + 3)]);
        assert_eq!(parts(&store, 1 << 30..1 << 31).0, []);
    }

    #[test]
    fn many_parts_come_in_pages() {
        let file = tempfile::tempfile().unwrap();
        let (step, count) = (64 << 10, DATA_PARTS_MAX as u64 + 3);
        for at in 0..count {
            file.write_at(&[1], at * step).unwrap();
        }
        let (first, upto) = seek(file.as_fd(), &(0..count * step));
        assert_eq!((first.len(), upto), (DATA_PARTS_MAX, first[DATA_PARTS_MAX - 1].1));
        let (rest, end) = seek(file.as_fd(), &(upto..count * step));
        assert_eq!(rest.len(), 3, "{rest:?}");
        assert!((count - 1) * step < end, "{end}");
    }
}
