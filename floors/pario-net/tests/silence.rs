//! A silent peer: an error that names it, within five seconds, in every state of a connection. A living process of this node is waited
//! for instead, in every state too.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use common::{LIMIT, ScriptedPeer, Transport, connect, ends, hello, sealed_reply, timed};
use pario_core::limits::{PING_MS, SILENCE_MS_MAX};
use pario_core::{Code, Fault, Generation, InodeId, LocalOffset, ObjectId};
use pario_net::connection::Connection;
use pario_net::frame::FrameKind;
use pario_net::message::{Reply, Request};
use pario_net::stream::{Address, Stream};

const OBJECT: ObjectId = ObjectId { inode: InodeId(5), generation: Generation(0) };

/// Transports over which only the clock, or a probe, can tell whether a peer is alive.
const JUDGED_BY_CLOCK: [Transport; 2] = [Transport::Relayed, Transport::Tcp];
/// Transports to a process of this node; here it is this one, which is alive.
const JUDGED_BY_LIFE: [Transport; 2] = [Transport::Pair, Transport::Unix];
/// Longer than a peer that does not live may be silent.
const LONG: Duration = Duration::from_millis(SILENCE_MS_MAX + PING_MS);

/// Runs `call` over several transports concurrently: each must fail in time and name the server.
fn all_fail_in_time(call: impl Fn(Transport) -> Fault + Sync) {
    std::thread::scope(|scope| {
        for kind in JUDGED_BY_CLOCK {
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

/// Not a test of its own: the process that is stopped.
#[test]
fn stopped_listener() {
    let Some(path) = std::env::var_os("PARIO_TEST_SOCKET") else { return };
    let listener = UnixListener::bind(path).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut peer = ScriptedPeer::new(Stream::Unix(stream));
    peer.welcome();
    while peer.request().is_some() {}
}

/// This binary again, listening at `path`.
struct Listener(std::process::Child);

impl Listener {
    fn start(path: &std::path::Path) -> Listener {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "stopped_listener"]).env("PARIO_TEST_SOCKET", path);
        let listener = Listener(command.stdout(std::process::Stdio::null()).spawn().unwrap());
        let (_, took) = timed(|| while !path.exists() {});
        assert!(took < Duration::from_secs(60));
        listener
    }

    fn stop(&self) {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        // The signal is handled by the process itself, which may still run for a moment.
        let stat = format!("/proc/{}/stat", self.0.id());
        let is_stopped = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        let (_, took) = timed(|| while !is_stopped() {});
        assert!(took < Duration::from_secs(60));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A stopped process: its kernel still accepts.
#[test]
fn a_listener_that_never_accepts_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = Listener::start(&path);
    listener.stop();
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

#[test]
fn a_process_that_is_stopped_is_given_up_and_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = Listener::start(&path);
    let connection = loop {
        // It binds before it listens.
        match Connection::open(&Address::Unix(path.clone()), &hello(), &common::SECRET) {
            Ok(connection) => break connection,
            Err(fault) => assert!(fault.text.contains("refused"), "{fault}"),
        }
    };
    listener.stop();
    let (fault, took) = timed(|| connection.call(&Request::Space {}).unwrap_err());
    assert_eq!(fault.code, Code::Unreachable, "{fault}");
    assert!(fault.text.contains("server 2") && fault.text.contains("is stopped"), "{fault}");
    assert!(took < LIMIT, "{took:?}");
    assert!(!connection.peer_runs());
}

/// Runs `serve` for a request over each transport to a living process; the call must succeed after the silence.
fn all_are_waited_for(request: &Request, data: &[u8], serve: fn(ScriptedPeer)) {
    std::thread::scope(|scope| {
        for kind in JUDGED_BY_LIFE {
            scope.spawn(move || {
                let (connection, server) = connect(kind, serve);
                let (answer, took) = timed(|| {
                    connection.start(request, &[data], &[]).and_then(|ticket| connection.wait(ticket, None))
                });
                answer.unwrap_or_else(|fault| panic!("{kind:?} after {took:?}: {fault}"));
                assert!(LONG <= took, "{kind:?}: {took:?}");
                server.join().unwrap();
            });
        }
    });
}

fn be_silent() {
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(LONG);
}

#[test]
fn a_living_process_that_answers_late_is_waited_for() {
    all_are_waited_for(&Request::Space {}, &[], |mut peer| {
        let (number, _, _) = peer.request().unwrap();
        be_silent();
        peer.reply(number, &Reply::Done {}, &[]);
    });
}

#[test]
fn a_living_process_that_is_late_inside_a_frame_is_waited_for() {
    let request = Request::Read { object: OBJECT, at: LocalOffset(0), bytes: 9000 };
    all_are_waited_for(&request, &[], |mut peer| {
        let (number, _, _) = peer.request().unwrap();
        let bytes = sealed_reply(number, &Reply::Data {}, &[1; 9000], peer.stream.data_check());
        peer.send_bytes(&bytes[..5000]);
        be_silent();
        peer.send_bytes(&bytes[5000..]);
    });
}

#[test]
fn a_living_process_that_takes_nothing_for_a_while_is_waited_for() {
    let request = Request::Write { object: OBJECT, at: LocalOffset(0) };
    let data = vec![0; 4 << 20];
    all_are_waited_for(&request, &data, |mut peer| {
        be_silent();
        let (number, _, _) = peer.request().unwrap();
        peer.reply(number, &Reply::Done {}, &[]);
    });
}

#[test]
fn a_living_process_that_greets_late_is_waited_for() {
    let (ours, theirs) = ends(Transport::Unix);
    let server = std::thread::spawn(move || {
        be_silent();
        ScriptedPeer::new(theirs).welcome();
    });
    let (greeted, took) =
        timed(|| Connection::greet(ours, "a place".into(), &hello(), &common::SECRET).map(drop));
    greeted.unwrap();
    assert!(LONG <= took, "{took:?}");
    server.join().unwrap();
}

/// Between nodes: data in transit delays the answer to a ping, but not to a probe.
#[test]
fn a_host_that_answers_a_probe_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut peer = ScriptedPeer::new(Stream::Tcp(listener.accept().unwrap().0));
        peer.welcome();
        let (number, _, _) = peer.request().unwrap();
        let mut probes = 0;
        while probes < 4 {
            let mut probe = ScriptedPeer::new(Stream::Tcp(listener.accept().unwrap().0));
            let greeting = probe.frame().unwrap();
            assert_eq!(greeting.head.kind, FrameKind::Hello);
            probe.send(FrameKind::Reply, 0, &Reply::Failed { fault: Fault::new(Code::TooMany, "full") });
            probes += 1;
        }
        peer.reply(number, &Reply::Done {}, &[]);
    });
    let connection = Connection::open(&address, &hello(), &common::SECRET).unwrap();
    let (answer, took) = timed(|| connection.call(&Request::Space {}));
    answer.unwrap();
    assert!(Duration::from_millis(SILENCE_MS_MAX) < took, "{took:?}");
    server.join().unwrap();
}

/// Other callers do not extend the life of a silent peer.
#[test]
fn a_silent_peer_is_given_up_however_many_ask() {
    let (done, over) = std::sync::mpsc::channel::<()>();
    let (connection, server) = connect(Transport::Relayed, move |_peer| while over.recv().is_ok() {});
    std::thread::scope(|scope| {
        let first = scope.spawn(|| timed(|| connection.call(&Request::Space {}).unwrap_err()));
        let (tick, ticks) = std::sync::mpsc::channel::<()>();
        scope.spawn(|| {
            let ticks = ticks;
            for _ in 0..14 {
                // Requests every 400 ms that no thread awaits, as read-ahead makes them.
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
            // The socket's own buffer holds some.
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

/// A living peer that is slow is waited for as long as it answers pings.
#[test]
fn a_peer_that_lives_is_waited_for() {
    let (connection, server) = connect(Transport::Pair, |mut peer: ScriptedPeer| {
        let (slow, _, _) = peer.request().unwrap();
        // Pings arrive while the client waits; after a few the answer is ready.
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
