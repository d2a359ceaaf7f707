//! Files whose length has blocks on a server that has no object of them: a hole as large as that, or a lost object.
//!
//! Never: called a problem, since nobody can tell the two apart. Always: looked at again before it is told.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pario::Partition;
use pario::core::{FileAttr, FileKind, InodeId, ObjectId, ServerIndex};
use serde_json::{Value, json};

use crate::error::{CliError, Outcome};
use crate::human;
use crate::place::Place;
use crate::wire;

/// How many a line lists.
const LISTED_MAX: usize = 20;

/// A file that a server has nothing of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Absent {
    server: ServerIndex,
    inode: InodeId,
    /// How long the object would be without holes.
    bytes: u64,
    /// Where the file is, once looked for; a file that is open and removed has no name.
    path: Option<PathBuf>,
}

impl Absent {
    /// For programs.
    pub(crate) fn facts(&self) -> Value {
        json!({
            "warning": "no-object",
            "server": self.server,
            "inode": self.inode,
            "path": self.path.as_ref().map(|path| path.to_string_lossy()),
            "expected_bytes": self.bytes,
        })
    }

    fn shown(&self) -> String {
        match &self.path {
            Some(path) => format!("{} (server {})", path.display(), self.server),
            None => format!("inode {} (server {})", self.inode, self.server),
        }
    }
}

/// Whether the file's length puts blocks on the server.
pub(crate) fn is_expected(attr: &FileAttr, server: ServerIndex) -> bool {
    attr.kind == FileKind::File && expected_bytes(attr, server) != 0
}

fn expected_bytes(attr: &FileAttr, server: ServerIndex) -> u64 {
    let lies_there = attr.layout.servers().any(|other| other == server);
    if lies_there { attr.layout.local_length(server, attr.size) } else { 0 }
}

/// The object that holds a file's blocks.
pub(crate) fn object_of(attr: &FileAttr) -> ObjectId {
    ObjectId { inode: attr.inode, generation: attr.generation }
}

/// What was listed may be old by now; the inode and the server as they are now decide.
pub(crate) fn look_again(
    partition: &Partition,
    server: ServerIndex,
    attr: &FileAttr,
) -> Outcome<Option<Absent>> {
    let mount = partition.mount_handle();
    let now = wire::inode(mount, attr.inode).map_err(|fault| wire::told(partition, fault))?;
    let Some(now) = now.filter(|now| is_expected(now, server)) else { return Ok(None) };
    if wire::measure(mount, server, object_of(&now)).map_err(|fault| wire::told(partition, fault))?.is_some()
    {
        return Ok(None);
    }
    Ok(Some(Absent { server, inode: now.inode, bytes: expected_bytes(&now, server), path: None }))
}

/// Looks for the names of files, from the root down; only if there is one to look for.
pub(crate) fn find_names(partition: &Partition, absent: &mut [Absent]) -> Outcome {
    let mut wanted: HashMap<InodeId, Option<PathBuf>> =
        absent.iter().map(|absent| (absent.inode, None)).collect();
    let mut left = vec![PathBuf::from("/")];
    let mut missing = wanted.len();
    while let Some(dir) = left.pop().filter(|_| missing != 0) {
        let place = |path: &Path| Place::in_partition(partition, path.as_os_str().as_bytes());
        let failed = |error: pario::Error| CliError::remote(place(&dir), &error);
        for entry in partition.read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = dir.join(OsStr::from_bytes(&entry.name));
            if entry.attr.kind == FileKind::Directory {
                left.push(path);
            } else if let Some(name) = wanted.get_mut(&entry.attr.inode).filter(|name| name.is_none()) {
                *name = Some(path);
                missing -= 1;
            }
        }
    }
    for absent in absent {
        absent.path = wanted.get(&absent.inode).cloned().flatten();
    }
    Ok(())
}

/// One line about all of them; `None` if there is none.
pub(crate) fn line(absent: &[Absent]) -> Option<String> {
    let files: std::collections::HashSet<InodeId> = absent.iter().map(|absent| absent.inode).collect();
    let (have, their) = if files.len() == 1 { ("has", "its") } else { ("have", "their") };
    let mut listed: Vec<String> = absent.iter().take(LISTED_MAX).map(Absent::shown).collect();
    listed.sort();
    if LISTED_MAX < absent.len() {
        listed.push(format!("and {} more", absent.len() - LISTED_MAX));
    }
    (!absent.is_empty()).then(|| {
        format!(
            "{} {have} no object on a server where {their} length has blocks: a hole, or a lost object: {}",
            human::count(files.len(), "file"),
            listed.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(inode: u64, path: Option<&str>) -> Absent {
        Absent { server: ServerIndex(1), inode: InodeId(inode), bytes: 9, path: path.map(PathBuf::from) }
    }

    #[test]
    fn the_line_counts_files_and_lists_some() {
        assert_eq!(line(&[]), None);
        let one = line(&[absent(7, Some("/f"))]).unwrap();
        assert!(one.starts_with("1 file has no object on a server where its length has blocks"), "{one}");
        assert!(one.ends_with("a lost object: /f (server 1)"), "{one}");
        let many: Vec<Absent> = (0..25).map(|inode| absent(inode, None)).collect();
        let text = line(&many).unwrap();
        assert!(text.starts_with("25 files have") && text.ends_with("and 5 more"), "{text}");
        assert_eq!(text.matches("(server 1)").count(), LISTED_MAX);
    }
}
