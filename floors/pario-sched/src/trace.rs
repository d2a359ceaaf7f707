//! The trace: a record of requests posted, issued and completed. Text form: docs/formats/sched-trace.md.
//!
//! Never: holds more records than its limit; the oldest are dropped first and counted. Always: the text form can be read back.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::request::{IoKind, Outcome, Request};

/// First line of the text form.
const HEAD: &str = "pario-sched-trace 1";

/// Type of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// A request was accepted.
    Post {
        /// The host.
        host: u32,
        /// The application.
        application: u64,
        /// The file.
        file: u64,
        /// Read or write.
        kind: IoKind,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// It had to wait for earlier requests to the same bytes.
        held: bool,
    },
    /// A request was issued.
    Pick {
        /// Requests with the same number were issued as one operation.
        run: u64,
    },
    /// It ended.
    Complete {
        /// The outcome.
        outcome: Outcome,
    },
    /// It was withdrawn.
    Withdraw,
}

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Time of the event.
    pub at_us: u64,
    /// Sequence of the request.
    pub sequence: u64,
    /// The event.
    pub event: TraceEvent,
}

/// The last records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    records: VecDeque<TraceRecord>,
    records_max: usize,
    lost: u64,
}

impl Trace {
    pub(crate) fn new(records_max: usize) -> Self {
        Self { records: VecDeque::new(), records_max, lost: 0 }
    }

    pub(crate) fn note(&mut self, at_us: u64, sequence: u64, event: TraceEvent) {
        if self.records_max == 0 {
            return;
        }
        if self.records.len() == self.records_max {
            self.records.pop_front();
            self.lost += 1;
        }
        self.records.push_back(TraceRecord { at_us, sequence, event });
    }

    pub(crate) fn note_post(&mut self, at_us: u64, sequence: u64, request: &Request, held: bool) {
        let Request { host, application, file, kind, offset, length, .. } = *request;
        let (host, application, file) = (host.number(), application.0, file.0);
        self.note(at_us, sequence, TraceEvent::Post { host, application, file, kind, offset, length, held });
    }

    /// The records, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &TraceRecord> {
        self.records.iter()
    }

    /// Number of dropped records.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of records so far, including dropped ones.
    #[must_use]
    pub fn noted(&self) -> u64 {
        self.lost + self.records.len() as u64
    }

    /// The records after the first `noted` ones, oldest first, without dropped ones: for a host that writes a trace to a file step by
    /// step.
    pub fn after(&self, noted: u64) -> impl Iterator<Item = &TraceRecord> {
        let known = usize::try_from(noted.saturating_sub(self.lost)).unwrap_or(usize::MAX);
        self.records.range(known.min(self.records.len())..)
    }

    /// The first line of the text form, with the number of dropped records.
    #[must_use]
    pub fn head(lost: u64) -> String {
        format!("{HEAD} lost {lost}")
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", Trace::head(self.lost))?;
        self.records.iter().try_for_each(|record| writeln!(out, "{record}"))
    }
}

impl fmt::Display for TraceRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {} ", self.at_us, self.sequence)?;
        match self.event {
            TraceEvent::Post { host, application, file, kind, offset, length, held } => {
                let kind = match kind {
                    IoKind::Read => 'r',
                    IoKind::Write => 'w',
                };
                let held = if held { " held" } else { "" };
                write!(out, "post {host} {application} {file} {kind} {offset} {length}{held}")
            }
            TraceEvent::Pick { run } => write!(out, "pick {run}"),
            TraceEvent::Complete { outcome: Outcome::Done { bytes } } => write!(out, "done {bytes}"),
            TraceEvent::Complete { outcome: Outcome::Failed } => write!(out, "failed"),
            TraceEvent::Withdraw => write!(out, "withdraw"),
        }
    }
}

/// The text is not a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// The line number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {} is not a trace record: `{}`", self.line, self.text)
    }
}

impl Error for TraceError {}

impl FromStr for Trace {
    type Err = TraceError;

    /// An incomplete last line was cut by the death of its host, and is ignored.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let wrong = |line: usize, text: &str| TraceError { line, text: text.chars().take(80).collect() };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines().enumerate();
        let head = lines.next().map_or("", |(_, line)| line);
        let lost = head
            .strip_prefix(HEAD)
            .and_then(|rest| rest.strip_prefix(" lost "))
            .and_then(|rest| rest.parse().ok());
        let lost = lost.ok_or_else(|| wrong(1, head))?;
        let records = lines.map(|(at, line)| parse(line).ok_or_else(|| wrong(at + 1, line)));
        let records = records.collect::<Result<VecDeque<TraceRecord>, TraceError>>()?;
        Ok(Self { records_max: records.len(), records, lost })
    }
}

