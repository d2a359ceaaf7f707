//! The direct store beyond the conformance suite: write-back, background errors, exact lengths on disk.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use pario_core::{Clock, Code, Fault};
use pario_sys::MonotonicClock;

use super::block::BLOCK_BYTES;
use super::*;
use crate::conformance;
use crate::files::FilesStore;
use crate::testing::{SwitchDisk, TempDirs};

const OBJECT: ObjectId = ObjectId { inode: InodeId(5), generation: Generation(0) };
const BLOCK: u64 = BLOCK_BYTES as u64;
const NO_SPACE: i32 = 28;
const IO_ERROR: i32 = 5;

fn write(store: &dyn Store, at: u64, bytes: usize) -> Result<(), StoreError> {
    store.write(OBJECT, LocalOffset(at), &[MemoryPiece::from(&vec![7; bytes][..])])
}

#[track_caller]
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = MonotonicClock.now();
    while !condition() {
        assert!(MonotonicClock.now().since(start) < Duration::from_secs(20), "waited too long: {what}");
        std::thread::yield_now();
    }
}

fn switched(settings: DirectSettings) -> (tempfile::TempDir, DirectStore, Arc<AtomicI32>) {
    let dir = tempfile::tempdir().unwrap();
    let disk = SwitchDisk::default();
    let fail = Arc::clone(&disk.fail_writes);
    let store = DirectStore::open_on(Arc::new(disk), dir.path(), settings).unwrap();
    (dir, store, fail)
}

#[test]
fn conforms_with_room() {
    let dirs = TempDirs::default();
    let settings = DirectSettings::with_cache(16 << 20);
    conformance::all(&|| Box::new(DirectStore::open(&dirs.fresh(), settings).unwrap()));
}

#[test]
fn conforms_in_the_smallest_cache() {
    let dirs = TempDirs::default();
    let settings = DirectSettings::with_cache(0);
    conformance::all(&|| Box::new(DirectStore::open(&dirs.fresh(), settings).unwrap()));
}

#[test]
fn length_on_disk_is_exact_and_bytes_are_there_after_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirectStore::open(dir.path(), DirectSettings::with_cache(4 << 20)).unwrap();
    let path = dir.path().join("objects/05").join(OBJECT.to_string());
    for (at, bytes) in
        [(5000, 3), (0, 1), (4095, 2), (262_140, 10), (300_000, 4096), (307_200, 4096), (311_296, 1)]
    {
        write(&store, at, bytes).unwrap();
        store.flush(OBJECT).unwrap();
        let length = store.length(OBJECT).unwrap().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length, "after {bytes} at {at}");
    }
    let expected = {
        let mut target = vec![0; 400_000];
        let read = store.read(OBJECT, LocalOffset(0), &mut target).unwrap();
        target.truncate(read);
        target
    };
    assert_eq!(std::fs::read(&path).unwrap(), expected);
    assert_eq!(expected.iter().filter(|byte| **byte == 7).count(), 3 + 1 + 2 + 10 + 4096 + 4096 + 1);
}

#[test]
fn what_is_in_the_cache_is_written_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirectStore::open(dir.path(), DirectSettings::with_cache(8 << 20)).unwrap();
    write(&store, 10, 1_000_001).unwrap();
    drop(store);
    let files = FilesStore::open(dir.path()).unwrap();
    let mut back = vec![0; 1_000_011];
    assert_eq!(files.read(OBJECT, LocalOffset(0), &mut back).unwrap(), 1_000_011);
    assert!(back[..10].iter().all(|byte| *byte == 0) && back[10..].iter().all(|byte| *byte == 7));
}

#[test]
fn staging_starts_at_high_stops_at_low_and_joins_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let settings = DirectSettings { cache_bytes: 64 * BLOCK, high_bytes: 32 * BLOCK, low_bytes: 8 * BLOCK };
    let store = DirectStore::open(dir.path(), settings).unwrap();
    for index in 0..31 {
        write(&store, index * BLOCK, BLOCK_BYTES).unwrap();
    }
    assert_eq!(store.stats().staged_bytes, 0, "below high no write-back");
    assert_eq!(store.stats().dirty_bytes, 31 * BLOCK);
    write(&store, 31 * BLOCK, BLOCK_BYTES).unwrap();
    wait_until("write-back down to low", || store.stats().dirty_bytes <= 8 * BLOCK);
    let stats = store.stats();
    assert_eq!(stats.staged_bytes + stats.dirty_bytes, 32 * BLOCK);
    assert!(stats.staged_writes <= 3, "{} writes for {} bytes", stats.staged_writes, stats.staged_bytes);
    assert_eq!(stats.cached_bytes, 32 * BLOCK, "clean blocks stay cached");
    assert!(store.read(OBJECT, LocalOffset(0), &mut [0; 100]).unwrap() == 100 && store.stats().hits == 1);
}

#[test]
fn memory_stays_within_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirectStore::open(dir.path(), DirectSettings::with_cache(8 * BLOCK)).unwrap();
    // One more for the writer and one for the write-back thread, if they run concurrently.
    let limit = 10 * BLOCK;
    for index in 0..40 {
        write(&store, index * BLOCK, BLOCK_BYTES).unwrap();
        assert!(store.stats().cached_bytes <= limit);
    }
    let mut target = vec![0; 4 * BLOCK_BYTES];
    for index in (0..40).step_by(4) {
        store.read(OBJECT, LocalOffset(index * BLOCK), &mut target).unwrap();
        assert!(target.iter().all(|byte| *byte == 7));
        assert!(store.stats().cached_bytes <= limit);
    }
}

