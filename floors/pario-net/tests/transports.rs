//! What every transport must do: the same suite over a pair of sockets, a socket file and TCP.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::os::fd::AsFd;

use common::{KINDS, LIMIT, ScriptedPeer, Transport, connect, ends, hello, sealed_reply, timed};
use pario_core::limits::{FRAME_BODY_BYTES_MAX, FRAME_DATA_BYTES_MAX, IN_FLIGHT_MAX};
use pario_core::{Code, Generation, InodeId, LocalOffset, ObjectId, SeededRandom};
use pario_net::connection::Connection;
use pario_net::frame::{self, DataCheck, FrameHead, FrameKind, MAGIC};
use pario_net::greeting::{self, Challenge, Hello, Secret};
use pario_net::message::{Notice, Reply, Request};

const OBJECT: ObjectId = ObjectId { inode: InodeId(5), generation: Generation(0) };

fn read_request(bytes: u32) -> Request {
    Request::Read { object: OBJECT, at: LocalOffset(0), bytes }
}

/// Sends bytes in pieces of random sizes; between them the other side may run.
fn send_in_pieces(peer: &ScriptedPeer, mut bytes: &[u8], chance: &mut SeededRandom) {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at((1 + chance.index(1 + bytes.len() / 2)).min(bytes.len()));
        peer.send_bytes(piece);
        std::thread::yield_now();
        bytes = rest;
    }
}

#[test]
fn answers_arrive_whole_however_they_are_cut() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            let (mut chance, mut waiting) = (SeededRandom::new(1), Vec::new());
            while let Some((number, request, _)) = peer.request() {
                let Request::Read { bytes, .. } = request else { panic!("{request:?}") };
                let data = vec![number.to_le_bytes()[0]; bytes as usize];
                if number % 4 == 0 {
                    let notice = Notice::Waiting { request: 99, on: "client 7".into() };
                    waiting.extend(frame::seal(FrameKind::Notice, 0, &notice, &[], DataCheck::None));
                }
                waiting.extend(sealed_reply(number, &Reply::Data {}, &data, peer.stream.data_check()));
                if number % 3 == 0 {
                    send_in_pieces(&peer, &std::mem::take(&mut waiting), &mut chance);
                }
            }
        });
        for round in 0..20u64 {
            let sizes = [0u32, 1, 31, 33, 4095, 4096, 4097, 70_000, 300_000];
            let numbers: Vec<u64> = (0..9).map(|n| 9 * round + n + 1).collect();
            let tickets: Vec<_> = numbers
                .iter()
                .zip(sizes)
                .map(|(number, bytes)| connection.start_as(*number, &read_request(bytes), &[], &[]).unwrap())
                .collect();
            // Awaited in another order than requested, with and without a buffer of the caller.
            for (place, ticket) in tickets.into_iter().enumerate().rev() {
                let mut own = vec![0; sizes[place] as usize];
                let target = (place % 2 == 0).then_some(&mut own[..]);
                let direct = target.is_some();
                let answer = connection.wait(ticket, target).unwrap();
                let data = if direct { own } else { answer.data };
                assert_eq!(answer.data_bytes, sizes[place] as usize);
                assert!(
                    data == vec![numbers[place].to_le_bytes()[0]; sizes[place] as usize],
                    "{kind:?} {place}"
                );
            }
        }
        connection.close();
        drop(connection);
        server.join().unwrap();
    }
}

#[test]
fn requests_with_data_arrive_whole_and_in_order() {
    for kind in KINDS {
        let (connection, server) = connect(kind, move |mut peer| {
            let mut expected = 0u8;
            while let Some((number, request, data)) = peer.request() {
                assert_eq!(request, Request::Write { object: OBJECT, at: LocalOffset(u64::from(expected)) });
                assert!(data.iter().all(|byte| *byte == expected), "{kind:?} request {number}");
                expected += 1;
                peer.reply(number, &Reply::Done {}, &[]);
            }
            assert_eq!(expected, 30);
        });
        for n in 0..30u8 {
            let data = vec![n; usize::from(n) * 10_000];
            let parts: Vec<&[u8]> = data.chunks(777 + usize::from(n)).collect();
            let request = Request::Write { object: OBJECT, at: LocalOffset(u64::from(n)) };
            let ticket = connection.start(&request, &parts, &[]).unwrap();
            assert_eq!(connection.wait(ticket, None).unwrap().reply, Reply::Done {});
        }
        drop(connection);
        server.join().unwrap();
    }
}

