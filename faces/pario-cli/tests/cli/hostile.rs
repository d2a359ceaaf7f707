//! Attacks by other users and unauthenticated peers: planted directories and links, filled logs. Each test repeats a real
//! attack; none may change a file outside the partition, or a log line of another peer.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{CliFixture, RunningCommand, until};

/// The other user.
const OTHER: u32 = 65534;
const KEYS: &str = "ssh-ed25519 AAAA the user's own key\n";

fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("bits can be set");
}

/// A world that another user can enter, with a sticky temporary directory and a mock of `authorized_keys`; `None` without root.
fn shared_world() -> Option<CliFixture> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root to act as another user");
        return None;
    }
    let world = CliFixture::new();
    mode(world.path("."), 0o755);
    mode(world.path("tmp"), 0o1777);
    fs::create_dir(world.path("ssh")).expect("a directory of the user");
    fs::write(world.path("ssh/authorized_keys"), KEYS).expect("a file of the user");
    Some(world)
}

/// Runs a script as the other user.
fn as_other(world: &CliFixture, script: &str) {
    let done = Command::new("sh")
        .args(["-c", &format!("umask 0; {script}")])
        .current_dir(world.path("."))
        .uid(OTHER)
        .gid(OTHER)
        .status()
        .expect("a shell runs");
    assert!(done.success(), "{script}");
}

#[track_caller]
fn assert_keys_unchanged(world: &CliFixture) {
    let keys = fs::read_to_string(world.path("ssh/authorized_keys"));
    assert_eq!(keys.expect("it is still there"), KEYS);
    assert_eq!(world.tree("ssh"), ["authorized_keys"]);
}

/// The default directory is in `/tmp`, where any user makes names: a directory of another user is refused, whether empty or not.
#[test]
fn needs_root_a_default_directory_of_another_user_is_refused() {
    let Some(world) = shared_world() else { return };
    let base = "tmp/pario-0";
    for trap in [
        format!("mkdir -p {base}"),
        format!("mkdir -p {base}/s && chmod 1777 {base} {base}/s"),
        format!("mkdir -p {base}/s/server-0 && ln -s ../../../../ssh/authorized_keys {base}/s/server-0/log"),
        format!("ln -s ../ssh {base}"),
    ] {
        as_other(&world, &trap);
        let words = ["up", "--name", "s", "--servers", "1"];
        let line = world.fails(1, &words);
        assert!(line.contains("pario-0") && line.contains("user 65534"), "{trap}: {line}");
        let line = world.fails(1, &["run", "--servers", "1", "--", "true"]);
        assert!(line.contains("user 65534"), "{trap}: {line}");
        assert_keys_unchanged(&world);
        as_other(&world, &format!("rm -rf {base}"));
    }
    world.ok(&["up", "--name", "s", "--servers", "1"]);
    let made = fs::metadata(world.path(base)).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (0, 0o700));
    world.ok(&["down", "s", "--destroy"]);
    assert_eq!(world.tree("tmp"), Vec::<String>::new());
}

/// A storage directory that the user named, where another user owns it, or one above it, or could replace it.
#[test]
fn needs_root_storage_below_another_users_directory_is_refused() {
    let Some(world) = shared_world() else { return };
    let up = |dir: &str| world.fails(1, &["up", "--name", "s", "--servers", "2", "--dir", &world.text(dir)]);
    as_other(&world, "mkdir -p tmp/theirs");
    for dir in ["tmp/theirs", "tmp/theirs/below"] {
        let line = up(dir);
        assert!(line.contains("tmp/theirs: belongs to user 65534"), "{line}");
    }
    fs::create_dir_all(world.path("data/s/server-1")).unwrap();
    std::os::unix::fs::chown(world.path("data/s/server-1"), Some(OTHER), None).unwrap();
    let line = up("data");
    assert!(line.contains("server-1: belongs to user 65534 (mode 0755), not to user 0"), "{line}");
    fs::remove_dir_all(world.path("data/s")).unwrap();
    mode(world.path("data"), 0o777);
    let line = up("data");
    assert!(line.contains("data: other users can write there") && line.contains("mode 0777"), "{line}");
    fs::create_dir(world.path("own")).unwrap();
    mode(world.path("own"), 0o700);
    symlink("../own", world.path("tmp/own")).unwrap();
    let link = ["up", "--name", "s", "--servers", "2", "--dir", &world.text("tmp/own")];
    world.ok(&link);
    assert!(world.path("own/s/server-1/identity").is_file(), "the user's own link is followed");
}

