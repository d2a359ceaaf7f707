//! Outboxes that lie about length, type or contents: the server ends that connection and nothing else.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use common::{Chance, Honest, World, is_ended, layout, object, offer, patient};
use pario_core::limits::{OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN};
use pario_core::{Code, Fault, ServerIndex};
use pario_net::connection::Connection;
use pario_net::message::Request;
use pario_net::outbox::{Cursor, OUTBOX_HEAD_BYTES, Outbox, RECORD_HEAD_BYTES, RecordMeta};
use pario_sys::shared::{Access, AttachLimit, Shared};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

const HONEST_INODE: u64 = 1 << 40;
const CAPACITY_AT: usize = 8;
const TAIL_AT: usize = 64;
/// Who wants room, who is in a call of its group, who waits there.
const WAITS_AT: [usize; 3] = [136, 144, 152];

/// A client with an outbox whose every byte it can change.
struct Liar {
    connection: Connection,
    outbox: Outbox,
    bytes: Shared,
}

impl Liar {
    fn new(world: &World) -> Liar {
        let outbox = Outbox::create(256 << 10, 1).unwrap();
        let limit = AttachLimit { bytes_min: 0, bytes_max: usize::MAX };
        let descriptor = outbox.descriptor().try_clone().unwrap();
        let bytes = Shared::attach(descriptor, Access::ReadWrite, limit).unwrap();
        Liar { connection: world.connect(), outbox, bytes }
    }

    fn write(&self, offset: u64, bytes: usize) -> u64 {
        let meta =
            RecordMeta { object: object(77), layout: layout(), view: 0, moved: 0, offset, companions: 0 };
        self.outbox.commit(meta, &vec![1; bytes], &patient).unwrap()
    }

    fn set_tail(&self, tail: u64) {
        self.bytes.store_u64(TAIL_AT, tail, Ordering::Release);
    }
}

/// Commits a record behind `wanted`, spoilt before the server can see it.
fn spoil_record(liar: &Liar, cursor: &Cursor, at: usize, spoilt: &[u8]) {
    // The tail goes back while the record is spoilt: whether the server has already seen the good one does not matter.
    let start = liar.outbox.tail();
    let place = OUTBOX_HEAD_BYTES + usize::try_from(start).unwrap();
    let mut head = [0; RECORD_HEAD_BYTES];
    liar.write(0, 100);
    liar.bytes.read(place, &mut head);
    // Let it be taken, then put the same record behind it, spoilt.
    liar.outbox.wait_taken(ServerIndex(0), liar.outbox.tail(), &patient).unwrap();
    let next = liar.outbox.tail();
    let place = OUTBOX_HEAD_BYTES + usize::try_from(next).unwrap();
    head[0..8].copy_from_slice(&next.to_le_bytes());
    head[at..at + spoilt.len()].copy_from_slice(spoilt);
    liar.bytes.write(place, &head);
    liar.set_tail(next + 192);
    cursor.wake();
}

#[test]
fn a_spoilt_record_ends_its_connection_only() {
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let max32 = u32::MAX.to_le_bytes().to_vec();
    let cases: [(&str, usize, Vec<u8>); 11] = [
        ("another position", 0, vec![1]),
        ("a position of another round", 0, (1u64 << 40).to_le_bytes().to_vec()),
        ("an unknown kind", 8, vec![9]),
        ("a length beyond everything", 12, max32.clone()),
        ("a length beyond the tail", 12, 4000u32.to_le_bytes().to_vec()),
        ("an unknown view", 28, vec![1]),
        ("an offset beyond every file", 32, u64::MAX.to_le_bytes().to_vec()),
        ("a stripe of nothing", 40, vec![0; 4]),
        ("a stripe of odd size", 40, vec![1, 1]),
        ("no servers", 44, vec![0; 2]),
        ("a commit in the future", 56, (u64::MAX >> 1).to_le_bytes().to_vec()),
    ];
    for (name, at, spoilt) in cases {
        let liar = Liar::new(&world);
        let cursor = offer(&liar.connection, &liar.outbox).unwrap();
        spoil_record(&liar, &cursor, at, &spoilt);
        assert!(is_ended(&liar.connection), "{name}");
        honest.check();
    }
}

#[test]
fn an_impossible_tail_ends_its_connection_only() {
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    for tail in [1, 63, 65, (256 << 10) + 64, u64::MAX, u64::MAX - 63, 1 << 63] {
        let liar = Liar::new(&world);
        let cursor = offer(&liar.connection, &liar.outbox).unwrap();
        liar.set_tail(tail);
        cursor.wake();
        assert!(is_ended(&liar.connection), "tail {tail}");
        honest.check();
    }
    // A tail that goes back behind what was taken.
    let liar = Liar::new(&world);
    let cursor = offer(&liar.connection, &liar.outbox).unwrap();
    let end = liar.write(0, 1000);
    liar.outbox.wait_taken(ServerIndex(0), end, &patient).unwrap();
    liar.set_tail(0);
    cursor.wake();
    assert!(is_ended(&liar.connection));
    honest.check();
}

