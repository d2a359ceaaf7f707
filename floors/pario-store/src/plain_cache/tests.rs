//! The store of the file cache against a byte array and against its plain file, while other programs write to that file.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, Generation, InodeId, Layout, LocalOffset, ObjectId, ServerIndex};
use pario_sys::{MemoryPiece, MonotonicClock};
use proptest::prelude::*;

use super::*;
use crate::disk::DiskFile;
use crate::error::StoreError;
use crate::store::Store;
use crate::sync::lock;

const BLOCK: u64 = 4096;
const FILE_BYTES: u64 = 24 * BLOCK;
const INODE: InodeId = InodeId(5);

/// A plain file with writes that fail on request.
#[derive(Debug)]
struct FailingFile {
    file: std::fs::File,
    /// The error of every write; 0: none.
    error: Arc<AtomicI32>,
}

impl DiskFile for FailingFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        match self.error.load(Ordering::Relaxed) {
            0 => pario_sys::write_pieces_at(self.file.as_fd(), pieces, offset),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        pario_sys::read_exact_or_end_at(self.file.as_fd(), target, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// Stores that share one plain file, as the servers of one group do.
struct CacheFixture {
    stores: Vec<PlainCacheStore>,
    layout: Layout,
    plain: tempfile::NamedTempFile,
    model: Vec<u8>,
    generation: Generation,
    error: Arc<AtomicI32>,
}

impl CacheFixture {
    fn new(servers: u16, cache_bytes: u64, stripe_blocks: u64, locks: bool) -> CacheFixture {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let model: Vec<u8> = (0..FILE_BYTES / 2 + 7).map(|n| u8::try_from(n % 253).unwrap()).collect();
        plain.as_file().write_all_at(&model, 0).unwrap();
        let layout = Layout::new(stripe_blocks * BLOCK, servers, 0, servers).unwrap();
        let error = Arc::new(AtomicI32::new(0));
        let stores = (0..servers).map(|_| PlainCacheStore::new(cache_bytes).unwrap()).collect();
        let world = CacheFixture { stores, layout, plain, model, generation: Generation(0), error };
        for (number, store) in world.stores.iter().enumerate() {
            let server = ServerIndex(u16::try_from(number).unwrap());
            let file = std::fs::File::options().read(true).write(true).open(world.plain.path()).unwrap();
            let below = FailingFile { file, error: Arc::clone(&world.error) };
            let opened = PlainFileOpening {
                path: world.plain.path().to_owned(),
                file: Arc::new(below),
                reads: true,
                writes: true,
                locks,
            };
            let place = CachePlacement {
                server,
                layout,
                block_bytes: BLOCK,
                homes: None,
                follows_writers: false,
                direct: false,
            };
            store.open(INODE, place, opened, world.model.len() as u64).unwrap();
        }
        world
    }

    fn object(&self) -> ObjectId {
        ObjectId { inode: INODE, generation: self.generation }
    }

    /// The parts of a range by server, as one request each.
    fn requests(&self, at: u64, bytes: u64) -> Vec<(ServerIndex, Range<u64>)> {
        let servers = self.layout.servers();
        let parts = servers.map(|server| (server, self.layout.local_range(server, at..at + bytes)));
        parts.filter(|(_, range)| !range.is_empty()).collect()
    }

    fn gather(&self, server: ServerIndex, at: u64, data: &[u8]) -> Vec<u8> {
        let pieces = self.layout.pieces_on(server, at..at + data.len() as u64);
        pieces
            .flat_map(|piece| {
                let from = usize::try_from(piece.file_offset - at).unwrap();
                data[from..from + usize::try_from(piece.bytes).unwrap()].to_vec()
            })
            .collect()
    }

    fn try_write(&mut self, at: u64, data: &[u8]) -> Result<(), StoreError> {
        for (server, range) in self.requests(at, data.len() as u64) {
            let part = self.gather(server, at, data);
            // In two pieces, as a drained batch has them.
            let (one, two) = part.split_at(part.len() / 2);
            let pieces = [MemoryPiece::from(one), MemoryPiece::from(two)];
            self.stores[server.at()].write(self.object(), LocalOffset(range.start), &pieces)?;
        }
        let at = usize::try_from(at).unwrap();
        let end = self.model.len().max(at + data.len());
        self.model.resize(end, 0);
        self.model[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn read(&self, at: u64, bytes: u64) {
        for (server, range) in self.requests(at, bytes) {
            let mut found = vec![0xee; usize::try_from(range.end - range.start).unwrap()];
            let count =
                self.stores[server.at()].read(self.object(), LocalOffset(range.start), &mut found).unwrap();
            found[count..].fill(0);
            let mut all = self.model.clone();
            all.resize(usize::try_from(at + bytes).unwrap().max(all.len()), 0);
            let from = usize::try_from(at).unwrap();
            let expected = self.gather(server, at, &all[from..from + usize::try_from(bytes).unwrap()]);
            assert!(expected == found, "server {server}, {bytes} bytes at {at}");
        }
    }

    fn cut(&mut self, bytes: u64) {
        let to = Generation(self.generation.0 + 1);
        if bytes < self.model.len() as u64 {
            self.stores.iter().for_each(|store| store.announce_length(INODE, bytes));
            for (number, store) in self.stores.iter().enumerate() {
                let server = ServerIndex(u16::try_from(number).unwrap());
                store.truncate(INODE, self.generation, to, self.layout.local_length(server, bytes)).unwrap();
            }
            // Stale, from before the truncation: no reader sees it.
            let late = [MemoryPiece::from(&[0xdd_u8; 10][..])];
            self.stores[0].write(self.object(), LocalOffset(0), &late).unwrap();
            self.generation = to;
        } else {
            extend(self.plain.as_file(), bytes).unwrap();
        }
        self.model.resize(usize::try_from(bytes).unwrap(), 0);
    }

    fn check_plain(&self) {
        let found = std::fs::read(self.plain.path()).unwrap();
        assert_eq!(found.len(), self.model.len());
        assert!(found == self.model);
    }

    fn stats(&self) -> Vec<CacheStats> {
        self.stores.iter().map(PlainCacheStore::cache_stats).collect()
    }
}

#[derive(Clone, Debug)]
enum CacheTestStep {
    Write {
        at: u64,
        bytes: u64,
    },
    Read {
        at: u64,
        bytes: u64,
    },
    /// More than the pool of any test here holds.
    WriteMuch {
        at: u64,
    },
    ReadMuch,
    OtherProgram {
        at: u64,
        bytes: u64,
    },
    Cut(u64),
    Flush,
}

fn step() -> impl Strategy<Value = CacheTestStep> {
    let place = || (0..FILE_BYTES, 1..2 * BLOCK);
    prop_oneof![
        6 => place().prop_map(|(at, bytes)| CacheTestStep::Write { at, bytes }),
        4 => place().prop_map(|(at, bytes)| CacheTestStep::Read { at, bytes }),
        1 => (0..FILE_BYTES).prop_map(|at| CacheTestStep::WriteMuch { at }),
        1 => Just(CacheTestStep::ReadMuch),
        1 => place().prop_map(|(at, bytes)| CacheTestStep::OtherProgram { at, bytes }),
        1 => (0..FILE_BYTES).prop_map(CacheTestStep::Cut),
        1 => Just(CacheTestStep::Flush),
    ]
}

fn data(bytes: u64, seed: usize) -> Vec<u8> {
    (0..bytes).map(|n| u8::try_from((n * 7 + seed as u64) % 251).unwrap() | 1).collect()
}

fn take(world: &mut CacheFixture, number: usize, step: &CacheTestStep) {
    match *step {
        CacheTestStep::Write { at, bytes } => world.try_write(at, &data(bytes, number)).unwrap(),
        CacheTestStep::WriteMuch { at } => world.try_write(at, &data(FILE_BYTES, number)).unwrap(),
        CacheTestStep::Read { at, bytes } => world.read(at, bytes),
        CacheTestStep::ReadMuch => world.read(0, FILE_BYTES * 2),
        CacheTestStep::Cut(bytes) => world.cut(bytes),
        CacheTestStep::Flush => {
            world.stores.iter().for_each(|store| store.flush(world.object()).unwrap());
            world.check_plain();
        }
        // Another program writes to the file, and the group syncs before and after.
        CacheTestStep::OtherProgram { at, bytes } => {
            world.stores.iter().for_each(|store| store.sync(world.object()).unwrap());
            let bytes = data(bytes, number);
            world.plain.as_file().write_all_at(&bytes, at).unwrap();
            let from = usize::try_from(at).unwrap();
            let end = world.model.len().max(from + bytes.len());
            world.model.resize(end, 0);
            world.model[from..from + bytes.len()].copy_from_slice(&bytes);
            world.stores.iter().for_each(|store| store.refresh_file(INODE, end as u64).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn blocks_above_a_plain_file(
        servers in 1u16..5,
        cache_blocks in 0u64..12,
        stripe_blocks in 1u64..3,
        (locks, behind) in any::<(bool, bool)>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = CacheFixture::new(servers, cache_blocks * BLOCK, stripe_blocks, locks);
        world.stores.iter().for_each(|store| store.set_write_behind(behind));
        for (number, step) in steps.iter().enumerate() {
            take(&mut world, number, step);
            for stats in world.stats() {
                prop_assert!(stats.cached_bytes <= cache_blocks * BLOCK, "{stats:?}");
            }
        }
        world.stores.iter().for_each(|store| store.close(INODE).unwrap());
        world.check_plain();
        prop_assert!(world.stats().iter().all(|stats| stats.cached_bytes == 0));
    }
}

#[test]
fn only_dirty_bytes_are_written_and_neighbours_in_one_write() {
    let mut world = CacheFixture::new(1, 1 << 20, 8, false);
    let strangers = [0xaa; 10];
    world.try_write(100, &[1; 50]).unwrap();
    world.plain.as_file().write_all_at(&strangers, 160).unwrap();
    world.model[160..170].copy_from_slice(&strangers);
    // Across the border of two blocks, and all of a third.
    world.try_write(2 * BLOCK - 10, &[2; 20]).unwrap();
    world.try_write(2 * BLOCK + 10, &data(2 * BLOCK, 3)).unwrap();
    assert_eq!(world.stats()[0].plain_writes, 0);
    world.stores[0].flush(world.object()).unwrap();
    let stats = world.stats()[0];
    assert_eq!((stats.plain_writes, stats.plain_written_bytes), (2, 50 + 20 + 2 * BLOCK), "{stats:?}");
    assert_eq!(stats.plain_reads, 0, "a write fetches no block");
    world.check_plain();
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = MonotonicClock.now();
    while !condition() {
        assert!(MonotonicClock.now().since(start) < Duration::from_secs(20), "waited too long: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_left_alone_goes_down_by_itself() {
    let mut world = CacheFixture::new(1, 1 << 20, 8, false);
    world.try_write(0, &data(3 * BLOCK, 1)).unwrap();
    // Switched on with dirty blocks, and then with none.
    world.stores[0].set_write_behind(true);
    for seed in 2..5 {
        wait_until("no block is dirty", || world.stats()[0].dirty_bytes == 0);
        world.check_plain();
        world.try_write(BLOCK, &data(2 * BLOCK, seed)).unwrap();
    }
    wait_until("no block is dirty", || world.stats()[0].dirty_bytes == 0);
    world.read(0, 3 * BLOCK);
    assert_eq!(world.stats()[0].plain_reads, 0, "written-back blocks stay cached");
    world.stores[0].flush(world.object()).unwrap();
    world.check_plain();
}

#[test]
fn what_cannot_go_down_by_itself_is_told_to_who_flushes() {
    let mut world = CacheFixture::new(1, 1 << 20, 8, false);
    world.error.store(28, Ordering::Relaxed);
    world.stores[0].set_write_behind(true);
    world.try_write(0, &data(BLOCK, 1)).unwrap();
    let file = world.stores[0].core.file(INODE).unwrap();
    wait_until("the background fails", || lock(&file.error).is_some());
    world.error.store(0, Ordering::Relaxed);
    let error = world.stores[0].flush(world.object()).unwrap_err().to_string();
    assert!(error.contains("No space left"), "{error}");
    world.check_plain();
    world.try_write(0, &data(BLOCK, 2)).unwrap();
    wait_until("the write-back is retried", || world.stats()[0].dirty_bytes == 0);
    world.check_plain();
}

#[test]
fn a_fresh_write_is_read_without_the_plain_file() {
    let mut world = CacheFixture::new(2, 1 << 20, 1, false);
    world.try_write(0, &data(6 * BLOCK, 1)).unwrap();
    world.read(0, 6 * BLOCK);
    assert!(world.stats().iter().all(|stats| stats.plain_reads == 0 && stats.plain_writes == 0));
}

#[test]
fn locks_surround_every_access_where_they_are_wanted() {
    let mut world = CacheFixture::new(1, 1 << 20, 1, true);
    world.read(0, 2 * BLOCK);
    world.try_write(5, &[1; 5]).unwrap();
    world.stores[0].flush(world.object()).unwrap();
    let stats = world.stats()[0];
    assert_eq!(stats.locks, stats.plain_reads + stats.plain_writes, "{stats:?}");
    assert_eq!(CacheFixture::new(1, 1 << 20, 1, false).stats()[0].locks, 0);
}

#[test]
fn large_requests_at_once_neither_wait_for_each_other_nor_exceed_the_pool() {
    let world = CacheFixture::new(1, 10 * BLOCK, 64, false);
    let object = world.object();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let store = &world.stores[0];
            scope.spawn(move || {
                // Together more than the pool, each less: blocks in common, from both ends.
                let bytes = vec![thread + 1; usize::try_from(7 * BLOCK).unwrap()];
                for round in 0..50u64 {
                    let at = LocalOffset(if thread % 2 == 0 { round % 3 } else { 9 - round % 3 } * BLOCK);
                    store.write(object, at, &[MemoryPiece::from(&bytes[..])]).unwrap();
                    let mut back = vec![0; bytes.len()];
                    store.read(object, at, &mut back).unwrap();
                    assert!(store.cache_stats().cached_bytes <= 10 * BLOCK);
                }
            });
        }
    });
    let stats = world.stats()[0];
    assert_eq!(stats.straight, 0, "each fits alone: {stats:?}");
}

#[test]
fn errors_of_the_plain_file_name_it_and_nothing_is_lost_when_there_is_room_again() {
    for (errno, code) in [(28, Code::NoSpace), (122, Code::NoSpace), (5, Code::Io), (13, Code::Denied)] {
        let mut world = CacheFixture::new(1, 4 * BLOCK, 1, false);
        world.error.store(errno, Ordering::Relaxed);
        world.try_write(10, b"kept").unwrap();
        let fault = Fault::from(world.stores[0].flush(world.object()).unwrap_err());
        assert_eq!(fault.code, code);
        let path = world.plain.path().display().to_string();
        assert!(fault.text.contains(&path) && fault.text.contains("bytes 10..14"), "{fault}");
        // The pool fills with blocks that cannot be written back: writers get the error, and readers bypass the cache.
        let failed = (0..8).find_map(|n| world.try_write(n * BLOCK + 20, &[7; 10]).err());
        assert_eq!(failed.map(|error| Fault::from(error).code), Some(code));
        world.read(10 * BLOCK, BLOCK);
        world.error.store(0, Ordering::Relaxed);
        // The error of the background is reported once.
        let _ = world.stores[0].flush(world.object());
        world.stores[0].flush(world.object()).unwrap();
        world.check_plain();
    }
}

#[test]
fn strided_and_sequential_readers_find_their_blocks_before_they_ask() {
    for stride in [1, 3] {
        let world = CacheFixture::new(1, 1 << 20, 64, false);
        let store = &world.stores[0];
        let mut byte = [0; 10];
        for n in 0..4 {
            store.read(world.object(), LocalOffset(n * stride * BLOCK), &mut byte).unwrap();
            // The thread runs until it has nothing left to do.
            let file = store.core.file(INODE).unwrap();
            while lock(&store.core.work)
                .prefetch
                .iter()
                .any(|(_, index)| !file.has_block(&store.core, *index))
            {
                std::thread::yield_now();
            }
        }
        let ahead = |stats: CacheStats| 0 < stats.read_ahead;
        while !ahead(store.cache_stats()) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_file_that_is_not_open_is_refused_and_blocks_must_divide_stripes() {
    let world = CacheFixture::new(1, 1 << 20, 1, false);
    let other = ObjectId { inode: InodeId(9), generation: Generation(0) };
    assert!(world.stores[0].read(other, LocalOffset(0), &mut [0]).is_err());
    assert!(world.stores[0].write(other, LocalOffset(0), &[b"x".as_slice().into()]).is_err());
    let file = FailingFile { file: world.plain.reopen().unwrap(), error: Arc::default() };
    let opened =
        PlainFileOpening { path: "f".into(), file: Arc::new(file), reads: true, writes: false, locks: false };
    let place = CachePlacement {
        server: ServerIndex(0),
        layout: world.layout,
        block_bytes: 3000,
        homes: None,
        follows_writers: false,
        direct: false,
    };
    assert!(world.stores[0].open(InodeId(9), place, opened.clone(), 0).is_err());
    let place = CachePlacement { block_bytes: BLOCK, ..place };
    world.stores[0].open(InodeId(9), place, opened, 10).unwrap();
    let object = ObjectId { inode: InodeId(9), generation: Generation(0) };
    world.stores[0].write(object, LocalOffset(0), &[b"x".as_slice().into()]).unwrap();
    let fault = Fault::from(world.stores[0].flush(object).unwrap_err());
    assert_eq!(fault.code, Code::NotWritable);
}
