//! Clients: each makes its accesses one after the other, and waits for each.

use super::app::App;

/// One client of an application.
#[derive(Clone, Debug)]
pub(crate) struct ModelClient {
    pub(crate) app: usize,
    rank: u64,
    /// Accesses started.
    number: u64,
    /// Remainder of the access not yet requested.
    next: u64,
    end: u64,
    in_flight: usize,
}

/// A client's next action after a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// It waits for more replies, or requests the rest.
    Continues,
    /// The access is done.
    AccessDone,
}

impl ModelClient {
    pub(crate) fn new(app: usize, rank: u64) -> ModelClient {
        ModelClient { app, rank, number: 0, next: 0, end: 0, in_flight: 0 }
    }

    /// Starts the next access; returns whether there is one.
    pub(crate) fn begin(&mut self, app: &App, request_max: u64) -> bool {
        let Some((start, length)) = app.access(self.rank, self.number, request_max) else { return false };
        (self.next, self.end) = (start, start + length);
        self.number += 1;
        true
    }

    /// The next request of the access, as start and length, if a slot is free.
    pub(crate) fn next_request(&mut self, request_max: u64, slots: usize) -> Option<(u64, u64)> {
        if self.next == self.end || slots <= self.in_flight {
            return None;
        }
        let (start, length) = (self.next, (self.end - self.next).min(request_max));
        self.next += length;
        self.in_flight += 1;
        Some((start, length))
    }

    /// A reply arrived.
    pub(crate) fn answered(&mut self) -> After {
        self.in_flight -= 1;
        if 0 < self.in_flight || self.next < self.end { After::Continues } else { After::AccessDone }
    }
}
