//! Recovery after killed servers, lost directories and lost registries: each cure named in an error message is tried here.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;
use rustix::time::ClockId;

use crate::support::{CliFixture, RunningCommand, kill, said, until};

fn memory_partition(world: &CliFixture) {
    let data = world.text("data");
    let store = ["--store", "memory", "--memory", "64MiB"];
    world.ok(&[&["up", "--name", "m", "--servers", "3", "--dir", &data], &store[..]].concat());
}

/// Kills servers of a partition and waits until they have ended.
fn kill_servers(world: &CliFixture, name: &str, victims: &[usize]) {
    let pids = world.server_pids(name);
    victims.iter().for_each(|victim| kill(pids[*victim], Signal::KILL));
    let gone = |victim: &usize| !world.processes().contains(&pids[*victim]);
    assert!(until(|| victims.iter().all(gone)));
}

#[test]
fn a_memory_partition_that_lost_a_server_goes_down_and_comes_anew() {
    let world = CliFixture::new();
    for victims in [&[1][..], &[0], &[0, 1, 2]] {
        memory_partition(&world);
        kill_servers(&world, "m", victims);
        let status = world.pario(&["status", "m"]);
        assert_eq!(status.code, 3, "{status:?}");
        assert!(status.out.contains("in memory") && status.out.contains("`pario down m`"), "{status:?}");
        assert!(!status.out.contains("brings its data back"), "{status:?}");
        let line = world.fails(1, &["up", "m"]);
        assert!(line.contains("lost") && line.contains("`pario down m`"), "{line}");
        assert!(line.contains(if victims.len() == 1 { "server " } else { "servers 0, 1, 2" }), "{line}");
        // The refusal changes nothing: the cure works behind it.
        assert_eq!(world.processes().len(), 3 - victims.len());
        let line = world.ok(&["down", "m"]);
        assert!(line.contains("gone already with what it held in memory, data removed"), "{line}");
        world.assert_nothing_left();
    }
    memory_partition(&world);
    world.ok(&["ls", "pario://m/"]);
    kill_servers(&world, "m", &[2]);
    world.fails(1, &["up", "m"]);
    world.ok(&["down", "m", "--destroy"]);
    world.assert_nothing_left();
}

/// The registry without one partition.
fn forget(world: &CliFixture, name: &str) {
    let text = fs::read_to_string(world.registry()).expect("a registry");
    let parts: Vec<&str> = text.split("[[partition]]").collect();
    let other = |part: &&&str| !part.contains(&format!("name = \"{name}\""));
    let kept: Vec<&str> = parts.iter().filter(other).copied().collect();
    fs::write(world.registry(), kept.join("[[partition]]")).expect("it can be written");
}

#[test]
fn servers_that_the_registry_lost_are_ended_by_up() {
    let world = CliFixture::new();
    let data = world.text("data");
    let up = ["up", "--name", "s", "--servers", "2", "--dir", &data];
    world.ok(&up);
    fs::write(world.path("f"), "written before").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    let before = world.server_pids("s");
    // With another registry the partition is not lost: its own registry has it.
    let other = world.text("other");
    let line = world.fails(1, &[&up[..], &["--registry", &other]].concat());
    assert!(line.contains(&world.text("registry")) && line.contains("use that registry"), "{line}");
    assert_eq!(world.server_pids("s"), before);
    forget(&world, "s");
    assert!(world.ok(&["status"]).contains("no partitions"));
    world.ok(&up);
    assert_eq!(world.processes().len(), 2, "the old ones are gone");
    assert!(world.server_pids("s").iter().all(|pid| !before.contains(pid)));
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "written before");
    world.ok(&["down", "s", "--destroy"]);
    world.assert_nothing_left();
}

#[test]
fn a_directory_that_is_gone_is_told() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::rename(world.server_dir("s", 1), world.path("away")).unwrap();
    let status = world.pario(&["status", "s"]);
    assert_eq!(status.code, 3, "{status:?}");
    assert!(status.out.contains("store lost") && status.out.contains("`pario down s`"), "{status:?}");
    assert!(status.out.contains("server 1 has lost its directory"), "{status:?}");
    // The cure: down, bring it back, up.
    let down = world.pario(&["down", "s"]);
    assert!(down.code == 0 || down.code == 3, "{down:?}");
    assert!(until(|| world.processes().is_empty()));
    assert!(world.fails(1, &["up", "s"]).contains("is its disk mounted?"));
    fs::rename(world.path("away"), world.server_dir("s", 1)).unwrap();
    world.ok(&["up", "s"]);
    assert_eq!(world.pario(&["status", "s"]).code, 0);
    // The other cure: give it up.
    fs::remove_dir_all(world.server_dir("s", 1)).unwrap();
    assert_eq!(world.pario(&["status", "s"]).code, 3);
    world.pario(&["down", "s", "--destroy"]);
    world.assert_nothing_left();
}

