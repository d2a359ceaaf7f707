//! The exchange: how ranks publish steps, read them, and wait for each other.
//!
//! A rank publishes the lists (and data) of an iteration in one step, or in several if they are long; aggregators read the
//! steps of all ranks. Steps alternate between two slots, so that the next iteration is packed while the last one is written.
//! Every wait is for one word of one rank, and only for events that depend on nothing later: so no wait is cyclic.
//!
//! Never: sends a message between ranks of a node; waits for a dead rank. Always: a rank that fails publishes the reason for
//! the ranks that wait for it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_sys::{FutexWait, SharedMemory};

use super::connect::connect;
use super::counts::TwoPhaseCounters;
use super::list::{AggregatorPacket, Content, OffsetList};
use super::remote_rank::RemoteRank;
use super::segment::{
    self, ANNOUNCED, Announcement, DONE, FAILED, FaultText, PUBLISHED, PacketPosition, SegmentLayout, WAITING,
};
use super::share::share;
use super::wire::{RankFrame, RankFrameHeader, RankFrameKind};
use crate::error::{Error, Result};
use crate::group::Group;

/// Interval after which a waiting rank checks that all members are alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Polls of a word before sleeping on it.
const POLLS_MAX: u32 = 64;

/// See the module head.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Arc<dyn Group>,
    pub(super) layout: SegmentLayout,
    own: SharedMemory,
    own_windows: Option<SharedMemory>,
    peers: Vec<ExchangePeer>,
    /// The ranks that merge.
    pub(super) aggregators: Vec<usize>,
    /// Index of this rank among the aggregators.
    pub(super) aggregator_index: Option<usize>,
    /// Whether all ranks share memory.
    shared: bool,
    call: u32,
    /// Iterations of all reads.
    pub(super) rounds: u32,
    step: u32,
    /// Steps read of each rank.
    steps_read: Vec<u32>,
    packets: Vec<AggregatorPacket>,
    counters: Arc<TwoPhaseCounters>,
}

/// Another rank.
#[derive(Debug)]
enum ExchangePeer {
    Own,
    /// On this node: its segment, and its windows if they were needed.
    Local(SharedMemory, Option<SharedMemory>),
    /// On another node.
    Remote(RemoteRank),
    /// On another node, and neither rank merges: no connection is needed.
    Unconnected,
}

/// A step that a rank published.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeStep {
    number: u32,
    pub(super) row: PacketPosition,
    /// Whether it is the rank's last step of this iteration.
    pub(super) last: bool,
}

/// The lists of an iteration being sent.
#[derive(Debug)]
pub(super) struct OutgoingLists<'v> {
    pub(super) lists: Vec<OffsetList<'v>>,
    pub(super) content: Content,
    pub(super) is_out: bool,
}

impl Exchange {
    /// Creates the memory and connections of an exchange; collective.
    pub(super) fn new(
        group: &Arc<dyn Group>,
        form: SegmentLayout,
        aggregators: Vec<usize>,
        counters: Arc<TwoPhaseCounters>,
    ) -> Result<Exchange> {
        let (me, size) = (group.rank(), group.size());
        let (own, near) = share(group, form.bytes())?;
        let place = aggregators.iter().position(|rank| *rank == me);
        let merges = |rank: usize| aggregators.contains(&rank);
        let talks = |rank: usize| rank != me && (place.is_some() || merges(rank));
        let partners: Vec<usize> = (0..size).filter(|rank| near[*rank].is_none() && talks(*rank)).collect();
        // Equal on all ranks: either all ranks share one node, or every rank has a rank on another node.
        let shared = (0..size).all(|rank| rank == me || near[rank].is_some());
        let mut peers: Vec<ExchangePeer> = near
            .into_iter()
            .enumerate()
            .map(|(rank, shared)| match shared {
                _ if rank == me => ExchangePeer::Own,
                Some(shared) => ExchangePeer::Local(shared, None),
                None => ExchangePeer::Unconnected,
            })
            .collect();
        if !shared {
            let mut made = Ok(());
            for (rank, stream) in connect(&**group, &partners)? {
                match RemoteRank::new(stream, form, me, place) {
                    Ok(far) => peers[rank] = ExchangePeer::Remote(far),
                    Err(fault) => made = Err(fault.at(format!("rank {rank}")).into()),
                }
            }
            group.agree(made)?;
        }
        Ok(Exchange {
            group: Arc::clone(group),
            layout: form,
            own,
            own_windows: None,
            peers,
            packets: aggregators.iter().map(|_| AggregatorPacket::default()).collect(),
            aggregators,
            aggregator_index: place,
            shared,
            call: 0,
            rounds: 0,
            step: 0,
            steps_read: vec![0; size],
            counters,
        })
    }

