//! Lengths of files: growing, truncating in two steps, and pending changes of objects.
//!
//! Always: a truncation raises the generation in the same batch that notes it, so that after a crash in between the request to the servers
//! can be repeated; an inode without a name stays until its objects are removed.

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, FileAttr, FileKind, Generation, InodeId, Layout};
use pario_net::message::NameReply;

use super::edit::Edit;
use super::name_space::{NameAnswer, Names, RequestOrigin};
use super::rows::{self, TruncationRow};
use super::sessions::scan;
use super::tree::AttrLocation;

/// A truncation that the servers have to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// The file.
    pub inode: InodeId,
    /// Its layout over the servers.
    pub layout: Layout,
    /// Generation of its objects before.
    pub from: Generation,
    /// Generation of its objects after.
    pub to: Generation,
    /// The file's new length.
    pub bytes: u64,
}

/// A decided change that may not be carried out on all objects yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingObjectChange {
    /// See [`Names::begin_set_length`].
    Truncate(Truncation),
    /// The last name of this file was removed; its objects are removed when its last user has closed it.
    Remove(FileAttr),
}

impl Names {
    /// The file has at least `end` bytes, as reported by its writers: grows it if it was shorter, and updates its times.
    pub fn grow(&mut self, inode: InodeId, end: u64, wall_ns: u64) -> Result<FileAttr, Fault> {
        self.append_grown(inode, end, Edit::new(self.counters, wall_ns))
    }

    /// The same for a file with a dead writer: the file is not available, not even for removal, before that is noted, so the reserve of a
    /// full disk may be used for it.
    pub fn grow_recovered(&mut self, inode: InodeId, end: u64, wall_ns: u64) -> Result<FileAttr, Fault> {
        let mut edit = Edit::new(self.counters, wall_ns);
        edit.batch.set_frees();
        self.append_grown(inode, end, edit)
    }

    fn append_grown(&mut self, inode: InodeId, end: u64, mut edit: Edit) -> Result<FileAttr, Fault> {
        let wall_ns = edit.wall_ns();
        let home = self.attr_location(inode)?;
        check_length(inode, end)?;
        let old = *home.attr();
        let attr = FileAttr { size: old.size.max(end), modified_ns: wall_ns, changed_ns: wall_ns, ..old };
        edit.put_attr(&home, attr);
        self.append(edit)?;
        Ok(attr)
    }

    /// Sets a file's length. A length that is not shorter is set immediately and returns `None`. A shorter one is noted, with a new
    /// generation; the caller sends the truncation to the servers, then calls [`Names::finish_truncation`]. Until then another one returns
    /// `Busy`.
    pub fn begin_set_length(
        &mut self,
        inode: InodeId,
        bytes: u64,
        wall_ns: u64,
    ) -> Result<Option<Truncation>, Fault> {
        let mut edit = Edit::new(self.counters, wall_ns);
        let (_, truncation) = self.edit_length(&mut edit, inode, bytes)?;
        self.append(edit)?;
        Ok(truncation)
    }

    /// As [`Names::begin_set_length`], for a request that may be repeated after a reconnect: in the same batch it keeps the reply `Attr`,
    /// which [`Names::kept`] (and [`Names::request`]) then return instead of truncating the file twice.
    pub fn begin_set_length_once(
        &mut self,
        origin: RequestOrigin,
        inode: InodeId,
        bytes: u64,
        wall_ns: u64,
    ) -> Result<Option<Truncation>, Fault> {
        let mut edit = Edit::new(self.counters, wall_ns);
        let (attr, truncation) = self.edit_length(&mut edit, inode, bytes)?;
        self.commit(origin, edit, NameAnswer::plain(NameReply::Attr { attr }))?;
        Ok(truncation)
    }

    /// The objects of a truncated file are truncated.
    pub fn finish_truncation(&mut self, inode: InodeId) -> Result<FileAttr, Fault> {
        let attr = *self.attr_location(inode)?.attr();
        let mut edit = Edit::new(self.counters, 0);
        edit.batch.delete(&rows::truncation(inode));
        edit.batch.set_frees();
        self.append(edit)?;
        Ok(attr)
    }

