//! A man in the middle of a protected connection: any tampering ends it with an error, acknowledged data stays, and the capture reveals
//! nothing.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::proxy::{ATTACKS, Attack, Proxy, Toward};
use common::{LIMIT, Raw, SECRET, ServerFixture, hello, object};
use pario_core::{Clock, Code, Fault, LocalOffset};
use pario_net::connection::Connection;
use pario_net::frame::{self, DataCheck, FrameKind};
use pario_net::greeting::{self, Challenge, Hello};
use pario_net::message::{Reply, Request};
use pario_net::protect::Protect;
use pario_net::stream::{Address, Stream};
use pario_sys::clock::MonotonicClock;

const DATA_BYTES: usize = 300_000;

fn open(proxy: &Proxy, protect: bool) -> Result<Connection, Fault> {
    Connection::open(&Address::Tcp(proxy.address), &Hello { protect, ..hello() }, &SECRET)
}

fn write(connection: &Connection, at: u64, data: &[u8]) -> Result<(), Fault> {
    let ticket =
        connection.start(&Request::Write { object: object(2), at: LocalOffset(at) }, &[data], &[])?;
    connection.wait(ticket, None).map(drop)
}

fn read(connection: &Connection, at: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
    let request =
        Request::Read { object: object(2), at: LocalOffset(at), bytes: u32::try_from(bytes).unwrap() };
    connection.call(&request).map(|answer| answer.data)
}

fn data(seed: usize) -> Vec<u8> {
    (0..DATA_BYTES).map(|at| u8::try_from((at * 31 + seed * 7 + at / 253) % 256).unwrap()).collect()
}

fn refused(connection: &Connection) -> u64 {
    let answer = connection.call(&Request::Status {}).unwrap();
    let Reply::Status { json } = answer.reply else { panic!("no status") };
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    status["counters"]["refused"].as_u64().unwrap()
}

/// Each attack in each direction: the call fails, later calls fail immediately, the server counts it and continues, and data acknowledged
/// before is present.
#[test]
fn whatever_he_does_the_connection_ends_and_acknowledged_data_stays() {
    let world = ServerFixture::with(Protect::All);
    let proxy = Proxy::start(world.server.tcp_address().unwrap(), true);
    let direct = world.connect();
    for (seed, attack) in ATTACKS.into_iter().enumerate() {
        for toward in [Toward::Server, Toward::Client] {
            let what = format!("{attack:?} toward {toward:?}");
            let connection = open(&proxy, true).unwrap();
            let acknowledged = data(seed);
            write(&connection, 0, &acknowledged).unwrap();
            assert!(read(&connection, 0, DATA_BYTES).unwrap() == acknowledged, "{what}");
            let before = refused(&direct);
            proxy.arm(toward, attack);
            let began = MonotonicClock.now();
            // A repeated or inserted record is detected when the next one is read, so there is a next one. Several records in each
            // direction.
            let results = [
                write(&connection, 1 << 20, &[3; 200_000]).err(),
                read(&connection, 0, DATA_BYTES).err(),
                read(&connection, 0, DATA_BYTES).err(),
            ];
            assert!(proxy.has_struck(), "{what}");
            let fault = results.into_iter().flatten().next().unwrap_or_else(|| panic!("{what}: no error"));
            assert_eq!(fault.code, Code::Unreachable, "{what}: {fault}");
            assert!(MonotonicClock.now().since(began) < LIMIT, "{what}");
            if toward == Toward::Client {
                let told =
                    if attack == Attack::Cut { "cut off" } else { "was altered, repeated, dropped or moved" };
                // A dropped record is detected at the next one: a ping's reply.
                assert!(fault.text.contains(told), "{what}: {fault}");
            } else {
                // The server may notice the cut after the client.
                while refused(&direct) <= before {
                    let waited = MonotonicClock.now().since(began);
                    assert!(waited < LIMIT, "{what}: the server says why it ended the connection");
                }
            }
            assert!(connection.broken().is_some() && write(&connection, 0, b"later").is_err(), "{what}");
            assert!(read(&direct, 0, DATA_BYTES).unwrap() == acknowledged, "{what}: acknowledged data");
        }
    }
}