/// What the server loaded once is not loaded again: a capacity that changes later is nobody's business.
#[test]
fn a_capacity_that_changes_later_changes_nothing() {
    let world = World::new();
    let liar = Liar::new(&world);
    offer(&liar.connection, &liar.outbox).unwrap();
    for capacity in [0u64, 1, u64::MAX, 4096] {
        liar.bytes.store_u64(CAPACITY_AT, capacity, Ordering::Release);
        let end = liar.write(0, 60_000);
        liar.outbox.wait_taken(ServerIndex(0), end, &patient).unwrap();
    }
    Honest::new(&world, HONEST_INODE).check();
}

/// Words that only say who waits for what may say anything.
#[test]
fn whoever_lies_about_who_waits_is_served_like_others() {
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let liar = Liar::new(&world);
    offer(&liar.connection, &liar.outbox).unwrap();
    for words in [[1, 1, 1], [u64::MAX; 3], [0, u64::MAX, 1], [u64::MAX, 0, u64::MAX]] {
        for (at, word) in WAITS_AT.into_iter().zip(words) {
            liar.bytes.store_u64(at, word, Ordering::Release);
        }
        let end = liar.write(0, 60_000);
        liar.outbox.wait_taken(ServerIndex(0), end, &patient).unwrap();
        honest.check();
    }
}

fn offer_descriptor(connection: &Connection, from: u64, descriptor: &OwnedFd) -> Fault {
    let ticket = connection.start(&Request::OfferOutbox { from }, &[], &[descriptor.as_fd()]).unwrap();
    connection.wait(ticket, None).unwrap_err()
}

fn memfd(bytes: usize, seals: SealFlags) -> OwnedFd {
    let descriptor =
        rustix::fs::memfd_create("liar", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&descriptor, bytes as u64).unwrap();
    rustix::fs::fallocate(&descriptor, FallocateFlags::empty(), 0, 8192).unwrap();
    rustix::io::pwrite(&descriptor, b"PAROUT01", 0).unwrap();
    rustix::io::pwrite(&descriptor, &((bytes - OUTBOX_HEAD_BYTES) as u64).to_le_bytes(), 8).unwrap();
    rustix::fs::fcntl_add_seals(&descriptor, seals).unwrap();
    descriptor
}

#[test]
fn segments_that_could_change_or_have_another_form_are_refused() {
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let good = OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MIN;
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let odd_capacity = memfd(good, SealFlags::empty());
    rustix::io::pwrite(&odd_capacity, &1u64.to_le_bytes(), 8).unwrap();
    rustix::fs::fcntl_add_seals(&odd_capacity, all).unwrap();
    let other_magic = memfd(good, SealFlags::empty());
    rustix::io::pwrite(&other_magic, b"PAROUT99", 0).unwrap();
    rustix::fs::fcntl_add_seals(&other_magic, all).unwrap();
    let cases: Vec<(&str, OwnedFd)> = vec![
        ("not sealed", memfd(good, SealFlags::empty())),
        ("could shrink", memfd(good, SealFlags::GROW | SealFlags::SEAL)),
        ("could grow", memfd(good, SealFlags::SHRINK | SealFlags::SEAL)),
        ("could be unsealed", memfd(good, SealFlags::SHRINK | SealFlags::GROW)),
        ("truncated", memfd(OUTBOX_HEAD_BYTES + 64, all)),
        ("too long", memfd(OUTBOX_HEAD_BYTES + OUTBOX_BYTES_MAX + 4096, all)),
        ("another capacity", odd_capacity),
        ("another magic", other_magic),
        ("a file", tempfile::tempfile().unwrap().into()),
        ("a pipe", std::io::pipe().unwrap().0.into()),
    ];
    for (name, descriptor) in cases {
        let connection = world.connect();
        let fault = offer_descriptor(&connection, 0, &descriptor);
        assert_eq!(fault.code, Code::Protocol, "{name}: {fault}");
        honest.check();
    }
}

#[test]
fn offers_from_an_impossible_position_or_without_a_segment_are_refused() {
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    for from in [1, 63, 64, 1 << 20, u64::MAX] {
        let liar = Liar::new(&world);
        let fault = offer_descriptor(&liar.connection, from, liar.outbox.descriptor());
        assert_eq!(fault.code, Code::Protocol, "from {from}: {fault}");
        honest.check();
    }
    // With records behind it, an odd position would be looked at.
    for from in [1, 63, 65] {
        let liar = Liar::new(&world);
        liar.set_tail(64 << 10);
        let fault = offer_descriptor(&liar.connection, from, liar.outbox.descriptor());
        assert_eq!(fault.code, Code::Protocol, "from {from}: {fault}");
        honest.check();
    }
    let connection = world.connect();
    let fault = connection.call(&Request::OfferOutbox { from: 0 }).unwrap_err();
    assert_eq!(fault.code, Code::Protocol, "{fault}");
    honest.check();
}

