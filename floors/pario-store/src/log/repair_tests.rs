//! Flattening, examination and repair of containers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::*;
use crate::testing::SwitchDisk;

fn make(path: &Path) -> Vec<u8> {
    let container = LogContainer::create(path).unwrap();
    let writers = [container.writer(), container.writer()];
    let mut expected = vec![0; 9_000_000];
    for step in 0..40usize {
        let at = step * 1000;
        writers[step % 2].write_at(&[7; 1500], at as u64).unwrap();
        expected[at..at + 1500].fill(7);
    }
    writers[0].write_at(b"end", 8_999_997).unwrap();
    expected[8_999_997..].copy_from_slice(b"end");
    container.close().unwrap();
    expected
}

#[test]
fn a_flattened_container_is_a_plain_file_of_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let expected = make(&path);
    assert!(is_container(&path));
    assert_eq!(flatten(&LogOptions::default(), &path).unwrap(), 9_000_000);
    assert!(std::fs::read(&path).unwrap() == expected);
    assert!(!is_container(&path));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
    assert!(blocks * 512 < 5_000_000, "the hole stays one: {blocks} blocks");
    assert!(matches!(flatten(&LogOptions::default(), &path), Err(LogError::Foreign { .. })));
}

#[test]
fn flattening_without_room_or_beside_a_writer_leaves_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let expected = make(&path);
    let disk = SwitchDisk::default();
    let full = Arc::clone(&disk.fail_writes);
    let options = LogOptions { disk: Arc::new(disk), ..LogOptions::default() };
    full.store(28, Ordering::SeqCst);
    let error = flatten(&options, &path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no half-written file");
    full.store(0, Ordering::SeqCst);
    let writer = LogContainer::open(&path).unwrap();
    writer.writer().write_at(b"E", 8_999_997).unwrap();
    assert!(matches!(flatten(&options, &path), Err(LogError::Busy { .. })));
    assert!(matches!(repair(&path), Err(LogError::Busy { .. })));
    writer.close().unwrap();
    // Killed between the exchange and the removal: the next run completes it.
    flatten(&options, &path).unwrap();
    let mut found = std::fs::read(&path).unwrap();
    assert_eq!(found[8_999_997], b'E');
    found[8_999_997] = b'e';
    assert!(found == expected);
    let other = dir.path().join(".c.pario-flatten");
    make(&other);
    assert_eq!(flatten(&options, &path).unwrap(), 9_000_000);
    assert!(!other.exists());
}

#[test]
fn a_damaged_container_is_reported_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    make(&path);
    assert!(check(&path, true).unwrap().is_clean());
    // Killed in the middle of a write: bytes without an entry, half an entry, a writer without an index, no summary.
    for (name, bytes) in [("00000001-data", 100), ("00000002-index", 20), ("00000009-data", 7)] {
        let mut file = std::fs::File::options().append(true).create(true).open(path.join(name)).unwrap();
        std::io::Write::write_all(&mut file, &vec![9; bytes]).unwrap();
    }
    std::fs::write(path.join("pario-container"), "").unwrap();
    let found = check(&path, false).unwrap();
    assert!(found.is_unmarked);
    let kinds: Vec<FindingKind> = found.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(
        kinds,
        [
            FindingKind::Unindexed { bytes: 100 },
            FindingKind::Torn { entries: 1 },
            FindingKind::Unindexed { bytes: 7 }
        ]
    );
    assert!(matches!(LogContainer::open(&path), Err(LogError::Damaged { .. })));
    let repaired = repair(&path).unwrap();
    assert!(repaired.is_clean(), "{repaired:?}");
    assert_eq!((repaired.length, repaired.entries), (9_000_000, found.entries));
    let container = LogContainer::open(&path).unwrap();
    let mut head = [0; 4];
    container.read_at(&mut head, 1000).unwrap();
    assert_eq!(head, [7; 4]);
    drop(container);
    let mut log = std::fs::read(path.join("00000001-data")).unwrap();
    log[3] ^= 1;
    std::fs::write(path.join("00000001-data"), log).unwrap();
    assert!(check(&path, false).unwrap().is_clean(), "bytes are compared only when asked");
    let deep = check(&path, true).unwrap();
    assert_eq!(deep.findings[0].kind, FindingKind::Damaged { entries: 1 });
}

#[test]
fn a_creation_that_was_interrupted_is_completed_or_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(LogContainer::open(&path), Err(LogError::Missing { .. })));
    assert!(check(&path, false).unwrap().is_unmarked);
    repair(&path).unwrap();
    assert!(!path.exists());
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("pario-container"), "").unwrap();
    let container = LogContainer::create(&path).unwrap();
    container.writer().write_at(b"x", 0).unwrap();
    container.close().unwrap();
    assert_eq!(LogContainer::open(&path).unwrap().len(), 1);
}
