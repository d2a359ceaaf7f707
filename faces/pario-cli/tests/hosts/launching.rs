//! Launch commands that fail or hang: `up` names the server and the cause within its limit, and undoes the start.

use rustix::time::{ClockId, clock_gettime};

use crate::hosts::{ADDRESSES, TestHost, TestHosts, install};
use crate::support::{CliFixture, until};

/// A partition file `p.toml` with these servers, those of other hosts being reached by a script.
fn partition_file(world: &CliFixture, servers: &[String], script: &str) {
    let launch = world.path("launch");
    install(&format!("#!/bin/sh\n{script}\n"), &launch);
    let launch = format!("{} {{host}} {{command}}", launch.display());
    let text = format!("name = \"p\"\nservers = {servers:?}\nlaunch = {launch:?}\n");
    std::fs::write(world.path("p.toml"), text).unwrap();
}

/// Two servers on hosts that are nowhere.
fn elsewhere(world: &CliFixture) -> [String; 2] {
    ["192.0.2.8", "192.0.2.9"].map(|host| format!("{host}:{}/{host}", world.text("data")))
}

fn seconds() -> i64 {
    clock_gettime(ClockId::Monotonic).tv_sec
}

#[test]
fn a_launch_command_that_fails_is_quoted() {
    let world = CliFixture::new();
    partition_file(&world, &elsewhere(&world), "echo \"cannot reach $1 today\" >&2\nexit 1");
    let line = world.fails(1, &["up", "p.toml"]);
    for part in [
        "'p'",
        "2 of 2 servers did not start",
        "cannot reach 192.0.2.8 today",
        "cannot reach 192.0.2.9 today",
        "exit status: 1",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    world.assert_nothing_left();
}

#[test]
fn a_launch_command_that_is_missing_is_named() {
    let world = CliFixture::new();
    partition_file(&world, &elsewhere(&world), "");
    std::fs::remove_file(world.path("launch")).unwrap();
    let line = world.fails(1, &["up", "p.toml"]);
    assert!(line.contains("cannot run") && line.contains("/launch"), "{line}");
    world.assert_nothing_left();
}

#[test]
fn a_launch_command_that_hangs_is_ended() {
    let world = CliFixture::new();
    partition_file(&world, &elsewhere(&world), "echo \"asking $1 in vain\" >&2\nexec sleep 600");
    let began = seconds();
    let line = world.fails(1, &["up", "p.toml", "--timeout", "2"]);
    let took = seconds() - began;
    assert!(took < 12, "up took {took} s with a limit of 2 s");
    for part in [
        "2 of 2 servers did not start",
        "server 0",
        "server 1",
        "no answer within 2 s: asking 192.0.2.8 in vain",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(until(|| world.processes().is_empty()), "left behind: {:?}", world.processes());
    world.assert_nothing_left();
}

/// The first server starts, the second does not: the first must end, and its directory must be removed.
#[test]
fn netns_one_that_fails_takes_the_others_along() {
    let Some(hosts) = TestHosts::new() else { return };
    let dir = hosts.world.text("disk/data");
    let servers = ADDRESSES.map(|address| format!("{address}:{dir}"));
    for (script, why) in
        [("echo no way >&2\nexit 7", "exit status: 7: no way"), ("exec sleep 600", "no answer within 2 s")]
    {
        partition_file(&hosts.world, &servers, script);
        let said = hosts.pario(TestHost::A, &["up", "p.toml", "--timeout", "2"]);
        assert_eq!((said.code, said.err.lines().count()), (1, 1), "{said:?}");
        for part in ["1 of 2 servers did not start", &format!("server 1 ({}", servers[1]), why] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
        hosts.assert_nothing_left();
    }
}
