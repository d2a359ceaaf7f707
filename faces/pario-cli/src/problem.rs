//! What can be wrong with an object, judged from what its inode says. Pure: asks nobody.
//!
//! Never: calls a hole a problem. An object that is shorter than its file's length, or missing, is one: it reads as
//! zeros; `absent` warns of missing ones.

use std::fmt;

use pario::core::{FileAttr, FileKind, Generation, ObjectId, ServerIndex};
use serde_json::{Value, json};

/// An object as a server has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// On which server.
    pub(crate) server: ServerIndex,
    /// Which.
    pub(crate) object: ObjectId,
    /// How long.
    pub(crate) bytes: u64,
}

/// Something that should not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    /// A server does not answer.
    Unreachable {
        /// Which.
        server: ServerIndex,
        /// Why.
        why: String,
    },
    /// No inode knows the object.
    Orphan(Found),
    /// The file was truncated since; this object should have gone then.
    Old {
        /// What is there.
        found: Found,
        /// The file's generation.
        now: Generation,
    },
    /// The object is of a generation that its file has not reached.
    New {
        /// What is there.
        found: Found,
        /// The file's generation.
        now: Generation,
    },
    /// The object proves that the file is longer than its inode says.
    Long {
        /// What is there.
        found: Found,
        /// Length that the object proves.
        proved: u64,
        /// Length by the inode.
        size: u64,
    },
    /// The file does not lie on this server, or is no file at all.
    Misplaced(Found),
}

impl Found {
    /// What is wrong, given the inode.
    pub(crate) fn judge(self, attr: Option<&FileAttr>) -> Option<Problem> {
        let Some(attr) = attr else { return Some(Problem::Orphan(self)) };
        let now = attr.generation;
        if self.object.generation < now {
            return Some(Problem::Old { found: self, now });
        }
        if now < self.object.generation {
            return Some(Problem::New { found: self, now });
        }
        if attr.kind != FileKind::File || attr.layout.servers().all(|server| server != self.server) {
            return Some(Problem::Misplaced(self));
        }
        let proved = attr.layout.file_length(self.server, self.bytes);
        (attr.size < proved).then_some(Problem::Long { found: self, proved, size: attr.size })
    }
}

impl Problem {
    /// The object to remove, if removing it is the cure.
    pub(crate) fn removable(&self) -> Option<(ServerIndex, ObjectId)> {
        match self {
            Problem::Orphan(found) | Problem::Old { found, .. } => Some((found.server, found.object)),
            Problem::Unreachable { .. }
            | Problem::New { .. }
            | Problem::Long { .. }
            | Problem::Misplaced(_) => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Problem::Unreachable { .. } => "unreachable",
            Problem::Orphan(_) => "orphan",
            Problem::Old { .. } => "old-generation",
            Problem::New { .. } => "new-generation",
            Problem::Long { .. } => "length",
            Problem::Misplaced(_) => "misplaced",
        }
    }

    /// For programs.
    pub(crate) fn facts(&self) -> Value {
        let mut facts = json!({ "problem": self.kind(), "text": self.to_string() });
        match self {
            Problem::Unreachable { server, .. } => facts["server"] = json!(server),
            Problem::Orphan(found)
            | Problem::Old { found, .. }
            | Problem::New { found, .. }
            | Problem::Long { found, .. }
            | Problem::Misplaced(found) => {
                facts["server"] = json!(found.server);
                facts["inode"] = json!(found.object.inode);
                facts["generation"] = json!(found.object.generation);
                facts["bytes"] = json!(found.bytes);
            }
        }
        facts
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}: object {} ({} bytes)", self.server, self.object, self.bytes)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Unreachable { server, why } => write!(f, "server {server} is unreachable: {why}"),
            Problem::Orphan(found) => write!(f, "{found} belongs to no file (--repair removes it)"),
            Problem::Old { found, now } => {
                write!(
                    f,
                    "{found} is left from before a truncation, the file has generation {now} (--repair removes it)"
                )
            }
            Problem::New { found, now } => {
                write!(f, "{found} is newer than its file, which has generation {now}")
            }
            Problem::Long { found, proved, size } => {
                write!(f, "{found} proves a length of {proved}, but its inode says {size}")
            }
            Problem::Misplaced(found) => write!(f, "{found} lies where its inode has nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario::core::{InodeId, Layout};

    fn file(size: u64, generation: u32) -> FileAttr {
        FileAttr {
            inode: InodeId(7),
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            size,
            generation: Generation(generation),
            layout: Layout::new(4096, 2, 0, 3).unwrap(),
            accessed_ns: 0,
            modified_ns: 0,
            changed_ns: 0,
        }
    }

    fn found(server: u16, generation: u32, bytes: u64) -> Found {
        let object = ObjectId { inode: InodeId(7), generation: Generation(generation) };
        Found { server: ServerIndex(server), object, bytes }
    }

    #[test]
    fn holes_are_legal_and_more_than_the_file_is_not() {
        let attr = file(4096 + 100, 1);
        assert_eq!(found(0, 1, 4096).judge(Some(&attr)), None);
        assert_eq!(found(0, 1, 10).judge(Some(&attr)), None);
        assert_eq!(found(1, 1, 100).judge(Some(&attr)), None);
        let problem = found(1, 1, 101).judge(Some(&attr)).unwrap();
        assert_eq!(problem.kind(), "length");
        assert!(problem.to_string().contains("proves a length of 4197"), "{problem}");
        assert_eq!(problem.removable(), None);
    }

    #[test]
    fn only_what_nobody_can_reach_is_removed() {
        let attr = file(0, 5);
        for (problem, kind, removable) in [
            (found(0, 5, 0).judge(None), "orphan", true),
            (found(0, 4, 9).judge(Some(&attr)), "old-generation", true),
            (found(0, 6, 9).judge(Some(&attr)), "new-generation", false),
            (found(2, 5, 0).judge(Some(&attr)), "misplaced", false),
        ] {
            let problem = problem.unwrap();
            assert_eq!((problem.kind(), problem.removable().is_some()), (kind, removable));
            assert_eq!(problem.facts()["problem"], kind);
        }
    }

    #[test]
    fn a_directory_has_no_objects() {
        let attr = FileAttr { kind: FileKind::Directory, ..file(0, 1) };
        assert_eq!(found(0, 1, 0).judge(Some(&attr)).unwrap().kind(), "misplaced");
    }
}
