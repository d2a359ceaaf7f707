//! Two-phase write: every rank sends its bytes of each window to the window's aggregator, which merges and writes them.
//!
//! Never: writes a byte that no rank passed, so holes between pieces stay unchanged, without being read first. Always: where
//! ranks overlap within a call the higher rank's bytes stay; a window is written only after the next iteration is packed, so that
//! other ranks continue meanwhile.

use pario_core::{Code, Fault};

use super::Buffers;
use super::counts::TwoPhaseCounters;
use super::exchange::{Exchange, ExchangeStep, OutgoingLists};
use super::list::{Content, RankRange, entries};
use super::plan::TwoPhasePlan;
use super::target::AggregatorTarget;
use crate::error::Result;

/// One call.
pub(super) struct TwoPhaseWrite<'a> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) buffers: &'a mut Buffers,
    pub(super) plan: &'a TwoPhasePlan,
    pub(super) reach: &'a RankRange<'a>,
    pub(super) data: &'a [u8],
    pub(super) target: &'a dyn AggregatorTarget,
    pub(super) counters: &'a TwoPhaseCounters,
}

impl<'a> TwoPhaseWrite<'a> {
    /// Executes the call. The fault is equal on all ranks; an error means that the exchange is broken.
    pub(super) fn run(&mut self) -> Result<Option<Fault>> {
        let rounds = self.plan.iterations();
        let mut fault = None;
        let mut out = self.begin(0)?;
        for round in 0..rounds {
            if self.exchange.aggregator_index.is_some() {
                self.collect(round, &mut out)?;
            } else {
                while !out.is_out {
                    self.exchange.publish(&mut out, self.data)?;
                }
            }
            if round + 1 < rounds {
                out = self.begin(round + 1)?;
            }
            let written = self.write_window(round);
            fault = fault.or(written.err());
        }
        self.exchange.finish(fault)
    }

    /// Publishes the first step of an iteration.
    fn begin(&mut self, round: u64) -> Result<OutgoingLists<'a>> {
        let (plan, reach) = (self.plan, self.reach);
        let window = |aggregator| reach.list(plan.window(aggregator, round));
        let lists = (0..self.exchange.aggregators.len()).map(window).collect();
        let mut out = OutgoingLists { lists, content: Content::Data, is_out: false };
        self.exchange.publish(&mut out, self.data)?;
        Ok(out)
    }

    /// Merges all ranks' bytes of this rank's window, in rank order. Aggregators read ranks with several steps in rank order, so
    /// this rank publishes its later steps when its own index is reached.
    fn collect(&mut self, round: u64, out: &mut OutgoingLists<'_>) -> Result<()> {
        self.buffers.cover.clear();
        let bytes = self.exchange.aggregator_index.map_or(0, |place| self.plan.window_bytes(place, round));
        for rank in 0..self.exchange.size() {
            if rank == self.exchange.me() {
                self.merge_own(round);
                while !out.is_out {
                    self.exchange.publish(out, self.data)?;
                }
                continue;
            }
            loop {
                let step = self.exchange.next_step(rank, &mut self.buffers.list)?;
                self.merge_step(rank, &step, bytes).map_err(|fault| fault.at(format!("rank {rank}")))?;
                self.exchange.release_step(rank, &step)?;
                if step.last {
                    break;
                }
            }
        }
        Ok(())
    }

    fn merge_step(
        &mut self,
        rank: usize,
        step: &ExchangeStep,
        bytes: usize,
    ) -> std::result::Result<(), Fault> {
        let Buffers { window, cover, list, .. } = &mut *self.buffers;
        let data = self.exchange.data(rank, step);
        let mut at = 0;
        for entry in entries(list, bytes) {
            let entry = entry?;
            if data.len() - at < entry.len() {
                return Err(Fault::new(Code::Protocol, "a list names more bytes than came with it"));
            }
            data.part(at, entry.len()).copy_to(&mut window[entry.clone()]);
            at += entry.len();
            cover.add(entry);
        }
        Ok(())
    }

    fn merge_own(&mut self, round: u64) {
        let Some(place) = self.exchange.aggregator_index else { return };
        let Buffers { window, cover, .. } = &mut *self.buffers;
        for piece in self.reach.list(self.plan.window(place, round)) {
            window[piece.window.clone()].copy_from_slice(&self.data[piece.memory]);
            cover.add(piece.window);
        }
    }

    fn write_window(&mut self, round: u64) -> std::result::Result<(), Fault> {
        let Some(place) = self.exchange.aggregator_index else { return Ok(()) };
        let start = self.plan.window(place, round).start;
        let mut result = Ok(());
        for run in self.buffers.cover.runs(0) {
            self.counters.access(run.len());
            let written = self.target.write_at(start + run.start as u64, &self.buffers.window[run]);
            result = result.and(written);
        }
        result
    }
}
