//! A server's log: a file in its storage directory with bounded size and rate.
//!
//! Never: more than [`LINES_AT_ONCE`] lines of one cause in a burst, and then one a second; more than two files of
//! [`LOG_BYTES_MAX`]; a control character of a peer; a log error as an error of the server. Always: suppressed lines are
//! counted, and their number is in the next line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::text::shown;
use pario_core::{Clock, Nanos};
use pario_sys::clock::MonotonicClock;
use pario_sys::dir::{Dir, PRIVATE_FILE};
use rustix::fs::OFlags;
use tracing::callsite::Identifier;

/// File in the storage directory that a server logs into.
pub const LOG_FILE: &str = "log";
/// The one before it.
pub const OLD_LOG_FILE: &str = "log.1";
/// Size at which the log is rotated.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Burst of lines of one cause; after it one a second.
pub const LINES_AT_ONCE: u64 = 4;
/// Longest line.
pub const LINE_BYTES_MAX: usize = 4096;
/// A pending count is written on its own after this time, with the next line of any cause.
const PENDING_WRITE_AFTER_MS: u64 = 10_000;
/// Bytes of a suppressed line repeated with its count.
const SAMPLE_BYTES_MAX: usize = 160;

const _: () = assert!((LINE_BYTES_MAX as u64) < LOG_BYTES_MAX, "a fresh log takes any line");

/// The log's file.
#[derive(Debug)]
pub struct LogFile {
    dir: Arc<Dir>,
    file: File,
}

impl LogFile {
    /// Opens the log in a directory, made if need be.
    ///
    /// # Errors
    /// If it is a symbolic link, another user's, or cannot be appended to.
    pub fn open(dir: &Arc<Dir>) -> io::Result<LogFile> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let file = dir.open_file(Path::new(LOG_FILE), flags, PRIVATE_FILE)?;
        let found = file.metadata()?;
        if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
            let text = "is not a plain file of this user with one name: remove it";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(LogFile { dir: Arc::clone(dir), file })
    }

    /// Writes a line; rotates a full log first.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        // Panic messages are written directly and also count.
        if LOG_BYTES_MAX < self.file.metadata()?.len() + line.len() as u64 {
            self.dir.rename(Path::new(LOG_FILE), Path::new(OLD_LOG_FILE))?;
            *self = LogFile::open(&self.dir)?;
            rustix::stdio::dup2_stderr(&self.file)?;
        }
        self.file.write_all(line)
    }
}

/// See the module. Without a file, all lines go to standard error.
#[derive(Debug, Default)]
pub struct ServerLog {
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    file: Option<LogFile>,
    causes: Causes,
}

impl ServerLog {
    /// From now on log lines and standard error go into the file.
    ///
    /// # Errors
    /// If standard error cannot be replaced.
    pub fn move_into(&self, file: LogFile) -> io::Result<()> {
        rustix::stdio::dup2_stderr(&file.file)?;
        self.state().file = Some(file);
        Ok(())
    }

    /// Writes a line, subject to the rate limit of its cause. `None`: no limit.
    pub fn write_line(&self, cause: Option<Identifier>, line: &str) {
        let mut state = self.state();
        let line = cut(&shown(line.trim_end_matches('\n')), LINE_BYTES_MAX).to_owned();
        if state.file.is_none() {
            // If standard error is closed, the line is dropped.
            let _ = writeln!(io::stderr().lock(), "{line}");
            return;
        }
        let now = MonotonicClock.now();
        let more = match cause {
            Some(cause) => match state.causes.admit(cause, &line, now) {
                Some(more) => more,
                None => return,
            },
            None => String::new(),
        };
        for untold in state.causes.pending_lines(now, PENDING_WRITE_AFTER_MS) {
            state.put(&untold);
        }
        state.put(&format!("{line}{more}"));
    }

    /// Writes all pending counts, before the server ends.
    pub fn write_pending(&self) {
        let mut state = self.state();
        for untold in state.causes.pending_lines(MonotonicClock.now(), 0) {
            state.put(&untold);
        }
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    /// The log may be on the full disk: a failed write is dropped, and the server continues.
    fn put(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            let _ = file.write(format!("{line}\n").as_bytes());
        }
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Rate-limit state per cause. Bounded by the number of log statements.
#[derive(Debug, Default)]
struct Causes(HashMap<Identifier, CauseState>);

#[derive(Debug, Default)]
struct CauseState {
    /// Time up to which the written lines have used the rate, a second each.
    paid_ns: u64,
    left_out: u64,
    since_ns: u64,
    sample: String,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Causes {
    /// Whether a line is written, and the suffix to append.
    fn admit(&mut self, cause: Identifier, line: &str, now: Nanos) -> Option<String> {
        let share = self.0.entry(cause).or_default();
        if now.0 + (LINES_AT_ONCE - 1) * SECOND_NS < share.paid_ns {
            if share.left_out == 0 {
                share.since_ns = now.0;
                cut(line, SAMPLE_BYTES_MAX).clone_into(&mut share.sample);
            }
            share.left_out += 1;
            return None;
        }
        share.paid_ns = share.paid_ns.max(now.0) + SECOND_NS;
        let left_out = std::mem::take(&mut share.left_out);
        if left_out == 0 {
            return Some(String::new());
        }
        Some(format!(" ({left_out} more in {} s)", seconds(share.since_ns, now)))
    }

    /// Lines for counts older than `after_ms`.
    fn pending_lines(&mut self, now: Nanos, after_ms: u64) -> Vec<String> {
        let old =
            |share: &&mut CauseState| share.left_out != 0 && Nanos(share.since_ns).plus_ms(after_ms) <= now;
        let tell = |share: &mut CauseState| {
            let left_out = std::mem::take(&mut share.left_out);
            format!("{} ({left_out} such lines in {} s)", share.sample, seconds(share.since_ns, now))
        };
        self.0.values_mut().filter(old).map(tell).collect()
    }
}

/// Seconds since then, at least one.
fn seconds(since_ns: u64, now: Nanos) -> u64 {
    now.0.saturating_sub(since_ns).div_ceil(SECOND_NS).max(1)
}

#[cfg(test)]
#[path = "server_log_tests.rs"]
mod tests;
