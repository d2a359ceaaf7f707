//! Bytes without a name: standard input and output, pipes, devices. Read to the end, or written straight into.
//!
//! Never: renames over a pipe or a device. Always: a file made from a stream gets its name when the stream has ended; a signal
//! is heeded also while nothing comes.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use pario::core::FileKind;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::data::{Durability, Source, Target};
use super::file::temporary_place;
use super::{Copied, PIECE_BYTES, Pair, Progress};
use crate::error::{CliError, Outcome};
use crate::place::{Links, Place, Tree};
use crate::signals::Stop;

/// How often a wait for more bytes looks for signals.
const LOOK_NS: i64 = 100_000_000;

/// Whether a place is a stream: `-`, or what is there is neither file nor directory.
pub(crate) fn is_stream(place: &Place) -> Outcome<bool> {
    if !matches!(place.tree, Tree::Local) {
        return Ok(false);
    }
    if is_standard_name(place) {
        return Ok(true);
    }
    Ok(place.look(Links::Follow)?.is_some_and(|facts| facts.kind.is_none()))
}

/// Whether writing there writes to standard output.
pub(crate) fn is_standard_output(place: &Place) -> bool {
    matches!(place.tree, Tree::Local)
        && (place.path == Path::new("-") || place.path == Path::new("/dev/stdout"))
}

/// Names of this process's own streams: opened again, a file behind them would be written from its start.
pub(crate) fn is_standard_name(place: &Place) -> bool {
    let names = ["-", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
    matches!(place.tree, Tree::Local) && names.iter().any(|name| place.path == Path::new(name))
}

/// Copies one source to one target, at least one of which is a stream. Signals are caught only if there is something to remove.
pub(crate) fn copy_stream(pair: &Pair, progress: &Progress, stop: &Stop) -> Outcome<Copied> {
    let (to, removable) = match is_stream(&pair.to)? {
        true => (pair.to.clone(), false),
        false => (file_behind(&pair.to)?, true),
    };
    let mut from = Input::open(&pair.from)?;
    let bytes = if removable {
        stop.catch()?;
        into_file(&mut from, &to, (progress, stop))?
    } else {
        into_stream(&mut from, &to, (progress, stop))?
    };
    progress.copied(pair);
    Ok(Copied { files: 1, bytes, ..Copied::default() })
}

/// The file that a stream goes into; a directory cannot take what has no name.
fn file_behind(to: &Place) -> Outcome<Place> {
    if to.has_slash() || to.is_directory()? {
        let text = format!("{to}: is a directory, and a stream has no name to get there");
        return Err(CliError::with_cure(text, "give the name of a file"));
    }
    to.behind_links()
}

fn into_stream(from: &mut Input, to: &Place, (progress, stop): (&Progress, &Stop)) -> Outcome<u64> {
    let mut target = open_output(to)?;
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CliError::NobodyReads;
        }
        CliError::local(&to.path, &error)
    };
    let (mut buffer, mut at) = (Vec::new(), 0);
    loop {
        let data = from.next(at, &mut buffer, stop)?;
        if data.is_empty() {
            return Ok(at);
        }
        target.write_all(data).map_err(failed)?;
        at += data.len() as u64;
        progress.moved(data.len() as u64);
    }
}

fn into_file(from: &mut Input, to: &Place, (progress, stop): (&Progress, &Stop)) -> Outcome<u64> {
    let there = to.look(Links::Follow)?;
    let mode = there.map_or_else(mode_of_new_files, |facts| facts.mode & 0o777);
    let temporary = temporary_place(to);
    let target = Target::create(&temporary, to)?;
    let moved = fill(from, &target, (progress, stop)).and_then(|bytes| {
        target.finish(bytes, Durability::Closed)?;
        temporary.set_mode(mode)?;
        stop.check()?;
        temporary.rename(to)?;
        Ok(bytes)
    });
    if moved.is_err() {
        target.abandon();
        // The first error is the one to tell.
        if let Err(error) = temporary.remove_file() {
            tracing::info!("{error}: a part of a copy stays behind under this name");
        }
    }
    moved.map_err(|error| error.called(&temporary, to))
}

fn fill(from: &mut Input, target: &Target, (progress, stop): (&Progress, &Stop)) -> Outcome<u64> {
    let (mut buffer, mut at) = (Vec::new(), 0);
    loop {
        let data = from.next(at, &mut buffer, stop)?;
        if data.is_empty() {
            return Ok(at);
        }
        target.write_at(at, data)?;
        at += data.len() as u64;
        progress.moved(data.len() as u64);
    }
}

/// What the user's mask leaves of the usual bits.
fn mode_of_new_files() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    0o666 & !mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

/// One of this process's streams without the buffer that belongs to it.
fn own(stream: impl AsFd) -> Outcome<fs::File> {
    let fd = stream.as_fd().try_clone_to_owned();
    Ok(fd.map_err(|error| CliError::failed(format!("a standard stream cannot be used: {error}")))?.into())
}

fn open_output(to: &Place) -> Outcome<fs::File> {
    if is_standard_output(to) {
        return own(io::stdout());
    }
    if to.path == Path::new("/dev/stderr") {
        return own(io::stderr());
    }
    let file = fs::OpenOptions::new().write(true).open(&to.path);
    file.map_err(|error| CliError::local(&to.path, &error))
}

/// What is read.
enum Input {
    /// A file, from its start.
    File(Source),
    /// Standard input, a pipe or a device.
    Stream(fs::File, Place),
}

impl Input {
    fn open(from: &Place) -> Outcome<Input> {
        if !is_stream(from)? {
            if from.facts(Links::Follow)?.kind == Some(FileKind::Directory) {
                return Err(CliError::failed(format!("{from}: is a directory, and a stream takes files")));
            }
            return Ok(Input::File(Source::open(from)?));
        }
        if from.path == Path::new("-") || from.path == Path::new("/dev/stdin") {
            return Ok(Input::Stream(own(io::stdin())?, from.clone()));
        }
        let file = fs::File::open(&from.path).map_err(|error| CliError::local(&from.path, &error))?;
        Ok(Input::Stream(file, from.clone()))
    }

    /// The bytes from `at` on, a piece at most; none at the end.
    fn next<'a>(&mut self, at: u64, buffer: &'a mut Vec<u8>, stop: &Stop) -> Outcome<&'a [u8]> {
        stop.check()?;
        buffer.resize(usize::try_from(PIECE_BYTES).unwrap_or(1 << 20), 0);
        let count = match self {
            Input::File(source) => source.read_at(at, buffer)?,
            Input::Stream(file, place) => read_full(file, buffer, (&place.path, stop))?,
        };
        Ok(&buffer[..count])
    }
}

/// Reads until the buffer is full or the stream ends; waits with open ears.
fn read_full(stream: &mut fs::File, buffer: &mut [u8], (path, stop): (&Path, &Stop)) -> Outcome<usize> {
    let mut done = 0;
    while done < buffer.len() {
        wait_readable(stream, stop)?;
        match stream.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CliError::local(path, &error)),
        }
    }
    Ok(done)
}

/// Waits until a read would not; what cannot be waited for is just read.
fn wait_readable(stream: &impl AsFd, stop: &Stop) -> Outcome {
    loop {
        stop.check()?;
        let limit = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}
