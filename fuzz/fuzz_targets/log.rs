//! Any index of a container: it opens or is refused, reads stay inside of the file, and a repair does not change what is read.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pario_store::log::{LogContainer, check, repair};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 64;
/// Bytes of the data log; small, so that mutated places and lengths often fit.
const DATA_BYTES: usize = 512;

/// Fields of an entry: kind; order, offset, place, length and stride; count; whether the sum of its data is right.
type EntryFields = (u8, [u16; 5], u8, bool);

fn data() -> Vec<u8> {
    (0..DATA_BYTES).map(|at| (at % 251) as u8).collect()
}

/// One entry, as docs/formats/log.md draws it, with its checksum.
fn entry(kind: u32, numbers: [u64; 6], sum: u32) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    for (at, number) in numbers.iter().enumerate() {
        bytes[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
    }
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// An index with a right head, any entries, and any bytes behind them.
fn index(writer: u8, entries: &[EntryFields], rest: &[u8]) -> Vec<u8> {
    let mut index = entry(1, [0, 0, 0, writer.into(), 0, 1], 0).to_vec();
    for (kind, fields, count, is_right) in entries {
        let [order, offset, place, length, stride] = fields.map(u64::from);
        // Small numbers are mutated to large ones by their highest bit.
        let wide = |number: u64| if number & 0x8000 == 0 { number % 600 } else { number << 48 };
        let (place, length, count) = (wide(place), wide(length), u64::from(*count));
        let bytes =
            length.checked_mul(count).and_then(|bytes| place.checked_add(bytes)).map(|end| place..end);
        let range = bytes.map(|range| range.start as usize..range.end as usize);
        let sum = range.and_then(|range| data().get(range).map(crc32c::crc32c)).filter(|_| *is_right);
        let numbers = [order, wide(offset), place, length, wide(stride), count];
        index.extend(entry(u32::from(kind % 6), numbers, sum.unwrap_or(7)));
    }
    index.extend(rest);
    index
}

/// Length of the file and what is read at a few places.
fn content(path: &Path, places: &[u64]) -> Option<(u64, Vec<Vec<u8>>)> {
    let container = LogContainer::open(path).ok()?;
    let length = container.len();
    let mut found = Vec::new();
    for place in places {
        let mut target = vec![0; 300];
        let count = container.read_at(&mut target, *place).ok()?;
        assert!(
            count <= 300 && (count == 0 || place + count as u64 <= length),
            "{count} bytes at {place} of {length}"
        );
        target.truncate(count);
        found.push(target);
        for range in container.data_in(*place..place.saturating_add(300)).ok()? {
            assert!(range.start < range.end && range.end <= length, "{range:?} of {length}");
        }
    }
    container.close().ok()?;
    Some((length, found))
}

fuzz_target!(|input: (u8, [u64; 3], Vec<EntryFields>, &[u8])| {
    let (writer, places, entries, rest) = input;
    let dir = std::env::temp_dir().join(format!("pario-fuzz-log-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    LogContainer::create(&dir).expect("created").close().expect("closed");
    // The summary of the empty container would say that there is nothing else.
    let _ = std::fs::remove_file(dir.join("summary"));
    std::fs::write(dir.join(format!("{writer:08x}-data")), data()).expect("written");
    std::fs::write(dir.join(format!("{writer:08x}-index")), index(writer, &entries, rest)).expect("written");
    let places = [0, places[0] % 4096, places[1] % 4096, places[2] >> 1];
    let before = content(&dir, &places);
    let _ = check(&dir, true);
    if let (Some(before), Ok(_)) = (before, repair(&dir)) {
        let after = content(&dir, &places);
        assert_eq!(Some(before), after, "a repair changes what is read");
    }
    let _ = std::fs::remove_dir_all(&dir);
});