#[test]
fn descriptors_travel_only_where_memory_is_shared() {
    for kind in KINDS {
        let shared = kind != Transport::Tcp;
        let (connection, server) = connect(kind, move |mut peer| {
            let (number, _, _) = peer.request().unwrap();
            assert_eq!(peer.descriptors.len(), usize::from(shared), "{kind:?}");
            if let Some(descriptor) = peer.descriptors.pop() {
                let mut bytes = [0; 6];
                assert_eq!(rustix::io::pread(&descriptor, &mut bytes, 0), Ok(6));
                assert_eq!(&bytes, b"inside");
                peer.reply_with(number, &Reply::OutboxAttached {}, &[descriptor.as_fd(), descriptor.as_fd()]);
            } else {
                peer.reply(number, &Reply::Done {}, &[]);
            }
        });
        assert_eq!(connection.shares_memory(), shared);
        let file = tempfile::tempfile().unwrap();
        rustix::io::pwrite(&file, b"inside", 0).unwrap();
        let ticket = connection.start(&Request::OfferOutbox { from: 0 }, &[], &[file.as_fd()]).unwrap();
        let answer = connection.wait(ticket, None).unwrap();
        assert_eq!(answer.descriptors.len(), if shared { 2 } else { 0 }, "{kind:?}");
        drop(connection);
        server.join().unwrap();
    }
}

/// Descriptors that arrive while other answers wait on the stream belong to the answer that carries them.
#[test]
fn descriptors_find_their_answer_among_others() {
    for kind in [Transport::Pair, Transport::Unix] {
        let (connection, server) = connect(kind, |mut peer| {
            let numbers: Vec<u64> = (0..4).map(|_| peer.request().unwrap().0).collect();
            let file = tempfile::tempfile().unwrap();
            peer.reply(numbers[0], &Reply::Data {}, &[1; 100]);
            peer.reply_with(numbers[1], &Reply::Lent {}, &[file.as_fd()]);
            peer.reply(numbers[2], &Reply::Data {}, &[2; 100]);
            peer.reply_with(numbers[3], &Reply::OutboxAttached {}, &[file.as_fd(), file.as_fd()]);
        });
        let requests = [
            read_request(100),
            Request::Lend { object: OBJECT, write: false },
            read_request(100),
            Request::OfferOutbox { from: 0 },
        ];
        let tickets: Vec<_> =
            requests.iter().map(|request| connection.start(request, &[], &[]).unwrap()).collect();
        server.join().unwrap();
        let counts: Vec<usize> = tickets
            .into_iter()
            .map(|ticket| connection.wait(ticket, None).unwrap().descriptors.len())
            .collect();
        assert_eq!(counts, [0, 1, 0, 2], "{kind:?}");
    }
}

#[test]
fn many_threads_each_get_their_own_answer() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            let (mut held, mut seen): (Option<(u64, u32)>, usize) = (None, 0);
            while let Some((number, request, _)) = peer.request() {
                // Every other answer is overtaken by the next one, while all threads have requests in flight.
                seen += 1;
                let bytes = if let Request::Read { bytes, .. } = request { bytes } else { 0 };
                if seen < 100 && held.is_none() {
                    held = Some((number, bytes));
                    continue;
                }
                peer.reply(number, &Reply::Data {}, &vec![bytes.to_le_bytes()[0]; bytes as usize]);
                if let Some((older, bytes)) = held.take() {
                    peer.reply(older, &Reply::Data {}, &vec![bytes.to_le_bytes()[0]; bytes as usize]);
                }
            }
        });
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let connection = &connection;
                scope.spawn(move || {
                    for round in 0..50u32 {
                        let bytes = 1000 * thread + round;
                        let answer = connection.call(&read_request(bytes)).unwrap();
                        assert!(answer.data == vec![bytes.to_le_bytes()[0]; bytes as usize], "{kind:?}");
                    }
                });
            }
        });
        drop(connection);
        server.join().unwrap();
    }
}

