//! The log of the command and of servers.
//!
//! Never: ends a thread because a line could not be written.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use pario::core::text::shown;
use pario::partition::LogFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::error::{CliError, CliResult};

/// Logs to standard error, or to the end of a file, with the filter of `PARIO_LOG`, by default warnings; `-v` adds more.
pub(super) fn start_log(verbose: u8, file: Option<&Path>) -> CliResult {
    let given = std::env::var("PARIO_LOG").ok().filter(|text| !text.is_empty());
    let filter = match given {
        Some(text) => text
            .parse::<LogFilter>()
            .map_err(|rule| CliError::usage(format!("environment PARIO_LOG: log = \"{text}\": {rule}")))?
            .to_string(),
        None => ["warn", "warn", "info", "debug"].get(usize::from(verbose)).unwrap_or(&"trace").to_string(),
    };
    let Some(path) = file else {
        log_into(&filter, || LossyWriter(std::io::stderr()));
        return Ok(());
    };
    let opened = File::options().append(true).create(true).mode(0o600).open(path);
    let file = opened.map_err(|error| CliError::usage(format!("--log {}: {error}", path.display())))?;
    let file = Arc::new(file);
    log_into(&filter, move || LossyWriter(Arc::clone(&file)));
    Ok(())
}

/// Starts the log; a second start has no effect.
pub(super) fn log_into(filter: &str, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    // A filter is checked before it comes here.
    let levels = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let _ = tracing_subscriber::registry().with(lines.with_filter(levels)).try_init();
}

/// A writer with write failures ignored: a server's log may be on the full disk, and a line that cannot be written must
/// not end the thread that wrote it.
struct LossyWriter<W>(W);

impl<W: std::io::Write> std::io::Write for LossyWriter<W> {
    /// One line at a time, with control characters of peers and file names escaped.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let _ = writeln!(self.0, "{}", shown(text.trim_end_matches('\n')));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
