//! Between two hosts all connections are protected unless the partition disables it; on one host none is.

use crate::client::{CHILD, ClientProcess};
use crate::hosts::{TestHost, TestHosts};

/// Of every connection that the servers have: whether it shares memory, and whether it is protected.
fn connections(value: &serde_json::Value, found: &mut Vec<(bool, bool)>) {
    match value {
        serde_json::Value::Object(fields) => {
            let flag = |name: &str| fields.get(name).and_then(serde_json::Value::as_bool);
            found.extend(flag("shares_memory").zip(flag("protected")));
            fields.values().for_each(|value| connections(value, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| connections(item, found)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

/// The client works, and what leaves its host is protected, or not.
fn check(hosts: &TestHosts, protected: bool) {
    let mut client =
        ClientProcess::start(&mut hosts.on(TestHost::A, std::env::current_exe().unwrap(), &CHILD), "two");
    for (path, layout) in [("near", "1 0"), ("far", "1 1"), ("both", "2 0")] {
        client.execute(&format!("create {path} {layout}")).ok();
        client.execute(&format!("write {path} 1 3000000")).ok();
        client.execute(&format!("sync {path}")).ok();
        client.execute(&format!("check {path} 1 3000000")).ok();
    }
    let mut found = Vec::new();
    connections(&hosts.json(TestHost::A, &["status", "two"]), &mut found);
    let far: Vec<bool> =
        found.iter().filter(|(shares, _)| !shares).map(|(_, protected)| *protected).collect();
    assert!(!far.is_empty() && far.iter().all(|far| *far == protected), "{found:?}");
    assert!(found.iter().all(|(shares, protected)| !(*shares && *protected)), "{found:?}");
}

#[test]
fn netns_what_leaves_a_host_is_protected() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    check(&hosts, true);
}

#[test]
fn netns_protection_can_be_taken_off() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    hosts.ok(TestHost::A, &["down", "two"]);
    let mut up = hosts.on(TestHost::A, env!("CARGO_BIN_EXE_pario"), &["up", "two.toml", "--protect", "none"]);
    assert!(up.output().expect("pario runs").status.success());
    check(&hosts, false);
}
