//! Frames that violate the protocol, sent to a live server: it ends that connection, reports the reason where it can, and continues to
//! serve the others.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Honest, LIMIT, Raw, SECRET, ServerFixture, hello, object};
use pario_core::codec::{from_bytes, to_bytes};
use pario_core::limits::{FRAME_BODY_BYTES_MAX, FRAME_DATA_BYTES_MAX};
use pario_core::{Code, Generation, InodeId, LocalOffset, SeededRandom, ServerIndex, SessionId, Striping};
use pario_net::connection::Connection;
use pario_net::frame::{self, DataCheck, FrameHead, FrameKind, HEAD_BYTES, PROTOCOL};
use pario_net::greeting::{Hello, Proof, Secret};
use pario_net::message::{At, Creator, NameRequest, OpenHow, Reply, Request, Want};
use pario_net::stream::Address;

const HONEST_INODE: u64 = 1 << 40;

fn seed() -> u64 {
    let seed = std::env::var("PARIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("PARIO_SEED={seed}");
    seed
}

/// One of every kind of request that a client may send.
fn valid_requests() -> Vec<Request> {
    let at = || At::root("dir/name");
    let creator = Creator { mode: 0o644, uid: 1, gid: 1 };
    let how = OpenHow { create: true, exclusive: false, truncate: true, write: true };
    let names = [
        NameRequest::Open { at: At::root("name"), how, creator, striping: Striping::default() },
        NameRequest::Stat { at: at(), follow: true },
        NameRequest::List { at: At::root(""), after: Some(b"a".to_vec()), limit: 10 },
        NameRequest::MakeDir { at: At::root("dir"), creator },
        NameRequest::Symlink { at: at(), target: b"where".to_vec(), creator },
        NameRequest::ReadLink { at: at() },
        NameRequest::Remove { at: at() },
        NameRequest::RemoveDir { at: at() },
        NameRequest::Rename { from: at(), to: At::root("other"), replace: true },
    ];
    let inode = InodeId(2);
    let mut requests: Vec<Request> = names.into_iter().map(|request| Request::Name { request }).collect();
    requests.extend([
        Request::Ping {},
        Request::Close { inode, end: Some(10) },
        Request::Acquire { inode, want: Want::Write {}, party: 0 },
        Request::Return { inode, number: 3, end: Some(7) },
        Request::Extend { inode, end: 100 },
        Request::SetLength { inode, bytes: 50 },
        Request::SyncNames { inode: Some(inode), end: None },
        Request::Read { object: object(2), at: LocalOffset(0), bytes: 100 },
        Request::Write { object: object(2), at: LocalOffset(0) },
        Request::Lend { object: object(2), write: true },
        Request::SyncObject { object: object(2) },
        Request::FlushObject { object: object(2) },
        Request::CollectErrors { inode },
        Request::OfferOutbox { from: 0 },
        Request::Truncate { inode, from: Generation(0), to: Generation(1), bytes: 0 },
        Request::RemoveObject { object: object(2) },
        Request::Measure { object: object(2) },
        Request::Drain { session: SessionId(1) },
        Request::ListObjects { after: None, limit: 5 },
        Request::RemoveOrphan { object: object(2) },
        Request::Space {},
        Request::StoreCall {},
        Request::Status {},
        Request::ListInodes { after: InodeId(0), limit: 5 },
        Request::Claim { server: ServerIndex(1), inode, block_bytes: 4096, blocks: vec![(1, 0), (2, 7)] },
        Request::GiveBack { server: ServerIndex(1), inode, blocks: vec![(1, 1)] },
        Request::VisitRead { object: object(2), at: LocalOffset(0), bytes: 100, told: true, atomic: false },
        Request::VisitRead { object: object(2), at: LocalOffset(0), bytes: 100, told: true, atomic: true },
        Request::VisitUnchanged { object: object(2), at: LocalOffset(0), bytes: 100, stamp: 7 },
        Request::ReadAtomic { object: object(2), at: LocalOffset(0), bytes: 100 },
        Request::WriteAtomic { object: object(2), at: LocalOffset(0) },
        Request::VisitWrite { object: object(2), at: LocalOffset(0), told: false },
        Request::ReportHandover { server: ServerIndex(1), to: ServerIndex(2), inode, blocks: vec![(1, 1)] },
        Request::VisitHandover {
            object: object(2),
            at: LocalOffset(0),
            blocks: 1,
            to: ServerIndex(1),
            syncs: 0,
            number_sum: 7,
            told: true,
        },
    ]);
    requests
}

/// A frame around any body, with the right checksum.
fn seal_body(kind: FrameKind, body: &[u8], data_bytes: u32) -> Vec<u8> {
    let mut head = FrameHead {
        kind,
        data_checked: false,
        body_bytes: u32::try_from(body.len()).unwrap(),
        data_bytes,
        request: 1,
        body_crc: 0,
        data_crc: 0,
    };
    head.body_crc = crc32c::crc32c_append(crc32c::crc32c(&head.encode()[..24]), body);
    let mut bytes = head.encode().to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// Sends bytes, then a ping; reads until the server closes the connection or answers the ping.
fn probe(raw: &mut Raw, bytes: &[u8]) {
    let ping = frame::seal(FrameKind::Request, 4_000_000, &Request::Ping {}, &[], DataCheck::None);
    if raw.send_bytes(bytes).is_err() || raw.send_bytes(&ping).is_err() {
        return;
    }
    // Inside a frame that announced more than was sent, the server waits for the rest: close.
    raw.stream.shut();
    while raw.frame().is_some() {}
}

/// Bodies changed at random, with a correct checksum: the decoder and the service must tolerate any of them.
#[test]
fn mutated_requests_with_good_checksums_harm_nobody() {
    let mut chance = SeededRandom::new(seed());
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let requests = valid_requests();
    for round in 0..600 {
        let request = &requests[chance.index(requests.len())];
        let mut body = to_bytes(request);
        for _ in 0..chance.index(4) {
            match chance.index(4) {
                0 => body.truncate(chance.index(body.len() + 1)),
                1 => body.push(chance.next_u64().to_le_bytes()[0]),
                _ if !body.is_empty() => {
                    let at = chance.index(body.len());
                    body[at] = chance.next_u64().to_le_bytes()[0];
                }
                _ => {}
            }
        }
        // Every client may request a shutdown.
        if matches!(from_bytes::<Request>(&body), Ok(Request::Shutdown { .. })) {
            continue;
        }
        let data_bytes = [0, 0, 0, 1, 5000][chance.index(5)];
        let mut bytes = seal_body(FrameKind::Request, &body, data_bytes);
        bytes.extend(vec![7; chance.index(data_bytes as usize + 1)]);
        probe(&mut world.raw(), &bytes);
        if round % 20 == 0 {
            honest.check();
        }
    }
    honest.check();
}

/// Whole conversations of well-formed requests in any order, by clients that ignore the replies.
#[test]
fn well_formed_nonsense_harms_nobody() {
    let mut chance = SeededRandom::new(seed() ^ 7);
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let requests = valid_requests();
    for round in 0..60 {
        let mut raw = world.raw();
        let mut bytes = Vec::new();
        for number in 0..=chance.index(40) {
            let request = &requests[chance.index(requests.len())];
            bytes.extend(frame::seal(FrameKind::Request, number as u64, request, &[], DataCheck::None));
        }
        probe(&mut raw, &bytes);
        if round % 10 == 0 {
            honest.check();
        }
    }
    honest.check();
}

/// Bits flipped in whole frames: detected by the checksum or the head.
#[test]
fn mutated_frames_harm_nobody() {
    let mut chance = SeededRandom::new(seed() ^ 99);
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let requests = valid_requests();
    for _ in 0..300 {
        let request = &requests[chance.index(requests.len())];
        let mut bytes = frame::seal(FrameKind::Request, 1, request, &[], DataCheck::None);
        let at = chance.index(bytes.len());
        bytes[at] ^= 1 << chance.index(8);
        let mut raw = world.raw();
        probe(&mut raw, &bytes);
    }
    honest.check();
}

fn refusal(raw: &mut Raw) -> Option<pario_core::Fault> {
    let frame = raw.frame()?;
    assert_eq!(frame.head.kind, FrameKind::Reply);
    let Reply::Failed { fault } = frame.message().unwrap() else { panic!("not refused") };
    assert!(raw.frame().is_none(), "the server hangs up behind a refusal");
    Some(fault)
}

#[test]
fn oversize_and_foreign_frames_end_their_connection_only() {
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let too_long = |bytes: usize| u32::try_from(bytes + 1).unwrap();
    let head = FrameHead {
        kind: FrameKind::Request,
        data_checked: false,
        body_bytes: 1,
        data_bytes: 0,
        request: 1,
        body_crc: 0,
        data_crc: 0,
    };
    let cases: [Vec<u8>; 6] = [
        FrameHead { body_bytes: too_long(FRAME_BODY_BYTES_MAX), ..head }.encode().to_vec(),
        FrameHead { data_bytes: too_long(FRAME_DATA_BYTES_MAX), ..head }.encode().to_vec(),
        vec![0xff; HEAD_BYTES],
        frame::seal(FrameKind::Reply, 1, &Reply::Done {}, &[], DataCheck::None),
        frame::seal(FrameKind::Hello, 1, &hello(), &[], DataCheck::None),
        b"GET / HTTP/1.1\r\nHost: somewhere else entirely\r\n\r\n".to_vec(),
    ];
    for bytes in cases {
        let mut raw = world.raw();
        raw.send_bytes(&bytes).unwrap();
        assert!(raw.frame().is_none(), "the server hangs up");
        honest.check();
    }
}

/// An unauthenticated peer with the given greeting; returns the server's reason to refuse it.
fn refused(world: &ServerFixture, hello: &Hello, secret: &Secret) -> pario_core::Fault {
    let stream = world.server.connect().unwrap();
    Connection::greet(stream, "test".into(), hello, secret).unwrap_err()
}

#[test]
fn bytes_beyond_every_file_are_refused() {
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    let connection = world.connect();
    for at in [u64::MAX, u64::MAX - 1, u64::MAX - 100, 1 << 63] {
        for request in [
            Request::Write { object: object(2), at: LocalOffset(at) },
            Request::WriteAtomic { object: object(2), at: LocalOffset(at) },
        ] {
            let ticket = connection.start(&request, &[b"abcd"], &[]).unwrap();
            let fault = connection.wait(ticket, None).unwrap_err();
            assert_eq!(fault.code, Code::TooLarge, "{at}: {fault}");
        }
    }
    honest.check();
}

#[test]
fn strangers_are_refused_and_told_why() {
    let world = ServerFixture::new();
    let mut honest = Honest::new(&world, HONEST_INODE);
    // The client's own check comes first: neither side trusts the other.
    assert_eq!(refused(&world, &hello(), &Secret([1; 32])).code, Code::WrongSecret);
    let newer = Hello { protocol: PROTOCOL + 1, ..hello() };
    let fault = refused(&world, &newer, &SECRET);
    assert_eq!(fault.code, Code::Protocol);
    assert!(fault.text.contains(&format!("speaks {}", PROTOCOL + 1)), "{fault}");
    let other = Hello { partition: pario_core::PartitionId([5; 16]), ..hello() };
    assert_eq!(refused(&world, &other, &SECRET).code, Code::Stale);
    honest.check();
}

/// A client that skips its own check is still refused.
#[test]
fn a_forged_proof_is_refused() {
    let world = ServerFixture::new();
    let stream = world.server.connect().unwrap();
    let mut raw = Raw::new(stream);
    raw.send(FrameKind::Hello, &hello());
    assert_eq!(raw.frame().unwrap().head.kind, FrameKind::Challenge);
    raw.send(FrameKind::Proof, &Proof { proof: [0; 32] });
    assert_eq!(refusal(&mut raw).unwrap().code, Code::WrongSecret);
    // Nor a client that omits the proof.
    let mut raw = Raw::new(world.server.connect().unwrap());
    raw.send(FrameKind::Hello, &hello());
    assert_eq!(raw.frame().unwrap().head.kind, FrameKind::Challenge);
    raw.send(FrameKind::Request, &Request::Status {});
    assert_eq!(refusal(&mut raw).unwrap().code, Code::Protocol);
    // Nor a client that omits the greeting.
    let mut raw = Raw::new(world.server.connect().unwrap());
    raw.send(FrameKind::Request, &Request::Status {});
    assert_eq!(refusal(&mut raw).unwrap().code, Code::Protocol);
    Honest::new(&world, HONEST_INODE).check();
}

/// Before the secret is proved no large frame is accepted, not even announced.
#[test]
fn a_stranger_cannot_make_the_server_allocate() {
    let world = ServerFixture::new();
    let body = vec![0; frame::GREETING_BODY_BYTES_MAX + 1];
    for bytes in [seal_body(FrameKind::Hello, &body, 0), seal_body(FrameKind::Hello, &[], 1)] {
        let mut raw = Raw::new(world.server.connect().unwrap());
        let _ = raw.send_bytes(&bytes);
        assert!(raw.frame().is_none());
    }
}

/// An unauthenticated peer that sends nothing is disconnected; others are not affected.
#[test]
fn a_silent_stranger_is_shown_out() {
    let world = ServerFixture::new();
    let address = Address::Tcp(world.server.tcp_address().unwrap());
    let silent = pario_net::stream::Stream::connect(&address).unwrap();
    Honest::new(&world, HONEST_INODE).check();
    let mut raw = Raw::new(silent);
    assert!(raw.stream.wait_readable(LIMIT).unwrap(), "shown out in time");
    assert!(raw.frame().is_none());
}
