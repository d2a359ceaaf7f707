//! Frames: a 32-byte head, a body, and separate file data. Layout: `docs/formats/wire.md`.
//!
//! Never: uses a length before checking it against its limit. Always: head and body are covered by one CRC32C; data by another where the
//! transport can damage bytes (TCP without protection).

use std::io;

use pario_core::codec::{self, Encode, Malformed};
use pario_core::limits::{FRAME_BODY_BYTES_MAX, FRAME_DATA_BYTES_MAX};

/// First bytes of every frame.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PAR1");
/// Bytes of a head.
pub const HEAD_BYTES: usize = 32;
/// Protocol version; both sides must speak the same one before 1.0.
pub const PROTOCOL: u32 = 9;
/// Body limit until the peer has proved knowledge of the secret.
pub const GREETING_BODY_BYTES_MAX: usize = 4096;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum FrameKind {
    /// Client to server: identity.
    Hello = 1,
    /// Server to client: challenge, with the server's proof.
    Challenge = 2,
    /// Client to server: the client's proof.
    Proof = 3,
    /// Server to client: accepted.
    Welcome = 4,
    /// A [`crate::message::Request`].
    Request = 5,
    /// A [`crate::message::Reply`].
    Reply = 6,
    /// A [`crate::message::Notice`].
    Notice = 7,
    /// Server to client: not the target server; further bytes are relayed to it.
    Relayed = 8,
}

impl FrameKind {
    fn from_number(number: u16) -> Option<FrameKind> {
        use FrameKind::{Challenge, Hello, Notice, Proof, Relayed, Reply, Request, Welcome};
        [Hello, Challenge, Proof, Welcome, Request, Reply, Notice, Relayed]
            .into_iter()
            .find(|kind| *kind as u16 == number)
    }
}

const FLAG_DATA_CRC: u16 = 1;

/// Head of a frame, 32 bytes, little endian. Layout and reasons: `docs/formats/wire.md`, section "Head".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Whether the data has a checksum.
    pub data_checked: bool,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// Bytes of data after the body.
    pub data_bytes: u32,
    /// Number of the request, the same in its reply.
    pub request: u64,
    /// CRC32C of the head's first 24 bytes and the body.
    pub body_crc: u32,
    /// CRC32C of the data, or 0.
    pub data_crc: u32,
}

/// A malformed frame. Its connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Not a frame at all.
    #[error("not a Pario frame: it starts with {0:#010x}")]
    Magic(u32),
    /// An unknown kind.
    #[error("frame of unknown kind {0}")]
    Kind(u16),
    /// Unknown flags.
    #[error("frame with unknown flags {0:#06x}")]
    Flags(u16),
    /// Longer than allowed.
    #[error("frame with {got} bytes of {part}, {limit} are allowed")]
    TooLong {
        /// Body or data.
        part: &'static str,
        /// Value in the head.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes were corrupted in transit.
    #[error("frame {request} damaged in transit: checksum of its {part} differs")]
    Checksum {
        /// Body or data.
        part: &'static str,
        /// Which frame.
        request: u64,
    },
    /// A body that does not decode.
    #[error("frame {request}: {source}")]
    Body {
        /// Which frame.
        request: u64,
        /// The decoding error.
        source: Malformed,
    },
    /// The connection ended inside a frame.
    #[error("connection ended inside a frame")]
    Ended,
    /// The operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A received frame; the caller stores its data.
#[derive(Debug)]
pub struct Frame {
    /// Its head.
    pub head: FrameHead,
    /// Its body.
    pub body: Vec<u8>,
    /// Data after the body.
    pub data: Vec<u8>,
}

impl Frame {
    /// Decodes the body.
    pub fn message<T: Encode>(&self) -> Result<T, FrameError> {
        codec::from_bytes(&self.body)
            .map_err(|source| FrameError::Body { request: self.head.request, source })
    }
}

impl FrameHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0u8; HEAD_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&(if self.data_checked { FLAG_DATA_CRC } else { 0 }).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.data_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.request.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes
    }

    /// Checks magic, kind and lengths; `body_limit` is small before the peer has proved itself.
    pub fn decode(bytes: &[u8; HEAD_BYTES], body_limit: usize) -> Result<FrameHead, FrameError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != MAGIC {
            return Err(FrameError::Magic(word(0)));
        }
        let kind = u16::from_le_bytes([bytes[4], bytes[5]]);
        let kind = FrameKind::from_number(kind).ok_or(FrameError::Kind(kind))?;
        let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
        if flags & !FLAG_DATA_CRC != 0 {
            return Err(FrameError::Flags(flags));
        }
        let (body, data) = (word(8) as usize, word(12) as usize);
        let data_limit = if body_limit < FRAME_BODY_BYTES_MAX { 0 } else { FRAME_DATA_BYTES_MAX };
        check_length("body", body, body_limit)?;
        check_length("data", data, data_limit)?;
        Ok(FrameHead {
            kind,
            data_checked: flags & FLAG_DATA_CRC != 0,
            body_bytes: word(8),
            data_bytes: word(12),
            request: u64::from(word(16)) | u64::from(word(20)) << 32,
            body_crc: word(24),
            data_crc: word(28),
        })
    }

    /// Compares the body with its checksum.
    pub fn check_body(&self, body: &[u8]) -> Result<(), FrameError> {
        let head = self.encode();
        if crc32c::crc32c_append(crc32c::crc32c(&head[..24]), body) == self.body_crc {
            return Ok(());
        }
        Err(FrameError::Checksum { part: "body", request: self.request })
    }

    /// Compares the data with its checksum, if it has one.
    pub fn check_data(&self, data: &[u8]) -> Result<(), FrameError> {
        self.check_pieces(std::iter::once(data))
    }

    /// The same with data in pieces.
    pub fn check_pieces<'a>(&self, data: impl Iterator<Item = &'a [u8]>) -> Result<(), FrameError> {
        if !self.data_checked || data.fold(0, crc32c::crc32c_append) == self.data_crc {
            return Ok(());
        }
        Err(FrameError::Checksum { part: "data", request: self.request })
    }
}

