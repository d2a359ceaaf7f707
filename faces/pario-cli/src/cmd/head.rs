//! `pario head` and `pario tail`: the first or last lines or bytes of files.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::Args as ClapArgs;
use pario::core::Size;
use pario::partition::Location;
use pario::transfer::SourceFile;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::typed_path;

/// Bytes read at a time.
const CHUNK_BYTES: u64 = 256 << 10;
/// Poll interval of `-f`.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// Arguments of `pario head`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario head pario://scratch/log
  pario head -n 3 pario://scratch/a pario://scratch/b
  pario head -c 1MiB pario://scratch/field > start.bin")]
pub(crate) struct HeadArgs {
    #[command(flatten)]
    common: HeadTailArgs,
}

/// Arguments of `pario tail`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario tail pario://scratch/log
  pario tail -f pario://scratch/log        and what is written from now on, until ^C
  pario tail -c 4096 pario://scratch/field")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    common: HeadTailArgs,
    /// Follow: print appended data; one file only
    #[arg(short, long)]
    follow: bool,
}

#[derive(ClapArgs, Debug)]
struct HeadTailArgs {
    /// The files
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// Number of lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: u64,
    /// Number of bytes instead, as in 4096 or 1MiB
    #[arg(short = 'c', long, value_name = "SIZE", conflicts_with = "lines")]
    bytes: Option<Size>,
}

/// Runs `head`.
pub(crate) fn head(context: &Context, args: &HeadArgs) -> CliResult {
    each(context, &args.common, |source| {
        let end = match args.common.bytes {
            Some(bytes) => source.length()?.min(bytes.0),
            None => end_of_lines(source, args.common.lines)?,
        };
        print(context, source, 0, end)
    })
}

/// Runs `tail`.
pub(crate) fn tail(context: &Context, args: &TailArgs) -> CliResult {
    if args.follow && args.common.places.len() != 1 {
        return Err(CliError::usage("tail -f follows one file"));
    }
    if args.follow {
        context.stop.catch()?;
    }
    each(context, &args.common, |source| {
        let end = source.length()?;
        let start = match args.common.bytes {
            Some(bytes) => end.saturating_sub(bytes.0),
            None => start_of_last_lines(source, end, args.common.lines)?,
        };
        print(context, source, start, end)?;
        if args.follow { follow(context, source, end) } else { Ok(()) }
    })
}

fn each(context: &Context, common: &HeadTailArgs, show: impl Fn(&SourceFile) -> CliResult) -> CliResult {
    let mut failures = Vec::new();
    for (at, text) in common.places.iter().enumerate() {
        let shown = Location::parse(text).map_err(CliError::from).and_then(|location| {
            let place = typed_path::of(&context.mount(&location.partition)?, &location.path);
            let source = SourceFile::open(&place)?;
            if 1 < common.places.len() {
                let gap = if at == 0 { "" } else { "\n" };
                context.line(format!("{gap}==> {} <==", crate::error::one_line(&place.to_string())))?;
            }
            show(&source)
        });
        match shown {
            Ok(()) => {}
            Err(error @ (CliError::OutputClosed | CliError::Interrupted { .. })) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    let done = common.places.len() - failures.len();
    end_of_many(context, failures, done)
}

/// Offset of the end of the first `lines` lines.
fn end_of_lines(source: &SourceFile, lines: u64) -> CliResult<u64> {
    let (mut at, mut left) = (0, lines);
    let mut buffer = buffer();
    while 0 < left {
        let count = source.read_at(at, &mut buffer)?;
        if count == 0 {
            break;
        }
        for (index, _) in buffer[..count].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            left -= 1;
            if left == 0 {
                return Ok(at + index as u64 + 1);
            }
        }
        at += count as u64;
    }
    Ok(at)
}

/// Offset of the start of the last `lines` lines before `end`. A line feed at the very end ends the last line and starts none.
fn start_of_last_lines(source: &SourceFile, end: u64, lines: u64) -> CliResult<u64> {
    if lines == 0 {
        return Ok(end);
    }
    let (mut upto, mut left) = (end.saturating_sub(1), lines);
    let mut buffer = buffer();
    while 0 < upto {
        let from = upto.saturating_sub(CHUNK_BYTES);
        let part = &mut buffer[..usize::try_from(upto - from).unwrap_or(usize::MAX)];
        source.read_exact_at(from, part)?;
        for (index, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            left -= 1;
            if left == 0 {
                return Ok(from + index as u64 + 1);
            }
        }
        upto = from;
    }
    Ok(0)
}

fn print(context: &Context, source: &SourceFile, mut at: u64, end: u64) -> CliResult {
    let mut buffer = buffer();
    while at < end {
        let wanted = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let count = source.read_at(at, &mut buffer[..wanted])?;
        if count == 0 {
            break;
        }
        context.print(|out| out.write_all(&buffer[..count]))?;
        at += count as u64;
    }
    Ok(())
}

fn follow(context: &Context, source: &SourceFile, mut at: u64) -> CliResult {
    loop {
        context.flush()?;
        crate::clock::sleep(FOLLOW_INTERVAL);
        context.stop.check()?;
        let end = source.length()?;
        // A truncated file is shown from its start, as `tail` does.
        at = if end < at { 0 } else { at };
        print(context, source, at, end)?;
        at = end;
    }
}

fn buffer() -> Vec<u8> {
    vec![0; usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)]
}
