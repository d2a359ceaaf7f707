//! A peer that is there but says nothing: an error that names it, within five seconds, in every state of a connection.

mod common;

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use common::{KINDS, Kind, LIMIT, Peer, connect, ends, hello, sealed_reply, timed};
use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId};
use pario_net::connection::Connection;
use pario_net::message::{Reply, Request};
use pario_net::stream::Address;

const OBJECT: ObjectId = ObjectId { inode: InodeId(5), generation: Generation(0) };

/// Runs `call` over all transports at once: each must fail in time and name the server.
fn all_fail_in_time(call: impl Fn(Kind) -> Fault + Sync) {
    std::thread::scope(|scope| {
        for kind in KINDS {
            let call = &call;
            scope.spawn(move || {
                let (fault, took) = timed(|| call(kind));
                assert_eq!(fault.code, Code::Unreachable, "{kind:?}: {fault}");
                assert!(fault.text.contains("server 2"), "{kind:?}: {fault}");
                assert!(took < LIMIT, "{kind:?}: {took:?}: {fault}");
            });
        }
    });
}

#[test]
fn a_peer_that_never_greets_is_given_up() {
    all_fail_in_time(|kind| {
        let (ours, _theirs) = ends(kind);
        Connection::greet(ours, "a place".into(), &hello(), &common::SECRET).unwrap_err()
    });
}

/// A stopped process: its kernel still accepts.
#[test]
fn a_listener_that_never_accepts_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _unix = UnixListener::bind(&path).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    std::thread::scope(|scope| {
        for address in [Address::Unix(path), Address::Tcp(tcp.local_addr().unwrap())] {
            scope.spawn(move || {
                let (fault, took) =
                    timed(|| Connection::open(&address, &hello(), &common::SECRET).unwrap_err());
                assert_eq!(fault.code, Code::Unreachable, "{fault}");
                assert!(
                    fault.text.contains("server 2") && fault.text.contains(&address.to_string()),
                    "{fault}"
                );
                assert!(took < LIMIT, "{took:?}");
            });
        }
    });
}

#[test]
fn a_peer_that_stops_answering_is_given_up() {
    all_fail_in_time(|kind| {
        let (done, over) = std::sync::mpsc::channel::<()>();
        let (connection, server) = connect(kind, move |_peer| while over.recv().is_ok() {});
        let fault = connection.call(&Request::Space {}).unwrap_err();
        drop(done);
        server.join().unwrap();
        fault
    });
}

/// Others who ask as well do not make a silent peer live longer.
#[test]
fn a_silent_peer_is_given_up_however_many_ask() {
    let (done, over) = std::sync::mpsc::channel::<()>();
    let (connection, server) = connect(Kind::Pair, move |_peer| while over.recv().is_ok() {});
    std::thread::scope(|scope| {
        let first = scope.spawn(|| timed(|| connection.call(&Request::Space {}).unwrap_err()));
        let (tick, ticks) = std::sync::mpsc::channel::<()>();
        scope.spawn(|| {
            let ticks = ticks;
            for _ in 0..14 {
                // A request now and then that nobody waits for, as a reader ahead makes them.
                let _ = ticks.recv_timeout(std::time::Duration::from_millis(400));
                if connection.start(&Request::Ping {}, &[], &[]).is_err() {
                    return;
                }
            }
        });
        let (fault, took) = first.join().unwrap();
        drop(tick);
        assert_eq!(fault.code, Code::Unreachable, "{fault}");
        assert!(took < LIMIT, "{took:?}");
    });
    drop(done);
    server.join().unwrap();
}

#[test]
fn a_peer_that_falls_silent_inside_a_frame_is_given_up() {
    all_fail_in_time(|kind| {
        let (done, over) = std::sync::mpsc::channel::<()>();
        let (connection, server) = connect(kind, move |mut peer| {
            let (number, _, _) = peer.request().unwrap();
            let bytes = sealed_reply(number, &Reply::Data {}, &[1; 9000], peer.stream.data_check());
            peer.send_bytes(&bytes[..5000]);
            while over.recv().is_ok() {}
        });
        let request = Request::Read { object: OBJECT, at: LocalOffset(0), bytes: 9000 };
        let fault = connection.call(&request).unwrap_err();
        drop(done);
        server.join().unwrap();
        fault
    });
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    all_fail_in_time(|kind| {
        let (done, over) = std::sync::mpsc::channel::<()>();
        let (connection, server) = connect(kind, move |_peer| while over.recv().is_ok() {});
        let data = vec![0; 1 << 20];
        let request = Request::Write { object: OBJECT, at: LocalOffset(0) };
        let fault = loop {
            // The socket's own memory takes some.
            match connection.start(&request, &[&data], &[]) {
                Ok(_unanswered) => {}
                Err(fault) => break fault,
            }
        };
        drop(done);
        server.join().unwrap();
        fault
    });
}

/// A living peer that is slow is waited for as long as it shows signs of life.
#[test]
fn a_peer_that_lives_is_waited_for() {
    let (connection, server) = connect(Kind::Pair, |mut peer: Peer| {
        let (slow, _, _) = peer.request().unwrap();
        // Pings come while the client waits; after a few the answer is ready.
        for _ in 0..4 {
            let (number, request, _) = peer.request().unwrap();
            assert_eq!(request, Request::Ping {});
            peer.reply(number, &Reply::Done {}, &[]);
        }
        peer.reply(slow, &Reply::Done {}, &[]);
    });
    let (answer, took) = timed(|| connection.call(&Request::Space {}));
    assert_eq!(answer.unwrap().reply, Reply::Done {});
    assert!(
        std::time::Duration::from_millis(3500) < took,
        "the wait was longer than silence may last: {took:?}"
    );
    server.join().unwrap();
}