fn parse(line: &str) -> Option<TraceRecord> {
    let words: Vec<&str> = line.split(' ').take(12).collect();
    let (at_us, sequence) = (words.first()?.parse().ok()?, words.get(1)?.parse().ok()?);
    let number = |word: &str| word.parse::<u64>().ok();
    let event = match words.get(2..)? {
        ["post", host, application, file, kind, offset, length, held @ ..] => TraceEvent::Post {
            host: host.parse().ok()?,
            application: number(application)?,
            file: number(file)?,
            kind: match *kind {
                "r" => IoKind::Read,
                "w" => IoKind::Write,
                _ => return None,
            },
            offset: number(offset)?,
            length: number(length)?,
            held: match held {
                [] => false,
                ["held"] => true,
                _ => return None,
            },
        },
        ["pick", run] => TraceEvent::Pick { run: number(run)? },
        ["done", bytes] => TraceEvent::Complete { outcome: Outcome::Done { bytes: number(bytes)? } },
        ["failed"] => TraceEvent::Complete { outcome: Outcome::Failed },
        ["withdraw"] => TraceEvent::Withdraw,
        _ => return None,
    };
    Some(TraceRecord { at_us, sequence, event })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ApplicationId, FileId};

    #[test]
    fn text_is_pinned_and_reads_back() {
        let mut trace = Trace::new(5);
        let request = Request::write(FileId(9), ApplicationId(3), 4096, 512, 10);
        trace.note(1, 0, TraceEvent::Withdraw);
        trace.note_post(10, 7, &request, true);
        trace.note_post(11, 8, &Request { kind: IoKind::Read, ..request }, false);
        trace.note(20, 7, TraceEvent::Pick { run: 2 });
        trace.note(30, 7, TraceEvent::Complete { outcome: Outcome::Done { bytes: 512 } });
        trace.note(31, 8, TraceEvent::Complete { outcome: Outcome::Failed });
        let text = trace.to_string();
        let expected = "pario-sched-trace 1 lost 1\n10 7 post 0 3 9 w 4096 512 held\n11 8 post 0 3 9 r 4096 512\n\
                        20 7 pick 2\n30 7 done 512\n31 8 failed\n";
        assert_eq!(text, expected);
        assert_eq!(text.parse::<Trace>().unwrap(), trace);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [
            ("", 1),
            ("pario-sched-trace 1 lost 0", 1),
            ("pario-sched-trace 2 lost 0\n", 1),
            ("pario-sched-trace 1 lost 0\n1 2 pick x\n", 2),
            ("pario-sched-trace 1 lost 0\n1 2 withdraw\n1 2 post 0 3 9 q 1 2\n", 3),
            ("pario-sched-trace 1 lost 0\n1 2 post 0 3 9 r 1 2 held held\n", 2),
        ] {
            assert_eq!(text.parse::<Trace>().unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let text = "pario-sched-trace 1 lost 0\n1 2 withdraw\n3 4 withdraw\n";
        for end in text.len() - "3 4 withdraw\n".len()..text.len() {
            let trace: Trace = text[..end].parse().unwrap();
            assert_eq!(trace.records().count(), 1, "{end}");
        }
        assert_eq!(text.parse::<Trace>().unwrap().records().count(), 2);
    }

    #[test]
    fn what_is_new_can_be_told() {
        let mut trace = Trace::new(3);
        let sequences =
            |trace: &Trace, noted| trace.after(noted).map(|record| record.sequence).collect::<Vec<_>>();
        assert_eq!((trace.noted(), sequences(&trace, 0)), (0, vec![]));
        (0..2).for_each(|sequence| trace.note(0, sequence, TraceEvent::Withdraw));
        assert_eq!((trace.noted(), sequences(&trace, 1)), (2, vec![1]));
        (2..6).for_each(|sequence| trace.note(0, sequence, TraceEvent::Withdraw));
        assert_eq!((trace.noted(), sequences(&trace, 2)), (6, vec![3, 4, 5]));
        assert_eq!(
            (sequences(&trace, 5), sequences(&trace, 6), sequences(&trace, 9)),
            (vec![5], vec![], vec![])
        );
    }

    #[test]
    fn no_limit_no_records() {
        let mut trace = Trace::new(0);
        trace.note(1, 2, TraceEvent::Withdraw);
        assert_eq!((trace.records().count(), trace.lost()), (0, 0));
    }
}
