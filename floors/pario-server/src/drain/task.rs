//! Tasks of the drain thread: what the service asks for, and writes that were sent by message.
//!
//! Always: a task that waits for records completes through its callback, on the drain thread.

use std::ops::Range;
use std::sync::Arc;

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault, InodeId, Layout, LocalOffset, ObjectId, ServerIndex, SessionId};
use pario_net::outbox::{CursorPage, OutboxReader};
use pario_view::View;

/// Completion callback, called from the drain thread.
pub(crate) type DrainDone<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// Requests of the service to the drain thread.
pub(crate) enum DrainTask {
    /// A session offers its outbox.
    Attach { session: SessionId, outbox: OutboxReader, cursor: CursorPage, from: u64, done: DrainDone<()> },
    /// A session ended: drain its committed records, then remove it.
    Detach { session: SessionId },
    /// Reply when all records committed so far by a session are in the store.
    Drain { session: SessionId, done: DrainDone<()> },
    /// Reply when all records committed so far by all sessions are in the store.
    DrainAll { done: DrainDone<()> },
    /// The set of files that may be written back has changed.
    Grant,
    /// A write sent by message.
    Write { write: ByValue, done: DrainDone<()> },
    /// A session defines a view.
    DefineView { session: SessionId, view: u32, bytes: Vec<u8>, done: DrainDone<()> },
    /// A session will not use a view again.
    ForgetView { session: SessionId, view: u32, done: DrainDone<()> },
    /// Errors kept for a session's file.
    Errors { session: SessionId, inode: InodeId, done: DrainDone<Vec<Fault>> },
    /// Drain all records, then end.
    Stop { done: DrainDone<()> },
}

/// A write sent by message, with its bytes.
pub(crate) struct ByValue {
    pub(crate) object: ObjectId,
    pub(crate) to: WriteTarget,
    pub(crate) data: Vec<u8>,
}

impl ByValue {
    /// Fails if it exceeds the largest file.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let WriteTarget::Bytes(at) = self.to else { return Ok(()) };
        match at.0.checked_add(self.data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX) {
            Some(_) => Ok(()),
            None => Err(Fault::new(
                Code::TooLarge,
                format!("byte {} of an object is beyond the largest file", at.0),
            )),
        }
    }

    /// Range from its first to its last byte in the object of a server.
    pub(super) fn bytes(&self, index: ServerIndex) -> Range<u64> {
        let (view, layout, stream) = match &self.to {
            WriteTarget::Bytes(at) => return at.0..at.0.saturating_add(self.data.len() as u64),
            WriteTarget::Stream { stream, .. } if stream.is_empty() => return 0..0,
            WriteTarget::Stream { view, layout, stream } => (view, layout, stream.clone()),
        };
        let file = match view {
            None => Some(stream),
            Some(view) => view
                .file_offset(stream.start)
                .zip(view.file_offset(stream.end - 1))
                .map(|(first, last)| first..last.saturating_add(1)),
        };
        file.map_or(0..u64::MAX, |file| layout.local_range(index, file))
    }
}

/// Target of the bytes of a message.
pub(crate) enum WriteTarget {
    /// One offset of the object.
    Bytes(LocalOffset),
    /// Through a view; the bytes are this server's part of a range of its stream.
    Stream { view: Option<Arc<View>>, layout: Layout, stream: Range<u64> },
}

/// Reports protocol violations of a session to the service.
pub(crate) type ViolationHandler = Box<dyn Fn(SessionId, String) + Send>;
