//! A path on the command line: a tree, and an object in it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_container::{
    BlobId, DirectoryPlace, Found, LinkTarget, ROOT_ID, Tree, TreeAccess, TreeError, is_tree,
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

/// Splits a path into the tree and the path in it.
fn split(path: &Path) -> CliResult<(PathBuf, Vec<u8>)> {
    for dir in path.ancestors() {
        let place = DirectoryPlace::new(if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
        if dir.is_dir() && is_tree(&place).map_err(|error| failed(&error))? {
            let inside = path.strip_prefix(dir).unwrap_or(Path::new(""));
            return Ok((dir.to_path_buf(), inside.as_os_str().as_bytes().to_vec()));
        }
    }
    let text = format!("{}: not in an HDF5 tree of Pario", path.display());
    Err(CliError::with_cure(text, "name a directory that has a file .@container, or an object in it"))
}

/// Opens the object at a path, for reading.
pub(super) fn open(path: &Path) -> CliResult<ShownObject> {
    let (dir, inside) = split(path)?;
    let access = TreeAccess { write: false, lock: true };
    let mut tree = Tree::open(Arc::new(DirectoryPlace::new(dir)), access).map_err(|error| failed(&error))?;
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
