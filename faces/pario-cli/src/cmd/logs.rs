//! `pario logs`: log files of the servers of a partition, also of dead servers.
//!
//! Never: contacts a server; follows a symbolic link. Always: lines of several servers are in the order of their times.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use pario::core::ServerIndex;
use pario::core::text::shown;
use pario::dir::{Dir, Missing, open_own};
use pario::partition::server_log::{LOG_BYTES_MAX, LOG_FILE, OLD_LOG_FILE};
use pario::partition::{RegistryEntry, ServerAddress};
use rustix::event::{Timespec, poll};
use rustix::fs::OFlags;
use serde::Serialize;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};

/// Lines shown by default.
const LINES_DEFAULT: usize = 100;
/// Poll interval of a followed log.
const FOLLOW_INTERVAL_NS: i64 = 200_000_000;
/// Bytes read of a log at most: the size limit applies to log lines, a panic message may follow it.
const READ_BYTES_MAX: u64 = LOG_BYTES_MAX + (1 << 20);

/// Arguments of `pario logs`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario logs scratch                 the last 100 lines of all servers of this machine, by time
  pario logs scratch -f              and what comes, until interrupted
  pario logs scratch --server 2 -n 0 everything that server 2 has, of both files
The logs are read where they are: a partition that is down, or whose servers died, shows them, too.
For a server on another machine the command to see its log is printed. A line that ends in
\"(N more in T s)\" stands for N others of the same cause; each log is at most twice 8 MiB.")]
pub(crate) struct Args {
    /// The partition [default: PARIO_PARTITION]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Follow: also print new lines, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Of this server only
    #[arg(long, value_name = "N")]
    server: Option<u16>,
    /// Number of last lines; 0: all
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = LINES_DEFAULT)]
    lines: usize,
}

/// A log line, as `--json` prints it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct LogLine {
    server: ServerIndex,
    /// Time of the line; a line without a time has that of the line before.
    time: String,
    text: String,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let entry = context.registry()?.find(&context.partition_name(args.name.as_deref())?)?;
    let (mut logs, mut failures) = open_all(&entry, args.server)?;
    let mut lines = Vec::new();
    for log in &mut logs {
        match log.all() {
            Ok(all) => lines.extend(all),
            Err(error) => failures.push(CliError::local(&log.path(), &error)),
        }
    }
    lines.sort_by(|one, two| one.time.cmp(&two.time));
    let skipped = if args.lines == 0 { 0 } else { lines.len().saturating_sub(args.lines) };
    let show = Show { context, several: 1 < entry.settings.servers.len(), follow: args.follow };
    show.lines(&lines[skipped..])?;
    while args.follow && !logs.is_empty() {
        context.flush()?;
        // An empty `poll` sleeps.
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: FOLLOW_INTERVAL_NS }));
        let mut fresh = Vec::new();
        for log in &mut logs {
            fresh.extend(log.fresh().map_err(|error| CliError::local(&log.path(), &error))?);
        }
        fresh.sort_by(|one, two| one.time.cmp(&two.time));
        show.lines(&fresh)?;
    }
    end_of_many(context, failures, logs.len())
}

/// The logs on this machine; for other machines an error with the command to read them.
fn open_all(entry: &RegistryEntry, only: Option<u16>) -> CliResult<(Vec<LogReader>, Vec<CliError>)> {
    let servers = &entry.settings.servers;
    if let Some(server) = only.filter(|server| servers.len() <= usize::from(*server)) {
        let text = format!("partition '{}' has no server {server}: it has {}", entry.name, servers.len());
        return Err(CliError::usage(text));
    }
    let (mut logs, mut failures) = (Vec::new(), Vec::new());
    for (index, address) in (0..).map(ServerIndex).zip(servers) {
        if only.is_some_and(|only| only != index.0) {
            continue;
        }
        match open(index, address) {
            Ok(log) => logs.push(log),
            Err(error) => failures.push(error),
        }
    }
    Ok((logs, failures))
}

fn open(index: ServerIndex, address: &ServerAddress) -> CliResult<LogReader> {
    let path = address.dir.join(LOG_FILE);
    if let Some(host) = address.host.as_deref().filter(|_| !address.is_local()) {
        let text = format!("server {index}: its log is on {host}");
        return Err(CliError::with_cure(text, format!("see it by `ssh {host} tail {}`", path.display())));
    }
    let failed = |error: pario::dir::OwnError| CliError::failed(format!("server {index}: {error}"));
    let dir = open_own(&address.dir, Missing::Refuse).map_err(failed)?.dir;
    Ok(LogReader { server: index, dir, at: None, time: String::new() })
}

