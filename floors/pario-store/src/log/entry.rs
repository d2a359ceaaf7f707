//! The entries of an index: 64 bytes each. Format: docs/formats/log.md.
//!
//! Never: refers to bytes outside the data log of its own writer. Always: an entry is valid by itself, so that a torn one costs nothing
//! but itself.

use crate::marks::Life;

/// Size of an entry.
pub(crate) const ENTRY_BYTES: usize = 64;
/// Greatest end of a file: offsets are signed in system calls.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Version of the index format, in every head.
pub(crate) const VERSION: u64 = 1;

/// Position of a change among all changes of a container: the newest wins at every byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Order(pub(crate) u64);

/// Number of a writer; names its two files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WriterNumber(pub(crate) u32);

/// One entry of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEntry {
    pub(crate) order: Order,
    /// Random number of the writer; entries with another one than their head are of a second writer of the same number.
    pub(crate) nonce: u32,
    pub(crate) body: EntryBody,
}

/// Meaning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryBody {
    /// The first entry of an index.
    Head { writer: WriterNumber, life: Life },
    /// Bytes that were written.
    Data(DataEntry),
    /// The file was truncated or extended to this length.
    Cut { bytes: u64 },
    /// Everything of this writer up to `order` is on stable storage.
    Synced,
}

/// Pieces of equal length at equal distances in the file, one after the other in the data log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataEntry {
    /// File offset of the first piece.
    pub(crate) offset: u64,
    /// Position of the first piece in the data log.
    pub(crate) place: u64,
    /// Bytes of each piece.
    pub(crate) length: u64,
    /// Distance of two pieces in the file; 0 for a single piece.
    pub(crate) stride: u64,
    /// Number of pieces.
    pub(crate) count: u64,
    /// CRC32C of the bytes in the data log.
    pub(crate) sum: u32,
}

impl DataEntry {
    /// End of its bytes in the data log. Exact for entries that were decoded or built here.
    pub(crate) fn log_end(&self) -> u64 {
        self.place + self.length * self.count
    }

    /// End of its last piece in the file.
    pub(crate) fn file_end(&self) -> u64 {
        self.offset + self.stride * (self.count - 1) + self.length
    }

    /// File offset and position in the data log of each piece.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.count)
            .map(move |number| (self.offset + number * self.stride, self.place + number * self.length))
    }

    fn is_sound(&self) -> bool {
        let last = self.count.checked_sub(1);
        let file = last
            .and_then(|last| last.checked_mul(self.stride))
            .and_then(|last| last.checked_add(self.offset))
            .and_then(|last| last.checked_add(self.length));
        let log = self.length.checked_mul(self.count).and_then(|bytes| bytes.checked_add(self.place));
        let is_inside = |end: Option<u64>| end.is_some_and(|end| end <= FILE_BYTES_MAX);
        // Pieces of one entry never overlap: they have one order.
        let are_apart = if self.count == 1 { self.stride == 0 } else { self.length <= self.stride };
        0 < self.length && are_apart && is_inside(file) && is_inside(log)
    }
}