/// The capture contains none of the plaintext; without protection it does, so the capture works.
#[test]
fn he_reads_nothing() {
    let secret = b"the quick brown fox jumps over the lazy dog 0123456789".repeat(100);
    for protect in [Protect::All, Protect::None] {
        let world = ServerFixture::with(protect);
        let protected = protect == Protect::All;
        let proxy = Proxy::start(world.server.tcp_address().unwrap(), protected);
        let connection = open(&proxy, protected).unwrap();
        write(&connection, 0, &secret).unwrap();
        assert!(read(&connection, 0, secret.len()).unwrap() == secret);
        let seen = proxy.seen();
        assert!(2 * secret.len() < seen.len(), "he sees all that passes");
        let found = seen.windows(20).any(|window| window == &secret[..20]);
        assert_eq!(found, !protected, "{protect:?}");
    }
}

/// Both ends must request the same protection; both proofs cover the agreement.
#[test]
fn a_mismatch_names_the_key() {
    for (protect, asked) in [(Protect::All, false), (Protect::None, true)] {
        let world = ServerFixture::with(protect);
        let address = Address::Tcp(world.server.tcp_address().unwrap());
        let fault = Connection::open(&address, &Hello { protect: asked, ..hello() }, &SECRET).unwrap_err();
        assert_eq!(fault.code, Code::Invalid, "{fault}");
        assert!(fault.text.contains("network.protect"), "{fault}");
        let agreed = Hello { protect: !asked, ..hello() };
        Connection::open(&address, &agreed, &SECRET).unwrap().call(&Request::Ping {}).unwrap();
    }
}

/// A plain request directly after the proof is not accepted as the client's, protected or not.
#[test]
fn a_request_in_the_shadow_of_the_proof_ends_the_connection() {
    let world = ServerFixture::with(Protect::All);
    for protect in [true, false] {
        let stream = match protect {
            true => Stream::connect(&Address::Tcp(world.server.tcp_address().unwrap())).unwrap(),
            false => world.server.connect().unwrap(),
        };
        let mut raw = Raw::new(stream);
        let hello = Hello { protect, ..hello() };
        raw.send(FrameKind::Hello, &hello);
        let challenge: Challenge = raw.frame().unwrap().message().unwrap();
        let proof = greeting::answer(&SECRET, &hello, &challenge).unwrap();
        let mut bytes = frame::seal(FrameKind::Proof, 1, &proof, &[], DataCheck::None);
        bytes.extend(frame::seal(
            FrameKind::Request,
            2,
            &Request::Shutdown { destroy: true },
            &[],
            DataCheck::None,
        ));
        raw.send_bytes(&bytes).unwrap();
        // The proof is valid, so a welcome may arrive; then the server closes the connection.
        let ended = || matches!(raw.stream.receive(&mut [0; 4096], &mut Vec::new()), Ok(0));
        while raw.stream.wait_readable(LIMIT).unwrap() && !ended() {}
        assert!(raw.stream.has_ended(), "the server hangs up");
    }
    world.connect().call(&Request::Ping {}).unwrap();
}

/// Many small concurrent requests: some of them are decrypted before they are read, and none is lost.
#[test]
fn many_requests_in_flight_are_all_answered() {
    let world = ServerFixture::with(Protect::All);
    let address = Address::Tcp(world.server.tcp_address().unwrap());
    let connection = Connection::open(&address, &Hello { protect: true, ..hello() }, &SECRET).unwrap();
    let all = data(1);
    write(&connection, 0, &all).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (connection, all) = (&connection, &all);
            scope.spawn(move || {
                for round in 0..40 {
                    let at = (thread * 1000 + round * 17) % 200_000;
                    let tickets: Vec<_> = (0..20)
                        .map(|_| {
                            let request =
                                Request::Read { object: object(2), at: LocalOffset(at), bytes: 100 };
                            connection.start(&request, &[], &[]).unwrap()
                        })
                        .collect();
                    for ticket in tickets {
                        let answer = connection.wait(ticket, None).unwrap();
                        let at = usize::try_from(at).unwrap();
                        assert_eq!(answer.data, all[at..at + 100]);
                    }
                }
            });
        }
    });
}
