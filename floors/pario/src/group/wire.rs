//! What members and the hub of a local group say to each other, over a unix socket. Bytes: docs/formats/group.md.
//!
//! Never: allocates by a length that it was told before it has seen that many bytes. Always: what cannot be understood is an
//! error, and ends the conversation.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use pario_core::{Code, Fault};
use pario_sys::socket::{Blocking, receive, send};

use super::call::Call;
use super::meeting::{MEMBERS_MAX, PART_BYTES_MAX, ROUND_BYTES_MAX, Round};

/// The version of this conversation; others are refused.
pub(super) const VERSION: u16 = 1;
/// Bytes before every body.
pub(super) const HEAD_BYTES: usize = 16;
/// What a member proves by.
pub(super) const TOKEN_BYTES: usize = 16;
/// Longest name of a program.
pub(super) const PROGRAM_BYTES_MAX: usize = 256;
/// Longest body of someone who has not joined yet.
pub(super) const JOIN_BYTES_MAX: usize = 1024;
/// Longest body to a member: a full round with the length of each part.
pub(super) const ROUND_BODY_BYTES_MAX: usize = ROUND_BYTES_MAX + 4 * MEMBERS_MAX;
/// Longest text of a fault.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// What a member says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// It wants to be this rank of a group of this size.
    Join { rank: u32, size: u32, token: [u8; TOKEN_BYTES], program: String },
    /// It comes to a round; with the reason if it has not got what the others wait for.
    Bring { channel: u32, call: Call, bytes: Result<Vec<u8>, String> },
    /// It does not use a channel any more.
    LeaveChannel { channel: u32 },
    /// It leaves in order.
    Leave,
}

/// What the hub says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// It is a member.
    Welcome,
    /// It is none, and why.
    Refused(Fault),
    /// A round is full.
    Full { channel: u32, parts: Vec<Vec<u8>>, made: Option<u32> },
    /// A round ended otherwise.
    Failed { channel: u32, fault: Fault },
    /// A channel has no more rounds.
    Closed { channel: u32, fault: Fault },
    /// There are no more rounds.
    Broken(Fault),
}

const JOIN: u8 = 1;
const BRING: u8 = 2;
const REFUSE: u8 = 3;
const LEAVE_CHANNEL: u8 = 4;
const LEAVE: u8 = 5;
const WELCOME: u8 = 16;
const REFUSED: u8 = 17;
const FULL: u8 = 18;
const FAILED: u8 = 19;
const CLOSED: u8 = 20;
const BROKEN: u8 = 21;

/// The bytes before a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    body_bytes: u32,
    kind: u8,
    call: u8,
    version: u16,
    channel: u32,
    number: u32,
}

impl Head {
    fn new(kind: u8, channel: u32, number: u32, body: &[u8]) -> Head {
        let body_bytes = u32::try_from(body.len()).expect("bodies are limited");
        Head { body_bytes, kind, call: 0, version: VERSION, channel, number }
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

    fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Head {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let version = u16::from_le_bytes([bytes[6], bytes[7]]);
        Head {
            body_bytes: word(0),
            kind: bytes[4],
            call: bytes[5],
            version,
            channel: word(8),
            number: word(12),
        }
    }
}

/// The head of a part that a member brings; its bytes follow as they are.
pub(super) fn bring_head(channel: u32, call: Call, bytes: &[u8]) -> Head {
    let (kind, root) = call.to_numbers();
    Head { call: kind, ..Head::new(BRING, channel, root, bytes) }
}

impl Word {
    /// As a frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Word::Join { rank, size, token, program } => {
                let program = cut(program, PROGRAM_BYTES_MAX);
                let body = [token.as_slice(), program.as_bytes()].concat();
                frame(Head::new(JOIN, *size, *rank, &body), &body)
            }
            Word::Bring { channel, call, bytes: Ok(bytes) } => {
                frame(bring_head(*channel, *call, bytes), bytes)
            }
            Word::Bring { channel, call, bytes: Err(text) } => {
                let text = cut(text, TEXT_BYTES_MAX).as_bytes();
                frame(Head { kind: REFUSE, ..bring_head(*channel, *call, text) }, text)
            }
            Word::LeaveChannel { channel } => frame(Head::new(LEAVE_CHANNEL, *channel, 0, &[]), &[]),
            Word::Leave => frame(Head::new(LEAVE, 0, 0, &[]), &[]),
        }
    }

    /// From a frame.
    pub(super) fn from_frame(head: Head, body: &[u8]) -> Result<Word, Fault> {
        let text = || String::from_utf8_lossy(body).into_owned();
        let call = || Call::from_numbers(head.call, head.number).ok_or_else(|| odd("an unknown collective"));
        match head.kind {
            JOIN => {
                let (token, program) =
                    body.split_first_chunk::<TOKEN_BYTES>().ok_or_else(|| odd("a short greeting"))?;
                let program = String::from_utf8_lossy(program);
                let program = cut(&program, PROGRAM_BYTES_MAX).chars().filter(|c| !c.is_control()).collect();
                Ok(Word::Join { rank: head.number, size: head.channel, token: *token, program })
            }
            BRING => Ok(Word::Bring { channel: head.channel, call: call()?, bytes: Ok(body.to_vec()) }),
            REFUSE => Ok(Word::Bring { channel: head.channel, call: call()?, bytes: Err(text()) }),
            LEAVE_CHANNEL => Ok(Word::LeaveChannel { channel: head.channel }),
            LEAVE => Ok(Word::Leave),
            kind => Err(odd(&format!("a word of kind {kind}"))),
        }
    }
}

