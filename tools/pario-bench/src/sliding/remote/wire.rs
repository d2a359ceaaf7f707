//! Requests and answers between a mount and the server: fixed headers of little-endian numbers, then data.
//!
//! Always: a header is checked before memory is allocated for its data.

use std::io::{self, Read, Write};

/// Data of one request or answer.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
const HEAD_BYTES: usize = 48;
const REPLY_BYTES: usize = 16;

/// An operation of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemoteOp {
    /// The file's length.
    Length,
    /// `size` bytes from `start` on.
    Read,
    /// The data, to be written from `start` on.
    Write,
    /// Cut or lengthened to `size`.
    SetLength,
    /// Put on stable storage.
    Sync,
    /// `start` to `end` for reading; waits.
    LockRead,
    /// The same for writing.
    LockWrite,
    /// Both without waiting.
    TryRead,
    TryWrite,
    /// `start` to `end` unlocked.
    Unlock,
    /// Everything of an owner's unlocked.
    Forget,
}

const OPS: [RemoteOp; 11] = [
    RemoteOp::Length,
    RemoteOp::Read,
    RemoteOp::Write,
    RemoteOp::SetLength,
    RemoteOp::Sync,
    RemoteOp::LockRead,
    RemoteOp::LockWrite,
    RemoteOp::TryRead,
    RemoteOp::TryWrite,
    RemoteOp::Unlock,
    RemoteOp::Forget,
];

/// A request; unused fields are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireRequest {
    pub(super) op: RemoteOp,
    /// Host and owner on it.
    pub(super) owner: (u64, u64),
    pub(super) start: u64,
    /// One past the last byte.
    pub(super) end: u64,
    pub(super) data_bytes: usize,
}

impl WireRequest {
    pub(super) fn new(op: RemoteOp) -> WireRequest {
        WireRequest { op, owner: (0, 0), start: 0, end: 0, data_bytes: 0 }
    }

    pub(super) fn write(&self, stream: &mut impl Write, data: &[u8]) -> io::Result<()> {
        let op = OPS.iter().position(|op| *op == self.op).unwrap_or(0) as u64;
        let words = [op, self.owner.0, self.owner.1, self.start, self.end, self.data_bytes as u64];
        let mut message = Vec::with_capacity(HEAD_BYTES + data.len());
        message.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        message.extend_from_slice(data);
        stream.write_all(&message)
    }

    /// `None` if the other side has closed the connection.
    pub(super) fn read(stream: &mut impl Read) -> io::Result<Option<WireRequest>> {
        let mut head = [0; HEAD_BYTES];
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at * 8 + byte]));
        let odd = || io::Error::new(io::ErrorKind::InvalidData, "unknown request");
        let op = usize::try_from(word(0)).ok().and_then(|at| OPS.get(at)).ok_or_else(odd)?;
        let data_bytes = usize::try_from(word(5)).map_err(|_| odd())?;
        let wanted = if *op == RemoteOp::Read { word(4).saturating_sub(word(3)) } else { 0 };
        if DATA_BYTES_MAX < data_bytes || DATA_BYTES_MAX as u64 <= wanted.saturating_sub(1) {
            return Err(odd());
        }
        Ok(Some(WireRequest { op: *op, owner: (word(1), word(2)), start: word(3), end: word(4), data_bytes }))
    }
}

/// An answer: a number and data, or an error number.
pub(super) fn write_reply(stream: &mut impl Write, reply: Result<u64, i32>, data: &[u8]) -> io::Result<()> {
    let (error, value) = match reply {
        Ok(value) => (0, value),
        Err(error) => (error, 0),
    };
    let mut message = Vec::with_capacity(REPLY_BYTES + data.len());
    message.extend_from_slice(&error.to_le_bytes());
    message.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    message.extend_from_slice(&value.to_le_bytes());
    message.extend_from_slice(data);
    stream.write_all(&message)
}

/// Appends its data to `data`.
pub(super) fn read_reply(stream: &mut impl Read, data: &mut Vec<u8>) -> io::Result<Result<u64, i32>> {
    let mut head = [0; REPLY_BYTES];
    stream.read_exact(&mut head)?;
    let half = |at: usize| -> [u8; 4] { std::array::from_fn(|byte| head[at + byte]) };
    let bytes = u32::from_le_bytes(half(4)) as usize;
    if DATA_BYTES_MAX < bytes {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer that is too long"));
    }
    let from = data.len();
    data.resize(from + bytes, 0);
    stream.read_exact(&mut data[from..])?;
    let value = u64::from_le_bytes(std::array::from_fn(|byte| head[8 + byte]));
    Ok(match i32::from_le_bytes(half(0)) {
        0 => Ok(value),
        error => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_come_as_they_were_sent() {
        for op in OPS {
            let ask = WireRequest { op, owner: (3, u64::MAX), start: 7, end: 70, data_bytes: 5 };
            let mut sent = Vec::new();
            ask.write(&mut sent, b"bytes").unwrap();
            let mut stream = sent.as_slice();
            assert_eq!(WireRequest::read(&mut stream).unwrap(), Some(ask));
            assert_eq!(stream, b"bytes");
        }
        assert_eq!(WireRequest::read(&mut &b""[..]).unwrap(), None);
        for reply in [Ok(9), Err(11)] {
            let (mut sent, mut data) = (Vec::new(), b"before ".to_vec());
            write_reply(&mut sent, reply, b"data").unwrap();
            assert_eq!(read_reply(&mut sent.as_slice(), &mut data).unwrap(), reply);
            assert_eq!(data, b"before data");
        }
    }

    #[test]
    fn what_is_too_long_is_refused_before_memory_is_made_for_it() {
        let huge = [
            WireRequest { data_bytes: DATA_BYTES_MAX + 1, ..WireRequest::new(RemoteOp::Write) },
            WireRequest { end: u64::MAX, ..WireRequest::new(RemoteOp::Read) },
        ];
        for ask in huge {
            let mut sent = Vec::new();
            ask.write(&mut sent, b"").unwrap();
            assert!(WireRequest::read(&mut sent.as_slice()).is_err(), "{ask:?}");
        }
        let most = WireRequest { end: DATA_BYTES_MAX as u64, ..WireRequest::new(RemoteOp::Read) };
        let mut sent = Vec::new();
        most.write(&mut sent, b"").unwrap();
        assert_eq!(WireRequest::read(&mut sent.as_slice()).unwrap(), Some(most));
    }
}
