//! What HDF5 holds of an object: a pointer to a [`Handle`].
//!
//! Always: a handle that HDF5 holds is in the set of live ones, so that foreign pointers are recognised.

use std::collections::HashSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use pario_container::{Kind, LinkName, ROOT_ID, Tree};

use super::abi::{ID_ATTR, ID_DATASET, ID_DATATYPE, ID_FILE, ID_GROUP};
use super::failure::{Failure, VolOutcome};
use super::registry::OpenTree;

/// What a handle stands for.
#[derive(Clone, Debug)]
pub(crate) enum HandleTarget {
    /// A file, and its root group, with the program's access list (0 for none).
    File { fapl: i64 },
    /// A group, dataset or committed type.
    Object(u64),
    /// An attribute of an object.
    Attribute { owner: u64, name: LinkName },
}

/// An open object of the program.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) slot: usize,
    pub(crate) file: Arc<OpenTree>,
    pub(crate) target: HandleTarget,
    /// The path by which it was opened.
    pub(crate) path: LinkName,
    /// Flags of the file at opening.
    pub(crate) flags: u32,
    /// Number of the opening of the file through which the object was reached.
    pub(crate) opening: u64,
}

static LIVE: LazyLock<Mutex<HashSet<usize>>> = LazyLock::new(|| Mutex::new(HashSet::new()));

fn live() -> MutexGuard<'static, HashSet<usize>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// A handle of an object, perhaps of another file.
    pub(crate) fn of_object(
        near: &Handle,
        file: &Arc<OpenTree>,
        id: u64,
        path: LinkName,
    ) -> VolOutcome<Handle> {
        file.tree()?.hold(id)?;
        // A file behind an external link has its own mode.
        let own = if file.writable { super::abi::ACC_RDWR } else { 0 };
        let flags = if Arc::ptr_eq(file, &near.file) { near.flags } else { own };
        let (target, opening) = (HandleTarget::Object(id), near.opening);
        Ok(Handle { slot: near.slot, file: file.clone(), target, path, flags, opening })
    }

    /// Hands the handle to HDF5.
    pub(crate) fn into_raw(self) -> *mut c_void {
        let pointer = Box::into_raw(Box::new(self)).cast::<c_void>();
        live().insert(pointer as usize);
        pointer
    }

    /// The handle behind a pointer of HDF5.
    pub(crate) fn borrow<'a>(pointer: *const c_void) -> VolOutcome<&'a Handle> {
        if !live().contains(&(pointer as usize)) {
            return Err(Failure::new("an object of another connector, or one that is closed"));
        }
        // SAFETY: the pointer came from `into_raw` and was not taken back; HDF5 serialises its calls.
        Ok(unsafe { &*pointer.cast::<Handle>() })
    }

    /// Takes the handle back from HDF5.
    pub(crate) fn take(pointer: *mut c_void) -> VolOutcome<Box<Handle>> {
        if !live().remove(&(pointer as usize)) {
            return Err(Failure::new("an object of another connector, or one that is closed"));
        }
        // SAFETY: the pointer came from `into_raw` and was in the set, so that this happens once.
        Ok(unsafe { Box::from_raw(pointer.cast::<Handle>()) })
    }

    /// The slot of a handle; that of no handle is the first, which exists when a callback runs.
    pub(crate) fn slot_of(pointer: *const c_void) -> usize {
        Handle::borrow(pointer).map_or(0, |handle| handle.slot)
    }

    /// The object: the root group of a file, the owner of an attribute.
    pub(crate) fn object(&self) -> u64 {
        match &self.target {
            HandleTarget::File { .. } => ROOT_ID,
            HandleTarget::Object(id) => *id,
            HandleTarget::Attribute { owner, .. } => *owner,
        }
    }

    pub(crate) fn attribute(&self) -> VolOutcome<(u64, &LinkName)> {
        match &self.target {
            HandleTarget::Attribute { owner, name } => Ok((*owner, name)),
            HandleTarget::File { .. } | HandleTarget::Object(_) => {
                Err(Failure::new("an attribute is needed"))
            }
        }
    }

    pub(crate) fn tree(&self) -> VolOutcome<TreeGuard<'_>> {
        self.file.tree()
    }

    /// `H5I_type_t` of the handle.
    pub(crate) fn id_type(&self) -> VolOutcome<i32> {
        match &self.target {
            HandleTarget::File { .. } => Ok(ID_FILE),
            HandleTarget::Attribute { .. } => Ok(ID_ATTR),
            HandleTarget::Object(id) => Ok(id_type(self.tree()?.header(*id)?.kind())),
        }
    }

    /// Ends the use of the object.
    pub(crate) fn close(self: Box<Handle>) -> VolOutcome<()> {
        let id = self.object();
        let mut released = Ok(());
        if let HandleTarget::File { fapl } = self.target {
            if fapl != 0 {
                // SAFETY: the list is a copy that this handle owns.
                unsafe { (super::library::of_slot(self.slot).f.H5Pclose)(fapl) };
            }
        } else {
            released = self.tree()?.release(id);
        }
        // The handle ends in any case; a second close of it is refused.
        self.file.clone().drop_handle(self)?;
        Ok(released?)
    }
}

static OPENINGS: AtomicU64 = AtomicU64::new(1);
/// Handles of files that the program holds, by opening.
static FILES: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<(u64, usize)>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number for a new opening of a file.
pub(crate) fn new_opening() -> u64 {
    OPENINGS.fetch_add(1, Ordering::Relaxed)
}

/// The program has the handle of an opening.
pub(crate) fn file_opened(opening: u64, pointer: *mut c_void) {
    files().push((opening, pointer as usize));
}

/// The program has closed the handle of a file.
pub(crate) fn file_closed(pointer: *mut c_void) {
    files().retain(|(_, known)| *known != pointer as usize);
}

/// The handle that the program has of an opening.
pub(crate) fn file_of(opening: u64) -> Option<*mut c_void> {
    files().iter().find(|(known, _)| *known == opening).map(|(_, pointer)| *pointer as *mut c_void)
}

/// `H5I_type_t` of a kind of object.
pub(crate) fn id_type(kind: Kind) -> i32 {
    match kind {
        Kind::Group => ID_GROUP,
        Kind::Dataset => ID_DATASET,
        Kind::Type => ID_DATATYPE,
    }
}

/// The tree of an open file, locked.
#[derive(Debug)]
pub(crate) struct TreeGuard<'a>(pub(crate) MutexGuard<'a, Option<Tree>>);

impl std::ops::Deref for TreeGuard<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.0.as_ref().expect("the tree is there until the last handle is closed")
    }
}

impl std::ops::DerefMut for TreeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Tree {
        self.0.as_mut().expect("the tree is there until the last handle is closed")
    }
}
