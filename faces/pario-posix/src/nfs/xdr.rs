//! XDR (RFC 4506): the encoding of NFS and RPC.
//!
//! Never: allocates by a length that a message claims: variable data is borrowed from the record. Always: a record that ends too early, or a
//! length above the protocol's limit, is [`MalformedXdr`].

/// Arguments that are not what the protocol says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MalformedXdr;

/// Result of decoding.
pub(super) type Decoded<T> = Result<T, MalformedXdr>;

/// Data is padded to a multiple of this.
const UNIT: usize = 4;

/// Reads fields in order.
#[derive(Clone, Debug)]
pub(super) struct XdrReader<'a>(&'a [u8]);

impl<'a> XdrReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> XdrReader<'a> {
        XdrReader(bytes)
    }

    /// An opaque of fixed length, without its padding.
    fn take(&mut self, bytes: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(MalformedXdr)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| MalformedXdr)
    }

    pub(super) fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Decoded<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedXdr),
        }
    }

    /// Variable data of at most `most` bytes.
    pub(super) fn opaque(&mut self, most: usize) -> Decoded<&'a [u8]> {
        let bytes = usize::try_from(self.u32()?).map_err(|_| MalformedXdr)?;
        if most < bytes {
            return Err(MalformedXdr);
        }
        let data = self.take(bytes)?;
        self.take(bytes.next_multiple_of(UNIT) - bytes)?;
        Ok(data)
    }

    /// A field that may be absent.
    pub(super) fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Appends fields.
#[derive(Clone, Debug, Default)]
pub(super) struct XdrWriter(Vec<u8>);

impl XdrWriter {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets everything behind a length.
    pub(super) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn array(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.array(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.array(&value.to_be_bytes());
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// A count or a length of data in memory.
    pub(super) fn count(&mut self, value: usize) {
        self.u32(u32::try_from(value).unwrap_or(u32::MAX));
    }

    pub(super) fn opaque(&mut self, data: &[u8]) {
        self.count(data.len());
        self.array(data);
        let padding = data.len().next_multiple_of(UNIT) - data.len();
        self.array(&[0; UNIT][..padding]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_written() {
        let mut writer = XdrWriter::default();
        writer.u32(7);
        writer.u64(1 << 40);
        writer.bool(true);
        for length in 0..6 {
            writer.opaque(&vec![9; length]);
        }
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let mut reader = XdrReader::new(&bytes);
        assert_eq!((reader.u32(), reader.u64(), reader.bool()), (Ok(7), Ok(1 << 40), Ok(true)));
        for length in 0..6 {
            assert_eq!(reader.opaque(5), Ok(&vec![9; length][..]));
        }
        assert_eq!(reader.u32(), Err(MalformedXdr));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let cases: [&[u8]; 4] =
            [&[0xff, 0xff, 0xff, 0xff], &[0, 0, 0, 5, 1, 2, 3, 4], &[0, 0, 0, 1, 1, 0, 0], &[0, 0, 0]];
        for case in cases {
            assert_eq!(XdrReader::new(case).opaque(usize::MAX), Err(MalformedXdr));
        }
        assert_eq!(XdrReader::new(&[0, 0, 0, 2, 1, 2, 0, 0]).opaque(1), Err(MalformedXdr));
        assert_eq!(XdrReader::new(&[0, 0, 0, 2]).bool(), Err(MalformedXdr));
    }
}