/// Runs `pario run` with a command that signals its start and then waits until the test ends it.
fn start_run(world: &CliFixture, words: &[&str], change: impl FnOnce(&mut Command)) -> RunningCommand {
    let mut command = world.command();
    // It outlives the run that is killed, and must not hold its output open.
    let script = "exec > /dev/null 2>&1; echo x > $0; while test -e $0; do sleep 0.02; done";
    command.arg("run").args(words).args(["--", "sh", "-c", script]).arg(world.path("runs"));
    change(&mut command);
    let running = RunningCommand::start(&mut command);
    assert!(until(|| world.path("runs").exists()), "the command starts");
    running
}

fn now() -> std::time::Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    std::time::Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).expect("below a second"))
}

/// Whether a directory has nothing in it; what is being removed meanwhile still counts.
fn is_empty(world: &CliFixture, dir: &str) -> bool {
    fs::read_dir(world.path(dir)).is_ok_and(|mut entries| entries.next().is_none())
}

/// Servers of a world, without commands that run beside them.
fn servers(world: &CliFixture) -> Vec<i32> {
    let is_server = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"serve")
    };
    world.processes().into_iter().filter(is_server).collect()
}

#[test]
fn servers_end_with_a_run_that_is_killed() {
    let world = CliFixture::new();
    let running = start_run(&world, &["--servers", "3"], |_| {});
    assert_eq!(servers(&world).len(), 3);
    kill(running.pid(), Signal::KILL);
    let began = now();
    assert_eq!(running.said().code, -9);
    assert!(until(|| servers(&world).is_empty() && is_empty(&world, "tmp")));
    assert!((now() - began).as_secs() < 5, "it took {:?}", now() - began);
    fs::remove_file(world.path("runs")).unwrap();
    assert!(until(|| world.json(&["status"]) == serde_json::json!([])));
    world.assert_nothing_left();
}

#[test]
fn data_that_was_there_before_a_run_that_is_killed_stays() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::write(world.path("f"), "kept").unwrap();
    world.ok(&["cp", "f", "pario://s/f"]);
    world.ok(&["down", "s"]);
    let running = start_run(&world, &["--name", "s"], |_| {});
    kill(running.pid(), Signal::KILL);
    running.said();
    fs::remove_file(world.path("runs")).unwrap();
    assert!(until(|| world.processes().is_empty()));
    assert!(world.ok(&["status", "s"]).contains("s: down, 2 servers"));
    world.ok(&["up", "s"]);
    assert_eq!(world.ok(&["cat", "pario://s/f"]), "kept");
}

#[test]
fn what_a_killed_run_was_to_keep_is_named_by_status() {
    let world = CliFixture::new();
    let running = start_run(&world, &["--servers", "2", "--keep", "--name", "mine"], |_| {});
    kill(running.pid(), Signal::KILL);
    running.said();
    fs::remove_file(world.path("runs")).unwrap();
    assert!(world.ok(&["status"]).contains("mine: running, 2 servers"));
    world.ok(&["down", "mine", "--destroy"]);
    world.assert_nothing_left();
}

/// What `run` does without a home: all that it makes is in the temporary directory, and goes.
fn runs_without(world: &CliFixture, change: impl Fn(&mut Command)) {
    let mut command = world.command();
    command.env_remove("PARIO_REGISTRY").env_remove("XDG_STATE_HOME");
    change(&mut command);
    let script = "echo hello > \"$1\"; \"$PARIO_BIN\" cp \"$1\" pario://$PARIO_PARTITION/x && \
                  \"$PARIO_BIN\" cat pario://$PARIO_PARTITION/x; echo $PARIO_REGISTRY";
    command.args(["run", "--servers", "2", "--", "sh", "-c", script, "sh"]).arg(world.path("x"));
    let said = said(&command.output().expect("pario runs"));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let mut lines = said.out.lines();
    assert_eq!(lines.next(), Some("hello"));
    let registry = lines.next().unwrap_or_default();
    assert!(registry.starts_with(&world.text("tmp")), "{registry}");
    assert_eq!(world.tree("tmp"), Vec::<String>::new());
}

#[test]
fn a_run_needs_no_home() {
    let world = CliFixture::new();
    runs_without(&world, |command| {
        command.env_remove("HOME");
    });
    let missing = world.path("missing");
    runs_without(&world, |command| {
        command.env("HOME", &missing);
    });
    assert!(!missing.exists(), "a home is not made");
    // A file in place of the directory: refused for every user, root included.
    fs::create_dir(world.path("closed")).unwrap();
    fs::write(world.path("closed/.local"), "").unwrap();
    runs_without(&world, |command| {
        command.env("HOME", world.path("closed"));
    });
    // A registry named by the user is not replaced silently by another.
    let mut command = world.command();
    command.env("PARIO_REGISTRY", world.path("closed/.local/registry")).args(["run", "--", "true"]);
    assert_eq!(said(&command.output().unwrap()).code, 1);
}

