//! Outboxes with a wrong length, type or contents: the server ends that connection and nothing else.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use common::{Honest, ServerFixture, is_ended, layout, object, offer, within_limit};
use pario_core::limits::{FILE_BYTES_MAX, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN};
use pario_core::{Code, Fault, InodeId, LocalOffset, SeededRandom, ServerIndex};
use pario_net::connection::Connection;
use pario_net::message::{Reply, Request};
use pario_net::outbox::{Concern, Cursor, OUTBOX_HEAD_BYTES, Outbox, RECORD_HEAD_BYTES, RecordMeta};
use pario_sys::shared::{AttachLimit, MapAccess, SharedMemory};
use pario_view::{Datatype, View};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

const HONEST_INODE: u64 = 1 << 40;
const CAPACITY_AT: usize = 8;
const TAIL_AT: usize = 64;
/// Offsets of the words that a writer sets while it waits for space, is in a collective call, or waits there.
const WAITS_AT: [usize; 3] = [136, 144, 152];

/// A client with an outbox in which it can change every byte.
struct RogueClient {
    connection: Connection,
    outbox: Outbox,
    bytes: SharedMemory,
}

impl RogueClient {
    fn new(world: &ServerFixture) -> RogueClient {
        let outbox = Outbox::create(256 << 10, 1).unwrap();
        let limit = AttachLimit { bytes_min: 0, bytes_max: usize::MAX };
        let descriptor = outbox.descriptor().try_clone().unwrap();
        let bytes = SharedMemory::attach(descriptor, MapAccess::ReadWrite, limit).unwrap();
        RogueClient { connection: world.connect(), outbox, bytes }
    }

    fn write(&self, offset: u64, bytes: usize) -> u64 {
        let meta = RecordMeta {
            object: object(77),
            layout: layout(),
            view: 0,
            displacement: 0,
            offset,
            local_writers: 0,
        };
        self.outbox.commit(meta, &vec![1; bytes], &within_limit).unwrap()
    }

    fn set_tail(&self, tail: u64) {
        self.bytes.store_u64(TAIL_AT, tail, Ordering::Release);
    }
}

/// Commits a record behind `wanted`, corrupted before the server can see it.
fn spoil_record(liar: &RogueClient, cursor: &Cursor, at: usize, spoilt: &[u8]) {
    // The tail moves back while the record is corrupted: whether the server has already seen the valid one does not matter.
    let start = liar.outbox.tail();
    let place = OUTBOX_HEAD_BYTES + usize::try_from(start).unwrap();
    let mut head = [0; RECORD_HEAD_BYTES];
    liar.write(0, 100);
    liar.bytes.read(place, &mut head);
    // Let it be drained, then commit the same record after it, corrupted.
    liar.outbox.wait_drained(ServerIndex(0), liar.outbox.tail(), &within_limit).unwrap();
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
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let max32 = u32::MAX.to_le_bytes().to_vec();
    let cases: [(&str, usize, Vec<u8>); 10] = [
        ("another position", 0, vec![1]),
        ("a position of another round", 0, (1u64 << 40).to_le_bytes().to_vec()),
        ("an unknown kind", 8, vec![9]),
        ("a length beyond everything", 12, max32.clone()),
        ("a length beyond the tail", 12, 4000u32.to_le_bytes().to_vec()),
        ("an offset beyond every file", 32, u64::MAX.to_le_bytes().to_vec()),
        ("a stripe of nothing", 40, vec![0; 4]),
        ("a stripe of odd size", 40, vec![1, 1]),
        ("no servers", 44, vec![0; 2]),
        ("a commit in the future", 56, (u64::MAX >> 1).to_le_bytes().to_vec()),
    ];
    for (name, at, spoilt) in cases {
        let liar = RogueClient::new(&world);
        let cursor = offer(&liar.connection, &liar.outbox).unwrap();
        spoil_record(&liar, &cursor, at, &spoilt);
        assert!(is_ended(&liar.connection), "{name}");
        honest.check();
    }
}

