//! READDIR and READDIRPLUS.
//!
//! Always: an entry that exists from the first to the last call of a listing is in it once, also if other names come and go or the export is
//! restarted meanwhile.

use pario::core::limits::LIST_PAGE_ENTRIES;
use pario::core::{DirEntry, FileAttr, InodeId};
use rustix::io::Errno;

use super::attributes::write_attributes;
use super::cookies::{PARENT, SELF, cookie_of};
use super::exported::Exported;
use super::permission::{self, READ};
use super::rpc::Credential;
use super::status::{NFS_OK, NfsResult, NfsStatus};
use super::xdr::{Decoded, XdrReader, XdrWriter};
use super::{DATA_BYTES_MAX, handle};
use crate::semantics::ScanLengths;

/// Bytes behind the entries: no further entry, and whether this is the end.
const END_BYTES: usize = 8;
/// About the bytes of an entry, without and with attributes: a request to the manager asks for what fits into the reply.
const ENTRY_BYTES: usize = 40;
const ENTRY_PLUS_BYTES: usize = 176;
/// Entries of one request to the manager when the name of a cookie is searched.
const SEARCH_ENTRIES: usize = 1024;

/// Arguments of both procedures.
struct ListingCall<'a> {
    dir: &'a [u8],
    cookie: u64,
    /// Bytes of the reply.
    count: u32,
    has_attributes: bool,
}

/// READDIR (16)
pub(super) fn read_dir(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (dir, cookie) = (handle::read(args)?, args.u64()?);
    let (_verifier, count) = (args.u64()?, args.u32()?);
    list(export, user, &ListingCall { dir, cookie, count, has_attributes: false }, out);
    Ok(())
}

/// READDIRPLUS (17)
pub(super) fn read_dir_plus(
    export: &Exported,
    user: &Credential,
    args: &mut XdrReader<'_>,
    out: &mut XdrWriter,
) -> Decoded<()> {
    let (dir, cookie) = (handle::read(args)?, args.u64()?);
    let (_verifier, _names_bytes, count) = (args.u64()?, args.u32()?, args.u32()?);
    list(export, user, &ListingCall { dir, cookie, count, has_attributes: true }, out);
    Ok(())
}

fn list(export: &Exported, user: &Credential, call: &ListingCall<'_>, out: &mut XdrWriter) {
    let begin = out.len();
    let attr = export.inode(call.dir).and_then(|dir| export.directory(dir));
    let listed = attr.and_then(|attr| {
        permission::require(&attr, user, READ)?;
        out.u32(NFS_OK);
        export.write_after(out, Some(&attr));
        // Cookies need no verifier.
        out.u64(0);
        let bytes = usize::try_from(call.count).unwrap_or(0).min(DATA_BYTES_MAX);
        let limit = (begin + bytes).saturating_sub(END_BYTES);
        write_entries(Page { export, call, dir: attr.inode, out, limit, entries: 0, last: None })
    });
    if let Err(status) = listed {
        out.truncate(begin);
        out.u32(status.code());
        export.write_after(out, attr.ok().as_ref());
    }
}

/// A listing under way.
struct Page<'a> {
    export: &'a Exported,
    call: &'a ListingCall<'a>,
    dir: InodeId,
    out: &'a mut XdrWriter,
    /// Length that the reply must not pass.
    limit: usize,
    entries: usize,
    last: Option<Vec<u8>>,
}

fn write_entries(mut page: Page<'_>) -> NfsResult<()> {
    let is_complete = page.fill()?;
    if page.entries == 0 && !is_complete {
        return Err(NfsStatus::TooSmall);
    }
    if let Some(name) = page.last {
        page.export.cookies.keep(page.dir, &name);
    }
    page.out.bool(false);
    page.out.bool(is_complete);
    Ok(())
}

