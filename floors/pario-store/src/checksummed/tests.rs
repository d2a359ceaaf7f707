//! The wrapper against a model, with flipped bits, killed processes and power cuts.

use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Generation, InodeId, LocalOffset, ObjectId, SeededRandom};
use pario_sys::MemoryPiece;
use pario_sys::file_lock::{LockFile, LockKind};
use pario_sys::file_map::Scattered;

use super::*;
use crate::direct::{DirectSettings, DirectStore};
use crate::disk::Disk;
use crate::error::StoreError;
use crate::recording::RecordingDisk;
use crate::store::{LendAccess, Lent, Store, Verified};
use crate::testing::TempDirs;
use crate::{FilesStore, RealDisk, conformance};

const OBJECT: ObjectId = ObjectId { inode: InodeId(1), generation: Generation(0) };

fn open(dir: &Path) -> Checksummed {
    let store = Box::new(FilesStore::open(dir).unwrap());
    Checksummed::open(store, RealDisk::shared(), dir, [1; 16]).unwrap()
}

fn write(store: &dyn Store, at: u64, bytes: &[u8]) {
    store.write(OBJECT, LocalOffset(at), &[MemoryPiece::from(bytes)]).unwrap();
}

fn read(store: &dyn Store, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
    let mut target = vec![0xEE; usize::try_from(range.end - range.start).unwrap()];
    let count = store.read(OBJECT, LocalOffset(range.start), &mut target)?;
    target.truncate(count);
    Ok(target)
}

fn path(dir: &Path) -> PathBuf {
    dir.join("objects/01/0000000000000001-00000000")
}

fn flip(dir: &Path, bit: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path(dir)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

fn verify(store: &dyn Store) -> Verified {
    let end = store.length(OBJECT).unwrap().unwrap_or(0);
    store.verify(OBJECT, 0..end).unwrap().unwrap()
}

#[test]
fn conforms() {
    let dirs = TempDirs::default();
    conformance::all(&|| Box::new(open(&dirs.fresh())));
}

#[test]
fn conforms_around_direct_files() {
    let dirs = TempDirs::default();
    let make = || -> Box<dyn Store> {
        let dir = dirs.fresh();
        let store = Box::new(DirectStore::open(&dir, DirectSettings::with_cache(4 << 20)).unwrap());
        Box::new(Checksummed::open(store, RealDisk::shared(), &dir, [1; 16]).unwrap())
    };
    for seed in 0..4 {
        conformance::random_operations(&*make(), seed);
    }
}

#[test]
fn every_flipped_bit_is_found_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let bytes: Vec<u8> = (0..100_003u32).map(|at| (at * 7).to_le_bytes()[1]).collect();
    write(&store, 0, &bytes);
    assert_eq!(verify(&store), Verified { right: 7, unknown: 0, wrong: vec![] });
    let mut random = SeededRandom::new(19);
    for _ in 0..300 {
        let bit = random.below(bytes.len() as u64 * 8);
        let at = bit / 8;
        flip(dir.path(), bit);
        let granule = at / GRANULE_BYTES * GRANULE_BYTES;
        for range in [at..at + 1, 0..bytes.len() as u64, at.saturating_sub(50_000)..at + 1, at..at + 200_000]
        {
            let error = read(&store, range.clone()).unwrap_err();
            assert!(
                matches!(&error, StoreError::Corrupt { range, .. } if range.start == granule),
                "bit {bit}, {range:?}: {error}"
            );
        }
        assert_eq!(verify(&store).wrong, [granule], "bit {bit}");
        flip(dir.path(), bit);
    }
    assert_eq!(read(&store, 0..200_000).unwrap(), bytes);
}

#[test]
fn damage_is_not_blessed_by_a_write_or_a_cut_of_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    write(&store, 0, &[7; 3 * GRANULE]);
    flip(dir.path(), 8 * 100);
    write(&store, 200, b"elsewhere in the granule");
    read(&store, 0..10).unwrap_err();
    flip(dir.path(), 8 * (GRANULE_BYTES + 100));
    store.truncate(InodeId(1), Generation(0), Generation(0), GRANULE_BYTES + 500).unwrap();
    read(&store, GRANULE_BYTES..GRANULE_BYTES + 10).unwrap_err();
    assert_eq!(verify(&store).wrong, [0, GRANULE_BYTES]);
    write(&store, 0, &[8; 2 * GRANULE]);
    assert_eq!(verify(&store), Verified { right: 2, unknown: 0, wrong: vec![] });
}

