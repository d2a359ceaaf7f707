//! Frames between ranks that share no memory: what the one would see in the other's segment, sent.
//!
//! A frame is a head of 40 bytes, an offset list and data; drawn in `docs/formats/two-phase.md`.
//!
//! Never: allocates more than its limits for a frame; trusts one. Always: list and data carry a checksum.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use pario_core::{Code, Fault};

pub(super) const HEAD_BYTES: usize = 40;
const MAGIC: u32 = u32::from_le_bytes(*b"P2P1");

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A step of a round: list, and data if it is a write. Number: the step. Flag: whether it is the last of the round.
    Step = 1,
    /// A step was taken. Number: the step.
    Taken = 2,
    /// Pieces of a window: list and data. Number: the round.
    Fill = 3,
    /// A window is filled. Number: how many are by now. Extra: the file's end.
    Filled = 4,
    /// Windows of a round were copied out. Number: of how many rounds by now.
    Drained = 5,
    /// A domain is dealt with. Number: the call. Flag: the code of a fault, or 0; data: its text.
    Done = 6,
    /// The rank gives up. Flag: the code; data: the text.
    Failed = 7,
}

impl Kind {
    fn from_number(number: u32) -> Option<Kind> {
        let kinds =
            [Kind::Step, Kind::Taken, Kind::Fill, Kind::Filled, Kind::Drained, Kind::Done, Kind::Failed];
        kinds.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) flag: u32,
    pub(super) list_bytes: u32,
    pub(super) data_bytes: u32,
    pub(super) extra: u64,
    pub(super) checksum: u32,
}

impl Head {
    /// A frame without a list or data.
    pub(super) fn short(kind: Kind, number: u32) -> Head {
        Head { kind, number, flag: 0, list_bytes: 0, data_bytes: 0, extra: 0, checksum: 0 }
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

    pub(super) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let extra = u64::from(number(24)) | u64::from(number(28)) << 32;
        (number(0) == MAGIC && number(36) == 0).then_some(())?;
        Some(Head {
            kind: Kind::from_number(number(4))?,
            number: number(8),
            flag: number(12),
            list_bytes: number(16),
            data_bytes: number(20),
            extra,
            checksum: number(32),
        })
    }
}

/// A frame to be sent; sizes and checksum of its head are filled in when it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) head: Head,
    pub(super) list: &'a [u8],
    pub(super) data: &'a [&'a [u8]],
}

/// A checksum over several slices.
pub(super) fn checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    parts.fold(0, crc32c::crc32c_append)
}

/// Reads a frame; its list and data come into `body`, which may take `bytes_max`. `None`: the peer has closed.
pub(super) fn read_frame(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<Option<Head>, Fault> {
    let mut bytes = [0; HEAD_BYTES];
    if read_up_to(stream, &mut bytes)? == 0 {
        return Ok(None);
    }
    let head = Head::from_bytes(&bytes).ok_or_else(|| Fault::new(Code::Protocol, "it sends no frames"))?;
    let wanted = head.list_bytes as usize + head.data_bytes as usize;
    if bytes_max < wanted {
        return Err(Fault::new(Code::Protocol, format!("it sends {wanted} bytes where {bytes_max} may be")));
    }
    body.resize(wanted, 0);
    if read_up_to(stream, body)? < wanted {
        return Err(Fault::new(Code::Unreachable, "its connection ended inside a frame"));
    }
    if checksum(std::iter::once(body.as_slice())) != head.checksum {
        return Err(Fault::new(Code::Corrupt, "a frame does not match its checksum"));
    }
    Ok(Some(head))
}

/// Reads until the buffer is full or the stream ends between frames.
fn read_up_to(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(0),
            Ok(0) => return Err(Fault::new(Code::Unreachable, "its connection ended inside a frame")),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Fault::new(Code::Unreachable, format!("its connection is broken: {error}")));
            }
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` to a stream that has a limit for waiting; each time it is reached, `on_nap` says whether to go on.
pub(super) fn write_all(
    stream: &TcpStream,
    mut bytes: &[u8],
    on_nap: &dyn Fn() -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut stream = stream;
    while !bytes.is_empty() {
        // `write`, not a vectored one: only it is kept from raising SIGPIPE.
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                on_nap()?
            }
            Err(error) => {
                return Err(Fault::new(Code::Unreachable, format!("its connection is broken: {error}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_pinned_and_strange_ones_refused() {
        let head = Head {
            kind: Kind::Fill,
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
        assert_eq!(Head::from_bytes(&head.to_bytes()), Some(head));
        for (at, value) in [(0, b'X'), (4, 0), (4, 8), (39, 1)] {
            let mut bytes = head.to_bytes();
            bytes[at] = value;
            assert_eq!(Head::from_bytes(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn frames_come_through_and_damage_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        let send = |body: &[u8], checksum| {
            let data_bytes = u32::try_from(body.len()).unwrap();
            let head = Head { data_bytes, checksum, ..Head::short(Kind::Done, 3) };
            write_all(&stream, &[&head.to_bytes()[..], body].concat(), &|| Ok(())).unwrap();
        };
        let sum = checksum([&b"ab"[..], b"c"].into_iter());
        let mut body = Vec::new();
        send(b"abc", sum);
        assert_eq!(read_frame(&mut other, &mut body, 3).unwrap().unwrap().number, 3);
        assert_eq!(body, b"abc");
        send(b"abd", sum);
        assert_eq!(read_frame(&mut other, &mut body, 3).unwrap_err().code, Code::Corrupt);
        send(b"abcd", sum);
        assert_eq!(read_frame(&mut other, &mut body, 3).unwrap_err().code, Code::Protocol);
        drop(stream);
        let mut rest = [0; 4];
        other.read_exact(&mut rest).unwrap();
        assert_eq!(read_frame(&mut other, &mut body, 3).unwrap(), None);
    }
}
