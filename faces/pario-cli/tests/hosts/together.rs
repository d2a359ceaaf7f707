//! Two hosts, one partition: what one writes the other reads, and in the end neither keeps anything.

use crate::hosts::{Host, Hosts};
use crate::support::{noise, until};

#[test]
fn netns_two_hosts_hold_one_partition() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.up_same_path();
    let bytes = noise(3_000_001);
    std::fs::write(hosts.world.path("f"), &bytes).unwrap();
    for host in Host::BOTH {
        hosts.ok(host, &["cp", "f", &format!("pario://two/from-{}", host.at())]);
    }
    for host in Host::BOTH {
        assert_eq!(
            hosts.ok(host, &["ls", "pario://two/"]).split_whitespace().collect::<Vec<_>>(),
            ["from-0", "from-1"]
        );
        for writer in Host::BOTH {
            let path = format!("pario://two/from-{}", writer.at());
            let back = hosts.world.text(&format!("back-{}-{}", host.at(), writer.at()));
            hosts.ok(host, &["cp", &path, &back]);
            assert!(std::fs::read(&back).unwrap() == bytes, "{path} as {host:?} copies it");
            let printed = hosts.on(host, env!("CARGO_BIN_EXE_pario"), &["cat", &path]).output().unwrap();
            assert!(printed.stdout == bytes, "{path} as {host:?} prints it");
        }
        let status = hosts.json(host, &["status", "two"]);
        for server in Host::BOTH {
            let server = &status[0]["servers"][server.at()];
            assert_eq!(server["health"], "ok", "{status}");
        }
        assert!(hosts.ok(host, &["doctor", "two"]).contains("two"), "nothing is wrong with it");
    }
    // Blocks were dealt to both disks.
    for host in Host::BOTH {
        let objects = hosts.disk(host).join("data/objects");
        assert!(objects.exists(), "{}", objects.display());
    }
    hosts.ok(Host::B, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

#[test]
fn netns_data_outlives_a_down_on_both_hosts() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.up_same_path();
    std::fs::write(hosts.world.path("f"), noise(500_000)).unwrap();
    hosts.ok(Host::B, &["cp", "f", "pario://two/f"]);
    hosts.ok(Host::A, &["down", "two"]);
    assert!(until(|| hosts.processes().is_empty()), "both servers end");
    hosts.ok(Host::A, &["up", "two"]);
    hosts.ok(Host::B, &["cp", "pario://two/f", "back"]);
    assert!(std::fs::read(hosts.world.path("back")).unwrap() == noise(500_000));
    // One that died is started again where it was.
    let pids = hosts.server_pids();
    crate::support::kill(pids[1], rustix::process::Signal::KILL);
    assert!(until(|| hosts.processes().len() == 1));
    let line = hosts.pario(Host::A, &["cat", "pario://two/f"]);
    assert!(line.code != 0 && line.err.contains("server 1"), "{line:?}");
    hosts.ok(Host::A, &["up", "two"]);
    hosts.ok(Host::A, &["cp", "pario://two/f", "again"]);
    assert!(std::fs::read(hosts.world.path("again")).unwrap() == noise(500_000));
    hosts.ok(Host::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

/// A server that was gone cannot remove its data; that is said, and not passed off as done.
#[test]
fn netns_what_a_dead_server_leaves_is_named() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.up_same_path();
    crate::support::kill(hosts.server_pids()[1], rustix::process::Signal::KILL);
    assert!(until(|| hosts.processes().len() == 1));
    let said = hosts.pario(Host::A, &["down", "two", "--destroy"]);
    let left = format!("data stays at {}:{}", Host::B.address(), hosts.world.text("disk/data"));
    assert!(said.code != 0 && said.err.contains(&left), "{said:?}");
    assert!(hosts.disk(Host::B).join("data/identity").exists() && !hosts.disk(Host::A).join("data").exists());
    assert_eq!(hosts.json(Host::A, &["status"]), serde_json::json!([]));
}
