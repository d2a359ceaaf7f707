//! Conformance suite of [`Store`], for every store and every wrapper.
//!
//! Never: knows which store it checks. Always: a failure of the random part names its seed.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pario_core::{Generation, InodeId, LocalOffset, ObjectId};
use pario_sys::MemoryPiece;
use pario_sys::file_map::Scattered;

use crate::store::{LendAccess, Lent, Store};

mod model;
mod opened;

pub use model::random_operations;
pub use opened::{FileOwner, OpenedFiles};

/// Makes an empty store.
pub type MakeStore<'a> = &'a dyn Fn() -> Box<dyn Store>;

/// Seeds of the random part.
const SEEDS: std::ops::Range<u64> = 0..24;

/// Runs every check, each on a fresh store; panics on the first failure.
///
/// The store must have a capacity of 64 MiB.
pub fn all(make: MakeStore<'_>) {
    missing_objects_have_nothing(&*make());
    holes_are_zeros_and_length_is_exact(&*make());
    overwriting_keeps_the_rest(&*make());
    pieces_follow_one_another(&*make());
    scattered_pieces_leave_what_lies_between(&*make());
    cutting_beside_scattered_pieces(&*make());
    far_offsets(&*make());
    truncation(&*make());
    truncation_repeated(&*make());
    cut_bytes_stay_gone(&*make());
    generations_are_apart(&*make());
    removal(&*make());
    listing(&*make());
    lending(&*make());
    writers_beside_each_other(&*make());
    late_writes_never_reach_the_next_generation(&*make());
    for seed in SEEDS {
        random_operations(&*make(), seed);
    }
}

fn id(inode: u64, generation: u32) -> ObjectId {
    ObjectId { inode: InodeId(inode), generation: Generation(generation) }
}

fn write(store: &dyn Store, object: ObjectId, at: u64, bytes: &[u8]) {
    store.write(object, LocalOffset(at), &[MemoryPiece::from(bytes)]).expect("writing");
}

/// All bytes of an object.
fn contents(store: &dyn Store, object: ObjectId) -> Option<Vec<u8>> {
    let bytes = store.length(object).expect("length")?;
    let mut target = vec![0xEE; usize::try_from(bytes).expect("small") + 10];
    let read = store.read(object, LocalOffset(0), &mut target).expect("reading");
    assert_eq!(read as u64, bytes, "reading ends where the object does");
    target.truncate(read);
    Some(target)
}

fn missing_objects_have_nothing(store: &dyn Store) {
    let object = id(7, 0);
    assert_eq!(store.length(object).expect("length"), None);
    assert_eq!(store.read(object, LocalOffset(0), &mut [0; 10]).expect("reading"), 0);
    store.remove(object).expect("removing a missing object");
    store.flush(object).expect("flushing a missing object");
    store.sync(object).expect("syncing a missing object");
    store.truncate(object.inode, Generation(0), Generation(1), 5).expect("truncating a missing object");
    assert_eq!(store.list(None, 10).expect("list"), []);
    store.sync_all().expect("syncing an empty store");
    let space = store.space().expect("space");
    assert!(space.free_bytes <= space.total_bytes && 0 < space.free_bytes, "{space:?}");
}

fn holes_are_zeros_and_length_is_exact(store: &dyn Store) {
    let object = id(1, 0);
    write(store, object, 5000, b"abc");
    assert_eq!(store.length(object).expect("length"), Some(5003));
    let mut target = [0xEE; 5010];
    assert_eq!(store.read(object, LocalOffset(0), &mut target).expect("reading"), 5003);
    assert!(target[..5000].iter().all(|&byte| byte == 0));
    assert_eq!(&target[5000..5003], b"abc");
    assert_eq!(store.read(object, LocalOffset(5002), &mut target).expect("reading"), 1);
    assert_eq!(store.read(object, LocalOffset(5003), &mut target).expect("reading"), 0);
    assert_eq!(store.read(object, LocalOffset(1 << 40), &mut target).expect("reading"), 0);
    store.sync(object).expect("sync");
    assert_eq!(store.length(object).expect("length"), Some(5003));
    write(store, object, 5003, b"d");
    store.flush(object).expect("flush");
    assert_eq!(store.length(object).expect("length"), Some(5004));
    store.write(id(2, 0), LocalOffset(100), &[]).expect("an empty write");
    assert!(store.length(id(2, 0)).expect("length").unwrap_or(0) == 0, "an empty write sets no length");
}

