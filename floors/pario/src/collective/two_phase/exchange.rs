//! The exchange: how ranks publish steps, take them, and wait for each other.
//!
//! A rank publishes the lists (and data) of a round in one step, or in several if they are long; aggregators take the steps of all
//! ranks. Steps use two slots in turn, so that the next round is packed while the last one is written. All waiting is for one word
//! of one rank, and only for what does not depend on anything later: so nobody waits in a circle.
//!
//! Never: sends a message between ranks of a node; waits for a rank that is gone. Always: a rank that gives up says why to whoever
//! waits for it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_sys::{FutexWait, Shared};

use super::connect::connect;
use super::counts::Counters;
use super::far::Far;
use super::list::{Content, List, Packet};
use super::segment::{self, ANNOUNCED, Announcement, DONE, FAILED, Form, PUBLISHED, Row, Text, WAITING};
use super::share::share;
use super::wire::{Frame, Head, Kind};
use crate::error::{Error, Result};
use crate::group::Group;

/// After this time of waiting it is asked whether everyone still lives.
const NAP: Duration = Duration::from_millis(20);
/// Looks at a word before sleeping for it.
const LOOKS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    group: Arc<dyn Group>,
    pub(super) form: Form,
    own: Shared,
    own_windows: Option<Shared>,
    peers: Vec<Peer>,
    /// The ranks that merge.
    pub(super) aggregators: Vec<usize>,
    /// Which of them this one is.
    pub(super) place: Option<usize>,
    /// Whether all ranks see each other's memory.
    shared: bool,
    call: u32,
    /// Rounds of all reads.
    pub(super) rounds: u32,
    step: u32,
    /// Steps taken of each rank.
    taken: Vec<u32>,
    packets: Vec<Packet>,
    counters: Arc<Counters>,
}

/// Another rank.
#[derive(Debug)]
enum Peer {
    Own,
    /// On this node: its segment, and its windows if they were needed.
    Near(Shared, Option<Shared>),
    /// On another node.
    Far(Far),
    /// On another node, and neither of us merges: there is nothing to say.
    Mute,
}

/// A step that a rank published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    number: u32,
    pub(super) row: Row,
    /// Whether it is the rank's last of this round.
    pub(super) last: bool,
}

/// The lists of a round on their way out.
#[derive(Debug)]
pub(super) struct Outgoing<'v> {
    pub(super) lists: Vec<List<'v>>,
    pub(super) content: Content,
    pub(super) is_out: bool,
}

impl Exchange {
    /// Makes the memory and connections of an exchange; collective.
    pub(super) fn new(
        group: &Arc<dyn Group>,
        form: Form,
        aggregators: Vec<usize>,
        counters: Arc<Counters>,
    ) -> Result<Exchange> {
        let (me, size) = (group.rank(), group.size());
        let (own, near) = share(group, form.bytes())?;
        let place = aggregators.iter().position(|rank| *rank == me);
        let merges = |rank: usize| aggregators.contains(&rank);
        let talks = |rank: usize| rank != me && (place.is_some() || merges(rank));
        let partners: Vec<usize> = (0..size).filter(|rank| near[*rank].is_none() && talks(*rank)).collect();
        // The same for all ranks: either one node holds everybody, or everybody misses somebody.
        let shared = (0..size).all(|rank| rank == me || near[rank].is_some());
        let mut peers: Vec<Peer> = near
            .into_iter()
            .enumerate()
            .map(|(rank, shared)| match shared {
                _ if rank == me => Peer::Own,
                Some(shared) => Peer::Near(shared, None),
                None => Peer::Mute,
            })
            .collect();
        if !shared {
            let mut made = Ok(());
            for (rank, stream) in connect(&**group, &partners)? {
                match Far::new(stream, form, me, place) {
                    Ok(far) => peers[rank] = Peer::Far(far),
                    Err(fault) => made = Err(fault.at(format!("rank {rank}")).into()),
                }
            }
            group.agree(made)?;
        }
        Ok(Exchange {
            group: Arc::clone(group),
            form,
            own,
            own_windows: None,
            peers,
            packets: aggregators.iter().map(|_| Packet::default()).collect(),
            aggregators,
            place,
            shared,
            call: 0,
            rounds: 0,
            step: 0,
            taken: vec![0; size],
            counters,
        })
    }

