//! [`TreePath`]: a path together with its tree.
//!
//! Never: follows a symbolic link unless the method says so. Always: an error names the path.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::limits::LINKS_FOLLOWED_MAX;
use pario_core::{AttrChange, FileKind};

use super::tree::{FileStat, FileTree, LinkPolicy, TreeEntries, TreeId};
use super::{LocalTree, TransferError, TransferResult};
use crate::handle::Partition;

/// A file or directory of a tree. `Display` shows it as users write it.
#[derive(Clone, Debug)]
pub struct TreePath {
    /// The tree.
    pub tree: Arc<dyn FileTree>,
    /// The path there.
    pub path: PathBuf,
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tree.location(&self.path).display())
    }
}

impl TreePath {
    /// A path of this machine.
    pub fn local(path: impl Into<PathBuf>) -> TreePath {
        TreePath { tree: Arc::new(LocalTree), path: path.into() }
    }

    /// A path of a partition.
    pub fn in_partition(partition: &Partition, path: impl Into<PathBuf>) -> TreePath {
        TreePath { tree: Arc::new(partition.clone()), path: path.into() }
    }

    /// The root of a partition.
    #[must_use]
    pub fn root(partition: &Partition) -> TreePath {
        TreePath::in_partition(partition, "/")
    }

    /// Whether it is a path of this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.tree.id() == TreeId::Local
    }

    /// The path as users write it, byte for byte.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.tree.location(&self.path).as_bytes().to_vec()
    }

    /// The same directory as the target of a copy: no symbolic link below it is followed.
    pub fn as_target(&self) -> TransferResult<TreePath> {
        let confined = self.tree.confined(&self.path)?;
        Ok(TreePath { tree: confined.unwrap_or_else(|| Arc::clone(&self.tree)), path: self.path.clone() })
    }

    /// The parent directories.
    fn above(&self) -> impl Iterator<Item = TreePath> + '_ {
        // The parents of a confined directory are outside its tree.
        let local = || -> Arc<dyn FileTree> { Arc::new(LocalTree) };
        let tree = if self.is_local() { local() } else { Arc::clone(&self.tree) };
        let paths = self.path.ancestors().filter(|path| !path.as_os_str().is_empty());
        paths.skip(1).map(move |path| TreePath { tree: Arc::clone(&tree), path: path.to_owned() })
    }

    /// The path and its parents.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = TreePath> + '_ {
        std::iter::once(self.clone()).chain(self.above())
    }

    /// Whether it ends with a slash.
    #[must_use]
    pub fn has_slash(&self) -> bool {
        self.path.as_os_str().as_bytes().ends_with(b"/")
    }

    /// The entry `name` of this directory.
    #[must_use]
    pub fn child(&self, name: &OsStr) -> TreePath {
        TreePath { tree: Arc::clone(&self.tree), path: self.path.join(name) }
    }

    /// The entry `name` of its parent directory.
    #[must_use]
    pub fn sibling(&self, name: &OsStr) -> TreePath {
        TreePath { tree: Arc::clone(&self.tree), path: self.path.with_file_name(name) }
    }

    /// Its last name; a root, `.` and `..` have none.
    #[must_use]
    pub fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// Whether both are in the same tree.
    #[must_use]
    pub fn shares_tree(&self, other: &TreePath) -> bool {
        self.tree.id() == other.tree.id()
    }

    /// Attributes; `None` if there is no such file.
    pub fn stat_if_exists(&self, links: LinkPolicy) -> TransferResult<Option<FileStat>> {
        self.tree.stat(&self.path, links)
    }

    /// Attributes of a file that must exist.
    pub fn stat(&self, links: LinkPolicy) -> TransferResult<FileStat> {
        self.stat_if_exists(links)?
            .ok_or_else(|| TransferError::Missing { path: self.to_string(), parent: None })
    }

    /// Whether it is a directory, or a link to one.
    pub fn is_directory(&self) -> TransferResult<bool> {
        Ok(self.stat_if_exists(LinkPolicy::Follow)?.is_some_and(|stat| stat.is_directory()))
    }

    /// The entries of a directory.
    pub fn read_dir(&self) -> TransferResult<TreeEntries> {
        self.tree.read_dir(&self.path)
    }

    /// Makes a directory, unless it exists.
    pub fn create_dir(&self) -> TransferResult {
        match self.stat_if_exists(LinkPolicy::Follow)?.map(|stat| stat.kind) {
            Some(Some(FileKind::Directory)) => Ok(()),
            Some(Some(FileKind::Symlink)) => Err(TransferError::link_in_target(self)),
            Some(_) => Err(TransferError::refused(format!("{self}: not a directory"))),
            None => self.tree.create_dir(&self.path).map_err(|error| self.blame_parent(error)),
        }
    }

    /// An error of creating a file here: names the missing parent, if that is the cause.
    pub(super) fn blame_parent(&self, error: TransferError) -> TransferError {
        let missing =
            self.above().take_while(|dir| matches!(dir.stat_if_exists(LinkPolicy::Follow), Ok(None))).last();
        match missing {
            Some(dir) => TransferError::Missing { path: self.to_string(), parent: Some(dir.to_string()) },
            None => error,
        }
    }

    /// Makes a directory and those above it that are missing.
    pub fn create_dir_all(&self) -> TransferResult {
        self.tree.create_dir_all(&self.path)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self) -> TransferResult<PathBuf> {
        self.tree.read_link(&self.path)
    }

    /// Makes a symbolic link to `target` here.
    pub fn symlink(&self, target: &Path) -> TransferResult {
        self.tree.symlink(target, &self.path)
    }

    /// Renames within the tree, replacing a file that exists.
    pub fn rename(&self, to: &TreePath) -> TransferResult {
        self.tree.rename(&self.path, &to.path)
    }

    /// Renames within the tree; fails if the new name exists.
    pub fn rename_new(&self, to: &TreePath) -> TransferResult {
        self.tree.rename_new(&self.path, &to.path)
    }

    /// Removes a file or symbolic link.
    pub fn remove_file(&self) -> TransferResult {
        self.tree.remove_file(&self.path)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self) -> TransferResult {
        self.tree.remove_dir(&self.path)
    }

    /// Changes attributes.
    pub fn set_attr(&self, change: AttrChange, links: LinkPolicy) -> TransferResult {
        self.tree.set_attr(&self.path, change, links)
    }

    /// Sets permission bits.
    pub fn set_mode(&self, mode: u32) -> TransferResult {
        self.set_attr(AttrChange { mode: Some(mode), ..AttrChange::default() }, LinkPolicy::Follow)
    }

    /// The file that a chain of symbolic links ends at, whether it exists or not; a confined tree refuses links.
    pub fn behind_links(&self) -> TransferResult<TreePath> {
        let mut path = self.clone();
        for _ in 0..LINKS_FOLLOWED_MAX {
            if !path.stat_if_exists(LinkPolicy::Stay)?.is_some_and(|stat| stat.is_link()) {
                return Ok(path);
            }
            if !path.tree.follows_links() {
                return Err(TransferError::link_in_target(self));
            }
            let target = path.read_link()?;
            // An absolute target replaces the whole path when joined.
            let dir = path.path.parent().map(Path::to_owned).unwrap_or_default();
            path = TreePath { tree: path.tree, path: dir.join(target) };
        }
        Err(TransferError::refused(format!("{self}: too many levels of symbolic links")))
    }
}
