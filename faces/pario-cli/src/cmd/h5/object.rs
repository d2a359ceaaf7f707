//! A path on the command line: a tree, and an object in it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use pario_container::{
    BlobId, DirectoryPlace, Found, LinkTarget, Place, PlaceEntry, ROOT_ID, SCHEME, Tree, TreeAccess,
    TreeError, is_tree, place_of,
};

use crate::error::{CliError, CliResult};

/// Bytes of a variable-length element before its blob id.
const COUNT: usize = 4;

/// An open tree and an object of it.
pub(super) struct ShownObject {
    pub(super) tree: Tree,
    pub(super) id: u64,
}

/// An error of a tree as the command prints it.
pub(super) fn failed(error: &TreeError) -> CliError {
    CliError::failed(error)
}

/// The place of a tree on the command line.
pub(super) fn place(path: &Path) -> CliResult<Arc<dyn Place>> {
    let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match name.to_str() {
        Some(text) => place_of(text).map_err(|error| failed(&error)),
        None => Ok(Arc::new(DirectoryPlace::new(name))),
    }
}

/// Splits a path into the tree and the path in it.
fn split(path: &Path) -> CliResult<(Arc<dyn Place>, Vec<u8>)> {
    // `pario://NAME` itself is no tree.
    let shortest = match path.as_os_str().as_bytes() {
        name if name.starts_with(b"pario:///") => 2,
        name if name.starts_with(SCHEME.as_bytes()) => 3,
        _ => 0,
    };
    for dir in path.ancestors().filter(|dir| dir.components().count() >= shortest) {
        let place = place(dir)?;
        let kind = place.identity().map_err(|error| failed(&error))?;
        if kind.is_some_and(|(_, kind)| kind == PlaceEntry::Directory)
            && is_tree(&*place).map_err(|error| failed(&error))?
        {
            let inside = path.strip_prefix(dir).unwrap_or(Path::new(""));
            return Ok((place, inside.as_os_str().as_bytes().to_vec()));
        }
    }
    let text = format!("{}: not in an HDF5 tree of Pario", path.display());
    Err(CliError::with_cure(text, "name a directory that has a file .@container, or an object in it"))
}

/// Opens the object at a path, for reading.
pub(super) fn open(path: &Path) -> CliResult<ShownObject> {
    let (place, inside) = split(path)?;
    let access = TreeAccess { write: false, lock: true };
    let mut tree = Tree::open(place, access).map_err(|error| failed(&error))?;
    match tree.find(ROOT_ID, &inside).map_err(|error| failed(&error))? {
        Found::Object(id) => Ok(ShownObject { tree, id }),
        Found::External { file, path: target } => {
            let text = format!("{}: leads to {target} in {file}", path.display());
            Err(CliError::with_cure(text, "name that file instead"))
        }
    }
}

/// The bytes of a variable-length element.
pub(super) fn blob(tree: &mut Tree, id: u64, element: &[u8]) -> Option<Vec<u8>> {
    let name: [u8; BlobId::SIZE] = element.get(COUNT..COUNT + BlobId::SIZE)?.try_into().ok()?;
    let name = BlobId::parse(&name);
    if name.is_null() { Some(Vec::new()) } else { tree.blob(id, name).ok() }
}

/// What a link leads to, in words.
pub(super) fn target_words(target: &LinkTarget) -> Option<String> {
    match target {
        LinkTarget::Hard { .. } => None,
        LinkTarget::Soft(path) => Some(format!("-> {path}")),
        LinkTarget::External { file, path } => Some(format!("-> {path} in {file}")),
        LinkTarget::User { class, .. } => Some(format!("user-defined link of class {class}")),
    }
}
