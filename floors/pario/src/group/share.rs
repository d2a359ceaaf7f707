//! Sharing memory segments between the members of a node.

use std::io;
use std::os::fd::BorrowedFd;

use pario_core::{Code, Fault};
use pario_sys::{AttachLimit, MapAccess, SharedMemory};
use rustix::fs::OFlags;

use super::Group;
use super::nodes::ProcessDescriptor;
use crate::error::Result;

/// The name of memory that [`share`] accepts; see [`create_shared`].
pub const SHARED_NAME: &str = "pario-group";

/// Gives every member the segments of all members of its node, its own too, mapped for `access`; collective. `mine` is the
/// descriptor of a segment made by [`SharedMemory::create`] with [`SHARED_NAME`], or `None`. The result is `None` for members of other
/// nodes and for members without a segment.
///
/// # Errors
/// On all members, if a member cannot map a segment of its node: the size is not sealed, or outside `limit`, or the operating
/// system refuses.
pub fn share(
    group: &dyn Group,
    mine: Option<BorrowedFd<'_>>,
    access: MapAccess,
    limit: AttachLimit,
) -> Result<Vec<Option<SharedMemory>>> {
    let all = group.allgather(&ProcessDescriptor::of(mine).to_bytes())?;
    let node = group.node_of(group.rank());
    let mut found = Vec::with_capacity(all.len());
    let mut failed = Ok(());
    for (rank, bytes) in all.iter().enumerate() {
        let place = bytes.as_slice().try_into().map(ProcessDescriptor::from_bytes);
        let attached = match place {
            Ok(place) if group.node_of(rank) == node && !place.is_empty() => attach(place, access, limit),
            Ok(_) => Ok(None),
            Err(_) => {
                Err(Fault::new(Code::Protocol, "the member does not share memory: it made a different call"))
            }
        };
        match attached {
            Ok(shared) => found.push(shared),
            Err(fault) => {
                failed = Err(fault.at(format!("the memory of rank {rank}")).into());
                break;
            }
        }
    }
    // Descriptors stay open until every member has opened them.
    group.agree(failed)?;
    Ok(found)
}

fn attach(
    place: ProcessDescriptor,
    access: MapAccess,
    limit: AttachLimit,
) -> std::result::Result<Option<SharedMemory>, Fault> {
    let flags = match access {
        MapAccess::ReadOnly => OFlags::RDONLY,
        MapAccess::ReadWrite => OFlags::RDWR,
    };
    let failed = |error: &io::Error| Fault::from_io(error, "it cannot be opened");
    let fd = place.open(SHARED_NAME, flags).map_err(|error| failed(&error))?;
    let shared = SharedMemory::attach(fd, access, limit);
    shared.map(Some).map_err(|error| Fault::new(Code::Invalid, error.to_string()))
}

/// [`SharedMemory::create`] with the name that [`share`] requires.
///
/// # Errors
/// If the system has no memory left.
pub fn create_shared(bytes: usize) -> io::Result<(SharedMemory, std::os::fd::OwnedFd)> {
    SharedMemory::create(SHARED_NAME, bytes)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::group::{threads, threads_on};

    const LIMIT: AttachLimit = AttachLimit { bytes_min: 4096, bytes_max: 1 << 20 };

    fn each(members: Vec<Arc<dyn Group>>, body: impl Fn(Arc<dyn Group>) + Sync) {
        std::thread::scope(|scope| {
            for group in members {
                scope.spawn(|| body(group));
            }
        });
    }

    #[test]
    fn members_of_a_node_see_each_other_and_nobody_else() {
        each(threads_on(&[0, 1, 0, 1]), |group| {
            let rank = group.rank();
            let (own, fd) = create_shared(4096).unwrap();
            own.store_u64(0, 100 + rank as u64, Ordering::Release);
            let all = share(&*group, Some(fd.as_fd()), MapAccess::ReadOnly, LIMIT).unwrap();
            for (other, shared) in all.iter().enumerate() {
                let found = shared.as_ref().map(|shared| shared.load_u64(0, Ordering::Acquire));
                assert_eq!(found, (other % 2 == rank % 2).then_some(100 + other as u64));
            }
            drop(fd);
            own.store_u64(8, 7, Ordering::Release);
            group.barrier().unwrap();
            let peer = all[(rank + 2) % 4].as_ref().unwrap();
            assert_eq!(peer.load_u64(8, Ordering::Acquire), 7, "the mapping outlives the descriptor");
            group.barrier().unwrap();
        });
    }

    #[test]
    fn who_has_nothing_is_none_and_writing_is_allowed_if_wanted() {
        each(threads(3), |group| {
            let made = (group.rank() != 1).then(|| create_shared(8192).unwrap());
            let fd = made.as_ref().map(|(_, fd)| fd.as_fd());
            let all = share(&*group, fd, MapAccess::ReadWrite, LIMIT).unwrap();
            assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
            if group.rank() == 1 {
                all[2].as_ref().unwrap().store_u64(0, 9, Ordering::Release);
            }
            group.barrier().unwrap();
            if let Some((own, _)) = made.as_ref().filter(|_| group.rank() == 2) {
                assert_eq!(own.load_u64(0, Ordering::Acquire), 9);
            }
        });
    }

    #[test]
    fn a_segment_that_cannot_be_had_is_told_to_all() {
        each(threads(3), |group| {
            let bytes = if group.rank() == 2 { 2 << 20 } else { 4096 };
            let (_own, fd) = create_shared(bytes).unwrap();
            let error = share(&*group, Some(fd.as_fd()), MapAccess::ReadOnly, LIMIT).unwrap_err().to_string();
            assert!(error.contains("the memory of rank 2") && error.contains("2097152 bytes"), "{error}");
            group.barrier().unwrap();
        });
    }

    #[test]
    fn what_is_not_sealed_is_refused() {
        each(threads(2), |group| {
            let open = rustix::fs::memfd_create(SHARED_NAME, rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&open, 8192).unwrap();
            let error =
                share(&*group, Some(open.as_fd()), MapAccess::ReadOnly, LIMIT).unwrap_err().to_string();
            assert!(error.contains("not sealed"), "{error}");
        });
    }
}
