//! Where members meet: what each brought to a round of a channel, and what they are told when the round is full or cannot be.
//!
//! Never: waits, sends, or looks at the clock; whoever drives it does. Always: every part that was brought is answered once; a
//! round with a missing member ends for all who are in it, and for all who come later, with a fault that names the member.

use std::collections::BTreeMap;
use std::sync::Arc;

use pario_core::{Code, Fault};

use super::call::Call;

/// Members of a group.
pub(super) const MEMBERS_MAX: usize = 4096;
/// Bytes that one member may bring to one collective.
pub(super) const PART_BYTES_MAX: usize = 16 << 20;
/// Bytes of all members of one collective together.
pub(super) const ROUND_BYTES_MAX: usize = 64 << 20;
/// A group and its duplicates that are in use at one time.
pub(super) const CHANNELS_MAX: usize = 4096;

/// The channel that every group has from the beginning.
pub(super) const FIRST_CHANNEL: u32 = 0;

/// A round that all members came to.
#[derive(Debug)]
pub(super) struct Round {
    /// What each brought, by rank.
    pub(super) parts: Vec<Vec<u8>>,
    /// The channel that was made, by [`Call::Duplicate`].
    pub(super) made: Option<u32>,
}

/// How a round ended.
pub(super) type Ended = Result<Arc<Round>, Fault>;

/// Something to be told to members.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A round ended for these ranks.
    Round { channel: u32, to: Vec<usize>, ended: Ended },
    /// A channel has no more rounds, for these ranks: a member left it.
    Closed { channel: u32, to: Vec<usize>, fault: Fault },
    /// The group has no more rounds: a member is gone. For all.
    Broken { fault: Fault },
}

/// What a member brought to a round.
#[derive(Debug)]
struct Part {
    call: Call,
    /// A fault: the member could not bring what the others wait for, and says why.
    bytes: Result<Vec<u8>, String>,
}

#[derive(Debug)]
struct Channel {
    parts: Vec<Option<Part>>,
    left: Vec<bool>,
    /// The first who left.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Meeting {
    /// Who the members are, for people: "process 12, ./simulate".
    names: Vec<String>,
    channels: BTreeMap<u32, Channel>,
    next: u32,
    broken: Option<Fault>,
    left: Vec<bool>,
}

impl Meeting {
    pub(super) fn new(names: Vec<String>) -> Meeting {
        let size = names.len();
        let channels = BTreeMap::from([(FIRST_CHANNEL, Channel::new(size))]);
        Meeting { names, channels, next: FIRST_CHANNEL + 1, broken: None, left: vec![false; size] }
    }

    pub(super) fn size(&self) -> usize {
        self.names.len()
    }

    /// Who a member is, once that is known.
    pub(super) fn set_name(&mut self, rank: usize, name: String) {
        self.names[rank] = name;
    }

    /// "rank 2 (process 12, ./simulate)".
    pub(super) fn name(&self, rank: usize) -> String {
        format!("rank {rank} ({})", self.names[rank])
    }

    /// Why there are no more rounds, in this channel or at all.
    pub(super) fn fault(&self, channel: u32) -> Option<&Fault> {
        let closed = || self.channels.get(&channel).and_then(|channel| channel.closed.as_ref());
        self.broken.as_ref().or_else(closed)
    }

    /// A member comes to the next round of a channel with its bytes, or with the reason why it has none.
    pub(super) fn bring(
        &mut self,
        channel: u32,
        rank: usize,
        call: Call,
        bytes: Result<Vec<u8>, String>,
    ) -> Vec<Told> {
        let only = |fault| vec![Told::Round { channel, to: vec![rank], ended: Err(fault) }];
        if let Some(fault) = self.fault(channel) {
            return only(fault.clone());
        }
        let Some(place) = self.channels.get_mut(&channel) else {
            return only(Fault::new(Code::Closed, format!("rank {rank} uses a group that it has left")));
        };
        if place.parts[rank].is_some() {
            let text = format!("rank {rank} is in two collectives of one group at once; duplicate the group");
            return only(Fault::new(Code::Invalid, text));
        }
        place.parts[rank] = Some(Part { call, bytes });
        if place.parts.iter().any(Option::is_none) {
            return Vec::new();
        }
        let parts: Vec<Part> = place.parts.iter_mut().filter_map(Option::take).collect();
        let ended = self.finish(parts).map(Arc::new);
        vec![Told::Round { channel, to: (0..self.size()).collect(), ended }]
    }

    /// A full round: what everyone is told.
    fn finish(&mut self, parts: Vec<Part>) -> Result<Round, Fault> {
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
        if ROUND_BYTES_MAX < total {
            let text =
                format!("{total} bytes in one collective of a group, at most {ROUND_BYTES_MAX} may be");
            return Err(Fault::new(Code::TooLarge, text));
        }
        let made = if call == Call::Duplicate { Some(self.open()?) } else { None };
        Ok(Round { parts: all, made })
    }

    fn open(&mut self) -> Result<u32, Fault> {
        let number = self.next;
        let next = number.checked_add(1).filter(|_| self.channels.len() < CHANNELS_MAX).ok_or_else(|| {
            let text = format!("a group and its duplicates: more than {CHANNELS_MAX} are in use");
            Fault::new(Code::TooMany, text)
        })?;
        self.next = next;
        self.channels.insert(number, Channel::new(self.names.len()));
        Ok(number)
    }

    /// A member does not use a channel any more.
    pub(super) fn leave_channel(&mut self, number: u32, rank: usize) -> Vec<Told> {
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
            told.push(Told::Round { channel: number, to: vec![rank], ended: Err(fault) });
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
            told.push(Told::Round { channel: number, to: waiting, ended: Err(fault.clone()) });
        }
        let to: Vec<usize> = (0..size).filter(|other| !channel.left[*other]).collect();
        told.push(Told::Closed { channel: number, to, fault });
        told
    }

    /// A member leaves in order: it is in no collective, and will be in none.
    pub(super) fn leave(&mut self, rank: usize) -> Vec<Told> {
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

    /// A member is gone without having left; `how` completes "rank 2 (…) ".
    pub(super) fn gone(&mut self, rank: usize, how: &str) -> Vec<Told> {
        if self.left[rank] || self.broken.is_some() {
            return Vec::new();
        }
        let fault = Fault::new(Code::Unreachable, format!("{} {how}", self.name(rank)));
        self.broken = Some(fault.clone());
        let mut told = Vec::new();
        for (number, channel) in &mut self.channels {
            let to = channel.waiting();
            if !to.is_empty() {
                told.push(Told::Round { channel: *number, to, ended: Err(fault.clone()) });
            }
        }
        told.push(Told::Broken { fault });
        told
    }
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod tests;
