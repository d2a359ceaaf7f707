//! Frames between ranks that share no memory: updates of the sender's segment.
//!
//! A frame is a header of 40 bytes, an offset list and data; layout: `docs/formats/two-phase.md`.
//!
//! Never: allocates more than its limits for a frame; trusts a frame. Always: list and data carry a checksum.

use std::io;

use pario_core::{Code, Fault};

use super::rank_connection::RankConnection;

pub(super) const HEAD_BYTES: usize = 40;
const MAGIC: u32 = u32::from_le_bytes(*b"P2P1");

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RankFrameKind {
    /// A step of an iteration: list, and data if it is a write. Number: the step. Flag: whether it is the last of the iteration.
    Step = 1,
    /// A step was read. Number: the step.
    StepRead = 2,
    /// Pieces of a window: list and data. Number: the iteration.
    Fill = 3,
    /// A window is filled. Number: filled windows so far. Extra: the end of the file.
    Filled = 4,
    /// Windows of an iteration were copied out. Number: iterations so far.
    CopiedOut = 5,
    /// A domain is finished. Number: the call. Flag: the code of a fault, or 0; data: its text.
    Done = 6,
    /// The rank gave up. Flag: the code; data: the text.
    Failed = 7,
}

impl RankFrameKind {
    fn from_number(number: u32) -> Option<RankFrameKind> {
        let kinds = [
            RankFrameKind::Step,
            RankFrameKind::StepRead,
            RankFrameKind::Fill,
            RankFrameKind::Filled,
            RankFrameKind::CopiedOut,
            RankFrameKind::Done,
            RankFrameKind::Failed,
        ];
        kinds.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RankFrameHeader {
    pub(super) kind: RankFrameKind,
    pub(super) number: u32,
    pub(super) flag: u32,
    pub(super) list_bytes: u32,
    pub(super) data_bytes: u32,
    pub(super) extra: u64,
    pub(super) checksum: u32,
}

impl RankFrameHeader {
    /// A frame without a list or data.
    pub(super) fn short(kind: RankFrameKind, number: u32) -> RankFrameHeader {
        RankFrameHeader { kind, number, flag: 0, list_bytes: 0, data_bytes: 0, extra: 0, checksum: 0 }
    }

    pub(super) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let numbers = [MAGIC, self.kind as u32, self.number, self.flag, self.list_bytes, self.data_bytes];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.extra.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<RankFrameHeader> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let extra = u64::from(number(24)) | u64::from(number(28)) << 32;
        (number(0) == MAGIC && number(36) == 0).then_some(())?;
        Some(RankFrameHeader {
            kind: RankFrameKind::from_number(number(4))?,
            number: number(8),
            flag: number(12),
            list_bytes: number(16),
            data_bytes: number(20),
            extra,
            checksum: number(32),
        })
    }
}

/// A frame to be sent; sizes and checksum of its header are filled in by the send.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankFrame<'a> {
    pub(super) head: RankFrameHeader,
    pub(super) list: &'a [u8],
    pub(super) data: &'a [&'a [u8]],
}

/// A checksum over several slices.
pub(super) fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    parts.fold(0, crc32c::crc32c_append)
}