#[test]
fn an_object_that_is_gone_or_cut_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    write(&store, 0, &[7; 5 * GRANULE]);
    drop(store);
    std::fs::File::options().write(true).open(path(dir.path())).unwrap().set_len(20_000).unwrap();
    let store = open(dir.path());
    assert_eq!(read(&store, 0..GRANULE_BYTES).unwrap(), [7; GRANULE]);
    read(&store, 20_000..20_001).unwrap_err();
    drop(store);
    std::fs::remove_file(path(dir.path())).unwrap();
    let store = open(dir.path());
    let error = read(&store, 0..1).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(matches!(store.lend(OBJECT, LendAccess::Read).unwrap(), Lent::NotLent));
}

#[test]
fn bytes_from_before_checksums_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    write(&FilesStore::open(dir.path()).unwrap(), 0, &[7; 2 * GRANULE]);
    let store = open(dir.path());
    read(&store, 0..100).unwrap();
    write(&store, 10, b"some");
    assert_eq!(verify(&store), Verified { right: 0, unknown: 2, wrong: vec![] });
    write(&store, 0, &[8; GRANULE]);
    assert_eq!(verify(&store), Verified { right: 1, unknown: 1, wrong: vec![] });
}

/// One random step on the object; `model` has its expected bytes.
fn step(store: &dyn Store, random: &mut SeededRandom, model: &mut Vec<u8>) {
    let at = usize::try_from(random.below(6 * GRANULE_BYTES)).unwrap();
    match random.below(10) {
        0 => {
            model.truncate(at);
            store.truncate(InodeId(1), Generation(0), Generation(0), at as u64).unwrap();
        }
        1 => store.sync(OBJECT).unwrap(),
        2 => store.sync_all().unwrap(),
        3 => {
            let end = model.len() + 10;
            let found = read(store, 0..end as u64).unwrap();
            assert_eq!(found, *model);
        }
        4 => {
            let sources: Vec<[u8; 9]> = (0..20u8).map(|number| [number; 9]).collect();
            let pieces: Vec<Scattered<'_>> = sources
                .iter()
                .enumerate()
                .map(|(number, bytes)| Scattered { at: (at + number * 3000) as u64, bytes })
                .collect();
            store.write_scattered(OBJECT, &pieces).unwrap();
            for piece in &pieces {
                let at = usize::try_from(piece.at).unwrap();
                model.resize(model.len().max(at + 9), 0);
                model[at..at + 9].copy_from_slice(piece.bytes);
            }
        }
        _ => {
            let bytes = vec![
                random.below(256).to_le_bytes()[0];
                usize::try_from(random.below(3 * GRANULE_BYTES)).unwrap() + 1
            ];
            write(store, at as u64, &bytes);
            model.resize(model.len().max(at + bytes.len()), 0);
            model[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// No process death between two disk operations, and no power cut, leaves bytes reported as wrong.
#[test]
fn nothing_undamaged_is_ever_wrong() {
    for seed in 0..12 {
        let (dir, dirs) = (tempfile::tempdir().unwrap(), TempDirs::default());
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let store = Box::new(FilesStore::open_on(Arc::clone(&shared), dir.path()).unwrap());
        let store = Checksummed::open(store, shared, dir.path(), [1; 16]).unwrap();
        let (mut random, mut model) = (SeededRandom::new(seed), Vec::new());
        let mut moments = Vec::new();
        for _ in 0..40 {
            step(&store, &mut random, &mut model);
            moments.push(disk.events());
        }
        drop(store);
        let last = disk.events();
        for _ in 0..40 {
            let moment = usize::try_from(random.below(last as u64 + 1)).unwrap();
            let left = dirs.fresh();
            disk.power_cut(moment, random.below(u64::MAX), &left).unwrap();
            let inner = Box::new(FilesStore::open(&left).unwrap());
            let store = Checksummed::open(inner, RealDisk::shared(), &left, [2; 16]).unwrap();
            let found = verify(&store);
            assert_eq!(found.wrong, [0; 0], "seed {seed}, power cut after {moment} of {last}: {found:?}");
            let (mut after, mut model) = (SeededRandom::new(seed), read(&store, 0..1 << 20).unwrap());
            for _ in 0..10 {
                step(&store, &mut after, &mut model);
            }
        }
    }
}

/// A killed process leaves exactly its completed disk operations, none torn.
#[test]
fn a_killed_process_leaves_nothing_that_is_wrong() {
    for seed in 0..12 {
        let (dir, dirs) = (tempfile::tempdir().unwrap(), TempDirs::default());
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let store = Box::new(FilesStore::open_on(Arc::clone(&shared), dir.path()).unwrap());
        let store = Checksummed::open(store, shared, dir.path(), [1; 16]).unwrap();
        let (mut random, mut model) = (SeededRandom::new(seed), Vec::new());
        (0..30).for_each(|_| step(&store, &mut random, &mut model));
        drop(store);
        let last = disk.events();
        for _ in 0..40 {
            let moment = usize::try_from(random.below(last as u64 + 1)).unwrap();
            let left = dirs.fresh();
            disk.process_death(moment, &left).unwrap();
            let store = open(&left);
            let found = verify(&store);
            assert_eq!(found.wrong, [0; 0], "seed {seed}, killed after {moment} of {last}: {found:?}");
            let (mut after, mut model) = (SeededRandom::new(seed), read(&store, 0..1 << 20).unwrap());
            for _ in 0..10 {
                step(&store, &mut after, &mut model);
            }
        }
    }
}

#[test]
fn what_was_synced_is_still_known_after_a_power_cut() {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let store = Box::new(FilesStore::open_on(Arc::clone(&shared), dir.path()).unwrap());
    let store = Checksummed::open(store, shared, dir.path(), [1; 16]).unwrap();
    write(&store, 0, &[7; 4 * GRANULE]);
    store.sync(OBJECT).unwrap();
    write(&store, 4 * GRANULE_BYTES, &[7; GRANULE]);
    disk.power_cut(disk.events(), 3, left.path()).unwrap();
    let inner = Box::new(FilesStore::open(left.path()).unwrap());
    let again = Checksummed::open(inner, RealDisk::shared(), left.path(), [2; 16]).unwrap();
    let found = verify(&again);
    assert_eq!(found.right, 4, "{found:?}");
    flip(left.path(), 5);
    assert_eq!(verify(&again).wrong, [0]);
}

/// A client that writes directly through a loan.
struct Borrower {
    object: std::os::fd::OwnedFd,
    sums: std::os::fd::OwnedFd,
    lock: LockFile,
}

impl Borrower {
    fn of(store: &dyn Store) -> Borrower {
        let Lent::Summed { descriptor: object, sums } = store.lend(OBJECT, LendAccess::Write).unwrap() else {
            panic!("lends for writing")
        };
        let lock = LockFile::open_again(&sums).unwrap();
        Borrower { object, sums, lock }
    }

    fn note(&self, granule: u64, sums: &[GranuleSum]) {
        let bytes = encode_sums(sums);
        pario_sys::write_pieces_at(self.sums.as_fd(), &[MemoryPiece::from(&bytes[..])], place_of(granule))
            .unwrap();
    }

    /// False: another writer holds one of the granules.
    fn begin(&self, granules: &Range<u64>) -> bool {
        let begun = lock_entries(&self.lock, LockKind::Write, granules).unwrap();
        if begun {
            self.note(
                granules.start,
                &vec![GranuleSum::Unknown; usize::try_from(granules.end - granules.start).unwrap()],
            );
        }
        begun
    }

    fn put(&self, granules: &Range<u64>, value: u8) {
        let bytes = vec![value; usize::try_from((granules.end - granules.start) * GRANULE_BYTES).unwrap()];
        let at = granules.start * GRANULE_BYTES;
        pario_sys::write_pieces_at(self.object.as_fd(), &[MemoryPiece::from(&bytes[..])], at).unwrap();
    }

    fn end(&self, granules: &Range<u64>, value: u8) {
        let sum = GranuleSum::Known(granule_crc(&[value; GRANULE]));
        self.note(granules.start, &vec![sum; usize::try_from(granules.end - granules.start).unwrap()]);
        unlock_entries(&self.lock, granules).unwrap();
    }

    fn write(&self, granules: &Range<u64>, value: u8) -> bool {
        let begun = self.begin(granules);
        if begun {
            self.put(granules, value);
            self.end(granules, value);
        }
        begun
    }
}

#[test]
fn what_is_written_past_the_store_is_compared_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let borrower = Borrower::of(&store);
    assert!(borrower.write(&(0..3), 7));
    assert_eq!(read(&store, 0..100_000).unwrap(), [7; 3 * GRANULE]);
    assert_eq!(verify(&store), Verified { right: 3, unknown: 0, wrong: vec![] });
    flip(dir.path(), 8 * (GRANULE_BYTES + 5));
    read(&store, GRANULE_BYTES..GRANULE_BYTES + 1).unwrap_err();
    assert_eq!(verify(&store).wrong, [GRANULE_BYTES]);
    assert!(borrower.write(&(1..2), 8));
    assert_eq!(verify(&store), Verified { right: 3, unknown: 0, wrong: vec![] });
    // The store and the borrower alternately write one granule.
    write(&store, GRANULE_BYTES + 1, b"by the store");
    assert!(borrower.write(&(0..2), 9));
    write(&store, 5, b"again");
    assert_eq!(verify(&store), Verified { right: 3, unknown: 0, wrong: vec![] });
    // Truncated and extended again: bytes written beyond the truncation are forgotten.
    assert!(borrower.write(&(2..9), 9));
    drop(borrower);
    store.truncate(InodeId(1), Generation(0), Generation(0), GRANULE_BYTES + 9).unwrap();
    write(&store, 20 * GRANULE_BYTES, b"far");
    let far = read(&store, 0..1 << 20).unwrap();
    assert!(far[GRANULE + 9..20 * GRANULE].iter().all(|byte| *byte == 0));
    assert_eq!(verify(&store), Verified { right: 3, unknown: 0, wrong: vec![] });
}

#[test]
fn writers_on_both_sides_never_make_a_granule_wrong() {
    const GRANULES: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    write(&store, 0, &[1; 4 * GRANULE]);
    std::thread::scope(|scope| {
        for seed in 0..2u64 {
            let borrower = Borrower::of(&store);
            scope.spawn(move || {
                let mut random = SeededRandom::new(seed);
                for round in 0..150u8 {
                    let first = random.below(GRANULES);
                    borrower.write(&(first..first + 1 + random.below(GRANULES - first)), round);
                }
            });
        }
        let store = &store;
        scope.spawn(move || {
            let mut random = SeededRandom::new(7);
            for round in 0..150u8 {
                let at = random.below(GRANULES * GRANULE_BYTES - 20_000);
                write(store, at, &vec![round; usize::try_from(random.below(20_000)).unwrap() + 1]);
            }
        });
        scope.spawn(move || {
            let mut random = SeededRandom::new(8);
            for _ in 0..150 {
                let at = random.below(GRANULES * GRANULE_BYTES);
                read(store, at..at + 30_000).unwrap();
            }
        });
    });
    assert_eq!(verify(&store).wrong, [0; 0]);
    assert_eq!(verify(&open(dir.path())).wrong, [0; 0]);
}

/// A borrower that is stopped with a granule locked blocks no other writer, and its bytes there are not trusted.
#[test]
fn a_stopped_borrower_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let borrower = Borrower::of(&store);
    assert!(borrower.begin(&(0..1)));
    borrower.put(&(0..1), 7);
    write(&store, 0, &[8; GRANULE]);
    borrower.end(&(0..1), 7);
    assert_eq!(read(&store, 0..5).unwrap(), [8; 5]);
    assert_eq!(verify(&store), Verified { right: 0, unknown: 1, wrong: vec![] });
    write(&store, 0, &[9; GRANULE]);
    assert_eq!(verify(&store), Verified { right: 1, unknown: 0, wrong: vec![] });
    // A borrower that dies leaves unknown granules.
    assert!(borrower.begin(&(0..1)));
    borrower.put(&(0..1), 1);
    drop(borrower);
    assert_eq!(verify(&store), Verified { right: 0, unknown: 1, wrong: vec![] });
}

#[test]
fn an_object_is_sealed_when_its_borrowers_are_gone() {
    let right_in_next_life = |sync: bool| {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let borrower = Borrower::of(&store);
        assert!(borrower.write(&(0..2), 7));
        store.sync(OBJECT).unwrap();
        assert!(borrower.write(&(0..2), 8));
        drop(borrower);
        if sync {
            store.sync(OBJECT).unwrap();
        }
        drop(store);
        let inner = Box::new(FilesStore::open(dir.path()).unwrap());
        let found = verify(&Checksummed::open(inner, RealDisk::shared(), dir.path(), [2; 16]).unwrap());
        assert_eq!(found.wrong, [0; 0]);
        found.right
    };
    assert_eq!(right_in_next_life(true), 2);
    assert_eq!(right_in_next_life(false), 0);
}

/// `sync_all` once held the lock of the set of unsealed objects while it waited for the table of one of them; a removal takes them in the
/// other order, and both waited forever.
#[test]
fn objects_are_removed_while_all_are_synced() {
    const ROUNDS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    let (done, over) = std::sync::mpsc::channel();
    for thread in 0..3 {
        let (store, done) = (Arc::clone(&store), done.clone());
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                if thread == 0 {
                    store.sync_all().unwrap();
                } else {
                    let inode = InodeId((thread * ROUNDS + round) as u64);
                    let object = ObjectId { inode, generation: Generation(0) };
                    store.write(object, LocalOffset(0), &[MemoryPiece::from(&[1; 64][..])]).unwrap();
                    store.remove(object).unwrap();
                }
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..3 {
        over.recv_timeout(std::time::Duration::from_secs(60)).expect("no thread waits forever");
    }
}