/// The outbox is valid, only a record's view is not: the client gets the reason, and all other records are drained.
#[test]
fn a_record_that_is_refused_costs_no_other_and_its_client_hears_why() {
    let world = ServerFixture::new();
    let client = RogueClient::new(&world);
    let cursor = offer(&client.connection, &client.outbox).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let define = |number: u32, filetype: &Datatype| {
        let view = View::new(0, &byte, filetype, pario_view::ViewAccess::Write).unwrap();
        let request = Request::DefineView { view: number };
        let ticket = client.connection.start(&request, &[&view.encode().unwrap()], &[]).unwrap();
        client.connection.wait(ticket, None).unwrap();
    };
    let woven = Datatype::hindexed(&[1, 1], &[0, 3], &byte).unwrap().resized(0, 2).unwrap();
    define(1, &woven);
    let endless = Datatype::contiguous(i64::MAX / 2, &byte).unwrap().resized(0, i64::MAX / 2 + 9).unwrap();
    define(2, &endless);
    let commit = |inode: u64, (view, offset): (u32, u64), value: u8| {
        let meta = RecordMeta {
            object: object(inode),
            layout: layout(),
            view,
            displacement: 0,
            offset,
            local_writers: 0,
        };
        let all = &[Concern { server: ServerIndex(0), bytes: 100 }];
        let fill = &mut |write: &mut dyn FnMut(usize, &[u8])| write(0, &[value; 100]);
        client.outbox.commit_stream(meta, all, (100, fill), &within_limit).unwrap()
    };
    let refused = [(80, (1, 0)), (81, (9, 0)), (82, (2, FILE_BYTES_MAX - 100))];
    let mut end = 0;
    for (number, (inode, place)) in refused.into_iter().enumerate() {
        commit(77, (0, 200 * number as u64), 5);
        commit(inode, place, 6);
        end = commit(77, (0, 200 * number as u64 + 100), 7);
    }
    client.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
    assert_eq!(cursor.errors(), 3);
    let read = Request::Read { object: object(77), at: LocalOffset(0), bytes: 600 };
    let found = client.connection.call(&read).unwrap().data;
    let expected: Vec<u8> = (0..600).map(|at| if at / 100 % 2 == 0 { 5 } else { 7 }).collect();
    assert_eq!(found, expected, "records before and behind are taken");
    let words = ["not monotonic", "never defined", "beyond its view"];
    for ((inode, _), words) in refused.into_iter().zip(words) {
        let faults = client.connection.call(&Request::CollectErrors { inode: InodeId(inode) }).unwrap().reply;
        let Reply::Errors { faults } = faults else { panic!("{faults:?}") };
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.text.contains("server 0 refused a record of 100 bytes"), "{fault}");
        assert!(fault.text.contains(words), "{fault}");
    }
    // Reported once, even if the outbox is read again; and draining continues.
    let end = commit(77, (0, 0), 8);
    client.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
    assert_eq!(cursor.errors(), 3);
    client.connection.call(&Request::Ping {}).unwrap();
    Honest::new(&world, HONEST_INODE).check();
}

#[test]
fn an_impossible_tail_ends_its_connection_only() {
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    for tail in [1, 63, 65, (256 << 10) + 64, u64::MAX, u64::MAX - 63, 1 << 63] {
        let liar = RogueClient::new(&world);
        let cursor = offer(&liar.connection, &liar.outbox).unwrap();
        liar.set_tail(tail);
        cursor.wake();
        assert!(is_ended(&liar.connection), "tail {tail}");
        honest.check();
    }
    // A tail before the drained position.
    let liar = RogueClient::new(&world);
    let cursor = offer(&liar.connection, &liar.outbox).unwrap();
    let end = liar.write(0, 1000);
    liar.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
    liar.set_tail(0);
    cursor.wake();
    assert!(is_ended(&liar.connection));
    honest.check();
}

/// The server loads the capacity once: a later change has no effect.
#[test]
fn a_capacity_that_changes_later_changes_nothing() {
    let world = ServerFixture::new();
    let liar = RogueClient::new(&world);
    offer(&liar.connection, &liar.outbox).unwrap();
    for capacity in [0u64, 1, u64::MAX, 4096] {
        liar.bytes.store_u64(CAPACITY_AT, capacity, Ordering::Release);
        let end = liar.write(0, 60_000);
        liar.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
    }
    Honest::new(&world, HONEST_INODE).check();
}