#[test]
fn a_dead_peer_is_named_to_all_who_wait_and_all_who_come() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            let first = peer.request();
            let second = peer.request();
            assert!(first.is_some() && second.is_some());
        });
        let faults: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(|| connection.call(&Request::Space {}).unwrap_err())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for fault in faults.into_iter().chain([connection.call(&Request::Ping {}).unwrap_err()]) {
            assert_eq!(fault.code, Code::Unreachable, "{kind:?}: {fault}");
            assert!(fault.text.contains("server 2") && fault.text.contains("place"), "{kind:?}: {fault}");
        }
        assert!(connection.is_dead());
        server.join().unwrap();
    }
}

#[test]
fn a_peer_that_hangs_up_inside_a_frame_is_lost() {
    for kind in KINDS {
        for cut in [1, 31, 32, 40, 5000] {
            let (connection, server) = connect(kind, move |mut peer| {
                let (number, _, _) = peer.request().unwrap();
                let bytes = sealed_reply(number, &Reply::Data {}, &[1; 9000], peer.stream.data_check());
                peer.send_bytes(&bytes[..cut]);
            });
            let fault = connection.call(&read_request(9000)).unwrap_err();
            assert_eq!(fault.code, Code::Unreachable, "{kind:?} {cut}: {fault}");
            assert!(fault.text.contains("server 2"), "{fault}");
            server.join().unwrap();
        }
    }
}

fn head(body_bytes: u32, data_bytes: u32) -> [u8; 32] {
    let head = FrameHead {
        kind: FrameKind::Reply,
        data_checked: false,
        body_bytes,
        data_bytes,
        request: 1,
        body_crc: 0,
        data_crc: 0,
    };
    head.encode()
}

#[test]
fn frames_that_break_the_rules_end_the_connection() {
    let too_long = |bytes: usize| u32::try_from(bytes + 1).unwrap();
    let mut other_magic = head(1, 0);
    other_magic[..4].copy_from_slice(&(MAGIC + 1).to_le_bytes());
    let mut other_kind = head(1, 0);
    other_kind[4] = 77;
    let mut damaged = sealed_reply(1, &Reply::Done {}, &[], DataCheck::None);
    damaged[20] ^= 1;
    let malformed = frame::seal(FrameKind::Reply, 1, &vec![0xffu8; 5], &[], DataCheck::None);
    let cases: [(&str, Vec<u8>); 8] = [
        ("body too long", head(too_long(FRAME_BODY_BYTES_MAX), 0).to_vec()),
        ("data too long", head(1, too_long(FRAME_DATA_BYTES_MAX)).to_vec()),
        ("magic", other_magic.to_vec()),
        ("kind", other_kind.to_vec()),
        ("damaged", damaged),
        ("malformed", malformed),
        (
            "request from a server",
            frame::seal(FrameKind::Request, 1, &Request::Ping {}, &[], DataCheck::None),
        ),
        ("hello from a server", frame::seal(FrameKind::Hello, 1, &hello(), &[], DataCheck::None)),
    ];
    for kind in KINDS {
        for (name, bytes) in cases.clone() {
            let (connection, server) = connect(kind, move |mut peer| {
                peer.request().unwrap();
                peer.send_bytes(&bytes);
                // A peer that receives invalid bytes closes the connection.
                assert!(peer.frame().is_none(), "{kind:?} {name}");
            });
            let (fault, took) = timed(|| connection.call(&Request::Space {}).unwrap_err());
            assert!(matches!(fault.code, Code::Protocol | Code::Corrupt), "{kind:?} {name}: {fault}");
            assert!(fault.text.contains("server 2"), "{fault}");
            assert!(took < LIMIT, "{name}: {took:?}");
            drop(connection);
            server.join().unwrap();
        }
    }
}

