//! Meaning of descriptors in a model: a descriptor is that of an empty memory file, and its inode names a loom object.
//!
//! Always: an entry is removed with its creator, so that no entry outlives its model.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::MemfdFlags;

type Entries = HashMap<u64, Arc<dyn Any + Send + Sync>>;

static ENTRIES: Mutex<Option<Entries>> = Mutex::new(None);

fn entries() -> MutexGuard<'static, Option<Entries>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(fd: &impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_ino)
}

/// Removes an entry when its creator is dropped.
#[derive(Debug)]
pub(crate) struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        let gone = entries().as_mut().and_then(|all| all.remove(&self.0));
        drop(gone);
    }
}

/// A descriptor that stands for `what`.
pub(crate) fn name<T: Any + Send + Sync>(what: Arc<T>) -> io::Result<(Named, OwnedFd)> {
    let fd = rustix::fs::memfd_create("pario-loom", MemfdFlags::CLOEXEC)?;
    let number = number(&fd)?;
    entries().get_or_insert_with(HashMap::new).insert(number, what);
    Ok((Named(number), fd))
}

/// What a descriptor stands for.
pub(crate) fn find<T: Any + Send + Sync>(fd: &impl AsFd) -> io::Result<Arc<T>> {
    let number = number(fd)?;
    let found = entries().as_ref().and_then(|all| all.get(&number).cloned());
    found.and_then(|what| what.downcast().ok()).ok_or_else(|| io::ErrorKind::NotFound.into())
}
