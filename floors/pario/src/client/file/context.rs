//! What a file is and how this process uses it: the facts that every part of an open file needs.
//!
//! Never: takes a lock. Always: identity, layout and backing stay as they are while the file is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use pario_core::{Generation, InodeId, Layout, ObjectId, ServerIndex};

use super::backing::Backing;
use crate::client::session::state::Session;

/// See the module.
pub(in crate::client) struct FileContext {
    pub(in crate::client) session: Arc<Session>,
    pub(in crate::client) inode: InodeId,
    pub(in crate::client) layout: Layout,
    pub(in crate::client) path: String,
    pub(in crate::client) backing: Backing,
    first_server: AtomicUsize,
    /// A group has it open: other members write to it too.
    in_group: AtomicBool,
    /// Number of group members on this node.
    local_writers: AtomicU16,
    handles: AtomicUsize,
}

impl FileContext {
    /// A file with one handle.
    pub(super) fn new(
        session: &Arc<Session>,
        inode: InodeId,
        layout: Layout,
        path: String,
        backing: Backing,
    ) -> FileContext {
        let turn = usize::try_from(session.session().0 >> 32).unwrap_or(0);
        FileContext {
            session: Arc::clone(session),
            inode,
            layout,
            path,
            backing,
            first_server: AtomicUsize::new(turn),
            in_group: AtomicBool::new(false),
            local_writers: AtomicU16::new(0),
            handles: AtomicUsize::new(1),
        }
    }

    /// Partition and path, for messages.
    pub(in crate::client) fn describe(&self) -> String {
        if self.session.serves_plain_files() {
            return self.path.clone();
        }
        format!("pario://{}/{}", self.session.name(), self.path.trim_start_matches('/'))
    }

    pub(in crate::client) fn object(&self, generation: Generation) -> ObjectId {
        ObjectId { inode: self.inode, generation }
    }

    /// The servers of the file; each process starts with another server, so that not all send to the same one first.
    pub(in crate::client) fn servers_in_order(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        let servers: Vec<ServerIndex> = self.layout.servers().collect();
        let count = servers.len();
        let first = self.first_server.load(Ordering::Relaxed) % count;
        (0..count).map(move |n| servers[(first + n) % count])
    }

    /// Sets the server that this process starts with: the members of a group count up.
    pub(in crate::client) fn set_first_server(&self, turn: usize) {
        self.first_server.store(turn, Ordering::Relaxed);
    }

    /// A group opened it; this process is member `rank`, and `near` of the group's `size` members are on this node.
    pub(in crate::client) fn join_group(&self, rank: usize, near: usize, size: usize) {
        self.set_first_server(rank);
        self.in_group.fetch_or(1 < size, Ordering::Relaxed);
        self.local_writers.fetch_max(u16::try_from(near).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// Whether a group with other members has it open.
    pub(super) fn is_in_group(&self) -> bool {
        self.in_group.load(Ordering::Relaxed)
    }

    /// Number of processes of this node that write to it together; 0 if unknown.
    pub(in crate::client) fn local_writers(&self) -> u16 {
        self.local_writers.load(Ordering::Relaxed)
    }

    /// Whether this process has an open handle.
    pub(super) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) != 0
    }

    /// The first handle after the last one was closed.
    pub(in crate::client) fn set_first_handle(&self) {
        self.handles.store(1, Ordering::Release);
    }

    /// False while the last handle is being closed.
    pub(super) fn add_handle(&self) -> bool {
        self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (0 < n).then_some(n + 1)).is_ok()
    }

    /// Removes one handle. True for the last: the caller closes the file.
    pub(super) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