fn check_length(part: &'static str, got: usize, limit: usize) -> Result<(), FrameError> {
    if limit < got { Err(FrameError::TooLong { part, got, limit }) } else { Ok(()) }
}

/// Whether data gets a checksum: yes where the network carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataCheck {
    /// Shared memory and unix sockets do not damage bytes.
    None,
    /// CRC32C.
    Crc,
}

/// Head and body of a frame, ready to send in front of `data` (given in parts).
pub fn seal<T: Encode>(
    kind: FrameKind,
    request: u64,
    message: &T,
    data: &[&[u8]],
    check: DataCheck,
) -> Vec<u8> {
    let body = codec::to_bytes(message);
    assert!(body.len() <= FRAME_BODY_BYTES_MAX, "a message outgrew its frame");
    let data_bytes: usize = data.iter().map(|part| part.len()).sum();
    assert!(data_bytes <= FRAME_DATA_BYTES_MAX, "data outgrew its frame");
    let checked = check == DataCheck::Crc && 0 < data_bytes;
    let data_crc =
        if checked { data.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part)) } else { 0 };
    let mut head = FrameHead {
        kind,
        data_checked: checked,
        body_bytes: u32::try_from(body.len()).expect("checked above"),
        data_bytes: u32::try_from(data_bytes).expect("checked above"),
        request,
        body_crc: 0,
        data_crc,
    };
    head.body_crc = crc32c::crc32c_append(crc32c::crc32c(&head.encode()[..24]), &body);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend_from_slice(&head.encode());
    bytes.extend_from_slice(&body);
    bytes
}

/// Puts frames together from bytes as they arrive, for a side that must not block.
#[derive(Debug, Default)]
pub struct Assembler {
    head_bytes: [u8; HEAD_BYTES],
    head: Option<FrameHead>,
    body: Vec<u8>,
    data: Vec<u8>,
    filled: usize,
}

impl Assembler {
    /// Where the next bytes from the connection belong: read into it, then call [`Assembler::advance`].
    pub fn target(&mut self) -> &mut [u8] {
        match &self.head {
            None => &mut self.head_bytes[self.filled..],
            Some(_) if self.filled < self.body.len() => &mut self.body[self.filled..],
            Some(_) => &mut self.data[self.filled - self.body.len()..],
        }
    }