fn overwriting_keeps_the_rest(store: &dyn Store) {
    let object = id(1, 0);
    let mut expected: Vec<u8> = (0..20_000u32).map(|i| i.to_le_bytes()[0]).collect();
    write(store, object, 0, &expected);
    store.sync(object).expect("sync");
    for (at, bytes) in [(4095, 2), (0, 1), (8191, 4098), (19_999, 1), (777, 3)] {
        let patch = vec![0xA5; bytes];
        write(store, object, at as u64, &patch);
        expected[at..at + bytes].copy_from_slice(&patch);
    }
    assert_eq!(contents(store, object), Some(expected.clone()));
    store.sync(object).expect("sync");
    assert_eq!(contents(store, object), Some(expected));
}

fn pieces_follow_one_another(store: &dyn Store) {
    let object = id(1, 0);
    let source: Vec<u8> = (0..6000u32).map(|i| i.to_le_bytes()[0] ^ 0x5A).collect();
    let pieces: Vec<MemoryPiece<'_>> = source.chunks(3).map(MemoryPiece::from).collect();
    store.write(object, LocalOffset(11), &pieces).expect("writing many pieces");
    let found = contents(store, object).expect("there");
    assert_eq!(&found[..11], [0; 11]);
    assert_eq!(&found[11..], &source[..]);
    let empty = MemoryPiece::from(&b""[..]);
    store.write(object, LocalOffset(0), &[empty, MemoryPiece::from(&b"x"[..]), empty]).expect("empty pieces");
    assert_eq!(contents(store, object).expect("there")[0], b'x');
}

fn scattered_pieces_leave_what_lies_between(store: &dyn Store) {
    let object = id(1, 0);
    write(store, object, 0, &[9; 6000]);
    let data: Vec<u8> = (0..=255).collect();
    // Close together, then far apart, then beyond the end.
    let close = (0..2000).map(|n| (100 + n * 7, 3));
    let far = (0..20).map(|n| (20_000 + n * 5000, 10));
    let places: Vec<(u64, usize)> = close.chain(far).collect();
    let pieces: Vec<Scattered<'_>> =
        places.iter().map(|(at, bytes)| Scattered { at: *at, bytes: &data[..*bytes] }).collect();
    store.write_scattered(object, &pieces[..2000]).expect("scattering");
    store.write_scattered(object, &pieces[2000..]).expect("scattering");
    store.write_scattered(object, &[]).expect("an empty scattered write");
    let end = places.last().map_or(0, |(at, bytes)| usize::try_from(*at).expect("small") + bytes);
    let mut expected = vec![0; end];
    expected[..6000].fill(9);
    for (at, bytes) in places {
        let at = usize::try_from(at).expect("small");
        expected[at..at + bytes].copy_from_slice(&data[..bytes]);
    }
    assert!(contents(store, object) == Some(expected), "scattered pieces at wrong offsets");
    let other = id(2, 0);
    store.write_scattered(other, &pieces[..100]).expect("scattering");
    assert_eq!(store.length(other).expect("length"), Some(100 + 99 * 7 + 3));
}

/// Stores may write through a mapping, and a write through a mapping beyond the object's end kills the process.
fn cutting_beside_scattered_pieces(store: &dyn Store) {
    let object = id(1, 1);
    let pieces: Vec<Scattered<'_>> =
        (0..20_000).map(|number| Scattered { at: number * 16, bytes: b"abcd" }).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                store.truncate(object.inode, Generation(1), Generation(1), 0).expect("cutting");
                store.truncate(object.inode, Generation(0), Generation(1), 0).expect("cutting");
            }
        });
        for _ in 0..30 {
            store.write_scattered(object, &pieces).expect("scattering");
        }
        is_over.store(true, Ordering::Release);
    });
    store.write_scattered(object, &pieces).expect("scattering");
    let found = contents(store, object).expect("there");
    assert_eq!(found.len(), 19_999 * 16 + 4);
    assert!(found.chunks(16).all(|piece| piece[..4] == *b"abcd"));
}

fn far_offsets(store: &dyn Store) {
    let object = id(1, 0);
    let far = (5 << 30) + 3;
    write(store, object, far, b"far");
    write(store, object, (1 << 32) - 1, b"edge");
    assert_eq!(store.length(object).expect("length"), Some(far + 3));
    store.sync(object).expect("sync");
    let mut target = [0; 6];
    assert_eq!(store.read(object, LocalOffset(far - 3), &mut target).expect("reading"), 6);
    assert_eq!(&target, b"\0\0\0far");
    assert_eq!(store.read(object, LocalOffset((1 << 32) - 2), &mut target).expect("reading"), 6);
    assert_eq!(&target, b"\0edge\0");
}

