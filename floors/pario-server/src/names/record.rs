//! Bytes of a log file: its head, its records, and the scan of a damaged file. Layout: `docs/formats/names.md`, "Log".
//!
//! Never: does disk I/O. Always: a record is found again after damage of any length, since records start at multiples of eight; the secret
//! salt keeps bytes chosen by a client from passing for a record. Head and records are written twice in a row, so that a damaged byte costs
//! neither.

/// First bytes of every log file.
pub const FILE_MAGIC: [u8; 8] = *b"PARIOLOG";
/// Version of the log's format.
pub const FILE_VERSION: u32 = 2;
/// Bytes of a file's head, of which there are two.
pub const FILE_HEAD_BYTES: usize = 32;
/// Offset of the first record of a log file.
pub const RECORDS_AT: usize = 2 * FILE_HEAD_BYTES;
/// The previous version, with one head and each record once, and the offset of its first record.
const OLD_VERSION: u32 = 1;
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
    /// The boot of the machine in which it was written ([`boot`]); 0: unknown.
    pub boot: u32,
}

/// A log file's head and the offset of its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The head.
    pub head: FileHead,
    /// Offset of the first record.
    pub records_at: usize,
}

/// A number for the current boot of this machine; 0 if unknown. A log of the same boot has not seen a power cut, so that an incomplete
/// record in it is damage.
#[must_use]
pub fn boot() -> u32 {
    std::fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |id| crc32c::crc32c(&id))
}

/// One record of a log. Layout: `docs/formats/names.md`, "Record".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRecord<'a> {
    /// Its sequence number in the ledger.
    pub sequence: u64,
    /// Every record up to this one was on stable storage when it was written.
    pub durable: u64,
    /// A batch.
    pub body: &'a [u8],
}

/// Item found by a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A complete record.
    Record(LogRecord<'a>),
    /// Damaged bytes, from here to the next complete record or the end of the file.
    Damage {
        /// Their offset.
        offset: usize,
    },
}

impl FileHead {
    /// Its bytes, twice.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORDS_AT] {
        let mut bytes = [0; RECORDS_AT];
        let head = self.encode_once(&FILE_MAGIC, FILE_VERSION);
        bytes[..FILE_HEAD_BYTES].copy_from_slice(&head);
        bytes[FILE_HEAD_BYTES..].copy_from_slice(&head);
        bytes
    }

    /// Its bytes with the magic of another kind of file.
    #[must_use]
    pub fn encode_once(&self, magic: &[u8; 8], version: u32) -> [u8; FILE_HEAD_BYTES] {
        let mut bytes = [0; FILE_HEAD_BYTES];
        bytes[..8].copy_from_slice(magic);
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.boot.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The head of a file, from either of the two, and the offset of its records.
    #[must_use]
    pub fn decode(file: &[u8]) -> Option<Start> {
        let new = Self::decode_twice(file, &FILE_MAGIC, FILE_VERSION);
        new.map(|head| Start { head, records_at: RECORDS_AT }).or_else(|| {
            let head = Self::decode_once(file, &FILE_MAGIC, OLD_VERSION)?;
            Some(Start { head, records_at: FILE_HEAD_BYTES })
        })
    }

    /// The head of a file that has it twice with this magic.
    #[must_use]
    pub fn decode_twice(file: &[u8], magic: &[u8; 8], version: u32) -> Option<FileHead> {
        let second = || Self::decode_once(file.get(FILE_HEAD_BYTES..)?, magic, version);
        Self::decode_once(file, magic, version).or_else(second)
    }

    fn decode_once(bytes: &[u8], magic: &[u8; 8], version: u32) -> Option<FileHead> {
        let head = bytes.first_chunk::<FILE_HEAD_BYTES>()?;
        let decoded =
            FileHead { salt: u32_at(head, 12)?, number: u64_at(head, 16)?, boot: u32_at(head, 24)? };
        (decoded.encode_once(magic, version) == *head).then_some(decoded)
    }
}

impl LogRecord<'_> {
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

