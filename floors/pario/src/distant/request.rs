//! Requests: accesses that are started and completed later, in any order and from any thread.
//!
//! Never: touches the buffer after the request is complete. Always: a completed write is in the files of its homes; a request that is
//! dropped is abandoned, and its buffer lives until its last part is done.

use std::sync::{Arc, Mutex};

use pario_core::{Fault, Nanos};
use pario_net::connection::{Connection, Ticket};
use pario_sys::PartedBuffer;
use pario_sys::mutex::lock;

use super::component::Component;
use super::counts::{CallTime, add};
use super::file_core::FileCore;
use super::stripe::FilePart;
use super::workers::JobResult;
use crate::error::{Error, Result};

/// A request that was sent.
#[derive(Debug)]
pub(super) struct SentPart {
    pub(super) link: Arc<Connection>,
    pub(super) ticket: Ticket,
    pub(super) began: Nanos,
}

/// Progress of one component's part.
#[derive(Debug)]
pub(super) enum PartProgress {
    Sent(SentPart),
    Job(Arc<JobResult>),
    Done(std::result::Result<usize, Fault>),
    /// Taken for a wait.
    Waiting,
}

/// One component's part of a request.
#[derive(Debug)]
pub(super) struct RequestPart {
    pub(super) component: Arc<Component>,
    pub(super) part: FilePart,
    /// Offset of the whole access in the file.
    pub(super) base: u64,
    pub(super) state: PartProgress,
    pub(super) direction: PartDirection,
}

/// Whether a part is read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartDirection {
    Read,
    Write,
}

impl RequestPart {
    /// Waits for the part.
    fn complete(&mut self) {
        let result = match std::mem::replace(&mut self.state, PartProgress::Waiting) {
            PartProgress::Sent(sent) => {
                let bytes = self.part.bytes();
                sent.link.wait(sent.ticket, None).map(|answer| match self.direction {
                    PartDirection::Read => answer.data_bytes,
                    PartDirection::Write => bytes,
                })
            }
            PartProgress::Job(job) => job.wait(),
            PartProgress::Done(result) => {
                self.state = PartProgress::Done(result);
                return;
            }
            PartProgress::Waiting => Err(pario_core::Code::Closed.into()),
        };
        let (bytes, at) = (self.part.bytes(), self.part.file_offset(self.base));
        self.state =
            PartProgress::Done(result.map_err(|fault| self.component.access_fault(fault, bytes, at)));
    }

    fn is_complete(&self) -> bool {
        match &self.state {
            PartProgress::Sent(sent) => sent.link.is_answered(&sent.ticket, sent.began),
            PartProgress::Job(job) => job.is_done(),
            PartProgress::Done(_) | PartProgress::Waiting => true,
        }
    }
}

impl Drop for RequestPart {
    fn drop(&mut self) {
        if let PartProgress::Sent(sent) = std::mem::replace(&mut self.state, PartProgress::Waiting) {
            sent.link.forget(sent.ticket);
        }
    }
}

/// The parts of a request; shared with its file, which completes requests before it ends.
#[derive(Debug)]
pub(super) struct RequestCore {
    parts: Mutex<Vec<RequestPart>>,
}

impl RequestCore {
    pub(super) fn new(parts: Vec<RequestPart>) -> RequestCore {
        RequestCore { parts: Mutex::new(parts) }
    }

    /// Waits for all parts.
    pub(super) fn complete(&self) {
        lock(&self.parts).iter_mut().for_each(RequestPart::complete);
    }

    /// Whether a wait would return at once; reads answers that have arrived.
    pub(super) fn is_complete(&self) -> bool {
        // A held lock is a wait on another thread.
        self.parts.try_lock().is_ok_and(|parts| parts.iter().all(RequestPart::is_complete))
    }

    /// Places and bytes of all parts after [`RequestCore::complete`], or the first fault.
    pub(super) fn results(&self) -> std::result::Result<Vec<(FilePart, usize)>, Fault> {
        let parts = lock(&self.parts);
        let result = |part: &RequestPart| match &part.state {
            PartProgress::Done(Ok(count)) => Ok((part.part.clone(), *count)),
            PartProgress::Done(Err(fault)) => Err(fault.clone()),
            PartProgress::Sent(_) | PartProgress::Job(_) | PartProgress::Waiting => {
                Err(Fault::new(pario_core::Code::Closed, "the request is not complete"))
            }
        };
        parts.iter().map(result).collect()
    }
}