/// Offers again and again: each replaces the one before.
#[test]
fn an_outbox_offered_many_times_counts_once() {
    let world = World::new();
    let liar = Liar::new(&world);
    for _ in 0..50 {
        let descriptor = liar.outbox.descriptor().as_fd();
        let ticket = liar.connection.start(&Request::OfferOutbox { from: 0 }, &[], &[descriptor]).unwrap();
        liar.connection.wait(ticket, None).unwrap();
    }
    offer(&liar.connection, &liar.outbox).unwrap();
    let end = liar.write(0, 60_000);
    liar.outbox.wait_taken(ServerIndex(0), end, &patient).unwrap();
    Honest::new(&world, HONEST_INODE).check();
}

/// A dead liar's rest must neither keep the server busy for ever nor keep it from ending.
#[test]
fn a_server_ends_in_order_whatever_liars_left() {
    let world = World::new();
    for (at, spoilt) in [(56, u64::MAX >> 1), (0, 1), (12, u64::from(u32::MAX))] {
        let liar = Liar::new(&world);
        let cursor = offer(&liar.connection, &liar.outbox).unwrap();
        spoil_record(&liar, &cursor, at, &spoilt.to_le_bytes());
        liar.connection.close();
    }
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(world);
        let _ = done.send(());
    });
    over.recv_timeout(common::LIMIT).expect("the server ends");
}

/// Any bytes changed anywhere in head page and records.
#[test]
fn random_damage_never_reaches_others() {
    let seed = std::env::var("PARIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("PARIO_SEED={seed}");
    let mut chance = Chance(seed);
    let world = World::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let mut ended = 0;
    for round in 0..300 {
        let liar = Liar::new(&world);
        let early = chance.index(2) == 0;
        let cursor = if early { None } else { Some(offer(&liar.connection, &liar.outbox).unwrap()) };
        for _ in 0..chance.index(6) {
            liar_writes(&liar, &mut chance, !early);
        }
        for _ in 0..=chance.index(6) {
            damage(&liar, &mut chance);
        }
        match cursor {
            Some(cursor) => cursor.wake(),
            None => drop(offer_from(&liar, 0)),
        }
        // Some lies are found, some change only what the liar's own file holds.
        ended += u32::from(liar.connection.call(&Request::Ping {}).is_err());
        if round % 10 == 0 {
            honest.check();
        }
    }
    honest.check();
    assert!(0 < ended, "some damage is noticed at once");
}

fn liar_writes(liar: &Liar, chance: &mut Chance, attached: bool) {
    let (offset, bytes) = (chance.next() >> 20, 1 + chance.index(5000));
    if attached {
        liar.write(offset, bytes);
        return;
    }
    // Before it is offered nobody takes from it, and the outbox refuses; write the record by hand.
    let tail = liar.bytes.load_u64(TAIL_AT, Ordering::Relaxed);
    let head = pario_net::outbox::RecordHead {
        position: tail,
        kind: pario_net::outbox::RecordKind::Data,
        companions: 0,
        data_bytes: u32::try_from(bytes).unwrap(),
        object: object(78),
        view: 0,
        moved: 0,
        offset,
        layout: layout(),
        concerned: pario_net::outbox::Concerned::ALL,
        committed: pario_core::Nanos(1),
    };
    let span = head.span();
    liar.bytes.write(OUTBOX_HEAD_BYTES + usize::try_from(tail).unwrap(), &head.encode());
    liar.set_tail(tail + span);
}

fn damage(liar: &Liar, chance: &mut Chance) {
    let used = OUTBOX_HEAD_BYTES + 4096;
    let (at, bytes) = match chance.index(4) {
        0 => (TAIL_AT + chance.index(8), 1),
        1 => (OUTBOX_HEAD_BYTES + chance.index(RECORD_HEAD_BYTES), 1),
        2 => (chance.index(used / 8) * 8, 8),
        _ => (chance.index(used), 1),
    };
    let noise = chance.next().to_le_bytes();
    liar.bytes.write(at, &noise[..bytes]);
}

fn offer_from(liar: &Liar, from: u64) -> Result<(), Fault> {
    let descriptor = liar.outbox.descriptor().as_fd();
    let ticket = liar.connection.start(&Request::OfferOutbox { from }, &[], &[descriptor])?;
    liar.connection.wait(ticket, None).map(drop)
}
