//! [`Partition`]: the public face of a mounted partition.

use std::path::Path;
use std::sync::Arc;

use pario_core::{AttrChange, FileAttr, Space};

use crate::client::{Application, Counts, File, Mount, MountSpec, OpenOptions, ReadDir};
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
    // Before the servers: a mount says goodbye while they still listen.
    mount: Arc<Mount>,
    spec: Arc<Spec>,
    embedded: Option<Arc<Embedded>>,
}

struct Spec(MountSpec);

impl std::fmt::Debug for Spec {
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
            mount: Mount::new(spec.clone()),
            spec: Arc::new(Spec(spec)),
            embedded: Some(Arc::new(embedded)),
        })
    }

    /// Mounts with everything given, as for servers that were started by hand.
    #[must_use]
    pub fn from_spec(spec: MountSpec) -> Partition {
        Partition { mount: Mount::new(spec.clone()), spec: Arc::new(Spec(spec)), embedded: None }
    }

    /// Mounts the same partition once more, as another client would: own session, own leases, own outbox.
    #[must_use]
    pub fn another_client(&self) -> Partition {
        Partition {
            mount: Mount::new(self.spec.0.clone()),
            spec: Arc::clone(&self.spec),
            embedded: self.embedded.clone(),
        }
    }

    /// Mounts the same partition once more, on behalf of an application: under `scheduler = "mlf"`, `"wfq"`, `"wsjf"` or `"tbf"`
    /// servers share their stores' service between applications by weight.
    #[must_use]
    pub fn on_behalf_of(&self, application: Application) -> Partition {
        let spec = MountSpec { application, ..self.spec.0.clone() };
        Partition {
            mount: Mount::new(spec.clone()),
            spec: Arc::new(Spec(spec)),
            embedded: self.embedded.clone(),
        }
    }

    /// Mounts the same partition once more, through one server: it answers for the others too, with their help. So a group of processes can
    /// be tied to its own server, as compute nodes are to their I/O node.
    pub fn tied_to(&self, server: u16) -> Result<Partition> {
        let mount = self.mount.tied_to(pario_core::ServerIndex(server))?;
        Ok(Partition { mount, spec: Arc::clone(&self.spec), embedded: self.embedded.clone() })
    }

    /// The mount behind it, for tools.
    pub fn mount_handle(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// The partition's name.
    pub fn name(&self) -> &str {
        self.mount.name()
    }

    /// Options for opening a file.
    #[must_use]
    pub fn options(&self) -> OpenOptions {
        OpenOptions::new(&self.mount)
    }

    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).open(path)
    }

    /// Opens a file for reading and writing; creates it, or cuts it to nothing.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).write(true).create(true).truncate(true).open(path)
    }

    /// Attributes; symbolic links are followed. What others write behind is recalled first.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        self.mount.stat(path)
    }

    /// Attributes of what the name itself leads to.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<FileAttr> {
        self.mount.stat_link(path)
    }

    /// The entries of a directory with their attributes, in the order of their names' bytes.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.mount.read_dir(path)
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mount.create_dir(path).map(|_| ())
    }

    /// Makes a directory and those above it that are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mount.create_dir_all(path)
    }

    /// Removes a file or symbolic link. A file that is open lives until its last user is gone.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mount.remove_file(path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mount.remove_dir(path)
    }

    /// Gives a file or directory another name, at once and replacing what was there.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.mount.rename(from, to)
    }

    /// Makes a symbolic link at `link` that says `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        self.mount.symlink(target, link).map(|_| ())
    }

    /// What a symbolic link says.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<std::path::PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        self.mount.read_link(path).map(|bytes| std::ffi::OsString::from_vec(bytes).into())
    }

    /// Changes permission bits, owner or times.
    pub fn set_attr(&self, path: impl AsRef<Path>, change: AttrChange) -> Result<FileAttr> {
        self.mount.set_attr(path, change)
    }

    /// Puts every name operation that has returned on stable storage.
    pub fn sync_names(&self) -> Result<()> {
        self.mount.sync_names()
    }

    /// Room of the whole partition.
    pub fn space(&self) -> Result<Space> {
        self.mount.space()
    }

    /// What this mount has done, counted.
    pub fn counts(&self) -> Counts {
        self.mount.counts()
    }
}
