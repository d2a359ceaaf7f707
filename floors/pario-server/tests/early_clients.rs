//! Clients that connect to a manager before its names are open are refused with that reason: an admitted client would be unknown to the
//! names.

mod common;

use common::{LIMIT, PARTITION, SECRET, ServerFixture, hello, layout};
use pario_core::{Clock, Code};
use pario_net::connection::Connection;
use pario_net::greeting::{ConnectionPurpose, Hello};
use pario_net::message::{At, NameRequest, Request};
use pario_net::protect::Protect;
use pario_server::names::LedgerSpec;
use pario_server::stores::names_in;
use pario_server::{Server, ServerSpec};
use pario_sys::clock::MonotonicClock;

#[test]
fn a_manager_takes_clients_when_its_names_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ServerSpec { names: None, ..ServerFixture::spec(dir.path(), Protect::default()) };
    let server = Server::start_before_names(spec).unwrap();
    let greet = |purpose: ConnectionPurpose| {
        let stream = server.connect().unwrap();
        Connection::greet(stream, "test".into(), &Hello { purpose, partition: PARTITION, ..hello() }, &SECRET)
    };
    for purpose in [ConnectionPurpose::Requests {}, ConnectionPurpose::Notices {}] {
        let fault = greet(purpose).unwrap_err();
        assert_eq!(fault.code, Code::Unreachable, "{fault}");
        assert!(fault.text.contains("starting"), "{fault}");
    }
    greet(ConnectionPurpose::Peer {}).unwrap();
    server.open_names(&names_in(&dir.path().join("names"), layout()), LedgerSpec::default()).unwrap();
    let began = MonotonicClock.now();
    let connection = loop {
        match greet(ConnectionPurpose::Requests {}) {
            Ok(connection) => break connection,
            Err(fault) => assert!(MonotonicClock.now().since(began) < LIMIT, "{fault}"),
        }
    };
    let stat = Request::Name { request: NameRequest::Stat { at: At::root("/"), follow: true } };
    connection.call(&stat).unwrap();
}
