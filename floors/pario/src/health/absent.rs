//! Files with blocks on a server that has no object of them: a hole of that size, or a lost object.
//!
//! Never: reported as a problem, since the two look the same. Always: checked twice before it is reported.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pario_core::{FileAttr, FileKind, InodeId, ObjectId, ServerIndex};
use serde_json::{Value, json};

use super::questions::{self, named};
use crate::handle::Partition;
use crate::transfer::TransferResult;

/// A file without an object on one of its servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AbsentObject {
    /// The server.
    pub server: ServerIndex,
    /// The file.
    pub inode: InodeId,
    /// Length of the object if it had no holes.
    pub bytes: u64,
    /// Path of the file; a removed open file has none.
    pub path: Option<PathBuf>,
}

impl AbsentObject {
    /// As JSON.
    #[must_use]
    pub fn facts(&self) -> Value {
        json!({
            "warning": "no-object",
            "server": self.server,
            "inode": self.inode,
            "path": self.path.as_ref().map(|path| path.to_string_lossy()),
            "expected_bytes": self.bytes,
        })
    }
}

/// Whether the file's length needs blocks on the server.
pub(super) fn is_expected(attr: &FileAttr, server: ServerIndex) -> bool {
    attr.kind == FileKind::File && expected_bytes(attr, server) != 0
}

fn expected_bytes(attr: &FileAttr, server: ServerIndex) -> u64 {
    let lies_there = attr.layout.servers().any(|other| other == server);
    if lies_there { attr.layout.local_length(server, attr.size) } else { 0 }
}

/// The object that holds a file's blocks.
pub(super) fn object_of(attr: &FileAttr) -> ObjectId {
    ObjectId { inode: attr.inode, generation: attr.generation }
}

/// A listing may be outdated: the current inode and object decide.
pub(super) fn check_again(
    partition: &Partition,
    server: ServerIndex,
    attr: &FileAttr,
) -> TransferResult<Option<AbsentObject>> {
    let now = named(partition, questions::inode(partition, attr.inode))?;
    let Some(now) = now.filter(|now| is_expected(now, server)) else { return Ok(None) };
    if named(partition, questions::measure(partition, server, object_of(&now)))?.is_some() {
        return Ok(None);
    }
    Ok(Some(AbsentObject { server, inode: now.inode, bytes: expected_bytes(&now, server), path: None }))
}

/// Looks up the paths of files, from the root down; only if any is needed.
pub(super) fn find_names(partition: &Partition, absent: &mut [AbsentObject]) -> TransferResult {
    let names = names_of(partition, absent.iter().map(|absent| absent.inode).collect())?;
    for absent in absent {
        absent.path = names.get(&absent.inode).cloned();
    }
    Ok(())
}

/// Paths of files, looked up from the root down, only if any is needed; a removed open file has none.
pub(super) fn names_of(
    partition: &Partition,
    inodes: std::collections::HashSet<InodeId>,
) -> TransferResult<HashMap<InodeId, PathBuf>> {
    let mut wanted: HashMap<InodeId, Option<PathBuf>> =
        inodes.into_iter().map(|inode| (inode, None)).collect();
    let mut left = vec![PathBuf::from("/")];
    let mut missing = wanted.len();
    while let Some(dir) = left.pop().filter(|_| missing != 0) {
        let failed = partition.path_error(&dir);
        for entry in partition.read_dir(&dir).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let path = dir.join(OsStr::from_bytes(&entry.name));
            if entry.attr.kind == FileKind::Directory {
                left.push(path);
            } else if let Some(name) = wanted.get_mut(&entry.attr.inode).filter(|name| name.is_none()) {
                *name = Some(path);
                missing -= 1;
            }
        }
    }
    Ok(wanted.into_iter().filter_map(|(inode, path)| Some((inode, path?))).collect())
}
