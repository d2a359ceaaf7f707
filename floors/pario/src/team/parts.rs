//! Numbered parts, as tasks write them: placed one after the other by number, in whichever order they come.
//!
//! A part with a known offset is written at once; another one is kept, within the limit of the team's buffer, until the parts in front have
//! told their lengths.
//!
//! Never: waits for another part. Always: the pointer moves by all parts, after the last one has been written.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use super::core::TeamCore;
use super::error::{TeamCode, TeamError, TeamResult};
use super::meeting::prefixed;

/// The state of a sequence of parts.
#[derive(Debug, Default)]
pub(super) struct OrderedParts {
    /// Parts of the sequence; 0: none has begun.
    parts: u64,
    /// Where the sequence begins.
    base: u64,
    /// Parts with known offsets, and the end of the last one.
    placed: u64,
    end: u64,
    /// Lengths of parts behind the first missing one, with their bytes.
    kept: BTreeMap<u64, Arc<Vec<u8>>>,
    kept_bytes: u64,
    /// Parts that are written.
    written: u64,
    failed: bool,
}

impl OrderedParts {
    /// The pointer is not known while parts are missing.
    pub(super) fn check_whole(&self) -> TeamResult<()> {
        if self.parts == 0 {
            return Ok(());
        }
        let text =
            format!("part {} of {} has not been written: the pointer is unknown", self.placed, self.parts);
        Err(TeamError::new(TeamCode::BadArgument, text))
    }

    fn check(&self, part: u64, parts: u64) -> TeamResult<()> {
        let refuse = |code, text: String| Err(TeamError::new(code, text));
        if parts <= part {
            return refuse(
                TeamCode::BadArgument,
                format!("part {part} of {parts}: parts are counted from 0"),
            );
        }
        if self.parts != 0 && self.parts != parts {
            return refuse(
                TeamCode::NotSame,
                format!("part {part} of {parts}: earlier parts are of {}", self.parts),
            );
        }
        if self.parts != 0 && (part < self.placed || self.kept.contains_key(&part)) {
            return refuse(TeamCode::BadArgument, format!("part {part} of {parts} has been written already"));
        }
        Ok(())
    }
}

impl TeamCore {
    /// Writes one part of a sequence of `parts`, without waiting for others.
    pub(super) fn write_part(&self, bytes: &[u8], part: u64, parts: u64) -> TeamResult<()> {
        self.check_process()?;
        self.check_writable("write_part")?;
        let mut state = self.lock();
        if state.is_closed {
            return Err(self.closed());
        }
        if let Some(error) = state.deferred.take() {
            return Err(error);
        }
        state.parts.check(part, parts).map_err(|error| prefixed(&self.name, error))?;
        if state.parts.parts == 0 {
            let last = state.rounds.back().map_or(0, |round| round.number + 1);
            let base = state.base_of(last).ok_or_else(|| self.undecided())?;
            state.parts = OrderedParts { parts, base, end: base, ..OrderedParts::default() };
        }
        if state.parts.placed < part {
            let limit = self.buffer_bytes;
            let sequence = &mut state.parts;
            if limit < sequence.kept_bytes + bytes.len() as u64 {
                let text = format!(
                    "{}: part {part} of {parts} cannot be kept: part {} is missing and {} bytes are kept (setting `buffer`)",
                    self.name, sequence.placed, sequence.kept_bytes
                );
                return Err(TeamError::new(TeamCode::Other(pario_core::Code::TooMany), text));
            }
            sequence.kept_bytes += bytes.len() as u64;
            sequence.kept.insert(part, Arc::new(bytes.to_vec()));
            super::counts::add(&self.counters.copied_bytes, bytes.len() as u64);
            return Ok(());
        }
        let at = state.parts.end;
        super::call::check_end(at, bytes.len() as u64).map_err(|error| prefixed(&self.name, error))?;
        state.parts.end += bytes.len() as u64;
        state.parts.placed += 1;
        let mut behind = Vec::new();
        // Kept parts behind this one have their offsets now.
        loop {
            let next = state.parts.placed;
            let Some(kept) = state.parts.kept.remove(&next) else { break };
            behind.push((state.parts.end, Arc::clone(&kept)));
            state.parts.end += kept.len() as u64;
            state.parts.kept_bytes -= kept.len() as u64;
            state.parts.placed += 1;
        }
        drop(state);
        super::counts::add(&self.counters.parts, 1);
        let own = self.target.write(at, &mut [IoSlice::new(bytes)]);
        let own = own.map_err(|error| prefixed(&self.name, error));
        let count = 1 + behind.len() as u64;
        let others = behind.iter().map(|(at, kept)| self.target.write(*at, &mut [IoSlice::new(kept)]));
        let mut failed = None;
        for error in others.filter_map(Result::err) {
            failed.get_or_insert(prefixed(&self.name, error));
        }
        self.parts_written(count, own.is_err(), failed);
        own
    }

    /// Counts written parts; the last one moves the pointer. Errors of kept parts are told by the next call.
    fn parts_written(&self, count: u64, own_failed: bool, others: Option<TeamError>) {
        let mut state = self.lock();
        state.parts.written += count;
        state.parts.failed |= own_failed || others.is_some();
        if let Some(error) = others {
            state.deferred.get_or_insert(error);
        }
        if state.parts.written == state.parts.parts {
            let moved = if state.parts.failed { 0 } else { state.parts.end - state.parts.base };
            state.pointer += moved;
            state.parts = OrderedParts::default();
        }
        self.tell(&mut state);
    }

    fn undecided(&self) -> TeamError {
        let text = format!("{}: a collective call has not ended: the pointer is unknown", self.name);
        TeamError::new(TeamCode::BadArgument, text)
    }
}
