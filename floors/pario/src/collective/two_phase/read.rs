//! Two-phase read: every rank sends the list of its wanted bytes of each window; the aggregator reads them, and each rank copies
//! its pieces out.
//!
//! Never: reads unwanted bytes, except holes that cost less to read than another call; returns bytes behind the end of the
//! file. Always: the next window is read before the last one is copied out, so that ranks do not wait for it.

use std::ops::Range;

use pario_core::{Code, Fault};

use super::Buffers;
use super::counts::TwoPhaseCounters;
use super::cover::CoverBitmap;
use super::exchange::{Exchange, OutgoingLists};
use super::list::{Content, ENTRY_BYTES, RankRange, entries};
use super::plan::TwoPhasePlan;
use super::remote_rank::FILL_BYTES;
use super::segment::{self, COPIED_OUT, FILLED};
use super::target::AggregatorTarget;
use super::wire::{RankFrame, RankFrameHeader, RankFrameKind};
use crate::error::Result;

/// A hole of this size costs as much to read as another call.
const SIEVE_BYTES: usize = 16 << 10;
/// A hole of this size costs as much to send as another entry.
const SEND_GAP_BYTES: usize = 2 * ENTRY_BYTES;

/// One call.
pub(super) struct TwoPhaseRead<'a> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) buffers: &'a mut Buffers,
    pub(super) plan: &'a TwoPhasePlan,
    pub(super) reach: &'a RankRange<'a>,
    pub(super) memory: &'a mut [u8],
    pub(super) target: &'a dyn AggregatorTarget,
    pub(super) counters: &'a TwoPhaseCounters,
    /// The smallest end of the file that any aggregator saw.
    pub(super) file_end: Option<u64>,
}

