//! What goes wrong: a rank that is killed, a child of a rank, servers that die.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pario::core::Clock as _;

use crate::installations::{Installation, target};
use crate::world::World;

/// How long servers may take to be there, or ranks to notice that they are not.
const PATIENCE: Duration = Duration::from_secs(60);

fn program(world: &World) -> String {
    let options = ["-std=gnu99", "-Wno-unused-function"];
    world.compile(&world.installation.compiler(), "c/failing.c", &options).display().to_string()
}

#[test]
fn a_forked_child_is_told_and_disturbs_nobody() {
    for installation in [Installation::Mpich, Installation::OpenMpi] {
        let world = World::new(installation);
        let (program, dir) = (program(&world), world.path("").display().to_string());
        let ran = world.run(2, &[program.as_str(), "pario://p/", dir.as_str(), "forked"], &[]);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{}\n{}", ran.out, ran.complaints());
    }
}

#[test]
fn what_a_killed_rank_wrote_is_staged() {
    for installation in [Installation::Mpich, Installation::OpenMpi] {
        let world = World::new(installation);
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

/// A small file system of its own; gone when the test is.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(path: PathBuf, size: &str) -> Tmpfs {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "pario-test"]).arg(&path);
        crate::installations::output(&mut mount);
        Tmpfs(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A server that just ended may hold it for a moment; lazily it goes in any case.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_to_every_rank_needs_root() {
    if !rustix::process::geteuid().is_root() || std::env::var_os("PARIO_TEST_SKIP_ROOT").is_some() {
        eprintln!("SKIPPED, no file system can be mounted: not root");
        return;
    }
    for installation in [Installation::Mpich, Installation::OpenMpi] {
        let world = World::new(installation);
        let (program, dir) = (program(&world), world.path("").display().to_string());
        // The second server has no room for its half of 80 MiB; the first, which has the names, has.
        let small = Tmpfs::new(world.path("small"), "size=16m");
        let servers = format!("{},{}", world.path("large").display(), small.0.join("server").display());
        let words = [program.as_str(), "pario://p/", dir.as_str(), "full"];
        let ran = world.run_on(&servers, 2, &words);
        assert!(ran.ok && ran.out.contains(", 0 failures"), "{}\n{}", ran.out, ran.complaints());
        assert!(ran.err.contains("told "), "{}", ran.complaints());
    }
}

#[test]
fn servers_that_die_are_an_error_of_the_right_class_on_every_rank() {
    let installation = Installation::Mpich;
    let world = World::new(installation);
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

/// Waits until every rank has synced what it wrote, then kills the servers.
fn kill_servers(world: &World, ready: &Path) {
    let clock = pario_sys::MonotonicClock;
    let begin = clock.now();
    while !ready.exists() {
        assert!(clock.now().since(begin) < PATIENCE, "the ranks do not write");
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
