//! A call that waits for longer than a second logs the reason that its server reported, once.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Transport, connect, sealed_reply};
use pario_core::{Generation, InodeId, LocalOffset, ObjectId};
use pario_net::frame::{self, DataCheck, FrameKind};
use pario_net::message::{Notice, Reply, Request};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The texts of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_reason_of_a_long_wait_is_logged_once() {
    let (connection, server) = connect(Transport::Pair, |mut peer| {
        while let Some((number, _, _)) = peer.request() {
            // The second request is answered at once: its reason is not worth a line.
            let rounds = if number == 1 { 12 } else { 1 };
            for _ in 0..rounds {
                let notice =
                    Notice::Waiting { request: number, on: format!("inode {number} is held by client 7") };
                peer.send_bytes(&frame::seal(FrameKind::Notice, 0, &notice, &[], DataCheck::None));
                if number == 1 {
                    std::thread::park_timeout(Duration::from_millis(150));
                }
            }
            peer.send_bytes(&sealed_reply(number, &Reply::Data {}, &[], peer.stream.data_check()));
        }
    });
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        for number in 1..=2 {
            let object = ObjectId { inode: InodeId(5), generation: Generation(0) };
            let request = Request::Read { object, at: LocalOffset(0), bytes: 0 };
            let ticket = connection.start_as(number, &request, &[], &[]).unwrap();
            connection.wait(ticket, None).unwrap();
        }
    });
    connection.close();
    drop(connection);
    server.join().unwrap();
    let logged = warnings.0.lock().unwrap();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("inode 1 is held by client 7"), "{logged:?}");
}
