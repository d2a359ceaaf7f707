//! Messages between the members and the hub of a local group, over a unix socket. Bytes: docs/formats/group.md.
//!
//! Never: allocates by an announced length before that many bytes have arrived. Always: a message that cannot be decoded is an
//! error, and closes the connection.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use pario_core::{Code, Fault};
use pario_sys::socket::{Blocking, receive, send};

use super::call::CollectiveCall;
use super::collective_state::{COLLECTIVE_BYTES_MAX, CompletedCollective, MEMBERS_MAX, PART_BYTES_MAX};

/// Protocol version; others are refused.
pub(super) const VERSION: u16 = 1;
/// Bytes of the header before every body.
pub(super) const HEAD_BYTES: usize = 16;
/// Bytes of the token in an invitation.
pub(super) const TOKEN_BYTES: usize = 16;
/// Limit of a program name.
pub(super) const PROGRAM_BYTES_MAX: usize = 256;
/// Limit of the body from a peer that has not joined yet.
pub(super) const JOIN_BYTES_MAX: usize = 1024;
/// Limit of the body to a member: a complete collective with the length of each contribution.
pub(super) const COLLECTIVE_BODY_BYTES_MAX: usize = COLLECTIVE_BYTES_MAX + 4 * MEMBERS_MAX;
/// Limit of a fault's text.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Messages of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MemberMessage {
    /// Requests to join as this rank of a group of this size.
    Join { rank: u32, size: u32, token: [u8; TOKEN_BYTES], program: String },
    /// Contributes to a collective; with the reason if the member has no bytes for it.
    Contribute { channel: u32, call: CollectiveCall, bytes: Result<Vec<u8>, String> },
    /// Leaves a channel.
    LeaveChannel { channel: u32 },
    /// Leaves the group in order.
    Leave,
}

/// Messages of the hub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HubMessage {
    /// The peer is a member now.
    Welcome,
    /// The peer is refused, and why.
    Refused(Fault),
    /// A collective is complete.
    Full { channel: u32, parts: Vec<Vec<u8>>, made: Option<u32> },
    /// A collective failed.
    Failed { channel: u32, fault: Fault },
    /// A channel runs no more collectives.
    Closed { channel: u32, fault: Fault },
    /// The group runs no more collectives.
    Broken(Fault),
}

const JOIN: u8 = 1;
const CONTRIBUTE: u8 = 2;
const REFUSE: u8 = 3;
const LEAVE_CHANNEL: u8 = 4;
const LEAVE: u8 = 5;
const WELCOME: u8 = 16;
const REFUSED: u8 = 17;
const FULL: u8 = 18;
const FAILED: u8 = 19;
const CLOSED: u8 = 20;
const BROKEN: u8 = 21;

/// Header before a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupHeader {
    body_bytes: u32,
    kind: u8,
    call: u8,
    version: u16,
    channel: u32,
    number: u32,
}

impl GroupHeader {
    fn new(kind: u8, channel: u32, number: u32, body: &[u8]) -> GroupHeader {
        let body_bytes = u32::try_from(body.len()).expect("bodies are limited");
        GroupHeader { body_bytes, kind, call: 0, version: VERSION, channel, number }
    }

