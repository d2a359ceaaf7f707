//! Little-endian encoding for wire and disk: [`Writer`] appends, [`Reader`] decodes untrusted bytes.
//!
//! Never: allocates by an encoded length before that many bytes were received. Always: reading past the end is [`Malformed`].

use crate::attr::{AttrChange, DirEntry, FileAttr, FileKind, Space, Striping};
use crate::fault::{Code, Fault};
use crate::ids::{
    Generation, Incarnation, InodeId, LocalOffset, ObjectId, PartitionId, ServerIndex, SessionId,
};
use crate::layout::Layout;

/// Malformed bytes: too short, or a value out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Appends values to a byte vector.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

/// Decodes values from the front of a byte slice.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// A value with a fixed encoding.
pub trait Encode: Sized {
    /// Appends the value.
    fn encode(&self, writer: &mut Writer);
    /// Decodes a value.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
}

impl Writer {
    /// The bytes so far.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a value.
    pub fn put<T: Encode>(&mut self, value: &T) -> &mut Self {
        value.encode(self);
        self
    }
}

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Consumes `count` bytes unchanged.
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed("too short"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Decodes a value.
    pub fn get<T: Encode>(&mut self) -> Result<T, Malformed> {
        T::decode(self)
    }

    /// The bytes not consumed yet, for decoders that find their own end.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of bytes not consumed yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails unless all bytes were consumed.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes left over")) }
    }
}

/// Encodes one value.
pub fn to_bytes<T: Encode>(value: &T) -> Vec<u8> {
    let mut writer = Writer::default();
    value.encode(&mut writer);
    writer.into_bytes()
}

/// Decodes one value that fills `bytes` exactly.
pub fn from_bytes<T: Encode>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

macro_rules! encode_number {
    ($($number:ty),*) => {$(
        impl Encode for $number {
            fn encode(&self, writer: &mut Writer) {
                writer.raw(&self.to_le_bytes());
            }

            fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                let bytes = reader.raw(size_of::<$number>())?;
                Ok(<$number>::from_le_bytes(bytes.try_into().map_err(|_| Malformed("too short"))?))
            }
        }
    )*};
}
encode_number!(u8, u16, u32, u64, u128, i64);

macro_rules! encode_newtype {
    ($($name:ident),*) => {$(
        impl Encode for $name {
            fn encode(&self, writer: &mut Writer) {
                self.0.encode(writer);
            }

            fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok($name(reader.get()?))
            }
        }
    )*};
}
encode_newtype!(InodeId, Generation, ServerIndex, LocalOffset, SessionId, Incarnation, PartitionId);

/// Implements [`Encode`] for a struct by its fields, in order.
#[macro_export]
macro_rules! encode_struct {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Encode for $name {
            fn encode(&self, writer: &mut $crate::codec::Writer) {
                $(writer.put(&self.$field);)*
                let _ = writer;
            }

            fn decode(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                $(let $field = reader.get()?;)*
                let _ = reader;
                Ok(Self { $($field),* })
            }
        }
    };
}

/// Implements [`Encode`] for an enum: a `u8` tag, then the fields of that variant, in order.
#[macro_export]
macro_rules! encode_enum {
    ($name:ident { $($tag:literal => $variant:ident { $($field:ident),* $(,)? }),* $(,)? }) => {
        impl $crate::codec::Encode for $name {
            fn encode(&self, writer: &mut $crate::codec::Writer) {
                match self {
                    $($name::$variant { $($field),* } => {
                        writer.put(&($tag as u8));
                        $(writer.put($field);)*
                    })*
                }
            }

            fn decode(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::Malformed> {
                match reader.get::<u8>()? {
                    $($tag => {
                        $(let $field = reader.get()?;)*
                        Ok($name::$variant { $($field),* })
                    })*
                    _ => Err($crate::codec::Malformed(concat!("unknown kind of ", stringify!($name)))),
                }
            }
        }
    };
}

impl Encode for bool {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&u8::from(*self));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.get::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.is_some());
        if let Some(value) = self {
            value.encode(writer);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if reader.get()? { Ok(Some(reader.get()?)) } else { Ok(None) }
    }
}

