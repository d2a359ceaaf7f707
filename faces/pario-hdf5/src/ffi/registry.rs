//! Open files of this process: a tree that is opened twice is shared.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_container::{DirectoryPlace, Hex, Place, Tree, TreeAccess, is_tree};

use super::abi::{ACC_EXCL, ACC_RDWR, ACC_SWMR_READ, ACC_SWMR_WRITE, ACC_TRUNC};
use super::failure::{Failure, VolOutcome};
use super::handle::{Handle, TreeGuard};

/// First bytes of a native HDF5 file.
const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

/// A tree that is open in this process.
#[derive(Debug)]
pub(crate) struct OpenTree {
    tree: Mutex<Option<Tree>>,
    /// The name by which it was opened first.
    pub(crate) name: String,
    /// Device and inode of the directory.
    key: (u64, u64),
    pub(crate) writable: bool,
    /// `H5Fstart_swmr_write` was called.
    pub(crate) swmr: AtomicBool,
}

static OPEN: Mutex<Vec<Weak<OpenTree>>> = Mutex::new(Vec::new());

fn open_files() -> std::sync::MutexGuard<'static, Vec<Weak<OpenTree>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenTree {
    pub(crate) fn tree(&self) -> VolOutcome<TreeGuard<'_>> {
        let guard = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            return Err(Failure::new("the file is closed"));
        }
        Ok(TreeGuard(guard))
    }

    /// Drops a handle; the last one closes the tree.
    pub(crate) fn drop_handle(self: Arc<OpenTree>, handle: Box<Handle>) -> VolOutcome<()> {
        drop(handle);
        let mut files = open_files();
        // This reference is the last one.
        if Arc::strong_count(&self) > 1 {
            return Ok(());
        }
        files.retain(|file| file.upgrade().is_some_and(|known| !Arc::ptr_eq(&known, &self)));
        drop(files);
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(tree.map_or(Ok(()), Tree::close)?)
    }

    pub(crate) fn file_number(&self) -> u64 {
        let tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = tree.as_ref().map(|tree| tree.identity()[..8].to_vec()).unwrap_or_default();
        identity.try_into().map_or(0, u64::from_le_bytes) >> 1
    }
}

fn locking() -> bool {
    let value = std::env::var("HDF5_USE_FILE_LOCKING").unwrap_or_default();
    !matches!(value.to_ascii_uppercase().as_str(), "FALSE" | "0")
}

fn key_of(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn known(path: &Path) -> Option<Arc<OpenTree>> {
    let key = key_of(path)?;
    open_files().iter().filter_map(Weak::upgrade).find(|file| file.key == key)
}

fn refuse_partition(name: &str) -> VolOutcome<()> {
    if name.starts_with("pario://") {
        return Err(Failure::unsupported("HDF5 files in a partition (`pario://`); use a plain directory"));
    }
    Ok(())
}

fn register(name: &str, tree: Tree, writable: bool) -> VolOutcome<Arc<OpenTree>> {
    let key =
        key_of(Path::new(name)).ok_or_else(|| Failure::with_errno(format!("{name} has vanished"), 2))?;
    let file = Arc::new(OpenTree {
        tree: Mutex::new(Some(tree)),
        name: name.into(),
        key,
        writable,
        swmr: AtomicBool::new(false),
    });
    open_files().push(Arc::downgrade(&file));
    Ok(file)
}

/// Opens a tree.
pub(crate) fn open(name: &str, flags: u32) -> VolOutcome<Arc<OpenTree>> {
    refuse_partition(name)?;
    let (path, write) = (Path::new(name), flags & ACC_RDWR != 0);
    if let Some(file) = known(path) {
        if write && !file.writable {
            return Err(Failure::with_errno(format!("{name} is open read-only in this process"), 11));
        }
        return Ok(file);
    }
    let meta = fs::metadata(path).map_err(|error| {
        Failure::with_errno(
            format!("unable to open file: name = '{name}', {error}"),
            error.raw_os_error().unwrap_or(5),
        )
    })?;
    if meta.is_file() {
        return Err(Failure::with_errno(not_a_tree(path, name), 22));
    }
    let swmr = flags & (ACC_SWMR_READ | ACC_SWMR_WRITE) != 0;
    let access = TreeAccess { write, lock: locking() && !swmr };
    let tree = Tree::open(Arc::new(DirectoryPlace::new(path)), access)?;
    register(name, tree, write)
}

fn not_a_tree(path: &Path, name: &str) -> String {
    let mut head = [0; 8];
    let native =
        fs::File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *SIGNATURE;
    if native {
        format!(
            "{name} is a native HDF5 file; unset HDF5_VOL_CONNECTOR to open it, or convert it with h5repack"
        )
    } else {
        format!("{name} is not an HDF5 tree of Pario: it is a file (file signature not found)")
    }
}

/// Creates a tree.
pub(crate) fn create(name: &str, flags: u32, properties: Hex) -> VolOutcome<Arc<OpenTree>> {
    refuse_partition(name)?;
    let path = PathBuf::from(name);
    if known(&path).is_some() {
        return Err(Failure::with_errno(format!("{name} is open in this process"), 11));
    }
    if let Ok(meta) = fs::symlink_metadata(&path) {
        if flags & ACC_TRUNC == 0 || flags & ACC_EXCL != 0 {
            return Err(Failure::with_errno(
                format!("unable to create file: name = '{name}', it exists"),
                17,
            ));
        }
        remove_old(&path, meta.is_dir())?;
    }
    let tree = Tree::create(Arc::new(DirectoryPlace::new(&path)), locking(), properties)?;
    register(name, tree, true)
}

/// Removes a file or tree; other directories are refused.
fn remove_old(path: &Path, directory: bool) -> VolOutcome<()> {
    let shown = path.display();
    let fault = |error: std::io::Error| {
        Failure::with_errno(format!("remove {shown}: {error}"), error.raw_os_error().unwrap_or(5))
    };
    if !directory {
        return fs::remove_file(path).map_err(fault);
    }
    let place = DirectoryPlace::new(path);
    if !is_tree(&place)? && fs::read_dir(path).map_err(fault)?.next().is_some() {
        return Err(Failure::with_errno(
            format!("{shown} is a directory and not an HDF5 tree; it is left alone"),
            21,
        ));
    }
    if locking() {
        place.lock(true)?;
    }
    // Without this file it is no tree any more.
    place.remove_file(".@container")?;
    fs::remove_dir_all(path).map_err(fault)
}

/// Whether a name is an HDF5 tree.
pub(crate) fn accessible(name: &str) -> VolOutcome<bool> {
    refuse_partition(name)?;
    Ok(Path::new(name).is_dir() && is_tree(&DirectoryPlace::new(name))?)
}

/// Deletes a tree.
pub(crate) fn delete(name: &str) -> VolOutcome<()> {
    if !accessible(name)? {
        return Err(Failure::with_errno(format!("{name} is not an HDF5 tree of Pario"), 2));
    }
    if known(Path::new(name)).is_some() {
        return Err(Failure::with_errno(format!("{name} is open in this process"), 11));
    }
    remove_old(Path::new(name), true)
}

impl Drop for OpenTree {
    /// A file that only an external link had opened; the last handle of other files closes them and reports errors.
    fn drop(&mut self) {
        let tree = self.tree.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = tree.map(Tree::close) {
            eprintln!("pario hdf5: {}: {error}", self.name);
        }
    }
}
