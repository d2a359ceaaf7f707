//! Problems of an object, judged from its inode. Pure: contacts no server.
//!
//! Never: reports a hole as a problem. An object that is shorter than its file's length, or missing, is a hole: it reads as
//! zeros; `absent` warns of missing ones.

use std::fmt;

use pario_core::{FileAttr, FileKind, Generation, ObjectId, ServerIndex};
use serde_json::{Value, json};

/// An object on a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundObject {
    /// On which server.
    pub server: ServerIndex,
    /// Which.
    pub object: ObjectId,
    /// How long.
    pub bytes: u64,
}

/// A problem of a server or object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthProblem {
    /// A server does not answer.
    Unreachable {
        /// Which.
        server: ServerIndex,
        /// Why.
        why: String,
    },
    /// No inode has this object.
    Orphan(FoundObject),
    /// The file was truncated since; the object should have been removed.
    Old {
        /// The object.
        found: FoundObject,
        /// The file's generation.
        now: Generation,
    },
    /// The object has a generation newer than its file's.
    New {
        /// The object.
        found: FoundObject,
        /// The file's generation.
        now: Generation,
    },
    /// Bytes beyond the end of the file: written by a write that failed before it extended the file. Harmless: no read returns them.
    Leftover {
        /// The object.
        found: FoundObject,
        /// Bytes of the object that belong to the file.
        keep: u64,
        /// Length by the inode.
        size: u64,
    },
    /// The file has no blocks on this server, or is not a regular file.
    Misplaced(FoundObject),
}

impl FoundObject {
    /// The object's problem, given the inode.
    #[must_use]
    pub fn judge(self, attr: Option<&FileAttr>) -> Option<HealthProblem> {
        let Some(attr) = attr else { return Some(HealthProblem::Orphan(self)) };
        let now = attr.generation;
        if self.object.generation < now {
            return Some(HealthProblem::Old { found: self, now });
        }
        if now < self.object.generation {
            return Some(HealthProblem::New { found: self, now });
        }
        if attr.kind != FileKind::File || attr.layout.servers().all(|server| server != self.server) {
            return Some(HealthProblem::Misplaced(self));
        }
        let proved = attr.layout.file_length(self.server, self.bytes);
        let keep = attr.layout.local_length(self.server, attr.size);
        (attr.size < proved).then_some(HealthProblem::Leftover { found: self, keep, size: attr.size })
    }
}

impl HealthProblem {
    fn kind(&self) -> &'static str {
        match self {
            HealthProblem::Unreachable { .. } => "unreachable",
            HealthProblem::Orphan(_) => "orphan",
            HealthProblem::Old { .. } => "old-generation",
            HealthProblem::New { .. } => "new-generation",
            HealthProblem::Leftover { .. } => "leftover",
            HealthProblem::Misplaced(_) => "misplaced",
        }
    }

    /// As JSON.
    #[must_use]
    pub fn facts(&self) -> Value {
        let mut facts = json!({ "problem": self.kind(), "text": self.to_string() });
        match self {
            HealthProblem::Unreachable { server, .. } => facts["server"] = json!(server),
            HealthProblem::Orphan(found)
            | HealthProblem::Old { found, .. }
            | HealthProblem::New { found, .. }
            | HealthProblem::Leftover { found, .. }
            | HealthProblem::Misplaced(found) => {
                facts["server"] = json!(found.server);
                facts["inode"] = json!(found.object.inode);
                facts["generation"] = json!(found.object.generation);
                facts["bytes"] = json!(found.bytes);
            }
        }
        facts
    }
}

impl fmt::Display for FoundObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}: object {} ({} bytes)", self.server, self.object, self.bytes)
    }
}

impl fmt::Display for HealthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HealthProblem::Unreachable { server, why } => write!(f, "server {server} is unreachable: {why}"),
            HealthProblem::Orphan(found) => {
                write!(f, "{found} belongs to no file (--repair moves it to lost+found)")
            }
            HealthProblem::Old { found, now } => {
                write!(
                    f,
                    "{found} is left from before a truncation, the file has generation {now} (--repair removes it)"
                )
            }
            HealthProblem::New { found, now } => {
                write!(f, "{found} is newer than its file, which has generation {now}")
            }
            HealthProblem::Leftover { found, keep, size } => {
                let over = found.bytes - keep;
                write!(
                    f,
                    "{found}: {over} bytes are the leftover of an unfinished write, behind the end of the file at {size} (--repair cuts them)"
                )
            }
            HealthProblem::Misplaced(found) => write!(f, "{found} lies where its inode has nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pario_core::{InodeId, Layout};

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

    fn found(server: u16, generation: u32, bytes: u64) -> FoundObject {
        let object = ObjectId { inode: InodeId(7), generation: Generation(generation) };
        FoundObject { server: ServerIndex(server), object, bytes }
    }

    #[test]
    fn holes_are_legal_and_more_than_the_file_is_not() {
        let attr = file(4096 + 100, 1);
        assert_eq!(found(0, 1, 4096).judge(Some(&attr)), None);
        assert_eq!(found(0, 1, 10).judge(Some(&attr)), None);
        assert_eq!(found(1, 1, 100).judge(Some(&attr)), None);
        let problem = found(1, 1, 101).judge(Some(&attr)).unwrap();
        assert_eq!(problem, HealthProblem::Leftover { found: found(1, 1, 101), keep: 100, size: 4196 });
        assert!(
            problem.to_string().contains(": 1 bytes are the leftover of an unfinished write"),
            "{problem}"
        );
    }

    #[test]
    fn an_object_is_judged_by_its_inode() {
        let attr = file(0, 5);
        for (problem, kind) in [
            (found(0, 5, 0).judge(None), "orphan"),
            (found(0, 4, 9).judge(Some(&attr)), "old-generation"),
            (found(0, 6, 9).judge(Some(&attr)), "new-generation"),
            (found(2, 5, 0).judge(Some(&attr)), "misplaced"),
        ] {
            let problem = problem.unwrap();
            assert_eq!(problem.kind(), kind);
            assert_eq!(problem.facts()["problem"], kind);
        }
    }

    #[test]
    fn a_directory_has_no_objects() {
        let attr = FileAttr { kind: FileKind::Directory, ..file(0, 1) };
        assert_eq!(found(0, 1, 0).judge(Some(&attr)).unwrap().kind(), "misplaced");
    }
}
