//! One line on the terminal that says what is being measured; nothing where nobody looks.

use std::io::{IsTerminal, Write};

/// See the module.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    /// Shown if standard error is a terminal.
    pub(crate) fn new() -> Progress {
        Progress { shown: std::io::stderr().is_terminal() }
    }

    /// Says what is under way.
    pub(crate) fn say(&self, text: &str) {
        if self.shown {
            // A terminal that is gone must not end the measurement.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text} …");
        }
    }

    /// So many of so many.
    pub(crate) fn step(&self, text: &str, at: usize, of: usize) {
        self.say(&format!("{text}: {} of {of}", at + 1));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