fn truncation(store: &dyn Store) {
    write(store, id(1, 0), 0, b"0123456789");
    store.truncate(InodeId(1), Generation(0), Generation(1), 4).expect("cutting");
    assert_eq!(contents(store, id(1, 1)).as_deref(), Some(&b"0123"[..]));
    assert_eq!(store.length(id(1, 0)).expect("length"), None);
    assert_eq!(store.read(id(1, 0), LocalOffset(0), &mut [0; 4]).expect("reading"), 0);
    store.truncate(InodeId(1), Generation(1), Generation(2), 100).expect("truncating beyond the end");
    assert_eq!(contents(store, id(1, 2)).as_deref(), Some(&b"0123"[..]));
    store.truncate(InodeId(1), Generation(2), Generation(2), 2).expect("truncating in the same generation");
    assert_eq!(contents(store, id(1, 2)).as_deref(), Some(&b"01"[..]));
    store.truncate(InodeId(1), Generation(2), Generation(9), 0).expect("truncating to 0 bytes");
    assert_eq!(contents(store, id(1, 9)).as_deref(), Some(&b""[..]));
    assert_eq!(store.list(None, 10).expect("list"), [(id(1, 9), 0)]);
}

fn truncation_repeated(store: &dyn Store) {
    write(store, id(1, 0), 0, b"0123456789");
    for _ in 0..2 {
        store.truncate(InodeId(1), Generation(0), Generation(1), 6).expect("cutting");
        assert_eq!(contents(store, id(1, 1)).as_deref(), Some(&b"012345"[..]));
    }
    // A late write of the old generation makes it again; a repeated truncation removes it and does not bring it into the new generation.
    write(store, id(1, 0), 0, b"late");
    store.truncate(InodeId(1), Generation(0), Generation(1), 5).expect("cutting");
    assert_eq!(contents(store, id(1, 1)).as_deref(), Some(&b"01234"[..]));
    assert_eq!(store.length(id(1, 0)).expect("length"), None);
}

fn cut_bytes_stay_gone(store: &dyn Store) {
    for (round, bytes) in [(0u32, 3u64), (1, 4096), (2, 5000), (3, 0)] {
        let (from, to) = (id(u64::from(round), 0), id(u64::from(round), 1));
        write(store, from, 0, &[7; 9000]);
        if round % 2 == 0 {
            store.sync(from).expect("sync");
        }
        store.truncate(from.inode, from.generation, to.generation, bytes).expect("cutting");
        write(store, to, 12_000, b"x");
        let found = contents(store, to).expect("there");
        let kept = usize::try_from(bytes).expect("small");
        assert!(found[..kept].iter().all(|&byte| byte == 7), "kept bytes, {bytes}");
        assert!(found[kept..12_000].iter().all(|&byte| byte == 0), "truncated bytes are zeros, {bytes}");
    }
}

fn generations_are_apart(store: &dyn Store) {
    write(store, id(1, 0), 0, b"old");
    write(store, id(1, 1), 1, b"new");
    write(store, id(2, 0), 0, b"other");
    assert_eq!(contents(store, id(1, 0)).as_deref(), Some(&b"old"[..]));
    assert_eq!(contents(store, id(1, 1)).as_deref(), Some(&b"\0new"[..]));
    store.remove(id(1, 0)).expect("removing");
    assert_eq!(contents(store, id(1, 1)).as_deref(), Some(&b"\0new"[..]));
    assert_eq!(contents(store, id(2, 0)).as_deref(), Some(&b"other"[..]));
}

fn removal(store: &dyn Store) {
    write(store, id(1, 0), 0, b"some bytes");
    store.remove(id(1, 0)).expect("removing");
    assert_eq!(store.length(id(1, 0)).expect("length"), None);
    assert_eq!(store.read(id(1, 0), LocalOffset(0), &mut [0; 9]).expect("reading"), 0);
    write(store, id(1, 0), 3, b"x");
    assert_eq!(contents(store, id(1, 0)).as_deref(), Some(&b"\0\0\0x"[..]));
    store.remove(id(1, 0)).expect("removing");
    store.remove(id(1, 0)).expect("removing again");
    assert_eq!(store.list(None, 10).expect("list"), []);
}

