//! Clients: each makes its accesses one after the other, and waits for each.

use super::app::App;

/// One client of an application.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) app: usize,
    rank: u64,
    /// Accesses begun.
    number: u64,
    /// What of the access has not been asked for.
    next: u64,
    end: u64,
    under_way: usize,
}

/// What a client does after a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// It waits for more replies, or asks for the rest.
    Goes,
    /// The access is done.
    AccessDone,
}

impl Client {
    pub(crate) fn new(app: usize, rank: u64) -> Client {
        Client { app, rank, number: 0, next: 0, end: 0, under_way: 0 }
    }

    /// Begins the next access; whether there is one.
    pub(crate) fn begin(&mut self, app: &App, request_max: u64) -> bool {
        let Some((start, length)) = app.access(self.rank, self.number, request_max) else { return false };
        (self.next, self.end) = (start, start + length);
        self.number += 1;
        true
    }

    /// The next request of the access, as start and length, if one may be sent.
    pub(crate) fn ask(&mut self, request_max: u64, slots: usize) -> Option<(u64, u64)> {
        if self.next == self.end || slots <= self.under_way {
            return None;
        }
        let (start, length) = (self.next, (self.end - self.next).min(request_max));
        self.next += length;
        self.under_way += 1;
        Some((start, length))
    }

    /// A reply came.
    pub(crate) fn answered(&mut self) -> After {
        self.under_way -= 1;
        if 0 < self.under_way || self.next < self.end { After::Goes } else { After::AccessDone }
    }
}
