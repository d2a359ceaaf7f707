//! The replay loses only what may be lost, and stores keep what they acknowledged.

use std::collections::BTreeMap;

use pario_core::SeededRandom;
use pario_core::{Generation, InodeId, LocalOffset, ObjectId};

use super::*;
use crate::direct::{DirectSettings, DirectStore};
use crate::files::FilesStore;
use crate::log::LogStore;
use crate::store::Store;

fn cut(disk: &RecordingDisk, events: usize, seed: u64) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    disk.power_cut(events, seed, target.path()).unwrap();
    target
}

fn recording() -> (tempfile::TempDir, RecordingDisk) {
    let dir = tempfile::tempdir().unwrap();
    let disk = RecordingDisk::new(dir.path()).unwrap();
    (dir, disk)
}

/// In how many of 200 power cuts `holds` is true.
fn count(disk: &RecordingDisk, holds: impl Fn(&Path) -> bool) -> usize {
    (0..200).filter(|seed| holds(cut(disk, disk.events(), *seed).path())).count()
}

#[test]
fn synced_bytes_stay_and_others_may_go_or_tear() {
    let (dir, disk) = recording();
    let file = disk.open(&dir.path().join("f"), OpenMode::CreateNew).unwrap();
    file.write_at(&[1; 2000], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(dir.path()).unwrap();
    file.write_at(&[2; 3000], 1000).unwrap();
    let read = |path: &Path| std::fs::read(path.join("f")).unwrap();
    assert_eq!(count(&disk, |path| read(path)[..1000] == [1; 1000]), 200);
    let old = count(&disk, |path| read(path)[1000..] == [1; 1000]);
    let new = count(&disk, |path| read(path)[1000..] == [2; 3000]);
    assert!(20 < old && 20 < new && old + new < 180, "old {old}, new {new}");
    // Writes are torn at sector borders.
    assert_eq!(
        count(&disk, |path| read(path)[1024..1536].iter().all(|b| *b == 1)
            || read(path)[1024..1536].iter().all(|b| *b == 2)),
        200
    );
    file.sync_data().unwrap();
    assert_eq!(count(&disk, |path| read(path)[1000..] == [2; 3000]), 200);
}

#[test]
fn a_name_without_a_synced_directory_may_be_lost_though_its_bytes_were_synced() {
    let (dir, disk) = recording();
    let file = disk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    let there = count(&disk, |path| path.join("f").exists());
    assert!(20 < there && there < 180, "{there}");
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(count(&disk, |path| std::fs::read(path.join("f")).is_ok_and(|bytes| bytes == b"x")), 200);
}

#[test]
fn a_directory_that_was_lost_takes_its_names_along() {
    let (dir, disk) = recording();
    disk.make_dir(&dir.path().join("d")).unwrap();
    disk.open(&dir.path().join("d/f"), OpenMode::Create).unwrap();
    disk.sync_dir(&dir.path().join("d")).unwrap();
    let there = count(&disk, |path| path.join("d/f").exists());
    assert!(20 < there && there < 180, "{there}");
    disk.sync_dir(dir.path()).unwrap();
    assert_eq!(count(&disk, |path| path.join("d/f").exists()), 200);
}

#[test]
fn a_rename_is_atomic() {
    let (dir, disk) = recording();
    for (name, bytes) in [("a", b"old"), ("b", b"new")] {
        let file = disk.open(&dir.path().join(name), OpenMode::Create).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync_all().unwrap();
    }
    disk.sync_dir(dir.path()).unwrap();
    disk.rename(&dir.path().join("b"), &dir.path().join("a")).unwrap();
    let state = |path: &Path| (std::fs::read(path.join("a")).unwrap(), path.join("b").exists());
    let before = count(&disk, |path| state(path) == (b"old".to_vec(), true));
    let after = count(&disk, |path| state(path) == (b"new".to_vec(), false));
    assert!(before + after == 200 && 20 < before && 20 < after, "before {before}, after {after}");
}

#[test]
fn cutting_a_file_is_pending_too() {
    let (dir, disk) = recording();
    let file = disk.open(&dir.path().join("f"), OpenMode::Create).unwrap();
    disk.sync_dir(dir.path()).unwrap();
    file.write_at(&[1; 1000], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(10).unwrap();
    file.write_at(&[2; 10], 700).unwrap();
    // Truncated bytes never reappear after bytes written later.
    let ghosts = count(&disk, |path| {
        let bytes = std::fs::read(path.join("f")).unwrap();
        bytes.contains(&2) && bytes.get(10..700).is_some_and(|cut| cut.contains(&1))
    });
    assert_eq!(ghosts, 0);
    let kept = count(&disk, |path| std::fs::read(path.join("f")).unwrap() == [1; 1000]);
    assert!(20 < kept && kept < 180, "{kept}");
}

/// One acknowledged write: time, object, bytes.
struct AckedWrite {
    since: usize,
    until: usize,
    object: ObjectId,
    bytes: Vec<u8>,
}

/// Writes, truncations and syncs by a seed; returns the acknowledged writes, and until when each was not overwritten.
fn work(store: &dyn Store, disk: &RecordingDisk, seed: u64) -> Vec<AckedWrite> {
    let mut random = SeededRandom::new(seed);
    let mut objects: BTreeMap<u64, (u32, Vec<u8>)> = BTreeMap::new();
    let mut promises: Vec<AckedWrite> = Vec::new();
    for _ in 0..60 {
        let inode = random.below(6) * 85;
        let (generation, bytes) = objects.entry(inode).or_default();
        let object = ObjectId { inode: InodeId(inode), generation: Generation(*generation) };
        for promise in promises.iter_mut().filter(|p| p.object.inode == object.inode && p.until == usize::MAX)
        {
            promise.until = disk.events();
        }
        for _ in 0..=random.below(3) {
            let (at, count) = (random.index(9000), 1 + random.index(5000));
            let value = random.next_u64().to_le_bytes()[0];
            store
                .write(object, LocalOffset(at as u64), &[MemoryPiece::from(&vec![value; count][..])])
                .unwrap();
            bytes.resize(bytes.len().max(at + count), 0);
            bytes[at..at + count].fill(value);
        }
        if random.below(3) == 0 {
            let keep = random.index(10_000);
            let next = Generation(*generation + 1);
            store.truncate(object.inode, object.generation, next, keep as u64).unwrap();
            bytes.truncate(keep);
            *generation += 1;
        }
        if random.coin() {
            let object = ObjectId { generation: Generation(*generation), ..object };
            store.sync(object).unwrap();
            promises.push(AckedWrite {
                since: disk.events(),
                until: usize::MAX,
                object,
                bytes: bytes.clone(),
            });
        }
    }
    promises
}

type MakeRecorded<'a> = &'a dyn Fn(Arc<RecordingDisk>, &Path) -> Box<dyn Store>;

type OpenLeft<'a> = &'a dyn Fn(&Path) -> Box<dyn Store>;

fn check_promises(make: MakeRecorded<'_>, open: OpenLeft<'_>, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let store = make(Arc::clone(&disk), dir.path());
    let promises = work(&*store, &disk, seed);
    let mut random = SeededRandom::new(seed ^ 0xC0FFEE);
    let mut checked = 0;
    for _ in 0..12 {
        let (moment, luck) = (random.index(disk.events() + 1), random.next_u64());
        let left = cut(&disk, moment, luck);
        let after = open(left.path());
        for promise in promises.iter().filter(|p| p.since <= moment && moment <= p.until) {
            let mut found = vec![0xEE; promise.bytes.len() + 1];
            let read = after.read(promise.object, LocalOffset(0), &mut found).unwrap();
            found.truncate(read);
            assert!(
                found == promise.bytes,
                "seed {seed}, cut at {moment} by {luck}: {} differs",
                promise.object
            );
            let earlier = (0..promise.object.generation.0).map(Generation);
            for generation in earlier {
                let old = ObjectId { generation, ..promise.object };
                assert_eq!(
                    after.length(old).unwrap(),
                    None,
                    "seed {seed}, cut at {moment} by {luck}: {old} is back"
                );
            }
            checked += 1;
        }
    }
    assert!(0 < checked, "seed {seed}: no promise was put to the test");
}

fn open_files(left: &Path) -> Box<dyn Store> {
    Box::new(FilesStore::open(left).expect("the store opens after a power cut"))
}

#[test]
fn files_keep_what_they_acknowledged() {
    for seed in 0..30 {
        check_promises(&|disk, dir| Box::new(FilesStore::open_on(disk, dir).unwrap()), &open_files, seed);
    }
}

#[test]
fn direct_files_keep_what_they_acknowledged() {
    let settings = DirectSettings::with_cache(0);
    for seed in 0..15 {
        let make = |disk: Arc<RecordingDisk>, dir: &Path| -> Box<dyn Store> {
            Box::new(DirectStore::open_on(disk, dir, settings).unwrap())
        };
        check_promises(&make, &open_files, seed);
    }
}

#[test]
fn containers_keep_what_they_acknowledged() {
    let open = |left: &Path| -> Box<dyn Store> { Box::new(LogStore::open(left).unwrap()) };
    for seed in 0..30 {
        check_promises(&|disk, dir| Box::new(LogStore::open_on(disk, dir).unwrap()), &open, seed);
    }
}
