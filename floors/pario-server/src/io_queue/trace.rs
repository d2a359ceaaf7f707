//! The trace on disk: written every second, so that a killed server leaves a trace of its last requests.
//!
//! New records are appended; when the file has twice as many as are kept, it is rewritten with those that are kept. The trace of an earlier
//! server process is kept beside it, once.
//!
//! Never: is written while the I/O queue's lock is held. Always: the file is a readable trace, except for a torn last line, and holds at
//! most twice [`TRACE_RECORDS_MAX`] records.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_sched::{Trace, TraceRecord};

/// Most recent records that are kept.
pub(super) const TRACE_RECORDS_MAX: usize = 1 << 18;
/// Write interval: a killed server loses at most this much.
pub(super) const TRACE_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    /// File for appending; `None`: it must be rewritten.
    file: Option<File>,
    /// Records written, of all records ever noted.
    written: u64,
    /// Records in the file.
    held: u64,
    held_max: u64,
    is_reported: bool,
}

/// Records to write.
pub(super) struct TraceUpdate {
    records: Vec<TraceRecord>,
    noted: u64,
    /// The file is rewritten; number of records lost.
    rewrite: Option<u64>,
}

/// Whether a file is rewritten in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RewriteMode {
    Append,
    Anew,
}

impl TraceFile {
    pub(super) fn new(path: PathBuf, records_max: usize) -> TraceFile {
        let before = with_suffix(&path, "before");
        if let Err(error) = std::fs::rename(&path, &before)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "an earlier trace, {}, could not be kept", path.display());
        }
        TraceFile {
            path,
            file: None,
            written: 0,
            held: 0,
            held_max: 2 * records_max as u64,
            is_reported: false,
        }
    }

    /// Records missing in the file; `None`: none.
    pub(super) fn update(&self, trace: &Trace, how: RewriteMode) -> Option<TraceUpdate> {
        let fresh = trace.noted() - self.written;
        let overtaken = self.written < trace.lost();
        let anew =
            how == RewriteMode::Anew || self.file.is_none() || overtaken || self.held_max < self.held + fresh;
        if !anew && fresh == 0 {
            return None;
        }
        let from = if anew { 0 } else { self.written };
        let records = trace.after(from).copied().collect();
        Some(TraceUpdate { records, noted: trace.noted(), rewrite: anew.then(|| trace.lost()) })
    }

    /// Writes them. A failure is logged once, and retried with the next write.
    pub(super) fn write(&mut self, news: &TraceUpdate) {
        match self.try_write(news) {
            Ok(()) => self.is_reported = false,
            Err(error) => {
                self.file = None;
                if !std::mem::replace(&mut self.is_reported, true) {
                    tracing::warn!(%error, "the scheduler's trace could not be written to {}", self.path.display());
                }
            }
        }
    }

    fn try_write(&mut self, news: &TraceUpdate) -> std::io::Result<()> {
        let mut text = String::new();
        if let Some(lost) = news.rewrite {
            text += &Trace::head(lost);
            text.push('\n');
            self.held = 0;
        }
        for record in &news.records {
            text += &record.to_string();
            text.push('\n');
        }
        if news.rewrite.is_some() {
            // A process that dies meanwhile leaves the old file.
            let fresh = with_suffix(&self.path, "new");
            let mut file = create_new(&fresh)?;
            file.write_all(text.as_bytes())?;
            std::fs::rename(&fresh, &self.path)?;
            self.file = Some(file);
        } else if let Some(file) = &mut self.file {
            file.write_all(text.as_bytes())?;
        }
        self.written = news.noted;
        self.held += news.records.len() as u64;
        Ok(())
    }
}

/// Creates a new file: an existing file or link of another user is neither written nor followed.
fn create_new(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// The same path with a suffix.
fn with_suffix(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use pario_sched::{ApplicationId, Controller, FileId, Options, Request};

    use super::*;

    const KEPT: usize = 10;

    fn controller() -> Controller {
        Controller::new("wfq", Options { trace_records_max: KEPT, ..Options::default() }).unwrap()
    }

    fn note(controller: &mut Controller, records: u64) {
        for number in 0..records {
            controller.post(Request::read(FileId(1), ApplicationId(1), number * 8192, 1, 5)).unwrap();
        }
    }

    fn put(file: &mut TraceFile, controller: &Controller, how: RewriteMode) {
        if let Some(news) = file.update(controller.trace(), how) {
            file.write(&news);
        }
    }

    fn read(path: &Path) -> Trace {
        std::fs::read_to_string(path).unwrap().parse().unwrap()
    }

    #[test]
    fn what_is_new_is_appended_and_the_file_stays_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p-0.trace");
        let (mut file, mut controller) = (TraceFile::new(path.clone(), KEPT), controller());
        put(&mut file, &controller, RewriteMode::Append);
        assert_eq!((read(&path).records().count(), read(&path).lost()), (0, 0), "there from the beginning");
        let mut noted = 0;
        for (more, held, lost) in
            [(4, 4, 0), (0, 4, 0), (6, 10, 0), (5, 15, 0), (5, 20, 0), (1, 10, 11), (11, 10, 22)]
        {
            note(&mut controller, more);
            noted += more;
            put(&mut file, &controller, RewriteMode::Append);
            let trace = read(&path);
            assert_eq!((trace.records().count(), trace.lost()), (held, lost), "after {noted}");
            assert_eq!(trace.lost() + trace.records().count() as u64, noted, "no gap");
        }
        note(&mut controller, 3);
        put(&mut file, &controller, RewriteMode::Append);
        assert_eq!(read(&path).records().count(), 13);
        put(&mut file, &controller, RewriteMode::Anew);
        assert_eq!(read(&path).to_string(), controller.trace().to_string());
    }

    #[test]
    fn what_an_earlier_life_left_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p-0.trace");
        for life in 1..4 {
            let (mut file, mut controller) = (TraceFile::new(path.clone(), KEPT), controller());
            note(&mut controller, life);
            put(&mut file, &controller, RewriteMode::Append);
        }
        let count = |path: &Path| read(path).records().count();
        assert_eq!((count(&path), count(&with_suffix(&path, "before"))), (3, 2));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_directory_that_is_missing_is_borne_until_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/p-0.trace");
        let (mut file, mut controller) = (TraceFile::new(path.clone(), KEPT), controller());
        note(&mut controller, 3);
        put(&mut file, &controller, RewriteMode::Append);
        std::fs::create_dir(dir.path().join("later")).unwrap();
        put(&mut file, &controller, RewriteMode::Append);
        assert_eq!(read(&path).records().count(), 3);
    }
}
