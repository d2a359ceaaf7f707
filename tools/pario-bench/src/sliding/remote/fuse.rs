//! The kernel's FUSE messages, as far as a file system of one file needs them: decoded from and encoded to bytes.
//!
//! Never: does I/O. Always: a request that is shorter than its kind needs is refused, not guessed.

/// Length of a request's header.
pub(super) const HEAD_BYTES: usize = 40;
const REPLY_HEAD_BYTES: usize = 16;
/// The root directory, and the one file.
pub(super) const ROOT: u64 = 1;
pub(super) const FILE: u64 = 2;

/// One past the last byte of a lock: the kernel's last byte means "to the end".
const LOCK_END: u64 = i64::MAX as u64;
/// Attributes and names are not cached: other hosts change the file's length.
const VALID_S: u64 = 0;
const MODE_DIR: u32 = 0o040_755;
const MODE_FILE: u32 = 0o100_644;
const BLOCK_BYTES: u32 = 4096;
/// Flags of an open: direct I/O, and concurrent writes.
const OPEN_FLAGS: u32 = 1 | 1 << 6;
const VERSION: (u32, u32) = (7, 31);
/// Supported features: locks, large writes, long requests, asynchronous reads and direct I/O.
const FLAGS: u32 = 1 | 1 << 1 | 1 << 5 | 1 << 15 | 1 << 22;

/// A request of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FuseRequest<'a> {
    Init {
        flags: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    Attributes {
        node: u64,
    },
    /// `None`: an attribute other than the length, which is ignored.
    SetAttributes {
        length: Option<u64>,
    },
    Open,
    OpenDirectory,
    Read {
        offset: u64,
        bytes: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Sync,
    /// A descriptor is closed.
    Flush {
        owner: u64,
    },
    Lock {
        owner: u64,
        start: u64,
        end: u64,
        kind: LockWord,
        waits: bool,
    },
    /// File system statistics.
    Statistics,
    /// No action, but an answer is expected.
    Ready,
    /// No answer is expected.
    Forget,
    /// Not supported.
    Other,
}

/// Kind of a lock request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockWord {
    Read,
    Write,
    Unlock,
}

/// A request with the number that its answer repeats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NumberedRequest<'a> {
    pub(super) unique: u64,
    pub(super) request: FuseRequest<'a>,
}

/// Numbers at offsets of a message.
struct MessageWords<'a>(&'a [u8]);

impl MessageWords<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

/// Decodes a request; `None` if it is truncated.
pub(super) fn decode(message: &[u8]) -> Option<NumberedRequest<'_>> {
    let head = MessageWords(message);
    let (opcode, unique, node) = (head.u32(4)?, head.u64(8)?, head.u64(16)?);
    let body = message.get(HEAD_BYTES..)?;
    let words = MessageWords(body);
    let request = match opcode {
        1 => FuseRequest::Lookup { name: body.split(|byte| *byte == 0).next()? },
        2 | 36 | 42 => FuseRequest::Forget,
        3 => FuseRequest::Attributes { node },
        4 => FuseRequest::SetAttributes { length: (words.u32(0)? & 1 << 3 != 0).then_some(words.u64(16)?) },
        14 => FuseRequest::Open,
        27 => FuseRequest::OpenDirectory,
        15 => FuseRequest::Read { offset: words.u64(8)?, bytes: words.u32(16)? },
        16 => {
            let bytes = usize::try_from(words.u32(16)?).ok()?;
            FuseRequest::Write { offset: words.u64(8)?, data: body.get(40..40 + bytes)? }
        }
        17 => FuseRequest::Statistics,
        20 => FuseRequest::Sync,
        25 => FuseRequest::Flush { owner: words.u64(16)? },
        26 => FuseRequest::Init { flags: words.u32(12)? },
        32 | 33 => lock(&words, opcode == 33)?,
        // Release, release of a directory, access, end.
        18 | 29 | 34 | 38 => FuseRequest::Ready,
        _ => FuseRequest::Other,
    };
    Some(NumberedRequest { unique, request })
}

fn lock<'a>(words: &MessageWords<'_>, waits: bool) -> Option<FuseRequest<'a>> {
    let (owner, start, last) = (words.u64(8)?, words.u64(16)?, words.u64(24)?);
    let kind = match words.u32(32)? {
        0 => LockWord::Read,
        1 => LockWord::Write,
        2 => LockWord::Unlock,
        _ => return None,
    };
    let end = if last < LOCK_END { last + 1 } else { u64::MAX };
    Some(FuseRequest::Lock { owner, start, end, kind, waits })
}

