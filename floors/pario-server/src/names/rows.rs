//! Keys and values of the names' rows. Layout: `docs/formats/names.md`, "Rows".
//!
//! Always: numbers in keys are big-endian, so that rows are in the order of their numbers; a directory's entries are contiguous, in the
//! order of their names' bytes.

use pario_core::codec::{Encode, Malformed, Reader, Writer, from_bytes, to_bytes};
use pario_core::{Code, Fault, FileAttr, FileKind, Generation, InodeId, SessionId, encode_struct};

const COUNTERS: u8 = b'c';
const ENTRY: u8 = b'e';
const INODE: u8 = b'i';
const NAME: u8 = b'n';
const ORPHAN: u8 = b'o';
const LOCATION: u8 = b'p';
const REPLY: u8 = b'r';
const SESSION: u8 = b's';
const TRUNCATION: u8 = b't';
const WRITER: u8 = b'w';
const XATTR: u8 = b'x';

/// A name of an inode. The root has the empty name in inode 0, which does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameLocation {
    /// The directory.
    pub parent: InodeId,
    /// The name in it.
    pub name: Vec<u8>,
}
encode_struct!(NameLocation { parent, name });

/// The entry of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameEntry {
    /// The inode's attributes. Of an inode that has, or had, two names only number, kind and layout are valid here: see [`is_linked`].
    pub attr: FileAttr,
    /// The target of a symbolic link, else empty.
    pub target: Vec<u8>,
}
encode_struct!(NameEntry { attr, target });

/// Whether the attributes of an entry's inode are in a row of their own, since it has, or had, two names.
#[must_use]
pub fn is_linked(stored: &FileAttr) -> bool {
    1 < stored.links && stored.kind != FileKind::Directory
}

/// Counters of the whole name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameCounters {
    /// The next new inode's number.
    pub next_inode: InodeId,
    /// Inodes that have a name.
    pub inodes: u64,
    /// The next new session's sequence number.
    pub next_stamp: u64,
}
encode_struct!(NameCounters { next_inode, inodes, next_stamp });

/// A truncation in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TruncationRow {
    /// Generation before.
    pub from: Generation,
    /// Generation after.
    pub to: Generation,
    /// Length after.
    pub bytes: u64,
}
encode_struct!(TruncationRow { from, to, bytes });

/// The row of the counters.
pub fn counters() -> Vec<u8> {
    vec![COUNTERS]
}

/// The row of a name.
pub fn entry(parent: InodeId, name: &[u8]) -> Vec<u8> {
    let mut key = numbered(ENTRY, parent.0);
    key.extend_from_slice(name);
    key
}

/// Key prefix of a directory's entries.
pub fn entries(parent: InodeId) -> Vec<u8> {
    numbered(ENTRY, parent.0)
}

/// The name in the key of an entry.
pub fn name_of_entry(key: &[u8]) -> &[u8] {
    key.get(1 + 8..).unwrap_or_default()
}

/// The row with an inode's name.
pub fn location(inode: InodeId) -> Vec<u8> {
    numbered(LOCATION, inode.0)
}

/// Key prefix of the rows with inodes' names.
pub fn locations() -> Vec<u8> {
    vec![LOCATION]
}

/// The row with the attributes of an inode that has, or had, two names.
pub fn inode(inode: InodeId) -> Vec<u8> {
    numbered(INODE, inode.0)
}

/// The row of one of several names of an inode; its value is empty.
pub fn name(inode: InodeId, place: &NameLocation) -> Vec<u8> {
    let mut key = numbered(NAME, inode.0);
    key.extend_from_slice(&place.parent.0.to_be_bytes());
    key.extend_from_slice(&place.name);
    key
}

/// Key prefix of the names of an inode that has, or had, two.
pub fn names(inode: InodeId) -> Vec<u8> {
    numbered(NAME, inode.0)
}

/// The name in the key of one of several names.
pub fn location_of_name(key: &[u8]) -> Result<NameLocation, Fault> {
    let parent = key.get(1 + 8..).and_then(<[u8]>::first_chunk).copied();
    let parent = parent.map(u64::from_be_bytes).ok_or_else(|| damaged(key, Malformed("key too short")))?;
    Ok(NameLocation { parent: InodeId(parent), name: key.get(1 + 16..).unwrap_or_default().to_vec() })
}

/// The row of an extended attribute.
pub fn xattr(inode: InodeId, name: &[u8]) -> Vec<u8> {
    let mut key = numbered(XATTR, inode.0);
    key.extend_from_slice(name);
    key
}

/// Key prefix of the extended attributes of an inode.
pub fn xattrs(inode: InodeId) -> Vec<u8> {
    numbered(XATTR, inode.0)
}

/// Key prefix of all extended attributes.
pub fn all_xattrs() -> Vec<u8> {
    vec![XATTR]
}

/// The row of an inode without a name.
pub fn orphan(inode: InodeId) -> Vec<u8> {
    numbered(ORPHAN, inode.0)
}

/// Key prefix of inodes without a name.
pub fn orphans() -> Vec<u8> {
    vec![ORPHAN]
}

/// The row of a truncation in progress.
pub fn truncation(inode: InodeId) -> Vec<u8> {
    numbered(TRUNCATION, inode.0)
}

/// Key prefix of truncations in progress.
pub fn truncations() -> Vec<u8> {
    vec![TRUNCATION]
}

/// The row of a kept reply.
pub fn reply(session: SessionId, slot: u16) -> Vec<u8> {
    let mut key = numbered(REPLY, session.0);
    key.extend_from_slice(&slot.to_be_bytes());
    key
}

/// Key prefix of a session's kept replies.
pub fn replies(session: SessionId) -> Vec<u8> {
    numbered(REPLY, session.0)
}

