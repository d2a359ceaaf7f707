//! Shared memory: processes of one host share it, processes of two hosts never, even with equal file and host names.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::client::{CHILD, ClientProcess};
use crate::hosts::{ADDRESSES, TestHost, TestHosts};
use crate::support::until;

/// Memory and files that a process holds, as (device, inode): what is open beyond the standard three, and every memory file
/// that is mapped. Two processes with one of them in common can meet in it.
pub(crate) fn holdings(pid: i32) -> BTreeSet<(u64, u64)> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let standard = entry.file_name().to_str().is_some_and(|name| ["0", "1", "2"].contains(&name));
        if let Some(metadata) =
            std::fs::metadata(entry.path()).ok().filter(|metadata| metadata.is_file() && !standard)
        {
            found.insert((metadata.dev(), metadata.ino()));
        }
    }
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.get(5).is_some_and(|name| name.starts_with("/memfd:")) {
            let (major, minor) = words[3].split_once(':').unwrap();
            let part = |digits| u32::from_str_radix(digits, 16).unwrap();
            found.insert((rustix::fs::makedev(part(major), part(minor)), words[4].parse().unwrap()));
        }
    }
    found
}

/// Mapped memory files of a name.
fn mapped(pid: i32, name: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().filter(|line| line.contains(&format!("/memfd:{name}"))).count()
}

/// Whether the server reports that it shares memory with a process.
fn claims(status: &Value, server: TestHost, pid: i32) -> Option<bool> {
    let clients = status[0]["servers"][server.at()]["status"]["clients"].as_array()?;
    let of_pid: Vec<&Value> = clients.iter().filter(|client| client["pid"] == pid).collect();
    let shares: BTreeSet<bool> =
        of_pid.iter().filter_map(|client| client["shares_memory"].as_bool()).collect();
    assert!(shares.len() < 2, "two ways to one server: {of_pid:?}");
    shares.first().copied()
}

/// A client on `host` that has written to and read from both servers, by records and by whole blocks.
fn busy_client(hosts: &TestHosts, host: TestHost) -> ClientProcess {
    let exe = std::env::current_exe().unwrap();
    let mut client = ClientProcess::start(&mut hosts.on(host, exe, &CHILD), "two");
    for (path, bytes) in [("large", 400_000), ("small", 100_000)] {
        let path = format!("{path}-{}", host.at());
        client.execute(&format!("create {path} 2 0")).ok();
        client.execute(&format!("write {path} 7 {bytes}")).ok();
        client.execute(&format!("check {path} 7 {bytes}")).ok();
        client.execute(&format!("write {path} 8 {bytes}")).ok();
    }
    client
}

/// The claim, from both hosts.
fn check_sharing(hosts: &TestHosts) {
    let pids = hosts.server_pids();
    for host in TestHost::BOTH {
        let client = busy_client(hosts, host);
        let (own, other) = (pids[host.at()], pids[host.other().at()]);
        let held = holdings(client.pid());
        assert!(
            held.intersection(&holdings(own)).count() > 0,
            "{host:?}: memory is shared with the own server"
        );
        let common: Vec<_> = held.intersection(&holdings(other)).copied().collect();
        assert!(common.is_empty(), "{host:?}: {common:?} is shared with the other host's server");
        assert_eq!((mapped(client.pid(), "pario-outbox"), mapped(client.pid(), "pario-cursor")), (1, 1));
        assert_eq!((mapped(own, "pario-outbox"), mapped(other, "pario-outbox")), (1, 0));
        for asker in TestHost::BOTH {
            let status = hosts.json(asker, &["status", "two"]);
            assert_eq!(claims(&status, host, client.pid()), Some(true), "{status}");
            assert_eq!(claims(&status, host.other(), client.pid()), Some(false), "{status}");
        }
        assert_eq!(client.end(), 0);
        assert!(until(|| mapped(own, "pario-outbox") == 0), "the server lets go of a client that ended");
    }
    check_peers(hosts, &pids);
}

/// The manager sends its peer a removal: over the network, to the right peer.
fn check_peers(hosts: &TestHosts, pids: &[i32]) {
    hosts.ok(TestHost::B, &["rm", "pario://two/large-0", "pario://two/large-1"]);
    let way = || claims(&hosts.json(TestHost::A, &["status", "two"]), TestHost::B, pids[0]);
    assert!(until(|| way().is_some()), "the manager asks the other host's server");
    assert_eq!(way(), Some(false), "and not through a socket file");
    let common: Vec<_> = holdings(pids[0]).intersection(&holdings(pids[1])).copied().collect();
    assert!(common.is_empty(), "{common:?} is shared between the servers");
}

#[test]
fn netns_hosts_share_no_memory() {
    let Some(hosts) = TestHosts::new() else { return };
    hosts.up_same_path();
    check_sharing(&hosts);
    assert!(hosts.ok(TestHost::A, &["doctor", "two"]).contains("two"), "no object was left by the peers");
}

/// The other host's socket file can be reached through a shared file system; it must not be.
#[test]
fn netns_socket_files_of_another_host_are_not_used() {
    let Some(hosts) = TestHosts::new() else { return };
    let data = hosts.world.text("data");
    hosts.up(&ADDRESSES.map(|address| format!("{address}:{data}/{address}")));
    check_sharing(&hosts);
}

/// A server without a host is where the partition was brought up, and not on each machine of that name.
#[test]
fn netns_a_server_without_a_host_is_at_home_only() {
    let Some(hosts) = TestHosts::new() else { return };
    let dir = hosts.world.text("disk/data");
    hosts.up(&[dir.clone(), format!("{}:{dir}", TestHost::B.address())]);
    check_sharing(&hosts);
    hosts.ok(TestHost::A, &["down", "two", "--destroy"]);
    hosts.assert_nothing_left();
}
