//! Open files of this process: a tree that is opened twice is shared.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pario_container::{Hex, Place, PlaceEntry, Tree, TreeAccess, is_tree, place_of};

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
    /// Identity of the directory.
    key: String,
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

fn known(key: &str) -> Option<Arc<OpenTree>> {
    open_files().iter().filter_map(Weak::upgrade).find(|file| file.key == key)
}

fn register(name: &str, place: &dyn Place, tree: Tree) -> VolOutcome<Arc<OpenTree>> {
    let vanished = || Failure::with_errno(format!("{name} has vanished"), 2);
    let (key, _) = place.identity()?.ok_or_else(vanished)?;
    let writable = tree.is_writable();
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
    let (place, write) = (place_of(name)?, flags & ACC_RDWR != 0);
    let Some((key, kind)) = place.identity()? else {
        let text = format!("unable to open file: name = '{name}', No such file or directory (os error 2)");
        return Err(Failure::with_errno(text, 2));
    };
    if let Some(file) = known(&key) {
        if write && !file.writable {
            return Err(Failure::with_errno(format!("{name} is open read-only in this process"), 11));
        }
        return Ok(file);
    }
    if kind == PlaceEntry::File {
        return Err(Failure::with_errno(not_a_tree(&*place, name), 22));
    }
    let swmr = flags & (ACC_SWMR_READ | ACC_SWMR_WRITE) != 0;
    let access = TreeAccess { write, lock: locking() && !swmr };
    let tree = Tree::open(place.clone(), access)?;
    register(name, &*place, tree)
}

fn not_a_tree(place: &dyn Place, name: &str) -> String {
    let mut head = [0; 8];
    let read = place.open("", false).and_then(|file| file.read_at(0, &mut head));
    if read.is_ok() && head == *SIGNATURE {
        format!(
            "{name} is a native HDF5 file; unset HDF5_VOL_CONNECTOR to open it, or convert it with h5repack"
        )
    } else {
        format!("{name} is not an HDF5 tree of Pario: it is a file (file signature not found)")
    }
}

/// Creates a tree.
pub(crate) fn create(name: &str, flags: u32, properties: Hex) -> VolOutcome<Arc<OpenTree>> {
    let place = place_of(name)?;
    if place.identity()?.is_some_and(|(key, _)| known(&key).is_some()) {
        return Err(Failure::with_errno(format!("{name} is open in this process"), 11));
    }
    if let Some(kind) = place.kind("")? {
        if flags & ACC_TRUNC == 0 || flags & ACC_EXCL != 0 {
            return Err(Failure::with_errno(
                format!("unable to create file: name = '{name}', it exists"),
                17,
            ));
        }
        remove_old(name, kind)?;
    }
    let tree = Tree::create(place.clone(), locking(), properties)?;
    register(name, &*place, tree)
}

/// Removes a file or tree; other directories are refused.
fn remove_old(name: &str, kind: PlaceEntry) -> VolOutcome<()> {
    // A place of its own: its lock ends with the tree.
    let place = place_of(name)?;
    if kind != PlaceEntry::Directory {
        return Ok(place.remove_file("")?);
    }
    if !is_tree(&*place)? && !place.list("")?.is_empty() {
        return Err(Failure::with_errno(
            format!("{name} is a directory and not an HDF5 tree; it is left alone"),
            21,
        ));
    }
    if locking() {
        place.lock(true)?;
    }
    // Without this file it is no tree any more.
    place.remove_file(".@container")?;
    Ok(place.remove_tree("")?)
}

/// Whether a name is an HDF5 tree.
pub(crate) fn accessible(name: &str) -> VolOutcome<bool> {
    let place = place_of(name)?;
    let directory = place.identity()?.is_some_and(|(_, kind)| kind == PlaceEntry::Directory);
    Ok(directory && is_tree(&*place)?)
}

/// Deletes a tree.
pub(crate) fn delete(name: &str) -> VolOutcome<()> {
    if !accessible(name)? {
        return Err(Failure::with_errno(format!("{name} is not an HDF5 tree of Pario"), 2));
    }
    if place_of(name)?.identity()?.is_some_and(|(key, _)| known(&key).is_some()) {
        return Err(Failure::with_errno(format!("{name} is open in this process"), 11));
    }
    remove_old(name, PlaceEntry::Directory)
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