fn listing(store: &dyn Store) {
    let mut expected: Vec<(ObjectId, u64)> = Vec::new();
    for inode in [1u64, 2, 255, 256, 257, 511, 0x1_0000_0000, u64::MAX, 300, 44] {
        for generation in [0, 1] {
            write(store, id(inode, generation), inode % 50, b"x");
            expected.push((id(inode, generation), inode % 50 + 1));
        }
    }
    expected.sort_unstable();
    for limit in [1, 3, 20, 1000] {
        let mut found = Vec::new();
        loop {
            let page = store.list(found.last().map(|(object, _)| *object), limit).expect("list");
            assert!(page.len() <= limit);
            let last = page.len() < limit;
            found.extend(page);
            if last {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {limit}");
    }
    // An abandoned listing does not affect the next one, and objects made or removed meanwhile do not duplicate others.
    let first = store.list(None, 2).expect("list");
    store.remove(first[0].0).expect("removing");
    let again = store.list(None, 1000).expect("list");
    assert_eq!(again, expected[1..]);
    let half = store.list(Some(id(256, 0)), 1000).expect("list");
    let rest: Vec<_> = expected.iter().copied().filter(|(object, _)| id(256, 0) < *object).collect();
    assert_eq!(half, rest);
}

fn lending(store: &dyn Store) {
    let object = id(1, 0);
    match store.lend(object, LendAccess::Read).expect("lending") {
        Lent::NotLent => {
            assert!(matches!(store.lend(object, LendAccess::Write).expect("lending"), Lent::NotLent));
            return;
        }
        Lent::NoObject => {}
        Lent::Descriptor(_) | Lent::Summed { .. } => panic!("lent a missing object"),
    }
    let writer = match store.lend(object, LendAccess::Write).expect("lending") {
        Lent::Descriptor(writer) => writer,
        Lent::Summed { .. } => return lending_with_checksums(store, object),
        Lent::NoObject | Lent::NotLent => panic!("a store that lends lends for writing"),
    };
    assert_eq!(store.length(object).expect("length"), Some(0), "asking to write makes the object");
    pario_sys::write_pieces_at(writer.as_fd(), &[MemoryPiece::from(&b"through the loan"[..])], 0)
        .expect("writing");
    assert_eq!(contents(store, object).as_deref(), Some(&b"through the loan"[..]));
    let Lent::Descriptor(reader) = store.lend(object, LendAccess::Read).expect("lending") else {
        panic!("it is there now")
    };
    write(store, object, 0, b"THROUGH");
    let mut target = [0; 7];
    pario_sys::read_exact_or_end_at(reader.as_fd(), &mut target, 0).expect("reading");
    assert_eq!(&target, b"THROUGH");
    pario_sys::write_pieces_at(reader.as_fd(), &[MemoryPiece::from(&b"no"[..])], 0)
        .expect_err("lent for reading only");
}

/// A loan with checksums includes their table.
fn lending_with_checksums(store: &dyn Store, object: ObjectId) {
    write(store, object, 0, b"through the loan");
    let Lent::Summed { descriptor, sums } = store.lend(object, LendAccess::Read).expect("lending") else {
        panic!("a store that keeps checksums lends them")
    };
    write(store, object, 0, b"THROUGH");
    let mut target = [0; 7];
    pario_sys::read_exact_or_end_at(descriptor.as_fd(), &mut target, 0).expect("reading");
    assert_eq!(&target, b"THROUGH");
    for lent in [descriptor, sums] {
        pario_sys::write_pieces_at(lent.as_fd(), &[MemoryPiece::from(&b"no"[..])], 0)
            .expect_err("lent for reading only");
    }
}

fn writers_beside_each_other(store: &dyn Store) {
    const WRITERS: usize = 4;
    const RUN: usize = 1237;
    const ROUNDS: usize = 200;
    let object = id(1, 0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let value = u8::try_from(writer + 1).expect("few");
                for round in 0..ROUNDS {
                    let at = (round * WRITERS + writer) * RUN;
                    write(store, object, at as u64, &[value; RUN]);
                    let mut back = [0; RUN];
                    store.read(object, LocalOffset(at as u64), &mut back).expect("reading");
                    assert_eq!(back, [value; RUN], "a writer reads what it wrote");
                }
            });
        }
    });
    let found = contents(store, object).expect("there");
    assert_eq!(found.len(), WRITERS * RUN * ROUNDS);
    for (at, byte) in found.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / RUN % WRITERS + 1, "byte {at}");
    }
}

fn late_writes_never_reach_the_next_generation(store: &dyn Store) {
    const ROUNDS: u32 = 200;
    // More pieces than one system call accepts, so that a truncation can happen between two parts of a write.
    let source = [1; 30_000];
    let pieces: Vec<MemoryPiece<'_>> = source.chunks(4).map(MemoryPiece::from).collect();
    let (current, written, done) = (AtomicU32::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let object = id(1, current.load(Ordering::Acquire));
                store.write(object, LocalOffset(0), &pieces).expect("writing");
                written.fetch_add(1, Ordering::AcqRel);
            }
        });
        let mut lengths = Vec::new();
        for generation in 0..ROUNDS {
            write(store, id(1, generation), 0, b"x");
            store
                .truncate(InodeId(1), Generation(generation), Generation(generation + 1), 0)
                .expect("cutting");
            // Wait until the write that ran beside the truncation has ended.
            let before = written.load(Ordering::Acquire);
            while written.load(Ordering::Acquire) < before + 2 && !writer.is_finished() {
                std::thread::yield_now();
            }
            lengths.push(store.length(id(1, generation + 1)).expect("length"));
            current.store(generation + 1, Ordering::Release);
        }
        done.store(true, Ordering::Release);
        // The writer did not know the new generation, so the object must have been empty.
        assert_eq!(lengths, vec![Some(0); lengths.len()]);
    });
}
