//! A file that this process has handles of: what all of them share.
//!
//! Always: one `OpenFile` per inode and mount; the manager hears of the first handle's open and the last one's close.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};

use pario_core::{FileAttr, Generation, InodeId, Layout, ObjectId, ServerIndex};
use pario_server::Near;

use super::faults::Faults;
use super::lease::{Guardian, LeaseState};
use super::loans::Object;
use super::locks::FileLocks;
use super::moment::Moments;
use super::mount::Mount;
use super::read::Ahead;
use super::records::Records;
use super::stream_read::StreamAhead;

/// See the module.
pub(crate) struct OpenFile {
    pub(super) mount: Arc<Mount>,
    pub(super) inode: InodeId,
    pub(super) layout: Layout,
    pub(super) path: String,
    pub(super) lease: Mutex<LeaseState>,
    pub(super) lease_changed: Condvar,
    pub(super) locks: FileLocks,
    /// Told before a lease goes back.
    pub(super) guardian: Mutex<Option<Weak<dyn Guardian>>>,
    /// Of a file on servers that give no leases: the generation by which they know it.
    pub(super) homeless: Option<Generation>,
    /// Of a file whose blocks have no fixed place: their size. Every access goes to one server, by message: it answers when the block's
    /// owner, which may be another one, has it.
    pub(super) placed: Option<u64>,
    /// The same file, if this process runs the server that every access goes to.
    pub(super) near: Option<Near>,
    /// Of such a file: whether calls can happen at one moment without a lock of those who read.
    pub(super) moments: Option<Moments>,
    /// The file's length as far as we know.
    pub(super) size: AtomicU64,
    /// Largest end of a write that the manager has not been told of; 0 if there is none.
    pub(super) unreported_end: AtomicU64,
    pub(super) records: Mutex<Records>,
    pub(super) faults: Mutex<Faults>,
    pub(super) ahead: Mutex<Ahead>,
    pub(super) objects: Mutex<Vec<Object>>,
    pub(super) stream_ahead: Mutex<Option<StreamAhead>>,
    /// Where the last read of a stream by message ended.
    pub(super) last_stream_end: AtomicU64,
    turn: AtomicUsize,
    /// A group has it open: whoever writes is not the only one.
    pub(super) together: AtomicBool,
    /// And so many of its members are on this node.
    companions: AtomicU16,
    handles: AtomicUsize,
}

impl OpenFile {
    /// Whether somebody in this process has it open.
    pub(super) fn has_handles(&self) -> bool {
        self.handles.load(Ordering::Acquire) != 0
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenFile").field(&self.describe()).finish()
    }
}

/// How a file is reached whose blocks have no fixed place.
#[derive(Clone, Debug)]
pub(crate) struct Through {
    /// All of it at the server that answers for it.
    pub(crate) layout: Layout,
    /// Bytes of a block: what lies in one is read and written at once.
    pub(crate) block_bytes: u64,
    /// That server, if this process runs it.
    pub(crate) near: Option<Near>,
    /// Blocks go to who overwrites them, so that what one call wrote can be read at one moment.
    pub(crate) follows: bool,
}

impl OpenFile {
    /// The shared state of a file just opened, with one more handle. `None`: another thread's last handle was just being
    /// closed, and the manager may have taken our open for part of the use that is over. It is over now: open again.
    pub(super) fn enter(
        mount: &Arc<Mount>,
        attr: &FileAttr,
        path: String,
        through: Option<Through>,
    ) -> Option<Arc<OpenFile>> {
        let mut files = mount.files();
        if let Some(file) = files.get(&attr.inode).and_then(std::sync::Weak::upgrade) {
            if file.add_handle() {
                return Some(file);
            }
            drop(files);
            file.wait_left();
            let mut files = mount.files();
            let same = |found: &std::sync::Weak<OpenFile>| std::ptr::eq(found.as_ptr(), Arc::as_ptr(&file));
            if files.get(&attr.inode).is_some_and(same) {
                files.remove(&attr.inode);
            }
            return None;
        }
        let mut file = OpenFile::new(mount, (attr.inode, attr.layout, attr.size), path, None);
        if let Some(through) = through {
            file.layout = through.layout;
            file.placed = Some(through.block_bytes);
            file.near = through.near;
            file.moments = through.follows.then(Moments::default);
        }
        let file = Arc::new(file);
        files.insert(attr.inode, Arc::downgrade(&file));
        if files.len().is_multiple_of(256) {
            files.retain(|_, file| 0 < file.strong_count());
        }
        Some(file)
    }

