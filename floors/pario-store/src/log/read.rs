//! Reading: segments of data logs into the caller's memory.
//!
//! Never: reads a byte of a log twice in one call, except in gaps. Always: bytes without a segment are zeros.

use super::container::ContainerCore;
use super::error::{LogError, at};
use super::index::Segment;
use super::marker::data_path;

/// Segments of at least this size are read straight into the target.
const DIRECT_BYTES_MIN: u64 = 8 << 10;
/// Smaller ones that lie so close in a log are read together.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Bytes that are read together.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// Fills `target`, which begins at `offset` of the file, from ascending segments.
pub(super) fn fill(
    core: &ContainerCore,
    segments: &[Segment],
    offset: u64,
    target: &mut [u8],
) -> Result<(), LogError> {
    let position = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
    let mut filled = 0;
    let mut small = Vec::new();
    for segment in segments {
        let (start, end) = (position(segment.offset), position(segment.end()));
        target[filled..start].fill(0);
        filled = end;
        if DIRECT_BYTES_MIN <= segment.length {
            read_log(core, segment, &mut target[start..end])?;
        } else {
            small.push(*segment);
        }
    }
    target[filled..].fill(0);
    small.sort_unstable_by_key(|segment| (segment.writer, segment.place));
    let mut buffer = Vec::new();
    for run in small.chunk_by(|one, next| {
        let end = one.place + one.length;
        one.writer == next.writer && next.place.saturating_sub(end) <= GAP_BYTES_MAX
    }) {
        read_run(
            core,
            run,
            &mut buffer,
            |segment| position(segment.offset)..position(segment.end()),
            target,
        )?;
    }
    Ok(())
}

/// Reads segments that lie close to each other in one log, in steps.
fn read_run(
    core: &ContainerCore,
    mut run: &[Segment],
    buffer: &mut Vec<u8>,
    position: impl Fn(&Segment) -> std::ops::Range<usize>,
    target: &mut [u8],
) -> Result<(), LogError> {
    while let Some(first) = run.first() {
        let is_near = |segment: &&Segment| segment.place + segment.length - first.place <= RUN_BYTES_MAX;
        let (step, rest) = run.split_at(run.iter().take_while(is_near).count().max(1));
        run = rest;
        if let [only] = step {
            read_log(core, only, &mut target[position(only)])?;
            continue;
        }
        let end = step.iter().map(|segment| segment.place + segment.length).max().unwrap_or(first.place);
        let span = Segment { length: end - first.place, ..*first };
        buffer.resize(usize::try_from(span.length).unwrap_or(usize::MAX), 0);
        read_log(core, &span, buffer)?;
        for segment in step {
            let from = usize::try_from(segment.place - first.place).unwrap_or(usize::MAX);
            let target = &mut target[position(segment)];
            target.copy_from_slice(&buffer[from..from + target.len()]);
        }
    }
    Ok(())
}

/// The bytes of a segment.
fn read_log(core: &ContainerCore, segment: &Segment, target: &mut [u8]) -> Result<(), LogError> {
    let path = || data_path(&core.dir, segment.writer);
    let log = core.log(segment.writer)?;
    let count = log.read_at(target, segment.place).map_err(|error| at("reading", &path())(error))?;
    if count < target.len() {
        return Err(LogError::Short { path: path(), offset: segment.place + count as u64 });
    }
    Ok(())
}
