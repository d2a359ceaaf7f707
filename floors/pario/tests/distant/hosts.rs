//! Members on two hosts: threads in their own network namespaces, joined only by a virtual cable.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use pario::distant::{Distant, DistantOptions, SharedFileOptions};
use pario::group::threads_on;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::pattern;
use crate::members::HomeDirs;

/// Network namespaces with a virtual cable between them; removed when dropped, also by a failed test.
struct DistantHosts([String; 2]);

impl DistantHosts {
    /// `None`, with a message, if they are not available.
    fn new() -> Option<DistantHosts> {
        let skip = std::env::var_os("PARIO_TEST_SKIP_NETNS").is_some();
        if skip || !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED, no network namespaces: not root, or PARIO_TEST_SKIP_NETNS is set");
            return None;
        }
        let name = |letter: char| format!("pario-distant-{}{letter}", std::process::id());
        let hosts = DistantHosts([name('a'), name('b')]);
        let [a, b] = &hosts.0;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b]);
        for (space, address) in hosts.0.iter().zip(["10.79.1.1/24", "10.79.1.2/24"]) {
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

impl Drop for DistantHosts {
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
fn needs_root_netns_two_hosts_have_one_shared_file() {
    const PART: usize = 200_000;
    let Some(hosts) = DistantHosts::new() else { return };
    let dirs = HomeDirs::new(4);
    std::thread::scope(|scope| {
        for group in threads_on(&[0, 1, 0, 1]) {
            let (hosts, dirs) = (&hosts, &dirs);
            scope.spawn(move || {
                let rank = group.rank();
                hosts.enter(rank % 2);
                let distant = Distant::join(&group, &DistantOptions::in_dir(dirs.of(rank))).unwrap();
                let shared = distant.create(&SharedFileOptions::for_requests(30 << 10)).unwrap();
                shared.write_at((rank * PART) as u64, &pattern(PART, rank as u64)).unwrap();
                group.barrier().unwrap();
                let next = (rank + 1) % 4;
                let mut found = vec![0; PART];
                shared.read_at((next * PART) as u64, &mut found).unwrap();
                assert!(found == pattern(PART, next as u64), "rank {rank} reads what {next} wrote");
                // No memory is shared between hosts: two homes are far, one is near, one its own.
                let counts = shared.counts();
                assert!(0 < counts.far && 0 < counts.near && 0 < counts.own, "{counts:?}");
                assert_eq!(counts.lend_messages, 1, "{counts:?}");
                assert_eq!(counts.far, counts.data_messages, "{counts:?}");
                group.barrier().unwrap();
                shared.destroy(&distant).unwrap();
                distant.leave().unwrap();
                group.leave();
            });
        }
    });
    assert!(dirs.files().is_empty());
}
