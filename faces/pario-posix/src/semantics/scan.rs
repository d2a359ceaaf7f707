//! Pages of a directory without a handle, for clients that keep their position themselves.

use pario::core::{DirEntry, InodeId};
use pario::message::{NameReply, NameRequest};
use rustix::io::Errno;

use super::error::PosixResult;
use super::{FileSystem, at};

/// Which lengths of files the entries have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanLengths {
    /// As the manager knows them: they may lag behind writers.
    Known,
    /// Current: leases of writers are recalled.
    Current,
}

impl FileSystem {
    /// At most `limit` entries behind a name, in the order of names' bytes, and whether there are more; without `.` and `..`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    pub fn scan(
        &self,
        dir: InodeId,
        after: Option<Vec<u8>>,
        limit: u32,
        lengths: ScanLengths,
    ) -> PosixResult<(Vec<DirEntry>, bool)> {
        let at = at(dir, b"");
        let request = match lengths {
            ScanLengths::Known => NameRequest::Scan { at, after, limit },
            ScanLengths::Current => NameRequest::List { at, after, limit },
        };
        match self.call(request)? {
            NameReply::Entries { entries, more } => Ok((entries, more)),
            _ => Err(Errno::IO),
        }
    }
}
