//! The name space of a partition: directories, files, symbolic links, their attributes, and per-session state.
//!
//! Called by one thread; the wall clock is an argument. Every change is one batch of the [`Ledger`], so that it is applied atomically,
//! together with the reply that a repeated request gets.
//!
//! Never: communicates with servers or clients; required changes of objects are returned and remembered ([`Names::pending`]). Always: an
//! inode number is used once; a directory's size is the number of its entries.

use std::path::Path;
use std::sync::Arc;

use pario_core::limits::LIST_PAGE_ENTRIES;
use pario_core::{
    AttrChange, Code, DirEntry, Fault, FileAttr, FileKind, Generation, InodeId, Layout, SessionId,
};
use pario_net::message::{At, NameReply, NameRequest, XattrHow};
use pario_store::disk::Disk;
use serde::Serialize;

use super::batch::Batch;
use super::edit::Edit;
use super::ledger::{Ledger, LedgerPace, LedgerStats, SyncDone};
use super::make::{NodeRequest, OpenRequest};
use super::mend::mend;
use super::recover::{LedgerSpec, Recovery};
use super::rows::{self, NameCounters, NameEntry, NameLocation, WriterProcess};
use super::sessions::{Sessions, scan};
use super::tree::{AtEnd, AttrLocation, NameTree, NamedInode, fault};
use super::unmake::RenameRequest;
use super::xattrs::{XattrIndex, XattrRequest};

/// Origin of a request: a session, and the number of the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestOrigin {
    /// The client.
    pub session: SessionId,
    /// Its request; a repeated request has the same number.
    pub request: u64,
}

/// An inode with no name left. It is pending until [`Names::finish_remove`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unlinked {
    /// Its attributes.
    pub attr: FileAttr,
}

/// The reply to a request, and the actions required of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameAnswer {
    /// The client's reply.
    pub reply: NameReply,
    /// An `Open` created the file.
    pub created: bool,
    /// A `Remove` or a replacing `Rename` removed a file's last name.
    pub unlinked: Option<Unlinked>,
    /// An `Open` that truncates found this file: the caller sets its length to 0 ([`Names::begin_set_length_once`]).
    pub needs_truncate: Option<InodeId>,
}

/// A session that may be writing back a file, and its process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterSession {
    /// The session.
    pub session: SessionId,
    /// Host it runs on.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Its start time in kernel ticks: distinguishes it from a later process with the same id.
    pub start_ticks: u64,
}

/// Counters of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NamesStats {
    /// Inodes that have a name.
    pub inodes: u64,
    /// The ledger below.
    pub ledger: LedgerStats,
}

/// See the module.
#[derive(Debug)]
pub struct Names {
    pub(super) tree: NameTree,
    pub(super) counters: NameCounters,
    pub(super) sessions: Sessions,
    pub(super) xattrs: XattrIndex,
    pub(super) defaults: Layout,
}

impl NameAnswer {
    /// A reply without actions for the caller.
    #[must_use]
    pub fn plain(reply: NameReply) -> NameAnswer {
        NameAnswer { reply, created: false, unlinked: None, needs_truncate: None }
    }
}

