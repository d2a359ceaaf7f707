//! A writer's journal: one line when a call begins, one when it ends. It is a plain file outside the partition, appended by one `write`
//! per line, so that it is correct also for a killed writer.
//!
//! ```text
//! B 17 120 write 3 4096 700      call 17 begins, 120 ms after the writer's start: 700 bytes at 4096 of file 3
//! O 17 121                       it succeeded
//! F 18 5120 Unreachable server 2 is gone
//! X a violation that the writer itself detected
//! ```

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::str::{FromStr, SplitN};

/// Identifies a file of one writer for its lifetime, under any name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriterFileId(pub u64);

/// What a call does.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "field names are self-explanatory; the variants have a line each")]
pub enum WriterCall {
    /// Creates a file, or opens one that all writers share.
    Create { file: WriterFileId, name: String },
    /// Gives a file another name.
    Rename { file: WriterFileId, to: String },
    /// Removes it.
    Remove { file: WriterFileId },
    /// Opens it again.
    Open { file: WriterFileId },
    /// Writes bytes that follow from the number of the call.
    Write { file: WriterFileId, offset: u64, bytes: u64 },
    /// Reads; the writer judges the bytes itself.
    Read { file: WriterFileId, offset: u64, bytes: u64 },
    /// Requests all writes to be on stable storage.
    Sync { file: WriterFileId },
    /// Closes the handle.
    Close { file: WriterFileId },
}

impl WriterCall {
    /// The file that it is about.
    #[must_use]
    pub fn file(&self) -> WriterFileId {
        match self {
            WriterCall::Create { file, .. }
            | WriterCall::Rename { file, .. }
            | WriterCall::Remove { file }
            | WriterCall::Open { file }
            | WriterCall::Write { file, .. }
            | WriterCall::Read { file, .. }
            | WriterCall::Sync { file }
            | WriterCall::Close { file } => *file,
        }
    }
}

impl fmt::Display for WriterCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriterCall::Create { file, name } => write!(f, "create {} {name}", file.0),
            WriterCall::Rename { file, to } => write!(f, "rename {} {to}", file.0),
            WriterCall::Remove { file } => write!(f, "remove {}", file.0),
            WriterCall::Open { file } => write!(f, "open {}", file.0),
            WriterCall::Write { file, offset, bytes } => write!(f, "write {} {offset} {bytes}", file.0),
            WriterCall::Read { file, offset, bytes } => write!(f, "read {} {offset} {bytes}", file.0),
            WriterCall::Sync { file } => write!(f, "sync {}", file.0),
            WriterCall::Close { file } => write!(f, "close {}", file.0),
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "field names are self-explanatory; the variants have a line each")]
pub enum CallResult {
    /// It succeeded.
    Done,
    /// It failed, with this error.
    Failed { code: String, text: String },
    /// It had not ended when the writer did.
    Open,
}

/// A call and how it ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEntry {
    /// Number of the call, from 1 on.
    pub number: u64,
    /// The call.
    pub call: WriterCall,
    /// How it ended.
    pub outcome: CallResult,
    /// Duration.
    pub duration_ms: u64,
}

/// Contents of a journal.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct JournalContents {
    /// Calls in the order in which they began.
    pub entries: Vec<JournalEntry>,
    /// Violations detected by the writer itself.
    pub violations: Vec<String>,
}

/// The writing end.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// A new journal.
    pub fn create(path: &Path) -> io::Result<Journal> {
        Ok(Journal { file: File::options().create_new(true).append(true).open(path)? })
    }

    /// A call begins.
    pub fn begin(&mut self, number: u64, ms: u64, call: &WriterCall) -> io::Result<()> {
        self.line(&format!("B {number} {ms} {call}\n"))
    }

    /// It ended.
    pub fn end(&mut self, number: u64, ms: u64, outcome: &CallResult) -> io::Result<()> {
        match outcome {
            CallResult::Done => self.line(&format!("O {number} {ms}\n")),
            CallResult::Failed { code, text } => {
                self.line(&format!("F {number} {ms} {code} {}\n", text.replace('\n', " ")))
            }
            CallResult::Open => Ok(()),
        }
    }

    /// The writer detected a violation.
    pub fn violation(&mut self, what: &str) -> io::Result<()> {
        self.line(&format!("X {}\n", what.replace('\n', " ")))
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())
    }
}