/// A client's error for a greeting in which the peer answers `with`.
fn greet_with(
    kind: Transport,
    with: impl FnOnce(&mut ScriptedPeer, Hello) + Send + 'static,
) -> pario_core::Fault {
    let (ours, theirs) = ends(kind);
    let server = std::thread::spawn(move || {
        let mut peer = ScriptedPeer::new(theirs);
        let hello: Hello = peer.frame().unwrap().message().unwrap();
        with(&mut peer, hello);
        while peer.frame().is_some() {}
    });
    let fault = Connection::greet(ours, "a place".into(), &hello(), &common::SECRET).unwrap_err();
    server.join().unwrap();
    assert!(fault.text.contains("server 2") && fault.text.contains("a place"), "{fault}");
    fault
}

#[test]
fn a_server_without_the_secret_is_refused() {
    for kind in KINDS {
        let fault = greet_with(kind, |peer, hello| {
            let challenge = greeting::challenge(&Secret([8; 32]), &hello, common::ME).unwrap();
            peer.send(FrameKind::Challenge, 0, &challenge);
        });
        assert_eq!(fault.code, Code::WrongSecret, "{kind:?}: {fault}");
        let fault = greet_with(kind, |peer, _| {
            peer.send(FrameKind::Challenge, 0, &Challenge { nonce: [0; 32], proof: [0; 32] });
        });
        assert_eq!(fault.code, Code::WrongSecret, "{kind:?}: {fault}");
    }
}

#[test]
fn a_refusal_tells_the_client_why() {
    for kind in KINDS {
        let fault = greet_with(kind, |peer, hello| {
            let newer = Hello { protocol: frame::PROTOCOL + 1, ..hello };
            let fault = greeting::challenge(&common::SECRET, &newer, common::ME).unwrap_err();
            peer.send(FrameKind::Reply, 0, &Reply::Failed { fault });
        });
        assert_eq!(fault.code, Code::Protocol, "{kind:?}: {fault}");
        assert!(fault.text.contains("speaks"), "{fault}");
    }
}

#[test]
fn a_greeting_answered_by_nonsense_is_refused() {
    for kind in KINDS {
        let skipped = greet_with(kind, |peer, _| peer.send(FrameKind::Welcome, 0, &common::welcome()));
        assert_eq!(skipped.code, Code::Protocol, "{kind:?}: {skipped}");
        let long = greet_with(kind, |peer, _| {
            let mut head = head(u32::try_from(frame::GREETING_BODY_BYTES_MAX + 1).unwrap(), 0);
            head[4] = FrameKind::Challenge as u8;
            peer.send_bytes(&head);
        });
        assert_eq!(long.code, Code::Protocol, "{kind:?}: {long}");
        let gone = greet_with(kind, |peer, _| peer.stream.shut());
        assert_eq!(gone.code, Code::Unreachable, "{kind:?}: {gone}");
    }
}

/// Many requests may be in flight; one more than the limit waits for an answer instead of failing, also when no other thread reads: a
/// caller that starts requests without awaiting answers must not wait for ever.
#[test]
fn more_requests_than_may_be_under_way_wait_their_turn() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            while let Some((number, _, _)) = peer.request() {
                peer.reply(number, &Reply::Data {}, &[1; 100]);
            }
        });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let tickets: Vec<_> = (0..3 * IN_FLIGHT_MAX)
                        .map(|_| connection.start(&read_request(100), &[], &[]).unwrap())
                        .collect();
                    for ticket in tickets {
                        assert_eq!(connection.wait(ticket, None).unwrap().data, [1; 100]);
                    }
                });
            }
        });
        drop(connection);
        server.join().unwrap();
    }
}