    /// The objects of an unlinked file are removed: drops the inode, its truncation and its writers.
    pub fn finish_remove(&mut self, inode: InodeId) -> Result<(), Fault> {
        let mut edit = Edit::new(self.counters, 0);
        if self.tree.ledger.get(&rows::orphan(inode))?.is_none() {
            return match self.tree.find(inode)? {
                Some(_) => Err(Fault::new(Code::Busy, format!("inode {inode} still has a name"))),
                None => Ok(()),
            };
        }
        edit.batch.set_frees();
        edit.batch.delete(&rows::orphan(inode));
        edit.batch.delete(&rows::truncation(inode));
        self.xattrs.drop_all(&self.tree.ledger, inode, &mut edit.batch)?;
        let writers: Vec<_> = self.sessions.writers_of(inode).collect();
        for session in &writers {
            edit.batch.delete(&rows::writer(inode, *session));
        }
        self.append(edit)?;
        for session in writers {
            self.sessions.set_writing(session, inode, false);
        }
        Ok(())
    }

    /// All pending changes of objects, truncations first.
    pub fn pending(&self) -> Result<Vec<PendingObjectChange>, Fault> {
        let mut pending = Vec::new();
        scan(&self.tree.ledger, &rows::truncations(), |key, value| {
            let inode = InodeId(rows::number_of(key)?);
            let TruncationRow { from, to, bytes } = rows::decode(key, value)?;
            let layout = self.tree.attr(inode)?.layout;
            pending.push(PendingObjectChange::Truncate(Truncation { inode, layout, from, to, bytes }));
            Ok(())
        })?;
        scan(&self.tree.ledger, &rows::orphans(), |key, value| {
            pending.push(PendingObjectChange::Remove(rows::decode(key, value)?));
            Ok(())
        })?;
        Ok(pending)
    }

    fn edit_length(
        &self,
        edit: &mut Edit,
        inode: InodeId,
        bytes: u64,
    ) -> Result<(FileAttr, Option<Truncation>), Fault> {
        let home = self.attr_location(inode)?;
        let old = *home.attr();
        check_length(inode, bytes)?;
        let key = rows::truncation(inode);
        if self.tree.ledger.get(&key)?.is_some() {
            return Err(Fault::new(Code::Busy, format!("inode {inode} is being truncated")));
        }
        let (from, now) = (old.generation, edit.wall_ns());
        let mut attr = FileAttr { size: bytes, modified_ns: now, changed_ns: now, ..old };
        let mut truncation = None;
        if bytes < old.size {
            let to = from.0.checked_add(1).map(Generation).ok_or_else(|| {
                Fault::new(
                    Code::TooMany,
                    format!("inode {inode} was truncated 2^32 times; copy it to a new file"),
                )
            })?;
            attr.generation = to;
            edit.batch.set_frees();
            edit.batch.put(&key, &rows::encode(&TruncationRow { from, to, bytes }));
            truncation = Some(Truncation { inode, layout: old.layout, from, to, bytes });
        }
        edit.put_attr(&home, attr);
        Ok((attr, truncation))
    }

    /// Location of the attributes of an inode with a length.
    fn attr_location(&self, inode: InodeId) -> Result<AttrLocation, Fault> {
        let home = self.tree.attr_location(inode)?;
        match home.attr().kind {
            FileKind::File => Ok(home),
            FileKind::Directory => {
                Err(Fault::new(Code::IsDirectory, format!("inode {inode}: is a directory")))
            }
            FileKind::Symlink => Err(Fault::new(Code::Invalid, format!("inode {inode}: is a symbolic link"))),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                Err(Fault::new(Code::Invalid, format!("inode {inode}: is a special file")))
            }
        }
    }
}

fn check_length(inode: InodeId, bytes: u64) -> Result<(), Fault> {
    if bytes <= FILE_BYTES_MAX {
        return Ok(());
    }
    let text = format!("inode {inode}: a length of {bytes} bytes: at most {FILE_BYTES_MAX} are possible");
    Err(Fault::new(Code::TooLarge, text))
}
