//! Refused records: their outbox is valid, but their view is unknown, is not monotonic, or ends before them.
//!
//! Never: costs a session more than that record; its client receives the reason with the errors of the file. Always: noted once, however
//! often the outbox is read.

use pario_core::{Code, Fault, InodeId, ServerIndex};
use pario_net::outbox::{OutboxError, RecordHead};

/// Why a record is not drained.
#[derive(Debug)]
pub(super) enum ScanFault {
    /// The outbox violates the protocol.
    Outbox(OutboxError),
    /// Only the record is refused.
    Record(&'static str),
}

impl From<OutboxError> for ScanFault {
    fn from(error: OutboxError) -> ScanFault {
        ScanFault::Outbox(error)
    }
}

/// A record that is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RefusedRecord {
    /// Index of its outbox.
    pub(super) outbox: usize,
    pub(super) head: RecordHead,
    pub(super) why: &'static str,
}

impl RefusedRecord {
    pub(super) fn inode(&self) -> InodeId {
        self.head.object.inode
    }

    /// The fault reported to its client.
    pub(super) fn fault(&self, server: ServerIndex) -> Fault {
        let (bytes, offset, why) = (self.head.data_bytes, self.head.offset, self.why);
        let text = format!(
            "server {server} refused a record of {bytes} bytes at offset {offset} of its view: {why}"
        );
        Fault::new(Code::Protocol, text)
    }
}
