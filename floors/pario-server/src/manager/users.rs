//! Users of each file: an unlinked file lives until its last user has closed it.
//!
//! Always: both maps agree.

use std::collections::{HashMap, HashSet};

use pario_core::{InodeId, SessionId};

/// See the module. Sets, not counts: a client reports its first and last handle.
#[derive(Default)]
pub(super) struct Users {
    of_file: HashMap<InodeId, HashSet<SessionId>>,
    of_session: HashMap<SessionId, HashSet<InodeId>>,
}

impl Users {
    pub(super) fn enter(&mut self, session: SessionId, inode: InodeId) {
        self.of_file.entry(inode).or_default().insert(session);
        self.of_session.entry(session).or_default().insert(inode);
    }

    pub(super) fn leave(&mut self, session: SessionId, inode: InodeId) {
        remove(&mut self.of_file, inode, session);
        remove(&mut self.of_session, session, inode);
    }

    /// The session ended. Returns the files it used.
    pub(super) fn leave_all(&mut self, session: SessionId) -> Vec<InodeId> {
        let files: Vec<InodeId> = self.of_session.remove(&session).into_iter().flatten().collect();
        for inode in &files {
            remove(&mut self.of_file, *inode, session);
        }
        files
    }

    pub(super) fn uses(&self, inode: InodeId) -> bool {
        self.of_file.contains_key(&inode)
    }

    /// Users of a file.
    pub(super) fn of(&self, inode: InodeId) -> Vec<SessionId> {
        self.of_file.get(&inode).into_iter().flatten().copied().collect()
    }

    pub(super) fn open_files(&self) -> usize {
        self.of_file.len()
    }
}

fn remove<K: std::hash::Hash + Eq, V: std::hash::Hash + Eq>(
    map: &mut HashMap<K, HashSet<V>>,
    key: K,
    value: V,
) {
    if let Some(set) = map.get_mut(&key) {
        set.remove(&value);
        if set.is_empty() {
            map.remove(&key);
        }
    }
}