    /// Whether no byte of the next frame has arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_none() && self.filled == 0
    }

    /// Accounts for `count` more bytes; returns the frame when it is complete.
    pub fn advance(&mut self, count: usize, body_limit: usize) -> Result<Option<Frame>, FrameError> {
        self.filled += count;
        if self.head.is_none() {
            if self.filled < HEAD_BYTES {
                return Ok(None);
            }
            let head = FrameHead::decode(&self.head_bytes, body_limit)?;
            self.body = vec![0; head.body_bytes as usize];
            self.data = crate::buffers::take(head.data_bytes as usize);
            self.head = Some(head);
            self.filled = 0;
        }
        if self.filled < self.body.len() + self.data.len() {
            return Ok(None);
        }
        let head = self.head.take().expect("set above");
        self.filled = 0;
        let (body, data) = (std::mem::take(&mut self.body), std::mem::take(&mut self.data));
        head.check_body(&body)?;
        head.check_data(&data)?;
        Ok(Some(Frame { head, body, data }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::Request;

    fn assemble(bytes: &[u8], step: usize) -> Result<Vec<Frame>, FrameError> {
        let mut assembler = Assembler::default();
        let (mut frames, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let target = assembler.target();
            let count = target.len().min(step).min(rest.len());
            target[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            frames.extend(assembler.advance(count, FRAME_BODY_BYTES_MAX)?);
        }
        Ok(frames)
    }

    #[test]
    fn bytes_are_pinned() {
        let bytes = seal(FrameKind::Request, 7, &Request::Ping {}, &[], DataCheck::Crc);
        assert_eq!(bytes[..24], *b"PAR1\x05\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0");
        assert_eq!(bytes[24..], [0xa6, 0x8f, 0x53, 0x39, 0, 0, 0, 0, 1]);
        let notice = crate::message::Notice::Unlinked { inode: pario_core::InodeId(0x0102) };
        let bytes = seal(FrameKind::Notice, 0, &notice, &[], DataCheck::None);
        assert_eq!(bytes[32..], [4, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn frames_come_back_whole_in_any_pieces() {
        let data = vec![3u8; 5000];
        let request = Request::Write {
            object: pario_core::ObjectId {
                inode: pario_core::InodeId(5),
                generation: pario_core::Generation(0),
            },
            at: pario_core::LocalOffset(4096),
        };
        let mut bytes =
            seal(FrameKind::Request, 1, &request, &[&data[..2000], &data[2000..]], DataCheck::Crc);
        bytes.extend_from_slice(&data);
        bytes.extend(seal(FrameKind::Request, 2, &Request::Ping {}, &[], DataCheck::Crc));
        for step in [1, 31, 33, 4096, usize::MAX] {
            let frames = assemble(&bytes, step).unwrap();
            assert_eq!(frames.len(), 2);
            assert_eq!(frames[0].message::<Request>().unwrap(), request);
            assert_eq!(frames[0].data, data);
            assert_eq!(frames[1].message::<Request>().unwrap(), Request::Ping {});
        }
    }

    #[test]
    fn lengths_are_limited_before_anything_is_allocated() {
        let mut bytes = seal(FrameKind::Hello, 1, &Request::Ping {}, &[], DataCheck::None);
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(assemble(&bytes, 64), Err(FrameError::TooLong { part: "body", .. })));
        let head: [u8; HEAD_BYTES] = bytes[..HEAD_BYTES].try_into().unwrap();
        assert!(FrameHead::decode(&head, GREETING_BODY_BYTES_MAX).is_err());
    }

    proptest! {
        /// A changed bit is never mistaken for a good frame.
        #[test]
        fn mutated_frames_are_refused(at in 0usize..200, bit in 0u8..8, step in 1usize..80) {
            let data = [9u8; 128];
            let request = Request::Measure {
                object: pario_core::ObjectId { inode: pario_core::InodeId(9), generation: pario_core::Generation(1) },
            };
            let mut bytes = seal(FrameKind::Request, 11, &request, &[&data], DataCheck::Crc);
            bytes.extend_from_slice(&data);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let frames = assemble(&bytes, step).unwrap_or_default();
            // A longer length waits for bytes that never arrive; all else is an error. The flag that announces the data's checksum is
            // covered by the body's.
            prop_assert!(frames.is_empty());
        }

        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = assemble(&bytes, 7);
            let _ = codec::from_bytes::<Request>(&bytes);
            let _ = codec::from_bytes::<crate::message::Reply>(&bytes);
            let _ = codec::from_bytes::<crate::message::Notice>(&bytes);
        }
    }
}
