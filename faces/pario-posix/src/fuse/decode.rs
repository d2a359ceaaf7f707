//! The kernel's requests, decoded from bytes. Layouts: `linux/fuse.h`.
//!
//! Never: does I/O. Always: a request that is shorter than its kind needs, or has a name without an end, is refused and not guessed.

/// Length of a request's header.
const HEAD_BYTES: usize = 40;
/// Last byte of a lock to the end of the file.
const LOCK_LAST: u64 = i64::MAX as u64;

/// A request that is not well formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// Number to answer, if it could be read.
    pub unique: Option<u64>,
}

/// A request of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountRequest<'a> {
    /// Number that the answer repeats.
    pub unique: u64,
    /// Inode that it is about.
    pub node: u64,
    /// User of the calling process.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What is asked.
    pub operation: FuseOperation<'a>,
}

/// What the kernel asks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are those of linux/fuse.h")]
pub enum FuseOperation<'a> {
    Init {
        minor: u32,
        flags: u32,
        flags2: u32,
    },
    Lookup {
        name: &'a [u8],
    },
    /// Nothing is answered.
    Forget,
    GetAttr,
    SetAttr(MountAttrChange),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        mode: u32,
        device: u32,
        name: &'a [u8],
    },
    MakeDir {
        mode: u32,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDir {
        name: &'a [u8],
    },
    Rename {
        to_dir: u64,
        flags: u32,
        from: &'a [u8],
        to: &'a [u8],
    },
    Link {
        inode: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
        open_flags: u32,
    },
    Create {
        flags: u32,
        mode: u32,
        name: &'a [u8],
    },
    Read {
        handle: u64,
        offset: u64,
        bytes: u32,
        read_flags: u32,
    },
    Write {
        handle: u64,
        offset: u64,
        write_flags: u32,
        flags: u32,
        data: &'a [u8],
    },
    StatFs,
    Flush {
        handle: u64,
        owner: u64,
    },
    Release {
        handle: u64,
    },
    Sync {
        handle: u64,
    },
    OpenDir,
    ReadDir {
        handle: u64,
        offset: u64,
        bytes: u32,
    },
    ReleaseDir {
        handle: u64,
    },
    SyncDir,
    GetLock(MountLock),
    SetLock {
        lock: MountLock,
        waits: bool,
    },
    GetXattr {
        bytes: u32,
        name: &'a [u8],
    },
    ListXattrs {
        bytes: u32,
    },
    SetXattr {
        flags: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
    /// Reserve, punch or zero a range.
    Allocate,
    /// Every other opcode.
    Unknown {
        opcode: u32,
    },
}

/// A change of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are those of linux/fuse.h")]
pub struct MountAttrChange {
    pub valid: u32,
    pub handle: u64,
    pub size: u64,
    pub accessed: (u64, u32),
    pub modified: (u64, u32),
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "fields are those of linux/fuse.h")]
pub struct MountLock {
    pub handle: u64,
    pub owner: u64,
    pub start: u64,
    /// One past the last byte; `u64::MAX` without an end.
    pub end: u64,
    pub kind: u32,
    pub pid: u32,
    pub flags: u32,
}

/// Numbers and names at the front of a message.
struct MessageFields<'a>(&'a [u8]);

impl<'a> MessageFields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// Bytes up to a zero byte; at least one.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.bytes(end)?;
        self.bytes(1)?;
        (!name.is_empty()).then_some(name)
    }
}

/// Decodes a request.
pub fn decode(message: &[u8]) -> Result<MountRequest<'_>, DecodeError> {
    let mut head = MessageFields(message);
    let (length, opcode) = (head.u32(), head.u32());
    let Some(unique) = head.u64() else { return Err(DecodeError { unique: None }) };
    let error = DecodeError { unique: Some(unique) };
    let (Some(length), Some(opcode)) = (length, opcode) else { return Err(error) };
    if usize::try_from(length) != Ok(message.len()) {
        return Err(error);
    }
    let rest = || {
        let (node, uid, gid) = (head.u64()?, head.u32()?, head.u32()?);
        let mut body = MessageFields(message.get(HEAD_BYTES..)?);
        let operation = names(opcode, &mut body)?;
        Some(MountRequest { unique, node, uid, gid, operation })
    };
    let mut rest = rest;
    rest().ok_or(error)
}