    /// The shared state of a file on servers that give no leases.
    pub(super) fn enter_homeless(
        mount: &Arc<Mount>,
        object: ObjectId,
        layout: Layout,
        path: String,
    ) -> Arc<OpenFile> {
        let mut files = mount.files();
        if let Some(file) = files.get(&object.inode).and_then(Weak::upgrade) {
            return file;
        }
        let known = (object.inode, layout, 0);
        let file = Arc::new(OpenFile::new(mount, known, path, Some(object.generation)));
        files.insert(object.inode, Arc::downgrade(&file));
        files.retain(|_, file| 0 < file.strong_count());
        file
    }

    fn new(
        mount: &Arc<Mount>,
        (inode, layout, size): (InodeId, Layout, u64),
        path: String,
        homeless: Option<Generation>,
    ) -> OpenFile {
        let servers = usize::from(layout.total());
        let turn = usize::try_from(mount.session().0 >> 32).unwrap_or(0);
        OpenFile {
            mount: Arc::clone(mount),
            inode,
            layout,
            path,
            guardian: Mutex::default(),
            homeless,
            placed: None,
            near: None,
            moments: None,
            lease: Mutex::default(),
            lease_changed: Condvar::new(),
            locks: FileLocks::default(),
            size: AtomicU64::new(size),
            unreported_end: AtomicU64::new(0),
            records: Mutex::new(Records::new(servers)),
            faults: Mutex::default(),
            ahead: Mutex::default(),
            objects: Mutex::new((0..servers).map(|_| Object::default()).collect()),
            stream_ahead: Mutex::default(),
            last_stream_end: AtomicU64::new(0),
            turn: AtomicUsize::new(turn),
            companions: AtomicU16::new(0),
            together: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
        }
    }

    /// False when the last handle is just being closed.
    fn add_handle(&self) -> bool {
        self.handles.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (0 < n).then_some(n + 1)).is_ok()
    }

    /// One handle less. True for the last: the caller closes the file.
    pub(super) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The servers that the file lies on, each process beginning with another one, so that not all turn to the same at once.
    pub(super) fn servers_in_turn(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        let servers: Vec<ServerIndex> = self.layout.servers().collect();
        let count = servers.len();
        let first = self.turn.load(Ordering::Relaxed) % count;
        (0..count).map(move |n| servers[(first + n) % count])
    }

    /// A group opened it; this process is its member `rank`, and `near` of its `size` members are on this node.
    pub(super) fn join_group(&self, rank: usize, near: usize, size: usize) {
        self.set_turn(rank);
        self.together.fetch_or(1 < size, Ordering::Relaxed);
        self.companions.fetch_max(u16::try_from(near).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// How many processes of this node write to it together, as far as is known; 0 if nothing is.
    pub(super) fn companions(&self) -> u16 {
        self.companions.load(Ordering::Relaxed)
    }

    /// Says with which server this process begins: members of a group count up.
    pub(super) fn set_turn(&self, turn: usize) {
        self.turn.store(turn, Ordering::Relaxed);
    }

    pub(super) fn describe(&self) -> String {
        if self.mount.serves_plain_files() {
            return self.path.clone();
        }
        format!("pario://{}/{}", self.mount.name(), self.path.trim_start_matches('/'))
    }

    pub(super) fn object(&self, generation: Generation) -> ObjectId {
        ObjectId { inode: self.inode, generation }
    }

    /// A write reached this far.
    pub(super) fn wrote_to(&self, end: u64) {
        self.unreported_end.fetch_max(end, Ordering::AcqRel);
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    /// What the manager has not been told yet. Whoever tells it calls [`OpenFile::end_reported`] when it has.
    pub(super) fn end_to_report(&self) -> Option<u64> {
        Some(self.unreported_end.load(Ordering::Acquire)).filter(|end| *end != 0)
    }

    /// The manager knows; a write that went further meanwhile is still to be told.
    pub(super) fn end_reported(&self, end: Option<u64>) {
        if let Some(end) = end {
            // Refused when it has grown: then there is something left to tell.
            let _ = self.unreported_end.compare_exchange(end, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