impl TwoPhaseRead<'_> {
    /// Executes the call; returns the bytes read. The fault is equal on all ranks; an error means that the exchange is broken.
    pub(super) fn run(&mut self) -> Result<(usize, Option<Fault>)> {
        let rounds = self.plan.iterations();
        let mut fault = None;
        for round in 0..=rounds {
            if round < rounds {
                self.send_lists(round)?;
                let filled = self.fill(round)?;
                fault = fault.or(filled);
            }
            if 0 < round {
                self.copy_out(round - 1)?;
            }
        }
        // Frames of the last iterations must have arrived before any rank returns.
        self.wait_copied_out(self.number(rounds))?;
        self.exchange.rounds = self.number(rounds);
        let fault = self.exchange.finish(fault)?;
        let count = self
            .file_end
            .map_or(self.reach.stream.end - self.reach.stream.start, |end| self.reach.bytes_before(end));
        Ok((usize::try_from(count).expect("inside the caller's memory"), fault))
    }

    /// The number of an iteration, counted over all calls of this exchange.
    fn number(&self, round: u64) -> u32 {
        self.exchange.rounds.wrapping_add(low(round))
    }

    /// Sends lists, and, as an aggregator, receives the lists of all others.
    fn send_lists(&mut self, round: u64) -> Result<()> {
        let (plan, reach) = (self.plan, self.reach);
        let lists =
            (0..self.exchange.aggregators.len()).map(|at| reach.list(plan.window(at, round))).collect();
        let mut out = OutgoingLists { lists, content: Content::List, is_out: false };
        self.exchange.publish(&mut out, &[])?;
        if self.exchange.aggregator_index.is_some() {
            self.buffers.clear_wanted();
        }
        for rank in 0..self.exchange.size() {
            if rank == self.exchange.me() {
                while !out.is_out {
                    self.exchange.publish(&mut out, &[])?;
                }
                self.mark_own(round);
            } else if self.exchange.aggregator_index.is_some() {
                self.receive_wanted(rank, round)?;
            }
        }
        Ok(())
    }

    fn mark_own(&mut self, round: u64) {
        let Some(place) = self.exchange.aggregator_index else { return };
        for piece in self.reach.list(self.plan.window(place, round)) {
            self.buffers.cover.add(piece.window);
        }
    }

    fn receive_wanted(&mut self, rank: usize, round: u64) -> Result<()> {
        let bytes = self.exchange.aggregator_index.map_or(0, |place| self.plan.window_bytes(place, round));
        loop {
            let step = self.exchange.next_step(rank, &mut self.buffers.list)?;
            let Buffers { cover, near, far, list, window, .. } = &mut *self.buffers;
            let wishes = if self.exchange.is_remote(rank) {
                far[rank].get_or_insert_with(|| CoverBitmap::new(window.len()))
            } else {
                &mut *near
            };
            for entry in entries(list, bytes) {
                let entry = entry.map_err(|fault| fault.at(format!("rank {rank}")))?;
                wishes.add(entry.clone());
                cover.add(entry);
            }
            self.exchange.release_step(rank, &step)?;
            if step.last {
                return Ok(());
            }
        }
    }

    /// As an aggregator: reads the wanted bytes of a window and publishes them.
    fn fill(&mut self, round: u64) -> Result<Option<Fault>> {
        let Some(place) = self.exchange.aggregator_index else { return Ok(None) };
        let window = self.plan.window(place, round);
        let read = self.read_window(window.start);
        let (end, fault) = read.map_or_else(|fault| (None, Some(fault)), |end| (end, None));
        self.file_end = least(self.file_end, end);
        let (number, filled) = (self.number(round), self.number(round).wrapping_add(1));
        self.copy_own(window.clone(), end);
        // The buffer of the window is in use until all ranks have copied out the window before the last.
        if 2 <= round {
            self.wait_copied_out(filled.wrapping_sub(2))?;
        }
        let at = self.exchange.layout.window(number);
        for run in self.buffers.near.runs(SEND_GAP_BYTES) {
            self.exchange.own_windows().write(at + run.start, &self.buffers.window[run]);
        }
        segment::put_file_end(self.exchange.own(), number, end);
        self.exchange.post(FILLED, filled);
        self.send_window(number, valid_bytes(&window, end))?;
        let head = RankFrameHeader {
            extra: end.unwrap_or(u64::MAX),
            ..RankFrameHeader::short(RankFrameKind::Filled, filled)
        };
        self.exchange.send_all(head, &[])?;
        Ok(fault)
    }

    /// Reads the wanted runs; returns the end of the file if it was reached.
    fn read_window(&mut self, start: u64) -> std::result::Result<Option<u64>, Fault> {
        let Buffers { window, cover, .. } = &mut *self.buffers;
        for run in cover.runs(SIEVE_BYTES) {
            self.counters.access(run.len());
            let offset = start + run.start as u64;
            let wanted = run.len();
            let count = self.target.read_at(offset, &mut window[run])?;
            if count < wanted {
                return Ok(Some(offset + count as u64));
            }
        }
        Ok(None)
    }

    fn copy_own(&mut self, window: Range<u64>, end: Option<u64>) {
        let valid = valid_bytes(&window, end);
        for piece in self.reach.list(window) {
            let bytes = piece.window.len().min(valid.saturating_sub(piece.window.start));
            let (from, to) = (piece.window.start, piece.memory.start);
            self.memory[to..to + bytes].copy_from_slice(&self.buffers.window[from..from + bytes]);
        }
    }

    /// Sends the wanted bytes of the window to ranks of other nodes.
    fn send_window(&mut self, number: u32, valid: usize) -> Result<()> {
        let head = RankFrameHeader::short(RankFrameKind::Fill, number);
        for rank in 0..self.exchange.size() {
            let Some(wishes) = &self.buffers.far[rank] else { continue };
            let (mut list, mut parts, mut bytes) = (Vec::new(), Vec::new(), 0);
            let wanted = wishes.runs(SEND_GAP_BYTES).map(|run| run.start.min(valid)..run.end.min(valid));
            for run in wanted.flat_map(|run| cut(run, FILL_BYTES)) {
                if FILL_BYTES < bytes + run.len() || FILL_BYTES < list.len() + ENTRY_BYTES {
                    self.exchange.send(rank, RankFrame { head, list: &list, data: &parts })?;
                    (list, parts, bytes) = (Vec::new(), Vec::new(), 0);
                }
                list.extend_from_slice(&u32::try_from(run.start).expect("windows are small").to_le_bytes());
                list.extend_from_slice(&u32::try_from(run.len()).expect("windows are small").to_le_bytes());
                bytes += run.len();
                parts.push(&self.buffers.window[run]);
            }
            if !list.is_empty() {
                self.exchange.send(rank, RankFrame { head, list: &list, data: &parts })?;
            }
        }
        Ok(())
    }

    /// Copies this rank's pieces of an iteration out of all aggregators' windows.
    fn copy_out(&mut self, round: u64) -> Result<()> {
        let number = self.number(round);
        for index in 0..self.exchange.aggregators.len() {
            let rank = self.exchange.aggregators[index];
            let window = self.plan.window(index, round);
            let mut pieces = self.reach.list(window.clone()).peekable();
            if rank == self.exchange.me() || pieces.peek().is_none() {
                continue;
            }
            self.exchange.wait(rank, FILLED, number.wrapping_add(1))?;
            let segment = self.exchange.memory(rank).expect("aggregators are seen by all");
            let end = segment::file_end(segment, number);
            self.file_end = least(self.file_end, end);
            let valid = valid_bytes(&window, end);
            let at = self.exchange.layout.window(number);
            let filled = self.exchange.windows(rank).map(|windows| windows.piece(at..windows.len()));
            for piece in pieces {
                let bytes = piece.window.len().min(valid.saturating_sub(piece.window.start));
                if bytes == 0 {
                    continue;
                }
                let filled = filled.ok_or_else(|| {
                    Fault::new(Code::Protocol, format!("rank {rank} announced a window that it did not send"))
                })?;
                let to = &mut self.memory[piece.memory.start..piece.memory.start + bytes];
                filled.part(piece.window.start, bytes).copy_to(to);
                self.counters.sent(0, bytes);
            }
        }
        self.exchange.post(COPIED_OUT, number.wrapping_add(1));
        let drained = RankFrameHeader::short(RankFrameKind::CopiedOut, number.wrapping_add(1));
        for index in 0..self.exchange.aggregators.len() {
            self.exchange.send_short(self.exchange.aggregators[index], drained)?;
        }
        Ok(())
    }

    /// As an aggregator: waits until all ranks have copied out `count` windows.
    fn wait_copied_out(&self, count: u32) -> Result<()> {
        if self.exchange.aggregator_index.is_none() {
            return Ok(());
        }
        (0..self.exchange.size()).try_for_each(|rank| self.exchange.wait(rank, COPIED_OUT, count))
    }
}

/// Number of bytes of a window before the end of the file.
fn valid_bytes(window: &Range<u64>, end: Option<u64>) -> usize {
    let end = end.unwrap_or(window.end).clamp(window.start, window.end);
    usize::try_from(end - window.start).expect("windows are small")
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Splits a run into parts of at most `bytes`.
fn cut(run: Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    run.clone().step_by(bytes).map(move |start| start..run.end.min(start + bytes))
}

/// Low 32 bits: iteration numbers wrap.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("masked")
}
