//! Pinned bytes of records, and records that were tampered with.

use std::io::{ErrorKind, IoSlice};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::stream::Address;

const SECRET: [u8; 32] = [7; 32];
const NONCES: (&[u8; 32], &[u8; 32]) = (&[1; 32], &[2; 32]);

fn keys(end: End) -> Keys {
    Keys::derive(&SECRET, NONCES, end)
}

fn sealed(traffic: &mut Traffic, plain: &[u8]) -> Vec<u8> {
    let mut record = vec![0; LENGTH_BYTES + plain.len() + TAG_BYTES];
    record[LENGTH_BYTES..LENGTH_BYTES + plain.len()].copy_from_slice(plain);
    traffic.seal(&mut record);
    record
}

#[test]
fn bytes_are_pinned() {
    let mut sending = keys(End::Client).sending;
    let first = sealed(&mut sending, b"pario");
    let second = sealed(&mut sending, b"pario");
    let back = sealed(&mut keys(End::Server).sending, b"pario");
    assert_eq!(first[..4], [5, 0, 0, 0]);
    assert_eq!(hex(&first[4..]), "60e0b1147dd91745afb4ded5c5f41353e39344ce79");
    assert_eq!(hex(&second[4..]), "fb236a44c7db66ec34c3a2df6b7f4c4e48eaf9299e");
    assert_eq!(hex(&back[4..]), "9d160693b96fab414956deda69f4c65cd1f8486b4f");
    // The first record under the next key.
    sending.record = RECORDS_PER_KEY;
    assert_eq!(hex(&sealed(&mut sending, b"pario")[4..]), "588b324d9edde54d48b0d2996619dddb6c946bec68");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn both_ends_change_keys_at_the_same_record() {
    let (mut sending, mut receiving) = (keys(End::Client).sending, keys(End::Server).receiving);
    (sending.record, receiving.record) = (RECORDS_PER_KEY - 2, RECORDS_PER_KEY - 2);
    for round in 0..5u8 {
        let mut record = sealed(&mut sending, &[round; 100]);
        receiving.open(&mut record).unwrap();
        assert_eq!(record[LENGTH_BYTES..LENGTH_BYTES + 100], [round; 100]);
    }
    assert_eq!((sending.before, sending.record), (RECORDS_PER_KEY, 3));
}

/// A protected stream and the raw socket at its other end.
fn half(end: End) -> (Stream, TcpStream) {
    let (stream, other) = plain_pair();
    (stream.protected(keys(end)), other)
}

fn plain_pair() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = Stream::connect(&Address::Tcp(listener.local_addr().unwrap())).unwrap();
    (stream, listener.accept().unwrap().0)
}

fn pair() -> (Stream, Stream) {
    let (client, server) = plain_pair();
    (client.protected(keys(End::Client)), Stream::Tcp(server).protected(keys(End::Server)))
}

fn receive_all(stream: &Stream, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match stream.receive(&mut all[filled..], &mut Vec::new()) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(stream.wait_readable(Duration::from_secs(10)).unwrap(), "no data arrives");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[test]
fn bytes_come_through_in_any_parts_both_ways() {
    let (client, server) = pair();
    for bytes in [1, 100, 4076, 4077, 65_535, 65_536, 65_537, 262_224, 1_000_003] {
        let data: Vec<u8> = (0..bytes).map(|at: usize| u8::try_from(at % 251).unwrap()).collect();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (first, rest) = data.split_at(bytes / 3);
            let received = std::thread::scope(|scope| {
                let received = scope.spawn(|| receive_all(to, bytes).unwrap());
                let mut parts = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)];
                from.send_all(&mut parts, &[]).unwrap();
                received.join().unwrap()
            });
            assert!(received == data, "{bytes} bytes");
            assert!(!from.has_unsent() && !to.has_pending());
        }
    }
}

#[test]
fn what_is_received_in_parts_is_pending_meanwhile() {
    let (client, server) = pair();
    client.send_all(&mut [IoSlice::new(&[1; 100])], &[]).unwrap();
    client.send_all(&mut [IoSlice::new(&[2; 100])], &[]).unwrap();
    assert_eq!(receive_all(&server, 50).unwrap(), [1; 50]);
    assert!(server.has_pending(), "half a record is decrypted");
    assert!(server.wait_readable(Duration::ZERO).unwrap() && !server.has_ended());
    assert_eq!(receive_all(&server, 150).unwrap(), [[1; 50].as_slice(), &[2; 100]].concat());
    assert!(!server.has_pending() && !server.wait_readable(Duration::ZERO).unwrap());
    drop(client);
    assert!(server.wait_readable(Duration::from_secs(10)).unwrap() && server.has_ended());
    assert_eq!(server.receive(&mut [0; 10], &mut Vec::new()).unwrap(), 0);
}