impl Page<'_> {
    /// Writes entries until the reply is full (false) or the directory ends (true).
    fn fill(&mut self) -> NfsResult<bool> {
        let dir = self.dir;
        if self.call.cookie < SELF && !self.push_own(b".", dir, SELF) {
            return Ok(false);
        }
        if self.call.cookie < PARENT {
            let parent = if dir == InodeId::ROOT { dir } else { self.parent()? };
            if !self.push_own(b"..", parent, PARENT) {
                return Ok(false);
            }
        }
        let mut after = if self.call.cookie <= PARENT { None } else { Some(self.start()?) };
        // With current lengths, since a client keeps attributes.
        let lengths = if self.call.has_attributes { ScanLengths::Current } else { ScanLengths::Known };
        loop {
            let entry_bytes = if self.call.has_attributes { ENTRY_PLUS_BYTES } else { ENTRY_BYTES };
            let wanted = self.limit.saturating_sub(self.out.len()) / entry_bytes + 1;
            let (entries, more) = self.scan(after.take(), wanted, lengths)?;
            let Some(last) = entries.last() else { return Ok(true) };
            after = Some(last.name.clone());
            for entry in &entries {
                let cookie = cookie_of(&entry.name);
                if !self.push(&entry.name, entry.attr.inode, cookie, Some(&entry.attr)) {
                    return Ok(false);
                }
                self.last = Some(entry.name.clone());
            }
            if !more {
                return Ok(true);
            }
        }
    }

    fn parent(&self) -> NfsResult<InodeId> {
        Ok(self.export.system.lookup(self.dir, b"..")?.inode)
    }

    /// A directory that was removed meanwhile has no entries.
    fn scan(
        &self,
        after: Option<Vec<u8>>,
        wanted: usize,
        lengths: ScanLengths,
    ) -> NfsResult<(Vec<DirEntry>, bool)> {
        let limit = u32::try_from(wanted).unwrap_or(u32::MAX).min(LIST_PAGE_ENTRIES);
        match self.export.system.scan(self.dir, after, limit, lengths) {
            Err(Errno::STALE | Errno::NOENT) => Ok((Vec::new(), false)),
            scanned => Ok(scanned?),
        }
    }

    /// The name of the cookie that the client goes on from.
    fn start(&self) -> NfsResult<Vec<u8>> {
        let cookie = self.call.cookie;
        if let Some(name) = self.export.cookies.find(self.dir, cookie) {
            return Ok(name);
        }
        let mut after = None;
        loop {
            let (entries, more) = self.scan(after.take(), SEARCH_ENTRIES, ScanLengths::Known)?;
            if let Some(found) = entries.iter().find(|entry| cookie_of(&entry.name) == cookie) {
                return Ok(found.name.clone());
            }
            after = entries.into_iter().next_back().map(|entry| entry.name);
            if !more || after.is_none() {
                return Err(NfsStatus::BadCookie);
            }
        }
    }

    fn push_own(&mut self, name: &[u8], inode: InodeId, cookie: u64) -> bool {
        let attr = if self.call.has_attributes { self.export.system.lookup(inode, b"").ok() } else { None };
        self.push(name, inode, cookie, attr.as_ref())
    }

    /// Writes one entry, unless the reply would become too long.
    fn push(&mut self, name: &[u8], inode: InodeId, cookie: u64, attr: Option<&FileAttr>) -> bool {
        let (begin, out) = (self.out.len(), &mut *self.out);
        out.bool(true);
        out.u64(inode.0);
        out.opaque(name);
        out.u64(cookie);
        if self.call.has_attributes {
            // An inode that was removed meanwhile has neither attributes nor a handle.
            out.bool(attr.is_some());
            if let Some(attr) = attr {
                write_attributes(out, self.export.partition, attr);
            }
            out.bool(attr.is_some());
            if attr.is_some() {
                self.export.write_handle(out, inode);
            }
        }
        if self.limit < out.len() {
            out.truncate(begin);
            return false;
        }
        self.entries += 1;
        true
    }
}