impl LogEntry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let (kind, words, sum) = match self.body {
            EntryBody::Head { writer, life } => {
                let [low, high] = [0, 8].map(|at| u64_at(&life, at));
                (1, [low, high, u64::from(writer.0), 0, VERSION], 0)
            }
            EntryBody::Data(data) => {
                (2, [data.offset, data.place, data.length, data.stride, data.count], data.sum)
            }
            EntryBody::Cut { bytes } => (3, [bytes, 0, 0, 0, 0], 0),
            EntryBody::Synced => (4, [0; 5], 0),
        };
        let mut bytes = [0; ENTRY_BYTES];
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(kind));
        bytes[8..16].copy_from_slice(&self.order.0.to_le_bytes());
        for (target, word) in bytes[16..56].chunks_exact_mut(8).zip(words) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: torn, never written, or of no known meaning.
    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<LogEntry> {
        if u32_at(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
            return None;
        }
        let [first, second, third, fourth, fifth] = [16, 24, 32, 40, 48].map(|at| u64_at(bytes, at));
        let body = match u32_at(bytes, 4) {
            1 if fifth == VERSION => {
                let mut life = Life::default();
                life.copy_from_slice(&bytes[16..32]);
                EntryBody::Head { writer: WriterNumber(u32::try_from(third).ok()?), life }
            }
            2 => {
                let (offset, place, length, stride) = (first, second, third, fourth);
                let data = DataEntry { offset, place, length, stride, count: fifth, sum: u32_at(bytes, 60) };
                EntryBody::Data(Some(data).filter(DataEntry::is_sound)?)
            }
            3 if first <= FILE_BYTES_MAX => EntryBody::Cut { bytes: first },
            4 => EntryBody::Synced,
            _ => return None,
        };
        Some(LogEntry { order: Order(u64_at(bytes, 8)), nonce: u32_at(bytes, 56), body })
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: DataEntry =
        DataEntry { offset: 0x1000, place: 0x20, length: 0x28, stride: 0xA00, count: 3, sum: 0xDEAD_BEEF };

    fn entry(body: EntryBody) -> LogEntry {
        LogEntry { order: Order(0x0102_0304_0506_0708), nonce: 0x1122_3344, body }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut expected = [0; ENTRY_BYTES];
        expected[4] = 2;
        expected[8..16].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        expected[17] = 0x10;
        expected[24] = 0x20;
        expected[32] = 0x28;
        expected[41] = 0x0A;
        expected[48] = 3;
        expected[56..60].copy_from_slice(&[0x44, 0x33, 0x22, 0x11]);
        expected[60..64].copy_from_slice(&[0xEF, 0xBE, 0xAD, 0xDE]);
        expected[..4].copy_from_slice(&[0x6B, 0xC2, 0x6A, 0xA9]);
        assert_eq!(entry(EntryBody::Data(DATA)).encode(), expected);
    }

    #[test]
    fn entries_lead_back_and_a_changed_bit_is_noticed() {
        let head = EntryBody::Head { writer: WriterNumber(0x3e8), life: [7; 16] };
        for body in [head, EntryBody::Data(DATA), EntryBody::Cut { bytes: 77 }, EntryBody::Synced] {
            let bytes = entry(body).encode();
            assert_eq!(LogEntry::decode(&bytes), Some(entry(body)));
            for bit in 0..ENTRY_BYTES * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(LogEntry::decode(&bytes), None, "{body:?}, bit {bit}");
            }
        }
        assert_eq!(LogEntry::decode(&[0; ENTRY_BYTES]), None, "never written");
    }

    #[test]
    fn an_entry_that_cannot_be_is_refused_though_its_checksum_is_right() {
        let bad = [
            DataEntry { length: 0, ..DATA },
            DataEntry { count: 0, ..DATA },
            DataEntry { stride: 0x27, ..DATA },
            DataEntry { count: 1, ..DATA },
            DataEntry { offset: u64::MAX, ..DATA },
            DataEntry { place: u64::MAX - 3, ..DATA },
            DataEntry { count: u64::MAX, ..DATA },
            DataEntry { length: 1 << 40, stride: 1 << 40, count: 1 << 40, ..DATA },
        ];
        for data in bad {
            assert_eq!(LogEntry::decode(&entry(EntryBody::Data(data)).encode()), None, "{data:?}");
        }
        let cut = EntryBody::Cut { bytes: u64::MAX };
        assert_eq!(LogEntry::decode(&entry(cut).encode()), None);
    }

    #[test]
    fn pieces_are_at_equal_distances() {
        let found: Vec<_> = DATA.pieces().collect();
        assert_eq!(found, [(0x1000, 0x20), (0x1A00, 0x48), (0x2400, 0x70)]);
        assert_eq!((DATA.file_end(), DATA.log_end()), (0x2428, 0x98));
    }
}