/// Requests about names.
fn names<'a>(opcode: u32, body: &mut MessageFields<'a>) -> Option<FuseOperation<'a>> {
    Some(match opcode {
        1 => FuseOperation::Lookup { name: body.name()? },
        2 | 42 => FuseOperation::Forget,
        3 => FuseOperation::GetAttr,
        4 => FuseOperation::SetAttr(set_attr(body)?),
        5 => FuseOperation::ReadLink,
        6 => FuseOperation::Symlink { name: body.name()?, target: body.name()? },
        8 => {
            let (mode, device, _umask, _padding) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            FuseOperation::MakeNode { mode, device, name: body.name()? }
        }
        9 => {
            let (mode, _umask) = (body.u32()?, body.u32()?);
            FuseOperation::MakeDir { mode, name: body.name()? }
        }
        10 => FuseOperation::Unlink { name: body.name()? },
        11 => FuseOperation::RemoveDir { name: body.name()? },
        12 => FuseOperation::Rename { to_dir: body.u64()?, flags: 0, from: body.name()?, to: body.name()? },
        13 => FuseOperation::Link { inode: body.u64()?, name: body.name()? },
        45 => {
            let (to_dir, flags, _padding) = (body.u64()?, body.u32()?, body.u32()?);
            FuseOperation::Rename { to_dir, flags, from: body.name()?, to: body.name()? }
        }
        21 => {
            let (bytes, flags) = (body.u32()?, body.u32()?);
            let name = body.name()?;
            FuseOperation::SetXattr { flags, name, value: body.bytes(usize::try_from(bytes).ok()?)? }
        }
        22 => {
            let (bytes, _padding) = (body.u32()?, body.u32()?);
            FuseOperation::GetXattr { bytes, name: body.name()? }
        }
        23 => FuseOperation::ListXattrs { bytes: body.u32()? },
        24 => FuseOperation::RemoveXattr { name: body.name()? },
        _ => files(opcode, body)?,
    })
}

/// Requests about open files and directories, and about the session.
fn files<'a>(opcode: u32, body: &mut MessageFields<'a>) -> Option<FuseOperation<'a>> {
    Some(match opcode {
        14 => FuseOperation::Open { flags: body.u32()?, open_flags: body.u32()? },
        15 => {
            let (handle, offset, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            FuseOperation::Read { handle, offset, bytes, read_flags: body.u32()? }
        }
        16 => write(body)?,
        17 => FuseOperation::StatFs,
        18 => FuseOperation::Release { handle: body.u64()? },
        20 => FuseOperation::Sync { handle: body.u64()? },
        25 => {
            let (handle, _unused) = (body.u64()?, body.u64()?);
            FuseOperation::Flush { handle, owner: body.u64()? }
        }
        26 => {
            let (_major, minor, _readahead, flags) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            FuseOperation::Init { minor, flags, flags2: body.u32().unwrap_or(0) }
        }
        27 => FuseOperation::OpenDir,
        28 => {
            let (handle, offset, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            FuseOperation::ReadDir { handle, offset, bytes }
        }
        29 => FuseOperation::ReleaseDir { handle: body.u64()? },
        30 => FuseOperation::SyncDir,
        31 => FuseOperation::GetLock(lock(body)?),
        32 => FuseOperation::SetLock { lock: lock(body)?, waits: false },
        33 => FuseOperation::SetLock { lock: lock(body)?, waits: true },
        35 => {
            let (flags, mode, _umask, _open) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            FuseOperation::Create { flags, mode, name: body.name()? }
        }
        36 => FuseOperation::Interrupt { unique: body.u64()? },
        38 => FuseOperation::Destroy,
        43 => FuseOperation::Allocate,
        opcode => FuseOperation::Unknown { opcode },
    })
}

fn write<'a>(body: &mut MessageFields<'a>) -> Option<FuseOperation<'a>> {
    let (handle, offset, bytes, write_flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
    let (_owner, flags, _padding) = (body.u64()?, body.u32()?, body.u32()?);
    let data = body.bytes(usize::try_from(bytes).ok()?)?;
    Some(FuseOperation::Write { handle, offset, write_flags, flags, data })
}

fn lock(body: &mut MessageFields<'_>) -> Option<MountLock> {
    let (handle, owner, start, last) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
    let (kind, pid, flags) = (body.u32()?, body.u32()?, body.u32()?);
    if last < start {
        return None;
    }
    let end = if last < LOCK_LAST { last + 1 } else { u64::MAX };
    Some(MountLock { handle, owner, start, end, kind, pid, flags })
}

