//! Failures: a killed rank, a forked child of a rank, dead servers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pario::core::Clock as _;

use crate::fixture::MpiFixture;
use crate::installations::{MpiInstallation, target};

/// Limit for servers to start, or for ranks to notice their death.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn program(world: &MpiFixture) -> String {
    let options = ["-std=gnu99", "-Wno-unused-function"];
    world.compile(&world.installation.compiler(), "c/failing.c", &options).display().to_string()
}

#[test]
fn a_forked_child_is_told_and_disturbs_nobody() {
    for installation in [MpiInstallation::Mpich, MpiInstallation::OpenMpi] {
        let world = MpiFixture::new(installation);
        let (program, dir) = (program(&world), world.path("").display().to_string());
        let ran = world.run(2, &[program.as_str(), "pario://p/", dir.as_str(), "forked"], &[]);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{}\n{}", ran.out, ran.complaints());
    }
}

#[test]
fn what_a_killed_rank_wrote_is_staged() {
    for installation in [MpiInstallation::Mpich, MpiInstallation::OpenMpi] {
        let world = MpiFixture::new(installation);
        let (program, dir) = (program(&world), world.path("").display().to_string());
        let out = world.path("out").display().to_string();
        let words = [program.as_str(), "pario://p/", dir.as_str(), "killed"];
        let ran = world.run_with(&["--stage-out", &out], 2, &words, &[]);
        assert!(!ran.ok, "a rank was killed: {}\n{}", ran.out, ran.err);
        let bytes = std::fs::read(world.path("out/killed")).expect("what was written is staged out");
        assert_eq!(bytes.len(), 2 << 20, "{}", ran.complaints());
        for (rank, part) in bytes.chunks(1 << 20).enumerate() {
            let letter = b'a' + u8::try_from(rank).unwrap();
            assert!(part.iter().all(|byte| *byte == letter), "rank {rank} on {}", installation.name());
        }
    }
}

/// A small file system for one test, unmounted on drop.
struct SmallTmpfs(PathBuf);

impl SmallTmpfs {
    fn new(path: PathBuf, size: &str) -> SmallTmpfs {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "pario-test"]).arg(&path);
        crate::installations::output(&mut mount);
        SmallTmpfs(path)
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        // A server that just ended may hold it briefly; a lazy unmount succeeds in any case.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_to_every_rank_needs_root() {
    if !rustix::process::geteuid().is_root() || std::env::var_os("PARIO_TEST_SKIP_ROOT").is_some() {
        eprintln!("SKIPPED, no file system can be mounted: not root");
        return;
    }
    for installation in [MpiInstallation::Mpich, MpiInstallation::OpenMpi] {
        let world = MpiFixture::new(installation);
        let (program, dir) = (program(&world), world.path("").display().to_string());
        // The second server has no space for its half of 80 MiB; the first, which has the names, has.
        let small = SmallTmpfs::new(world.path("small"), "size=16m");
        let servers = format!("{},{}", world.path("large").display(), small.0.join("server").display());
        let words = [program.as_str(), "pario://p/", dir.as_str(), "full"];
        let ran = world.run_on(&servers, 2, &words);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{}\n{}", ran.out, ran.complaints());
        assert!(ran.err.contains("told "), "{}", ran.complaints());
    }
}

#[test]
fn servers_that_die_are_an_error_of_the_right_class_on_every_rank() {
    let installation = MpiInstallation::Mpich;
    let world = MpiFixture::new(installation);
    let (program, dir) = (program(&world), world.path("").display().to_string());
    let sign = world.path("sign");
    let words = [program, "pario://p/".into(), dir, "servers".into(), sign.display().to_string()];
    std::thread::scope(|scope| {
        let run = scope.spawn(|| world.run(2, &words, &[]));
        kill_servers(&world, &world.path("sign.ready"));
        std::fs::write(&sign, "dead").unwrap();
        let ran = run.join().unwrap();
        assert!(ran.out.contains(", 0 failures"), "{}\n{}", ran.out, ran.complaints());
    });
}

/// Waits until every rank has synced its writes, then kills the servers.
fn kill_servers(world: &MpiFixture, ready: &Path) {
    let clock = pario_sys::MonotonicClock;
    let begin = clock.now();
    while !ready.exists() {
        assert!(clock.now().since(begin) < WAIT_MAX, "the ranks do not write");
        std::thread::yield_now();
    }
    let mut status = Command::new(target().join("pario"));
    status.args(["--json", "status", "p"]).env("PARIO_REGISTRY", world.path("registry"));
    let status: serde_json::Value =
        serde_json::from_str(&crate::installations::output(&mut status)).expect("status is JSON");
    for server in status[0]["servers"].as_array().unwrap() {
        let pid = server["pid"].as_i64().unwrap().to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    }
}
