//! Attributes on the wire: those of an inode, those around a change, and changes that a client wants.

use pario::core::{FileAttr, FileKind, PartitionId};
use rustix::fs::Dev;

use super::xdr::{Decoded, MalformedXdr, XdrReader, XdrWriter};

/// `ftype3`
const REGULAR: u32 = 1;
const DIRECTORY: u32 = 2;
const BLOCK_DEVICE: u32 = 3;
const CHAR_DEVICE: u32 = 4;
const SYMLINK: u32 = 5;
const SOCKET: u32 = 6;
const FIFO: u32 = 7;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Attributes before and after a change, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct AroundChange {
    pub(super) before: Option<FileAttr>,
    pub(super) after: Option<FileAttr>,
}

/// A time that a client wants to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WantedTime {
    Keep,
    Now,
    At(u64),
}

/// `sattr3`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WantedAttributes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) accessed: WantedTime,
    pub(super) modified: WantedTime,
}

/// A special file as MKNOD names it.
pub(super) fn special_kind(code: u32) -> Option<FileKind> {
    match code {
        BLOCK_DEVICE => Some(FileKind::BlockDevice),
        CHAR_DEVICE => Some(FileKind::CharDevice),
        SOCKET => Some(FileKind::Socket),
        FIFO => Some(FileKind::Fifo),
        _ => None,
    }
}

fn kind_code(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => REGULAR,
        FileKind::Directory => DIRECTORY,
        FileKind::BlockDevice => BLOCK_DEVICE,
        FileKind::CharDevice => CHAR_DEVICE,
        FileKind::Symlink => SYMLINK,
        FileKind::Socket => SOCKET,
        FileKind::Fifo => FIFO,
    }
}

/// The number of a device: 12 bits of the major and 20 of the minor number, as the kernel gives it to a mount.
pub(super) fn device_number(major: u32, minor: u32) -> Option<u64> {
    if 1 << 12 <= major || 1 << 20 <= minor {
        return None;
    }
    let number: Dev = rustix::fs::makedev(major, minor);
    Some(number)
}

fn time(out: &mut XdrWriter, ns: u64) {
    out.u32(u32::try_from(ns / NS_PER_SECOND).unwrap_or(u32::MAX));
    out.u32(u32::try_from(ns % NS_PER_SECOND).unwrap_or(0));
}

/// The partition's file system number.
fn file_system(partition: PartitionId) -> u64 {
    let half = partition.0.first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(half)
}

/// Size of the contents: a special file has none.
fn content_bytes(attr: &FileAttr) -> u64 {
    if attr.kind.is_special() { 0 } else { attr.size }
}

/// `fattr3`
pub(super) fn write_attributes(out: &mut XdrWriter, partition: PartitionId, attr: &FileAttr) {
    let size = content_bytes(attr);
    let device = if attr.kind.is_special() { attr.size } else { 0 };
    for field in [kind_code(attr.kind), attr.mode, attr.links, attr.uid, attr.gid] {
        out.u32(field);
    }
    out.u64(size);
    out.u64(if attr.kind == FileKind::File { size } else { 0 });
    out.u32(rustix::fs::major(device));
    out.u32(rustix::fs::minor(device));
    out.u64(file_system(partition));
    out.u64(attr.inode.0);
    for ns in [attr.accessed_ns, attr.modified_ns, attr.changed_ns] {
        time(out, ns);
    }
}

/// `post_op_attr`
pub(super) fn write_after(out: &mut XdrWriter, partition: PartitionId, attr: Option<&FileAttr>) {
    out.bool(attr.is_some());
    if let Some(attr) = attr {
        write_attributes(out, partition, attr);
    }
}

/// `wcc_data`
pub(super) fn write_around(out: &mut XdrWriter, partition: PartitionId, around: &AroundChange) {
    out.bool(around.before.is_some());
    if let Some(before) = &around.before {
        out.u64(content_bytes(before));
        time(out, before.modified_ns);
        time(out, before.changed_ns);
    }
    write_after(out, partition, around.after.as_ref());
}

/// `nfstime3`
pub(super) fn read_time(args: &mut XdrReader<'_>) -> Decoded<u64> {
    let (seconds, rest) = (u64::from(args.u32()?), u64::from(args.u32()?));
    if NS_PER_SECOND <= rest { Err(MalformedXdr) } else { Ok(seconds * NS_PER_SECOND + rest) }
}

fn read_wanted_time(args: &mut XdrReader<'_>) -> Decoded<WantedTime> {
    match args.u32()? {
        0 => Ok(WantedTime::Keep),
        1 => Ok(WantedTime::Now),
        2 => read_time(args).map(WantedTime::At),
        _ => Err(MalformedXdr),
    }
}

/// `sattr3`
pub(super) fn read_wanted(args: &mut XdrReader<'_>) -> Decoded<WantedAttributes> {
    Ok(WantedAttributes {
        mode: args.optional(XdrReader::u32)?.map(|mode| mode & 0o7777),
        uid: args.optional(XdrReader::u32)?,
        gid: args.optional(XdrReader::u32)?,
        size: args.optional(XdrReader::u64)?,
        accessed: read_wanted_time(args)?,
        modified: read_wanted_time(args)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_the_kernel() {
        assert_eq!(device_number(8, 1), Some(0x801));
        let number = device_number(0xabc, 0xfedcb).unwrap();
        assert_eq!((rustix::fs::major(number), rustix::fs::minor(number)), (0xabc, 0xfedcb));
        assert_eq!(u32::try_from(number).ok(), Some(0xfeda_bccb));
        assert_eq!(device_number(1 << 12, 0), None);
        assert_eq!(device_number(0, 1 << 20), None);
    }
}