    pub(super) fn me(&self) -> usize {
        self.group.rank()
    }

    pub(super) fn size(&self) -> usize {
        self.peers.len()
    }

    /// Begins a call: announces this rank's access and waits for the announcements of all others.
    pub(super) fn announce(&mut self, said: &Announcement) -> Result<Vec<Announcement>> {
        self.call = self.call.wrapping_add(1);
        if !self.shared {
            return self.announce_by_group(said);
        }
        segment::put_announcement(&self.own, self.call, said);
        self.post(ANNOUNCED, self.call);
        let mut all = Vec::with_capacity(self.size());
        for rank in 0..self.size() {
            all.push(match &self.peers[rank] {
                ExchangePeer::Local(memory, _) => {
                    self.wait(rank, ANNOUNCED, self.call)?;
                    segment::announcement(memory, self.call)
                }
                ExchangePeer::Own | ExchangePeer::Remote(_) | ExchangePeer::Unconnected => said.clone(),
            });
        }
        Ok(all)
    }

    /// The same where not all ranks share memory.
    fn announce_by_group(&self, said: &Announcement) -> Result<Vec<Announcement>> {
        let code = said.fault.as_ref().map_or(0, |fault| fault.code as u16);
        let text = said.fault.as_ref().map_or("", |fault| fault.text.as_str());
        let mut bytes = Vec::with_capacity(24 + text.len());
        bytes.extend_from_slice(&said.kind.to_le_bytes());
        bytes.extend_from_slice(&u32::from(code).to_le_bytes());
        bytes.extend_from_slice(&said.span.start.to_le_bytes());
        bytes.extend_from_slice(&said.span.end.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        self.group.allgather(&bytes)?.iter().map(|bytes| decode_announcement(bytes)).collect()
    }

    /// Publishes the next step of an iteration.
    pub(super) fn publish(&mut self, out: &mut OutgoingLists<'_>, memory: &[u8]) -> Result<()> {
        let (me, step) = (self.me(), self.step.wrapping_add(1));
        // Both slots are in use until all aggregators have read the step before the last.
        for rank in self.aggregators.iter().copied().filter(|rank| *rank != me) {
            self.wait(rank, self.layout.steps_read(me), step.wrapping_sub(2))?;
        }
        let mut packets = std::mem::take(&mut self.packets);
        let rows = self.fill(out, &mut packets);
        self.layout.put_last(&self.own, step, out.is_out);
        self.copy_packets(step, &rows, &packets, memory);
        self.step = step;
        self.post(PUBLISHED, step);
        let sent = self.send_step(out.is_out, &packets, memory);
        self.packets = packets;
        sent
    }

    /// Fills the packets of this step; returns the positions of packets for aggregators of this node in the slot.
    fn fill(
        &self,
        out: &mut OutgoingLists<'_>,
        packets: &mut [AggregatorPacket],
    ) -> Vec<Option<PacketPosition>> {
        let count = self.aggregators.len();
        let mut rows = vec![None; count];
        let mut at = 0;
        out.is_out = true;
        for index in 0..count {
            if Some(index) == self.aggregator_index {
                continue;
            }
            // Later aggregators have at least an equal share, and all bytes that earlier ones do not need.
            let budget = (self.layout.slot_bytes - at) / (count - index);
            let packet = &mut packets[index];
            out.is_out &= out.lists[index].fill(packet, out.content, budget);
            let data_bytes = if out.content == Content::Data { packet.data_bytes } else { 0 };
            self.counters.sent(packet.entries.len(), data_bytes);
            if matches!(self.peers[self.aggregators[index]], ExchangePeer::Local(..)) {
                rows[index] = Some(PacketPosition { at, list_bytes: packet.entries.len(), data_bytes });
                at += packet.entries.len() + data_bytes;
            }
        }
        rows
    }

    /// Copies packets into a slot.
    fn copy_packets(
        &self,
        step: u32,
        rows: &[Option<PacketPosition>],
        packets: &[AggregatorPacket],
        memory: &[u8],
    ) {
        for (index, (row, packet)) in rows.iter().zip(packets).enumerate() {
            let Some(row) = *row else { continue };
            let mut at = self.layout.packets(step) + row.at;
            self.own.write(at, &packet.entries);
            at += packet.entries.len();
            for run in packet.runs.iter().filter(|_| 0 < row.data_bytes) {
                self.own.write(at, &memory[run.clone()]);
                at += run.len();
            }
            self.layout.put_row(&self.own, step, index, row);
        }
    }

    fn send_step(&self, last: bool, packets: &[AggregatorPacket], memory: &[u8]) -> Result<()> {
        for (rank, packet) in self.aggregators.iter().zip(packets) {
            let head = RankFrameHeader {
                flag: u32::from(last),
                ..RankFrameHeader::short(RankFrameKind::Step, self.step)
            };
            let runs = packet.runs.iter().filter(|_| !memory.is_empty() && self.is_remote(*rank));
            let data: Vec<&[u8]> = runs.map(|run| &memory[run.clone()]).collect();
            self.send(*rank, RankFrame { head, list: &packet.entries, data: &data })?;
        }
        Ok(())
    }

    /// Waits for the next step of a rank; copies its list to `list`.
    pub(super) fn next_step(&self, rank: usize, list: &mut Vec<u8>) -> Result<ExchangeStep> {
        let number = self.steps_read[rank].wrapping_add(1);
        self.wait(rank, PUBLISHED, number)?;
        let place = self.aggregator_index.expect("only aggregators take steps");
        let memory = self.memory(rank).expect("every rank is seen by aggregators");
        let row =
            self.layout.row_of(memory, number, place).map_err(|fault| fault.at(format!("rank {rank}")))?;
        list.resize(row.list_bytes, 0);
        memory.read(self.layout.packets(number) + row.at, list);
        Ok(ExchangeStep { number, row, last: self.layout.is_last(memory, number) })
    }

    /// The data of a step.
    pub(super) fn data(&self, rank: usize, step: &ExchangeStep) -> pario_sys::MemoryPiece<'_> {
        let start = self.layout.packets(step.number) + step.row.at + step.row.list_bytes;
        let memory = self.memory(rank).expect("every rank is seen by aggregators");
        memory.piece(start..start + step.row.data_bytes)
    }