fn set_attr(body: &mut MessageFields<'_>) -> Option<MountAttrChange> {
    let (valid, _padding, handle, size, _owner) =
        (body.u32()?, body.u32()?, body.u64()?, body.u64()?, body.u64()?);
    let (accessed, modified, _changed) = (body.u64()?, body.u64()?, body.u64()?);
    let (accessed_ns, modified_ns, _changed_ns) = (body.u32()?, body.u32()?, body.u32()?);
    let (mode, _unused, uid, gid) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    let (accessed, modified) = ((accessed, accessed_ns), (modified, modified_ns));
    Some(MountAttrChange { valid, handle, size, accessed, modified, mode, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEAD_BYTES + body.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
        for number in [77u64, 5] {
            bytes.extend(number.to_ne_bytes());
        }
        for number in [1000u32, 100, 4321, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend_from_slice(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[track_caller]
    fn check(opcode: u32, body: &[u8], operation: FuseOperation<'_>) {
        let bytes = message(opcode, body);
        let expected = MountRequest { unique: 77, node: 5, uid: 1000, gid: 100, operation };
        assert_eq!(decode(&bytes), Ok(expected));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length} bytes of it");
        }
    }

    #[test]
    fn requests_are_decoded_as_the_kernel_lays_them_out() {
        check(1, b"file\0", FuseOperation::Lookup { name: b"file" });
        check(6, b"link\0to/there\0", FuseOperation::Symlink { name: b"link", target: b"to/there" });
        check(12, &[&words(&[9])[..], b"a\0b\0"].concat(), rename(0));
        check(45, &[&words(&[9, 2])[..], b"a\0b\0"].concat(), rename(2));
        check(
            15,
            &words(&[5, 4096, 1 << 20 | 2 << 32]),
            FuseOperation::Read { handle: 5, offset: 4096, bytes: 1 << 20, read_flags: 2 },
        );
        let mut body = words(&[5, 8192, 3 | 4 << 32, 0, 0o2001]);
        body.extend_from_slice(b"abc");
        let (write_flags, flags) = (4, 0o2001);
        let write = FuseOperation::Write { handle: 5, offset: 8192, write_flags, flags, data: b"abc" };
        check(16, &body, write);
        let lock = MountLock { handle: 5, owner: 9, start: 100, end: 200, kind: 1, pid: 7, flags: 1 };
        let body = words(&[5, 9, 100, 199, 1 | 7 << 32, 1]);
        check(33, &body, FuseOperation::SetLock { lock, waits: true });
        let whole = MountLock { start: 0, end: u64::MAX, ..lock };
        check(31, &words(&[5, 9, 0, LOCK_LAST, 1 | 7 << 32, 1]), FuseOperation::GetLock(whole));
        check(36, &words(&[76]), FuseOperation::Interrupt { unique: 76 });
        let body = [&[4, 0, 0, 0, 1, 0, 0, 0][..], b"user.a\0", b"abcd"].concat();
        check(21, &body, FuseOperation::SetXattr { flags: 1, name: b"user.a", value: b"abcd" });
        check(999, b"", FuseOperation::Unknown { opcode: 999 });
    }

    fn rename(flags: u32) -> FuseOperation<'static> {
        FuseOperation::Rename { to_dir: 9, flags, from: b"a", to: b"b" }
    }

    #[test]
    fn attributes_are_where_the_kernel_puts_them() {
        let body = words(&[8 | 16, 3, 1234, 0, 10, 20, 30, 1 | 2 << 32, 3 | 0o644 << 32, 8 << 32, 9]);
        let expected = MountAttrChange {
            valid: 24,
            handle: 3,
            size: 1234,
            accessed: (10, 1),
            modified: (20, 2),
            mode: 0o644,
            uid: 8,
            gid: 9,
        };
        let bytes = message(4, &body);
        assert_eq!(decode(&bytes).unwrap().operation, FuseOperation::SetAttr(expected));
    }

    #[test]
    fn lies_are_refused() {
        assert_eq!(decode(b""), Err(DecodeError { unique: None }));
        let unfinished = decode(&message(1, b"name without an end")).unwrap_err();
        assert_eq!(unfinished.unique, Some(77));
        assert!(decode(&message(1, b"\0")).is_err(), "an empty name");
        assert!(
            decode(&message(33, &words(&[5, 9, 100, 99, 1, 0]))).is_err(),
            "a lock that ends before it starts"
        );
        assert!(
            decode(&message(16, &words(&[5, 8192, u64::from(u32::MAX), 0, 0]))).is_err(),
            "more data than there is"
        );
        let mut longer = message(17, b"");
        longer.push(0);
        assert!(decode(&longer).is_err(), "bytes behind the end");
    }

    /// Decoding of any bytes ends without a panic.
    #[test]
    fn random_bytes_are_decoded_or_refused() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..200_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let body: Vec<u8> = state.to_ne_bytes().repeat(usize::try_from(state >> 60).unwrap());
            let _ = decode(&message(round % 60, &body)).map(|request| request.unique);
        }
    }
}