/// A peer that does not read: sealed bytes wait, none is lost or sent twice.
#[test]
fn sealed_bytes_wait_for_room() {
    let (client, server) = pair();
    let data = vec![5u8; 1 << 20];
    let (mut sent, mut blocked) = (0, false);
    let mut received = Vec::new();
    while sent < 64 << 20 {
        match client.send_some(&[IoSlice::new(&data)], &[]) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                blocked = true;
                break;
            }
        }
    }
    assert!(blocked && client.has_unsent(), "the peer's window is full");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| receive_all(&server, sent).unwrap());
        while !client.flush().unwrap() {
            std::thread::yield_now();
        }
        received = reader.join().unwrap();
    });
    assert!(received.len() == sent && received.iter().all(|byte| *byte == 5));
}

/// What a man in the middle may do to two records, and the error that each gives.
#[test]
fn tampered_records_are_errors_and_their_bytes_reach_no_caller() {
    let mut sending = keys(End::Client).sending;
    let (first, second) = (sealed(&mut sending, &[1; 50]), sealed(&mut sending, &[2; 60]));
    let flipped = |at: usize| {
        let mut record = first.clone();
        record[at] ^= 1;
        record
    };
    let forged = "was altered, repeated, dropped or moved";
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("a flipped bit", flipped(20), forged),
        ("a flipped bit of the tag", flipped(first.len() - 1), forged),
        ("a shorter length", [&[49, 0, 0, 0], &first[4..], &second[..]].concat(), forged),
        ("a longer length", [&[51, 0, 0, 0], &first[4..], &second[..]].concat(), forged),
        ("no length", flipped(2), "record of 65586 bytes"),
        ("order", [&second[..], &first[..]].concat(), forged),
        ("a missing record", second.clone(), forged),
        ("a reflected record", sealed(&mut keys(End::Server).sending, &[3; 50]), forged),
        ("a cut", first[..30].to_vec(), "cut off inside a record"),
    ];
    for (what, bytes, expected) in cases {
        let (server, mut wire) = half(End::Server);
        std::io::Write::write_all(&mut wire, &bytes).unwrap();
        drop(wire);
        let error = receive_all(&server, 1).unwrap_err();
        assert!(error.to_string().contains(expected), "{what}: {error}");
        assert!(server.receive(&mut [0; 100], &mut Vec::new()).is_err(), "{what}: it stays failed");
    }
    let (server, mut wire) = half(End::Server);
    std::io::Write::write_all(&mut wire, &[&first[..], &first[..]].concat()).unwrap();
    assert_eq!(receive_all(&server, 50).unwrap(), [1; 50]);
    assert!(receive_all(&server, 1).unwrap_err().to_string().contains(forged), "a repeated record");
}

#[test]
fn other_secrets_and_nonces_give_other_keys() {
    let mut record = sealed(&mut keys(End::Client).sending, b"pario");
    let others = [
        Keys::derive(&[8; 32], NONCES, End::Server),
        Keys::derive(&SECRET, (&[1; 32], &[3; 32]), End::Server),
        Keys::derive(&SECRET, (&[2; 32], &[1; 32]), End::Server),
        keys(End::Client),
    ];
    for mut other in others {
        assert_eq!(other.receiving.open(&mut record.clone()), Err(RecordError::Forged(0)));
    }
    keys(End::Server).receiving.open(&mut record).unwrap();
}

#[test]
fn what_is_protected_follows_from_setting_and_address() {
    let (loopback, _other) = plain_pair();
    let (unix, _there) = Stream::pair().unwrap();
    for (protect, tcp) in [(Protect::Full, false), (Protect::None, false), (Protect::All, true)] {
        assert_eq!((protect.wants(&loopback), protect.wants(&unix)), (tcp, false), "{protect:?}");
    }
}

proptest! {
    /// Noise is an error or waits for more, and never becomes plaintext.
    #[test]
    fn noise_is_never_believed(noise in proptest::collection::vec(any::<u8>(), 1..300), short in any::<bool>()) {
        let (server, mut wire) = half(End::Server);
        let mut noise = noise;
        if short && 3 < noise.len() {
            noise[..4].copy_from_slice(&20u32.to_le_bytes());
        }
        std::io::Write::write_all(&mut wire, &noise).unwrap();
        drop(wire);
        prop_assert!(receive_all(&server, 1).is_err());
    }
}
