//! Format of a checksum table: a head, then one entry for each granule of the object. Drawn in `docs/formats/store.md`.
//!
//! Never: opens a file. Always: bytes that are not a valid entry count as unknown.

use crate::marks::Life;

/// An object is checked in granules of this size, from its first byte on; the last one is padded with zeros.
pub const GRANULE_BYTES: u64 = 16 << 10;
/// The same as a length in memory.
pub const GRANULE: usize = 16 << 10;
/// Bytes of a table before its first entry.
pub const HEAD_BYTES: u64 = 64;
/// Bytes of an entry.
pub const SUM_BYTES: u64 = 8;

const MAGIC: [u8; 8] = *b"PARIOSUM";
const VERSION: u32 = 1;
const OVERWRITTEN: u32 = 1;

/// State of a granule's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum GranuleSum {
    /// Never written, as far as the table knows.
    #[default]
    None,
    /// They have this CRC32C.
    Known(u32),
    /// Being written, or being written when a writer died: not checked.
    Unknown,
    /// Found damaged when part of them was overwritten; only overwriting all of them repairs it.
    Damaged,
}

impl GranuleSum {
    /// Its bytes in a table.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let (state, crc): (u32, u32) = match self {
            GranuleSum::None => (0, 0),
            GranuleSum::Known(crc) => (1, crc),
            GranuleSum::Unknown => (2, 0),
            GranuleSum::Damaged => (3, 0),
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&state.to_le_bytes());
        bytes[4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The entry of these bytes.
    #[must_use]
    pub fn decode(bytes: [u8; 8]) -> GranuleSum {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        match (word(0), word(4)) {
            (0, 0) => GranuleSum::None,
            (1, crc) => GranuleSum::Known(crc),
            (3, 0) => GranuleSum::Damaged,
            _ => GranuleSum::Unknown,
        }
    }

    /// Whether a granule that begins with `bytes`, padded with zeros, may be the written one.
    #[must_use]
    pub fn allows(self, bytes: &[u8]) -> bool {
        match self {
            GranuleSum::None | GranuleSum::Unknown => true,
            GranuleSum::Known(crc) => crc == granule_crc(bytes),
            GranuleSum::Damaged => false,
        }
    }
}

/// Entries as the bytes of a table.
#[must_use]
pub fn encode_sums(sums: &[GranuleSum]) -> Vec<u8> {
    sums.iter().flat_map(|sum| sum.encode()).collect()
}

/// Entries of a table; missing ones at the end were never written.
#[must_use]
pub fn decode_sums(bytes: &[u8], count: usize) -> Vec<GranuleSum> {
    let (entries, _) = bytes.as_chunks::<8>();
    let mut sums: Vec<GranuleSum> =
        entries.iter().map(|entry| GranuleSum::decode(*entry)).take(count).collect();
    sums.resize(count, GranuleSum::None);
    sums
}

/// Offset of a granule's entry in a table.
#[must_use]
pub fn place_of(granule: u64) -> u64 {
    HEAD_BYTES + granule * SUM_BYTES
}

/// The CRC32C of `bytes`, padded with zeros to a granule.
#[must_use]
pub fn granule_crc(bytes: &[u8]) -> u32 {
    if bytes.len() == GRANULE {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
        return u32::try_from(crc).expect("32 bits");
    }
    static ZEROS: [u8; GRANULE] = [0; GRANULE];
    let rest = &ZEROS[..GRANULE.saturating_sub(bytes.len())];
    crc32c::crc32c_append(crc32c::crc32c(bytes), rest)
}

/// The head of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TableHead {
    /// Entries of granules that begin below it are on stable storage, as are their bytes, unless `overwritten`.
    pub(crate) durable: u64,
    /// The life in which the rest was written.
    pub(crate) life: Life,
    /// Bytes below `durable` may have been changed in `life`.
    pub(crate) overwritten: bool,
}

impl TableHead {
    pub(crate) fn new(life: Life) -> TableHead {
        TableHead { durable: 0, life, overwritten: false }
    }

    pub(crate) fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let granule = u32::try_from(GRANULE_BYTES).expect("a small number");
        bytes[12..16].copy_from_slice(&granule.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.overwritten).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.durable.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.life);
        let crc = crc32c::crc32c(&bytes);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: not the head of a table, or a damaged one.
    pub(crate) fn decode(bytes: &[u8; 64]) -> Option<TableHead> {
        let head = TableHead {
            overwritten: bytes[16..20] == OVERWRITTEN.to_le_bytes(),
            durable: u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")),
            life: bytes[32..48].try_into().expect("sixteen bytes"),
        };
        // Every bit counts: a head that does not encode to the same bytes is invalid.
        (head.encode() == *bytes).then_some(head)
    }

    /// Granules with valid entries after a loss of unsynced data.
    pub(crate) fn trusted_granules(&self) -> u64 {
        if self.overwritten { 0 } else { self.durable.div_ceil(GRANULE_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_bytes_that_the_format_draws() {
        let head = TableHead { durable: 0x0102_0304, life: [9; 16], overwritten: true };
        let bytes = head.encode();
        assert_eq!(&bytes[..8], b"PARIOSUM");
        assert_eq!(bytes[8..20], [1, 0, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[24..32], [4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(bytes[32..48], [9; 16]);
        assert_eq!(bytes[48..], [0; 16]);
        assert_eq!(TableHead::decode(&bytes), Some(head));
        for bit in 0..64 * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(TableHead::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(place_of(3), 88);
        assert_eq!(GranuleSum::Known(0x0403_0201).encode(), [1, 0, 0, 0, 1, 2, 3, 4]);
        for sum in [
            GranuleSum::None,
            GranuleSum::Known(0),
            GranuleSum::Known(u32::MAX),
            GranuleSum::Unknown,
            GranuleSum::Damaged,
        ] {
            assert_eq!(GranuleSum::decode(sum.encode()), sum);
        }
        assert_eq!(GranuleSum::decode([4; 8]), GranuleSum::Unknown);
        assert_eq!(decode_sums(&GranuleSum::Unknown.encode(), 2), [GranuleSum::Unknown, GranuleSum::None]);
    }

    #[test]
    fn zeros_behind_the_end_do_not_count() {
        let mut bytes = vec![7; 100];
        let short = granule_crc(&bytes);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283, "CRC32C (Castagnoli)");
        let whole: Vec<u8> = (0..=250).cycle().take(GRANULE).collect();
        assert_eq!(granule_crc(&whole), crc32c::crc32c(&whole), "both implementations agree");
        bytes.resize(GRANULE, 0);
        assert_eq!(granule_crc(&bytes), short);
        bytes[5000] = 1;
        assert!(!GranuleSum::Known(short).allows(&bytes));
    }
}
