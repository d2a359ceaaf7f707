//! Progress of a copy: a bar on a terminal, a line per file with `-v`, nothing otherwise.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pario::transfer::{Observer, TransferResult, TreePath};

use crate::context::{Context, Speech};
use crate::error::CliResult;
use crate::signals::Stop;

/// Destination of copied files' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NamesOutput {
    /// Not printed.
    Hidden,
    /// On standard error: standard output is another program's, or JSON.
    Beside,
    /// On standard output, as `cp` does.
    Output,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CopyProgress {
    bar: ProgressBar,
    names: NamesOutput,
    json: bool,
    print_lock: Mutex<()>,
    stop: Stop,
}

impl CopyProgress {
    /// For one copy, which `stop` ends; `what` is the label of the bar.
    pub(crate) fn new(speech: Speech, what: &'static str, stop: &Stop) -> CopyProgress {
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
        let names = if 0 < speech.verbose { NamesOutput::Beside } else { NamesOutput::Hidden };
        CopyProgress { bar, names, json: speech.json, print_lock: Mutex::default(), stop: stop.clone() }
    }

    /// The same with file names on standard output, unless that is JSON.
    pub(crate) fn on_output(self) -> CopyProgress {
        let names =
            if self.names == NamesOutput::Beside && !self.json { NamesOutput::Output } else { self.names };
        CopyProgress { names, ..self }
    }

    fn print_name(&self, line: impl FnOnce() -> String) {
        if self.names == NamesOutput::Hidden {
            return;
        }
        let _one = self.print_lock.lock();
        let line = crate::error::one_line(&line());
        // A closed output ends the command when the total is printed.
        self.bar.suspend(|| match self.names {
            NamesOutput::Output => drop(writeln!(std::io::stdout().lock(), "{line}")),
            NamesOutput::Beside | NamesOutput::Hidden => drop(writeln!(std::io::stderr().lock(), "{line}")),
        });
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for CopyProgress {
    fn found(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn copied(&self, from: &TreePath, to: &TreePath) {
        self.print_name(|| format!("'{from}' -> '{to}'"));
    }

    fn skipped(&self, to: &TreePath) {
        self.print_name(|| format!("skipped '{to}'"));
    }

    fn verifying(&self) {
        self.bar.set_length(0);
        self.bar.reset();
        self.bar.set_message("verifying");
    }

    fn is_stopped(&self) -> bool {
        self.stop.signal().is_some()
    }
}

/// Runs a transfer with a bar, until it ends or `stop` is set.
pub(crate) fn watched<T>(
    context: &Context,
    what: &'static str,
    stop: &Stop,
    transfer: impl FnOnce(&CopyProgress) -> TransferResult<T>,
) -> CliResult<T> {
    let progress = CopyProgress::new(context.speech, what, stop);
    let done = transfer(&progress);
    progress.end();
    stop.outcome(done)
}
