//! Servers on other hosts, when they or the command that started them die.

use rustix::process::Signal;

use crate::client::{CHILD, ClientProcess};
use crate::hosts::{ADDRESSES, TestHost, TestHosts};
use crate::support::{RunningCommand, kill, until};

#[test]
fn netns_only_the_server_that_died_is_restarted() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    let mut client =
        ClientProcess::start(&mut hosts.on(TestHost::A, std::env::current_exe().unwrap(), &CHILD), "two");
    for (path, layout) in [("near", "1 0"), ("far", "1 1")] {
        client.execute(&format!("create {path} {layout}")).ok();
        client.execute(&format!("write {path} 1 200000")).ok();
        client.execute(&format!("sync {path}")).ok();
    }
    let before = hosts.server_pids();
    kill(before[1], Signal::KILL);
    client.execute("write near 2 200000").ok();
    let line = hosts.ok(TestHost::A, &["up", "two"]);
    assert!(line.starts_with("two: 1 of 2 servers restarted"), "{line}");
    let now = hosts.server_pids();
    assert_eq!(now[0], before[0]);
    assert_ne!(now[1], before[1]);
    // It has another port; the client and the manager find it.
    client.execute("check near 2 200000").ok();
    client.execute("check far 1 200000").ok();
    client.execute("write far 3 200000").ok();
    client.execute("sync far").ok();
    client.execute("check far 3 200000").ok();
    hosts.ok(TestHost::A, &["truncate", "-s", "0", "pario://two/far"]);
    hosts.ok(TestHost::A, &["rm", "pario://two/far"]);
    drop(client);
    hosts.ok(TestHost::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

#[test]
fn netns_far_servers_end_with_a_run_that_is_killed() {
    let Some(hosts) = TestHosts::new() else { return };
    let (dir, launch) =
        (hosts.world.text("disk/data"), format!("{} {{host}} {{command}}", hosts.world.text("enter")));
    let servers = ADDRESSES.map(|address| format!("{address}:{dir}"));
    let file = format!("name = \"two\"\nservers = {servers:?}\nlaunch = {launch:?}\n");
    std::fs::write(hosts.world.path("two.toml"), file).unwrap();
    let runs = hosts.world.text("runs");
    let script = "exec > /dev/null 2>&1; echo x > $0; while test -e $0; do sleep 0.02; done";
    let words = ["run", "--file", "two.toml", "--", "sh", "-c", script, &runs];
    let running = RunningCommand::start(&mut hosts.on(TestHost::A, env!("CARGO_BIN_EXE_pario"), &words));
    assert!(until(|| hosts.world.path("runs").exists()));
    assert_eq!(hosts.server_pids().len(), 2);
    kill(running.pid(), Signal::KILL);
    running.said();
    // Checked from outside only: entries may be removed at the same time.
    let empty = |host: TestHost| {
        std::fs::read_dir(hosts.disk(host)).is_ok_and(|mut entries| entries.next().is_none())
    };
    assert!(until(|| TestHost::BOTH.into_iter().all(empty)), "what was stored is removed on both hosts");
    std::fs::remove_file(hosts.world.path("runs")).unwrap();
    hosts.assert_nothing_left();
}
