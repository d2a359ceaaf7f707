//! A server whose process lives and does not answer: a connection with deadlines gives it up, in every state.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{LIMIT, ScriptedPeer, Transport, ends, hello, sealed_reply, timed};
use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId};
use pario_net::connection::Connection;
use pario_net::deadlines::Deadlines;
use pario_net::message::{Reply, Request};
use pario_net::stream::{Address, Stream};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

const SHORT: Deadlines =
    Deadlines { greeting: Duration::from_millis(1500), answer: Duration::from_millis(1500) };

/// Greets and asks a peer that is this very process; must fail in time and name the server.
fn fails_in_time(serve: impl FnOnce(ScriptedPeer) + Send + 'static) -> Fault {
    let (ours, theirs) = ends(Transport::Unix);
    let server = std::thread::spawn(move || serve(ScriptedPeer::new(theirs)));
    let object = ObjectId { inode: InodeId(5), generation: Generation(0) };
    let request = Request::Read { object, at: LocalOffset(0), bytes: 9000 };
    let (fault, took) = timed(|| {
        Connection::greet_within(ours, "a place".into(), &hello(), &common::SECRET, SHORT)
            .and_then(|connection| connection.call(&request).map(drop))
            .unwrap_err()
    });
    assert!(took < LIMIT, "{took:?}: {fault}");
    assert_eq!(fault.code, Code::Unreachable, "{fault}");
    assert!(fault.text.contains("server 2") && fault.text.contains("did not come within"), "{fault}");
    server.join().unwrap();
    fault
}

/// Takes everything until the client hangs up.
fn drain(mut peer: ScriptedPeer) {
    while peer.frame().is_some() {}
}

#[test]
fn a_living_process_that_never_greets_is_given_up() {
    let fault = fails_in_time(drain);
    assert!(fault.text.contains("its greeting"), "{fault}");
}

#[test]
fn a_living_process_that_never_answers_is_given_up() {
    let fault = fails_in_time(|mut peer| {
        peer.welcome();
        drain(peer);
    });
    assert!(fault.text.contains("the answer"), "{fault}");
}

#[test]
fn a_living_process_that_falls_silent_inside_a_frame_is_given_up() {
    fails_in_time(|mut peer| {
        peer.welcome();
        let (number, _, _) = peer.request().unwrap();
        let bytes = sealed_reply(number, &Reply::Data {}, &[1; 9000], peer.stream.data_check());
        peer.send_bytes(&bytes[..5000]);
        drain(peer);
    });
}

/// Signs of life are no answer.
#[test]
fn a_server_that_answers_pings_alone_is_given_up() {
    fails_in_time(|mut peer| {
        peer.welcome();
        while let Some((number, request, _)) = peer.request() {
            if request == (Request::Ping {}) {
                peer.reply(number, &Reply::Done {}, &[]);
            }
        }
    });
}

#[test]
fn a_listener_whose_queue_is_full_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = Address::Unix(path);
    let mut queued = Vec::new();
    let (error, took) = timed(|| {
        loop {
            match Stream::connect(&address) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        }
    });
    assert!(took < LIMIT, "{took:?}");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
    assert!(!queued.is_empty() && error.to_string().contains("accepted no connection"), "{error}");
}