#[test]
fn a_run_without_a_home_that_is_killed_leaves_nothing() {
    let world = CliFixture::new();
    let running = start_run(&world, &["--servers", "2"], |command| {
        command.env_remove("PARIO_REGISTRY").env_remove("XDG_STATE_HOME").env_remove("HOME");
    });
    kill(running.pid(), Signal::KILL);
    running.said();
    fs::remove_file(world.path("runs")).unwrap();
    assert!(until(|| is_empty(&world, "tmp")), "files are left in the temporary directory");
}

pub(crate) fn is_root() -> bool {
    let skipped = std::env::var_os("PARIO_TEST_SKIP_ROOT").is_some() || !rustix::process::geteuid().is_root();
    if skipped {
        eprintln!("SKIPPED, needs root");
    }
    !skipped
}

#[test]
fn needs_root_a_home_that_cannot_be_written_is_none() {
    if !is_root() {
        return;
    }
    let world = CliFixture::new();
    let home = world.path("home");
    fs::create_dir(&home).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&home).status();
    assert!(mounted.unwrap().success());
    let done = std::panic::catch_unwind(|| {
        runs_without(&world, |command| {
            command.env("HOME", &home);
        });
    });
    assert!(Command::new("umount").arg(&home).status().unwrap().success());
    done.unwrap();
}

#[test]
fn needs_root_another_users_registry_says_whose_it_is() {
    if !is_root() {
        return;
    }
    let world = CliFixture::new();
    world.up("s", 1);
    fs::copy(env!("CARGO_BIN_EXE_pario"), world.path("pario")).unwrap();
    let open = |path: &std::path::Path| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    open(&world.path(""));
    open(&world.path("pario"));
    for words in [&["status"][..], &["ls", "pario://s/"], &["up", "s"], &["down", "s"]] {
        let mut command = Command::new(world.path("pario"));
        command.env_clear().env("PARIO_REGISTRY", world.registry()).args(words).uid(65534).gid(65534);
        let said = said(&command.current_dir("/").output().unwrap());
        assert_eq!((said.code, said.err.lines().count()), (1, 1), "{words:?}: {said:?}");
        assert!(said.err.contains("belongs to user 0, this is user 65534"), "{words:?}: {said:?}");
    }
    // Root, too, is another user to a partition.
    std::os::unix::fs::chown(world.registry(), Some(65534), Some(65534)).unwrap();
    let line = world.fails(1, &["status"]);
    assert!(line.contains("belongs to user 65534, this is user 0"), "{line}");
    std::os::unix::fs::chown(world.registry(), Some(0), Some(0)).unwrap();
}

/// A command in a time namespace with its clock far ahead.
fn in_other_time(world: &CliFixture, words: &[&str]) -> crate::support::CommandOutput {
    let own = world.command();
    let mut command = Command::new("unshare");
    command.args(["-T", "--fork", "--monotonic", "100000", "--boottime", "100000"]).arg(own.get_program());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    said(&command.args(words).current_dir(world.path("")).output().expect("unshare runs"))
}

#[test]
fn needs_root_a_process_of_another_time_namespace_is_another_node() {
    if !is_root() {
        return;
    }
    let world = CliFixture::new();
    world.up("s", 2);
    fs::write(world.path("f"), vec![7; 3 << 20]).unwrap();
    if in_other_time(&world, &["--version"]).code != 0 {
        eprintln!("SKIPPED: this kernel or `unshare` has no time namespaces");
        return;
    }
    // Seen from there, start times of processes are others; the servers are not dead for that.
    let status = in_other_time(&world, &["status", "s"]);
    assert!(status.code == 0 && status.out.contains("s: running, 2 servers"), "{status:?}");
    let up = in_other_time(&world, &["up", "s"]);
    assert!(up.code == 1 && up.err.contains("already running"), "{up:?}");
    // Its clock would put records out of order: it shares no memory, and sends what it writes.
    let copied = in_other_time(&world, &["cp", "f", "pario://s/f"]);
    assert_eq!((copied.code, copied.err.as_str()), (0, ""), "{copied:?}");
    assert_eq!(world.pario(&["cat", "pario://s/f"]).out.len(), 3 << 20);
    let data = world.text("data");
    world.ok(&["up", "--name", "u", "--servers", "1", "--dir", &data, "--transport", "unix"]);
    let said = in_other_time(&world, &["ls", "pario://u/"]);
    assert!(said.code == 1 && said.err.contains("time namespace"), "{said:?}");
}