/// Iterates over the records of a file with a decoded head, from `records_at` on.
pub fn scan(file: &[u8], salt: u32, records_at: usize) -> impl Iterator<Item = Item<'_>> {
    let mut at = records_at;
    std::iter::from_fn(move || {
        let start = at;
        while at < file.len() {
            if let Some(record) = whole_record(&file[at..], salt) {
                if start < at {
                    // The next call returns the record itself.
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

fn whole_record(bytes: &[u8], salt: u32) -> Option<LogRecord<'_>> {
    if !bytes.starts_with(&RECORD_MAGIC) {
        return None;
    }
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>()?;
    let body = rest.get(..u32_at(head, 4)? as usize)?;
    let crc = checksum(salt, &head[..CRC_AT], body);
    let whole = body.len() <= RECORD_BODY_BYTES_MAX && u32_at(head, CRC_AT)? == crc;
    let record = LogRecord { sequence: u64_at(head, 8)?, durable: u64_at(head, 16)?, body };
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

    const HEAD: FileHead = FileHead { number: 7, salt: 0x1122_3344, boot: 0x0a0b_0c0d };

    fn file(bodies: &[&[u8]]) -> Vec<u8> {
        let mut bytes = HEAD.encode().to_vec();
        for (sequence, body) in (5..).zip(bodies) {
            LogRecord { sequence, durable: 4, body }.encode(HEAD.salt, &mut bytes);
        }
        bytes
    }

    fn sequences(bytes: &[u8]) -> Vec<Option<u64>> {
        let number = |item| match item {
            Item::Record(record) => Some(record.sequence),
            Item::Damage { .. } => None,
        };
        scan(bytes, HEAD.salt, RECORDS_AT).map(number).collect()
    }

    #[test]
    fn bytes_are_pinned() {
        let bytes = file(&[b"abc"]);
        let head = [
            b"PARIOLOG".as_slice(),
            &[2, 0, 0, 0, 0x44, 0x33, 0x22, 0x11, 7, 0, 0, 0, 0, 0, 0, 0, 0xd, 0xc, 0xb, 0xa],
        ];
        assert_eq!(bytes[..28], head.concat());
        assert_eq!(bytes[28..32], crc32c::crc32c(&bytes[..28]).to_le_bytes());
        assert_eq!(bytes[..32], bytes[32..64]);
        let bytes = &bytes[32..];
        let record =
            [b"PREC".as_slice(), &[3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(bytes[32..60], record.concat());
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(HEAD.salt, &bytes[32..60]), b"abc");
        assert_eq!(bytes[60..64], crc.to_le_bytes());
        assert_eq!(bytes[64..], [b'a', b'b', b'c', 0, 0, 0, 0, 0]);
        assert_eq!(FileHead::decode_twice(bytes, &FILE_MAGIC, FILE_VERSION), Some(HEAD));
    }

    #[test]
    fn one_whole_head_of_two_is_enough_and_an_old_file_has_one() {
        let good = file(&[b"abc"]);
        for at in 0..RECORDS_AT {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(
                FileHead::decode(&bad),
                Some(Start { head: HEAD, records_at: RECORDS_AT }),
                "byte {at}"
            );
        }
        let old = FileHead { boot: 0, ..HEAD };
        let bytes = old.encode_once(&FILE_MAGIC, OLD_VERSION);
        assert_eq!(FileHead::decode(&bytes), Some(Start { head: old, records_at: FILE_HEAD_BYTES }));
        assert_eq!(FileHead::decode(&[0; 64]), None);
    }

    #[test]
    fn damage_anywhere_in_a_record_costs_that_record_only() {
        let good = file(&[b"first", b"second one", b"third"]);
        assert_eq!(sequences(&good), [Some(5), Some(6), Some(7)]);
        let second = RECORDS_AT + 40..RECORDS_AT + 40 + RECORD_HEAD_BYTES + 10;
        for at in second {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert_eq!(sequences(&bad), [Some(5), None, Some(7)], "byte {at}");
        }
    }

    #[test]
    fn a_cut_file_keeps_its_whole_records() {
        let good = file(&[b"first", b"second one"]);
        let boundary = RECORDS_AT + 40;
        for cut in boundary + 1..boundary + RECORD_HEAD_BYTES + 10 {
            assert_eq!(sequences(&good[..cut]), [Some(5), None], "cut at {cut}");
        }
        assert_eq!(sequences(&good[..boundary]), [Some(5)]);
    }

    #[test]
    fn a_record_inside_a_body_is_not_found_with_another_salt() {
        let mut inner = Vec::new();
        LogRecord { sequence: 99, durable: 98, body: b"forged" }.encode(0, &mut inner);
        let mut bytes = file(&[&inner]);
        bytes[RECORDS_AT] ^= 1;
        assert_eq!(sequences(&bytes), [None]);
    }
}
