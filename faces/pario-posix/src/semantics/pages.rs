//! Pages of files that the kernel keeps because a program has mapped them: they are dropped before the lease goes back under which they
//! were read.
//!
//! ```text
//!  page fault ─► read ─► the handle observes its file's lease ─► recall ─► pages are dropped ─► the lease goes back
//! ```
//! Always: a page that was read while the lease went back is dropped after it has reached the kernel.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use pario::LeaseObserver;
use pario::core::InodeId;

use super::FileSystem;
use super::error::PosixResult;
use super::files::MountedFile;

/// The kernel, as far as it keeps pages.
pub trait PageKeeper: Send + Sync + std::fmt::Debug {
    /// Drops all pages of a file. Returns when they are dropped, unless the caller serves a request, or one is under way that needs the
    /// pages or the lease.
    fn drop_pages(&self, inode: InodeId);
}

/// The keeper of a file system, once it is mounted.
pub(super) type Keeper = OnceLock<Arc<dyn PageKeeper>>;

/// Pages of one handle's file.
#[derive(Debug)]
pub(super) struct KeptPages {
    inode: InodeId,
    keeper: Arc<dyn PageKeeper>,
    may_exist: AtomicBool,
    /// Leases that went back.
    returns: AtomicU64,
}

impl LeaseObserver for KeptPages {
    fn before_return(&self) {
        self.returns.fetch_add(1, Ordering::AcqRel);
        if self.may_exist.swap(false, Ordering::AcqRel) {
            self.keeper.drop_pages(self.inode);
        }
    }

    fn unlinked(&self) {}
}

/// An access for the kernel's page cache.
#[derive(Debug)]
pub struct PageAccess {
    handle: Arc<MountedFile>,
    pages: Arc<KeptPages>,
    returns: u64,
}

impl PageAccess {
    /// The pages have reached the kernel, or have come from it: drops them if no lease covers them.
    pub fn end(self) {
        let same_lease = self.pages.returns.load(Ordering::Acquire) == self.returns;
        if !same_lease || !self.handle.file().keeps_reads() {
            self.pages.keeper.drop_pages(self.pages.inode);
        }
    }
}

impl FileSystem {
    /// Sets the kernel side of the page cache.
    pub fn set_page_keeper(&self, keeper: Arc<dyn PageKeeper>) {
        // A second one would be a second mount of the same value, which the mount rules out.
        let _ = self.keeper.set(keeper);
    }

    /// Begins an access for the kernel's page cache: from now on the lease of the handle's file is observed. `None` without a keeper.
    pub fn begin_page_access(&self, handle: u64) -> PosixResult<Option<PageAccess>> {
        let Some(keeper) = self.keeper.get() else { return Ok(None) };
        let handle = self.files.get(handle)?;
        let pages = Arc::clone(handle.pages.get_or_init(|| {
            let pages = KeptPages {
                inode: handle.inode(),
                keeper: Arc::clone(keeper),
                may_exist: AtomicBool::new(false),
                returns: AtomicU64::new(0),
            };
            let pages = Arc::new(pages);
            let observer: Weak<KeptPages> = Arc::downgrade(&pages);
            handle.file().add_observer(observer);
            pages
        }));
        let returns = pages.returns.load(Ordering::Acquire);
        pages.may_exist.store(true, Ordering::Release);
        Ok(Some(PageAccess { handle, pages, returns }))
    }
}
