//! Requests that only tools send: list all inodes, list all objects, length of an object.
//!
//! Never: changes anything except by [`remove_orphan`], [`set_aside`] and [`cut_leftover`].

use pario_core::{Code, Fault, FileAttr, InodeId, ObjectId, ServerIndex};
use pario_net::message::{At, NameReply, NameRequest, Reply, Request};
use serde_json::Value;

use super::FoundObject;
use crate::error::{Error, Result};
use crate::handle::Partition;
use crate::transfer::{TransferError, TransferResult};

/// Inodes or objects in one answer.
const PAGE_ENTRIES: u32 = 4096;

/// All servers of a partition.
pub fn servers(partition: &Partition) -> impl Iterator<Item = ServerIndex> + use<> {
    (0..u16::try_from(partition.mount_handle().servers()).unwrap_or(u16::MAX)).map(ServerIndex)
}

/// Passes every inode to `each`, in order of their numbers.
pub fn each_inode(partition: &Partition, mut each: impl FnMut(FileAttr)) -> Result<()> {
    let mut after = InodeId(0);
    loop {
        let answer = partition
            .mount_handle()
            .call(ServerIndex::MANAGER, &Request::ListInodes { after, limit: PAGE_ENTRIES })?;
        let Reply::Inodes { attrs, more } = answer.reply else {
            return Err(unexpected_reply("ListInodes").into());
        };
        after = attrs.last().map_or(after, |attr| attr.inode);
        let empty = attrs.is_empty();
        attrs.into_iter().for_each(&mut each);
        if !more || empty {
            return Ok(());
        }
    }
}

/// Passes every object of a server with its length to `each`, in order.
pub fn each_object(
    partition: &Partition,
    server: ServerIndex,
    mut each: impl FnMut(ObjectId, u64),
) -> Result<()> {
    let mut after = None;
    loop {
        let answer =
            partition.mount_handle().call(server, &Request::ListObjects { after, limit: PAGE_ENTRIES })?;
        let Reply::Objects { objects, more } = answer.reply else {
            return Err(unexpected_reply("ListObjects").into());
        };
        after = objects.last().map(|(object, _)| *object).or(after);
        let empty = objects.is_empty();
        objects.into_iter().for_each(|(object, bytes)| each(object, bytes));
        if !more || empty {
            return Ok(());
        }
    }
}

/// Allocated bytes of a server's objects, without holes.
pub fn stored_bytes(partition: &Partition, server: ServerIndex) -> Result<u64> {
    let (mut after, mut sum) = (None, 0_u64);
    loop {
        let answer =
            partition.mount_handle().call(server, &Request::StoredBytes { after, limit: PAGE_ENTRIES })?;
        let Reply::Stored { bytes, more } = answer.reply else {
            return Err(unexpected_reply("StoredBytes").into());
        };
        sum = sum.saturating_add(bytes);
        match more {
            Some(last) if after < Some(last) => after = Some(last),
            Some(_) => return Err(unexpected_reply("StoredBytes").into()),
            None => return Ok(sum),
        }
    }
}

/// The length of an object; `None` if there is none.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
pub fn measure(partition: &Partition, server: ServerIndex, object: ObjectId) -> Result<Option<u64>> {
    match partition.mount_handle().call(server, &Request::Measure { object })?.reply {
        Reply::Length { bytes, .. } => Ok(Some(bytes)),
        Reply::NoObject {} => Ok(None),
        _ => Err(unexpected_reply("Measure").into()),
    }
}

/// An inode by its number; `None` if there is none.
pub fn inode(partition: &Partition, inode: InodeId) -> Result<Option<FileAttr>> {
    match partition.mount_handle().name_call(NameRequest::Stat { at: At::inode(inode), follow: false }) {
        Ok(NameReply::Attr { attr }) => Ok(Some(attr)),
        Ok(
            NameReply::Done {}
            | NameReply::Entries { .. }
            | NameReply::Target { .. }
            | NameReply::Value { .. }
            | NameReply::XattrNames { .. },
        ) => Err(unexpected_reply("Stat").into()),
        Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

/// Removes an object without an inode.
pub fn remove_orphan(partition: &Partition, server: ServerIndex, object: ObjectId) -> Result<()> {
    partition.mount_handle().call(server, &Request::RemoveOrphan { object })?;
    Ok(())
}

/// Moves an object without an inode to `lost+found` of its server; returns the path there.
pub fn set_aside(partition: &Partition, server: ServerIndex, object: ObjectId) -> Result<String> {
    let answer = partition.mount_handle().call(server, &Request::SetAside { object })?;
    let Reply::SetAside { path } = answer.reply else { return Err(unexpected_reply("SetAside").into()) };
    Ok(path)
}

/// Truncates an object to the bytes of its file.
pub fn cut_leftover(partition: &Partition, found: FoundObject, bytes: u64) -> Result<()> {
    partition.mount_handle().call(found.server, &Request::CutLeftover { object: found.object, bytes })?;
    Ok(())
}

/// The manager's status report.
pub(super) fn manager_report(partition: &Partition) -> Result<Value> {
    let text = partition.mount_handle().server_status(ServerIndex::MANAGER)?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Names the partition in an error.
pub(super) fn named<T, E: Into<Error>>(
    partition: &Partition,
    done: std::result::Result<T, E>,
) -> TransferResult<T> {
    let path = || partition.name().to_owned();
    done.map_err(|error| TransferError::Partition { path: path(), error: error.into() })
}

pub(super) fn unexpected_reply(question: &str) -> Fault {
    Fault::new(Code::Protocol, format!("unexpected reply to {question}"))
}
