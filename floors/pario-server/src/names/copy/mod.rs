//! The second copy of a partition's names: a snapshot of all rows and the changes since, in a names file on another server, or beside the
//! names if there is only one server.
//!
//! ```text
//!  append ─► feed (memory) ─► copier thread, within a quarter of a second ─► location: a directory here, or a peer by message
//! ```
//! Never: blocks a caller: an append leaves its bytes in the feed and returns. Always: a log file is removed when redb and the copy have
//! its changes, unless the copy cannot be written; then that is noted beside the names. Decision 0017.

mod copier;
mod feed;
pub mod file;
mod local;
mod remote;

use std::sync::Arc;

use pario_core::{Fault, PartitionId};

pub(super) use self::copier::{Copier, CopyWaker};
pub(super) use self::feed::Feed;
pub use self::local::LocalCopies;
pub use self::remote::RemoteCopies;

/// How a write to a copy ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// More writes follow.
    More,
    /// The file is on stable storage when the write returns.
    Sync,
    /// The same, and it becomes the only file: files of lower numbers are removed.
    Only,
}

impl Finish {
    /// Its code in messages.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From a code in messages; `None`: unknown.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Finish> {
        [Finish::More, Finish::Sync, Finish::Only].into_iter().find(|finish| finish.code() == code)
    }
}

/// Location of names files: numbered, each written sequentially.
pub trait CopyLocation: Send + Sync + std::fmt::Debug {
    /// Description for messages: `server 1`, or a directory.
    fn describe(&self) -> String;
    /// Numbers and lengths of the files, in the order of their numbers.
    fn files(&self) -> Result<Vec<(u64, u64)>, Fault>;
    /// Writes bytes to a file and truncates it after them.
    fn write(&self, number: u64, at: u64, bytes: &[u8], finish: Finish) -> Result<(), Fault>;
    /// Bytes of a file, up to its end.
    fn read(&self, number: u64, at: u64, bytes: u32) -> Result<Vec<u8>, Fault>;
}

/// The second copy of a ledger.
#[derive(Clone, Debug)]
pub struct CopySpec {
    /// Its location.
    pub location: Arc<dyn CopyLocation>,
    /// The partition.
    pub partition: PartitionId,
}

/// Marker file beside the names while the copy is behind and logs are removed without it.
pub(super) const BEHIND_FILE: &str = "names.behind";
/// Bytes that are read from a location per call.
const READ_BYTES: u32 = 1 << 20;

/// Reads one file.
pub fn read_whole(place: &dyn CopyLocation, number: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    loop {
        let read = place.read(number, bytes.len() as u64, READ_BYTES)?;
        if read.is_empty() {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&read);
    }
}

/// The bytes of the newest file with a complete snapshot; without one, of the newest that is not empty.
pub fn read_best(place: &dyn CopyLocation) -> Result<Option<Vec<u8>>, Fault> {
    let mut second = None;
    for (number, _) in place.files()?.into_iter().rev() {
        let bytes = read_whole(place, number)?;
        match file::NamesImage::parse(&bytes) {
            Ok(image) if image.lost_rows() == Some(0) => return Ok(Some(bytes)),
            Ok(image) if (0 < image.found_rows || !image.changes.is_empty()) && second.is_none() => {
                second = Some(bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(second)
}