/// Buffer of a request.
#[derive(Debug)]
pub(super) enum RequestBuffer<B> {
    /// With the function that gives its bytes.
    Read(PartedBuffer<B>, fn(&mut B) -> &mut [u8]),
    Write(Arc<B>),
}

/// A read or write under way. [`DistantRequest::wait`] returns the buffer.
#[derive(Debug)]
#[must_use = "a request that is dropped is abandoned"]
pub struct DistantRequest<B> {
    core: Arc<RequestCore>,
    file: Arc<FileCore>,
    buffer: RequestBuffer<B>,
    at: u64,
    bytes: usize,
}

impl<B: AsMut<[u8]> + Send + 'static> DistantRequest<B> {
    pub(super) fn of_read(
        core: Arc<RequestCore>,
        file: &Arc<FileCore>,
        buffer: PartedBuffer<B>,
        (at, bytes): (u64, usize),
    ) -> DistantRequest<B> {
        DistantRequest {
            core,
            file: Arc::clone(file),
            buffer: RequestBuffer::Read(buffer, B::as_mut),
            at,
            bytes,
        }
    }
}

impl<B: Send + 'static> DistantRequest<B> {
    pub(super) fn of_write(
        core: Arc<RequestCore>,
        file: &Arc<FileCore>,
        buffer: Arc<B>,
        (at, bytes): (u64, usize),
    ) -> DistantRequest<B> {
        DistantRequest { core, file: Arc::clone(file), buffer: RequestBuffer::Write(buffer), at, bytes }
    }

    /// Whether [`DistantRequest::wait`] returns without waiting.
    #[must_use]
    pub fn test(&self) -> bool {
        self.core.is_complete()
    }

    /// Waits for the request; the buffer, and how many bytes were read or written.
    ///
    /// # Errors
    /// The first fault of a part; [`Error::PastEnd`] for a read that ends beyond the end of a shared file.
    pub fn wait(self) -> Result<(B, usize)> {
        let (result, buffer) = self.wait_with_buffer();
        let count = result?;
        let lost =
            || Error::from(Fault::new(pario_core::Code::Io, "the buffer of a request is still in use"));
        buffer.ok_or_else(lost).map(|buffer| (buffer, count))
    }

    /// The same; the buffer also after an error.
    pub fn wait_with_buffer(self) -> (Result<usize>, Option<B>) {
        if !self.core.is_complete() {
            add(&self.file.counters.waits, 1);
        }
        let _time = CallTime::begin(&self.file.counters, self.file.is_timed);
        self.core.complete();
        let results = self.core.results();
        match self.buffer {
            RequestBuffer::Write(buffer) => {
                let result = results.map_err(Error::from).map(|_| {
                    self.file.wrote(self.at, self.bytes);
                    self.bytes
                });
                (result, Arc::into_inner(buffer))
            }
            RequestBuffer::Read(buffer, bytes_of) => {
                let Some(mut buffer) = take(buffer) else {
                    return (results.map_err(Error::from).map(|_| 0), None);
                };
                let result = results
                    .map_err(Error::from)
                    .and_then(|parts| self.file.settle((self.at, self.bytes), &parts, bytes_of(&mut buffer)));
                (result, Some(buffer))
            }
        }
    }
}

/// The buffer, after the last thread that filled it has let go of it.
fn take<B>(mut buffer: PartedBuffer<B>) -> Option<B> {
    // A part ends right after its result was set: a failed connection may be ended by another thread.
    for _ in 0..TAKE_TRIES {
        match buffer.into_inner() {
            Ok(buffer) => return Some(buffer),
            Err(again) => buffer = again,
        }
        std::thread::park_timeout(std::time::Duration::from_micros(50));
    }
    None
}

/// Looks at a buffer that a failing connection still holds: one second.
const TAKE_TRIES: usize = 20_000;