    pub(super) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[4] = self.kind;
        bytes[5] = self.call;
        bytes[6..8].copy_from_slice(&self.version.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.channel.to_le_bytes());
        bytes[12..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> GroupHeader {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let version = u16::from_le_bytes([bytes[6], bytes[7]]);
        GroupHeader {
            body_bytes: word(0),
            kind: bytes[4],
            call: bytes[5],
            version,
            channel: word(8),
            number: word(12),
        }
    }
}

/// Header of a member's contribution; its bytes follow unchanged.
pub(super) fn contribution_header(channel: u32, call: CollectiveCall, bytes: &[u8]) -> GroupHeader {
    let (kind, root) = call.to_numbers();
    GroupHeader { call: kind, ..GroupHeader::new(CONTRIBUTE, channel, root, bytes) }
}

impl MemberMessage {
    /// Encodes a frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            MemberMessage::Join { rank, size, token, program } => {
                let program = cut(program, PROGRAM_BYTES_MAX);
                let body = [token.as_slice(), program.as_bytes()].concat();
                frame(GroupHeader::new(JOIN, *size, *rank, &body), &body)
            }
            MemberMessage::Contribute { channel, call, bytes: Ok(bytes) } => {
                frame(contribution_header(*channel, *call, bytes), bytes)
            }
            MemberMessage::Contribute { channel, call, bytes: Err(text) } => {
                let text = cut(text, TEXT_BYTES_MAX).as_bytes();
                frame(GroupHeader { kind: REFUSE, ..contribution_header(*channel, *call, text) }, text)
            }
            MemberMessage::LeaveChannel { channel } => {
                frame(GroupHeader::new(LEAVE_CHANNEL, *channel, 0, &[]), &[])
            }
            MemberMessage::Leave => frame(GroupHeader::new(LEAVE, 0, 0, &[]), &[]),
        }
    }

    /// Decodes a frame.
    pub(super) fn from_frame(head: GroupHeader, body: &[u8]) -> Result<MemberMessage, Fault> {
        let text = || String::from_utf8_lossy(body).into_owned();
        let call = || {
            CollectiveCall::from_numbers(head.call, head.number)
                .ok_or_else(|| unexpected_message("an unknown collective"))
        };
        match head.kind {
            JOIN => {
                let (token, program) = body
                    .split_first_chunk::<TOKEN_BYTES>()
                    .ok_or_else(|| unexpected_message("a join message that is too short"))?;
                let program = String::from_utf8_lossy(program);
                let program = cut(&program, PROGRAM_BYTES_MAX).chars().filter(|c| !c.is_control()).collect();
                Ok(MemberMessage::Join { rank: head.number, size: head.channel, token: *token, program })
            }
            CONTRIBUTE => Ok(MemberMessage::Contribute {
                channel: head.channel,
                call: call()?,
                bytes: Ok(body.to_vec()),
            }),
            REFUSE => {
                Ok(MemberMessage::Contribute { channel: head.channel, call: call()?, bytes: Err(text()) })
            }
            LEAVE_CHANNEL => Ok(MemberMessage::LeaveChannel { channel: head.channel }),
            LEAVE => Ok(MemberMessage::Leave),
            kind => Err(unexpected_message(&format!("a member message of kind {kind}"))),
        }
    }
}

/// Frame of a complete collective, encoded once for all members.
pub(super) fn full_frame(channel: u32, round: &CompletedCollective) -> Vec<u8> {
    let total: usize = round.parts.iter().map(|part| part.len() + 4).sum();
    let mut body = Vec::with_capacity(total);
    for part in &round.parts {
        body.extend_from_slice(&u32::try_from(part.len()).expect("parts are limited").to_le_bytes());
        body.extend_from_slice(part);
    }
    frame(GroupHeader::new(FULL, channel, round.created_channel.unwrap_or(0), &body), &body)
}

impl HubMessage {
    /// Encodes a frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            HubMessage::Welcome => frame(GroupHeader::new(WELCOME, 0, 0, &[]), &[]),
            HubMessage::Refused(fault) => fault_frame(REFUSED, 0, fault),
            HubMessage::Full { channel, parts, made } => {
                full_frame(*channel, &CompletedCollective { parts: parts.clone(), created_channel: *made })
            }
            HubMessage::Failed { channel, fault } => fault_frame(FAILED, *channel, fault),
            HubMessage::Closed { channel, fault } => fault_frame(CLOSED, *channel, fault),
            HubMessage::Broken(fault) => fault_frame(BROKEN, 0, fault),
        }
    }

    /// Decodes a frame in a group of `size`.
    pub(super) fn from_frame(head: GroupHeader, body: &[u8], size: usize) -> Result<HubMessage, Fault> {
        let channel = head.channel;
        let fault = || -> Result<Fault, Fault> {
            let code = u16::try_from(head.number).ok().and_then(Code::from_number);
            let code = code.ok_or_else(|| unexpected_message("an unknown fault"))?;
            Ok(Fault::new(code, String::from_utf8_lossy(body)))
        };
        match head.kind {
            WELCOME => Ok(HubMessage::Welcome),
            REFUSED => Ok(HubMessage::Refused(fault()?)),
            FULL => {
                let made = Some(head.number).filter(|made| *made != 0);
                Ok(HubMessage::Full { channel, parts: split(body, size)?, made })
            }
            FAILED => Ok(HubMessage::Failed { channel, fault: fault()? }),
            CLOSED => Ok(HubMessage::Closed { channel, fault: fault()? }),
            BROKEN => Ok(HubMessage::Broken(fault()?)),
            kind => Err(unexpected_message(&format!("a hub message of kind {kind}"))),
        }
    }
}

