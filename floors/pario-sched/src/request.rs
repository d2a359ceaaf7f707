//! Types of the scheduler: requests, their bytes, files and applications, and runs.
//!
//! Never: interprets ids beyond equality and order; ids of files, applications and tags belong to the host.

use std::fmt;

/// One file, as the host defines it; requests of one file are merged and kept in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// One application: the unit between which service is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub u64);

/// One I/O system that posts to a controller; `HostId::FIRST` always exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) u32);

impl HostId {
    /// The first host of every controller.
    pub const FIRST: HostId = HostId(0);

    /// Its number, in the order in which hosts were added.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A posted request; later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(crate) sequence: u64,
    pub(crate) slot: u32,
}

impl RequestId {
    /// Number of requests accepted before this one.
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.sequence
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.sequence)
    }
}

/// Direction of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoKind {
    /// From the file.
    Read,
    /// Into the file.
    Write,
}

/// Request posted by a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The host that will execute it.
    pub host: HostId,
    /// The application.
    pub application: ApplicationId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub kind: IoKind,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes; zero is allowed.
    pub length: u64,
    /// Time of arrival, in microseconds of the host's clock.
    pub arrival_us: u64,
    /// Deadline, for policies that use it and for the count of late requests.
    pub deadline_us: Option<u64>,
    /// Value that the host uses to find its own record; returned in [`RunPart`].
    pub tag: u64,
}

impl Request {
    /// A read by the first host, without deadline and tag.
    #[must_use]
    pub const fn read(
        file: FileId,
        application: ApplicationId,
        offset: u64,
        length: u64,
        arrival_us: u64,
    ) -> Self {
        let (host, kind, deadline_us, tag) = (HostId::FIRST, IoKind::Read, None, 0);
        Self { host, application, file, kind, offset, length, arrival_us, deadline_us, tag }
    }

    /// A write by the first host, without deadline and tag.
    #[must_use]
    pub const fn write(
        file: FileId,
        application: ApplicationId,
        offset: u64,
        length: u64,
        arrival_us: u64,
    ) -> Self {
        let mut request = Self::read(file, application, offset, length, arrival_us);
        request.kind = IoKind::Write;
        request
    }

    /// One past its last byte; `post` has refused overflows.
    pub(crate) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Answer of `next`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// Execute this now.
    Serve(IoRun),
    /// Requests wait, but a short wait is better: ask again at this time, or after the next `post` or `complete`.
    Wait {
        /// Time on the host's clock; later than the time passed to `next`.
        until_us: u64,
    },
    /// No request can be served before the next `post` or `complete`.
    Idle,
}

/// One operation for one host: a single request, or several as one vectored read or write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoRun {
    /// The host that executes it.
    pub host: HostId,
    /// The file.
    pub file: FileId,
    /// Read or write, the same for all parts.
    pub kind: IoKind,
    /// The requests in offset order, at least one; more than one only for a host with vectored operations ([`Vectored`]).
    pub parts: Vec<RunPart>,
}

impl IoRun {
    /// First byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.offset)
    }

    /// Sum of the parts' lengths.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }
}

/// One request of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPart {
    /// Argument for `complete`.
    pub id: RequestId,
    /// The application.
    pub application: ApplicationId,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// As posted.
    pub tag: u64,
}

/// Vectored operations of a host (real aggregation); without them requests are only ordered (virtual aggregation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Vectored {
    /// None: every run has one part.
    #[default]
    Never,
    /// `preadv`, `pwritev`: parts are contiguous, without gap or overlap.
    Contiguous {
        /// At most this many parts in one run.
        parts_max: usize,
    },
    /// Lists of ranges: parts may leave gaps (up to `near_bytes`), and reads may overlap.
    Ranges {
        /// At most this many parts in one run.
        parts_max: usize,
    },
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Bytes transferred; a read of fewer bytes than requested has reached the end of the file.
    Done {
        /// Number of bytes.
        bytes: u64,
    },
    /// It failed; the host reports it to the requester.
    Failed,
}