    pub(super) fn me(&self) -> usize {
        self.group.rank()
    }

    pub(super) fn size(&self) -> usize {
        self.peers.len()
    }

    /// Begins a call: says what this rank wants and hears what the others do.
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
                Peer::Near(memory, _) => {
                    self.wait(rank, ANNOUNCED, self.call)?;
                    segment::announcement(memory, self.call)
                }
                Peer::Own | Peer::Far(_) | Peer::Mute => said.clone(),
            });
        }
        Ok(all)
    }

    /// The same where not all share memory.
    fn announce_by_group(&self, said: &Announcement) -> Result<Vec<Announcement>> {
        let code = said.fault.as_ref().map_or(0, |fault| fault.code as u16);
        let text = said.fault.as_ref().map_or("", |fault| fault.text.as_str());
        let mut bytes = Vec::with_capacity(24 + text.len());
        bytes.extend_from_slice(&said.kind.to_le_bytes());
        bytes.extend_from_slice(&u32::from(code).to_le_bytes());
        bytes.extend_from_slice(&said.span.start.to_le_bytes());
        bytes.extend_from_slice(&said.span.end.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        self.group.allgather(&bytes)?.iter().map(|bytes| heard(bytes)).collect()
    }

    /// Publishes the next step of a round.
    pub(super) fn publish(&mut self, out: &mut Outgoing<'_>, memory: &[u8]) -> Result<()> {
        let (me, step) = (self.me(), self.step.wrapping_add(1));
        // Both slots are in use until the step before the last was taken by all.
        for rank in self.aggregators.iter().copied().filter(|rank| *rank != me) {
            self.wait(rank, self.form.taken(me), step.wrapping_sub(2))?;
        }
        let mut packets = std::mem::take(&mut self.packets);
        let rows = self.fill(out, &mut packets);
        self.form.put_last(&self.own, step, out.is_out);
        self.put(step, &rows, &packets, memory);
        self.step = step;
        self.post(PUBLISHED, step);
        let sent = self.send_step(out.is_out, &packets, memory);
        self.packets = packets;
        sent
    }

    /// Cuts what goes out in this step; returns where packets for aggregators of this node lie in the slot.
    fn fill(&self, out: &mut Outgoing<'_>, packets: &mut [Packet]) -> Vec<Option<Row>> {
        let count = self.aggregators.len();
        let mut rows = vec![None; count];
        let mut at = 0;
        out.is_out = true;
        for index in 0..count {
            if Some(index) == self.place {
                continue;
            }
            // Whoever comes later has at least an equal share, and all that earlier ones do not need.
            let budget = (self.form.slot_bytes - at) / (count - index);
            let packet = &mut packets[index];
            out.is_out &= out.lists[index].fill(packet, out.content, budget);
            let data_bytes = if out.content == Content::Data { packet.data_bytes } else { 0 };
            self.counters.sent(packet.entries.len(), data_bytes);
            if matches!(self.peers[self.aggregators[index]], Peer::Near(..)) {
                rows[index] = Some(Row { at, list_bytes: packet.entries.len(), data_bytes });
                at += packet.entries.len() + data_bytes;
            }
        }
        rows
    }

    /// Copies packets into a slot.
    fn put(&self, step: u32, rows: &[Option<Row>], packets: &[Packet], memory: &[u8]) {
        for (index, (row, packet)) in rows.iter().zip(packets).enumerate() {
            let Some(row) = *row else { continue };
            let mut at = self.form.packets(step) + row.at;
            self.own.write(at, &packet.entries);
            at += packet.entries.len();
            for run in packet.runs.iter().filter(|_| 0 < row.data_bytes) {
                self.own.write(at, &memory[run.clone()]);
                at += run.len();
            }
            self.form.put_row(&self.own, step, index, row);
        }
    }

    fn send_step(&self, last: bool, packets: &[Packet], memory: &[u8]) -> Result<()> {
        for (rank, packet) in self.aggregators.iter().zip(packets) {
            let head = Head { flag: u32::from(last), ..Head::short(Kind::Step, self.step) };
            let runs = packet.runs.iter().filter(|_| !memory.is_empty() && self.is_far(*rank));
            let data: Vec<&[u8]> = runs.map(|run| &memory[run.clone()]).collect();
            self.send(*rank, Frame { head, list: &packet.entries, data: &data })?;
        }
        Ok(())
    }

    /// Waits for the next step of a rank; its list comes into `list`.
    pub(super) fn next_step(&self, rank: usize, list: &mut Vec<u8>) -> Result<Step> {
        let number = self.taken[rank].wrapping_add(1);
        self.wait(rank, PUBLISHED, number)?;
        let place = self.place.expect("only aggregators take steps");
        let memory = self.memory(rank).expect("every rank is seen by aggregators");
        let row =
            self.form.row_of(memory, number, place).map_err(|fault| fault.at(format!("rank {rank}")))?;
        list.resize(row.list_bytes, 0);
        memory.read(self.form.packets(number) + row.at, list);
        Ok(Step { number, row, last: self.form.is_last(memory, number) })
    }

    /// The data of a step.
    pub(super) fn data(&self, rank: usize, step: &Step) -> pario_sys::Piece<'_> {
        let start = self.form.packets(step.number) + step.row.at + step.row.list_bytes;
        let memory = self.memory(rank).expect("every rank is seen by aggregators");
        memory.piece(start..start + step.row.data_bytes)
    }

    /// Lets a rank use the slot of a step again.
    pub(super) fn took(&mut self, rank: usize, step: &Step) -> Result<()> {
        self.taken[rank] = step.number;
        if self.is_far(rank) {
            return self.send_short(rank, Head::short(Kind::Taken, step.number));
        }
        self.post(self.form.taken(rank), step.number);
        Ok(())
    }

    /// Ends a call: says how this rank's domain went, and waits for all others'. The first fault, by rank, is everyone's.
    pub(super) fn finish(&self, mine: Option<Fault>) -> Result<Option<Fault>> {
        if self.place.is_some() {
            segment::put_done(&self.own, mine.as_ref());
            self.post(DONE, self.call);
            let flag = mine.as_ref().map_or(0, |fault| u32::from(fault.code as u16));
            let text = mine.as_ref().map_or("", |fault| fault.text.as_str());
            let head = Head { flag, ..Head::short(Kind::Done, self.call) };
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

    /// Tells whoever waits for this rank that it gives up.
    pub(super) fn give_up(&self, error: &Error) {
        segment::put_text(&self.own, Text::Failed, &error.to_string());
        let code = u32::from(error.code() as u16);
        self.own.store_u32(FAILED, code, Ordering::Release);
        let head = Head { flag: code, ..Head::short(Kind::Failed, 0) };
        let text = error.to_string();
        // Whoever cannot be told sees the connection end.
        let _ = self.send_all(head, &[&text.as_bytes()[..text.len().min(4096)]]);
    }

    /// Sends a frame to every rank of other nodes that this one talks to.
    pub(super) fn send_all(&self, head: Head, data: &[&[u8]]) -> Result<()> {
        (0..self.size()).try_for_each(|rank| self.send(rank, Frame { head, list: &[], data }))
    }

    /// Sends a frame that is only a head.
    pub(super) fn send_short(&self, rank: usize, head: Head) -> Result<()> {
        self.send(rank, Frame { head, list: &[], data: &[] })
    }

    /// Sends a frame to a rank, if it is on another node.
    pub(super) fn send(&self, rank: usize, frame: Frame<'_>) -> Result<()> {
        let Peer::Far(far) = &self.peers[rank] else { return Ok(()) };
        let on_nap = || match self.group.check() {
            Ok(()) => Ok(()),
            Err(error) => Err(Fault::new(error.code(), error.to_string())),
        };
        self.counters.message();
        far.send(&frame, &on_nap).map_err(|fault| {
            // What it said last explains more than that it does not listen.
            self.failure(rank, far.segment()).unwrap_or_else(|| fault.at(format!("rank {rank}")).into())
        })
    }

    pub(super) fn is_far(&self, rank: usize) -> bool {
        matches!(self.peers[rank], Peer::Far(_))
    }

    /// Makes the segments of windows; collective, once all know that they read.
    pub(super) fn make_windows(&mut self) -> Result<()> {
        if self.own_windows.is_some() {
            return Ok(());
        }
        let (own, near) = share(&self.group, self.form.windows_bytes())?;
        for (peer, shared) in self.peers.iter_mut().zip(near) {
            if let Peer::Near(_, windows) = peer {
                let text = "memory was shared with a rank, and now it is not";
                *windows = Some(shared.ok_or_else(|| Fault::new(Code::Unsupported, text))?);
            }
        }
        self.own_windows = Some(own);
        Ok(())
    }

    /// The windows that this rank fills.
    pub(super) fn own_windows(&self) -> &Shared {
        self.own_windows.as_ref().expect("windows are made before the first read")
    }

    /// The windows that a rank filled; `None` if it sent none yet.
    pub(super) fn windows(&self, rank: usize) -> Option<&Shared> {
        match &self.peers[rank] {
            Peer::Own => self.own_windows.as_ref(),
            Peer::Near(_, windows) => windows.as_ref(),
            Peer::Far(far) => far.windows(),
            Peer::Mute => None,
        }
    }

    /// This rank's own segment.
    pub(super) fn own(&self) -> &Shared {
        &self.own
    }

    /// What is seen of another rank's segment.
    pub(super) fn memory(&self, rank: usize) -> Option<&Shared> {
        match &self.peers[rank] {
            Peer::Near(segment, _) => Some(segment),
            Peer::Far(far) => Some(far.segment()),
            Peer::Own | Peer::Mute => None,
        }
    }

    /// Stores a word of our own and wakes those who sleep for us.
    pub(super) fn post(&self, word: usize, value: u32) {
        self.own.store_u32(word, value, Ordering::Release);
        // Pairs with the fence in `sleep`: either we see that somebody waits, or it sees the new value.
        fence(Ordering::SeqCst);
        let me = u32::try_from(self.me() + 1).expect("groups are small");
        let waits = |peer: &Peer| match peer {
            Peer::Near(memory, _) => memory.load_u32(WAITING, Ordering::Relaxed) == me,
            Peer::Own | Peer::Far(_) | Peer::Mute => false,
        };
        if self.peers.iter().any(waits) {
            self.own.futex_wake(word, i32::MAX.cast_unsigned());
        }
    }

    /// Waits until a rank's word has come to `target`; numbers may wrap.
    pub(super) fn wait(&self, rank: usize, word: usize, target: u32) -> Result<()> {
        let Some(memory) = self.memory(rank) else { return Ok(()) };
        let is_there = || memory.load_u32(word, Ordering::Acquire).wrapping_sub(target) < 1 << 31;
        for _ in 0..LOOKS {
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
            // It may have said what we wait for, and left: then all is well.
            if let Some(error) = gone {
                return if is_there() { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    fn sleep(&self, rank: usize, memory: &Shared, word: usize, is_there: &dyn Fn() -> bool) -> FutexWait {
        let value = memory.load_u32(word, Ordering::Acquire);
        let number = u32::try_from(rank + 1).expect("groups are small");
        self.own.store_u32(WAITING, number, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = if is_there() { FutexWait::Changed } else { memory.futex_wait(word, value, Some(NAP)) };
        self.own.store_u32(WAITING, 0, Ordering::Relaxed);
        slept
    }

    /// Why a rank gave up.
    fn failure(&self, rank: usize, memory: &Shared) -> Option<Error> {
        let code = memory.load_u32(FAILED, Ordering::Acquire);
        let fault = segment::fault_of(code, || segment::text(memory, Text::Failed))?;
        // Its own reason may be somebody else's death, which the group tells better.
        let told = self.group.check().err();
        Some(told.unwrap_or_else(|| fault.at(format!("rank {rank} gave up")).into()))
    }
}

/// An announcement that came through the group.
fn heard(bytes: &[u8]) -> Result<Announcement> {
    let strange =
        || Fault::new(Code::Protocol, "a rank calls something else than a collective access of this file");
    let (head, text) = bytes.split_first_chunk::<24>().ok_or_else(strange)?;
    let small = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let large = |at: usize| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
    let fault = segment::fault_of(small(4), || String::from_utf8_lossy(text).into_owned());
    Ok(Announcement { kind: small(0), span: large(8)..large(16), fault })
}