    /// Releases the slot of a step to its rank.
    pub(super) fn release_step(&mut self, rank: usize, step: &ExchangeStep) -> Result<()> {
        self.steps_read[rank] = step.number;
        if self.is_remote(rank) {
            return self.send_short(rank, RankFrameHeader::short(RankFrameKind::StepRead, step.number));
        }
        self.post(self.layout.steps_read(rank), step.number);
        Ok(())
    }

    /// Ends a call: publishes the outcome of this rank's domain, and waits for all others. The first fault, by rank, is returned
    /// on all ranks.
    pub(super) fn finish(&self, mine: Option<Fault>) -> Result<Option<Fault>> {
        if self.aggregator_index.is_some() {
            segment::put_done(&self.own, mine.as_ref());
            self.post(DONE, self.call);
            let flag = mine.as_ref().map_or(0, |fault| u32::from(fault.code as u16));
            let text = mine.as_ref().map_or("", |fault| fault.text.as_str());
            let head = RankFrameHeader { flag, ..RankFrameHeader::short(RankFrameKind::Done, self.call) };
            self.send_all(head, &[&text.as_bytes()[..text.len().min(4096)]])?;
        }
        let mut first = None;
        for rank in self.aggregators.iter().copied() {
            let fault = match self.memory(rank) {
                None => mine.clone(),
                Some(memory) => {
                    self.wait(rank, DONE, self.call)?;
                    segment::done(memory).map(|fault| fault.at(format!("rank {rank}")))
                }
            };
            first = first.or(fault);
        }
        Ok(mine.or(first))
    }

