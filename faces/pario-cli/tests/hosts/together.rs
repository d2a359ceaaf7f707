//! Two hosts, one partition: what one writes the other reads, and in the end neither keeps anything.

use crate::hosts::{TestHost, TestHosts};
use crate::support::{noise, until};

#[test]
fn netns_two_hosts_hold_one_partition() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    let bytes = noise(3_000_001);
    std::fs::write(hosts.world.path("f"), &bytes).unwrap();
    for host in TestHost::BOTH {
        hosts.ok(host, &["cp", "f", &format!("pario://two/from-{}", host.at())]);
    }
    for host in TestHost::BOTH {
        assert_eq!(
            hosts.ok(host, &["ls", "pario://two/"]).split_whitespace().collect::<Vec<_>>(),
            ["from-0", "from-1"]
        );
        for writer in TestHost::BOTH {
            let path = format!("pario://two/from-{}", writer.at());
            let back = hosts.world.text(&format!("back-{}-{}", host.at(), writer.at()));
            hosts.ok(host, &["cp", &path, &back]);
            assert!(std::fs::read(&back).unwrap() == bytes, "{path} as {host:?} copies it");
            let printed = hosts.on(host, env!("CARGO_BIN_EXE_pario"), &["cat", &path]).output().unwrap();
            assert!(printed.stdout == bytes, "{path} as {host:?} prints it");
        }
        let status = hosts.json(host, &["status", "two"]);
        for server in TestHost::BOTH {
            let server = &status[0]["servers"][server.at()];
            assert_eq!(server["health"], "ok", "{status}");
        }
        assert!(hosts.ok(host, &["doctor", "two"]).contains("two"), "nothing is wrong with it");
    }
    // Blocks were dealt to both disks.
    for host in TestHost::BOTH {
        let objects = hosts.disk(host).join("data/objects");
        assert!(objects.exists(), "{}", objects.display());
    }
    hosts.ok(TestHost::B, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

#[test]
fn netns_data_outlives_a_down_on_both_hosts() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    std::fs::write(hosts.world.path("f"), noise(500_000)).unwrap();
    hosts.ok(TestHost::B, &["cp", "f", "pario://two/f"]);
    hosts.ok(TestHost::A, &["down", "two"]);
    assert!(until(|| hosts.processes().is_empty()), "both servers end");
    hosts.ok(TestHost::A, &["up", "two"]);
    hosts.ok(TestHost::B, &["cp", "pario://two/f", "back"]);
    assert!(std::fs::read(hosts.world.path("back")).unwrap() == noise(500_000));
    // One that died is started again where it was.
    let pids = hosts.server_pids();
    crate::support::kill(pids[1], rustix::process::Signal::KILL);
    assert!(until(|| hosts.processes().len() == 1));
    let line = hosts.pario(TestHost::A, &["cat", "pario://two/f"]);
    assert!(line.code != 0 && line.err.contains("server 1"), "{line:?}");
    hosts.ok(TestHost::A, &["up", "two"]);
    hosts.ok(TestHost::A, &["cp", "pario://two/f", "again"]);
    assert!(std::fs::read(hosts.world.path("again")).unwrap() == noise(500_000));
    hosts.ok(TestHost::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}

/// A dead server cannot remove its data; this is reported.
#[test]
fn netns_what_a_dead_server_leaves_is_named() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    crate::support::kill(hosts.server_pids()[1], rustix::process::Signal::KILL);
    assert!(until(|| hosts.processes().len() == 1));
    let said = hosts.pario(TestHost::A, &["down", "two", "--destroy"]);
    let left = format!("data stays at {}:{}", TestHost::B.address(), hosts.world.text("disk/data"));
    assert!(said.code != 0 && said.err.contains(&left), "{said:?}");
    assert!(
        hosts.disk(TestHost::B).join("data/identity").exists()
            && !hosts.disk(TestHost::A).join("data").exists()
    );
    assert_eq!(hosts.json(TestHost::A, &["status"]), serde_json::json!([]));
}
