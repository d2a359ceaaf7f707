//! A partition as a [`FileTree`].

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{AttrChange, Code};
use pario_net::message::{At, NameRequest};

use super::tree::{
    Durability, FileStat, FileTree, LinkPolicy, ReadFile, TreeEntries, TreeEntry, TreeId, WriteFile,
};
use super::{PIECE_BYTES, TransferError, TransferResult};
use crate::client::File;
use crate::error::{Error, Result};
use crate::handle::Partition;

impl Partition {
    pub(crate) fn path_error(&self, path: &Path) -> impl Fn(Error) -> TransferError + Clone + use<> {
        let path = self.location(path).to_string_lossy().into_owned();
        move |error| TransferError::Partition { path: path.clone(), error }
    }
}

impl FileTree for Partition {
    fn id(&self) -> TreeId {
        TreeId::Partition(self.identity())
    }

    fn location(&self, path: &Path) -> OsString {
        let slash = if path.is_absolute() { "" } else { "/" };
        let mut location = OsString::from(format!("pario://{}{slash}", self.name()));
        location.push(path);
        location
    }

    fn stat(&self, path: &Path, links: LinkPolicy) -> TransferResult<Option<FileStat>> {
        let found = match links {
            LinkPolicy::Follow => self.metadata(path),
            LinkPolicy::Stay => self.symlink_metadata(path),
        };
        match found {
            Ok(attr) => Ok(Some(attr.into())),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(self.path_error(path)(error)),
        }
    }

    fn read_dir(&self, path: &Path) -> TransferResult<TreeEntries> {
        let failed = self.path_error(path);
        let entries = Partition::read_dir(self, path).map_err(&failed)?;
        Ok(Box::new(entries.map(move |entry| {
            let entry = entry.map_err(&failed)?;
            Ok(TreeEntry { name: OsString::from_vec(entry.name), stat: entry.attr.into() })
        })))
    }

    fn open(&self, path: &Path) -> TransferResult<Box<dyn ReadFile>> {
        let file = Partition::open(self, path).map_err(self.path_error(path))?;
        Ok(Box::new(PartitionReader { file, path: self.location(path) }))
    }

    fn create_new(&self, path: &Path) -> TransferResult<Box<dyn WriteFile>> {
        let options = self.options().read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(self.path_error(path))?;
        Ok(Box::new(PartitionWriter { file: Mutex::new(Some(Arc::new(file))), path: self.location(path) }))
    }

    fn create_dir(&self, path: &Path) -> TransferResult {
        Partition::create_dir(self, path).map_err(self.path_error(path))
    }

    fn create_dir_all(&self, path: &Path) -> TransferResult {
        Partition::create_dir_all(self, path).map_err(self.path_error(path))
    }

    fn symlink(&self, target: &Path, path: &Path) -> TransferResult {
        Partition::symlink(self, target, path).map_err(self.path_error(path))
    }

    fn read_link(&self, path: &Path) -> TransferResult<PathBuf> {
        Partition::read_link(self, path).map_err(self.path_error(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> TransferResult {
        Partition::rename(self, from, to).map_err(self.path_error(to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> TransferResult {
        self.mount_handle().rename_new(from, to).map_err(self.path_error(to))
    }

    fn remove_file(&self, path: &Path) -> TransferResult {
        Partition::remove_file(self, path).map_err(self.path_error(path))
    }

    fn remove_dir(&self, path: &Path) -> TransferResult {
        Partition::remove_dir(self, path).map_err(self.path_error(path))
    }

    fn set_attr(&self, path: &Path, change: AttrChange, links: LinkPolicy) -> TransferResult {
        let set = match links {
            LinkPolicy::Follow => Partition::set_attr(self, path, change).map(drop),
            LinkPolicy::Stay => {
                let at = At::root(path.as_os_str().as_bytes());
                let change = AttrChange { mode: None, ..change };
                let request = NameRequest::SetAttr { at, follow: false, change };
                self.mount_handle().name_call(request).map(drop).map_err(Error::from)
            }
        };
        set.map_err(self.path_error(path))
    }
}

/// Adds the file to an error.
fn named<T>(path: &OsStr, done: Result<T>) -> TransferResult<T> {
    done.map_err(|error| TransferError::Partition { path: path.to_string_lossy().into_owned(), error })
}

/// A file open for reading.
#[derive(Debug)]
struct PartitionReader {
    file: File,
    path: OsString,
}

impl ReadFile for PartitionReader {
    fn length(&self) -> TransferResult<u64> {
        named(&self.path, self.file.len())
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> TransferResult<usize> {
        named(&self.path, self.file.read_at(offset, target))
    }

    fn data_in(&self, range: Range<u64>) -> TransferResult<Vec<Range<u64>>> {
        // One read costs less than a query for holes.
        if range.end - range.start <= PIECE_BYTES {
            return Ok(vec![range]);
        }
        named(&self.path, self.file.data_ranges(range))
    }

    /// A server may not know its holes.
    fn may_be_zeros(&self) -> bool {
        true
    }
}

/// A file open for writing.
#[derive(Debug)]
struct PartitionWriter {
    /// `None` once closed.
    file: Mutex<Option<Arc<File>>>,
    path: OsString,
}

impl PartitionWriter {
    fn opened(&self) -> TransferResult<Arc<File>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed =
            || TransferError::refused(format!("{}: written after it was closed", self.path.display()));
        file.ok_or_else(closed)
    }

    fn close(&self) -> Result<()> {
        let last = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.and_then(Arc::into_inner).map_or(Ok(()), File::close)
    }
}

impl WriteFile for PartitionWriter {
    fn write_at(&self, offset: u64, data: &[u8]) -> TransferResult {
        named(&self.path, self.opened()?.write_at(offset, data))
    }

    fn finish(&self, bytes: u64, durability: Durability) -> TransferResult {
        let file = self.opened()?;
        if named(&self.path, file.len())? < bytes {
            named(&self.path, file.set_len(bytes))?;
        }
        if durability == Durability::Stable {
            named(&self.path, file.sync())?;
        }
        drop(file);
        named(&self.path, self.close())
    }

    fn abandon(&self) {
        if let Err(error) = self.close() {
            tracing::info!(%error, "closing a file that is given up");
        }
    }
}
