//! Memory for answers that is known from the start of a request: filled by whichever thread reads, let go when the answer has come or the
//! connection has failed.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{KINDS, connect, sealed_reply};
use pario_core::{Clock, Code, Generation, InodeId, LocalOffset, ObjectId};
use pario_net::connection::Connection;
use pario_net::message::{Reply, Request};
use pario_sys::{MonotonicClock, PartedBuffer};

const BYTES: usize = 100_000;

fn read_request() -> Request {
    let object = ObjectId { inode: InodeId(5), generation: Generation(0) };
    Request::Read { object, at: LocalOffset(0), bytes: 0 }
}

/// A buffer, and a part with ranges in another order than memory.
fn buffer() -> (PartedBuffer<Vec<u8>>, pario_sys::BufferPart) {
    let (buffer, mut parts) = PartedBuffer::new(vec![0; BYTES + 10], &[vec![BYTES / 2..BYTES, 0..BYTES / 2]]);
    (buffer, parts.pop().unwrap())
}

fn sent(number: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (at as u64 * 7 + number).to_le_bytes()[0]).collect()
}

#[test]
fn answers_go_to_their_memory_in_any_order_of_waiting() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            while let Some((number, _, _)) = peer.request() {
                peer.send_bytes(&sealed_reply(
                    number,
                    &Reply::Data {},
                    &sent(number),
                    peer.stream.data_check(),
                ));
            }
        });
        let began = MonotonicClock.now();
        let mut started: Vec<_> = (0..8)
            .map(|_| {
                let (buffer, part) = buffer();
                (connection.start_into(&read_request(), part).unwrap(), buffer)
            })
            .collect();
        assert!(connection.unanswered() <= 8);
        // The last one is read by another thread, and all before it on the way.
        let last = Connection::number_of(&started[7].0);
        std::thread::scope(|scope| scope.spawn(|| connection.read_answer(last)).join().unwrap());
        started.reverse();
        for (ticket, buffer) in started {
            let number = Connection::number_of(&ticket);
            assert!(connection.is_answered(&ticket, began), "{kind:?}");
            let answer = connection.wait(ticket, None).unwrap();
            assert!(answer.data.is_empty() && answer.data_bytes == BYTES, "not copied");
            let found = buffer.into_inner().unwrap();
            let expected = sent(number);
            assert!(
                found[BYTES / 2..BYTES] == expected[..BYTES / 2]
                    && found[..BYTES / 2] == expected[BYTES / 2..]
            );
            assert_eq!(found[BYTES..], [0; 10]);
        }
        connection.wait_for_room(1).unwrap();
        connection.close();
        drop(connection);
        server.join().unwrap();
    }
}

#[test]
fn memory_is_let_go_when_the_connection_fails_or_the_request_is_abandoned() {
    for kind in KINDS {
        let (connection, server) = connect(kind, |mut peer| {
            // Half an answer to the first request, and the end.
            let (number, _, _) = peer.request().unwrap();
            let reply = sealed_reply(number, &Reply::Data {}, &sent(number), peer.stream.data_check());
            peer.send_bytes(&reply[..BYTES / 2]);
        });
        let (first, first_part) = buffer();
        let (second, second_part) = buffer();
        let ticket = connection.start_into(&read_request(), first_part).unwrap();
        let error = connection.wait(ticket, None).unwrap_err();
        assert_eq!(error.code, Code::Unreachable, "{kind:?}: {error}");
        assert!(first.into_inner().is_ok(), "let go");
        assert!(connection.start_into(&read_request(), second_part).is_err());
        assert!(second.into_inner().is_ok(), "let go");
        assert!(connection.is_dead() && connection.wait_for_room(0).is_ok());
        drop(connection);
        server.join().unwrap();
    }
    let (connection, server) = connect(KINDS[0], |mut peer| while peer.request().is_some() {});
    let (third, part) = buffer();
    let ticket = connection.start_into(&read_request(), part).unwrap();
    assert!(!connection.is_answered(&ticket, MonotonicClock.now()));
    connection.forget(ticket);
    assert!(third.into_inner().is_ok(), "let go");
    connection.close();
    drop(connection);
    server.join().unwrap();
}
