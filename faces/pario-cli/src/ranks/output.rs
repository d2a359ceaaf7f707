//! What ranks print, line by line: lines of several ranks are never mixed within a line.
//!
//! Never: keeps more than one piece of a line in memory; waits for long for a process that a rank left behind.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::clock::Began;

/// A longer line is printed in pieces.
const LINE_BYTES_MAX: usize = 64 << 10;
/// How long output may take to come after all ranks have ended: a process that a rank left behind may hold it open for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Threads that pass output on.
#[derive(Debug)]
pub(super) struct Output {
    ends: Receiver<()>,
    left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Out,
    Error,
}

impl Target {
    fn write(self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Target::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            Target::Error => std::io::stderr().lock().write_all(bytes),
        }
    }
}

impl Output {
    /// Passes the output of all ranks on; with `tag`, lines begin with the rank.
    pub(super) fn start(children: &mut [Child], tag: bool) -> Output {
        let (ended, ends) = mpsc::channel();
        let mut left = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            let tag = if tag { format!("[{rank}] ") } else { String::new() };
            let sources: [(Option<Box<dyn Read + Send>>, Target); 2] = [
                (child.stdout.take().map(|out| Box::new(out) as _), Target::Out),
                (child.stderr.take().map(|error| Box::new(error) as _), Target::Error),
            ];
            for (source, target) in sources {
                let Some(source) = source else { continue };
                let (tag, ended) = (tag.clone(), ended.clone());
                let pass = move || {
                    pass_on(source, &tag, |bytes| target.write(bytes));
                    let _ = ended.send(());
                };
                match std::thread::Builder::new().name(format!("output-{rank}")).spawn(pass) {
                    Ok(_) => left += 1,
                    Err(error) => tracing::error!(%error, "output of rank {rank} is not shown"),
                }
            }
        }
        Output { ends, left }
    }

    /// Waits until everything has been passed on, or for a moment.
    pub(super) fn finish(mut self) {
        let began = Began::now();
        while 0 < self.left && self.ends.recv_timeout(LAST_WORDS.saturating_sub(began.elapsed())).is_ok() {
            self.left -= 1;
        }
    }
}

/// Reads to the end, or until nobody takes it: then the source is closed, and whoever writes is told in the usual way.
fn pass_on(mut source: impl Read, tag: &str, mut write: impl FnMut(&[u8]) -> std::io::Result<()>) {
    let mut lines = Lines::new(tag);
    let mut piece = vec![0; LINE_BYTES_MAX];
    loop {
        let count = match source.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let ready = if count == 0 { lines.rest() } else { lines.add(&piece[..count]) };
        if (!ready.is_empty() && write(&ready).is_err()) || count == 0 {
            return;
        }
    }
}

/// Whole lines out of pieces.
#[derive(Debug)]
struct Lines<'a> {
    tag: &'a str,
    unfinished: Vec<u8>,
}

impl Lines<'_> {
    fn new(tag: &str) -> Lines<'_> {
        Lines { tag, unfinished: Vec::new() }
    }

    /// The lines that are whole with this piece.
    fn add(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut ready = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.take(&mut ready);
            } else if LINE_BYTES_MAX <= self.unfinished.len() {
                self.unfinished.push(b'\n');
                self.take(&mut ready);
            }
        }
        ready
    }

    /// What is left without an end; it gets one, so that the next rank begins its own line.
    fn rest(&mut self) -> Vec<u8> {
        let mut ready = Vec::new();
        if !self.unfinished.is_empty() {
            self.unfinished.push(b'\n');
            self.take(&mut ready);
        }
        ready
    }

    fn take(&mut self, ready: &mut Vec<u8>) {
        ready.extend_from_slice(self.tag.as_bytes());
        ready.append(&mut self.unfinished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let text = b"one\ntwo\n\nlast";
        for step in 1..=text.len() {
            let (mut lines, mut shown) = (Lines::new("[3] "), Vec::new());
            for piece in text.chunks(step) {
                shown.extend(lines.add(piece));
            }
            shown.extend(lines.rest());
            assert_eq!(String::from_utf8(shown).unwrap(), "[3] one\n[3] two\n[3] \n[3] last\n");
            assert!(lines.rest().is_empty());
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut lines = Lines::new("");
        let shown: usize = (0..10).map(|_| lines.add(&[b'x'; LINE_BYTES_MAX]).len()).sum();
        assert_eq!(shown, 10 * (LINE_BYTES_MAX + 1));
    }

    #[test]
    fn when_nobody_takes_it_the_source_is_closed() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"a line\n").unwrap();
        pass_on(reader, "", |_| Err(std::io::ErrorKind::BrokenPipe.into()));
        assert_eq!(writer.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
