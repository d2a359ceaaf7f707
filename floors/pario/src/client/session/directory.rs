//! Names: directories, links, attributes, renames.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Weak};

use pario_core::limits::LIST_PAGE_ENTRIES;
use pario_core::{AttrChange, Code, DirEntry, Fault, FileAttr, InodeId, ServerIndex, Space};
use pario_net::message::{At, NameReply, NameRequest, Reply, Request};

use crate::client::session::options::creator;
use crate::client::session::state::{Session, unexpected_reply};
use crate::error::Result;

/// A path as the partition's bytes.
pub fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn at(path: impl AsRef<Path>) -> At {
    At::root(path_bytes(path.as_ref()))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
fn attr_of(reply: NameReply) -> Result<FileAttr> {
    match reply {
        NameReply::Attr { attr } => Ok(attr),
        other => Err(unexpected_reply(&Reply::Name { reply: other }).into()),
    }
}

/// Tells the manager the end of a client's writes to a file, if it does not know it: see
/// [`File::report_end`](crate::File::report_end).
pub fn report_end_of(session: &Session, inode: InodeId) -> Result<()> {
    let file = session.files().get(&inode).and_then(Weak::upgrade);
    Ok(file.map_or(Ok(()), |file| file.report_end())?)
}

/// Operations on names; [`crate::Partition`] forwards to them.
impl Session {
    /// Attributes; symbolic links are followed.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        attr_of(self.name_call(NameRequest::Stat { at: at(path), follow: true })?)
    }

    /// Attributes of the name itself: symbolic links are not followed.
    pub fn stat_link(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        attr_of(self.name_call(NameRequest::Stat { at: at(path), follow: false })?)
    }

    /// The entries of a directory, in the order of their names' bytes.
    pub fn read_dir(self: &Arc<Self>, path: impl AsRef<Path>) -> Result<ReadDir> {
        let mut entries = ReadDir {
            mount: Arc::clone(self),
            at: at(path),
            page: Vec::new().into_iter(),
            after: None,
            more: true,
        };
        entries.fetch()?;
        Ok(entries)
    }

    /// Creates a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        attr_of(self.name_call(NameRequest::MakeDir { at: at(path), creator: creator(0o777) })?)
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.create_dir(path) {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Code::Exists => self.check_directory(path),
            Err(error) if error.code() == Code::NotFound => {
                let parent = path.parent().filter(|parent| *parent != path).ok_or(error)?;
                self.create_dir_all(parent)?;
                match self.create_dir(path) {
                    Err(error) if error.code() == Code::Exists => self.check_directory(path),
                    other => other.map(|_| ()),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn check_directory(&self, path: &Path) -> Result<()> {
        if self.stat(path)?.kind == pario_core::FileKind::Directory {
            return Ok(());
        }
        Err(Fault::new(Code::NotDirectory, format!("{} is not a directory", path.display())).into())
    }

    /// Removes a file or symbolic link. An open file exists until its last handle is closed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.name_call(NameRequest::Remove { at: at(path) })?;
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.name_call(NameRequest::RemoveDir { at: at(path) })?;
        Ok(())
    }

    /// Renames a file or directory atomically, replacing an existing one.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.name_call(NameRequest::Rename { from: at(from), to: at(to), replace: true })?;
        Ok(())
    }

    /// Like rename, but fails if the new name exists.
    pub fn rename_new(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.name_call(NameRequest::Rename { from: at(from), to: at(to), replace: false })?;
        Ok(())
    }

    /// Creates a symbolic link at `link` that points to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<FileAttr> {
        let target = path_bytes(target.as_ref());
        attr_of(self.name_call(NameRequest::Symlink { at: at(link), target, creator: creator(0o777) })?)
    }

    /// The target of a symbolic link.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        match self.name_call(NameRequest::ReadLink { at: at(path) })? {
            NameReply::Target { target } => Ok(target),
            other => Err(unexpected_reply(&Reply::Name { reply: other }).into()),
        }
    }

    /// Changes permission bits, owner or times.
    pub fn set_attr(&self, path: impl AsRef<Path>, change: AttrChange) -> Result<FileAttr> {
        attr_of(self.name_call(NameRequest::SetAttr { at: at(path), follow: true, change })?)
    }

    /// Puts every name operation that has returned on stable storage.
    pub fn sync_names(&self) -> Result<()> {
        self.call(ServerIndex::MANAGER, &Request::SyncNames { inode: None, end: None })?;
        Ok(())
    }

    /// Space of the whole partition: the sum over its servers; a file system shared by several counts once.
    pub fn space(&self) -> Result<Space> {
        let mut spaces = Vec::new();
        for server in 0..self.servers() {
            spaces.push(self.server_space(ServerIndex(u16::try_from(server).unwrap_or(u16::MAX)))?);
        }
        Ok(Space::sum(spaces))
    }

    /// Space of one server's store.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn server_space(&self, server: ServerIndex) -> Result<Space> {
        match self.call(server, &Request::Space {})?.reply {
            Reply::Space { space } => Ok(space),
            other => Err(unexpected_reply(&other).into()),
        }
    }

    /// All counters of a server, as JSON text.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn server_status(&self, server: ServerIndex) -> Result<String> {
        match self.call(server, &Request::Status {})?.reply {
            Reply::Status { json } => Ok(json),
            other => Err(unexpected_reply(&other).into()),
        }
    }
}

/// The entries of a directory, fetched in pages.
#[derive(Debug)]
pub struct ReadDir {
    mount: Arc<Session>,
    at: At,
    page: std::vec::IntoIter<DirEntry>,
    after: Option<Vec<u8>>,
    more: bool,
}

impl ReadDir {
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn fetch(&mut self) -> Result<()> {
        let request =
            NameRequest::List { at: self.at.clone(), after: self.after.clone(), limit: LIST_PAGE_ENTRIES };
        match self.mount.name_call(request)? {
            NameReply::Entries { entries, more } => {
                self.after = entries.last().map(|entry| entry.name.clone()).or(self.after.take());
                self.page = entries.into_iter();
                self.more = more;
                Ok(())
            }
            other => Err(unexpected_reply(&Reply::Name { reply: other }).into()),
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.next() {
                return Some(Ok(entry));
            }
            if !self.more {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.more = false;
                return Some(Err(error));
            }
        }
    }
}
