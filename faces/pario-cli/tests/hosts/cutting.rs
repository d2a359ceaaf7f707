//! The cable between two hosts is pulled: requests to the other host fail with an error, local ones succeed, and all succeed
//! after it is plugged in again.

use std::time::Duration;

use crate::client::{CHILD, ClientProcess};
use crate::hosts::{TestHost, TestHosts};
use crate::support::until;

/// Promised are 5 s; a busy machine gets some more.
const ERROR_LIMIT: Duration = Duration::from_secs(8);

fn client(hosts: &TestHosts, host: TestHost) -> ClientProcess {
    ClientProcess::start(&mut hosts.on(host, std::env::current_exe().unwrap(), &CHILD), "two")
}

/// The order fails, soon, and names the server.
#[track_caller]
fn assert_fails(client: &mut ClientProcess, order: &str, server: usize) {
    let answer = client.execute(order);
    let took = answer.took;
    let fault = answer.fault();
    assert!(fault.contains(&format!("server {server}")), "{order}: {fault}");
    assert!(took < ERROR_LIMIT, "{order}: told after {took:?}");
}

#[test]
fn netns_a_cut_link_is_told_and_mended() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    let mut client = client(&hosts, TestHost::A);
    for (path, layout) in [("near", "1 0"), ("far", "1 1"), ("both", "2 0"), ("lost", "1 1")] {
        client.execute(&format!("create {path} {layout}")).ok();
        client.execute(&format!("write {path} 1 200000")).ok();
        client.execute(&format!("sync {path}")).ok();
    }
    hosts.set_cable("down");
    // In the middle of a conversation: the connection is there, the other side is silent.
    assert_fails(&mut client, "write far 2 200000", 1);
    // The connection is broken and cannot be restored.
    assert_fails(&mut client, "write both 2 200000", 1);
    assert_fails(&mut client, "check lost 1 200000", 1);
    for seed in 2..6 {
        for order in ["write", "check"] {
            let answer = client.execute(&format!("{order} near {seed} 200000"));
            assert!(answer.took < Duration::from_secs(2), "a file on the own server waits: {answer:?}");
            answer.ok();
        }
        client.execute("sync near").ok();
    }
    let status = hosts.pario(TestHost::A, &["status", "two"]);
    assert!(
        status.code == 3 && status.out.contains("partly running") && status.out.contains("unreachable"),
        "{status:?}"
    );
    hosts.set_cable("up");
    // The same session and the same handles continue.
    assert!(until(|| client.execute("write far 9 200000").fault.is_none()), "the far server is found again");
    for path in ["far", "both"] {
        client.execute(&format!("write {path} 9 200000")).ok();
        assert!(
            until(|| client.execute(&format!("sync {path}")).fault.is_none()),
            "what failed is told, then it works"
        );
        client.execute(&format!("check {path} 9 200000")).ok();
    }
    client.execute("check lost 1 200000").ok();
    client.execute("check near 5 200000").ok();
    for path in ["near", "far", "both", "lost"] {
        client.execute(&format!("close {path}")).ok();
    }
    assert_eq!(client.end(), 0);
    hosts.ok(TestHost::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

#[test]
fn netns_cut_off_from_the_manager_is_told_and_mended() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    let mut far = client(&hosts, TestHost::B);
    let mut near = client(&hosts, TestHost::A);
    far.execute("create from-b 2 0").ok();
    far.execute("write from-b 1 300000").ok();
    far.execute("sync from-b").ok();
    near.execute("create from-a 1 0").ok();
    hosts.set_cable("down");
    assert_fails(&mut far, "stat from-b", 0);
    assert_fails(&mut far, "create other 1 1", 0);
    near.execute("write from-a 3 300000").ok();
    near.execute("sync from-a").ok();
    hosts.set_cable("up");
    assert!(until(|| far.execute("stat from-a").fault.is_none()), "the manager is found again");
    far.execute("create from-a 1 0").ok();
    far.execute("check from-a 3 300000").ok();
    near.execute("create from-b 2 0").ok();
    near.execute("check from-b 1 300000").ok();
    far.execute("write from-b 2 300000").ok();
    far.execute("sync from-b").ok();
    near.execute("check from-b 2 300000").ok();
}