/// The frame of a full round, made once for all members.
pub(super) fn full_frame(channel: u32, round: &Round) -> Vec<u8> {
    let total: usize = round.parts.iter().map(|part| part.len() + 4).sum();
    let mut body = Vec::with_capacity(total);
    for part in &round.parts {
        body.extend_from_slice(&u32::try_from(part.len()).expect("parts are limited").to_le_bytes());
        body.extend_from_slice(part);
    }
    frame(Head::new(FULL, channel, round.made.unwrap_or(0), &body), &body)
}

impl Answer {
    /// As a frame.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Answer::Welcome => frame(Head::new(WELCOME, 0, 0, &[]), &[]),
            Answer::Refused(fault) => fault_frame(REFUSED, 0, fault),
            Answer::Full { channel, parts, made } => {
                full_frame(*channel, &Round { parts: parts.clone(), made: *made })
            }
            Answer::Failed { channel, fault } => fault_frame(FAILED, *channel, fault),
            Answer::Closed { channel, fault } => fault_frame(CLOSED, *channel, fault),
            Answer::Broken(fault) => fault_frame(BROKEN, 0, fault),
        }
    }

    /// From a frame, in a group of `size`.
    pub(super) fn from_frame(head: Head, body: &[u8], size: usize) -> Result<Answer, Fault> {
        let channel = head.channel;
        let fault = || -> Result<Fault, Fault> {
            let code = u16::try_from(head.number).ok().and_then(Code::from_number);
            let code = code.ok_or_else(|| odd("an unknown fault"))?;
            Ok(Fault::new(code, String::from_utf8_lossy(body)))
        };
        match head.kind {
            WELCOME => Ok(Answer::Welcome),
            REFUSED => Ok(Answer::Refused(fault()?)),
            FULL => {
                let made = Some(head.number).filter(|made| *made != 0);
                Ok(Answer::Full { channel, parts: split(body, size)?, made })
            }
            FAILED => Ok(Answer::Failed { channel, fault: fault()? }),
            CLOSED => Ok(Answer::Closed { channel, fault: fault()? }),
            BROKEN => Ok(Answer::Broken(fault()?)),
            kind => Err(odd(&format!("an answer of kind {kind}"))),
        }
    }
}

fn split(mut body: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let wrong = || odd("a round of another size");
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
    frame(Head::new(kind, channel, u32::from(fault.code as u16), text), text)
}

fn frame(head: Head, body: &[u8]) -> Vec<u8> {
    [head.to_bytes().as_slice(), body].concat()
}

fn odd(what: &str) -> Fault {
    Fault::new(Code::Protocol, format!("{what} in the conversation of a group: another version of Pario?"))
}

fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Frames out of a stream of bytes.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    taken: usize,
    scratch: Box<[u8]>,
}

/// What came of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fed {
    /// Some bytes.
    Bytes,
    /// None, for now.
    Nothing,
    /// The other side is gone.
    End,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox { bytes: Vec::new(), taken: 0, scratch: vec![0; READ_BYTES].into_boxed_slice() }
    }

    /// Reads once.
    pub(super) fn feed(&mut self, socket: impl AsFd, blocking: Blocking) -> Fed {
        match receive(socket.as_fd(), &mut self.scratch, &mut Vec::new(), blocking) {
            Ok(0) => Fed::End,
            Ok(count) => {
                self.bytes.extend_from_slice(&self.scratch[..count]);
                Fed::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Fed::Nothing,
            // Reset, or descriptors that nobody asked for: either way there is nothing more to be had from it.
            Err(_) => Fed::End,
        }
    }

    /// The next whole frame, given to `read`.
    pub(super) fn next<T>(
        &mut self,
        body_bytes_max: usize,
        read: impl FnOnce(Head, &[u8]) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let unread = &self.bytes[self.taken..];
        let Some((head, rest)) = unread.split_first_chunk::<HEAD_BYTES>() else {
            self.tidy();
            return Ok(None);
        };
        let head = Head::from_bytes(head);
        if head.version != VERSION {
            return Err(odd(&format!("version {}", head.version)));
        }
        let body_bytes = usize::try_from(head.body_bytes).unwrap_or(usize::MAX);
        if body_bytes_max < body_bytes {
            return Err(odd(&format!("a body of {body_bytes} bytes")));
        }
        let Some(body) = rest.get(..body_bytes) else {
            self.tidy();
            return Ok(None);
        };
        let result = read(head, body);
        self.taken += HEAD_BYTES + body_bytes;
        result.map(Some)
    }

    /// Forgets what was taken, and the room that a large round needed.
    fn tidy(&mut self) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.is_empty() && READ_BYTES < self.bytes.capacity() {
            self.bytes.shrink_to(READ_BYTES);
        }
    }
}

/// Sends all pieces, waiting for room.
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
