//! The cable between two hosts is pulled: who needs the other host is told so, who does not goes on, and afterwards all is well.

use std::time::Duration;

use crate::client::{CHILD, Client};
use crate::hosts::{Host, Hosts};
use crate::support::until;

/// Promised are 5 s; a busy machine gets some more.
const TOLD_LIMIT: Duration = Duration::from_secs(8);

fn client(hosts: &Hosts, host: Host) -> Client {
    Client::start(&mut hosts.on(host, std::env::current_exe().unwrap(), &CHILD), "two")
}

/// The order fails, soon, and names the server.
#[track_caller]
fn told(client: &mut Client, order: &str, server: usize) {
    let answer = client.ask(order);
    let took = answer.took;
    let fault = answer.fault();
    assert!(fault.contains(&format!("server {server}")), "{order}: {fault}");
    assert!(took < TOLD_LIMIT, "{order}: told after {took:?}");
}

#[test]
fn netns_a_cut_link_is_told_and_mended() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.up_same_path();
    let mut client = client(&hosts, Host::A);
    for (path, layout) in [("near", "1 0"), ("far", "1 1"), ("both", "2 0"), ("lost", "1 1")] {
        client.ask(&format!("create {path} {layout}")).ok();
        client.ask(&format!("write {path} 1 200000")).ok();
        client.ask(&format!("sync {path}")).ok();
    }
    hosts.set_cable("down");
    // In the middle of a conversation: the connection is there, the other side is silent.
    told(&mut client, "write far 2 200000", 1);
    // The connection is gone and cannot be made anew.
    told(&mut client, "write both 2 200000", 1);
    told(&mut client, "check lost 1 200000", 1);
    for seed in 2..6 {
        for order in ["write", "check"] {
            let answer = client.ask(&format!("{order} near {seed} 200000"));
            assert!(answer.took < Duration::from_secs(2), "a file on the own server waits: {answer:?}");
            answer.ok();
        }
        client.ask("sync near").ok();
    }
    let status = hosts.pario(Host::A, &["status", "two"]);
    assert!(
        status.code == 3 && status.out.contains("partly running") && status.out.contains("unreachable"),
        "{status:?}"
    );
    hosts.set_cable("up");
    // The same mount and the same handles go on.
    assert!(until(|| client.ask("write far 9 200000").fault.is_none()), "the far server is found again");
    for path in ["far", "both"] {
        client.ask(&format!("write {path} 9 200000")).ok();
        assert!(
            until(|| client.ask(&format!("sync {path}")).fault.is_none()),
            "what failed is told, then it works"
        );
        client.ask(&format!("check {path} 9 200000")).ok();
    }
    client.ask("check lost 1 200000").ok();
    client.ask("check near 5 200000").ok();
    for path in ["near", "far", "both", "lost"] {
        client.ask(&format!("close {path}")).ok();
    }
    assert_eq!(client.end(), 0);
    hosts.ok(Host::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

#[test]
fn netns_cut_off_from_the_manager_is_told_and_mended() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.up_same_path();
    let mut far = client(&hosts, Host::B);
    let mut near = client(&hosts, Host::A);
    far.ask("create from-b 2 0").ok();
    far.ask("write from-b 1 300000").ok();
    far.ask("sync from-b").ok();
    near.ask("create from-a 1 0").ok();
    hosts.set_cable("down");
    told(&mut far, "stat from-b", 0);
    told(&mut far, "create other 1 1", 0);
    near.ask("write from-a 3 300000").ok();
    near.ask("sync from-a").ok();
    hosts.set_cable("up");
    assert!(until(|| far.ask("stat from-a").fault.is_none()), "the manager is found again");
    far.ask("create from-a 1 0").ok();
    far.ask("check from-a 3 300000").ok();
    near.ask("create from-b 2 0").ok();
    near.ask("check from-b 1 300000").ok();
    far.ask("write from-b 2 300000").ok();
    far.ask("sync from-b").ok();
    near.ask("check from-b 2 300000").ok();
}
