//! Bytes of a log file: its head, its records, and what a scan makes of a damaged one. Layout: `docs/formats/names.md`, "Log".
//!
//! Never: touches a disk. Always: a record is found again behind damage of any length, since records start at multiples of
//! eight; the salt, unknown outside, keeps bytes that a client chose from passing for a record.

/// First bytes of every log file.
pub const FILE_MAGIC: [u8; 8] = *b"PARIOLOG";
/// Version of the log's format.
pub const FILE_VERSION: u32 = 1;
/// Bytes of a file's head.
pub const FILE_HEAD_BYTES: usize = 32;
/// First bytes of every record.
pub const RECORD_MAGIC: [u8; 4] = *b"PREC";
/// Bytes of a record before its body.
pub const RECORD_HEAD_BYTES: usize = 32;
/// Records start at multiples of this.
pub const RECORD_ALIGN: usize = 8;
/// Largest body of one record.
pub const RECORD_BODY_BYTES_MAX: usize = 8 << 20;

const CRC_AT: usize = 28;

/// Head of a log file, 32 bytes. Layout: `docs/formats/names.md`, "Log file".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// The file's number, as in its name.
    pub number: u64,
    /// Start value of the checksums of its records.
    pub salt: u32,
}

/// One record of a log. Layout: `docs/formats/names.md`, "Record".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its place in the ledger's history.
    pub sequence: u64,
    /// Every record up to this one was on stable storage when it was written.
    pub durable: u64,
    /// A batch.
    pub body: &'a [u8],
}

/// What a scan meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A whole record.
    Record(Record<'a>),
    /// Bytes that are none, from here to the next whole record or the end of the file.
    Damage {
        /// Where they start.
        offset: usize,
    },
}

impl FileHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = [0; FILE_HEAD_BYTES];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        bytes[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head of a whole file, if it is one.
    #[must_use]
    pub fn decode(file: &[u8]) -> Option<FileHead> {
        let head = file.first_chunk::<FILE_HEAD_BYTES>()?;
        let decoded = FileHead { salt: u32_at(head, 12)?, number: u64_at(head, 16)? };
        (decoded.encode() == *head).then_some(decoded)
    }
}

impl Record<'_> {
    /// Appends its bytes, padded, to `target`.
    ///
    /// # Panics
    /// If the body is longer than [`RECORD_BODY_BYTES_MAX`], which [`super::ledger::Ledger::append`] refuses.
    pub fn encode(&self, salt: u32, target: &mut Vec<u8>) {
        assert!(self.body.len() <= RECORD_BODY_BYTES_MAX, "record of {} bytes", self.body.len());
        let body_bytes = u32::try_from(self.body.len()).expect("checked above");
        let mut head = [0; RECORD_HEAD_BYTES];
        head[..4].copy_from_slice(&RECORD_MAGIC);
        head[4..8].copy_from_slice(&body_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..24].copy_from_slice(&self.durable.to_le_bytes());
        let crc = checksum(salt, &head[..CRC_AT], self.body);
        head[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        target.extend_from_slice(&head);
        target.extend_from_slice(self.body);
        target.resize(target.len().next_multiple_of(RECORD_ALIGN), 0);
    }
}

/// Walks the records of a file whose head was decoded already.
pub fn scan(file: &[u8], salt: u32) -> impl Iterator<Item = Item<'_>> {
    let mut at = FILE_HEAD_BYTES;
    std::iter::from_fn(move || {
        let start = at;
        while at < file.len() {
            if let Some(record) = whole_record(&file[at..], salt) {
                if start < at {
                    // The record itself comes with the next call, which starts at it.
                    return Some(Item::Damage { offset: start });
                }
                at += (RECORD_HEAD_BYTES + record.body.len()).next_multiple_of(RECORD_ALIGN);
                return Some(Item::Record(record));
            }
            at += RECORD_ALIGN;
        }
        (start < file.len()).then_some(Item::Damage { offset: start })
    })
}

fn whole_record(bytes: &[u8], salt: u32) -> Option<Record<'_>> {
    if !bytes.starts_with(&RECORD_MAGIC) {
        return None;
    }
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let body = rest.get(..u32_at(head, 4)? as usize)?;
    let crc = checksum(salt, &head[..CRC_AT], body);
    let whole = body.len() <= RECORD_BODY_BYTES_MAX && u32_at(head, CRC_AT)? == crc;
    let record = Record { sequence: u64_at(head, 8)?, durable: u64_at(head, 16)?, body };
    whole.then_some(record)
}

fn checksum(salt: u32, head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt, head), body)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: FileHead = FileHead { number: 7, salt: 0x1122_3344 };

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let mut bytes = HEAD.encode().to_vec();
        for (sequence, body) in (5..).zip(bodies) {
            Record { sequence, durable: 4, body }.encode(HEAD.salt, &mut bytes);
        }
        bytes
    }

    fn sequences(bytes: &[u8]) -> Vec<Option<u64>> {
        let number = |item| match item {
            Item::Record(record) => Some(record.sequence),
            Item::Damage { .. } => None,
        };
        scan(bytes, HEAD.salt).map(number).collect()
    }

    #[test]
    fn bytes_are_pinned() {
        let bytes = file(&[b"abc"]);
        let head = [
            b"PARIOLOG".as_slice(),
            &[1, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes[..28], head.concat());
        assert_eq!(bytes[28..32], crc32c::crc32c(&bytes[..28]).to_le_bytes());
        let record =
            [b"PREC".as_slice(), &[3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(bytes[32..60], record.concat());
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(HEAD.salt, &bytes[32..60]), b"abc");
        assert_eq!(bytes[60..64], crc.to_le_bytes());
        assert_eq!(bytes[64..], [b'a', b'b', b'c', 0, 0, 0, 0, 0]);
        assert_eq!(FileHead::decode(&bytes), Some(HEAD));
    }

    #[test]
    fn damage_anywhere_in_a_record_costs_that_record_only() {
        let good = file(&[b"first", b"second one", b"third"]);
        assert_eq!(sequences(&good), [Some(5), Some(6), Some(7)]);
        let second = FILE_HEAD_BYTES + 40..FILE_HEAD_BYTES + 40 + RECORD_HEAD_BYTES + 10;
        for at in second {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(sequences(&bad), [Some(5), None, Some(7)], "byte {at}");
        }
    }

    #[test]
    fn a_cut_file_keeps_its_whole_records() {
        let good = file(&[b"first", b"second one"]);
        let boundary = FILE_HEAD_BYTES + 40;
        for cut in boundary + 1..boundary + RECORD_HEAD_BYTES + 10 {
            assert_eq!(sequences(&good[..cut]), [Some(5), None], "cut at {cut}");
        }
        assert_eq!(sequences(&good[..boundary]), [Some(5)]);
    }

    #[test]
    fn a_record_inside_a_body_is_not_found_with_another_salt() {
        let mut inner = Vec::new();
        Record { sequence: 99, durable: 98, body: b"forged" }.encode(0, &mut inner);
        let mut bytes = file(&[&inner]);
        bytes[FILE_HEAD_BYTES] ^= 1;
        assert_eq!(sequences(&bytes), [None]);
    }
}
