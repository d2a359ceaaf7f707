//! State machine of a group's collectives: the bytes that each member contributed on each channel, and the notices to send when a
//! collective is complete or cannot complete.
//!
//! Never: waits, sends, or reads a clock; the caller does. Always: every contribution is answered once; a collective with a
//! missing member ends for all members that wait in it or call it later, with a fault that names the missing member.

use std::collections::BTreeMap;
use std::sync::Arc;

use pario_core::{Code, Fault};

use super::call::CollectiveCall;

/// Limit of members of a group.
pub(super) const MEMBERS_MAX: usize = 4096;
/// Limit of bytes that one member contributes to one collective.
pub(super) const PART_BYTES_MAX: usize = 16 << 20;
/// Limit of bytes of all members of one collective together.
pub(super) const COLLECTIVE_BYTES_MAX: usize = 64 << 20;
/// Limit of channels in use: a group and its duplicates.
pub(super) const CHANNELS_MAX: usize = 4096;

/// The channel that every group starts with.
pub(super) const FIRST_CHANNEL: u32 = 0;

/// A collective that all members called.
#[derive(Debug)]
pub(super) struct CompletedCollective {
    /// Contributions, by rank.
    pub(super) parts: Vec<Vec<u8>>,
    /// The channel that [`CollectiveCall::Duplicate`] created.
    pub(super) created_channel: Option<u32>,
}

/// How a collective ended.
pub(super) type CollectiveOutcome = Result<Arc<CompletedCollective>, Fault>;

/// A notice to send to members.
#[derive(Clone, Debug)]
pub(super) enum MemberNotice {
    /// A collective ended for these ranks.
    Ended { channel: u32, to: Vec<usize>, ended: CollectiveOutcome },
    /// A channel runs no more collectives, for these ranks: a member left it.
    Closed { channel: u32, to: Vec<usize>, fault: Fault },
    /// The group runs no more collectives: a member is dead. For all ranks.
    Broken { fault: Fault },
}

/// A member's contribution to a collective.
#[derive(Debug)]
struct Contribution {
    call: CollectiveCall,
    /// An error text: the member cannot contribute, and why.
    bytes: Result<Vec<u8>, String>,
}

#[derive(Debug)]
struct Channel {
    parts: Vec<Option<Contribution>>,
    left: Vec<bool>,
    /// The first member that left.
    closed: Option<Fault>,
}

impl Channel {
    fn new(size: usize) -> Channel {
        Channel { parts: (0..size).map(|_| None).collect(), left: vec![false; size], closed: None }
    }

    fn waiting(&mut self) -> Vec<usize> {
        let parts = self.parts.iter_mut().enumerate();
        parts.filter_map(|(rank, part)| part.take().map(|_| rank)).collect()
    }
}

/// See the module head.
#[derive(Debug)]
pub(super) struct CollectiveState {
    /// Description of each member for error messages: "process 12, ./simulate".
    names: Vec<String>,
    channels: BTreeMap<u32, Channel>,
    next: u32,
    broken: Option<Fault>,
    left: Vec<bool>,
}

impl CollectiveState {
    pub(super) fn new(names: Vec<String>) -> CollectiveState {
        let size = names.len();
        let channels = BTreeMap::from([(FIRST_CHANNEL, Channel::new(size))]);
        CollectiveState { names, channels, next: FIRST_CHANNEL + 1, broken: None, left: vec![false; size] }
    }

    pub(super) fn size(&self) -> usize {
        self.names.len()
    }

    /// Sets the description of a member when it is known.
    pub(super) fn set_name(&mut self, rank: usize, name: String) {
        self.names[rank] = name;
    }

    /// "rank 2 (process 12, ./simulate)".
    pub(super) fn name(&self, rank: usize) -> String {
        format!("rank {rank} ({})", self.names[rank])
    }

    /// Why this channel, or the group, runs no more collectives.
    pub(super) fn fault(&self, channel: u32) -> Option<&Fault> {
        let closed = || self.channels.get(&channel).and_then(|channel| channel.closed.as_ref());
        self.broken.as_ref().or_else(closed)
    }

    /// Adds a member's contribution to the current collective of a channel: its bytes, or the reason why it has none.
    pub(super) fn contribute(
        &mut self,
        channel: u32,
        rank: usize,
        call: CollectiveCall,
        bytes: Result<Vec<u8>, String>,
    ) -> Vec<MemberNotice> {
        let only = |fault| vec![MemberNotice::Ended { channel, to: vec![rank], ended: Err(fault) }];
        if let Some(fault) = self.fault(channel) {
            return only(fault.clone());
        }
        let Some(place) = self.channels.get_mut(&channel) else {
            return only(Fault::new(Code::Closed, format!("rank {rank} uses a group that it has left")));
        };
        if place.parts[rank].is_some() {
            let text =
                format!("rank {rank} is in two collectives of one group concurrently; duplicate the group");
            return only(Fault::new(Code::Invalid, text));
        }
        place.parts[rank] = Some(Contribution { call, bytes });
        if place.parts.iter().any(Option::is_none) {
            return Vec::new();
        }
        let parts: Vec<Contribution> = place.parts.iter_mut().filter_map(Option::take).collect();
        let ended = self.finish(parts).map(Arc::new);
        vec![MemberNotice::Ended { channel, to: (0..self.size()).collect(), ended }]
    }

