//! Notices to the kernel that pages of a file are outdated.
//!
//! A notice waits in the kernel for pages that are being read or written. Never: sent by a thread that serves a request, or waited for
//! while a request for pages of the same file is under way: that request may wait for the lease that the notice delays. Always: ends
//! within [`WAIT_MAX`].

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pario::core::InodeId;

use super::encode;
use crate::semantics::PageKeeper;

/// The return of a lease waits for the kernel no longer than this.
const WAIT_MAX: Duration = Duration::from_secs(2);

thread_local! {
    static SERVES_REQUESTS: Cell<bool> = const { Cell::new(false) };
}

/// This thread serves requests from now on.
pub(super) fn mark_serving_thread() {
    SERVES_REQUESTS.set(true);
}

/// See the module.
#[derive(Debug)]
pub(super) struct PageNotices {
    queue: Sender<InodeId>,
    files: Mutex<HashMap<InodeId, PageTraffic>>,
    changed: Condvar,
}

/// Page traffic of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PageTraffic {
    /// Requests for its pages that are under way.
    requests: usize,
    /// Notices that are not carried out yet.
    notices: usize,
}

impl PageNotices {
    /// Starts the thread that sends notices.
    pub(super) fn start(device: File) -> io::Result<Arc<PageNotices>> {
        let (queue, notices) = channel();
        let keeper = Arc::new(PageNotices { queue, files: Mutex::default(), changed: Condvar::new() });
        let weak = Arc::downgrade(&keeper);
        let send = move || {
            send_notices(&device, &notices, |inode| {
                if let Some(keeper) = weak.upgrade() {
                    keeper.change(inode, |traffic| traffic.notices -= 1);
                }
            });
        };
        std::thread::Builder::new().name("pario-pages".into()).spawn(send)?;
        Ok(keeper)
    }

    /// A request for pages of a file begins.
    pub(super) fn begin_request(&self, inode: InodeId) {
        self.change(inode, |traffic| traffic.requests += 1);
    }

    /// It is answered.
    pub(super) fn end_request(&self, inode: InodeId) {
        self.change(inode, |traffic| traffic.requests -= 1);
    }

    fn files(&self) -> MutexGuard<'_, HashMap<InodeId, PageTraffic>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, inode: InodeId, change: impl FnOnce(&mut PageTraffic)) {
        let mut files = self.files();
        let traffic = files.entry(inode).or_default();
        change(traffic);
        if *traffic == PageTraffic::default() {
            files.remove(&inode);
        }
        self.changed.notify_all();
    }
}

impl PageKeeper for PageNotices {
    fn drop_pages(&self, inode: InodeId) {
        self.change(inode, |traffic| traffic.notices += 1);
        if self.queue.send(inode).is_err() {
            return self.change(inode, |traffic| traffic.notices -= 1);
        }
        if SERVES_REQUESTS.get() {
            return;
        }
        let is_quiet = |files: &mut HashMap<InodeId, PageTraffic>| {
            files.get(&inode).is_some_and(|traffic| 0 < traffic.notices && traffic.requests == 0)
        };
        let waited = self.changed.wait_timeout_while(self.files(), WAIT_MAX, is_quiet);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::warn!(%inode, "the kernel did not drop the pages of a mapped file in time");
        }
    }
}

fn send_notices(mut device: &File, notices: &Receiver<InodeId>, sent: impl Fn(InodeId)) {
    while let Ok(inode) = notices.recv() {
        // An inode that the kernel does not know has no pages; after an unmount there are none at all.
        if let Err(error) = device.write_all(&encode::drop_pages(inode)) {
            tracing::debug!(%error, %inode, "no pages to drop");
        }
        sent(inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices() -> (Arc<PageNotices>, File, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let keeper = PageNotices::start(File::create(&path).unwrap()).unwrap();
        (keeper, File::open(path).unwrap(), dir)
    }

    #[test]
    fn a_notice_is_waited_for() {
        let (keeper, device, _dir) = notices();
        keeper.drop_pages(InodeId(5));
        assert_eq!(device.metadata().unwrap().len(), 40);
        assert!(keeper.files().is_empty());
    }

    #[test]
    fn requests_for_pages_and_serving_threads_are_not_held_up() {
        let (keeper, _device, dir) = notices();
        // A notice that is never carried out.
        keeper.change(InodeId(5), |traffic| traffic.notices += 1);
        keeper.begin_request(InodeId(5));
        keeper.drop_pages(InodeId(5));
        keeper.end_request(InodeId(5));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                mark_serving_thread();
                keeper.drop_pages(InodeId(5));
            });
        });
        drop(dir);
    }
}
