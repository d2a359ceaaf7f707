//! [`Partition`]: a mounted partition in the public interface.

use std::path::Path;
use std::sync::Arc;

use pario_core::{AttrChange, FileAttr, PartitionId, Space};

use pario_net::message::{At, NameRequest};

use crate::client::path_bytes;
use crate::client::{Application, Counts, File, MountSpec, OpenOptions, ReadDir, Session};
use crate::embed::{self, EmbedOptions, Embedded};
use crate::error::Result;

/// A mounted partition. Cheap to clone; all clones share connections, outbox and leases.
///
/// ```
/// let partition = pario::Partition::in_process(4)?;           // four servers in this process
/// let file = partition.create("field")?;
/// file.write_at(0, b"hello")?;
/// # Ok::<(), pario::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Partition {
    // Before the servers: a session closes its connections while they still run.
    session: Arc<Session>,
    spec: Arc<MountParameters>,
    embedded: Option<Arc<Embedded>>,
}

struct MountParameters(MountSpec);

impl std::fmt::Debug for MountParameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl Partition {
    /// A partition of `servers` servers that are threads of this process, in memory.
    pub fn in_process(servers: u16) -> Result<Partition> {
        Partition::embed(&EmbedOptions { servers, ..EmbedOptions::default() })
    }

    /// A partition inside this process, with a choice of store and transport.
    pub fn embed(options: &EmbedOptions) -> Result<Partition> {
        let (embedded, spec) = embed::start(options)?;
        Ok(Partition {
            session: Session::new(spec.clone()),
            spec: Arc::new(MountParameters(spec)),
            embedded: Some(Arc::new(embedded)),
        })
    }

    /// Mounts with all parameters given, as for servers that were started manually.
    #[must_use]
    pub fn from_spec(spec: MountSpec) -> Partition {
        Partition {
            session: Session::new(spec.clone()),
            spec: Arc::new(MountParameters(spec)),
            embedded: None,
        }
    }

    /// Mounts the same partition again, as another client: own session, own leases, own outbox.
    #[must_use]
    pub fn another_client(&self) -> Partition {
        Partition {
            session: Session::new(self.spec.0.clone()),
            spec: Arc::clone(&self.spec),
            embedded: self.embedded.clone(),
        }
    }

    /// Mounts the same partition again for an application: under `scheduler = "mlf"`, `"wfq"`, `"wsjf"` or `"tbf"` servers share their
    /// stores' service between applications by weight.
    #[must_use]
    pub fn on_behalf_of(&self, application: Application) -> Partition {
        let spec = MountSpec { application, ..self.spec.0.clone() };
        Partition {
            session: Session::new(spec.clone()),
            spec: Arc::new(MountParameters(spec)),
            embedded: self.embedded.clone(),
        }
    }

    /// Mounts the same partition again, through one server that forwards requests for the others. So a group of processes can be tied to
    /// its own server, as compute nodes are to their I/O node.
    pub fn tied_to(&self, server: u16) -> Result<Partition> {
        let mount = self.session.tied_to(pario_core::ServerIndex(server))?;
        Ok(Partition { session: mount, spec: Arc::clone(&self.spec), embedded: self.embedded.clone() })
    }

    /// The session behind it, for tools.
    pub fn mount_handle(&self) -> &Arc<Session> {
        &self.session
    }

    /// The partition's name.
    pub fn name(&self) -> &str {
        self.session.name()
    }

    /// The partition's identity, which no other has.
    pub fn identity(&self) -> PartitionId {
        self.spec.0.partition
    }

    /// Options for opening a file.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(&self.session)
    }

    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).open(path)
    }

    /// Opens a file for reading and writing; creates it, or truncates it to 0 bytes.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).write(true).create(true).truncate(true).open(path)
    }

    /// Attributes; symbolic links are followed. Buffered writes of other clients are recalled first.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        self.session.stat(path)
    }

    /// Attributes of the name itself: symbolic links are not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        self.session.stat_link(path)
    }

    /// The entries of a directory with their attributes, in the order of their names' bytes.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.session.read_dir(path)
    }

    /// Creates a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.session.create_dir(path).map(|_| ())
    }

    /// Creates a directory and its missing parents.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.session.create_dir_all(path)
    }

    /// Removes a file or symbolic link. An open file exists until its last handle is closed.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.session.remove_file(path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.session.remove_dir(path)
    }

    /// Renames a file or directory atomically, replacing an existing one.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.session.rename(from, to)
    }

    /// Creates a symbolic link at `link` that points to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.session.symlink(target, link).map(|_| ())
    }

    /// Gives a file one more name. A symbolic link is not followed.
    pub fn link(&self, file: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let at = |path: &Path| At::root(path_bytes(path));
        let request = NameRequest::Link { from: at(file.as_ref()), to: at(link.as_ref()) };
        self.session.name_call(request)?;
        Ok(())
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<std::path::PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        self.session.read_link(path).map(|bytes| std::ffi::OsString::from_vec(bytes).into())
    }

    /// Changes permission bits, owner or times.
    pub fn set_attr(&self, path: impl AsRef<Path>, change: AttrChange) -> Result<FileAttr> {
        self.session.set_attr(path, change)
    }

    /// Puts every name operation that has returned on stable storage.
    pub fn sync_names(&self) -> Result<()> {
        self.session.sync_names()
    }

    /// Space of the whole partition.
    pub fn space(&self) -> Result<Space> {
        self.session.space()
    }

    /// The counters of this session.
    pub fn counts(&self) -> Counts {
        self.session.counts()
    }
}
