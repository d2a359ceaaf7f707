//! Streams: standard input and output, pipes, devices. Read to the end, or written directly.
//!
//! Never: renames over a pipe or a device. Always: a file made from a stream gets its name when the stream has ended; signals
//! are checked at least every 100 ms while no data arrives.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use pario::core::AttrChange;
use pario::transfer::{
    Copied, CopyPair, Durability, LinkPolicy, NewFile, Observer, PIECE_BYTES, SourceFile, TreePath,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::error::{CliError, CliResult};
use crate::progress::CopyProgress;
use crate::signals::Stop;

/// Interval of signal checks while waiting for data.
const SIGNAL_POLL_NS: i64 = 100_000_000;

/// Whether a path is a stream: `-`, or an entry that is neither file nor directory.
pub(crate) fn is_stream(place: &TreePath) -> CliResult<bool> {
    if !place.is_local() {
        return Ok(false);
    }
    if is_standard_name(place) {
        return Ok(true);
    }
    Ok(place.stat_if_exists(LinkPolicy::Follow)?.is_some_and(|stat| stat.kind.is_none()))
}

/// Whether the path is standard output.
pub(crate) fn is_standard_output(place: &TreePath) -> bool {
    place.is_local() && (place.path == Path::new("-") || place.path == Path::new("/dev/stdout"))
}

/// Names of this process's own streams: opened again, a file behind them would be written from its start.
pub(crate) fn is_standard_name(place: &TreePath) -> bool {
    let names = ["-", "/dev/stdin", "/dev/stdout", "/dev/stderr"];
    place.is_local() && names.iter().any(|name| place.path == Path::new(name))
}

/// Copies one source to one target, at least one of them a stream. Signals are caught only if a partial file would have to be removed.
pub(crate) fn copy_stream(pair: &CopyPair, progress: &CopyProgress, stop: &Stop) -> CliResult<Copied> {
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
    progress.copied(&pair.from, &pair.to);
    Ok(Copied { files: 1, bytes, ..Copied::default() })
}

/// The file that a stream is copied to; a directory is refused, since a stream has no name.
fn file_behind(to: &TreePath) -> CliResult<TreePath> {
    if to.has_slash() || to.is_directory()? {
        let text = format!("{to}: is a directory, and a stream has no name to get there");
        return Err(CliError::with_cure(text, "give the name of a file"));
    }
    Ok(to.behind_links()?)
}

fn into_stream(from: &mut Input, to: &TreePath, (progress, stop): (&CopyProgress, &Stop)) -> CliResult<u64> {
    let mut target = open_output(to)?;
    let failed = |error: io::Error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CliError::OutputClosed;
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

fn into_file(from: &mut Input, to: &TreePath, (progress, stop): (&CopyProgress, &Stop)) -> CliResult<u64> {
    let there = to.stat_if_exists(LinkPolicy::Follow)?;
    let mode = Some(there.map_or_else(mode_of_new_files, |stat| stat.mode & 0o777));
    let target = NewFile::create(to)?;
    let bytes = fill(from, &target, (progress, stop))?;
    target.finish(bytes, Durability::Closed)?;
    target.set_attr(AttrChange { mode, ..AttrChange::default() })?;
    stop.check()?;
    target.publish()?;
    Ok(bytes)
}

fn fill(from: &mut Input, target: &NewFile, (progress, stop): (&CopyProgress, &Stop)) -> CliResult<u64> {
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

/// Permission bits of new files under the user's umask.
fn mode_of_new_files() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    0o666 & !mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

/// A standard stream of this process, unbuffered.
fn own(stream: impl AsFd) -> CliResult<fs::File> {
    let fd = stream.as_fd().try_clone_to_owned();
    Ok(fd.map_err(|error| CliError::failed(format!("a standard stream cannot be used: {error}")))?.into())
}

fn open_output(to: &TreePath) -> CliResult<fs::File> {
    if is_standard_output(to) {
        return own(io::stdout());
    }
    if to.path == Path::new("/dev/stderr") {
        return own(io::stderr());
    }
    let file = fs::OpenOptions::new().write(true).open(&to.path);
    file.map_err(|error| CliError::local(&to.path, &error))
}

/// Source of a stream copy.
enum Input {
    /// A file, from its start.
    File(SourceFile),
    /// Standard input, a pipe or a device.
    Stream(fs::File, TreePath),
}

impl Input {
    fn open(from: &TreePath) -> CliResult<Input> {
        if !is_stream(from)? {
            if from.stat(LinkPolicy::Follow)?.is_directory() {
                return Err(CliError::failed(format!("{from}: is a directory, and a stream takes files")));
            }
            return Ok(Input::File(SourceFile::open(from)?));
        }
        if from.path == Path::new("-") || from.path == Path::new("/dev/stdin") {
            return Ok(Input::Stream(own(io::stdin())?, from.clone()));
        }
        let file = fs::File::open(&from.path).map_err(|error| CliError::local(&from.path, &error))?;
        Ok(Input::Stream(file, from.clone()))
    }

    /// The next piece from `at` on; empty at the end.
    fn next<'a>(&mut self, at: u64, buffer: &'a mut Vec<u8>, stop: &Stop) -> CliResult<&'a [u8]> {
        stop.check()?;
        buffer.resize(usize::try_from(PIECE_BYTES).unwrap_or(1 << 20), 0);
        let count = match self {
            Input::File(source) => source.read_at(at, buffer)?,
            Input::Stream(file, place) => read_full(file, buffer, (&place.path, stop))?,
        };
        Ok(&buffer[..count])
    }
}

/// Reads until the buffer is full or the stream ends; checks signals while waiting.
fn read_full(stream: &mut fs::File, buffer: &mut [u8], (path, stop): (&Path, &Stop)) -> CliResult<usize> {
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

/// Waits until the stream is readable; a descriptor that cannot be polled counts as readable.
fn wait_readable(stream: &impl AsFd, stop: &Stop) -> CliResult {
    loop {
        stop.check()?;
        let limit = Timespec { tv_sec: 0, tv_nsec: SIGNAL_POLL_NS };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}