/// The words that only announce waits may have any value.
#[test]
fn whoever_lies_about_who_waits_is_served_like_others() {
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let liar = RogueClient::new(&world);
    offer(&liar.connection, &liar.outbox).unwrap();
    for words in [[1, 1, 1], [u64::MAX; 3], [0, u64::MAX, 1], [u64::MAX, 0, u64::MAX]] {
        for (at, word) in WAITS_AT.into_iter().zip(words) {
            liar.bytes.store_u64(at, word, Ordering::Release);
        }
        let end = liar.write(0, 60_000);
        liar.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
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
    let world = ServerFixture::new();
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
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    for from in [1, 63, 64, 1 << 20, u64::MAX] {
        let liar = RogueClient::new(&world);
        let fault = offer_descriptor(&liar.connection, from, liar.outbox.descriptor());
        assert_eq!(fault.code, Code::Protocol, "from {from}: {fault}");
        honest.check();
    }
    // With records behind it, an odd position would be read.
    for from in [1, 63, 65] {
        let liar = RogueClient::new(&world);
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

/// Repeated offers: each replaces the previous one.
#[test]
fn an_outbox_offered_many_times_counts_once() {
    let world = ServerFixture::new();
    let liar = RogueClient::new(&world);
    for _ in 0..50 {
        let descriptor = liar.outbox.descriptor().as_fd();
        let ticket = liar.connection.start(&Request::OfferOutbox { from: 0 }, &[], &[descriptor]).unwrap();
        liar.connection.wait(ticket, None).unwrap();
    }
    offer(&liar.connection, &liar.outbox).unwrap();
    let end = liar.write(0, 60_000);
    liar.outbox.wait_drained(ServerIndex(0), end, &within_limit).unwrap();
    Honest::new(&world, HONEST_INODE).check();
}

/// The remaining records of a dead client with a corrupted outbox must neither keep the server busy for ever nor prevent its shutdown.
#[test]
fn a_server_ends_in_order_whatever_liars_left() {
    let world = ServerFixture::new();
    for (at, spoilt) in [(56, u64::MAX >> 1), (0, 1), (12, u64::from(u32::MAX))] {
        let liar = RogueClient::new(&world);
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

/// Random bytes changed anywhere in head page and records.
#[test]
fn random_damage_never_reaches_others() {
    let seed = std::env::var("PARIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("PARIO_SEED={seed}");
    let mut chance = SeededRandom::new(seed);
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let mut ended = 0;
    for round in 0..300 {
        let liar = RogueClient::new(&world);
        let early = chance.index(2) == 0;
        let cursor = if early { None } else { Some(offer(&liar.connection, &liar.outbox).unwrap()) };
        for _ in 0..chance.index(6) {
            rogue_writes(&liar, &mut chance, !early);
        }
        for _ in 0..=chance.index(6) {
            damage(&liar, &mut chance);
        }
        match cursor {
            Some(cursor) => cursor.wake(),
            None => drop(offer_from(&liar, 0)),
        }
        // Some violations are detected, some change only the contents of the client's own file.
        ended += u32::from(liar.connection.call(&Request::Ping {}).is_err());
        if round % 10 == 0 {
            honest.check();
        }
    }
    honest.check();
    assert!(0 < ended, "some damage is noticed at once");
}

fn rogue_writes(liar: &RogueClient, chance: &mut SeededRandom, attached: bool) {
    let (offset, bytes) = (chance.next_u64() >> 20, 1 + chance.index(5000));
    if attached {
        liar.write(offset, bytes);
        return;
    }
    // Before it is offered no server drains it, and the outbox refuses; write the record by hand.
    let tail = liar.bytes.load_u64(TAIL_AT, Ordering::Relaxed);
    let head = pario_net::outbox::RecordHead {
        position: tail,
        kind: pario_net::outbox::RecordKind::Data,
        local_writers: 0,
        data_bytes: u32::try_from(bytes).unwrap(),
        object: object(78),
        view: 0,
        displacement: 0,
        offset,
        layout: layout(),
        concerned: pario_net::outbox::Concerned::ALL,
        committed: pario_core::Nanos(1),
    };
    let span = head.span();
    liar.bytes.write(OUTBOX_HEAD_BYTES + usize::try_from(tail).unwrap(), &head.encode());
    liar.set_tail(tail + span);
}

fn damage(liar: &RogueClient, chance: &mut SeededRandom) {
    let used = OUTBOX_HEAD_BYTES + 4096;
    let (at, bytes) = match chance.index(4) {
        0 => (TAIL_AT + chance.index(8), 1),
        1 => (OUTBOX_HEAD_BYTES + chance.index(RECORD_HEAD_BYTES), 1),
        2 => (chance.index(used / 8) * 8, 8),
        _ => (chance.index(used), 1),
    };
    let noise = chance.next_u64().to_le_bytes();
    liar.bytes.write(at, &noise[..bytes]);
}

fn offer_from(liar: &RogueClient, from: u64) -> Result<(), Fault> {
    let descriptor = liar.outbox.descriptor().as_fd();
    let ticket = liar.connection.start(&Request::OfferOutbox { from }, &[], &[descriptor])?;
    liar.connection.wait(ticket, None).map(drop)
}
