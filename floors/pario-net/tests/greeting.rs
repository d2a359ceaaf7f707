//! A server that has not proved itself: what it says is shown as plain text of bounded length, and it has one limit for all it sends.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{LIMIT, ScriptedPeer, Transport, ends, hello, timed};
use pario_core::limits::CONNECT_MS_MAX;
use pario_core::{Code, Fault};
use pario_net::connection::Connection;
use pario_net::frame::{self, DataCheck, FrameKind};
use pario_net::message::Reply;

fn refused_with(said: &str) -> Fault {
    let (ours, theirs) = ends(Transport::Tcp);
    let reply = Reply::Failed { fault: Fault::new(Code::Stale, said) };
    let server = std::thread::spawn(move || {
        let mut peer = ScriptedPeer::new(theirs);
        assert_eq!(peer.frame().unwrap().head.kind, FrameKind::Hello);
        peer.send(FrameKind::Reply, 0, &reply);
    });
    let fault = Connection::greet(ours, "a place".into(), &hello(), &common::SECRET).unwrap_err();
    server.join().unwrap();
    fault
}

#[test]
fn what_a_stranger_says_gives_no_orders_to_the_terminal() {
    let fault = refused_with("go\u{1b}[2J\u{1b}]0;title\u{7} away\r\nserver 9: all is well \u{202e}");
    assert_eq!(fault.code, Code::Stale);
    assert!(!fault.text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{:?}", fault.text);
    assert!(fault.text.contains("server 2") && fault.text.contains("go\\u{1b}[2J"), "{:?}", fault.text);
    assert!(fault.text.contains("away\\r\\nserver 9"), "{:?}", fault.text);
}

#[test]
fn a_stranger_does_not_fill_the_screen() {
    for said in ["x".repeat(3000), "\u{1b}".repeat(3000)] {
        let fault = refused_with(&said);
        let count = fault.text.chars().count();
        assert!((500..600).contains(&count), "{count}: {:?}", fault.text);
        assert!(fault.text.ends_with('…'), "{:?}", fault.text);
    }
    let plain = "x".repeat(400);
    assert!(refused_with(&plain).text.ends_with(&plain), "what fits is shown whole");
}

/// A byte every quarter of a second: no single wait is long, the greeting is.
#[test]
fn a_stranger_that_drips_is_given_up() {
    std::thread::scope(|scope| {
        for kind in [Transport::Tcp, Transport::Relayed] {
            scope.spawn(move || {
                let (ours, theirs) = ends(kind);
                let (over, is_over) = std::sync::mpsc::channel::<()>();
                let server = std::thread::spawn(move || {
                    let mut peer = ScriptedPeer::new(theirs);
                    peer.frame().unwrap();
                    let reply = Reply::Failed { fault: Fault::new(Code::Stale, "slow".repeat(500)) };
                    let bytes = frame::seal(FrameKind::Reply, 0, &reply, &[], DataCheck::None);
                    for byte in bytes {
                        let sent = peer.stream.send_all(&mut [std::io::IoSlice::new(&[byte])], &[]);
                        let drip = is_over.recv_timeout(Duration::from_millis(250));
                        if sent.is_err() || drip != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                            return;
                        }
                    }
                });
                let (fault, took) = timed(|| {
                    Connection::greet(ours, "a place".into(), &hello(), &common::SECRET).unwrap_err()
                });
                drop(over);
                assert_eq!(fault.code, Code::Unreachable, "{kind:?}: {fault}");
                assert!(fault.text.contains("server 2"), "{kind:?}: {fault}");
                assert!(Duration::from_millis(CONNECT_MS_MAX) <= took && took < LIMIT, "{kind:?}: {took:?}");
                server.join().unwrap();
            });
        }
    });
}