#[test]
fn full_disk_is_told_once_and_the_data_kept() {
    let settings = DirectSettings { cache_bytes: 64 * BLOCK, high_bytes: 2 * BLOCK, low_bytes: 0 };
    let (dir, store, fail) = switched(settings);
    fail.store(NO_SPACE, Ordering::SeqCst);
    for index in 0..2 {
        write(&store, index * BLOCK, BLOCK_BYTES).unwrap();
    }
    let object = || lock(&store.cache.ledger).object(OBJECT).unwrap();
    wait_until("the background fails", || object().has_error());
    let error = write(&store, 0, 1).unwrap_err();
    assert!(matches!(error, StoreError::Full { object: OBJECT, .. }), "{error}");
    assert_eq!(Fault::from(error).code, Code::NoSpace);
    assert_eq!(store.stats().dirty_bytes, 2 * BLOCK);
    assert!(store.flush(OBJECT).unwrap_err().is_full(), "a flush retries, and fails itself");
    fail.store(0, Ordering::SeqCst);
    store.sync(OBJECT).unwrap();
    assert_eq!(store.stats().dirty_bytes, 0);
    let path = dir.path().join("objects/05").join(OBJECT.to_string());
    assert_eq!(std::fs::read(path).unwrap(), vec![7; 2 * BLOCK_BYTES]);
}

#[test]
fn a_cache_full_of_what_the_disk_refuses_refuses_writes_but_not_reads() {
    let (_dir, store, fail) = switched(DirectSettings::with_cache(4 * BLOCK));
    write(&store, 10 * BLOCK, BLOCK_BYTES).unwrap();
    store.sync(OBJECT).unwrap();
    fail.store(NO_SPACE, Ordering::SeqCst);
    let other = ObjectId { inode: InodeId(6), ..OBJECT };
    let mut refused = 0;
    for index in 0..12 {
        match store.write(other, LocalOffset(index * BLOCK), &[MemoryPiece::from(&[1; BLOCK_BYTES][..])]) {
            Ok(()) => {}
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
            }
        }
    }
    assert!(4 <= refused, "only {refused} refused");
    let mut target = [0; 100];
    assert_eq!(store.read(OBJECT, LocalOffset(10 * BLOCK), &mut target).unwrap(), 100);
    assert_eq!(target, [7; 100]);
    fail.store(0, Ordering::SeqCst);
    store.remove(other).unwrap();
    write(&store, 0, 100).unwrap();
    store.sync(OBJECT).unwrap();
}

#[test]
fn a_broken_disk_is_told_once_and_does_not_fill_the_cache() {
    let settings = DirectSettings { cache_bytes: 64 * BLOCK, high_bytes: BLOCK, low_bytes: 0 };
    let (_dir, store, fail) = switched(settings);
    fail.store(IO_ERROR, Ordering::SeqCst);
    write(&store, 0, BLOCK_BYTES).unwrap();
    wait_until("the background gives up", || store.stats().dirty_bytes == 0);
    let object = || lock(&store.cache.ledger).object(OBJECT).unwrap();
    wait_until("the error is kept", || object().has_error());
    let error = store.sync(OBJECT).unwrap_err();
    assert!(matches!(error, StoreError::Device { doing: Doing::Writing, .. }), "{error}");
    store.sync(OBJECT).unwrap();
}

#[test]
fn a_kept_error_survives_a_cut() {
    let settings = DirectSettings { cache_bytes: 64 * BLOCK, high_bytes: BLOCK, low_bytes: 0 };
    let (_dir, store, fail) = switched(settings);
    fail.store(NO_SPACE, Ordering::SeqCst);
    write(&store, 0, BLOCK_BYTES).unwrap();
    let object = || lock(&store.cache.ledger).object(OBJECT).unwrap();
    wait_until("the background fails", || object().has_error());
    store.truncate(OBJECT.inode, Generation(0), Generation(1), 10).unwrap();
    fail.store(0, Ordering::SeqCst);
    let cut = ObjectId { generation: Generation(1), ..OBJECT };
    assert!(store.sync(cut).unwrap_err().is_full());
    store.sync(cut).unwrap();
    assert_eq!(store.length(cut).unwrap(), Some(10));
}

#[test]
fn a_file_system_without_direct_access_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(SwitchDisk { refuse_direct: true, ..SwitchDisk::default() });
    let error = DirectStore::open_on(disk, dir.path(), DirectSettings::with_cache(0)).unwrap_err();
    assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("use the store \"files\""), "{error}");
}

#[test]
fn several_writers_on_several_objects_with_cuts_among_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = DirectStore::open(dir.path(), DirectSettings::with_cache(4 * BLOCK)).unwrap();
    std::thread::scope(|scope| {
        for inode in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                for generation in 0..12 {
                    let object = ObjectId { inode: InodeId(inode), generation: Generation(generation) };
                    let value = u8::try_from(inode * 16 + u64::from(generation)).unwrap();
                    let source = vec![value; 700_001];
                    store.write(object, LocalOffset(3), &[MemoryPiece::from(&source[..])]).unwrap();
                    let mut back = vec![0; source.len()];
                    store.read(object, LocalOffset(3), &mut back).unwrap();
                    assert_eq!(back, source, "{object}");
                    let next = Generation(generation + 1);
                    store
                        .truncate(object.inode, object.generation, next, u64::from(generation) * 1000)
                        .unwrap();
                }
            });
        }
    });
    assert!(store.stats().cached_bytes <= 8 * BLOCK);
    store.sync_all().unwrap();
    let listed = store.list(None, 10).unwrap();
    assert_eq!(listed.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>(), [11_000; 4]);
}