/// Reads a frame; its list and data go to `body`, at most `bytes_max`. `None`: the peer has closed the connection.
pub(super) fn read_frame(
    stream: &RankConnection,
    body: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<Option<RankFrameHeader>, Fault> {
    let mut bytes = [0; HEAD_BYTES];
    if read_up_to(stream, &mut bytes)? == 0 {
        return Ok(None);
    }
    let head = RankFrameHeader::from_bytes(&bytes)
        .ok_or_else(|| Fault::new(Code::Protocol, "it sent bytes that are no frame"))?;
    let wanted = head.list_bytes as usize + head.data_bytes as usize;
    if bytes_max < wanted {
        return Err(Fault::new(
            Code::Protocol,
            format!("it sent a frame of {wanted} bytes; the limit is {bytes_max}"),
        ));
    }
    body.resize(wanted, 0);
    if read_up_to(stream, body)? < wanted {
        return Err(Fault::new(Code::Unreachable, "its connection was closed inside a frame"));
    }
    if checksum(std::iter::once(body.as_slice())) != head.checksum {
        return Err(Fault::new(Code::Corrupt, "a frame does not match its checksum"));
    }
    Ok(Some(head))
}

/// Reads until the buffer is full or the stream ends between frames.
fn read_up_to(stream: &RankConnection, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(0),
            Ok(0) => return Err(Fault::new(Code::Unreachable, "its connection was closed inside a frame")),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Fault::new(Code::Unreachable, format!("its connection is broken: {error}")));
            }
        }
    }
    Ok(filled)
}

/// Writes all of `bytes`; after each [`super::line::NAP`] without buffer space, `on_nap` decides whether to continue.
pub(super) fn write_all(
    stream: &RankConnection,
    bytes: &[u8],
    on_nap: &dyn Fn() -> Result<(), Fault>,
) -> Result<(), Fault> {
    stream.write_all(bytes, &|| on_nap().map_err(WriteStopped::Fault)).map_err(|stopped| match stopped {
        WriteStopped::Fault(fault) => fault,
        WriteStopped::Io(error) => {
            Fault::new(Code::Unreachable, format!("its connection is broken: {error}"))
        }
    })
}

/// Why a write ended early.
enum WriteStopped {
    Fault(Fault),
    Io(io::Error),
}

impl From<io::Error> for WriteStopped {
    fn from(error: io::Error) -> WriteStopped {
        WriteStopped::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_pinned_and_strange_ones_refused() {
        let head = RankFrameHeader {
            kind: RankFrameKind::Fill,
            number: 7,
            flag: 1,
            list_bytes: 16,
            data_bytes: 0x0102,
            extra: 0x0a0b,
            checksum: 9,
        };
        let mut pinned = Vec::new();
        pinned.extend_from_slice(b"P2P1\x03\0\0\0\x07\0\0\0\x01\0\0\0\x10\0\0\0\x02\x01\0\0");
        pinned.extend_from_slice(b"\x0b\x0a\0\0\0\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(head.to_bytes().as_slice(), pinned);
        assert_eq!(RankFrameHeader::from_bytes(&head.to_bytes()), Some(head));
        for (at, value) in [(0, b'X'), (4, 0), (4, 8), (39, 1)] {
            let mut bytes = head.to_bytes();
            bytes[at] = value;
            assert_eq!(RankFrameHeader::from_bytes(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn frames_come_through_and_damage_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = RankConnection::new(stream).unwrap();
        let other = RankConnection::new(listener.accept().unwrap().0).unwrap();
        let send = |body: &[u8], checksum| {
            let data_bytes = u32::try_from(body.len()).unwrap();
            let head =
                RankFrameHeader { data_bytes, checksum, ..RankFrameHeader::short(RankFrameKind::Done, 3) };
            write_all(&stream, &[&head.to_bytes()[..], body].concat(), &|| Ok(())).unwrap();
        };
        let sum = checksum([&b"ab"[..], b"c"].into_iter());
        let mut body = Vec::new();
        send(b"abc", sum);
        assert_eq!(read_frame(&other, &mut body, 3).unwrap().unwrap().number, 3);
        assert_eq!(body, b"abc");
        send(b"abd", sum);
        assert_eq!(read_frame(&other, &mut body, 3).unwrap_err().code, Code::Corrupt);
        send(b"abcd", sum);
        assert_eq!(read_frame(&other, &mut body, 3).unwrap_err().code, Code::Protocol);
        drop(stream);
        let mut rest = [0; 4];
        other.read_exact(&mut rest).unwrap();
        assert_eq!(read_frame(&other, &mut body, 3).unwrap(), None);
    }
}