impl Names {
    /// Opens the names of a directory, which is created if missing, with a root (mode 0755, owner and times 0) if it is new.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, defaults: Layout) -> Result<Names, Fault> {
        Names::open_with(disk, dir, defaults, LedgerPace::default())
    }

    /// As [`Names::open`], with other limits.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        dir: &Path,
        defaults: Layout,
        pace: LedgerPace,
    ) -> Result<Names, Fault> {
        Names::open_as(disk, dir, defaults, LedgerSpec { pace, ..LedgerSpec::default() })
    }

    /// As [`Names::open`], with a second copy if one is given. Names with lost rows are made consistent.
    pub fn open_as(
        disk: Arc<dyn Disk>,
        dir: &Path,
        defaults: Layout,
        spec: LedgerSpec,
    ) -> Result<Names, Fault> {
        make_dir(&*disk, dir)?;
        let mut ledger = Ledger::open_as(disk, dir, spec)?;
        if ledger.recovery().has_losses() {
            let mended = mend(&mut ledger, defaults)?;
            ledger.recovery_mut().notes.push(format!("names: {mended} rows were changed so that they agree"));
        }
        let key = rows::counters();
        let counters = match ledger.get(&key)? {
            Some(value) => rows::decode(&key, &value)?,
            None => make_root(&mut ledger, defaults)?,
        };
        let sessions = Sessions::load(&ledger)?;
        let xattrs = XattrIndex::load(&ledger)?;
        Ok(Names { tree: NameTree { ledger }, counters, sessions, xattrs, defaults })
    }

    /// Carries out a request. A change that this origin made before is not repeated: its kept reply is returned.
    pub fn request(
        &mut self,
        origin: RequestOrigin,
        request: &NameRequest,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        match request {
            NameRequest::Stat { at, follow } | NameRequest::Find { at, follow } => {
                Ok(attr_answer(self.resolve(at, *follow)?))
            }
            NameRequest::List { at, after, limit } | NameRequest::Scan { at, after, limit } => {
                self.list(at, after.as_deref(), *limit).map(NameAnswer::plain)
            }
            NameRequest::ReadLink { at } => self.read_link(at).map(NameAnswer::plain),
            NameRequest::GetXattr { at, name } => self.get_xattr(at, name).map(NameAnswer::plain),
            NameRequest::ListXattrs { at } => self.list_xattrs(at).map(NameAnswer::plain),
            NameRequest::Open { .. }
            | NameRequest::MakeDir { .. }
            | NameRequest::Symlink { .. }
            | NameRequest::Remove { .. }
            | NameRequest::RemoveDir { .. }
            | NameRequest::Rename { .. }
            | NameRequest::Link { .. }
            | NameRequest::MakeNode { .. }
            | NameRequest::Exchange { .. }
            | NameRequest::SetXattr { .. }
            | NameRequest::RemoveXattr { .. }
            | NameRequest::SetAttr { .. } => match self.kept(origin)? {
                Some(answer) => Ok(answer),
                None => self.change(origin, request, wall_ns),
            },
        }
    }

    /// The reply kept for a change that this origin made before.
    pub fn kept(&mut self, origin: RequestOrigin) -> Result<Option<NameAnswer>, Fault> {
        let row = self.sessions.kept(&self.tree.ledger, origin)?;
        Ok(row.map(|row| NameAnswer { created: row.created, ..NameAnswer::plain(row.reply) }))
    }

    /// Attributes of an inode, with or without a name; `Stale` if it was removed.
    pub fn attr(&self, inode: InodeId) -> Result<FileAttr, Fault> {
        self.tree.attr(inode)
    }

    /// Attributes of a path's target. An empty path is the base itself, also without a name.
    pub fn resolve(&self, at: &At, follow: bool) -> Result<FileAttr, Fault> {
        self.home_of(at, follow).map(|home| *home.attr())
    }

    /// One page of all inodes that have a name, in the order of their numbers; and whether there are more.
    pub fn inodes(&self, after: InodeId, limit: usize) -> Result<(Vec<FileAttr>, bool), Fault> {
        let page = self.tree.ledger.page(&rows::locations(), Some(&rows::location(after)), limit)?;
        let inodes =
            page.rows.iter().map(|(key, _)| Ok(*self.tree.node(InodeId(rows::number_of(key)?))?.attr()));
        Ok((inodes.collect::<Result<_, Fault>>()?, page.more))
    }

    /// Notes durably that a session may be writing back a file.
    pub fn note_writer(&mut self, inode: InodeId, writer: &WriterSession) -> Result<(), Fault> {
        if self.sessions.is_writing(writer.session, inode) {
            return Ok(());
        }
        let WriterSession { session, host, pid, start_ticks } = writer.clone();
        let mut batch = Batch::default();
        batch.put(&rows::writer(inode, session), &rows::encode(&WriterProcess { host, pid, start_ticks }));
        self.tree.ledger.append(&batch)?;
        self.sessions.set_writing(session, inode, true);
        Ok(())
    }

    /// The session does not write the file any more.
    pub fn forget_writer(&mut self, inode: InodeId, session: SessionId) -> Result<(), Fault> {
        if !self.sessions.is_writing(session, inode) {
            return Ok(());
        }
        let mut batch = Batch::default();
        batch.set_frees();
        batch.delete(&rows::writer(inode, session));
        self.tree.ledger.append(&batch)?;
        self.sessions.set_writing(session, inode, false);
        Ok(())
    }

    /// The session has ended: drops its kept replies and its writer entries.
    pub fn forget_session(&mut self, session: SessionId) -> Result<(), Fault> {
        let batch = self.sessions.forget_rows(&self.tree.ledger, session)?;
        self.tree.ledger.append(&batch)?;
        self.sessions.forget(session);
        Ok(())
    }

    /// Sessions with kept replies, in no order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.known()
    }

    /// Whether a session may be writing a file.
    #[must_use]
    pub fn is_writer(&self, session: SessionId) -> bool {
        self.sessions.written_by(session).next().is_some()
    }

    /// Every session that may be writing, with the file.
    pub fn writers(&self) -> Result<Vec<(InodeId, WriterSession)>, Fault> {
        let mut writers = Vec::new();
        scan(&self.tree.ledger, &rows::writers(), |key, value| {
            let (inode, session) = rows::writer_of(key)?;
            let WriterProcess { host, pid, start_ticks } = rows::decode(key, value)?;
            writers.push((inode, WriterSession { session, host, pid, start_ticks }));
            Ok(())
        })?;
        Ok(writers)
    }

    /// Calls `done`, on another thread, when all changes returned so far are on stable storage.
    pub fn sync(&self, done: SyncDone) {
        self.tree.ledger.sync(done);
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> NamesStats {
        NamesStats { inodes: self.counters.inodes, ledger: self.tree.ledger.stats() }
    }

    /// How the names were recovered.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.tree.ledger.recovery()
    }

    /// Writes all changes to stable storage and ends.
    pub fn shut_down(self) -> Result<(), Fault> {
        self.tree.ledger.shut_down()
    }

    fn change(
        &mut self,
        origin: RequestOrigin,
        request: &NameRequest,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        match request {
            NameRequest::Open { at, how, creator, striping } => {
                let wish = OpenRequest { at, how: *how, creator: *creator, striping: *striping };
                self.open_file(origin, &wish, wall_ns)
            }
            NameRequest::MakeDir { at, creator } => self.make_dir(origin, at, *creator, wall_ns),
            NameRequest::Symlink { at, target, creator } => {
                self.make_link(origin, (at, target), *creator, wall_ns)
            }
            NameRequest::Remove { at } => self.remove(origin, at, wall_ns),
            NameRequest::RemoveDir { at } => self.remove_dir(origin, at, wall_ns),
            NameRequest::Rename { from, to, replace } => {
                self.rename(origin, &RenameRequest { from, to, replace: *replace }, wall_ns)
            }
            NameRequest::SetAttr { at, follow, change } => {
                self.set_attr(origin, (at, *follow), change, wall_ns)
            }
            NameRequest::Link { from, to } => self.link(origin, (from, to), wall_ns),
            NameRequest::MakeNode { at, kind, device, creator } => {
                let wish = NodeRequest { at, kind: *kind, device: *device, creator: *creator };
                self.make_node(origin, &wish, wall_ns)
            }
            NameRequest::Exchange { one, two } => self.exchange(origin, (one, two), wall_ns),
            NameRequest::SetXattr { at, name, value, how } => {
                let wish = XattrRequest { at, name, value: Some(value), how: *how };
                self.set_xattr(origin, &wish, wall_ns)
            }
            NameRequest::RemoveXattr { at, name } => {
                let wish = XattrRequest { at, name, value: None, how: XattrHow::Any {} };
                self.set_xattr(origin, &wish, wall_ns)
            }
            NameRequest::Stat { .. }
            | NameRequest::List { .. }
            | NameRequest::Find { .. }
            | NameRequest::Scan { .. }
            | NameRequest::GetXattr { .. }
            | NameRequest::ListXattrs { .. }
            | NameRequest::ReadLink { .. } => {
                unreachable!("requests that change nothing are answered before")
            }
        }
    }

    fn list(&self, at: &At, after: Option<&[u8]>, limit: u32) -> Result<NameReply, Fault> {
        let node = self.tree.resolve(at, AtEnd::Follow)?;
        if !node.is_directory() {
            return Err(fault(Code::NotDirectory, at));
        }
        let after = after.map(|name| rows::entry(node.inode(), name));
        let limit = limit.clamp(1, LIST_PAGE_ENTRIES) as usize;
        let page = self.tree.ledger.page(&rows::entries(node.inode()), after.as_deref(), limit)?;
        let entries = page.rows.iter().map(|(key, value)| {
            let attr = self.tree.current(rows::decode_attr(key, value)?)?;
            Ok(DirEntry { name: rows::name_of_entry(key).to_vec(), attr })
        });
        Ok(NameReply::Entries { entries: entries.collect::<Result<_, Fault>>()?, more: page.more })
    }

    fn read_link(&self, at: &At) -> Result<NameReply, Fault> {
        let node = self.tree.resolve(at, AtEnd::Stay)?;
        if node.attr().kind != FileKind::Symlink {
            let text = format!("{}: not a symbolic link", super::tree::show(at));
            return Err(Fault::new(Code::Invalid, text));
        }
        Ok(NameReply::Target { target: node.entry.target })
    }

    fn set_attr(
        &mut self,
        origin: RequestOrigin,
        (at, follow): (&At, bool),
        change: &AttrChange,
        wall_ns: u64,
    ) -> Result<NameAnswer, Fault> {
        let home = self.home_of(at, follow)?;
        let old = *home.attr();
        let attr = FileAttr {
            mode: change.mode.map_or(old.mode, |mode| mode & 0o7777),
            uid: change.uid.unwrap_or(old.uid),
            gid: change.gid.unwrap_or(old.gid),
            accessed_ns: change.accessed_ns.unwrap_or(old.accessed_ns),
            modified_ns: change.modified_ns.unwrap_or(old.modified_ns),
            changed_ns: wall_ns,
            ..old
        };
        let mut edit = Edit::new(self.counters, wall_ns);
        edit.put_attr(&home, attr);
        self.commit(origin, edit, attr_answer(attr))
    }

    pub(super) fn home_of(&self, at: &At, follow: bool) -> Result<AttrLocation, Fault> {
        if at.path.is_empty() {
            return self.tree.attr_location(at.base);
        }
        let end = if follow { AtEnd::Follow } else { AtEnd::Stay };
        self.tree.resolve(at, end).map(AttrLocation::Named)
    }

    /// Appends an edit together with the reply to its request.
    pub(super) fn commit(
        &mut self,
        origin: RequestOrigin,
        edit: Edit,
        answer: NameAnswer,
    ) -> Result<NameAnswer, Fault> {
        let mut edit = edit;
        let rows = (&mut edit.batch, &mut edit.counters);
        let keeping = self.sessions.keep(&self.tree.ledger, origin, rows, (answer.created, &answer.reply))?;
        self.append(edit)?;
        self.sessions.was_kept(&keeping);
        Ok(answer)
    }

    /// Appends an edit.
    pub(super) fn append(&mut self, edit: Edit) -> Result<(), Fault> {
        let (batch, counters) = edit.finish();
        self.tree.ledger.append(&batch)?;
        self.counters = counters;
        Ok(())
    }
}

