//! How far a copy has come: a bar on a terminal, a line per file when asked for, nothing otherwise.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Pair;
use crate::context::Speech;

/// See the module.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    names: bool,
    told: Mutex<()>,
}

impl Progress {
    /// For one copy; `what` stands before the bar.
    pub(crate) fn new(speech: Speech, what: &'static str) -> Progress {
        let wanted = !speech.quiet && !speech.json && std::io::stderr().is_terminal();
        let target =
            if wanted { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target).with_message(what);
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
        );
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress { bar, names: 0 < speech.verbose, told: Mutex::default() }
    }

    /// More to move.
    pub(super) fn found(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Moved.
    pub(super) fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// A file or link is there.
    pub(super) fn copied(&self, pair: &Pair) {
        if self.names {
            let _one = self.told.lock();
            self.bar.suspend(|| {
                let line = crate::error::one_line(&format!("{} -> {}", pair.from, pair.to));
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            });
        }
    }

    /// The bar goes away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