    /// Publishes that this rank gave up, for the ranks that wait for it.
    pub(super) fn give_up(&self, error: &Error) {
        segment::put_text(&self.own, FaultText::Failed, &error.to_string());
        let code = u32::from(error.code() as u16);
        self.own.store_u32(FAILED, code, Ordering::Release);
        let head = RankFrameHeader { flag: code, ..RankFrameHeader::short(RankFrameKind::Failed, 0) };
        let text = error.to_string();
        // A rank that cannot be sent to sees the connection end.
        let _ = self.send_all(head, &[&text.as_bytes()[..text.len().min(4096)]]);
    }

    /// Sends a frame to every connected rank of other nodes.
    pub(super) fn send_all(&self, head: RankFrameHeader, data: &[&[u8]]) -> Result<()> {
        (0..self.size()).try_for_each(|rank| self.send(rank, RankFrame { head, list: &[], data }))
    }

    /// Sends a frame that is only a header.
    pub(super) fn send_short(&self, rank: usize, head: RankFrameHeader) -> Result<()> {
        self.send(rank, RankFrame { head, list: &[], data: &[] })
    }

    /// Sends a frame to a rank, if it is on another node.
    pub(super) fn send(&self, rank: usize, frame: RankFrame<'_>) -> Result<()> {
        let ExchangePeer::Remote(far) = &self.peers[rank] else { return Ok(()) };
        let on_nap = || match self.group.check() {
            Ok(()) => Ok(()),
            Err(error) => Err(Fault::new(error.code(), error.to_string())),
        };
        self.counters.message();
        far.send(&frame, &on_nap).map_err(|fault| {
            // The peer's last reported fault explains more than the failed send.
            self.failure(rank, far.segment()).unwrap_or_else(|| fault.at(format!("rank {rank}")).into())
        })
    }

    pub(super) fn is_remote(&self, rank: usize) -> bool {
        matches!(self.peers[rank], ExchangePeer::Remote(_))
    }

    /// Creates the segments of windows; collective, at the first read.
    pub(super) fn make_windows(&mut self) -> Result<()> {
        if self.own_windows.is_some() {
            return Ok(());
        }
        let (own, near) = share(&self.group, self.layout.windows_bytes())?;
        for (peer, shared) in self.peers.iter_mut().zip(near) {
            if let ExchangePeer::Local(_, windows) = peer {
                let text = "shared memory of a rank on this node could not be mapped for the read windows";
                *windows = Some(shared.ok_or_else(|| Fault::new(Code::Unsupported, text))?);
            }
        }
        self.own_windows = Some(own);
        Ok(())
    }

    /// The windows that this rank fills.
    pub(super) fn own_windows(&self) -> &SharedMemory {
        self.own_windows.as_ref().expect("windows are made before the first read")
    }

    /// The windows that a rank filled; `None` if it sent none yet.
    pub(super) fn windows(&self, rank: usize) -> Option<&SharedMemory> {
        match &self.peers[rank] {
            ExchangePeer::Own => self.own_windows.as_ref(),
            ExchangePeer::Local(_, windows) => windows.as_ref(),
            ExchangePeer::Remote(far) => far.windows(),
            ExchangePeer::Unconnected => None,
        }
    }

