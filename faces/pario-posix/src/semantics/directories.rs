//! Open directories: a listing that is read from any earlier position.
//!
//! A position is the number of an entry of the handle's listing, which is fetched page by page and kept until the directory is read from
//! its start again: so a position stays valid while names come and go.

use std::sync::{Mutex, PoisonError};

use pario::core::limits::LIST_PAGE_ENTRIES;
use pario::core::{FileKind, InodeId};
use pario::message::{NameReply, NameRequest};
use rustix::io::Errno;

use super::error::PosixResult;
use super::{FileSystem, at};

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeId,
    /// Kind of the inode.
    pub kind: FileKind,
}

/// An open directory.
#[derive(Debug)]
pub(super) struct DirectoryHandle {
    inode: InodeId,
    listing: Mutex<DirectoryListing>,
}

#[derive(Debug, Default)]
struct DirectoryListing {
    entries: Vec<ListedEntry>,
    is_complete: bool,
}

impl FileSystem {
    /// `opendir`: a handle.
    pub fn open_dir(&self, inode: InodeId) -> u64 {
        self.directories.add(DirectoryHandle { inode, listing: Mutex::default() })
    }

    /// Calls `take` with entries from a position on, and the position behind each, until it returns false or there are no more.
    /// Position 0 lists the directory anew.
    pub fn read_dir(
        &self,
        handle: u64,
        position: u64,
        mut take: impl FnMut(&ListedEntry, u64) -> bool,
    ) -> PosixResult<()> {
        let handle = self.directories.get(handle)?;
        let mut listing = handle.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if position == 0 {
            *listing = self.start_listing(handle.inode)?;
        }
        let mut index = usize::try_from(position).map_err(|_| Errno::INVAL)?;
        loop {
            while listing.entries.len() <= index && !listing.is_complete {
                self.extend_listing(handle.inode, &mut listing)?;
            }
            let Some(entry) = listing.entries.get(index) else { return Ok(()) };
            index += 1;
            if !take(entry, index as u64) {
                return Ok(());
            }
        }
    }

    /// `closedir`
    pub fn release_dir(&self, handle: u64) -> PosixResult<()> {
        self.directories.take(handle).map(drop)
    }

    fn start_listing(&self, inode: InodeId) -> PosixResult<DirectoryListing> {
        let parent = match inode {
            InodeId::ROOT => inode,
            // A removed directory has no entries.
            _ => match self.call_attr(NameRequest::Find { at: at(inode, b".."), follow: false }) {
                Ok(parent) => parent.inode,
                Err(Errno::STALE) => return Ok(DirectoryListing { entries: Vec::new(), is_complete: true }),
                Err(error) => return Err(error),
            },
        };
        let entry =
            |name: &[u8], inode| ListedEntry { name: name.to_vec(), inode, kind: FileKind::Directory };
        Ok(DirectoryListing { entries: vec![entry(b".", inode), entry(b"..", parent)], is_complete: false })
    }

    fn extend_listing(&self, inode: InodeId, listing: &mut DirectoryListing) -> PosixResult<()> {
        // The first two are not in the manager's listing.
        let after = listing.entries.get(2..).and_then(<[ListedEntry]>::last).map(|entry| entry.name.clone());
        let request = NameRequest::Scan { at: at(inode, b""), after, limit: LIST_PAGE_ENTRIES };
        match self.call(request) {
            Ok(NameReply::Entries { entries, more }) => {
                listing.is_complete = !more || entries.is_empty();
                listing.entries.extend(entries.into_iter().map(|entry| ListedEntry {
                    name: entry.name,
                    inode: entry.attr.inode,
                    kind: entry.attr.kind,
                }));
                Ok(())
            }
            Ok(_) => Err(Errno::IO),
            Err(Errno::STALE) => {
                listing.is_complete = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