    /// Completes a collective: compares the calls and checks the sizes.
    fn finish(&mut self, parts: Vec<Contribution>) -> Result<CompletedCollective, Fault> {
        let call = parts[0].call;
        if let Some(rank) = parts.iter().position(|part| part.call != call) {
            let text = format!(
                "the members of a group call different collectives: rank 0 {call}, rank {rank} {}",
                parts[rank].call
            );
            return Err(Fault::new(Code::NotSame, text));
        }
        let mut all = Vec::with_capacity(parts.len());
        let mut total = 0usize;
        for (rank, part) in parts.into_iter().enumerate() {
            let bytes =
                part.bytes.map_err(|text| Fault::new(Code::TooLarge, format!("rank {rank}: {text}")))?;
            total = total.saturating_add(bytes.len());
            all.push(bytes);
        }
        if COLLECTIVE_BYTES_MAX < total {
            let text = format!(
                "{total} bytes in one collective of a group; the limit is {COLLECTIVE_BYTES_MAX} bytes"
            );
            return Err(Fault::new(Code::TooLarge, text));
        }
        let made = if call == CollectiveCall::Duplicate { Some(self.open_channel()?) } else { None };
        Ok(CompletedCollective { parts: all, created_channel: made })
    }

    fn open_channel(&mut self) -> Result<u32, Fault> {
        let number = self.next;
        let next = number.checked_add(1).filter(|_| self.channels.len() < CHANNELS_MAX).ok_or_else(|| {
            let text =
                format!("too many duplicates of a group: the limit is {CHANNELS_MAX}; drop unused ones");
            Fault::new(Code::TooMany, text)
        })?;
        self.next = next;
        self.channels.insert(number, Channel::new(self.names.len()));
        Ok(number)
    }

    /// A member closes its handle of a channel.
    pub(super) fn leave_channel(&mut self, number: u32, rank: usize) -> Vec<MemberNotice> {
        let name = self.name(rank);
        let size = self.size();
        let Some(channel) = self.channels.get_mut(&number) else { return Vec::new() };
        if channel.left[rank] {
            return Vec::new();
        }
        channel.left[rank] = true;
        let mut told = Vec::new();
        if channel.parts[rank].take().is_some() {
            let fault =
                Fault::new(Code::Closed, format!("{name} left the group in the middle of a collective"));
            told.push(MemberNotice::Ended { channel: number, to: vec![rank], ended: Err(fault) });
        }
        if channel.left.iter().all(|left| *left) {
            self.channels.remove(&number);
            return told;
        }
        if channel.closed.is_some() {
            return told;
        }
        let fault = Fault::new(Code::Closed, format!("{name} has left the group"));
        channel.closed = Some(fault.clone());
        let waiting = channel.waiting();
        if !waiting.is_empty() {
            told.push(MemberNotice::Ended { channel: number, to: waiting, ended: Err(fault.clone()) });
        }
        let to: Vec<usize> = (0..size).filter(|other| !channel.left[*other]).collect();
        told.push(MemberNotice::Closed { channel: number, to, fault });
        told
    }

    /// A member leaves in order: it calls no collective now or later.
    pub(super) fn leave(&mut self, rank: usize) -> Vec<MemberNotice> {
        if std::mem::replace(&mut self.left[rank], true) {
            return Vec::new();
        }
        let channels: Vec<u32> = self.channels.keys().copied().collect();
        channels.into_iter().flat_map(|channel| self.leave_channel(channel, rank)).collect()
    }

    /// Whether a member has left in order.
    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.left[rank]
    }

    /// A member died without leaving; `how` completes "rank 2 (…) ".
    pub(super) fn member_died(&mut self, rank: usize, how: &str) -> Vec<MemberNotice> {
        if self.left[rank] || self.broken.is_some() {
            return Vec::new();
        }
        let fault = Fault::new(Code::Unreachable, format!("{} {how}", self.name(rank)));
        self.broken = Some(fault.clone());
        let mut told = Vec::new();
        for (number, channel) in &mut self.channels {
            let to = channel.waiting();
            if !to.is_empty() {
                told.push(MemberNotice::Ended { channel: *number, to, ended: Err(fault.clone()) });
            }
        }
        told.push(MemberNotice::Broken { fault });
        told
    }
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod tests;
