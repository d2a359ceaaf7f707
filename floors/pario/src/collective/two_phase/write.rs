//! Writing in rounds: every rank sends what it has of each window to the window's aggregator, which merges and writes it.
//!
//! Never: writes a byte that no rank gave, so holes between pieces stay as they are, without reading them first. Always: where
//! ranks overlap within a call the higher rank's bytes stay; a window is on its way to the file only after the next round is packed, so
//! that others go on meanwhile.

use pario_core::{Code, Fault};

use super::Buffers;
use super::counts::Counters;
use super::exchange::{Exchange, Outgoing, Step};
use super::list::{Content, Reach, entries};
use super::plan::Plan;
use super::target::Target;
use crate::error::Result;

/// One call.
pub(super) struct Writing<'a> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) buffers: &'a mut Buffers,
    pub(super) plan: &'a Plan,
    pub(super) reach: &'a Reach<'a>,
    pub(super) data: &'a [u8],
    pub(super) target: &'a dyn Target,
    pub(super) counters: &'a Counters,
}

impl<'a> Writing<'a> {
    /// Carries it out. The fault is everyone's; an error means that the exchange is broken.
    pub(super) fn run(&mut self) -> Result<Option<Fault>> {
        let rounds = self.plan.rounds();
        let mut fault = None;
        let mut out = self.begin(0)?;
        for round in 0..rounds {
            if self.exchange.place.is_some() {
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

    /// Publishes the first step of a round.
    fn begin(&mut self, round: u64) -> Result<Outgoing<'a>> {
        let (plan, reach) = (self.plan, self.reach);
        let window = |aggregator| reach.list(plan.window(aggregator, round));
        let lists = (0..self.exchange.aggregators.len()).map(window).collect();
        let mut out = Outgoing { lists, content: Content::Data, is_out: false };
        self.exchange.publish(&mut out, self.data)?;
        Ok(out)
    }

    /// Merges what all ranks have of this rank's window, in the order of ranks. Ranks with several steps take turns with whoever takes
    /// them, so our own later steps go out when it is our turn.
    fn collect(&mut self, round: u64, out: &mut Outgoing<'_>) -> Result<()> {
        self.buffers.cover.clear();
        let bytes = self.exchange.place.map_or(0, |place| self.plan.window_bytes(place, round));
        for rank in 0..self.exchange.size() {
            if rank == self.exchange.me() {
                self.take_own(round);
                while !out.is_out {
                    self.exchange.publish(out, self.data)?;
                }
                continue;
            }
            loop {
                let step = self.exchange.next_step(rank, &mut self.buffers.list)?;
                self.take(rank, &step, bytes).map_err(|fault| fault.at(format!("rank {rank}")))?;
                self.exchange.took(rank, &step)?;
                if step.last {
                    break;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, rank: usize, step: &Step, bytes: usize) -> std::result::Result<(), Fault> {
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

    fn take_own(&mut self, round: u64) {
        let Some(place) = self.exchange.place else { return };
        let Buffers { window, cover, .. } = &mut *self.buffers;
        for piece in self.reach.list(self.plan.window(place, round)) {
            window[piece.window.clone()].copy_from_slice(&self.data[piece.memory]);
            cover.add(piece.window);
        }
    }

    fn write_window(&mut self, round: u64) -> std::result::Result<(), Fault> {
        let Some(place) = self.exchange.place else { return Ok(()) };
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
