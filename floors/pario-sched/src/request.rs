//! The words of the scheduler: who asks, for which bytes of which file, and what is told to run.
//!
//! Never: means anything to the controller beyond equality and order; ids of files, applications and tags are the host's own.

use std::fmt;

/// One file, whatever the host takes for a file; requests of one file are merged and kept in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// One application: the unit between which service is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub u64);

/// One I/O system that posts to a controller; `HostId::FIRST` is there from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) u32);

impl HostId {
    /// The host that every controller begins with.
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
    /// How many requests the controller had accepted before this one.
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

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// From the file.
    Read,
    /// Into the file.
    Write,
}

/// What a host posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who will execute it.
    pub host: HostId,
    /// On whose behalf.
    pub application: ApplicationId,
    /// Which file.
    pub file: FileId,
    /// Read or write.
    pub kind: Kind,
    /// First byte in the file.
    pub offset: u64,
    /// How many bytes; zero is allowed.
    pub length: u64,
    /// When it came, in microseconds of the host's clock.
    pub arrival_us: u64,
    /// When it should be done, for policies that look at it and for the count of missed ones.
    pub deadline_us: Option<u64>,
    /// Anything that helps the host to find its own record; comes back in [`Part`].
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
        let (host, kind, deadline_us, tag) = (HostId::FIRST, Kind::Read, None, 0);
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
        request.kind = Kind::Write;
        request
    }

    /// One past its last byte; `post` has refused what would not fit.
    pub(crate) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// What `next` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pick {
    /// Execute this now.
    Serve(Run),
    /// Requests wait, but it is better to wait a little: ask again at this time, or after the next `post` or `complete`.
    Wait {
        /// When, on the host's clock; later than the time `next` was asked with.
        until_us: u64,
    },
    /// Nothing can be served before the next `post` or `complete`.
    Idle,
}

/// One operation for one host: a single request, or several as one vectored read or write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Who executes it.
    pub host: HostId,
    /// Which file.
    pub file: FileId,
    /// Read or write, all parts alike.
    pub kind: Kind,
    /// The requests in offset order, at least one; more than one only for a host that said it can ([`Vectored`]).
    pub parts: Vec<Part>,
}

impl Run {
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
pub struct Part {
    /// To be given to `complete`.
    pub id: RequestId,
    /// On whose behalf.
    pub application: ApplicationId,
    /// First byte in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// As posted.
    pub tag: u64,
}

/// What vectored operations a host has (real aggregation); without them requests are only put in order (virtual aggregation).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Vectored {
    /// None: every run has one part.
    #[default]
    Never,
    /// `preadv`, `pwritev`: parts follow each other without gap or overlap.
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

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes were moved; a read that moved fewer than it asked for has met the end of the file.
    Done {
        /// How many.
        bytes: u64,
    },
    /// It failed; the host tells whoever asked.
    Failed,
}
