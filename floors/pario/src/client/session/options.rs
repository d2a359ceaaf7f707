//! Options for opening a file.

use std::path::Path;
use std::sync::Arc;

use pario_core::{Code, Fault, FileAttr, FileKind, InodeId, Striping};
use pario_net::message::{At, Creator, NameReply, NameRequest, OpenHow};

use crate::client::file::backing::CacheRoute;
use crate::client::file::handle::File;
use crate::client::file::state::OpenFile;
use crate::client::session::directory::path_bytes;
use crate::client::session::state::{Session, unexpected_reply};
use crate::client::session::umask::umask;
use crate::error::Result;

/// Options for opening a file, like [`std::fs::OpenOptions`], with striping for new files.
///
/// ```
/// let partition = pario::Partition::in_process(2)?;
/// let file = partition.options().create(true).write(true).stripe_bytes(64 << 10).stripe_count(1).open("log")?;
/// file.write_at(0, b"line\n")?;
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    session: Arc<Session>,
    read: bool,
    write: bool,
    how: OpenHow,
    mode: u32,
    striping: Striping,
    through: Option<CacheRoute>,
}

impl OpenOptions {
    pub(crate) fn new(mount: &Arc<Session>) -> OpenOptions {
        OpenOptions {
            session: Arc::clone(mount),
            read: false,
            write: false,
            how: OpenHow::default(),
            mode: 0o666,
            striping: Striping::default(),
            through: None,
        }
    }

    /// Allow reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Allow writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self.how.write = write;
        self
    }

    /// Create the file if it is missing.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.how.create = create;
        self
    }

    /// Create the file and fail if it exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.how.create |= create_new;
        self.how.exclusive = create_new;
        self
    }

    /// Truncate the file to 0 bytes.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.how.truncate = truncate;
        self
    }

    /// Permission bits of a new file, before the process's umask.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Block size of a new file.
    #[must_use]
    pub fn stripe_bytes(mut self, bytes: u64) -> Self {
        self.striping.stripe_bytes = Some(bytes);
        self
    }

    /// Number of servers that a new file is striped over.
    #[must_use]
    pub fn stripe_count(mut self, count: u16) -> Self {
        self.striping.count = Some(count);
        self
    }

    /// Server of a new file's first block.
    #[must_use]
    pub fn first_server(mut self, first: u16) -> Self {
        self.striping.first = Some(first);
        self
    }

    /// The same, through one server that forwards to the others.
    pub(crate) fn tied_to(mut self, server: u16) -> Result<OpenOptions> {
        self.session = self.session.tied_to(pario_core::ServerIndex(server))?;
        Ok(self)
    }

    /// The same, for a cached file.
    pub(crate) fn through(mut self, through: Option<CacheRoute>) -> Self {
        self.through = through;
        self
    }

    /// Whether a missing file is created.
    pub(crate) fn creates(&self) -> bool {
        self.how.create
    }

    /// Whether the order of several opens matters: the file is created, or truncated.
    pub(crate) fn creates_or_truncates(&self) -> bool {
        self.how.exclusive || self.how.truncate
    }

    /// The options as bytes, for comparison with those of other members.
    pub(crate) fn to_bytes(&self, path: &Path) -> Vec<u8> {
        let said = (self.read, self.write, self.how, self.mode, self.striping);
        format!("{} {said:?} {}", self.session.name(), path.display()).into_bytes()
    }

    /// Opens the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        if !self.read && !self.write {
            return Err(Fault::new(
                Code::Invalid,
                format!("{}: open for neither reading nor writing", path.display()),
            )
            .into());
        }
        self.session.check_process()?;
        let mut attr = self.request_open(At::root(path_bytes(path)), self.how)?;
        if attr.kind != FileKind::File {
            return Err(Fault::new(Code::IsDirectory, format!("{} is a directory", path.display())).into());
        }
        loop {
            let name = path.to_string_lossy().into_owned();
            if let Some(file) = OpenFile::open_shared_state(&self.session, &attr, name, self.through.clone())
            {
                return Ok(File::new(file, self.read, self.write));
            }
            // It was already found, created and truncated.
            attr = self
                .request_open(At::inode(attr.inode), OpenHow { write: self.write, ..OpenHow::default() })?;
        }
    }

    /// Opens a file by its inode, even if it was renamed since.
    pub(crate) fn open_inode(&self, inode: InodeId, name: &str) -> Result<File> {
        self.session.check_process()?;
        loop {
            let how = OpenHow { write: self.write, ..OpenHow::default() };
            let attr = self.request_open(At::inode(inode), how)?;
            if let Some(file) =
                OpenFile::open_shared_state(&self.session, &attr, name.to_owned(), self.through.clone())
            {
                return Ok(File::new(file, self.read, self.write));
            }
        }
    }

    /// Opens a file that a directory's inode and a name, or its own inode, identify; a new one gets the given owner and permission bits,
    /// and the umask of this process has no effect. Also returns its attributes.
    pub fn open_at(&self, at: At, creator: Creator, name: &str) -> Result<(File, FileAttr)> {
        self.session.check_process()?;
        let mut attr = self.request_open_as(at, self.how, creator)?;
        if attr.kind != FileKind::File {
            let code = if attr.kind == FileKind::Directory { Code::IsDirectory } else { Code::Invalid };
            return Err(Fault::new(code, format!("{name}: is not a file")).into());
        }
        loop {
            if let Some(file) = OpenFile::open_shared_state(&self.session, &attr, name.to_owned(), None) {
                return Ok((File::new(file, self.read, self.write), attr));
            }
            // It was already found, created and truncated.
            let how = OpenHow { write: self.write, ..OpenHow::default() };
            attr = self.request_open_as(At::inode(attr.inode), how, creator)?;
        }
    }

    fn request_open(&self, at: At, how: OpenHow) -> Result<FileAttr> {
        self.request_open_as(at, how, creator(self.mode))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn request_open_as(&self, at: At, how: OpenHow, creator: Creator) -> Result<FileAttr> {
        let request = NameRequest::Open { at, how, creator, striping: self.striping };
        match self.session.name_call(request)? {
            NameReply::Attr { attr } => Ok(attr),
            other => Err(unexpected_reply(&pario_net::message::Reply::Name { reply: other }).into()),
        }
    }
}

/// Owner and permission bits of files that this process creates.
pub(in crate::client) fn creator(mode: u32) -> Creator {
    Creator {
        mode: mode & !umask(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}