/// A symbolic link in place of a log is not followed.
#[test]
fn a_planted_log_is_refused_and_its_target_unchanged() {
    let world = CliFixture::new();
    world.up("s", 2);
    world.ok(&["down", "s"]);
    let (log, victim) = (world.server_dir("s", 1).join("log"), world.path("victim"));
    fs::write(&victim, KEYS).unwrap();
    fs::remove_file(&log).unwrap();
    symlink(&victim, &log).unwrap();
    let line = world.fails(1, &["up", "s"]);
    assert!(line.contains("server-1/log"), "{line}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), KEYS);
    assert!(world.fails(3, &["logs", "s"]).contains("server-1/log"));
    fs::remove_file(&log).unwrap();
    world.ok(&["up", "s"]);
}

/// Connections of unauthenticated peers are a few lines and a count, not a line each.
#[test]
fn a_flood_of_strangers_does_not_fill_the_log() {
    let world = CliFixture::new();
    world.ok(&["up", "--name", "s", "--servers", "1", "--dir", &world.text("data"), "--transport", "tcp"]);
    let address = world.json(&["status", "s"])[0]["servers"][0]["tcp"].as_str().unwrap().to_owned();
    for _ in 0..500 {
        let mut stranger = std::net::TcpStream::connect(&address).unwrap();
        // More than a frame's head.
        let _ = stranger.write_all(&[b'x'; 4096]);
        // The server closes the connection after handling it.
        let _ = std::io::copy(&mut stranger, &mut std::io::sink());
    }
    world.ok(&["down", "s"]);
    let log = fs::read_to_string(world.server_dir("s", 0).join("log")).unwrap();
    assert!(log.lines().count() < 60, "{} lines", log.lines().count());
    assert!(log.contains(" more in ") || log.contains(" such lines in "), "{log}");
    assert_eq!(world.ok(&["logs", "s", "-n", "2"]).lines().count(), 2);
    let lines = world.json(&["logs", "s", "-n", "0"]);
    assert_eq!(lines.as_array().unwrap().len(), log.lines().count());
    assert!(lines[0]["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{lines}");
    assert!(world.fails(2, &["logs", "s", "--server", "1"]).contains("has no server 1"));
}

/// A client chooses its own name, which may hold control characters.
#[test]
fn what_a_client_calls_itself_is_one_line_without_orders_to_the_terminal() {
    let world = CliFixture::new();
    world.up("s", 1);
    let evil = world.path("evil\nforged\u{1b}[2J");
    fs::hard_link(env!("CARGO_BIN_EXE_pario"), &evil)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_pario"), &evil).map(drop))
        .unwrap();
    let mut command = Command::new(&evil);
    command
        .args(["cp", "-", "pario://s/f"])
        .envs(world.command().get_envs().filter_map(|(k, v)| Some((k, v?))));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The server tells it as it would log it; JSON doubles the backslash.
    let shown = || world.pario(&["--json", "status", "s"]).out;
    let seen = until(|| shown().contains("evil"));
    let text = shown();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(seen && text.contains(r"evil\\nforged\\u{1b}[2J"), "{text}");
    let line = world.fails(1, &["cat", "pario://s/no\nsuch\u{1b}[2Jfile"]);
    assert!(line.contains(r"no\nsuch\u{1b}[2Jfile"), "{line}");
}

/// Links planted in the directory that a copy writes into: refused and named; files outside stay as they are.
#[test]
fn copies_do_not_follow_links_in_their_target() {
    let world = CliFixture::new();
    world.up("s", 2);
    fs::create_dir_all(world.path("in/sub")).unwrap();
    fs::write(world.path("in/file"), "from the partition").unwrap();
    fs::write(world.path("in/sub/deep"), "from the partition").unwrap();
    fs::write(world.path("in/fine"), "fine").unwrap();
    world.ok(&["cp", "-r", "in", "pario://s/in"]);
    let plant = || {
        for dir in ["outside", "out/in"] {
            let _ = fs::remove_dir_all(world.path(dir));
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        fs::write(world.path("outside/victim"), KEYS).unwrap();
    };
    let check = |words: &[&str], links: &[&str], code: i32| {
        let said = world.pario(words);
        assert_eq!(said.code, code, "{said:?}");
        for link in links {
            let named = |line: &str| line.contains(link) && line.contains("symbolic link in the target");
            assert!(said.err.lines().any(named), "{link}: {said:?}");
        }
        assert_eq!(world.tree("outside"), ["victim"]);
        assert_eq!(fs::read_to_string(world.path("outside/victim")).unwrap(), KEYS);
    };
    plant();
    symlink("../../outside/victim", world.path("out/in/file")).unwrap();
    symlink("../../outside", world.path("out/in/sub")).unwrap();
    check(&["cp", "-r", "pario://s/in", "out"], &["out/in/file", "out/in/sub"], 3);
    assert_eq!(fs::read_to_string(world.path("out/in/fine")).unwrap(), "fine");
    check(&["cp", "pario://s/in/file", "out/in/"], &["out/in/file"], 1);
    fs::remove_dir_all(world.path("out/in")).unwrap();
    symlink("../outside", world.path("out/in")).unwrap();
    check(&["cp", "-r", "pario://s/in", "out"], &["out/in"], 1);
    // Dangling links and links to absolute paths are links as well.
    fs::remove_file(world.path("out/in")).unwrap();
    plant();
    symlink(world.path("outside/none"), world.path("out/in/file")).unwrap();
    check(&["cp", "-r", "pario://s/in", "out"], &["out/in/file"], 3);
    // A link that is copied replaces a link; the directory that the user named may be one.
    symlink("fine", world.path("in/link")).unwrap();
    symlink("out2", world.path("named")).unwrap();
    fs::create_dir(world.path("out2")).unwrap();
    for _ in 0..2 {
        world.ok(&["cp", "-r", "in", "named"]);
    }
    assert_eq!(world.tree("out2/in"), ["file", "fine", "link", "sub", "sub/deep"]);
}

/// The same for staging out: the data is kept, and the exit code reports it.
#[test]
fn staging_out_does_not_follow_links_in_its_target() {
    let world = CliFixture::new();
    fs::create_dir_all(world.path("out")).unwrap();
    fs::write(world.path("victim"), KEYS).unwrap();
    symlink("../victim", world.path("out/result")).unwrap();
    let job = "echo result | pario cp - pario://$PARIO_PARTITION/result";
    let mut command = world.command();
    let bin = Path::new(env!("CARGO_BIN_EXE_pario")).parent().unwrap();
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.args(["run", "--name", "j", "--servers", "1", "--stage-out", "out", "--", "sh", "-c", job]);
    let said = RunningCommand::start(&mut command).said();
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("out/result: a symbolic link in the target is not followed"), "{said:?}");
    assert_eq!(fs::read_to_string(world.path("victim")).unwrap(), KEYS);
    assert_eq!(world.ok(&["cat", "pario://j/result"]), "result\n");
}