/// An answer: its data, or an error number.
pub(super) fn reply(unique: u64, answer: Result<&[u8], i32>) -> Vec<u8> {
    let (error, data) = match answer {
        Ok(data) => (0, data),
        Err(error) => (-error, &[][..]),
    };
    let bytes = u32::try_from(REPLY_HEAD_BYTES + data.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(REPLY_HEAD_BYTES + data.len());
    message.extend_from_slice(&bytes.to_le_bytes());
    message.extend_from_slice(&error.to_le_bytes());
    message.extend_from_slice(&unique.to_le_bytes());
    message.extend_from_slice(data);
    message
}

/// Supported features, limited to the kernel's.
pub(super) fn init(kernel_flags: u32, data_bytes_max: usize) -> Vec<u8> {
    let most = u32::try_from(data_bytes_max).unwrap_or(u32::MAX);
    let pages = u16::try_from(data_bytes_max / 4096).unwrap_or(u16::MAX);
    let mut data = Vec::new();
    for word in [VERSION.0, VERSION.1, 0, FLAGS & kernel_flags] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    // Maximum of background requests, and their congestion threshold.
    for half in [64u16, 48] {
        data.extend_from_slice(&half.to_le_bytes());
    }
    for word in [most, 1] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    for half in [pages, 0] {
        data.extend_from_slice(&half.to_le_bytes());
    }
    data.resize(64, 0);
    data
}

/// Attributes of the root or of the file.
fn attributes(node: u64, bytes: u64) -> Vec<u8> {
    let (mode, links) = if node == ROOT { (MODE_DIR, 2) } else { (MODE_FILE, 1) };
    let mut data = Vec::new();
    // Number, length, blocks, three times in seconds.
    for word in [node, bytes, bytes.div_ceil(512), 0, 0, 0] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    // Three times in nanoseconds, mode, links, owner, group, device, block size, flags.
    for word in [0, 0, 0, mode, links, 0, 0, 0, BLOCK_BYTES, 0] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    data
}

/// The answer to a request for attributes.
pub(super) fn attributes_out(node: u64, bytes: u64) -> Vec<u8> {
    let mut data = [VALID_S.to_le_bytes(), [0; 8]].concat();
    data.extend(attributes(node, bytes));
    data
}

/// The answer to a lookup.
pub(super) fn entry_out(bytes: u64) -> Vec<u8> {
    let mut data = Vec::new();
    for word in [FILE, 0, VALID_S, VALID_S, 0] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    data.extend(attributes(FILE, bytes));
    data
}

/// The answer to an open.
pub(super) fn open_out(is_file: bool) -> Vec<u8> {
    let flags = if is_file { OPEN_FLAGS } else { 0 };
    [&0u64.to_le_bytes()[..], &flags.to_le_bytes(), &0u32.to_le_bytes()].concat()
}

/// The answer to a request for statistics: names of up to 255 bytes, no counts.
pub(super) fn statistics_out() -> Vec<u8> {
    let mut data = vec![0; 40];
    for word in [BLOCK_BYTES, 255, BLOCK_BYTES] {
        data.extend_from_slice(&word.to_le_bytes());
    }
    data.resize(80, 0);
    data
}

/// The answer to a write.
pub(super) fn write_out(bytes: usize) -> Vec<u8> {
    [u32::try_from(bytes).unwrap_or(0).to_le_bytes(), [0; 4]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
        bytes[8..16].copy_from_slice(&77u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&node.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[track_caller]
    fn check(opcode: u32, body: &[u8], expected: FuseRequest<'_>) {
        let bytes = message(opcode, FILE, body);
        assert_eq!(decode(&bytes), Some(NumberedRequest { unique: 77, request: expected }));
        assert_eq!(decode(&bytes[..HEAD_BYTES - 1]), None);
    }

    #[test]
    fn requests_are_decoded_as_the_kernel_lays_them_out() {
        check(1, b"file\0", FuseRequest::Lookup { name: b"file" });
        check(15, &words(&[5, 4096, 1 << 20, 0, 0]), FuseRequest::Read { offset: 4096, bytes: 1 << 20 });
        let mut body = words(&[5, 8192, 3, 0, 0]);
        body.extend_from_slice(b"abc");
        check(16, &body, FuseRequest::Write { offset: 8192, data: b"abc" });
        check(4, &words(&[8, 0, 1234]), FuseRequest::SetAttributes { length: Some(1234) });
        check(4, &words(&[1, 0, 1234]), FuseRequest::SetAttributes { length: None });
        let lock = |start, end, kind, waits| FuseRequest::Lock { owner: 9, start, end, kind, waits };
        check(33, &words(&[5, 9, 100, 199, 1, 0]), lock(100, 200, LockWord::Write, true));
        check(32, &words(&[5, 9, 0, LOCK_END, 2, 0]), lock(0, u64::MAX, LockWord::Unlock, false));
        check(999, b"", FuseRequest::Other);
        assert_eq!(decode(&message(16, FILE, &words(&[5, 8192, 3, 0, 0]))), None, "its data is missing");
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_expects() {
        assert_eq!(init(u32::MAX, 1 << 20).len(), 64);
        assert_eq!((attributes_out(FILE, 5).len(), entry_out(5).len()), (104, 128));
        assert_eq!((open_out(true).len(), write_out(3).len(), statistics_out().len()), (16, 8, 80));
        assert_eq!(reply(1, Ok(b"abc")).len(), 19);
        let error = reply(1, Err(2));
        assert_eq!((error.len(), &error[4..8]), (16, &(-2i32).to_le_bytes()[..]));
    }
}