/// A list: its length as `u32`, then its items.
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, writer: &mut Writer) {
        let length = u32::try_from(self.len()).expect("lists on the wire are far below 2^32 items");
        writer.put(&length);
        for item in self {
            item.encode(writer);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = reader.get::<u32>()? as usize;
        // Every item has at least one byte, so a false length cannot cause an allocation larger than the bytes received.
        if reader.remaining() < length {
            return Err(Malformed("list longer than its frame"));
        }
        (0..length).map(|_| reader.get()).collect()
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0).put(&self.1);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok((reader.get()?, reader.get()?))
    }
}

impl Encode for String {
    fn encode(&self, writer: &mut Writer) {
        let length = u32::try_from(self.len()).expect("texts on the wire are far below 4 GiB");
        writer.put(&length).raw(self.as_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        String::from_utf8(reader.get()?).map_err(|_| Malformed("text is not UTF-8"))
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.raw(N)?.try_into().map_err(|_| Malformed("too short"))
    }
}

impl Encode for Layout {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.stripe_bytes()).put(&self.count()).put(&self.first()).put(&self.total());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (stripe, count, first, total) = (reader.get()?, reader.get()?, reader.get()?, reader.get()?);
        Layout::new(stripe, count, first, total).map_err(|_| Malformed("impossible layout"))
    }
}

impl Encode for FileKind {
    fn encode(&self, writer: &mut Writer) {
        let number: u8 = match self {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
            FileKind::Fifo => 3,
            FileKind::Socket => 4,
            FileKind::CharDevice => 5,
            FileKind::BlockDevice => 6,
        };
        writer.put(&number);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.get::<u8>()? {
            0 => Ok(FileKind::File),
            1 => Ok(FileKind::Directory),
            2 => Ok(FileKind::Symlink),
            3 => Ok(FileKind::Fifo),
            4 => Ok(FileKind::Socket),
            5 => Ok(FileKind::CharDevice),
            6 => Ok(FileKind::BlockDevice),
            _ => Err(Malformed("unknown kind of file")),
        }
    }
}

impl Encode for Code {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&(*self as u16));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Code::from_number(reader.get()?).ok_or(Malformed("unknown fault code"))
    }
}

encode_struct!(Fault { code, text });
encode_struct!(ObjectId { inode, generation });
encode_struct!(Space { total_bytes, free_bytes, pool });
encode_struct!(Striping { stripe_bytes, count, first });
encode_struct!(AttrChange { mode, uid, gid, accessed_ns, modified_ns });
encode_struct!(DirEntry { name, attr });
encode_struct!(FileAttr {
    inode,
    kind,
    mode,
    uid,
    gid,
    links,
    size,
    generation,
    layout,
    accessed_ns,
    modified_ns,
    changed_ns,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pinned() {
        let layout = Layout::new(65536, 2, 1, 4).unwrap();
        assert_eq!(to_bytes(&layout), [0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 1, 0, 4, 0]);
        let object = ObjectId { inode: InodeId(0x0102), generation: Generation(3) };
        assert_eq!(to_bytes(&object), [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(to_bytes(&Some("é".to_owned())), [1, 2, 0, 0, 0, 0xc3, 0xa9]);
        assert_eq!(to_bytes(&Fault::new(Code::NoSpace, "x")), [10, 0, 1, 0, 0, 0, b'x']);
    }

    #[test]
    fn lies_are_refused() {
        assert!(from_bytes::<Vec<u8>>(&[255, 255, 255, 255, 1]).is_err());
        assert!(from_bytes::<bool>(&[2]).is_err());
        assert!(from_bytes::<u32>(&[1, 2, 3]).is_err());
        assert!(from_bytes::<u16>(&[1, 2, 3]).is_err());
        assert!(from_bytes::<Layout>(&[0; 14]).is_err());
        assert!(from_bytes::<String>(&[1, 0, 0, 0, 0xff]).is_err());
    }
}