/// Log of one server.
struct LogReader {
    server: ServerIndex,
    dir: Dir,
    /// Inode and offset of the file read last.
    at: Option<(u64, u64)>,
    /// Time of the line read last.
    time: String,
}

impl LogReader {
    fn path(&self) -> PathBuf {
        self.dir.path().join(LOG_FILE)
    }

    /// All lines.
    fn all(&mut self) -> std::io::Result<Vec<LogLine>> {
        let mut lines = self.read(OLD_LOG_FILE, 0)?;
        lines.extend(self.read(LOG_FILE, 0)?);
        Ok(lines)
    }

    /// Lines appended since the last call; the log may have been rotated meanwhile.
    fn fresh(&mut self) -> std::io::Result<Vec<LogLine>> {
        let number = |name| -> std::io::Result<Option<u64>> {
            Ok(self.dir.stat(Path::new(name))?.map(|found| found.st_ino))
        };
        let (current, old) = (number(LOG_FILE)?, number(OLD_LOG_FILE)?);
        let Some((file, from)) = self.at else { return self.read(LOG_FILE, 0) };
        if current == Some(file) {
            return self.read(LOG_FILE, from);
        }
        let mut lines = if old == Some(file) { self.read(OLD_LOG_FILE, from)? } else { Vec::new() };
        lines.extend(self.read(LOG_FILE, 0)?);
        Ok(lines)
    }

    /// The complete lines of a file from an offset on; a missing file has none.
    fn read(&mut self, name: &str, from: u64) -> std::io::Result<Vec<LogLine>> {
        let mut file = match self.dir.open_file(Path::new(name), OFlags::RDONLY | OFlags::NONBLOCK, 0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.at = Some((file.metadata()?.ino(), from + whole as u64));
        let text = String::from_utf8_lossy(&bytes[..whole]);
        Ok(text.lines().map(|line| self.line(line)).collect())
    }

    fn line(&mut self, line: &str) -> LogLine {
        let first = line.split_whitespace().next().unwrap_or_default();
        if is_time(first) {
            first.clone_into(&mut self.time);
        }
        LogLine { server: self.server, time: self.time.clone(), text: shown(line).into_owned() }
    }
}

/// Whether a word is a time in the servers' format, `2026-01-02T03:04:05.678Z`.
fn is_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    19 < bytes.len() && bytes[4] == b'-' && bytes[10] == b'T' && bytes[13] == b':' && word.ends_with('Z')
}

/// Output options.
struct Show<'a> {
    context: &'a Context,
    /// Whether the partition has several servers, so that each line names its server.
    several: bool,
    follow: bool,
}

impl Show<'_> {
    fn lines(&self, lines: &[LogLine]) -> CliResult {
        if self.context.speech.json && !self.follow {
            return self.context.json(&lines);
        }
        for line in lines {
            match (self.context.speech.json, self.several) {
                (true, _) => {
                    let text = serde_json::to_string(line).map_err(std::io::Error::from)?;
                    self.context.line(text)?;
                }
                (false, true) => self.context.line(format!("{}: {}", line.server, line.text))?,
                (false, false) => self.context.line(&line.text)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ONE: &str = "2026-01-02T03:04:05.678Z  INFO one";
    const TWO: &str = "2026-01-02T03:04:06.678Z  WARN two";

    #[test]
    fn lines_come_with_their_times_and_only_whole_ones() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: String| fs::write(root.path().join(name), text).unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let mut log = LogReader { server: ServerIndex(3), dir, at: None, time: String::new() };
        assert_eq!(log.all().unwrap(), []);
        put(OLD_LOG_FILE, format!("{ONE}\n"));
        put(LOG_FILE, format!("thread panicked\u{1b}[2J\n{TWO}\nhalf a li"));
        let text = |lines: Vec<LogLine>| lines.into_iter().map(|line| line.text).collect::<Vec<_>>();
        let all = log.all().unwrap();
        assert_eq!(all[1].time, "2026-01-02T03:04:05.678Z", "what a panic says belongs to the line before");
        assert_eq!(text(all), [ONE, "thread panicked\\u{1b}[2J", TWO]);
        assert_eq!(text(log.fresh().unwrap()), [""; 0]);
        put(LOG_FILE, format!("thread panicked\u{1b}[2J\n{TWO}\nhalf a line\n"));
        assert_eq!(text(log.fresh().unwrap()), ["half a line"]);
        fs::rename(root.path().join(LOG_FILE), root.path().join(OLD_LOG_FILE)).unwrap();
        put(LOG_FILE, "new\n".into());
        assert_eq!(text(log.fresh().unwrap()), ["new"]);
    }
}
