//! Sharing of exchange segments between the ranks of a node.
//!
//! Never: maps memory with a size that can still change. Always: all ranks get the same result.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_sys::{AttachLimit, MapAccess, SharedMemory};
use rustix::fs::{Mode, OFlags};

use crate::error::Result;
use crate::group::Group;

const NAME: &str = "pario-two-phase";

/// A segment of this rank, and those of the other ranks of its node, mapped for reading; `None` for other ranks, and for all if a
/// rank cannot map a segment: then all data is sent by TCP.
pub(super) fn share(
    group: &Arc<dyn Group>,
    bytes: usize,
) -> Result<(SharedMemory, Vec<Option<SharedMemory>>)> {
    let made = SharedMemory::create(NAME, bytes)
        .map_err(|error| Fault::from_io(&error, "memory to exchange data by"));
    let agreed = group.agree(made.as_ref().map(|_| ()).map_err(|fault| fault.clone().into()));
    let (own, descriptor) = made?;
    agreed?;
    let node = group.node_of(group.rank());
    let mut place = [0; 8];
    place[..4].copy_from_slice(&std::process::id().to_le_bytes());
    place[4..].copy_from_slice(&descriptor.as_fd().as_raw_fd().to_le_bytes());
    let places = group.allgather(&place)?;
    let mut found = Vec::with_capacity(places.len());
    let mut failed = None;
    for (rank, place) in places.iter().enumerate() {
        let near = rank != group.rank() && group.node_of(rank) == node;
        let attached = if near { attach(place, bytes).map(Some) } else { Ok(None) };
        found.push(attached.unwrap_or_else(|fault| {
            failed.get_or_insert(fault.at(format!("the memory of rank {rank}")));
            None
        }));
    }
    // Descriptors stay open until every rank has opened them.
    let texts = group.allgather(failed.map(|fault| fault.text).unwrap_or_default().as_bytes())?;
    if let Some(rank) = texts.iter().position(|text| !text.is_empty()) {
        let text = String::from_utf8_lossy(&texts[rank]);
        if group.rank() == rank {
            tracing::warn!("two-phase exchanges data by TCP, since memory cannot be shared: {text}");
        }
        found.iter_mut().for_each(|shared| *shared = None);
    }
    Ok((own, found))
}

fn attach(place: &[u8], bytes: usize) -> std::result::Result<SharedMemory, Fault> {
    let descriptor = open(place)?;
    let limit = AttachLimit { bytes_min: bytes, bytes_max: bytes.next_multiple_of(1 << 16) };
    SharedMemory::attach(descriptor, MapAccess::ReadOnly, limit)
        .map_err(|error| Fault::new(Code::Invalid, error.to_string()))
}

/// Opens memory of another process. In another pid namespace its number may belong to any process: only a descriptor with the
/// right link text is opened.
fn open(place: &[u8]) -> std::result::Result<OwnedFd, Fault> {
    let strange = || Fault::new(Code::Protocol, "it did not send the address of its memory");
    let place: [u8; 8] = place.try_into().map_err(|_| strange())?;
    let [a, b, c, d, e, f, g, h] = place;
    let (process, number) = (u32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
    let path = format!("/proc/{process}/fd/{number}");
    let link = std::fs::read_link(&path).map_err(|error| Fault::from_io(&error, &path))?;
    if link.as_os_str() != format!("/memfd:{NAME} (deleted)").as_str() {
        return Err(Fault::new(Code::Protocol, format!("{path} is {}", link.display())));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| Fault::from_io(&error.into(), &path))
}
