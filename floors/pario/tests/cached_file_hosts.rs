//! The file cache between hosts: each member is a thread in its own network namespace, joined only by a virtual cable.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use common::pattern;
use pario::group::threads_on;
use pario::{CacheOptions, Placement, open_cached};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Network namespaces with a virtual cable between them; removed when dropped, also by a failed test.
struct CacheHosts([String; 2]);

impl CacheHosts {
    /// `None`, with a message, if they are not available.
    fn new() -> Option<CacheHosts> {
        let skip = std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some();
        if skip || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, no network namespaces: not root, or PARIO_TEST_SKIP_NETNS is set");
            return None;
        }
        let name = |letter: char| format!("pario-cache-{}{letter}", std::process::id());
        let hosts = CacheHosts([name('a'), name('b')]);
        let [a, b] = &hosts.0;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b]);
        for (space, address) in hosts.0.iter().zip(["10.78.1.1/24", "10.78.1.2/24"]) {
            ip(&["-n", space, "address", "add", address, "dev", "cable"]);
            ip(&["-n", space, "link", "set", "lo", "up"]);
            ip(&["-n", space, "link", "set", "cable", "up"]);
        }
        Some(hosts)
    }

    /// Moves this thread, and those that it starts, to a host.
    fn enter(&self, host: usize) {
        let space = File::open(format!("/run/netns/{}", self.0[host])).unwrap();
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

impl Drop for CacheHosts {
    fn drop(&mut self) {
        for space in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", space]).status();
        }
    }
}

#[track_caller]
fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

#[test]
fn needs_root_hosts_share_a_file_over_the_network() {
    share(Placement::Home);
    share(Placement::FirstTouch);
    share(Placement::LastWriter);
}

fn share(placement: Placement) {
    const PART: usize = 100_000;
    let Some(hosts) = CacheHosts::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    let options = CacheOptions {
        create: true,
        block_bytes: Some(4096),
        stripe_bytes: Some(4096),
        placement,
        ..CacheOptions::default()
    };
    std::thread::scope(|scope| {
        for group in threads_on(&[0, 1, 0, 1]) {
            let (hosts, path, options) = (&hosts, &path, &options);
            scope.spawn(move || {
                hosts.enter(group.rank() % 2);
                let file = open_cached(&group, path, options).unwrap();
                let rank = group.rank();
                file.write_at((rank * PART) as u64, &pattern(PART, rank as u64)).unwrap();
                group.barrier().unwrap();
                let next = (rank + 1) % 4;
                let mut found = vec![0; PART];
                assert_eq!(file.read_at((next * PART) as u64, &mut found).unwrap(), PART);
                assert!(found == pattern(PART, next as u64), "rank {rank} reads what {next} wrote");
                group.barrier().unwrap();
                if let Some(stats) = file.cache_stats() {
                    assert_eq!(stats.plain_reads, 0, "{stats:?}");
                }
                group.barrier().unwrap();
                file.close().unwrap();
                group.leave();
            });
        }
    });
    let expected: Vec<u8> = (0..4).flat_map(|rank| pattern(PART, rank)).collect();
    assert!(std::fs::read(&path).unwrap() == expected);
}
