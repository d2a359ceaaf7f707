//! Questions to servers that only tools ask: every inode, every object, how long an object is.
//!
//! Never: changes anything but by [`remove_orphan`].

use pario::Partition;
use pario::client::Mount;
use pario::core::{Code, Fault, FileAttr, InodeId, ObjectId, ServerIndex};
use pario::message::{At, NameReply, NameRequest, Reply, Request};

use crate::error::CliError;

/// Inodes or objects in one answer.
const PAGE_ENTRIES: u32 = 4096;

/// All servers of a partition.
pub(crate) fn servers(mount: &Mount) -> impl Iterator<Item = ServerIndex> + use<> {
    (0..u16::try_from(mount.servers()).unwrap_or(u16::MAX)).map(ServerIndex)
}

/// Hands every inode to `each`, in order of their numbers.
pub(crate) fn each_inode(mount: &Mount, mut each: impl FnMut(FileAttr)) -> Result<(), Fault> {
    let mut after = InodeId(0);
    loop {
        let answer = mount.call(ServerIndex::MANAGER, &Request::ListInodes { after, limit: PAGE_ENTRIES })?;
        let Reply::Inodes { attrs, more } = answer.reply else { return Err(odd("ListInodes")) };
        after = attrs.last().map_or(after, |attr| attr.inode);
        let empty = attrs.is_empty();
        attrs.into_iter().for_each(&mut each);
        if !more || empty {
            return Ok(());
        }
    }
}

/// Hands every object of a server with its length to `each`, in order.
pub(crate) fn each_object(
    mount: &Mount,
    server: ServerIndex,
    mut each: impl FnMut(ObjectId, u64),
) -> Result<(), Fault> {
    let mut after = None;
    loop {
        let answer = mount.call(server, &Request::ListObjects { after, limit: PAGE_ENTRIES })?;
        let Reply::Objects { objects, more } = answer.reply else { return Err(odd("ListObjects")) };
        after = objects.last().map(|(object, _)| *object).or(after);
        let empty = objects.is_empty();
        objects.into_iter().for_each(|(object, bytes)| each(object, bytes));
        if !more || empty {
            return Ok(());
        }
    }
}

/// The length of an object; `None` if there is none.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
pub(crate) fn measure(mount: &Mount, server: ServerIndex, object: ObjectId) -> Result<Option<u64>, Fault> {
    match mount.call(server, &Request::Measure { object })?.reply {
        Reply::Length { bytes, .. } => Ok(Some(bytes)),
        Reply::NoObject {} => Ok(None),
        _ => Err(odd("Measure")),
    }
}

/// An inode by its number; `None` if there is none.
pub(crate) fn inode(mount: &Mount, inode: InodeId) -> Result<Option<FileAttr>, Fault> {
    match mount.name_call(NameRequest::Stat { at: At::inode(inode), follow: false }) {
        Ok(NameReply::Attr { attr }) => Ok(Some(attr)),
        Ok(NameReply::Done {} | NameReply::Entries { .. } | NameReply::Target { .. }) => Err(odd("Stat")),
        Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Removes an object that no inode knows.
pub(crate) fn remove_orphan(mount: &Mount, server: ServerIndex, object: ObjectId) -> Result<(), Fault> {
    mount.call(server, &Request::RemoveOrphan { object }).map(drop)
}

/// A fault as it is told: about the partition.
pub(crate) fn told(partition: &Partition, fault: Fault) -> CliError {
    CliError::remote(partition.name(), &fault.into())
}

fn odd(question: &str) -> Fault {
    Fault::new(Code::Protocol, format!("an answer that does not belong to its question, {question}"))
}