fn attr_answer(attr: FileAttr) -> NameAnswer {
    NameAnswer::plain(NameReply::Attr { attr })
}

fn make_dir(disk: &dyn Disk, dir: &Path) -> Result<(), Fault> {
    let making = || {
        if !disk.exists(dir)? {
            disk.make_dir(dir)?;
            if let Some(parent) = dir.parent() {
                disk.sync_dir(parent)?;
            }
        }
        Ok(())
    };
    making().map_err(|error: std::io::Error| Fault::from_io(&error, format!("making {}", dir.display())))
}

fn make_root(ledger: &mut Ledger, layout: Layout) -> Result<NameCounters, Fault> {
    let attr = FileAttr {
        inode: InodeId::ROOT,
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 2,
        size: 0,
        generation: Generation(0),
        layout,
        accessed_ns: 0,
        modified_ns: 0,
        changed_ns: 0,
    };
    let place = NameLocation { parent: InodeId(0), name: Vec::new() };
    let counters = NameCounters { next_inode: InodeId(InodeId::ROOT.0 + 1), inodes: 1, next_stamp: 1 };
    let node = NamedInode { location: place, entry: NameEntry { attr, target: Vec::new() }, linked: false };
    let mut batch = Batch::default();
    batch.put(&rows::entry(node.location.parent, &node.location.name), &rows::encode(&node.entry));
    batch.put(&rows::location(attr.inode), &rows::encode(&node.location));
    batch.put(&rows::counters(), &rows::encode(&counters));
    ledger.append(&batch)?;
    Ok(counters)
}
