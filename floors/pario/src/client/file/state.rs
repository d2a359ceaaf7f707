//! A file that is open in this process: the state shared by all its handles, composed of parts that own their lock and their methods.
//!
//! ```text
//!  OpenFile ─┬─ context   identity, layout, backing, handles        (no lock)
//!            ├─ lease     phase, recalls, observers                 FileLease
//!            ├─ locks     lock tokens kept by this process          FileLocks
//!            └─ data      what is kept under the lease:             length, unflushed, faults, loans, read_ahead
//! ```
//! Order of locks: lease ─► observers, and lease ─► loans (a new generation drops them). No other part is locked while the state of
//! another one is held; the session's locks (links, outbox) come after all of them.
//!
//! Always: one `OpenFile` per inode and session; the manager receives the first handle's open and the last handle's close.

use std::sync::{Arc, Weak};

use pario_core::{Fault, FileAttr, InodeId, Layout};
use pario_net::message::{At, NameReply, NameRequest, Phase, Want};
use pario_server::LocalServer;

use super::backing::{Backing, CacheRoute, Unleased};
use super::confirmed;
use super::context::FileContext;
use super::faults::Faults;
use super::lease::{FileLease, LeasedAccess};
use super::length::FileLength;
use super::loans::{LoanRequest, Loans};
use super::locks::FileLocks;
use super::read::ahead::ReadAhead;
use super::unflushed::Unflushed;
use crate::client::session::state::{Session, unexpected_reply};

/// Servers of a file with objects borrowed when it is opened.
const READY_SERVERS_MAX: u16 = 16;

/// See the module.
pub(crate) struct OpenFile {
    pub(in crate::client) context: Arc<FileContext>,
    pub(in crate::client) data: Arc<FileData>,
    pub(in crate::client) lease: FileLease,
    pub(in crate::client) locks: FileLocks,
}

/// What this process keeps of a file's data, valid under the file's lease.
pub(in crate::client) struct FileData {
    pub(in crate::client) length: FileLength,
    pub(in crate::client) faults: Arc<Faults>,
    pub(in crate::client) unflushed: Unflushed,
    pub(in crate::client) loans: Loans,
    pub(in crate::client) read_ahead: ReadAhead,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OpenFile").field(&self.context.describe()).finish()
    }
}

impl OpenFile {
    /// The shared state of a file just opened, with one more handle. `None`: another thread was closing the last handle, and the manager
    /// may have counted this open as part of that use. The close has finished: open again.
    pub(in crate::client) fn open_shared_state(
        session: &Arc<Session>,
        attr: &FileAttr,
        path: String,
        through: Option<CacheRoute>,
    ) -> Option<Arc<OpenFile>> {
        let mut files = session.files();
        if let Some(file) = files.get(&attr.inode).and_then(Weak::upgrade) {
            if file.context.add_handle() || file.revive() {
                return Some(file);
            }
            drop(files);
            file.lease.wait_closed();
            if file.revive() {
                return Some(file);
            }
            let mut files = session.files();
            let same = |found: &Weak<OpenFile>| std::ptr::eq(found.as_ptr(), Arc::as_ptr(&file));
            if files.get(&attr.inode).is_some_and(same) {
                files.remove(&attr.inode);
            }
            return None;
        }
        let layout = through.as_ref().map_or(attr.layout, |through| through.layout);
        let backing = through.map_or(Backing::Leased, Backing::from);
        let context = FileContext::new(session, attr.inode, layout, path, backing);
        let file = Arc::new(OpenFile::new(context, attr.size));
        files.insert(attr.inode, Arc::downgrade(&file));
        if files.len().is_multiple_of(256) {
            files.retain(|_, file| 0 < file.strong_count());
        }
        Some(file)
    }

    /// The shared state of a file on servers that grant no leases.
    pub(in crate::client) fn open_unleased(
        session: &Arc<Session>,
        inode: InodeId,
        layout: Layout,
        path: String,
        unleased: Unleased,
    ) -> Arc<OpenFile> {
        let mut files = session.files();
        if let Some(file) = files.get(&inode).and_then(Weak::upgrade) {
            return file;
        }
        let context = FileContext::new(session, inode, layout, path, Backing::Unleased(unleased));
        let file = Arc::new(OpenFile::new(context, 0));
        files.insert(inode, Arc::downgrade(&file));
        files.retain(|_, file| 0 < file.strong_count());
        file
    }

    fn new(context: FileContext, size: u64) -> OpenFile {
        let context = Arc::new(context);
        let faults = Arc::new(Faults::new(&context));
        let data = Arc::new(FileData {
            length: FileLength::new(size),
            unflushed: Unflushed::new(&context, &faults),
            faults,
            loans: Loans::new(&context),
            read_ahead: ReadAhead::new(&context),
        });
        OpenFile { lease: FileLease::new(&context, &data), locks: FileLocks::new(&context), context, data }
    }

    /// Prepares a file opened read-only: acquires the lease and the servers' descriptors, so that reading needs no request to a server.
    /// Not for files on more than [`READY_SERVERS_MAX`] servers, where most are not concerned.
    pub(in crate::client) fn prepare_reads(&self) {
        self.lease.acquire_early(Want::Read {});
        if READY_SERVERS_MAX < self.context.layout.count() {
            return;
        }
        // Without a lease no descriptor is requested.
        let Some(access) = self.lease.access_if_held(Want::Read {}) else { return };
        let wish = LoanRequest::for_reading(&access);
        // A recall of the lease must not wait for servers that lend.
        drop(access);
        self.data.loans.borrow_together(self.context.servers_in_order(), wish);
    }

    /// Prepares an empty file that the members of a group will write: the servers get the outbox. Not for files on more than
    /// [`READY_SERVERS_MAX`] servers, where most are not concerned. The lease is acquired at the first write: an idle write lease would be
    /// recalled by every stat.
    pub(in crate::client) fn prepare_writes(&self) {
        let context = &self.context;
        if context.backing.has_leases()
            && context.layout.count() <= READY_SERVERS_MAX
            && self.data.length.known() == 0
        {
            context.session.attach_servers(context.servers_in_order());
        }
    }

    /// The file's length; in the mixed phase other clients may have extended it, so the manager is asked if the answer matters.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub(in crate::client) fn size_for(&self, access: &LeasedAccess<'_>, end: u64) -> Result<u64, Fault> {
        let length = &self.data.length;
        let known = length.known();
        if access.phase != (Phase::Mixed {}) || end <= known {
            return Ok(known);
        }
        if !self.context.backing.has_leases() {
            return confirmed::measure(self);
        }
        let request = NameRequest::Stat { at: At::inode(self.context.inode), follow: false };
        match self.context.session.name_call(request)? {
            NameReply::Attr { attr } => {
                length.grow(attr.size);
                Ok(length.known())
            }
            other => Err(unexpected_reply(&pario_net::message::Reply::Name { reply: other })),
        }
    }

    /// The server in this process, for an access that fits one message: larger accesses keep several messages under way.
    pub(in crate::client) fn local_server_for(&self, bytes: u64) -> Result<Option<&LocalServer>, Fault> {
        let Some(near) = self.context.backing.local_server() else { return Ok(None) };
        let fits = bytes <= self.context.session.transfer_bytes(near.index())? as u64;
        Ok(fits.then_some(near))
    }
}