/// The row of a session with kept replies.
pub fn session(session: SessionId) -> Vec<u8> {
    numbered(SESSION, session.0)
}

/// Key prefix of sessions.
pub fn sessions() -> Vec<u8> {
    vec![SESSION]
}

/// The row of one writer of a file.
pub fn writer(inode: InodeId, session: SessionId) -> Vec<u8> {
    let mut key = numbered(WRITER, inode.0);
    key.extend_from_slice(&session.0.to_be_bytes());
    key
}

/// Key prefix of writers.
pub fn writers() -> Vec<u8> {
    vec![WRITER]
}

/// The number after the tag of a key.
pub fn number_of(key: &[u8]) -> Result<u64, Fault> {
    let number = key.get(1..).and_then(<[u8]>::first_chunk).copied();
    number.map(u64::from_be_bytes).ok_or_else(|| damaged(key, Malformed("key too short")))
}

/// The file and the session of a writer's key.
pub fn writer_of(key: &[u8]) -> Result<(InodeId, SessionId), Fault> {
    let session = key.get(1 + 8..).and_then(<[u8]>::first_chunk).copied();
    let session = session.map(u64::from_be_bytes).ok_or_else(|| damaged(key, Malformed("key too short")))?;
    Ok((InodeId(number_of(key)?), SessionId(session)))
}

/// The value of a row.
pub fn decode<T: Encode>(key: &[u8], value: &[u8]) -> Result<T, Fault> {
    from_bytes(value).map_err(|error| damaged(key, error))
}

/// The attributes of an entry, without the rest of it.
pub fn decode_attr(key: &[u8], value: &[u8]) -> Result<FileAttr, Fault> {
    Reader::new(value).get().map_err(|error| damaged(key, error))
}

/// Bytes of a value.
pub fn encode<T: Encode>(value: &T) -> Vec<u8> {
    to_bytes(value)
}

fn numbered(tag: u8, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(tag);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn damaged(key: &[u8], error: Malformed) -> Fault {
    Fault::new(Code::Corrupt, format!("names: row {}: {error}", key.escape_ascii()))
}

/// The process of a session that writes back a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriterProcess {
    /// Host it runs on.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// Its start time in kernel ticks: distinguishes it from a later process with the same id.
    pub start_ticks: u64,
}
encode_struct!(WriterProcess { host, pid, start_ticks });

/// A kept reply and the request it answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplyRow<T> {
    /// Number of the request in its session.
    pub request: u64,
    /// Whether it created the inode that it returned.
    pub created: bool,
    /// The reply.
    pub reply: T,
}

impl<T: Encode> Encode for ReplyRow<T> {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.request).put(&self.created).put(&self.reply);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(ReplyRow { request: reader.get()?, created: reader.get()?, reply: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_pinned() {
        assert_eq!(entry(InodeId(0x0102), b"n\xff"), [b'e', 0, 0, 0, 0, 0, 0, 1, 2, b'n', 0xff]);
        assert_eq!(location(InodeId(3)), [b'p', 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(reply(SessionId(1), 0x0203), [b'r', 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(writer(InodeId(1), SessionId(2)), [b'w', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
        let place = NameLocation { parent: InodeId(2), name: b"n".to_vec() };
        let key = name(InodeId(1), &place);
        assert_eq!(key, [b'n', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, b'n']);
        assert_eq!(location_of_name(&key).unwrap(), place);
        assert_eq!(xattr(InodeId(1), b"user.a"), *b"x\0\0\0\0\0\0\0\x01user.a");
        let letters =
            [COUNTERS, ENTRY, INODE, NAME, ORPHAN, LOCATION, REPLY, SESSION, TRUNCATION, WRITER, XATTR];
        assert_eq!(letters, *b"ceinoprstwx");
    }

    #[test]
    fn values_are_pinned() {
        let place = NameLocation { parent: InodeId(2), name: b"ab".to_vec() };
        assert_eq!(encode(&place), [2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
        let attr = FileAttr {
            inode: InodeId(1),
            kind: pario_core::FileKind::Symlink,
            mode: 2,
            uid: 3,
            gid: 4,
            links: 5,
            size: 6,
            generation: Generation(7),
            layout: pario_core::Layout::new(4096, 2, 1, 4).unwrap(),
            accessed_ns: 8,
            modified_ns: 9,
            changed_ns: 10,
        };
        let expected: [&[u8]; 14] = [
            &1u64.to_le_bytes(),
            &[2],
            &[2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0],
            &6u64.to_le_bytes(),
            &[7, 0, 0, 0],
            &4096u64.to_le_bytes(),
            &[2, 0],
            &[1, 0],
            &[4, 0],
            &8u64.to_le_bytes(),
            &9u64.to_le_bytes(),
            &10u64.to_le_bytes(),
            &[1, 0, 0, 0],
            b"t",
        ];
        assert_eq!(encode(&NameEntry { attr, target: b"t".to_vec() }), expected.concat());
        assert_eq!(encode(&attr).len(), 75);
        let row = ReplyRow { request: 9, created: true, reply: 5u8 };
        assert_eq!(encode(&row), [9, 0, 0, 0, 0, 0, 0, 0, 1, 5]);
        let writer = WriterProcess { host: "h".into(), pid: 2, start_ticks: 3 };
        assert_eq!(encode(&writer), [1, 0, 0, 0, b'h', 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_damaged_value_names_its_row() {
        let fault = decode::<NameLocation>(&location(InodeId(3)), &[1]).unwrap_err();
        assert_eq!(fault.code, Code::Corrupt);
        assert!(fault.text.contains("row p\\x00"), "{fault}");
    }
}
