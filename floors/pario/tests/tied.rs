//! Clients tied to one server: it forwards requests for blocks of the others.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{difference, each, pattern};
use pario::{Alone, Datatype, Hints};

fn relayed_bytes(partition: &pario::Partition, server: u16) -> u64 {
    let request = pario::message::Request::Status {};
    let answer = partition.mount_handle().call(pario::core::ServerIndex(server), &request).unwrap();
    let pario::message::Reply::Status { json } = answer.reply else { panic!("no status") };
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    find(&status, "relayed_bytes").expect("the server counts what it relays")
}

fn find(value: &serde_json::Value, key: &str) -> Option<u64> {
    match value {
        serde_json::Value::Object(fields) => fields
            .get(key)
            .and_then(serde_json::Value::as_u64)
            .or_else(|| fields.values().find_map(|value| find(value, key))),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_)
        | serde_json::Value::Array(_) => None,
    }
}

#[test]
fn one_server_answers_for_all_blocks() {
    each(|partition| {
        let tied = partition.tied_to(1).unwrap();
        let data = pattern(1 << 20, 3);
        let file = tied.create("f").unwrap();
        file.write_at(0, &data).unwrap();
        let mut back = vec![0; data.len()];
        file.read_exact_at(0, &mut back).unwrap();
        assert_eq!(difference(&data, &back), None);
        file.close().unwrap();
        let plain = partition.open("f").unwrap();
        plain.read_exact_at(0, &mut back).unwrap();
        assert_eq!(difference(&data, &back), None);
        // Two thirds of the blocks are on other servers, and passed through it twice: there and back.
        assert!(1 << 20 < relayed_bytes(partition, 1));
        assert_eq!(relayed_bytes(partition, 2), 0);
    });
}

#[test]
fn a_group_can_be_tied_by_a_hint() {
    each(|partition| {
        let hints = Hints { tied_server: Some(2), ..Hints::default() };
        let options = partition.options().create(true).read(true).write(true);
        let file = options.open_all(&Alone::group(), "f", &hints).unwrap();
        let byte = Datatype::elementary(1).unwrap();
        file.set_view(5, &byte, &byte.resized(0, 3).unwrap()).unwrap();
        let data = pattern(100_000, 4);
        file.write_at_all(0, &data).unwrap();
        let mut back = vec![0; data.len()];
        assert_eq!(file.read_at_all(0, &mut back).unwrap(), data.len());
        assert_eq!(difference(&data, &back), None);
        file.close().unwrap();
        assert!(0 < relayed_bytes(partition, 2));
        let wrong = Hints { tied_server: Some(7), ..Hints::default() };
        let error = partition.options().read(true).open_all(&Alone::group(), "f", &wrong).unwrap_err();
        assert!(error.to_string().contains("3 servers, none is number 7"), "{error}");
    });
}
