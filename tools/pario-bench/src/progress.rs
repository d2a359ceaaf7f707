//! One line on the terminal about the running measurement; nothing if standard error is not a terminal.

use std::io::{IsTerminal, Write};

/// See the module.
#[derive(Debug)]
pub(crate) struct BenchProgress {
    shown: bool,
}

impl BenchProgress {
    /// Shown if standard error is a terminal.
    pub(crate) fn new() -> BenchProgress {
        BenchProgress { shown: std::io::stderr().is_terminal() }
    }

    /// Shows the current step.
    pub(crate) fn show(&self, text: &str) {
        if self.shown {
            // A closed terminal must not end the measurement.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text} …");
        }
    }

    /// Step `at` of `of`.
    pub(crate) fn step(&self, text: &str, at: usize, of: usize) {
        self.show(&format!("{text}: {} of {of}", at + 1));
    }
}

impl Drop for BenchProgress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
