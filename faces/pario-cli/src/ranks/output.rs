//! Output of ranks, line by line: a line holds the output of one rank only.
//!
//! Never: keeps more than one piece of a line in memory; waits more than 1 s for a process that a rank left behind.

use std::io::{Read, Write};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::clock::Stopwatch;

/// A longer line is printed in pieces.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Time limit for output after all ranks have ended: a process left behind by a rank may hold the pipe open.
const OUTPUT_WAIT: Duration = Duration::from_secs(1);

/// Forwarding threads.
#[derive(Debug)]
pub(super) struct Output {
    ends: Receiver<()>,
    left: usize,
}

#[derive(Clone, Debug)]
enum OutputTarget {
    Out,
    Error,
    /// Complete lines, one or more per message.
    Lines(Sender<Vec<u8>>),
}

impl OutputTarget {
    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            OutputTarget::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(bytes)?;
                out.flush()
            }
            OutputTarget::Error => std::io::stderr().lock().write_all(bytes),
            OutputTarget::Lines(lines) => {
                lines.send(bytes.to_owned()).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl Output {
    /// Forwards the output of all ranks, standard output to `lines` if given; with `tag`, lines begin with the rank.
    pub(super) fn start(children: &mut [Child], tag: bool, lines: Option<&Sender<Vec<u8>>>) -> Output {
        let (ended, ends) = mpsc::channel();
        let printed = lines.map_or(OutputTarget::Out, |lines| OutputTarget::Lines(lines.clone()));
        let mut left = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            let tag = if tag { format!("[{rank}] ") } else { String::new() };
            let sources: [(Option<Box<dyn Read + Send>>, OutputTarget); 2] = [
                (child.stdout.take().map(|out| Box::new(out) as _), printed.clone()),
                (child.stderr.take().map(|error| Box::new(error) as _), OutputTarget::Error),
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

    /// Waits until all output is forwarded, at most `OUTPUT_WAIT`.
    pub(super) fn finish(mut self) {
        let began = Stopwatch::now();
        while 0 < self.left && self.ends.recv_timeout(OUTPUT_WAIT.saturating_sub(began.elapsed())).is_ok() {
            self.left -= 1;
        }
    }
}

/// Forwards to the end, or until a write fails: then the source is closed, and the writer gets SIGPIPE or EPIPE.
fn pass_on(mut source: impl Read, tag: &str, mut write: impl FnMut(&[u8]) -> std::io::Result<()>) {
    let mut lines = LineAssembler::new(tag);
    let mut piece = vec![0; LINE_BYTES_MAX];
    loop {
        let count = match source.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        let ready = if count == 0 { lines.remainder() } else { lines.add(&piece[..count]) };
        if (!ready.is_empty() && write(&ready).is_err()) || count == 0 {
            return;
        }
    }
}

/// Assembles lines from pieces.
#[derive(Debug)]
struct LineAssembler<'a> {
    tag: &'a str,
    unfinished: Vec<u8>,
}

impl LineAssembler<'_> {
    fn new(tag: &str) -> LineAssembler<'_> {
        LineAssembler { tag, unfinished: Vec::new() }
    }

    /// The lines completed by this piece.
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

    /// The rest without a line feed; one is added, so that the next rank starts a new line.
    fn remainder(&mut self) -> Vec<u8> {
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
            let (mut lines, mut shown) = (LineAssembler::new("[3] "), Vec::new());
            for piece in text.chunks(step) {
                shown.extend(lines.add(piece));
            }
            shown.extend(lines.remainder());
            assert_eq!(String::from_utf8(shown).unwrap(), "[3] one\n[3] two\n[3] \n[3] last\n");
            assert!(lines.remainder().is_empty());
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut lines = LineAssembler::new("");
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