fn split(mut body: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let wrong = || unexpected_message("a collective of another group size");
    let mut parts = Vec::with_capacity(size);
    while let Some((bytes, rest)) = body.split_first_chunk::<4>() {
        let bytes = usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| wrong())?;
        let (part, rest) = rest.split_at_checked(bytes).ok_or_else(wrong)?;
        parts.push(part.to_vec());
        body = rest;
    }
    if body.is_empty() && parts.len() == size { Ok(parts) } else { Err(wrong()) }
}

fn fault_frame(kind: u8, channel: u32, fault: &Fault) -> Vec<u8> {
    let text = cut(&fault.text, TEXT_BYTES_MAX).as_bytes();
    frame(GroupHeader::new(kind, channel, u32::from(fault.code as u16), text), text)
}

fn frame(head: GroupHeader, body: &[u8]) -> Vec<u8> {
    [head.to_bytes().as_slice(), body].concat()
}

fn unexpected_message(what: &str) -> Fault {
    Fault::new(Code::Protocol, format!("unexpected group message ({what}): another version of Pario?"))
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Reassembles frames from a byte stream.
#[derive(Debug)]
pub(super) struct FrameBuffer {
    bytes: Vec<u8>,
    consumed: usize,
    scratch: Box<[u8]>,
}

/// Result of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadOutcome {
    /// Some bytes arrived.
    Bytes,
    /// No bytes available now.
    NoData,
    /// The peer closed the connection.
    End,
}

impl FrameBuffer {
    pub(super) fn new() -> FrameBuffer {
        FrameBuffer { bytes: Vec::new(), consumed: 0, scratch: vec![0; READ_BYTES].into_boxed_slice() }
    }

    /// Reads once.
    pub(super) fn feed(&mut self, socket: impl AsFd, blocking: Blocking) -> ReadOutcome {
        match receive(socket.as_fd(), &mut self.scratch, &mut Vec::new(), blocking) {
            Ok(0) => ReadOutcome::End,
            Ok(count) => {
                self.bytes.extend_from_slice(&self.scratch[..count]);
                ReadOutcome::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ReadOutcome::NoData,
            // A reset connection, or unexpected descriptors: either way no more bytes can be read.
            Err(_) => ReadOutcome::End,
        }
    }

    /// Decodes the next complete frame with `read`.
    pub(super) fn next<T>(
        &mut self,
        body_bytes_max: usize,
        read: impl FnOnce(GroupHeader, &[u8]) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let unread = &self.bytes[self.consumed..];
        let Some((head, rest)) = unread.split_first_chunk::<HEAD_BYTES>() else {
            self.compact();
            return Ok(None);
        };
        let head = GroupHeader::from_bytes(head);
        if head.version != VERSION {
            return Err(unexpected_message(&format!("version {}", head.version)));
        }
        let body_bytes = usize::try_from(head.body_bytes).unwrap_or(usize::MAX);
        if body_bytes_max < body_bytes {
            return Err(unexpected_message(&format!("a body of {body_bytes} bytes")));
        }
        let Some(body) = rest.get(..body_bytes) else {
            self.compact();
            return Ok(None);
        };
        let result = read(head, body);
        self.consumed += HEAD_BYTES + body_bytes;
        result.map(Some)
    }

    /// Drops consumed bytes, and the capacity that a large collective needed.
    fn compact(&mut self) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        if self.bytes.is_empty() && READ_BYTES < self.bytes.capacity() {
            self.bytes.shrink_to(READ_BYTES);
        }
    }
}

/// Sends all pieces, waiting for buffer space.
pub(super) fn send_all(socket: BorrowedFd<'_>, pieces: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match send(socket, rest, &[], Blocking::Wait)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => IoSlice::advance_slices(&mut rest, count),
        }
    }
    Ok(())
}

const _: () = assert!(TEXT_BYTES_MAX <= PART_BYTES_MAX && PROGRAM_BYTES_MAX + TOKEN_BYTES <= JOIN_BYTES_MAX);

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
