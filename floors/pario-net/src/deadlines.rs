//! Deadlines that also apply to a server with a living process: a control connection, or the copy of names, does not wait for a
//! wedged server as a program's data does.
//!
//! Always: an error tells the time waited.

use std::io;
use std::time::Duration;

use pario_core::limits::{ORDER_ANSWER_MS_MAX, ORDER_GREETING_MS_MAX};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// For each part of the server's handshake.
    pub greeting: Duration,
    /// For the answer to one request, independent of signs of life before it.
    pub answer: Duration,
}

impl Deadlines {
    /// Waits for a living server.
    pub const NONE: Deadlines = Deadlines { greeting: Duration::MAX, answer: Duration::MAX };

    /// Of a control request.
    pub const ORDER: Deadlines = Deadlines {
        greeting: Duration::from_millis(ORDER_GREETING_MS_MAX),
        answer: Duration::from_millis(ORDER_ANSWER_MS_MAX),
    };

    pub(crate) fn check_greeting(&self, waited: Duration) -> io::Result<()> {
        check(self.greeting, waited, "its greeting")
    }

    pub(crate) fn check_answer(&self, waited: Duration) -> io::Result<()> {
        check(self.answer, waited, "the answer")
    }
}

fn check(limit: Duration, waited: Duration, what: &str) -> io::Result<()> {
    if waited < limit {
        return Ok(());
    }
    let text = format!("{what} did not come within {:.1} s, though the server runs", waited.as_secs_f64());
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}