/// Reads a journal. A last line that was cut short is as if it were not there.
pub fn read(path: &Path) -> io::Result<JournalContents> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut story = JournalContents::default();
    for line in whole.lines() {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("{}: {line}", path.display()));
        take_line(&mut story, line).ok_or_else(bad)?;
    }
    Ok(story)
}

fn take_line(story: &mut JournalContents, line: &str) -> Option<()> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "X" {
        story.violations.push(rest.to_owned());
        return Some(());
    }
    let mut words = rest.splitn(3, ' ');
    let (number, ms) = (number(&mut words)?, number(&mut words)?);
    if kind == "B" {
        let call = parse_call(words.next()?)?;
        // Until it ends, the time at which it began.
        story.entries.push(JournalEntry { number, call, outcome: CallResult::Open, duration_ms: ms });
        return Some(());
    }
    let entry = story.entries.last_mut().filter(|entry| entry.number == number)?;
    entry.duration_ms = ms.saturating_sub(entry.duration_ms);
    entry.outcome = match kind {
        "O" => CallResult::Done,
        "F" => {
            let (code, text) = words.next()?.split_once(' ')?;
            CallResult::Failed { code: code.to_owned(), text: text.to_owned() }
        }
        _ => return None,
    };
    Some(())
}

fn parse_call(text: &str) -> Option<WriterCall> {
    let mut words = text.splitn(4, ' ');
    let kind = words.next()?;
    let file = WriterFileId(number(&mut words)?);
    Some(match kind {
        "create" => WriterCall::Create { file, name: words.next()?.to_owned() },
        "rename" => WriterCall::Rename { file, to: words.next()?.to_owned() },
        "remove" => WriterCall::Remove { file },
        "open" => WriterCall::Open { file },
        "write" => WriterCall::Write { file, offset: number(&mut words)?, bytes: number(&mut words)? },
        "read" => WriterCall::Read { file, offset: number(&mut words)?, bytes: number(&mut words)? },
        "sync" => WriterCall::Sync { file },
        "close" => WriterCall::Close { file },
        _ => return None,
    })
}

fn number<T: FromStr>(words: &mut SplitN<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path).unwrap();
        let write = WriterCall::Write { file: WriterFileId(3), offset: 4096, bytes: 700 };
        let rename = WriterCall::Rename { file: WriterFileId(3), to: "b".into() };
        let failed = CallResult::Failed { code: "Lost".into(), text: "server 1: gone".into() };
        journal.begin(1, 10, &write).unwrap();
        journal.end(1, 12, &CallResult::Done).unwrap();
        journal.begin(2, 13, &rename).unwrap();
        journal.end(2, 5013, &failed).unwrap();
        journal.violation("zeros\nthere").unwrap();
        journal.begin(3, 5014, &WriterCall::Sync { file: WriterFileId(3) }).unwrap();
        journal.line("O 3 50").unwrap();
        let story = read(&path).unwrap();
        assert_eq!(story.violations, ["zeros there"]);
        let expected = [(write, CallResult::Done, 2), (rename, failed, 5000)];
        for (entry, (call, outcome, took_ms)) in story.entries.iter().zip(expected) {
            assert_eq!((&entry.call, &entry.outcome, entry.duration_ms), (&call, &outcome, took_ms));
        }
        assert_eq!(story.entries[2].outcome, CallResult::Open, "the cut line does not count");
    }

    #[test]
    fn a_line_that_makes_no_sense_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for line in ["B 1 2 write 3 4\n", "O 1 2\n", "Z 1 2\n"] {
            std::fs::write(&path, line).unwrap();
            assert!(read(&path).is_err(), "{line}");
        }
    }
}