    /// This rank's own segment.
    pub(super) fn own(&self) -> &SharedMemory {
        &self.own
    }

    /// The local mapping or copy of another rank's segment.
    pub(super) fn memory(&self, rank: usize) -> Option<&SharedMemory> {
        match &self.peers[rank] {
            ExchangePeer::Local(segment, _) => Some(segment),
            ExchangePeer::Remote(far) => Some(far.segment()),
            ExchangePeer::Own | ExchangePeer::Unconnected => None,
        }
    }

    /// Stores a word of this rank and wakes the ranks that sleep on it.
    pub(super) fn post(&self, word: usize, value: u32) {
        self.own.store_u32(word, value, Ordering::Release);
        // Pairs with the fence in `sleep`: either this rank sees the waiting rank, or that rank sees the new value.
        fence(Ordering::SeqCst);
        let me = u32::try_from(self.me() + 1).expect("groups are small");
        let waits = |peer: &ExchangePeer| match peer {
            ExchangePeer::Local(memory, _) => memory.load_u32(WAITING, Ordering::Relaxed) == me,
            ExchangePeer::Own | ExchangePeer::Remote(_) | ExchangePeer::Unconnected => false,
        };
        if self.peers.iter().any(waits) {
            self.own.futex_wake(word, i32::MAX.cast_unsigned());
        }
    }

    /// Waits until a rank's word has reached `target`; numbers may wrap.
    pub(super) fn wait(&self, rank: usize, word: usize, target: u32) -> Result<()> {
        let Some(memory) = self.memory(rank) else { return Ok(()) };
        let is_there = || memory.load_u32(word, Ordering::Acquire).wrapping_sub(target) < 1 << 31;
        for _ in 0..POLLS_MAX {
            if is_there() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        while !is_there() {
            let slept = self.sleep(rank, memory, word, &is_there);
            let mut gone = self.failure(rank, memory);
            if slept == FutexWait::TimedOut && gone.is_none() {
                gone = self.group.check().err();
            }
            // The rank may have published the awaited value before it left: then the wait succeeded.
            if let Some(error) = gone {
                return if is_there() { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    fn sleep(
        &self,
        rank: usize,
        memory: &SharedMemory,
        word: usize,
        is_there: &dyn Fn() -> bool,
    ) -> FutexWait {
        let value = memory.load_u32(word, Ordering::Acquire);
        let number = u32::try_from(rank + 1).expect("groups are small");
        self.own.store_u32(WAITING, number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = if is_there() {
            FutexWait::Changed
        } else {
            memory.futex_wait(word, value, Some(CHECK_INTERVAL))
        };
        self.own.store_u32(WAITING, 0, Ordering::Relaxed);
        slept
    }

    /// Why a rank gave up.
    fn failure(&self, rank: usize, memory: &SharedMemory) -> Option<Error> {
        let code = memory.load_u32(FAILED, Ordering::Acquire);
        let fault = segment::fault_of(code, || segment::text(memory, FaultText::Failed))?;
        // Its reason may be the death of another rank, which the group reports better.
        let told = self.group.check().err();
        Some(told.unwrap_or_else(|| fault.at(format!("rank {rank} gave up")).into()))
    }
}

/// Decodes an announcement received through the group.
fn decode_announcement(bytes: &[u8]) -> Result<Announcement> {
    let strange =
        || Fault::new(Code::Protocol, "a rank makes a different call than a collective access of this file");
    let (head, text) = bytes.split_first_chunk::<24>().ok_or_else(strange)?;
    let small = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let large = |at: usize| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
    let fault = segment::fault_of(small(4), || String::from_utf8_lossy(text).into_owned());
    Ok(Announcement { kind: small(0), span: large(8)..large(16), fault })
}
